// A bias tensor added to the scores, of any shape that repeats to (batch, heads, rows, keys).
#include "../example.hpp"

EXAMPLE(bias) {
  const int64_t batch = 2, heads = 4, rows = 20, keys = 30;
  const tw::AttentionProblem::Shape shapes[] = {
      {batch, heads, rows, keys}, {1, heads, rows, keys}, {1, 1, rows, keys}, {batch, 1, 1, keys}};
  for (const auto &shape : shapes) {
    const auto problem = tw::AttentionProblem(batch, heads, rows, keys, 64).bias(shape);
    Heads qkv(problem);
    Array<float> bias = drawn(shape[0] * shape[1] * shape[2] * shape[3], 9);
    const auto operands = [&](auto at) { return qkv.operands(at).bias(at(bias)); };
    example.run(example.dispatcher.plan(problem), operands);
    std::printf("a bias of %lld x %lld x %lld x %lld\n", static_cast<long long>(shape[0]),
                static_cast<long long>(shape[1]), static_cast<long long>(shape[2]), static_cast<long long>(shape[3]));
    example.check("  o", qkv.o, tw::reference::attention(problem, operands(on_host)));
  }
  try {
    tw::AttentionProblem(batch, heads, rows, keys, 64).bias({batch, 3, rows, keys}).check();
    example.expect("a shape that does not repeat is refused", false);
  } catch (const tw::Error &error) { std::printf("refused: %s\n", error.what()); }
}
