// Gradients of attention on the CPU beside a float64 reference.  Argument: a folder of Registry.export().
#include <tilewright/reference.hpp>

#include "check.hpp"

static int checked = 0;

static void run(const tw::Dispatcher &dispatcher, const tw::AttentionProblem &forward, tw::AttentionBackwardProblem p,
                tw::AttentionOperands with = {}, tw::AttentionBackwardOperands back = {}) {
  const int64_t rows = p.batch() * p.seqlen_q(), keys = p.batch() * p.seqlen_k();
  const auto q = drawn(rows * p.heads_q() * p.head_dim(), 1), k = drawn(keys * p.heads_kv() * p.head_dim(), 2),
             v = drawn(keys * p.heads_kv() * p.head_dim_v(), 3), dout = drawn(rows * p.heads_q() * p.head_dim_v(), 4);
  with.q(q.data()).k(k.data()).v(v.data());
  // What the forward pass leaves, from the reference: rounded to fp32.
  std::vector<float> out(dout.size()), lse(size_t(rows * p.heads_q()));
  std::vector<double> accum;
  with.o(out.data());
  const std::vector<double> exact = tw::reference::attention(forward, with, &accum);
  for (size_t i = 0; i < out.size(); ++i) out[i] = float(exact[i]);
  for (size_t i = 0; i < lse.size(); ++i) lse[i] = float(accum[i]);
  std::vector<float> dq(q.size(), NAN), dk(k.size(), NAN), dv(v.size(), NAN);
  back.q(q.data()).k(k.data()).v(v.data()).out(out.data()).dout(dout.data()).lse(lse.data());
  back.dq(dq.data()).dk(dk.data()).dv(dv.data());
  const auto plan = dispatcher.plan(p);
  CHECK(plan.stage_count() == 2 && plan.workspace_bytes(back, 2) >= p.between_bytes());
  plan.run(back, tw::Team(2));
  const tw::reference::Gradients expected = tw::reference::attention_backward(p, back);
  const double worst = std::max({tw::reference::error(dq.data(), tw::Dtype::fp32, expected.dq),
                                 tw::reference::error(dk.data(), tw::Dtype::fp32, expected.dk),
                                 tw::reference::error(dv.data(), tw::Dtype::fp32, expected.dv)});
  CHECK(worst < 1e-5);
  if (back.dsink_at) CHECK(tw::reference::error(back.dsink_at, tw::Dtype::fp32, expected.dsink) < 1e-5);
  if (!(worst < 1e-5)) std::printf("  %s: %g\n", p.described().text.c_str(), worst);
  ++checked;
}

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: test_attention_backward FOLDER"), 2;
  const tw::Dispatcher dispatcher(tw::Registry::open(arguments[1]));
  using Forward = tw::AttentionProblem;
  using Problem = tw::AttentionBackwardProblem;
  run(dispatcher, Forward(2, 4, 19, 33, 32), Problem(2, 4, 19, 33, 32));
  run(dispatcher, Forward(1, 4, 30, 30, 32).heads_kv(2).causal(), Problem(1, 4, 30, 30, 32).heads_kv(2).causal());
  run(dispatcher, Forward(1, 2, 140, 130, 32).dropout(), Problem(1, 2, 140, 130, 32).dropout(),
      tw::AttentionOperands().dropout(0.3, 42, 7), tw::AttentionBackwardOperands().dropout(0.3, 42, 7));
  // Sinks, and a gradient of lse.
  const auto sinks = drawn(4, 8), dlse = drawn(2 * 4 * 19, 9);
  std::vector<float> dsink(4, NAN);
  run(dispatcher, Forward(2, 4, 19, 33, 32).sink(), Problem(2, 4, 19, 33, 32).dlse().dsink(),
      tw::AttentionOperands().sink(sinks.data()),
      tw::AttentionBackwardOperands().sink(sinks.data()).dsink(dsink.data()).dlse(dlse.data()));

  const auto rule = [](const Problem &problem) { return rule_of([&] { problem.check(); }); };
  CHECK(rule(Problem(1, 4, 4, 4, 32).heads_kv(3)) == "heads-divide" && rule(Problem(1, 4, 4, 4, 600)) == "head-size");
  CHECK(rule(Problem(-1, 4, 4, 4, 32)) == "size-negative" && rule(Problem(1, 0, 4, 4, 32)) == "size-positive");
  CHECK(rule(Problem(1, 4, 4, 4, 32).accum(tw::Accums::dkv, -1)) == "dkv-splits");
  CHECK(rule(Problem(1, 4, 4, 4, 32).dtype(tw::Dtype::int8)) == "dtype-input");
  CHECK(rule(Problem(1, 4, 4, 4, 32).dbias()) == "dbias-bias" &&
        rule(Problem(1, 4, 4, 4, 32).dalibi()) == "dalibi-bias");
  CHECK(rule(Problem(1, 4, 8, 8, 32).strides(Problem::dq, {1024, 128, 0})) == "stride-overlap");
  CHECK(rule(Problem(1, 4, 8, 8, 32).mask({1, 1, 8, 9})) == "mask-shape");
  for (int number : {-1, 4, 1000000}) CHECK(rule(Problem(2, 4, 19, 33, 32).accum(tw::Accums(number))) == "accum");
  const auto large = Problem(1 << 14, 1 << 10, 16, 1 << 20, 64).accum(tw::Accums::all, 1024);
  CHECK(rule(large) == "" && rule_of([&] { large.between_bytes(); }) == "size-huge");
  CHECK(rule_of([] { Problem(1, 4, INT64_MAX, 4, 32).described(); }) == "size-huge");
  CHECK(rule_of([&] { dispatcher.plan(Problem(2, 4, 19, 33, 32)).run({}); }) == "operand-missing");
  // Gradients that are passed and not described would be left as they are, or not be heeded.
  std::vector<float> some(2 * 4 * 33 * 32);
  float *const at = some.data();
  const auto given = [at] {
    return tw::AttentionBackwardOperands().q(at).k(at).v(at).out(at).dout(at).lse(at).dq(at).dk(at).dv(at);
  };
  const auto plan = dispatcher.plan(Problem(2, 4, 19, 33, 32));
  CHECK(value_of([&] { plan.run(given().dlse(at)); }) == "dlse" &&
        value_of([&] { plan.run(given().dsink(at)); }) == "dsink");
  CHECK(value_of([&] { plan.run(given().dbias(at)); }) == "dbias");
  CHECK(rule_of([&] { plan.run(given().dalibi(at)); }) == "operand-unused");
  std::vector<float> results(3 * some.size());
  float *const dq = results.data(), *const dk = dq + some.size(), *const dv = dk + some.size();
  const auto apart = [&] { return given().dq(dq).dk(dk).dv(dv); };
  CHECK(rule_of([&] { plan.run(apart()); }) == "");
  CHECK(rule_of([&] { plan.run(apart().dq(at)); }) == "out-overlaps" &&
        value_of([&] { plan.run(apart().dv(dk)); }) == "dk");
  CHECK(rule_of([&] { plan.run(apart().dout(dv)); }) == "out-overlaps" &&
        value_of([&] { plan.run(apart().k(dk)); }) == "k");
  for (int which : {-1, 8})
    CHECK(rule_of([&] { Problem(2, 4, 19, 33, 32).strides(Problem::Operand(which), {1, 1, 1}); }) == "operand-name");
  return done("attention_backward", checked);
}
