// A bias tensor added to the scores, of any shape that repeats to (batch, heads, rows, keys).
#include "../example.hpp"

EXAMPLE(bias) {
  const int64_t batch = 2, heads = 4, rows = 20, keys = 30;
  // T5's relative positions are (1, heads, rows, keys); a penalty of single keys is (batch, 1, 1, keys).
  const tw::AttentionProblem::Shape shapes[] = {
      {batch, heads, rows, keys}, {1, heads, rows, keys}, {1, 1, rows, keys}, {batch, 1, 1, keys}};
  for (const auto &shape : shapes) {
    const auto problem = tw::AttentionProblem(batch, heads, rows, keys, 64).bias(shape);
    Heads qkv(problem);
    Array<float> bias = drawn(shape[0] * shape[1] * shape[2] * shape[3], 9);
    const auto operands = [&](auto at) { return qkv.operands(at).bias(at(bias)); };
    const auto plan = example.dispatcher.plan(problem);
    example.run(plan, operands);
    say("a bias of ", shape[0], " x ", shape[1], " x ", shape[2], " x ", shape[3], ": ", plan.selection().kernel.name);
    example.check("  o", qkv.o, tw::reference::attention(problem, operands(on_host)));

    // The same number for all keys of a row changes nothing: the softmax divides it out.
    std::fill(bias.host.begin(), bias.host.end(), 3.0f), make_blank(qkv.o);
    example.run(plan, operands);
    const auto plain = tw::AttentionProblem(batch, heads, rows, keys, 64);
    example.check("  3 everywhere", qkv.o, tw::reference::attention(plain, qkv.operands(on_host)));
  }

  // Three heads do not repeat to four, and a problem without a bias takes none.
  const auto plain = tw::AttentionProblem(batch, heads, rows, keys, 64);
  example.refused("bias-shape", [&] { tw::AttentionProblem(plain).bias({batch, 3, rows, keys}).check(); });
  Heads qkv(plain);
  example.refused("operand-unused", [&] { plain.args(qkv.operands(on_host).bias(qkv.q.data())); });
}
