// One dispatcher, many sizes: each gets the kernel that suits it, and a size seen before finds its plan again.
#include "../example.hpp"

EXAMPLE(multi_size) {
  const int64_t sizes[][3] = {{1, 256, 128}, {7, 33, 65}, {64, 64, 64}, {130, 70, 96}, {256, 256, 64}};
  for (int round = 0; round < 2; ++round)
    for (const auto &size : sizes) {
      const int64_t m = size[0], n = size[1], k = size[2];
      Array<float> a = drawn(m * k, 1), b = drawn(n * k, 2), e = blank(m * n);
      const auto problem = tw::GemmProblem(m, n, k).layout("rcr");  // B by columns: weights of a linear layer
      const auto operands = [&](auto at) { return tw::GemmOperands().a(at(a)).b(at(b)).e(at(e)); };
      const auto plan = example.plan_and_run(problem, operands);
      std::printf("  %lld x %lld x %lld: estimated %.1f us, %s\n", static_cast<long long>(m), static_cast<long long>(n),
                  static_cast<long long>(k), plan.selection().seconds * 1e6, plan.selection().reason.c_str());
      example.check("e", e, tw::reference::gemm(problem, operands(on_host)));
    }
  // The second round planned nothing: a lookup takes a fraction of a microsecond.
  example.expect("a plan for each size", example.dispatcher.kept_plans() == 5);
}
