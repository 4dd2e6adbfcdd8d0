// Gradients under dropout: the seed of the forward pass drops the same entries again.
#include "backward.hpp"

EXAMPLE(backward_dropout) {
  const auto forward = tw::AttentionProblem(1, 4, 40, 40, 64).dropout();
  const auto problem = tw::AttentionBackwardProblem(1, 4, 40, 40, 64).dropout();
  Backward pass(forward, [](tw::AttentionOperands &operands) { operands.dropout(0.2, 77, 5); });
  const auto operands = [&](auto at) { return pass.operands(at).dropout(0.2, 77, 5); };
  const auto plan = example.plan_and_run(problem, operands);
  pass.check(example, tw::reference::attention_backward(problem, operands(on_host)));

  // Another seed is another function: its gradients differ.
  const std::vector<float> before = pass.dv.host;
  example.run(plan, [&](auto at) { return pass.operands(at).dropout(0.2, 78, 5); });
  example.expect("another seed, other gradients", pass.dv.host != before);
}
