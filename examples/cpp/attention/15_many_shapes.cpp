// Shapes from decoding to prefill with one dispatcher; which kernel each gets, and why.
#include "../example.hpp"

struct Shape {
  const char *what;
  int64_t batch, heads, heads_kv, rows, keys;
};

EXAMPLE(many_shapes) {
  const Shape shapes[] = {{"the very first token", 1, 4, 4, 1, 1},
                          {"decoding, one head of keys for all (MQA)", 4, 4, 1, 1, 300},
                          {"a short prompt with grouped heads", 1, 8, 2, 16, 16},
                          {"just over a tile of 64", 2, 4, 4, 65, 65},
                          {"more rows than keys (cross-attention)", 1, 2, 2, 200, 30}};
  std::vector<std::string> kernels;
  for (const Shape &shape : shapes) {
    const auto problem =
        tw::AttentionProblem(shape.batch, shape.heads, shape.rows, shape.keys, 64).heads_kv(shape.heads_kv);
    Heads qkv(problem);
    const auto operands = [&](auto at) { return qkv.operands(at); };
    const auto plan = example.dispatcher.plan(problem);
    example.run(plan, operands);

    const tw::Selection &chosen = plan.selection();
    say(shape.what, ": ", shape.batch, " x ", shape.heads, "/", shape.heads_kv, " heads, ", shape.rows, " rows, ",
        shape.keys, " keys\n  ", chosen.kernel.name, ", ", chosen.reason, ", ", chosen.seconds * 1e6, " us");
    example.check("  o", qkv.o, tw::reference::attention(problem, operands(on_host)));
    if (std::find(kernels.begin(), kernels.end(), chosen.kernel.name) == kernels.end())
      kernels.push_back(chosen.kernel.name);
  }
  say(kernels.size(), " different kernels for ", std::size(shapes), " shapes");
  example.expect("a plan a shape", example.dispatcher.kept_plans() == int64_t(std::size(shapes)));
}
