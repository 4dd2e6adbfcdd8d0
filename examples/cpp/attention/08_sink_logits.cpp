// A learned logit a head joins the softmax and has no value: rows may attend to nothing.
#include "../example.hpp"

EXAMPLE(sink_logits) {
  const auto problem = tw::AttentionProblem(1, 4, 20, 30, 64).sink();
  Heads heads(problem);
  Array<float> sink({std::vector<float>{-1.0f, 0.0f, 1.0f, 100.0f}});
  const auto operands = [&](auto at) { return heads.operands(at).sink(at(sink)); };
  example.plan_and_run(problem, operands);
  example.check("o", heads.o, tw::reference::attention(problem, operands(on_host)));

  // The logit of the last head outweighs all keys: its rows are nearly zero, those of the first are not.
  double small = 0, large = 0;
  for (int64_t row = 0; row < 20; ++row)
    for (int64_t d = 0; d < 64; ++d) {
      small = std::max(small, std::fabs(double(heads.o.host[size_t((row * 4 + 3) * 64 + d)])));
      large = std::max(large, std::fabs(double(heads.o.host[size_t(row * 4 * 64 + d)])));
    }
  std::printf("largest number of head 0: %.3f, of head 3: %.1e\n", large, small);
  example.expect("the sink took it all", small < 1e-20 && large > 1e-2);
}
