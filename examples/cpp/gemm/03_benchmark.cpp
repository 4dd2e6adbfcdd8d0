// All kernels that serve a problem, each checked beside float64 and then timed: what a tuner does, by hand.
#include "../example.hpp"

EXAMPLE(benchmark) {
  const int64_t m = 192, n = 160, k = 256;
  Array<float> a = drawn(m * k, 1), b = drawn(n * k, 2), e = blank(m * n);
  const auto problem = tw::GemmProblem(m, n, k).layout("rcr");
  const auto operands = [&](auto at) { return tw::GemmOperands().a(at(a)).b(at(b)).e(at(e)); };
  const std::vector<double> expected = tw::reference::gemm(problem, operands(on_host));

  std::printf("%-70s %10s %10s\n", "kernel", "estimate", "took");
  std::string fastest;
  double least = HUGE_VAL;
  for (const tw::Candidate &candidate : example.dispatcher.candidates(problem)) {
    if (!candidate.serves()) {  // the rule that the problem breaks, and why
      std::printf("%-70s [%s] %s\n", candidate.kernel.name.c_str(), candidate.rule.c_str(), candidate.why.c_str());
      continue;
    }
    // A kernel by its digest, whatever selection would have taken.  A wrong one must not win: check it first.
    const auto plan = example.dispatcher.plan_with(problem, candidate.kernel.digest);
    make_blank(e);
    example.run(plan, operands);
    example.check("validated", e, expected);
    const double took = example.microseconds(plan, operands);
    std::printf("%-70s %7.1f us %7.1f us  %.1f GFLOP/s\n", candidate.kernel.name.c_str(), candidate.seconds * 1e6, took,
                problem.flops() / took * 1e-3);
    if (took < least) least = took, fastest = candidate.kernel.digest;
  }
  example.expect("some kernel serves it", !fastest.empty());

  // The choice of selection, and what the clock would have chosen; `tilewright bench --save` keeps such records.
  const tw::Selection chosen = example.dispatcher.select(problem);
  say("selection took ", chosen.kernel.name, chosen.kernel.digest == fastest ? ", the fastest here" : "");
  say("fastest here:  ", example.dispatcher.registry().find(fastest).name);
}
