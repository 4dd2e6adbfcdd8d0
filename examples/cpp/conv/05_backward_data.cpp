// The gradient of x (dgrad), which is a transposed convolution: with a stride, the size of y does not tell that of x.
#include "../example.hpp"

EXAMPLE(backward_data) {
  // Images of 15 and of 16 pixels a side both give 8 x 8 outputs: the problem says which x is meant.
  for (int64_t size : {15, 16}) {
    const auto problem = tw::ConvProblem(2, 8, 16, {size, size}, {3, 3})
                             .stride({2, 2})
                             .padding({1, 1})
                             .direction(tw::ConvDirection::backward_data);
    const std::vector<int64_t> out = problem.out();
    example.expect("the same output size", out[0] == 8 && out[1] == 8);

    // y is read and holds the gradients of the outputs; x is written.
    Array<float> dy = drawn(2 * 8 * 8 * 16, 1), w = drawn(16 * 9 * 8, 2), dx = blank(2 * size * size * 8);
    const auto operands = [&](auto at) { return tw::ConvOperands().x(at(dx)).w(at(w)).y(at(dy)); };
    say("dx of ", size, " x ", size, " from dy of ", out[0], " x ", out[1]);
    example.plan_and_run(problem, operands);
    example.check("dx", dx, tw::reference::conv(problem, operands(on_host)));

    // A single gradient of 1 paints its filter into dx: output (3, 3) was computed from rows and columns 5 to 7.
    std::fill(dy.host.begin(), dy.host.end(), 0.0f);
    dy[(3 * 8 + 3) * 16 + 4] = 1;  // of image 0 and filter 4
    make_blank(dx);
    example.run(example.dispatcher.plan(problem), operands);
    double difference = 0;
    for (int64_t tap = 0; tap < 9; ++tap)
      for (int64_t c = 0; c < 8; ++c) {
        const int64_t row = 5 + tap / 3, column = 5 + tap % 3;
        difference =
            std::max(difference, std::fabs(double(dx[(row * size + column) * 8 + c]) - w[(4 * 9 + tap) * 8 + c]));
      }
    example.expect("the filter itself", difference < 1e-6);
  }

  // A gradient has no fused work: what is behind y in the forward pass has a gradient of its own.
  const auto with_relu = tw::ConvProblem(1, 8, 16, {8, 8}, {3, 3}).direction(tw::ConvDirection::backward_data);
  example.refused("fused-backward", [&] { tw::ConvProblem(with_relu).epilogue(tw::Epilogue::relu, 1).check(); });
}
