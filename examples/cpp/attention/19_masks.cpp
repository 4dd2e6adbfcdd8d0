// A mask of bytes, 1 where a row sees a key; it repeats along what has size 1: over heads, over sequences, or rows.
#include "../example.hpp"

EXAMPLE(masks) {
  const int64_t batch = 2, heads = 4, rows = 20, keys = 30;
  struct Mask {
    const char *what;
    tw::AttentionProblem::Shape shape;  // batch, heads, rows, keys
  };
  const Mask masks[] = {{"for each head by itself", {batch, heads, rows, keys}},
                        {"for all heads and sequences", {1, 1, rows, keys}},
                        {"of keys (padding)", {batch, 1, 1, keys}}};
  for (const Mask &mask : masks) {
    const auto problem = tw::AttentionProblem(batch, heads, rows, keys, 64).mask(mask.shape);
    Heads qkv(problem);
    std::vector<uint8_t> bytes(size_t(mask.shape[0] * mask.shape[1] * mask.shape[2] * mask.shape[3]));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = i * 7 % 5 != 0;  // four of five are seen
    Array<uint8_t> visible(bytes);
    const auto operands = [&](auto at) { return qkv.operands(at).mask(at(visible)); };
    say("a mask ", mask.what, ", ", bytes.size(), " bytes");
    const auto plan = example.plan_and_run(problem, operands);
    example.check("  o", qkv.o, tw::reference::attention(problem, operands(on_host)));

    // A key that nobody sees does not count, whatever it holds.
    const std::vector<float> before = qkv.o.host;
    for (size_t i = 0; i < bytes.size(); ++i)
      if (i % size_t(keys) == 3) visible.host[i] = 0;
    for (int64_t at = 3 * heads * 64; at < 4 * heads * 64; ++at) qkv.k[at] = 100;
    example.run(plan, operands);
    example.check("  o without key 3", qkv.o, tw::reference::attention(problem, operands(on_host)));
    example.expect("key 3 counted before", qkv.o.host != before);

    // A row that sees no key is 0.
    std::fill(visible.host.begin(), visible.host.end(), uint8_t(0));
    example.run(plan, operands);
    const auto zeros = std::count(qkv.o.host.begin(), qkv.o.host.end(), 0.0f);
    example.expect("nothing seen, nothing said", zeros == int64_t(qkv.o.size()));
  }
}
