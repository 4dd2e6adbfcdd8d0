// Keys in 1 to 8 splits: the same numbers; and with lse, partial results of different places are merged by hand.
#include "../example.hpp"

EXAMPLE(split_kv) {
  const int64_t batch = 2, heads = 4, rows = 2, keys = 300, size = 64;
  for (int64_t splits : {1, 2, 3, 8}) {
    const auto problem = tw::AttentionProblem(batch, heads, rows, keys, size).num_splits(splits).return_lse(splits > 1);
    Heads qkv(problem);
    Array<float> lse = blank(batch * heads * rows);  // log(sum(exp(scores))) of each row, (batch, head, row)
    const auto operands = [&](auto at) { return qkv.operands(at).lse(splits > 1 ? at(lse) : nullptr); };
    const auto plan = example.dispatcher.plan(problem);
    example.run(plan, operands);
    say(splits, " splits, stages: ", plan.stage_count());
    example.expect("stages", plan.stage_count() == (splits > 1 ? 2 : 1));
    std::vector<double> accum;
    example.check("  o", qkv.o, tw::reference::attention(problem, operands(on_host), &accum));
    if (splits > 1) example.check("  lse", lse, accum);
  }

  // What the second stage does, between two calls: o = (e^lse0 o0 + e^lse1 o1) / (e^lse0 + e^lse1).  So keys may lie in
  // two places, on two devices, or be shared by requests.
  const auto whole = tw::AttentionProblem(1, heads, 1, 200, size);
  const auto half = tw::AttentionProblem(1, heads, 1, 100, size).num_splits(2).return_lse();
  Heads all(whole), parts[2] = {Heads(half), Heads(half)};
  Array<float> lse[2] = {blank(heads), blank(heads)};
  for (int64_t p : {0, 1}) {
    parts[p].q.host = all.q.host;
    std::copy_n(all.k.host.begin() + p * 100 * heads * size, 100 * heads * size, parts[p].k.host.begin());
    std::copy_n(all.v.host.begin() + p * 100 * heads * size, 100 * heads * size, parts[p].v.host.begin());
    example.run(example.dispatcher.plan(half), [&](auto at) { return parts[p].operands(at).lse(at(lse[p])); });
  }
  for (int64_t at = 0; at < heads * size; ++at) {
    const double first = std::exp(double(lse[0][at / size])), second = std::exp(double(lse[1][at / size]));
    all.o[at] = float((first * parts[0].o[at] + second * parts[1].o[at]) / (first + second));
  }
  example.check("two halves, merged", all.o, tw::reference::attention(whole, all.operands(on_host)));
  example.refused("splits", [&] { tw::AttentionProblem(1, heads, 1, 200, size).num_splits(200).check(); });
}
