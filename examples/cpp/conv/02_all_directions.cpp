// Forward and both gradients in two and three dimensions: the same problem, another direction.
#include "../example.hpp"

// What a direction computes, and which operand it writes.
struct Direction {
  tw::ConvDirection which;
  const char *what;
};
static const Direction kDirections[] = {
    {tw::ConvDirection::forward, "forward: y from x and w"},
    {tw::ConvDirection::backward_data, "backward data: the gradient of x from those of y, and w"},
    {tw::ConvDirection::backward_weight, "backward weight: the gradient of w from x, and those of y"}};

static int64_t elements(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

EXAMPLE(all_directions) {
  const std::vector<std::vector<int64_t>> sizes = {{12, 11}, {6, 7, 8}};  // pixels, voxels
  for (const std::vector<int64_t> &size : sizes) {
    const std::vector<int64_t> window(size.size(), 3), padding(size.size(), 1);
    for (const Direction &direction : kDirections) {
      const auto problem = tw::ConvProblem(2, 8, 16, size, window).padding(padding).direction(direction.which);
      // Shapes are those of the forward pass in every direction; gradients lie as what they are gradients of.
      Array<float> x = drawn(elements(problem.x_shape()), 1), w = drawn(elements(problem.w_shape()), 2),
                   y = drawn(elements(problem.y_shape()), 3);
      Array<float> &result = direction.which == tw::ConvDirection::forward         ? y
                             : direction.which == tw::ConvDirection::backward_data ? x
                                                                                   : w;
      make_blank(result);
      const auto operands = [&](auto at) { return tw::ConvOperands().x(at(x)).w(at(w)).y(at(y)); };
      say(size.size(), "D ", direction.what, ", ", problem.flops() / 1e6, " MFLOP");
      example.plan_and_run(problem, operands);
      example.check("  result", result, tw::reference::conv(problem, operands(on_host)));
    }
  }
}
