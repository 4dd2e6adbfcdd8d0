// Convolution on the CPU in all directions, beside a float64 reference.  Argument: a folder of Registry.export().
#include <tilewright/reference.hpp>

#include "check.hpp"

static int checked = 0;

static int64_t volume(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

static void run(const tw::Dispatcher &dispatcher, const tw::ConvProblem &problem, const tw::Team &team) {
  std::vector<float> x = drawn(volume(problem.x_shape()), 1), w = drawn(volume(problem.w_shape()), 2);
  std::vector<float> y = drawn(volume(problem.y_shape()), 3);
  const std::vector<float> bias = drawn(problem.filters(), 4), residual = drawn(int64_t(y.size()), 5);
  std::vector<float> &written = problem.direction() == tw::ConvDirection::forward         ? y
                                : problem.direction() == tw::ConvDirection::backward_data ? x
                                                                                          : w;
  tw::ConvOperands operands;
  operands.x(x.data()).w(w.data()).y(y.data());
  if (problem.num_d() > 0) operands.bias(bias.data());
  if (problem.num_d() > 1) operands.residual(residual.data());
  const std::vector<double> expected = tw::reference::conv(problem, operands);
  written.assign(written.size(), NAN);
  const auto plan = dispatcher.plan(problem);
  plan.run(operands, team);
  const double error = tw::reference::error(written.data(), tw::Dtype::fp32, expected);
  CHECK(error < 1e-5);
  if (!(error < 1e-5))
    std::printf("  %s: %g with %s\n", problem.described().text.c_str(), error, plan.selection().kernel.name.c_str());
  ++checked;
}

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: test_conv FOLDER"), 2;
  const tw::Dispatcher dispatcher(tw::Registry::open(arguments[1]));
  const tw::Team team(2);
  using Direction = tw::ConvDirection;
  for (Direction direction : {Direction::forward, Direction::backward_data, Direction::backward_weight}) {
    run(dispatcher, tw::ConvProblem(2, 5, 7, {9, 8}, {3, 3}).padding({1, 1}).direction(direction), team);
    run(dispatcher, tw::ConvProblem(1, 8, 16, {11, 10}, {3, 2}).stride({2, 1}).dilation({1, 2}).direction(direction),
        team);
    run(dispatcher, tw::ConvProblem(2, 8, 12, {7, 7}, {1, 1}).groups(4).direction(direction), team);
    run(dispatcher, tw::ConvProblem(2, 6, 4, {20}, {5}).padding({2}, {1}).direction(direction), team);
    run(dispatcher, tw::ConvProblem(1, 3, 4, {5, 6, 7}, {2, 3, 3}).padding({0, 1, 1}).direction(direction), team);
  }
  run(dispatcher, tw::ConvProblem(2, 3, 8, {16, 16}, {4, 4}).stride({4, 4}), team);  // patches
  run(dispatcher, tw::ConvProblem(2, 5, 7, {9, 8}, {3, 3}).padding({1, 1}).epilogue(tw::Epilogue::relu, 1), team);
  run(dispatcher, tw::ConvProblem(2, 5, 7, {9, 8}, {3, 3}).epilogue(tw::Epilogue::add, 2, 1), team);

  CHECK(rule_of([] { tw::ConvProblem(1, 4, 4, {8, 8}, {3}).check(); }) == "spatial-rank");
  for (int direction : {-1, 3})
    CHECK(rule_of([&] { tw::ConvProblem(1, 4, 4, {8, 8}, {3, 3}).direction(tw::ConvDirection(direction)).check(); }) ==
          "direction-name");
  CHECK(rule_of([] { tw::ConvProblem(1, 4, 4, {2, 2}, {3, 3}).check(); }) == "window-fits");
  CHECK(rule_of([] { tw::ConvProblem(1, 4, 4, {8, 8}, {3, 3}).groups(3).check(); }) == "groups-divide");
  CHECK(rule_of([] {
          tw::ConvProblem(1, 4, 4, {8, 8}, {3, 3})
              .direction(Direction::backward_data)
              .epilogue(tw::Epilogue::relu)
              .check();
        }) == "fused-backward");
  CHECK(rule_of([&] { dispatcher.plan(tw::ConvProblem(1, 4, 4, {8, 8}, {3, 3})).run(tw::ConvOperands()); }) ==
        "operand-missing");
  float number = 0;
  const auto without_y = tw::ConvOperands().x(&number).w(&number);
  CHECK(value_of([&] { tw::ConvProblem(1, 4, 4, {8, 8}, {3, 3}).args(without_y); }) == "y");
  // The result is not where an operand is; which of the three it is, the direction says.
  float second = 0;
  const std::pair<Direction, tw::ConvOperands> in_place[] = {
      {Direction::forward, tw::ConvOperands().x(&number).w(&second).y(&number)},
      {Direction::backward_data, tw::ConvOperands().x(&number).w(&number).y(&second)},
      {Direction::backward_weight, tw::ConvOperands().x(&second).w(&number).y(&number)}};
  for (const auto &each : in_place)
    CHECK(rule_of([&] { tw::ConvProblem(1, 4, 4, {8, 8}, {3, 3}).direction(each.first).args(each.second); }) ==
          "out-overlaps");
  tw::ConvProblem(1, 4, 4, {8, 8}, {3, 3}).args(tw::ConvOperands().x(&number).w(&number).y(&second));
  // Numbers that overflow, and memory that would be read or written elsewhere.
  using Problem = tw::ConvProblem;
  constexpr int64_t kLarge = int64_t(1) << 40;
  const auto rule = [](const Problem &problem) { return rule_of([&] { problem.check(); }); };
  CHECK(rule_of([] { Problem(1, 4, 4, {8, 8}, {3, 3}).padding({1}).y_shape(); }) == "spatial-rank");
  for (const Problem &odd : {Problem(1, 4, 4, {}, {}), Problem(1, 4, 4, {8}, {}), Problem(1, 4, 4, {8, 8}, {3})}) {
    CHECK(rule_of([&] { odd.described(); }) == "spatial-rank" && rule_of([&] { odd.family(); }) == "spatial-rank");
    CHECK(rule_of([&] { dispatcher.registry().matching(odd); }) == "spatial-rank");
  }
  CHECK(rule_of([&] { Problem(1, 4, 4, {8, 8}, {3, 3}).x_strides({1}).described(); }) == "stride-rank");
  CHECK(Problem(1, 4, 4, {INT64_MAX, 8}, {3, 3}).padding({INT64_MAX, 0}).out()[0] == 0);
  CHECK(Problem(1, 4, 4, {8, 8}, {INT64_MIN, 3}).out()[0] == 0);
  CHECK(Problem(INT64_MAX, INT64_MAX, 4, {INT64_MAX, 8}, {3, 3}).x_strides().size() == 4);  // nothing overflows
  CHECK(Problem(1, 4, 4, {8, 8}, {0, 3}).dilation({INT64_MAX, 1}).out()[0] == 0);
  Problem pixel(1, 4, 4, {3, 3}, {3, 3});  // a D tensor as large as y and one number a filter take as many bytes
  const double one_d = pixel.epilogue(tw::Epilogue::relu, 1).bytes();
  CHECK(pixel.epilogue(tw::Epilogue::relu, 1, INT64_MIN).bytes() == one_d);
  CHECK(rule(Problem(1, 4, 4, {8, 8}, {kLarge, 3}).dilation({kLarge >> 16, 1})) == "window-fits");
  CHECK(rule(Problem(1, 4, 4, {kLarge, kLarge}, {3, 3})) == "size-huge");
  CHECK(rule(Problem(1, 4, 4, {8, 8}, {3, 3}).x_strides({INT64_MAX, 32, 4, 1})) == "size-huge");
  CHECK(rule(Problem(1, 4, 4, {8, 8}, {3, 3}).x_strides({256, -32, 4, 1})) == "");
  CHECK(rule(Problem(1, 4, 4, {8, 8}, {3, 3}).y_strides({144, 1, 6, 36})) == "");
  CHECK(rule(Problem(1, 4, 4, {8, 8}, {3, 3}).y_strides({144, 20, 4, 1})) == "stride-overlap");
  CHECK(rule(Problem(1, 4, 4, {8, 8}, {3, 3}).epilogue(tw::Epilogue::relu, 1, 2)) == "full-d");
  CHECK(rule(Problem(1, 4, 4, {8, 8}, {3, 3}).epilogue(tw::Epilogue(99))) == "epilogue-name");
  const auto fused = dispatcher.plan(Problem(1, 4, 4, {8, 8}, {3, 3}).epilogue(tw::Epilogue::relu, 1));
  std::vector<float> some(512);
  tw::ConvOperands operands;
  operands.x(some.data()).w(some.data()).y(some.data());
  CHECK(rule_of([&] { fused.run(tw::ConvOperands(operands).bias(nullptr)); }) == "operand-missing");
  CHECK(rule_of([&] { fused.run(tw::ConvOperands(operands).residual(some.data())); }) == "full-d");
  return done("conv", checked);
}
