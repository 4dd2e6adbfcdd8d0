// Dropout by seed and offset, grouped heads, and lse: what training needs of the forward pass.
#include "../example.hpp"

EXAMPLE(dropout_gqa_lse) {
  const auto problem = tw::AttentionProblem(1, 4, 40, 50, 64).heads_kv(2).dropout().return_lse();
  Heads heads(problem);
  Array<float> lse = blank(4 * 40);
  const auto drop = [&](uint64_t seed) {
    return [&, seed](auto at) { return heads.operands(at).lse(at(lse)).dropout(0.25, seed); };
  };
  const auto plan = example.plan_and_run(problem, drop(42));
  std::vector<double> sums;
  example.check("o", heads.o, tw::reference::attention(problem, drop(42)(on_host), &sums));
  example.check("lse", lse, sums);

  // The same seed drops the same entries, another one others; lse knows nothing of it.
  const std::vector<float> first = heads.o.host, first_lse = lse.host;
  example.run(plan, drop(42));
  example.expect("the same seed, the same bits", heads.o.host == first);
  example.run(plan, drop(43));
  example.expect("another seed, other numbers", heads.o.host != first && lse.host == first_lse);
  try {
    plan.run(heads.operands(on_host).lse(lse.data()).dropout(1.0, 1));
    example.expect("a chance of 1 is refused", false);
  } catch (const tw::Error &error) { std::printf("refused: [%s]\n", error.rule().c_str()); }
}
