// y = x w': describe the problem, see which kernel was chosen and why, run it, check it.
#include "../example.hpp"

EXAMPLE(basic) {
  const int64_t m = 100, n = 70, k = 55;
  Array<float> x = drawn(m * k, 1), w = drawn(n * k, 2), y = blank(m * n);

  // Layout: A by rows, B by columns (w is stored as out x in), the result by rows.
  const auto problem = tw::GemmProblem(m, n, k).layout("rcr");
  const tw::Selection chosen = example.dispatcher.select(problem);
  std::printf("%s\n%s: %s, estimated %.1f us\n", chosen.kernel.name.c_str(), chosen.tier.c_str(), chosen.reason.c_str(),
              chosen.seconds * 1e6);

  const auto operands = [&](auto at) { return tw::GemmOperands().a(at(x)).b(at(w)).e(at(y)); };
  const auto plan = example.dispatcher.plan(problem);
  std::printf("workspace: %lld bytes\n",
              static_cast<long long>(plan.workspace_bytes(operands(on_host), example.team.threads())));
  example.run(plan, operands);
  example.check("y", y, tw::reference::gemm(problem, operands(on_host)));

  // What cannot be done says which rule speaks against it, and what would work.
  try {
    example.dispatcher.plan(tw::GemmProblem(m, n, -1));
    example.expect("a negative size is refused", false);
  } catch (const tw::Error &error) {
    std::printf("refused: %s\n", error.what());
    example.expect("by its rule", error.rule() == "size-negative" && error.owner() == "request");
  }
}
