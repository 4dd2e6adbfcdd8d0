// Forward and both gradients in two and three dimensions: the same problem, another direction.
#include "../example.hpp"

EXAMPLE(all_directions) {
  const std::vector<std::vector<int64_t>> sizes = {{12, 11}, {6, 7, 8}};
  for (const std::vector<int64_t> &size : sizes) {
    const std::vector<int64_t> window(size.size(), 3), padding(size.size(), 1);
    for (auto direction :
         {tw::ConvDirection::forward, tw::ConvDirection::backward_data, tw::ConvDirection::backward_weight}) {
      const auto problem = tw::ConvProblem(2, 8, 16, size, window).padding(padding).direction(direction);
      const auto elements = [](const std::vector<int64_t> &shape) {
        int64_t count = 1;
        for (int64_t extent : shape) count *= extent;
        return count;
      };
      // Which of the three is written follows from the direction.
      Array<float> x = drawn(elements(problem.x_shape()), 1), w = drawn(elements(problem.w_shape()), 2),
                   y = drawn(elements(problem.y_shape()), 3);
      Array<float> &result = direction == tw::ConvDirection::forward         ? y
                             : direction == tw::ConvDirection::backward_data ? x
                                                                             : w;
      std::fill(result.host.begin(), result.host.end(), std::nanf(""));
      const auto operands = [&](auto at) { return tw::ConvOperands().x(at(x)).w(at(w)).y(at(y)); };
      example.plan_and_run(problem, operands);
      example.check(size.size() == 2 ? "2D" : "3D", result, tw::reference::conv(problem, operands(on_host)));
    }
  }
}
