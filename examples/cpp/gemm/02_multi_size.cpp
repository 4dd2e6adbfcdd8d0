// One dispatcher, many sizes: each gets the kernel that suits it, and a size seen before finds its plan again.
#include "../example.hpp"

EXAMPLE(multi_size) {
  struct Size {
    int64_t m, n, k;
    const char *what;
  };
  const Size sizes[] = {{1, 256, 128, "one row, as in decoding"},
                        {7, 33, 65, "odd everywhere"},
                        {64, 64, 64, "small"},
                        {130, 70, 96, "just over a tile"},
                        {256, 256, 64, "larger"}};
  std::vector<std::string> kernels;
  for (int round = 0; round < 2; ++round)
    for (const Size &size : sizes) {
      const auto problem = tw::GemmProblem(size.m, size.n, size.k).layout("rcr");  // B: weights of a linear layer
      Array<float> a = drawn(size.m * size.k, 1), b = drawn(size.n * size.k, 2), e = blank(size.m * size.n);
      const auto operands = [&](auto at) { return tw::GemmOperands().a(at(a)).b(at(b)).e(at(e)); };

      const auto plan = example.dispatcher.plan(problem);  // selects in the first round, looks up in the second
      example.run(plan, operands);
      const tw::Selection &chosen = plan.selection();
      if (round == 0) {
        say(size.m, " x ", size.n, " x ", size.k, ", ", size.what, ": ", chosen.kernel.name);
        say("  estimated ", chosen.seconds * 1e6, " us: ", chosen.reason);
        kernels.push_back(chosen.kernel.digest);
      }
      example.check("  e", e, tw::reference::gemm(problem, operands(on_host)));
    }
  std::sort(kernels.begin(), kernels.end());
  const auto different = std::unique(kernels.begin(), kernels.end()) - kernels.begin();
  say(different, " different kernels for ", std::size(sizes), " sizes");

  // A plan for each size and no more: a lookup takes a fraction of a microsecond.
  example.expect("the second round planned nothing", example.dispatcher.kept_plans() == int64_t(std::size(sizes)));
}
