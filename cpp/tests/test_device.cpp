// Devices through a driver that is found at run time; a stub of it stands in the loader's path.
//   test_device arch BACKEND ARCH...        the device's arch, and those of the named ones whose kernels it runs
//   test_device run BACKEND FOLDER          kernels of a registry, on memory and streams of the device
//   test_device copies BACKEND FOLDER       problems that they serve in padded copies only; also on real devices
#include <tilewright/reference.hpp>

#include <cstring>
#include <thread>

#include "check.hpp"

using Problem = tw::GemmProblem;

static void *stream(intptr_t number) { return reinterpret_cast<void *>(number); }

static void one_run(const tw::Dispatcher &dispatcher, const tw::Device &device, int64_t m, void *on, bool own) {
  const int64_t n = 20, k = 16;
  const std::vector<float> a = drawn(m * k, 1), b = drawn(k * n, 2);
  std::vector<float> e(size_t(m * n), -1.0f);
  const tw::DeviceMemory da = device.allocate(m * k * 4), db = device.allocate(k * n * 4),
                         de = device.allocate(m * n * 4);
  device.copy(da.get(), a.data(), da.bytes(), on), device.copy(db.get(), b.data(), db.bytes(), on);
  const tw::GemmOperands operands = tw::GemmOperands().a(da.get()).b(db.get()).e(de.get());
  const auto plan = dispatcher.plan(Problem(m, n, k));
  CHECK(plan.selection().tier == "heuristic" && plan.clear_bytes() > 0);
  if (own) {
    const int64_t bytes = plan.workspace_bytes(operands, 1);
    const tw::DeviceMemory mine = device.allocate(bytes);
    device.clear(mine.get(), plan.clear_bytes(), on);
    plan.run_on_stream(operands, on, mine.get());
    plan.run_on_stream(operands, on, mine.get());  // its zeros are zeros again
    CHECK(rule_of([&] { plan.run_on_stream(operands, on, nullptr); }) == "workspace-missing");
  } else {
    plan.run(operands, device, on);
  }
  device.copy(e.data(), de.get(), de.bytes(), on);
  device.synchronize(on);
  for (int64_t i = 0; i < m * n; ++i) {
    double sum = 0;
    for (int64_t at = 0; at < k; ++at) sum += double(a[size_t(i / n * k + at)]) * double(b[size_t(at * n + i % n)]);
    CHECK(std::fabs(sum - double(e[size_t(i)])) < 1e-5);
  }
}

// In padded copies on the device: sizes that its kernels do not take, rows that are apart, a bias that repeats.
static void in_copies(const tw::Dispatcher &dispatcher, const tw::Device &device, const Problem &problem, bool own) {
  const int64_t room = 2000;
  const std::vector<float> a = drawn(room, 1), b = drawn(room, 2), c = drawn(room, 3), d = drawn(room, 4);
  std::vector<float> e(size_t(room), -7.0f);
  std::vector<tw::DeviceMemory> there;
  for (const std::vector<float> *array : {&a, &b, &c, &d, static_cast<const std::vector<float> *>(&e)}) {
    there.push_back(device.allocate(room * 4));
    device.copy(there.back().get(), array->data(), room * 4);
  }
  const auto operands = [&](const void *at_a, const void *at_b, const void *at_c, const void *at_d, void *at_e) {
    tw::GemmOperands o = tw::GemmOperands().a(at_a).b(at_b).e(at_e).alpha(0.5);
    if (problem.uses_c()) o.c(at_c).beta(-2);
    if (problem.num_d() > 0) o.bias(at_d);
    if (problem.num_d() > 1) o.d(at_d, 1, 0, 0);  // one number a row
    return o;
  };
  const auto mine = operands(a.data(), b.data(), c.data(), d.data(), e.data()),
             its = operands(there[0].get(), there[1].get(), there[2].get(), there[3].get(), there[4].get());
  const std::vector<double> expected = tw::reference::gemm(problem, mine);
  const auto plan = dispatcher.plan(problem);
  CHECK(plan.selection().tier == "padded");
  if (own) {
    const tw::DeviceMemory scratch = device.allocate(plan.workspace_bytes(its, 1));
    device.clear(scratch.get(), plan.clear_bytes());
    plan.run_on_stream(its, nullptr, scratch.get());
  } else {
    plan.run(its, device);
  }
  device.copy(e.data(), there[4].get(), room * 4);
  device.synchronize();
  size_t at = 0;
  int64_t untouched = 0;
  for (int64_t row = 0; row < problem.batch() * problem.m(); ++row)
    for (int64_t column = 0; column < problem.n(); ++column, ++at)
      CHECK(std::fabs(double(e[size_t(row * problem.c_stride() + column)]) - expected[at]) < 1e-4);
  for (float number : e) untouched += number == -7.0f;
  CHECK(untouched == room - int64_t(at));  // what lies between rows is the caller's
}

static int all_copies(const tw::Dispatcher &dispatcher, const tw::Device &device) {
  for (bool own : {false, true}) {
    in_copies(dispatcher, device, Problem(13, 11, 7), own);
    in_copies(dispatcher, device, Problem(13, 11, 7).a_stride(9).b_stride(15).c_stride(20), own);
    in_copies(dispatcher, device, Problem(6, 5, 7).batch(3).broadcast_b().with_c(), own);
    in_copies(dispatcher, device, Problem(13, 11, 7).epilogue(tw::Epilogue::add, 2), own);
  }
  return done("copies", 8);
}

static int run(const std::string &backend, const std::string &folder) {
  const tw::Device device(backend);
  const tw_device_facts facts = device.facts();
  CHECK(facts.compute_units > 100 && facts.l2_bytes > 0 && facts.memory_bytes == 1 << 20 && facts.index == 0);
  CHECK(device.name().find("stub") != std::string::npos && tw::Device::count(backend) == 1);
  CHECK(rule_of([&] { tw::Device(backend, 5); }) == "device-index");
  CHECK(rule_of([&] { tw::Device("opencl"); }) == "backend-name");
  CHECK(rule_of([&] { device.allocate(-1); }) == "size-negative");
  if (backend == "cuda") CHECK(rule_of([&] { device.allocate(int64_t(1) << 40); }) == "device");

  const tw::Registry registry = tw::Registry::open(folder, backend);
  CHECK(registry.target() == device.arch());
  CHECK(rule_of([&] { tw::Registry::open(folder, backend == "cuda" ? "gfx942" : "sm_90a"); }) == "registry-target");
  const tw::Dispatcher dispatcher(registry);
  for (bool own : {false, true})
    one_run(dispatcher, device, 33, nullptr, own), one_run(dispatcher, device, 5, stream(8), own);
  one_run(dispatcher, device, 300, nullptr, false);
  std::vector<std::thread> several;  // whose threads have no context of their own yet
  for (int i = 0; i < 16; ++i)
    several.emplace_back([&, i] { one_run(dispatcher, device, 10 + i, stream(64 + i), false); });
  for (std::thread &one : several) one.join();

  all_copies(dispatcher, device);
  tw::SelectOptions options;
  options.strict = true;
  CHECK(rule_of([&] { tw::Dispatcher(registry, options).plan(Problem(13, 11, 7)); }) == "no-kernel");
  CHECK(rule_of([&] { device.copy_rows(&options, 2, &options, 8, 4, 2); }) == "row-pitch");

  float number = 0, result = 0;
  const tw::GemmOperands host = tw::GemmOperands().a(&number).b(&number).e(&result);
  CHECK(rule_of([&] { dispatcher.plan(Problem(1, 20, 16)).run(host); }) == "plan-stream");
  CHECK(rule_of([&] { dispatcher.plan(Problem(7, 20, 16)).run(host, device); }) == "kernel-check");
  return done("device", 20);
}

int main(int count, char **arguments) {
  if (count < 4) return std::puts("usage: test_device arch|run|copies BACKEND ..."), 2;
  try {
    if (!std::strcmp(arguments[1], "run")) return run(arguments[2], arguments[3]);
    if (!std::strcmp(arguments[1], "copies"))
      return all_copies(tw::Dispatcher(tw::Registry::open(arguments[3], arguments[2])), tw::Device(arguments[2]));
    const tw::Device device(arguments[2]);
    std::printf("%s", device.arch().c_str());
    for (int i = 3; i < count; ++i)
      if (tw_device_runs(device.get(), arguments[i])) std::printf(" %s", arguments[i]);
    std::puts("");
    return 0;
  } catch (const tw::Error &error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
}
