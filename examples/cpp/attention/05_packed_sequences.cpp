// Sequences of different lengths one behind the other (varlen): no padding is stored, none is computed.
#include "../example.hpp"

EXAMPLE(packed_sequences) {
  // Three sequences of 17, 3 and 32 rows in one array of 52: where each begins, and the end (cu_seqlens).
  const std::vector<int32_t> starts = {0, 17, 20, 52};
  const int64_t heads = 4, size = 64, total = 52, longest = 32;
  const auto problem = tw::AttentionProblem(3, heads, longest, longest, size).varlen(total, total).causal();
  Array<float> q = drawn(total * heads * size, 1), k = drawn(total * heads * size, 2),
               v = drawn(total * heads * size, 3), o = blank(total * heads * size);
  Array<int32_t> rows = table(starts), keys = table(starts);
  const auto operands = [&](auto at) {
    return tw::AttentionOperands().q(at(q)).k(at(k)).v(at(v)).o(at(o)).cu_seqlens_q(at(rows)).cu_seqlens_k(at(keys));
  };
  const auto plan = example.plan_and_run(problem, operands);
  example.check("o", o, tw::reference::attention(problem, operands(on_host)));

  // The second sequence by itself gives the same numbers: nobody sees another's keys.
  const auto alone = tw::AttentionProblem(1, heads, 3, 3, size).causal();
  Heads second(alone);
  const int64_t row = heads * size;
  const auto take = [&](Array<float> &to, const Array<float> &from) {
    std::copy_n(from.host.begin() + starts[1] * row, 3 * row, to.host.begin());
  };
  take(second.q, q), take(second.k, k), take(second.v, v);
  example.plan_and_run(alone, [&](auto at) { return second.operands(at); });
  const std::vector<double> part(o.host.begin() + starts[1] * row, o.host.begin() + starts[2] * row);
  example.check("the second by itself", second.o, part);

  // Other lengths of the same total: the same plan, another table.
  rows.host = keys.host = {0, 30, 31, 52}, make_blank(o);
  example.run(plan, operands);
  example.check("30, 1 and 21 rows", o, tw::reference::attention(problem, operands(on_host)));
}
