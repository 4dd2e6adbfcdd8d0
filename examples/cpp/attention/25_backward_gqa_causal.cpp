// Gradients of causal attention with grouped heads: dk and dv are sums over the query heads of a group.
#include "backward.hpp"

EXAMPLE(backward_gqa_causal) {
  const auto forward = tw::AttentionProblem(1, 8, 35, 35, 64).heads_kv(2).causal();
  const auto problem = tw::AttentionBackwardProblem(1, 8, 35, 35, 64).heads_kv(2).causal().deterministic();
  Backward pass(forward);
  const auto operands = [&](auto at) { return pass.operands(at); };
  const auto plan = example.plan_and_run(problem, operands);
  pass.check(example, tw::reference::attention_backward(problem, operands(on_host)));

  // Deterministic: the same bits in every run.
  const std::vector<float> dq = pass.dq.host, dk = pass.dk.host, dv = pass.dv.host;
  for (int round = 0; round < 3; ++round) {
    std::fill(pass.dk.host.begin(), pass.dk.host.end(), std::nanf(""));
    example.run(plan, operands);
    example.expect("the same bits", pass.dq.host == dq && pass.dk.host == dk && pass.dv.host == dv);
  }
  // The last key is seen by the last row alone.
  double last = 0;
  for (int64_t d = 0; d < 64; ++d) last = std::max(last, std::fabs(double(dv[size_t((34 * 2) * 64 + d)])));
  std::printf("the same bits in every run; largest dv of the last key %.3f\n", last);
}
