// All kernels that serve a problem, each checked beside float64 and then timed: what a tuner does, by hand.
#include "../example.hpp"

EXAMPLE(benchmark) {
  const int64_t m = 192, n = 160, k = 256;
  Array<float> a = drawn(m * k, 1), b = drawn(n * k, 2), e = blank(m * n);
  const auto problem = tw::GemmProblem(m, n, k).layout("rcr");
  const auto operands = [&](auto at) { return tw::GemmOperands().a(at(a)).b(at(b)).e(at(e)); };
  const std::vector<double> expected = tw::reference::gemm(problem, operands(on_host));

  std::printf("%-70s %10s %10s\n", "kernel", "estimate", "took");
  int timed = 0;
  for (const tw::Candidate &candidate : example.dispatcher.candidates(problem)) {
    if (!candidate.serves()) {
      std::printf("%-70s [%s] %s\n", candidate.kernel.name.c_str(), candidate.rule.c_str(), candidate.why.c_str());
      continue;
    }
    // A kernel by its digest, whatever selection would have taken.
    const auto plan = example.dispatcher.plan_with(problem, candidate.kernel.digest);
    std::fill(e.host.begin(), e.host.end(), std::nanf(""));
    const double took = example.microseconds(plan, operands);
    std::printf("%-70s %7.1f us %7.1f us  %.1f GFLOP/s\n", candidate.kernel.name.c_str(), candidate.seconds * 1e6, took,
                problem.flops() / took * 1e-3);
    example.check("  validated", e, expected);
    ++timed;
  }
  example.expect("some kernel serves it", timed > 0);
}
