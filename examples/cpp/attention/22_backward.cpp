// Gradients of attention: dq, dk and dv from dout, with what the forward pass left (out and lse).
#include "backward.hpp"

EXAMPLE(backward) {
  // A loss sees out; dout is its gradient there.  `Backward` has the operands of both passes, out and lse filled in.
  const auto forward = tw::AttentionProblem(2, 4, 33, 47, 64);
  const auto problem = tw::AttentionBackwardProblem(2, 4, 33, 47, 64);
  Backward pass(forward);
  const auto operands = [&](auto at) { return pass.operands(at); };
  const auto plan = example.plan_and_run(problem, operands);
  say(plan.stage_count(), " stages, a workspace of ", plan.workspace_bytes(operands(on_host), 1), " bytes");
  pass.check(example, tw::reference::attention_backward(problem, operands(on_host)));

  // dq[5] is how much the loss sum(dout * out) changes with q[5], as a small step to both sides shows.
  const auto loss = [&](float change) {
    const float before = pass.q[5];
    pass.q[5] = before + change;
    const std::vector<double> out = tw::reference::attention(
        forward, tw::AttentionOperands().q(pass.q.data()).k(pass.k.data()).v(pass.v.data()).o(pass.out.data()));
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * double(pass.dout.host[i]);
    pass.q[5] = before;
    return sum;
  };
  const double step = 1e-3, slope = (loss(float(step)) - loss(float(-step))) / (2 * step);
  say("dq[5] is ", pass.dq[5], ", the difference quotient ", slope);
  example.expect("the slope of the loss", std::fabs(slope - double(pass.dq[5])) < 1e-4);

  // Without lse the backward pass cannot know what the softmax was.
  const auto without_lse = [&](auto at) { return pass.operands(at).lse(nullptr); };
  example.refused("operand-missing", [&] { example.run(plan, without_lse); });
}
