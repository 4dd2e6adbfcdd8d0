// A plan of two stages: keys in parts beside each other, and what puts the parts together.
#include "../example.hpp"

EXAMPLE(split_kv_plan) {
  const auto problem = tw::AttentionProblem(1, 4, 1, 500, 64).num_splits(4);
  const tw::Selection chosen = example.dispatcher.select(problem);
  example.expect("two stages", chosen.stage_count() == 2);
  for (size_t stage = 0; stage < chosen.stage_count(); ++stage)
    std::printf("stage %zu: %s, estimated %.1f us\n", stage + 1, chosen.stage(stage).kernel.name.c_str(),
                chosen.stage(stage).seconds * 1e6);

  // What stages hand on lies in the workspace: 4 parts of fp32, and the logarithms of their sums.
  Heads heads(problem);
  const auto operands = [&](auto at) { return heads.operands(at); };
  const auto plan = example.dispatcher.plan(problem);
  const long long bytes = plan.workspace_bytes(operands(on_host), 1), between = problem.between_bytes();
  std::printf("workspace of %lld bytes, %lld of them between the stages\n", bytes, between);
  example.expect("there is room for the parts", between >= 4 * 4 * 64 * 4 && bytes >= between);
  example.run(plan, operands);
  example.check("o", heads.o, tw::reference::attention(problem, operands(on_host)));

  // Kernels of one's own choice: one digest a stage.
  const auto same =
      example.dispatcher.plan_with(problem, {chosen.stage(0).kernel.digest, chosen.stage(1).kernel.digest});
  example.expect("named", same.selection().tier == "named" && same.stage_count() == 2);
}
