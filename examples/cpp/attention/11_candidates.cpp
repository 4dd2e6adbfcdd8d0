// Why this kernel: every candidate with its estimate, or the rule that speaks against it.
#include "../example.hpp"

EXAMPLE(candidates) {
  const auto problem = tw::AttentionProblem(2, 4, 33, 65, 64);
  const tw::Selection chosen = example.dispatcher.select(problem);
  int serving = 0;
  double least = HUGE_VAL;
  for (const tw::Candidate &candidate : example.dispatcher.candidates(problem)) {
    if (candidate.serves())
      std::printf("%s %s: %.1f us\n", candidate.kernel.digest == chosen.kernel.digest ? "*" : " ",
                  candidate.kernel.name.c_str(), candidate.seconds * 1e6);
    else
      std::printf("  %s: [%s] %s (%s)\n", candidate.kernel.name.c_str(), candidate.rule.c_str(), candidate.why.c_str(),
                  candidate.remedy.c_str());
    if (candidate.serves() && !candidate.kernel.fallback) ++serving, least = std::min(least, candidate.seconds);
  }
  std::printf("%s\n", chosen.reason.c_str());
  example.expect("the lowest estimate was taken", serving > 0 && chosen.seconds == least);

  // A signature that nobody exported kernels of.
  try {
    example.dispatcher.select(tw::AttentionProblem(2, 4, 33, 65, 64).dtype(tw::Dtype::bf16));
    example.expect("no kernel is refused", false);
  } catch (const tw::Error &error) { std::printf("refused: %s\n", error.what()); }

  Heads heads(problem);
  const auto operands = [&](auto at) { return heads.operands(at); };
  example.run(example.dispatcher.plan(problem), operands);
  example.check("o", heads.o, tw::reference::attention(problem, operands(on_host)));
}
