// Why this kernel: every candidate with its estimate, or the rule that speaks against it.
#include "../example.hpp"

static tw::AttentionProblem problem_of_bf16() { return tw::AttentionProblem(2, 4, 33, 65, 64).dtype(tw::Dtype::bf16); }

EXAMPLE(candidates) {
  const auto problem = tw::AttentionProblem(2, 4, 33, 65, 64);
  const tw::Selection chosen = example.dispatcher.select(problem);
  int serving = 0;
  double least = HUGE_VAL;
  for (const tw::Candidate &candidate : example.dispatcher.candidates(problem)) {
    const std::string &name = candidate.kernel.name;
    if (candidate.serves())
      say(candidate.kernel.digest == chosen.kernel.digest ? "* " : "  ", name, ": ", candidate.seconds * 1e6, " us");
    else say("  ", name, ": [", candidate.rule, "] ", candidate.why, " (", candidate.remedy, ")");
    if (candidate.serves() && !candidate.kernel.fallback) ++serving, least = std::min(least, candidate.seconds);
  }
  say(chosen.tier, ": ", chosen.reason);
  // Where nothing but the fallback kernel serves it (fp32 on NVIDIA GPUs), that one is taken.
  if (example.has_kernels(problem)) example.expect("the lowest estimate", serving > 0 && chosen.seconds == least);
  else example.expect("the fallback kernel", chosen.tier == "fallback");

  // A signature that nobody exported kernels of.
  example.refused("no-kernel", [&] { example.dispatcher.select(problem_of_bf16()); });

  Heads heads(problem);
  const auto operands = [&](auto at) { return heads.operands(at); };
  example.run(example.dispatcher.plan(problem), operands);
  example.check("o", heads.o, tw::reference::attention(problem, operands(on_host)));
}
