// Attention, forward, on the CPU beside a float64 reference.  Argument: a folder of Registry.export().
#include <tilewright/reference.hpp>

#include "check.hpp"

using Problem = tw::AttentionProblem;

static int checked = 0;

static void run(const tw::Dispatcher &dispatcher, const tw::AttentionProblem &p, const tw::Team &team,
                tw::AttentionOperands operands = {}) {
  const auto q = drawn(p.batch() * p.seqlen_q() * p.heads_q() * p.head_dim(), 1);
  const auto k = drawn(p.batch() * p.seqlen_k() * p.heads_kv() * p.head_dim(), 2);
  const auto v = drawn(p.batch() * p.seqlen_k() * p.heads_kv() * p.head_dim_v(), 3);
  std::vector<float> o(size_t(p.batch() * p.seqlen_q() * p.heads_q() * p.head_dim_v()), NAN);
  std::vector<float> lse(size_t(p.batch() * p.seqlen_q() * p.heads_q()), NAN);
  const bool with_lse = p.described().signature.find("\"lse\":true") != std::string::npos;
  operands.q(q.data()).k(k.data()).v(v.data()).o(o.data()).lse(with_lse ? lse.data() : nullptr);
  const auto plan = dispatcher.plan(p);
  plan.run(operands, team);
  std::vector<double> expected_lse;
  const std::vector<double> expected = tw::reference::attention(p, operands, &expected_lse);
  const double error = tw::reference::error(o.data(), tw::Dtype::fp32, expected);
  CHECK(error < 1e-5);
  if (!(error < 1e-5))
    std::printf("  %s: %g with %s\n", p.described().text.c_str(), error, plan.selection().kernel.name.c_str());
  if (with_lse) CHECK(tw::reference::error(lse.data(), tw::Dtype::fp32, expected_lse) < 1e-5);
  ++checked;
}

static void numbers(const tw::Dispatcher &dispatcher, const tw::Team &team) {
  run(dispatcher, Problem(2, 4, 19, 33, 32), team);
  run(dispatcher, Problem(2, 4, 1, 70, 32).heads_kv(2), team);
  run(dispatcher, Problem(1, 4, 40, 40, 32).heads_kv(1).causal(), team);
  run(dispatcher, Problem(1, 2, 10, 40, 24).causal(true), team);
  run(dispatcher, Problem(1, 2, 30, 30, 32).window(7, 3), team);
  run(dispatcher, Problem(1, 2, 20, 30, 32).return_lse(), team);
  const auto slopes = drawn(2, 7);
  run(dispatcher, Problem(2, 2, 20, 30, 32).alibi(), team, tw::AttentionOperands().alibi_slopes(slopes.data()));

  // Split keys, which a second kernel combines.
  run(dispatcher, Problem(2, 4, 3, 200, 32).heads_kv(2).num_splits(3), team);
  run(dispatcher, Problem(1, 2, 20, 90, 32).num_splits(2).return_lse(), team);
  CHECK(dispatcher.plan(Problem(2, 4, 3, 200, 32).num_splits(3)).stage_count() == 2);
  run(dispatcher, Problem(2, 4, 19, 33, 32), team, tw::AttentionOperands().scale(0));
}

static void rules(const tw::Dispatcher &dispatcher) {
  CHECK(rule_of([] { Problem(1, 4, 4, 4, 32).num_splits(129).check(); }) == "splits");
  CHECK(rule_of([] { Problem(1, 4, 4, 4, 32).heads_kv(3).check(); }) == "heads-divide");
  CHECK(rule_of([] { Problem(1, 4, 4, 4, 32).window(-2, 0).check(); }) == "window");
  CHECK(rule_of([] { Problem(1, 4, 4, 4, 600).check(); }) == "head-size");
  CHECK(rule_of([&] { dispatcher.plan(Problem(2, 4, 19, 33, 32)).run(tw::AttentionOperands()); }) == "operand-missing");
  CHECK(rule_of([&] { dispatcher.plan(Problem(2, 4, 19, 33, 32).softcap()); }) == "no-kernel");
  // Shapes, tables and strides that would have kernels read or write elsewhere.
  const auto rule = [](const Problem &problem) { return rule_of([&] { problem.check(); }); };
  CHECK(rule(Problem(2, 4, 8, 9, 32).mask({2, 1, 8, 9})) == "");
  CHECK(rule(Problem(2, 4, 8, 9, 32).mask({3, 1, 8, 9})) == "mask-shape");
  CHECK(rule(Problem(2, 4, 8, 9, 32).bias({1, 4, 8, -1})) == "bias-shape");
  CHECK(rule(Problem(2, 4, 8, 9, 32).varlen(-1, 9)) == "size-negative");
  CHECK(rule(Problem(2, 4, 8, 9, 32).varlen(16, int64_t(1) << 40)) == "size-huge");
  CHECK(rule(Problem(2, 4, 8, 9, 32).pages(16, -4)) == "size-negative");
  CHECK(rule(Problem(2, 4, 8, 9, 32).pages(int64_t(1) << 40, 4)) == "page-size");
  CHECK(rule(Problem(INT32_MAX, INT32_MAX, INT32_MAX, 9, 32)) == "size-huge");
  CHECK(rule(Problem(2, 4, 8, 9, 32).q_strides({INT64_MAX, 128, 32})) == "size-huge");
  CHECK(rule(Problem(2, 4, 8, 9, 32).q_strides({0, -128, 32})) == "");
  CHECK(rule(Problem(2, 4, 8, 9, 32).o_strides({32, 64, 512})) == "");  // any order of them is apart
  CHECK(rule(Problem(2, 4, 8, 9, 32).o_strides({1024, 128, 0})) == "stride-overlap");
}

static void operands(const tw::Dispatcher &dispatcher) {
  const std::vector<float> rows(8 * 64, 1.0f);
  std::vector<float> o(8 * 64);
  const int32_t lengths[] = {1000};
  tw::AttentionOperands operands;
  operands.q(rows.data()).k(rows.data()).v(rows.data()).o(o.data()).seqlens_k(lengths);
  const auto plan = dispatcher.plan(Problem(1, 2, 8, 8, 32).seqlens_k());
  CHECK(rule_of([&] { plan.run(operands); }) == "operand-values");
  CHECK(rule_of([&] { plan.run_on_stream(operands, o.data(), nullptr); }) == "plan-stream");
  operands.seqlens_k(nullptr);
  const auto plain = dispatcher.plan(Problem(1, 2, 8, 8, 32));
  CHECK(rule_of([&] { plain.run(operands); }) == "");
  CHECK(rule_of([&] { plain.run(tw::AttentionOperands(operands).mask(rows.data())); }) == "operand-unused");
  CHECK(rule_of([&] { plain.run(tw::AttentionOperands(operands).seqlens_k(lengths)); }) == "operand-unused");
  CHECK(rule_of([&] { plain.run(tw::AttentionOperands(operands).cu_seqlens_k(lengths)); }) == "operand-unused");
  CHECK(rule_of([&] { plain.run(tw::AttentionOperands(operands).softcap(30)); }) == "operand-unused");
  CHECK(rule_of([&] { plain.run(tw::AttentionOperands(operands).page_indptr(lengths)); }) == "operand-unused");
  CHECK(rule_of([&] { plain.run(tw::AttentionOperands(operands).page_last(lengths)); }) == "operand-unused");
  CHECK(rule_of([&] { plain.run(tw::AttentionOperands(operands).q(o.data())); }) == "out-overlaps");
  CHECK(rule_of([&] { plain.run(tw::AttentionOperands(operands).lse(o.data())); }) == "operand-unused");
  CHECK(rule_of([&] { plain.run(tw::AttentionOperands(operands).dropout(0.5, 1)); }) == "operand-unused");
  CHECK(rule_of([&] { plain.run(tw::AttentionOperands(operands).scale(NAN)); }) == "scale");
  CHECK(Problem(1, 2, 8, 8, 32).args(operands).scale == std::pow(32.0, -0.5));
  CHECK(Problem(1, 2, 8, 8, 32).args(tw::AttentionOperands(operands).scale(0)).scale == 0);  // a number like others
  CHECK(rule_of([&] { Problem(1, 2, 8, 8, 32).softcap().args(operands); }) == "softcap");
  CHECK(rule_of([&] { Problem(1, 2, 8, 8, 32).dropout().args(tw::AttentionOperands(operands).dropout(1, 1)); }) ==
        "dropout");
  const auto biased = Problem(1, 2, 8, 8, 32).bias({1, 1, 8, 8});
  CHECK(Problem(biased).alibi(false).described().signature == biased.described().signature);
  CHECK(Problem(biased).alibi().alibi(false).described().signature == Problem(1, 2, 8, 8, 32).described().signature);
  // What would overflow where kernels hand on results, or in strides of a bias.
  constexpr int64_t kMost = (int64_t(1) << 31) - 1;
  const auto rule = [](const Problem &problem) { return rule_of([&] { problem.check(); }); };
  const auto split = Problem(1 << 20, 1 << 10, 1 << 20, 16, 64).num_splits(128);
  CHECK(rule(split) == "" && rule_of([&] { split.between_bytes(); }) == "size-huge");
  const auto wide = Problem(kMost, kMost, 0, kMost, 1).heads_kv(1).bias({kMost, kMost, 1, kMost});
  CHECK(rule_of([&] { wide.args(tw::AttentionOperands(operands).bias(rows.data())); }) == "size-huge");
  CHECK(rule(Problem(1, 2, 8, 8, 32).kv_scales(tw::Scales(9))) == "scales-name");
}

// A list of candidates has those that refuse too, by the rule of their own check: here 81 query rows to a KV head.
static void candidates(const tw::Dispatcher &dispatcher) {
  const Problem many = Problem(2, 9, 27, 109, 32).heads_kv(3);
  int64_t refusing = 0;
  for (const tw::Candidate &candidate : dispatcher.candidates(many)) {
    const bool decode = candidate.kernel.name.find("decode") != std::string::npos;
    CHECK(candidate.serves() != decode && candidate.rule == (decode ? "cpu-rows" : ""));
    CHECK(rule_of([&] { dispatcher.plan_with(many, candidate.kernel.digest); }) == (decode ? "no-kernel" : ""));
    refusing += decode;
  }
  CHECK(refusing > 0);
}

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: test_attention FOLDER"), 2;
  const tw::Dispatcher dispatcher(tw::Registry::open(arguments[1]));
  numbers(dispatcher, tw::Team(2)), rules(dispatcher), operands(dispatcher), candidates(dispatcher);
  return done("attention", checked);
}
