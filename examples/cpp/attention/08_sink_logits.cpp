// A learned logit a head joins the softmax and has no value (attention sinks): rows may attend to nothing.
#include "../example.hpp"

EXAMPLE(sink_logits) {
  // weight of a key = exp(score) / (exp(sink) + sum of exp(scores)): the larger the sink, the less is left for keys.
  const int64_t heads = 4, rows = 20, keys = 30, size = 64;
  const auto problem = tw::AttentionProblem(1, heads, rows, keys, size).sink();
  Heads qkv(problem);
  Array<float> sink(std::vector<float>{-1.0f, 0.0f, 1.0f, 100.0f});  // one a query head
  const auto operands = [&](auto at) { return qkv.operands(at).sink(at(sink)); };
  const auto plan = example.plan_and_run(problem, operands);
  example.check("o", qkv.o, tw::reference::attention(problem, operands(on_host)));

  // The logit of the last head outweighs all keys: its rows are nearly zero, those of the first are not.
  double largest[4] = {};
  for (int64_t at = 0; at < rows * heads * size; ++at) {
    double &most = largest[at / size % heads];
    most = std::max(most, std::fabs(double(qkv.o[at])));
  }
  for (int head = 0; head < 4; ++head) say("sink ", sink[head], ": largest number of the head ", largest[head]);
  example.expect("the sink took it all", largest[3] < 1e-20 && largest[0] > 1e-2);

  // A sink of minus infinity takes nothing: the same numbers as without.
  sink.host.assign(4, -HUGE_VALF), make_blank(qkv.o);
  example.run(plan, operands);
  const auto without = tw::AttentionProblem(1, heads, rows, keys, size);
  example.check("no sink", qkv.o, tw::reference::attention(without, qkv.operands(on_host)));

  // A problem with sinks needs them.
  example.refused("operand-missing", [&] { problem.args(qkv.operands(on_host)); });
}
