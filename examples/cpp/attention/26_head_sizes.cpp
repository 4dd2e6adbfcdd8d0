// Heads of 16 to 128 elements, and values of another size: kernels are made for classes of sizes.
#include "../example.hpp"

EXAMPLE(head_sizes) {
  const int64_t sizes[][2] = {{64, 64}, {50, 50}, {64, 40}, {128, 128}, {100, 128}, {16, 16}};
  for (const auto &size : sizes) {
    const auto problem = tw::AttentionProblem(1, 2, 20, 30, size[0]).head_dim_v(size[1]);
    Heads heads(problem);
    const auto operands = [&](auto at) { return heads.operands(at); };
    const auto plan = example.dispatcher.plan(problem);
    example.run(plan, operands);
    std::printf("heads of %lld and %lld elements: %s\n", static_cast<long long>(size[0]),
                static_cast<long long>(size[1]), plan.selection().kernel.name.c_str());
    example.check("  o", heads.o, tw::reference::attention(problem, operands(on_host)));
  }
  try {
    tw::AttentionProblem(1, 2, 20, 30, 600).check();
    example.expect("heads of 600 are refused", false);
  } catch (const tw::Error &error) { std::printf("refused: [%s] %s\n", error.rule().c_str(), error.remedy().c_str()); }
}
