// Sequences of different lengths one behind the other (varlen): no padding is computed.
#include "../example.hpp"

EXAMPLE(packed_sequences) {
  const std::vector<int32_t> starts = {0, 17, 20, 52};  // of three sequences, and the end
  const int64_t heads = 4, size = 64, total = 52;
  const auto problem = tw::AttentionProblem(3, heads, /*longest=*/32, 32, size).varlen(total, total);
  Array<float> q = drawn(total * heads * size, 1), k = drawn(total * heads * size, 2),
               v = drawn(total * heads * size, 3), o = blank(total * heads * size);
  Array<int32_t> rows = table(starts), keys = table(starts);
  const auto operands = [&](auto at) {
    return tw::AttentionOperands().q(at(q)).k(at(k)).v(at(v)).o(at(o)).cu_seqlens_q(at(rows)).cu_seqlens_k(at(keys));
  };
  example.plan_and_run(problem, operands);
  example.check("o", o, tw::reference::attention(problem, operands(on_host)));

  // The second sequence by itself gives the same numbers: nobody sees another's keys.
  const auto alone = tw::AttentionProblem(1, heads, 3, 3, size);
  Heads one(alone);
  const int64_t row = heads * size;
  for (Array<float> *array : {&one.q, &one.k, &one.v}) {
    const Array<float> &from = array == &one.q ? q : array == &one.k ? k : v;
    std::copy_n(from.host.begin() + 17 * row, 3 * row, array->host.begin());
  }
  example.plan_and_run(alone, [&](auto at) { return one.operands(at); });
  const std::vector<double> part(o.host.begin() + 17 * row, o.host.begin() + 20 * row);
  example.check("the second by itself", one.o, part);
}
