// Gradients of causal attention with grouped heads: dk and dv are sums over the query heads of a group.
#include "backward.hpp"

EXAMPLE(backward_gqa_causal) {
  // 8 heads of queries, 4 of them to each of 2 heads of keys; row i sees keys 0 to i.
  const int64_t heads = 8, heads_kv = 2, rows = 35, size = 64;
  const auto forward = tw::AttentionProblem(1, heads, rows, rows, size).heads_kv(heads_kv).causal();
  const auto problem =
      tw::AttentionBackwardProblem(1, heads, rows, rows, size).heads_kv(heads_kv).causal().deterministic();
  Backward pass(forward);
  const auto operands = [&](auto at) { return pass.operands(at); };
  const auto plan = example.plan_and_run(problem, operands);
  pass.check(example, tw::reference::attention_backward(problem, operands(on_host)));
  example.expect("dk has the heads of k", pass.dk.size() == size_t(rows * heads_kv * size));

  // Deterministic: those sums are added in a fixed order, so that every run has the same bits.
  const std::vector<float> dq = pass.dq.host, dk = pass.dk.host, dv = pass.dv.host;
  for (int round = 0; round < 3; ++round) {
    make_blank(pass.dq), make_blank(pass.dk), make_blank(pass.dv);
    example.run(plan, operands);
    example.expect("the same bits", pass.dq.host == dq && pass.dk.host == dk && pass.dv.host == dv);
  }
  say("the same bits in every run");

  // The last key is seen by the last row alone: a change of that row's dout is all that changes its dv.
  const int64_t last_key = (rows - 1) * heads_kv * size, last_row = (rows - 1) * heads * size;
  for (int64_t at = last_row; at < last_row + heads * size; ++at) pass.dout[at] = 0;
  example.run(plan, operands);
  double largest = 0;
  for (int64_t at = last_key; at < last_key + heads_kv * size; ++at)
    largest = std::max(largest, std::fabs(double(pass.dv[at])));
  say("dv of the last key where the last row has no gradient: ", largest);
  example.expect("nobody else sees the last key", largest == 0);
}
