// A mask of bytes, which repeats along what has size 1: over heads, over sequences, or not at all.
#include "../example.hpp"

EXAMPLE(masks) {
  const int64_t batch = 2, heads = 4, rows = 20, keys = 30;
  const tw::AttentionProblem::Shape shapes[] = {{batch, heads, rows, keys}, {1, 1, rows, keys}, {batch, 1, 1, keys}};
  for (const auto &shape : shapes) {
    const auto problem = tw::AttentionProblem(batch, heads, rows, keys, 64).mask(shape);
    Heads qkv(problem);
    std::vector<uint8_t> bytes;
    for (int64_t i = 0; i < shape[0] * shape[1] * shape[2] * shape[3]; ++i) bytes.push_back(uint8_t(i * 7 % 5 != 0));
    Array<uint8_t> mask(bytes);
    const auto operands = [&](auto at) { return qkv.operands(at).mask(at(mask)); };
    example.run(example.dispatcher.plan(problem), operands);
    std::printf("a mask of %lld x %lld x %lld x %lld\n", static_cast<long long>(shape[0]),
                static_cast<long long>(shape[1]), static_cast<long long>(shape[2]), static_cast<long long>(shape[3]));
    example.check("  o", qkv.o, tw::reference::attention(problem, operands(on_host)));
    // A row that sees no key is 0.
    std::fill(mask.host.begin(), mask.host.end(), uint8_t(0));
    example.run(example.dispatcher.plan(problem), operands);
    example.expect("nothing seen, nothing said",
                   std::count(qkv.o.host.begin(), qkv.o.host.end(), 0.0f) == int64_t(qkv.o.size()));
  }
}
