// relu(conv(image, filters) + bias) of images in NHWC: forward convolution, checked beside float64.
#include "../example.hpp"

EXAMPLE(basic) {
  const int64_t batch = 2, channels = 16, filters = 24;
  const auto problem = tw::ConvProblem(batch, channels, filters, {19, 20}, {3, 3})
                           .padding({1, 1})
                           .stride({2, 1})
                           .epilogue(tw::Epilogue::relu, 1);
  const std::vector<int64_t> out = problem.out();
  Array<float> x = drawn(batch * 19 * 20 * channels, 1), w = drawn(filters * 3 * 3 * channels, 2),
               bias = drawn(filters, 3), y = blank(batch * out[0] * out[1] * filters);
  const auto operands = [&](auto at) { return tw::ConvOperands().x(at(x)).w(at(w)).bias(at(bias)).y(at(y)); };
  const auto plan = example.plan_and_run(problem, operands);
  std::printf("%lld x %lld pixels: %s\n", static_cast<long long>(out[0]), static_cast<long long>(out[1]),
              plan.selection().reason.c_str());
  example.check("y", y, tw::reference::conv(problem, operands(on_host)));

  // A window that does not fit has no output.
  try {
    example.dispatcher.plan(tw::ConvProblem(1, 16, 24, {2, 2}, {3, 3}));
    example.expect("the window is refused", false);
  } catch (const tw::Error &error) { std::printf("refused: %s\n", error.what()); }
}
