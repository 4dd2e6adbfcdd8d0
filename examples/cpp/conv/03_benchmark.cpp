// Every kernel that serves a convolution, validated and timed.
#include "../example.hpp"

EXAMPLE(benchmark) {
  const auto problem = tw::ConvProblem(1, 32, 32, {28, 28}, {3, 3}).padding({1, 1});
  Array<float> x = drawn(28 * 28 * 32, 1), w = drawn(32 * 9 * 32, 2), y = blank(28 * 28 * 32);
  const auto operands = [&](auto at) { return tw::ConvOperands().x(at(x)).w(at(w)).y(at(y)); };
  const std::vector<double> expected = tw::reference::conv(problem, operands(on_host));
  const double flops = 2.0 * 28 * 28 * 32 * 9 * 32;

  const std::string chosen = example.dispatcher.select(problem).kernel.digest;
  int served = 0;
  for (const tw::Candidate &candidate : example.dispatcher.candidates(problem)) {
    if (!candidate.serves()) {
      std::printf("  %s: [%s] %s\n", candidate.kernel.name.c_str(), candidate.rule.c_str(), candidate.why.c_str());
      continue;
    }
    const auto plan = example.dispatcher.plan_with(problem, candidate.kernel.digest);
    std::fill(y.host.begin(), y.host.end(), std::nanf(""));
    const double took = example.microseconds(plan, operands, 5);
    std::printf("%s %s: estimated %.0f us, took %.0f us, %.1f GFLOP/s\n", candidate.kernel.digest == chosen ? "*" : " ",
                candidate.kernel.name.c_str(), candidate.seconds * 1e6, took, flops / took * 1e-3);
    example.check("  validated", y, expected, 1e-4);  // Winograd trades bits for products
    ++served;
  }
  example.expect("some kernel serves it", served > 0);
}
