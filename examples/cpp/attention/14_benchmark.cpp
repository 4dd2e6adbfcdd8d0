// Every kernel that serves a problem, validated, then timed beside the others.
#include "../example.hpp"

EXAMPLE(benchmark) {
  const int64_t heads = 4, rows = 128, keys = 128, size = 64;
  const auto problem = tw::AttentionProblem(1, heads, rows, keys, size);
  Heads qkv(problem);
  const auto operands = [&](auto at) { return qkv.operands(at); };
  const std::vector<double> expected = tw::reference::attention(problem, operands(on_host));
  // Two products, q k' and p v, of two operations for each pair of elements; the softmax is not counted.
  const double flops = 2 * 2.0 * double(heads * rows * keys * size);

  std::string fastest;
  double least = HUGE_VAL;
  for (const tw::Candidate &candidate : example.dispatcher.candidates(problem)) {
    if (!candidate.serves()) {
      say(candidate.kernel.name, ": [", candidate.rule, "] ", candidate.why);
      continue;
    }
    const auto plan = example.dispatcher.plan_with(problem, candidate.kernel.digest);
    make_blank(qkv.o);
    example.run(plan, operands);
    example.check("validated", qkv.o, expected);

    // The median of 7 measurements after a warm-up, with caches as the run before left them.
    const double took = example.microseconds(plan, operands, 7);
    say(candidate.kernel.name, "\n  estimated ", candidate.seconds * 1e6, " us, took ", took,
        " us: ", flops / took * 1e-3, " GFLOP/s");
    if (took < least) least = took, fastest = candidate.kernel.name;
  }
  say("fastest here:    ", fastest);
  say("selection takes: ", example.dispatcher.select(problem).kernel.name);
  example.expect("some kernel serves it", !fastest.empty());
}
