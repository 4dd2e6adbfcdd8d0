// Causal attention with fewer heads of keys than of queries (GQA), checked beside float64.
#include "../example.hpp"

EXAMPLE(basic) {
  // Memory is (batch, row, head, element).  Bottom-right: the last row sees all keys, as where a cache holds the first.
  const auto problem = tw::AttentionProblem(2, 4, 50, 60, 64).heads_kv(2).causal(/*bottom_right=*/true);
  Heads heads(problem);
  const auto operands = [&](auto at) { return heads.operands(at); };
  const auto plan = example.plan_and_run(problem, operands);
  std::printf("%s\n", plan.selection().reason.c_str());
  example.check("o", heads.o, tw::reference::attention(problem, operands(on_host)));

  // What cannot be done says why, and what would work.
  try {
    example.dispatcher.plan(tw::AttentionProblem(2, 4, 50, 60, 64).heads_kv(3));
    example.expect("heads that do not divide are refused", false);
  } catch (const tw::Error &refused) { std::printf("refused, as it should be: %s\n", refused.what()); }
}
