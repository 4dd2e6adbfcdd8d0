// The gradient of x: a transposed convolution, with a stride, whose x no output shape alone determines.
#include "../example.hpp"

EXAMPLE(backward_data) {
  for (int64_t size : {15, 16}) {  // both give the same y
    const auto problem = tw::ConvProblem(2, 8, 16, {size, size}, {3, 3})
                             .stride({2, 2})
                             .padding({1, 1})
                             .direction(tw::ConvDirection::backward_data);
    const std::vector<int64_t> out = problem.out();
    Array<float> dy = drawn(2 * out[0] * out[1] * 16, 1), w = drawn(16 * 9 * 8, 2), dx = blank(2 * size * size * 8);
    const auto operands = [&](auto at) { return tw::ConvOperands().x(at(dx)).w(at(w)).y(at(dy)); };
    example.plan_and_run(problem, operands);
    std::printf("dx of %lld x %lld from dy of %lld x %lld\n", static_cast<long long>(size),
                static_cast<long long>(size), static_cast<long long>(out[0]), static_cast<long long>(out[1]));
    example.check("dx", dx, tw::reference::conv(problem, operands(on_host)));
    example.expect("the same output size", out[0] == 8);
  }
  // A gradient has no fused work.
  try {
    tw::ConvProblem(1, 8, 16, {8, 8}, {3, 3})
        .direction(tw::ConvDirection::backward_data)
        .epilogue(tw::Epilogue::relu, 1)
        .check();
    example.expect("fused work is refused", false);
  } catch (const tw::Error &error) { std::printf("refused: [%s]\n", error.rule().c_str()); }
}
