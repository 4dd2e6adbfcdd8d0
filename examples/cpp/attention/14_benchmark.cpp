// Every kernel that serves a problem, validated, then timed beside the others.
#include "../example.hpp"

EXAMPLE(benchmark) {
  const auto problem = tw::AttentionProblem(1, 4, 128, 128, 64);
  Heads heads(problem);
  const auto operands = [&](auto at) { return heads.operands(at); };
  const std::vector<double> expected = tw::reference::attention(problem, operands(on_host));
  const double flops = 4.0 * 4 * 128 * 128 * 64;
  std::string fastest;
  double least = HUGE_VAL;
  for (const tw::Candidate &candidate : example.dispatcher.candidates(problem)) {
    if (!candidate.serves()) continue;
    const auto plan = example.dispatcher.plan_with(problem, candidate.kernel.digest);
    std::fill(heads.o.host.begin(), heads.o.host.end(), std::nanf(""));
    const double took = example.microseconds(plan, operands, 7);
    std::printf("%s\n  estimated %.0f us, took %.0f us: %.2f GFLOP/s\n", candidate.kernel.name.c_str(),
                candidate.seconds * 1e6, took, flops / took * 1e-3);
    example.check("  validated", heads.o, expected);
    if (took < least) least = took, fastest = candidate.kernel.name;
  }
  std::printf("fastest here: %s; selection takes %s\n", fastest.c_str(),
              example.dispatcher.select(problem).kernel.name.c_str());
  example.expect("some kernel serves it", !fastest.empty());
}
