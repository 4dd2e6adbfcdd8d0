// Caches of keys and values on the CPU: appended to, in pages, of fp8 with scales.  Argument: a folder of Registry.export().
#include <tilewright/reference.hpp>

#include <cmath>
#include <cstring>

#include "check.hpp"

static int checked = 0;

static double farthest(const std::vector<double> &expected, const std::vector<double> &held) {
  if (expected.size() != held.size() || expected.empty()) return HUGE_VAL;
  double most = 0;
  for (size_t i = 0; i < expected.size(); ++i) most = std::fmax(most, std::fabs(expected[i] - held[i]));
  return most;
}

using Append = tw::AttentionAppendProblem;
using Problem = tw::AttentionProblem;

// Two sequences of 20 and 37 keys get 3 more, in pages of 16 slots or not.
static void append(const tw::Dispatcher &dispatcher, Append p, bool paged, tw::Dtype cache_type, double bound) {
  const int64_t cache = paged ? 8 * 16 : 2 * p.room(), bytes = tw::bytes_of(cache_type);
  const auto k = drawn(p.batch() * p.rows() * p.heads_kv() * p.head_dim(), 1), v = drawn(int64_t(k.size()), 2),
             q = drawn(p.batch() * p.rows() * p.heads_q() * p.head_dim(), 3), angles = drawn(p.room() * 8, 4);
  std::vector<char> cache_k(size_t(cache * p.heads_kv() * p.head_dim() * bytes)), cache_v(cache_k.size());
  std::vector<float> rotated(q.size(), NAN), cosines, sines;
  for (float angle : angles) cosines.push_back(std::cos(angle)), sines.push_back(std::sin(angle));
  const int32_t lengths[] = {20, 37}, table[] = {3, 1, 7, 2, 6, 0};
  const float scales[] = {0.25f, 0.5f};
  tw::AttentionAppendOperands o;
  o.k(k.data()).v(v.data()).cache_k(cache_k.data()).cache_v(cache_v.data()).cache_seqlens(lengths);
  if (paged) o.block_table(table, 3);
  if (p.rotary() != tw::Rotary::none) o.q(q.data(), rotated.data()).rotary(cosines.data(), sines.data());
  if (cache_type != tw::Dtype::fp32) o.kv_scales(scales, scales + 1);
  const auto plan = dispatcher.plan(p);
  plan.run(o, tw::Team(2));
  const auto expected = tw::reference::append(p, o), held = tw::reference::appended(p, o);
  CHECK(farthest(expected.k, held.k) < bound);
  CHECK(farthest(expected.v, held.v) < bound);
  if (!expected.q.empty()) CHECK(farthest(expected.q, std::vector<double>(rotated.begin(), rotated.end())) < 1e-6);
  ++checked;
}

// The bytes of fp8 nearest to some numbers.
static std::vector<uint8_t> as_fp8(const std::vector<float> &numbers) {
  std::vector<uint8_t> bytes;
  for (float number : numbers) {
    int best = 0;
    for (int bits = 0; bits < 256; ++bits) {
      const double value = tw::reference::fp8(tw::Dtype::fp8_e4m3, bits);
      const double known = tw::reference::fp8(tw::Dtype::fp8_e4m3, best);
      if (!std::isnan(value) && std::fabs(value - double(number)) < std::fabs(known - double(number))) best = bits;
    }
    bytes.push_back(uint8_t(best));
  }
  return bytes;
}

static void attend(const tw::Dispatcher &dispatcher, const Problem &p, tw::AttentionOperands o, double bound) {
  std::vector<float> out(size_t(p.batch() * p.seqlen_q() * p.heads_q() * p.head_dim_v()), NAN);
  o.o(out.data());
  dispatcher.plan(p).run(o, tw::Team(2));
  const double error = tw::reference::error(out.data(), tw::Dtype::fp32, tw::reference::attention(p, o));
  CHECK(error < bound);
  if (!(error < bound)) std::printf("  %s: %g\n", p.described().text.c_str(), error);
  ++checked;
}

static void refusals(const tw::Dispatcher &dispatcher) {
  const auto rule = [](const auto &problem) { return rule_of([&] { problem.check(); }); };
  CHECK(rule(Append(2, 2, 3, 60, 32)) == "");
  CHECK(rule(Append(2, 2, -3, 60, 32)) == "size-negative");
  CHECK(rule(Append(2, 2, 3, 60, 32).rotary(tw::Rotary::half, 31)) == "rotary-size");
  CHECK(rule(Append(2, 2, 3, 60, 32).rotary(tw::Rotary::half, 64)) == "rotary-size");
  CHECK(rule(Append(2, 2, 3, 60, 32).rotary(tw::Rotary(9))) == "rotary-name");
  CHECK(rule(Append(2, 2, 3, 60, 32).dtype_cache(tw::Dtype::fp8_e4m3).kv_scales(tw::Scales(9))) == "scales-name");
  CHECK(rule_of([] { Append(2, 2, INT64_MAX, INT64_MAX, 32).described(); }) == "size-huge");
  CHECK(rule(Append(2, 2, 3, 60, 32).pages(2000, 4)) == "page-size");
  CHECK(rule(Append(2, 2, 3, 60, 32).pages(6, 4, true)) == "page-vector");
  CHECK(rule(Append(2, 2, 3, 60, 32).kv_scales(tw::Scales::head)) == "scales-dtype");
  CHECK(rule(Append(2, 2, 3, 60, 32).dtype_cache(tw::Dtype::fp16)) == "dtype-mix");
  CHECK(rule(Append(2, 2, 3, 60, 32).heads_q(3)) == "heads-divide");
  CHECK(rule(Append(2, 2, 3, 60, 32).cache_k_strides({0, 64, 32})) == "stride-overlap");
  CHECK(rule(Append(2, 2, 3, 60, 32).k_strides({INT64_MAX, 64, 32})) == "size-huge");
  CHECK(rule(Append(2, 2, 3, 60, 32).v_strides({192, 64, INT64_MAX / 2})) == "size-huge");
  CHECK(rule(Append(2, 2, 3, 60, 32).k_strides({192, -64, 32}).v_strides({0, 64, 32})) == "");  // they are only read
  CHECK(rule(Append(2, 2, 3, 60, 32).rotary(tw::Rotary::half, 16, -5)) == "rotary-tables");
  CHECK(rule(Problem(1, 2, 3, 60, 32).kv_scales(tw::Scales::head)) == "scales-dtype");
  CHECK(rule(Problem(1, 2, 3, 60, 32).dtype(tw::Dtype::fp8_e4m3).kv_scales(tw::Scales::block)) == "scale-block");
  CHECK(rule(Problem(1, 2, 3, 60, 30).pages(16, 4, false, true)) == "page-vector");
  const auto plan = dispatcher.plan(Append(2, 2, 3, 60, 32));
  CHECK(rule_of([&] { plan.run({}); }) == "operand-missing");
  std::vector<float> rows(2 * 60 * 64);
  const int32_t lengths[] = {20, 59};  // of which the second has no room
  tw::AttentionAppendOperands o;
  o.k(rows.data()).v(rows.data()).cache_k(rows.data()).cache_v(rows.data()).cache_seqlens(lengths);
  CHECK(rule_of([&] { plan.run(o); }) == "operand-values");
  CHECK(rule_of([&] { plan.run(tw::AttentionAppendOperands(o).block_table(lengths)); }) == "operand-unused");
}

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: test_attention_cache FOLDER"), 2;
  const tw::Dispatcher dispatcher(tw::Registry::open(arguments[1]));
  append(dispatcher, Append(2, 2, 3, 60, 32), false, tw::Dtype::fp32, 1e-6);
  append(dispatcher, Append(2, 2, 3, 48, 32).pages(16, 8), true, tw::Dtype::fp32, 1e-6);
  append(dispatcher, Append(2, 2, 3, 60, 32).heads_q(4).rotary(tw::Rotary::half, 16).rotary_q(), false, tw::Dtype::fp32,
         1e-6);
  append(dispatcher, Append(2, 2, 3, 60, 32).dtype_cache(tw::Dtype::fp8_e4m3).kv_scales(tw::Scales::tensor), false,
         tw::Dtype::fp8_e4m3, 0.26);  // of numbers up to 4: half of a step of fp8 there, and a little

  const auto q = drawn(2 * 5 * 4 * 32, 1), k = drawn(8 * 16 * 2 * 32, 2), v = drawn(8 * 16 * 2 * 32, 3);
  const int32_t lengths[] = {20, 37}, table[] = {3, 1, 7, 2, 6, 0};
  tw::AttentionOperands paged;
  paged.q(q.data()).k(k.data()).v(v.data()).seqlens_k(lengths).block_table(table, 3);
  attend(dispatcher, Problem(2, 4, 5, 48, 32).heads_kv(2).seqlens_k().pages(16, 8, false, true), paged, 1e-5);
  for (int64_t entries : {int64_t(-1), int64_t(2), INT64_MAX}) {  // 48 keys need 3 pages
    const Problem far = Problem(2, 4, 5, 48, 32).heads_kv(2).seqlens_k().pages(16, 8);
    std::vector<float> o(2 * 5 * 4 * 32);
    CHECK(rule_of([&] { far.args(tw::AttentionOperands(paged).o(o.data()).block_table(table, entries)); }) ==
          "page-entries");
  }

  const auto q8 = as_fp8(q), k8 = as_fp8(drawn(2 * 40 * 2 * 32, 5)), v8 = as_fp8(drawn(2 * 40 * 2 * 32, 6));
  const auto of_q = drawn(4, 7), of_k = drawn(2, 8), of_v = drawn(2 * 2 * 3, 9);
  tw::AttentionOperands scaled;
  scaled.q(q8.data()).k(k8.data()).v(v8.data()).q_scale(of_q.data()).kv_scales(of_k.data(), of_v.data());
  const Problem narrow = Problem(2, 4, 5, 40, 32).heads_kv(2).dtype(tw::Dtype::fp8_e4m3).dtype_out(tw::Dtype::fp32);
  attend(dispatcher, Problem(narrow).q_scale(tw::Scales::head).kv_scales(tw::Scales::head), scaled, 2e-2);
  scaled.kv_scales(of_v.data(), of_v.data());
  attend(dispatcher, Problem(narrow).q_scale(tw::Scales::head).kv_scales(tw::Scales::block).scale_block(16), scaled,
         2e-2);
  refusals(dispatcher);
  return done("attention_cache", checked);
}
