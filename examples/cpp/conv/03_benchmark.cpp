// Every kernel that serves a convolution, validated and timed: implicit GEMM, Winograd, plain loops.
#include "../example.hpp"

EXAMPLE(benchmark) {
  // A layer of a small network: 28 x 28 pixels, 32 channels in and out, 3 x 3 taps.
  const auto problem = tw::ConvProblem(1, 32, 32, {28, 28}, {3, 3}).padding({1, 1});
  Array<float> x = drawn(28 * 28 * 32, 1), w = drawn(32 * 9 * 32, 2), y = blank(28 * 28 * 32);
  const auto operands = [&](auto at) { return tw::ConvOperands().x(at(x)).w(at(w)).y(at(y)); };
  const std::vector<double> expected = tw::reference::conv(problem, operands(on_host));

  const std::string chosen = example.dispatcher.select(problem).kernel.digest;
  double least = HUGE_VAL, of_chosen = HUGE_VAL;
  for (const tw::Candidate &candidate : example.dispatcher.candidates(problem)) {
    const std::string &name = candidate.kernel.name;
    if (!candidate.serves()) {
      say("  ", name, ": [", candidate.rule, "] ", candidate.why);
      continue;
    }
    // Right first, fast second: results are preset to NaN, so that what a kernel leaves out is seen.
    const auto plan = example.dispatcher.plan_with(problem, candidate.kernel.digest);
    make_blank(y);
    example.run(plan, operands);
    example.check("  validated", y, expected, 1e-4);  // Winograd trades bits for products

    const double took = example.microseconds(plan, operands, 5);
    say(candidate.kernel.digest == chosen ? "* " : "  ", name, ": estimated ", candidate.seconds * 1e6, " us, took ",
        took, " us, ", problem.flops() / took * 1e-3, " GFLOP/s");
    least = std::min(least, took);
    if (candidate.kernel.digest == chosen) of_chosen = took;
  }
  say("* is what selection takes: ", of_chosen / least, " times the fastest of this run");
  example.expect("the chosen kernel serves it", std::isfinite(of_chosen));
}
