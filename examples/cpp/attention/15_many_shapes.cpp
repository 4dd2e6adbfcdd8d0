// Shapes from decoding to prefill with one dispatcher; which kernel each gets.
#include "../example.hpp"

EXAMPLE(many_shapes) {
  struct Shape {
    int64_t batch, heads, heads_kv, rows, keys;
  };
  const Shape shapes[] = {{1, 4, 4, 1, 1}, {4, 4, 1, 1, 300}, {1, 8, 2, 16, 16}, {2, 4, 4, 65, 65}, {1, 2, 2, 200, 30}};
  std::vector<std::string> kernels;
  for (const Shape &shape : shapes) {
    const auto problem =
        tw::AttentionProblem(shape.batch, shape.heads, shape.rows, shape.keys, 64).heads_kv(shape.heads_kv);
    Heads heads(problem);
    const auto operands = [&](auto at) { return heads.operands(at); };
    const auto plan = example.dispatcher.plan(problem);
    example.run(plan, operands);
    std::printf("%lld x %lld heads, %lld rows, %lld keys: %s\n", static_cast<long long>(shape.batch),
                static_cast<long long>(shape.heads), static_cast<long long>(shape.rows),
                static_cast<long long>(shape.keys), plan.selection().kernel.name.c_str());
    example.check("  o", heads.o, tw::reference::attention(problem, operands(on_host)));
    if (std::find(kernels.begin(), kernels.end(), plan.selection().kernel.name) == kernels.end())
      kernels.push_back(plan.selection().kernel.name);
  }
  std::printf("%zu different kernels\n", kernels.size());
  example.expect("a plan a shape", example.dispatcher.kept_plans() == 5);
}
