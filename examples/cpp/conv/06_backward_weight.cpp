// The gradient of the filters: the same bits for any number of threads, and in every run.
#include "../example.hpp"

EXAMPLE(backward_weight) {
  const auto problem = tw::ConvProblem(3, 8, 16, {14, 13}, {3, 3})
                           .padding({1, 1})
                           .deterministic()
                           .direction(tw::ConvDirection::backward_weight);
  Array<float> x = drawn(3 * 14 * 13 * 8, 1), dy = drawn(3 * 14 * 13 * 16, 2), dw = blank(16 * 9 * 8);
  const auto operands = [&](auto at) { return tw::ConvOperands().x(at(x)).w(at(dw)).y(at(dy)); };
  const auto plan = example.plan_and_run(problem, operands);
  example.check("dw", dw, tw::reference::conv(problem, operands(on_host)));

  const std::vector<float> first = dw.host;
  for (int64_t threads : {1, 2, 3}) {
    std::fill(dw.host.begin(), dw.host.end(), std::nanf(""));
    if (example.device) example.run(plan, operands);
    else plan.run(operands(on_host), tw::Team(threads));
    example.expect("the same bits", dw.host == first);
  }
  std::puts("the same bits with 1, 2 and 3 threads");
}
