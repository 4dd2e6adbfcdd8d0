// Dropout by seed and offset, grouped heads, and lse: what training needs of the forward pass.
#include "../example.hpp"

EXAMPLE(dropout_gqa_lse) {
  // Entries of the softmax are dropped with a chance of a quarter, the others grow by 4/3.  Which ones follows from
  // seed, offset and their place alone: no mask is stored, and the backward pass drops the same ones again.
  const double chance = 0.25;
  const int64_t heads = 4, rows = 40, keys = 50;
  const auto problem = tw::AttentionProblem(1, heads, rows, keys, 64).heads_kv(2).dropout().return_lse();
  Heads qkv(problem);
  Array<float> lse = blank(heads * rows);
  const auto drop = [&](uint64_t seed) {
    return [&, seed](auto at) { return qkv.operands(at).lse(at(lse)).dropout(chance, seed); };
  };
  const auto plan = example.plan_and_run(problem, drop(42));
  std::vector<double> accum;
  example.check("o", qkv.o, tw::reference::attention(problem, drop(42)(on_host), &accum));
  example.check("lse", lse, accum);

  // The same seed drops the same entries, another one others; lse knows nothing of it.
  const std::vector<float> first = qkv.o.host, first_lse = lse.host;
  example.run(plan, drop(42));
  example.expect("the same seed, the same bits", qkv.o.host == first);
  example.run(plan, drop(43));
  example.expect("another seed, other numbers", qkv.o.host != first && lse.host == first_lse);

  // With values of 1 a row is the sum of what was kept, 1 on average.
  std::fill(qkv.v.host.begin(), qkv.v.host.end(), 1.0f);
  example.run(plan, drop(44));
  double mean = 0;
  for (float number : qkv.o.host) mean += double(number) / double(qkv.o.size());
  say("the mean over all rows is ", mean);
  example.expect("1 on average", std::fabs(mean - 1) < 0.05);
  example.refused("dropout", [&] { problem.args(qkv.operands(on_host).lse(lse.data()).dropout(1.0, 1)); });
}
