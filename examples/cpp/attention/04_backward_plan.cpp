// The stages of a backward pass, each with a kernel of its own, and the workspace between them.
#include "../example.hpp"

EXAMPLE(backward_plan) {
  const auto problem = tw::AttentionBackwardProblem(1, 4, 64, 64, 64);
  const tw::Selection chosen = example.dispatcher.select(problem);
  static const char *const names[] = {"dot: delta and lse of every row", "grad: dq, dk, dv",
                                      "convert: sums to results"};
  for (size_t stage = 0; stage < chosen.stage_count(); ++stage)
    say(names[stage], "\n  ", chosen.stage(stage).kernel.name, " (", chosen.stage(stage).reason, ")");
  example.expect("two stages, or three where sums are left", chosen.stage_count() == 2);

  // Two numbers of fp32 a row and head between the stages; rows are filled up to 128.
  const int64_t between = problem.between_bytes();
  say(between, " bytes between the stages");
  example.expect("room for delta and lse", between == 2 * 4 * 128 * 4);

  // Every candidate of a stage, with its estimate or the rule against it.
  for (const tw::Candidate &candidate : example.dispatcher.candidates(problem, 1))
    say("  ", candidate.kernel.name, ": ", candidate.serves() ? "serves" : candidate.why);

  Array<float> q = drawn(64 * 4 * 64, 1), k = drawn(64 * 4 * 64, 2), v = drawn(64 * 4 * 64, 3),
               dout = drawn(64 * 4 * 64, 4), dq = blank(64 * 4 * 64), dk = blank(64 * 4 * 64), dv = blank(64 * 4 * 64),
               out = blank(64 * 4 * 64), lse = blank(4 * 64);
  const auto forward = tw::AttentionProblem(1, 4, 64, 64, 64).return_lse();
  example.plan_and_run(
      forward, [&](auto at) { return tw::AttentionOperands().q(at(q)).k(at(k)).v(at(v)).o(at(out)).lse(at(lse)); });
  const auto operands = [&](auto at) {
    return tw::AttentionBackwardOperands()
        .q(at(q))
        .k(at(k))
        .v(at(v))
        .out(at(out))
        .dout(at(dout))
        .lse(at(lse))
        .dq(at(dq))
        .dk(at(dk))
        .dv(at(dv));
  };
  example.run(example.dispatcher.plan(problem), operands);
  example.check("dq", dq, tw::reference::attention_backward(problem, operands(on_host)).dq);
}
