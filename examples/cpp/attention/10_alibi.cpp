// ALiBi: instead of positions in q and k, scores lose slope times distance, with a slope for each head.
#include "../example.hpp"

EXAMPLE(alibi) {
  // 2^-1, 2^-2, ... as the paper has them: the first head looks nearby, the last one far.
  const int64_t batch = 2, heads = 4, rows = 30, keys = 44, size = 64;
  const auto problem = tw::AttentionProblem(batch, heads, rows, keys, size).alibi();
  Heads qkv(problem);
  Array<float> slopes(std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f});
  const auto operands = [&](auto at) { return qkv.operands(at).alibi_slopes(at(slopes)); };
  const auto plan = example.plan_and_run(problem, operands);
  example.check("o", qkv.o, tw::reference::attention(problem, operands(on_host)));

  // Slopes are data of the call: 0 for all heads is attention without them.
  slopes.host.assign(size_t(heads), 0.0f), make_blank(qkv.o);
  example.run(plan, operands);
  const auto plain = tw::AttentionProblem(batch, heads, rows, keys, size);
  example.check("slopes of 0", qkv.o, tw::reference::attention(plain, qkv.operands(on_host)));

  // A steep slope leaves the nearest key alone.  Without a mask the last row stands at the last key: o is its value.
  slopes.host.assign(size_t(heads), 1000.0f);
  example.run(plan, operands);
  double difference = 0;
  for (int64_t at = 0; at < heads * size; ++at)
    difference = std::max(
        difference, std::fabs(double(qkv.o[(rows - 1) * heads * size + at]) - qkv.v[(keys - 1) * heads * size + at]));
  say("with a steep slope the last row is the last value, within ", difference);
  example.expect("the nearest key alone", difference < 1e-6);
  example.refused("operand-missing", [&] { problem.args(qkv.operands(on_host)); });
}
