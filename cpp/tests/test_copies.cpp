// Problems that kernels serve in padded copies only, beside float64.  Arguments: a folder of Registry.export() with such,
// and the tier where it is another than `padded`.
#include <tilewright/reference.hpp>

#include "check.hpp"

static int checked = 0;
static std::string tier = "padded";

static void gemm(const tw::Dispatcher &dispatcher, const tw::GemmProblem &problem, int64_t d_count,
                 const tw::Team &team) {
  const int64_t room = 4096;
  const std::vector<float> a = drawn(room, 1), b = drawn(room, 2), c = drawn(room, 3), bias = drawn(room, 4);
  std::vector<float> e(size_t(room), NAN);
  tw::GemmOperands operands;
  operands.a(a.data() + 1).b(b.data()).e(e.data());  // A begins at an odd place
  if (problem.uses_c()) operands.c(c.data()).alpha(0.5).beta(2);
  if (d_count) operands.bias(bias.data());
  const std::vector<double> expected = tw::reference::gemm(problem, operands);
  const auto plan = dispatcher.plan(problem);
  CHECK(plan.selection().tier == tier && plan.selection().in_copies);
  CHECK(plan.workspace_bytes(operands, 2) >= 64);
  plan.run(operands, team);
  std::vector<float> dense;
  for (int64_t row = 0; row < problem.batch() * problem.m(); ++row)
    for (int64_t column = 0; column < problem.n(); ++column)
      dense.push_back(e[size_t(row * problem.c_stride() + column)]);
  CHECK(tw::reference::error(dense.data(), tw::Dtype::fp32, expected) < 1e-5);
  int64_t beyond = 0;  // what lies between rows is the caller's
  for (float value : e) beyond += std::isnan(value);
  CHECK(beyond == room - int64_t(dense.size()));
  ++checked;
}

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: test_copies FOLDER"), 2;
  const tw::Dispatcher dispatcher(tw::Registry::open(arguments[1]));
  const tw::Team team(2);
  if (count > 2) tier = arguments[2];
  gemm(dispatcher, tw::GemmProblem(13, 11, 7).layout("rcr").aligned(false), 0, team);
  gemm(dispatcher, tw::GemmProblem(13, 11, 7).layout("rcr").aligned(false).a_stride(9).c_stride(20), 0, team);
  gemm(dispatcher, tw::GemmProblem(5, 6, 7).layout("rcr").aligned(false).batch(3).broadcast_b().with_c(), 0, team);
  gemm(dispatcher, tw::GemmProblem(3, 5, 7).layout("rcr").aligned(false).epilogue(tw::Epilogue::relu, 1), 1, team);

  const tw::GemmProblem odd = tw::GemmProblem(13, 11, 7).layout("rcr");
  const std::string padded = dispatcher.plan(odd).selection().kernel.digest;
  CHECK(dispatcher.plan_with(odd, padded).selection().tier == "padded");
  CHECK(dispatcher.plan_with(tw::GemmProblem(96, 96, 96).layout("rcr"), padded).selection().tier == "named");
  tw::SelectOptions options;
  options.strict = true;
  CHECK(rule_of([&] { tw::Dispatcher(dispatcher.registry(), options).plan(odd); }) ==
        (tier == "locked" ? "" : "no-kernel"));
  CHECK(tw::Registry().add_json(dispatcher.registry().json()).find(padded).grains.size() == 3);
  return done("copies", checked);
}
