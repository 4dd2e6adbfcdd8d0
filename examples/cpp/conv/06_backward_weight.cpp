// The gradient of the filters (wgrad): a sum over all pixels of all images, the same bits in every run.
#include "../example.hpp"

EXAMPLE(backward_weight) {
  // Parallel sums depend on their order, and so do their last bits.  deterministic() asks for kernels that add in a
  // fixed order; those of CPUs always do, for any number of threads.
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
    make_blank(dw);
    if (example.device) example.run(plan, operands);
    else plan.run(operands(on_host), tw::Team(threads));
    example.expect("the same bits", dw.host == first);
  }
  say("the same bits ", example.device ? "in three more runs" : "with 1, 2 and 3 threads");

  // The centre tap by hand: x and dy of the same pixel, summed; here of filter 5 and channel 2.
  double sum = 0;
  for (int64_t pixel = 0; pixel < 3 * 14 * 13; ++pixel) sum += double(x[pixel * 8 + 2]) * dy[pixel * 16 + 5];
  const double centre = dw[(5 * 9 + 4) * 8 + 2];
  say("dw of the centre tap ", centre, ", by hand ", sum);
  example.expect("the centre tap", std::fabs(centre - sum) < 1e-4);
}
