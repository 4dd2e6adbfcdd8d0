// What the kernels at hand cover: features one by one, run and checked, or refused by name.
#include "../example.hpp"

EXAMPLE(feature_coverage) {
  using Problem = tw::AttentionProblem;
  const std::pair<const char *, Problem> features[] = {
      {"plain", Problem(1, 4, 20, 30, 64)},
      {"causal", Problem(1, 4, 20, 30, 64).causal()},
      {"bottom right", Problem(1, 4, 20, 30, 64).causal(true)},
      {"window", Problem(1, 4, 20, 30, 64).window(4, 4)},
      {"grouped heads", Problem(1, 4, 20, 30, 64).heads_kv(1)},
      {"other values", Problem(1, 4, 20, 30, 64).head_dim_v(48)},
      {"one row", Problem(3, 4, 1, 100, 64)},
      {"no keys", Problem(1, 4, 20, 0, 64)},
      {"odd heads", Problem(1, 4, 20, 30, 50)},
      {"soft cap and sinks", Problem(1, 4, 20, 30, 64).softcap().sink()},
      {"half", Problem(1, 4, 20, 30, 64).dtype(tw::Dtype::fp16)}};
  int covered = 0;
  for (const auto &feature : features) {
    try {
      const tw::Selection chosen = example.dispatcher.select(feature.second);
      std::printf("%-20s %s (%s)\n", feature.first, chosen.kernel.name.c_str(), chosen.tier.c_str());
      Heads heads(feature.second);
      const auto operands = [&](auto at) { return heads.operands(at); };
      example.run(example.dispatcher.plan(feature.second), operands);
      example.check("  o", heads.o, tw::reference::attention(feature.second, operands(on_host)));
      ++covered;
    } catch (const tw::Error &error) { std::printf("%-20s [%s]\n", feature.first, error.rule().c_str()); }
  }
  example.expect("nine of them, and the last two are refused", covered == 9);
}
