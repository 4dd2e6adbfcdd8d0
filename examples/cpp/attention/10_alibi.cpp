// ALiBi: scores lose slope times distance, one slope a head.
#include "../example.hpp"

EXAMPLE(alibi) {
  const auto problem = tw::AttentionProblem(2, 4, 30, 44, 64).alibi();
  Heads heads(problem);
  Array<float> slopes({std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f}});
  const auto operands = [&](auto at) { return heads.operands(at).alibi_slopes(at(slopes)); };
  example.plan_and_run(problem, operands);
  example.check("o", heads.o, tw::reference::attention(problem, operands(on_host)));

  // A steep slope leaves the nearest key alone: the last row's o is the last value.
  slopes.host.assign(4, 1000.0f);
  example.run(example.dispatcher.plan(problem), operands);
  const size_t last = size_t(29 * 4 * 64), value = size_t(43 * 4 * 64);
  double difference = 0;
  for (size_t i = 0; i < 4 * 64; ++i)
    difference = std::max(difference, std::fabs(double(heads.o.host[last + i] - heads.v.host[value + i])));
  std::printf("with a steep slope the last row is the last value, within %.1e\n", difference);
  example.expect("the nearest key alone", difference < 1e-6);
}
