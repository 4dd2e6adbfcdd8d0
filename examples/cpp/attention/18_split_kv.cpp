// Keys in 1 to 8 parts: the same numbers, and with lse what a caller needs to combine further.
#include "../example.hpp"

EXAMPLE(split_kv) {
  for (int64_t parts : {1, 2, 3, 8}) {
    const auto problem = tw::AttentionProblem(2, 4, 2, 300, 64).num_splits(parts).return_lse(parts > 1);
    Heads heads(problem);
    Array<float> lse = blank(2 * 4 * 2);
    const auto operands = [&](auto at) { return heads.operands(at).lse(parts > 1 ? at(lse) : nullptr); };
    const auto plan = example.dispatcher.plan(problem);
    example.run(plan, operands);
    std::printf("%lld splits, stages: %zu\n", static_cast<long long>(parts), plan.stage_count());
    std::vector<double> sums;
    example.check("  o", heads.o, tw::reference::attention(problem, operands(on_host), &sums));
    if (parts > 1) example.check("  lse", lse, sums);
    example.expect("stages", plan.stage_count() == (parts > 1 ? 2 : 1));
  }
  try {
    example.dispatcher.plan(tw::AttentionProblem(2, 4, 2, 300, 64).num_splits(200));
    example.expect("200 parts are refused", false);
  } catch (const tw::Error &error) { std::printf("refused: [%s]\n", error.rule().c_str()); }
}
