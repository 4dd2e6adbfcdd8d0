// Gradients of attention: dq, dk and dv from dout, with what the forward pass left.
#include "backward.hpp"

EXAMPLE(backward) {
  const auto forward = tw::AttentionProblem(2, 4, 33, 47, 64);
  const auto problem = tw::AttentionBackwardProblem(2, 4, 33, 47, 64);
  Backward pass(forward);
  const auto operands = [&](auto at) { return pass.operands(at); };
  const auto plan = example.plan_and_run(problem, operands);
  std::printf("%zu stages, a workspace of %lld bytes\n", plan.stage_count(),
              static_cast<long long>(plan.workspace_bytes(operands(on_host), 1)));
  pass.check(example, tw::reference::attention_backward(problem, operands(on_host)));

  // dq of a row is what a small step of q would do to the loss sum(dout * out), by its own account.
  const double step = 1e-3;
  const auto loss = [&](float change) {
    const float before = pass.q.host[5];
    pass.q.host[5] = before + change;
    double sum = 0;
    const std::vector<double> out = tw::reference::attention(
        forward, tw::AttentionOperands().q(pass.q.data()).k(pass.k.data()).v(pass.v.data()).o(pass.out.data()));
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * double(pass.dout.host[i]);
    pass.q.host[5] = before;
    return sum;
  };
  const double slope = (loss(float(step)) - loss(float(-step))) / (2 * step);
  std::printf("dq[5] is %.6f, the difference quotient %.6f\n", double(pass.dq.host[5]), slope);
  example.expect("the slope of the loss", std::fabs(slope - double(pass.dq.host[5])) < 1e-4);
}
