// Causal attention with fewer heads of keys than of queries (GQA), checked beside float64.
#include "../example.hpp"

EXAMPLE(basic) {
  // 2 sequences, 4 heads of queries that share 2 heads of keys and values, 50 queries, 60 keys, 64 elements a head.
  const int64_t batch = 2, heads = 4, heads_kv = 2, rows = 50, keys = 60, size = 64;
  // Bottom-right: the last query sees all keys, as where a cache holds the first ten of them.
  const auto problem =
      tw::AttentionProblem(batch, heads, rows, keys, size).heads_kv(heads_kv).causal(/*bottom_right=*/true);

  // Memory is (batch, row, head, element).  The result is preset to NaN: whatever is not written is noticed.
  Array<float> q = drawn(batch * rows * heads * size, 1), k = drawn(batch * keys * heads_kv * size, 2),
               v = drawn(batch * keys * heads_kv * size, 3), o = blank(batch * rows * heads * size);
  const auto operands = [&](auto at) { return tw::AttentionOperands().q(at(q)).k(at(k)).v(at(v)).o(at(o)); };

  const tw::Selection chosen = example.dispatcher.select(problem);
  say("kernel   ", chosen.kernel.name);
  say("tier     ", chosen.tier, ": ", chosen.reason);
  say("estimate ", chosen.seconds * 1e6, " us");
  const auto plan = example.dispatcher.plan(problem);
  example.run(plan, operands);
  example.check("o", o, tw::reference::attention(problem, operands(on_host)));

  // Scores are scaled by 1 / sqrt(64) where nobody says otherwise; the scale is a number of the call.
  make_blank(o);
  const auto sharper = [&](auto at) { return operands(at).scale(0.5); };
  example.run(plan, sharper);
  example.check("o with a scale of 0.5", o, tw::reference::attention(problem, sharper(on_host)));

  // What cannot be done says why, and what would work.
  example.refused("heads-divide", [&] { example.dispatcher.plan(tw::AttentionProblem(problem).heads_kv(3)); });
}
