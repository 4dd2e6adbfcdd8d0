// relu(conv(image, filters) + bias) of images in NHWC: forward convolution, checked beside float64.
#include "../example.hpp"

EXAMPLE(basic) {
  // 2 images of 19 x 20 pixels and 16 channels, 24 filters of 3 x 3; every second row, every column.
  const int64_t batch = 2, channels = 16, filters = 24;
  const auto problem = tw::ConvProblem(batch, channels, filters, {19, 20}, {3, 3})
                           .padding({1, 1})
                           .stride({2, 1})
                           .epilogue(tw::Epilogue::relu, /*num_d=*/1);  // one D tensor: the bias
  const std::vector<int64_t> out = problem.out();
  say("19 x 20 pixels become ", out[0], " x ", out[1]);
  example.expect("(19 + 2 - 3) / 2 + 1 rows, 20 columns", out[0] == 10 && out[1] == 20);

  // Channels last: x is (image, row, column, channel), w (filter, row, column, channel).
  Array<float> x = drawn(batch * 19 * 20 * channels, 1), w = drawn(filters * 3 * 3 * channels, 2),
               bias = drawn(filters, 3), y = blank(batch * out[0] * out[1] * filters);
  const auto operands = [&](auto at) { return tw::ConvOperands().x(at(x)).w(at(w)).bias(at(bias)).y(at(y)); };
  const auto plan = example.plan_and_run(problem, operands);
  say(plan.selection().reason);
  example.check("y", y, tw::reference::conv(problem, operands(on_host)));

  // The first output by hand: its window begins outside of the image, so that 2 x 2 taps of filter 0 count.
  double sum = bias[0];
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t column = 0; column < 2; ++column)
      for (int64_t c = 0; c < channels; ++c)
        sum += double(x[(row * 20 + column) * channels + c]) * w[((row + 1) * 3 + column + 1) * channels + c];
  say("y[0] is ", y[0], ", by hand ", std::max(sum, 0.0));
  example.expect("the first output", std::fabs(y[0] - std::max(sum, 0.0)) < 1e-4);

  // A window that does not fit has no output.
  example.refused("window-fits", [&] { example.dispatcher.plan(tw::ConvProblem(1, 16, 24, {2, 2}, {3, 3})); });
}
