// Convolutions that kernels of a GPU serve in dense copies of their operands only, beside float64; a stub of the driver
// stands in the loader's path, or a real device is there.  Arguments: BACKEND FOLDER.
#include <tilewright/reference.hpp>

#include "check.hpp"

using Direction = tw::ConvDirection;
using Problem = tw::ConvProblem;
using Sizes = std::vector<int64_t>;

static constexpr int64_t kRoom = 12000;
static int checked = 0;

// Pixels so many elements farther apart than their channels are, rows and images too.
static Sizes apart(const Sizes &shape, int64_t gap) {
  Sizes strides(shape.size(), 1);
  for (size_t at = shape.size() - 1; at-- > 0;) strides[at] = strides[at + 1] * shape[at + 1] + gap;
  return strides;
}

static Problem with_gaps(Problem problem, int64_t gap) {
  return problem.x_strides(apart(problem.x_shape(), gap))
      .w_strides(apart(problem.w_shape(), gap))
      .y_strides(apart(problem.y_shape(), gap))
      .aligned(false);
}

// Operands begin at `shift` elements of their memory: an address that is not aligned where it is odd.
static void run(const tw::Dispatcher &dispatcher, const tw::Device &device, const Problem &problem, int64_t shift,
                bool own) {
  std::vector<float> host[5];
  std::vector<tw::DeviceMemory> there;
  const Direction direction = problem.direction();
  const size_t result = direction == Direction::forward ? 2 : direction == Direction::backward_data ? 0 : 1;
  for (size_t at = 0; at < 5; ++at) {
    host[at] = at == result ? std::vector<float>(size_t(kRoom), -7.0f) : drawn(kRoom, at + 1);
    there.push_back(device.allocate(kRoom * 4));
    device.copy(there[at].get(), host[at].data(), kRoom * 4);
  }
  const auto operands = [&](auto memory) {
    tw::ConvOperands o = tw::ConvOperands().x(memory(0) + shift).w(memory(1) + shift).y(memory(2) + shift);
    if (problem.num_d() > 0) o.bias(memory(3));
    if (problem.num_d() > 1) o.residual(memory(4));
    return o;
  };
  const auto mine = operands([&](size_t at) { return host[at].data(); }),
             its = operands([&](size_t at) { return static_cast<float *>(there[at].get()); });
  const std::vector<double> expected = tw::reference::conv(problem, mine);
  const auto plan = dispatcher.plan(problem);
  CHECK(plan.selection().tier == "padded" && plan.selection().kernel.arch == device.arch());
  if (own) {
    const tw::DeviceMemory scratch = device.allocate(plan.workspace_bytes(its, 1));
    device.clear(scratch.get(), plan.clear_bytes());
    plan.run_on_stream(its, nullptr, scratch.get());
    device.synchronize();
  } else {
    plan.run(its, device);
  }
  std::vector<float> &written = host[result];
  device.copy(written.data(), there[result].get(), kRoom * 4);
  device.synchronize();
  const Sizes shape = result == 2 ? problem.y_shape() : result == 0 ? problem.x_shape() : problem.w_shape();
  const Sizes strides = result == 2 ? problem.y_strides() : result == 0 ? problem.x_strides() : problem.w_strides();
  double worst = 0, largest = 0;
  for (size_t index = 0; index < expected.size(); ++index) {
    int64_t at = shift, rest = int64_t(index);
    for (size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) at += rest % shape[axis] * strides[axis];
    worst = std::max(worst, std::fabs(double(written[size_t(at)]) - expected[index]));
    largest = std::max(largest, std::fabs(expected[index]));
  }
  CHECK(worst < 2e-3 * largest);  // a device multiplies in TF32
  int64_t untouched = 0;
  for (float number : written) untouched += number == -7.0f;
  CHECK(untouched == kRoom - int64_t(expected.size()));  // what lies between pixels is the caller's
  ++checked;
}

int main(int count, char **arguments) {
  if (count < 3) return std::puts("usage: test_device_conv BACKEND FOLDER"), 2;
  const tw::Device device(arguments[1]);
  const tw::Registry registry = tw::Registry::open(arguments[2], arguments[1]);
  const tw::Dispatcher dispatcher(registry);
  for (bool own : {false, true})
    for (Direction direction : {Direction::forward, Direction::backward_data, Direction::backward_weight}) {
      const Problem plain = Problem(2, 8, 16, {7, 6}, {3, 3}).direction(direction).padding({1, 1});
      run(dispatcher, device, with_gaps(plain, 1), 0, own);
      run(dispatcher, device, Problem(plain).aligned(false), 1, own);  // dense, at an odd address
      Sizes wide = plain.x_strides();
      for (size_t at = 0; at < 3; ++at) wide[at] = wide[at] / 8 * 11;  // pixels at equal distances, one operand alone
      run(dispatcher, device, Problem(plain).x_strides(wide).aligned(false), 0, own);
      run(dispatcher, device, with_gaps(Problem(2, 16, 16, {6, 5}, {2, 2}).groups(2).direction(direction), 3), 3, own);
    }
  const Problem fused = Problem(2, 8, 16, {7, 6}, {3, 3}).epilogue(tw::Epilogue::add, 2, 1);
  run(dispatcher, device, with_gaps(fused, 1), 1, false);

  const Problem loose = with_gaps(Problem(2, 8, 16, {7, 6}, {3, 3}), 1);
  tw::SelectOptions options;
  options.strict = true;
  CHECK(rule_of([&] { tw::Dispatcher(registry, options).plan(loose); }) == "no-kernel");
  const std::string digest = dispatcher.plan(loose).selection().kernel.digest;
  CHECK(dispatcher.plan_with(loose, digest).selection().tier == "padded");
  CHECK(tw::Registry(registry.target()).add_json(registry.json()).find(digest).copied);
  CHECK(dispatcher.plan(Problem(2, 8, 16, {7, 6}, {3, 3})).selection().tier == "heuristic");
  // Channels that lie apart, or memory that lies backwards, is not copied.
  Problem first(2, 8, 16, {7, 6}, {3, 3});
  first.x_strides({8 * 42, 6, 1, 42}).aligned(false);
  CHECK(rule_of([&] { dispatcher.plan(first); }) == "no-kernel");
  Problem back(2, 8, 16, {7, 6}, {3, 3});
  back.x_strides({-42 * 8, 48, 8, 1}).aligned(false);
  CHECK(rule_of([&] { dispatcher.plan(back); }) == "no-kernel");
  return done("convolutions in copies", checked);
}
