// A plan of two stages: splits of the keys computed beside each other, and a kernel that combines them.
#include "../example.hpp"

EXAMPLE(split_kv_plan) {
  // One query over 500 keys keeps few cores busy; in 4 splits of the keys there is 4 times as much to do at once.
  const int64_t heads = 4, keys = 500, size = 64, splits = 4;
  const auto problem = tw::AttentionProblem(1, heads, 1, keys, size).num_splits(splits);

  // Each stage has a signature and a kernel of its own, selected for itself.
  const tw::Selection chosen = example.dispatcher.select(problem);
  example.expect("two stages", chosen.stage_count() == 2);
  for (size_t stage = 0; stage < chosen.stage_count(); ++stage)
    say("stage ", stage + 1, ": ", chosen.stage(stage).kernel.name, ", estimated ", chosen.stage(stage).seconds * 1e6,
        " us");
  say(chosen.tier, ": ", chosen.reason);  // the least good tier of all stages

  // What stages hand on lies in the workspace: an o of fp32 and a log-sum-exp for each split.
  Heads qkv(problem);
  const auto operands = [&](auto at) { return qkv.operands(at); };
  const auto plan = example.dispatcher.plan(problem);
  const int64_t bytes = plan.workspace_bytes(operands(on_host), 1), between = problem.between_bytes();
  say("workspace of ", bytes, " bytes, ", between, " of them between the stages");
  example.expect("room for the splits", between >= splits * heads * (size + 1) * 4 && bytes >= between);
  example.run(plan, operands);
  example.check("o", qkv.o, tw::reference::attention(problem, operands(on_host)));

  // Kernels of one's own choice: one digest a stage.
  const std::vector<std::string> digests = {chosen.stage(0).kernel.digest, chosen.stage(1).kernel.digest};
  const auto same = example.dispatcher.plan_with(problem, digests);
  example.expect("named", same.selection().tier == "named" && same.stage_count() == 2);
  const std::vector<float> before = qkv.o.host;
  example.run(same, operands);
  example.expect("the same bits", qkv.o.host == before);
  example.refused("stage-count", [&] { example.dispatcher.plan_with(problem, digests[0]); });
}
