// Gradients under dropout: the seed of the forward pass drops the same entries again, nothing of it is stored.
#include "backward.hpp"

EXAMPLE(backward_dropout) {
  const double chance = 0.2;
  const uint64_t seed = 77, offset = 5;  // as a generator of random numbers has them: a stream, and a place in it
  const int64_t heads = 4, rows = 40, size = 64;
  const auto forward = tw::AttentionProblem(1, heads, rows, rows, size).dropout();
  const auto problem = tw::AttentionBackwardProblem(1, heads, rows, rows, size).dropout();
  Backward pass(forward, [&](tw::AttentionOperands &operands) { operands.dropout(chance, seed, offset); });
  const auto operands = [&](auto at) { return pass.operands(at).dropout(chance, seed, offset); };
  const auto plan = example.plan_and_run(problem, operands);
  pass.check(example, tw::reference::attention_backward(problem, operands(on_host)));

  // v enters linearly: sum(dv * v) is sum(dout * out), if the same entries were dropped in both passes.
  const auto linear = [&] {
    double gradients = 0, outputs = 0;
    for (size_t i = 0; i < pass.v.size(); ++i) gradients += double(pass.dv.host[i]) * pass.v.host[i];
    for (size_t i = 0; i < pass.out.size(); ++i) outputs += double(pass.dout.host[i]) * pass.out.host[i];
    return say("sum(dv * v) ", gradients, ", sum(dout * out) ", outputs), std::fabs(gradients - outputs);
  };
  example.expect("both passes dropped the same entries", linear() < 1e-3);

  // With another seed, or another place of its stream, they did not.
  const std::vector<float> before = pass.dv.host;
  for (const auto &other : {std::pair<uint64_t, uint64_t>{seed + 1, offset}, {seed, offset + 1}}) {
    example.run(plan, [&](auto at) { return pass.operands(at).dropout(chance, other.first, other.second); });
    example.expect("other entries, other gradients", pass.dv.host != before && linear() > 1e-3);
  }
}
