// Devices through a driver that is found at run time; a stub of it stands in the loader's path.
//   test_device arch BACKEND ARCH...        the device's arch, and those of the named ones whose kernels it runs
//   test_device run BACKEND FOLDER          kernels of a registry, on memory and streams of the device
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

  float number = 0;
  const tw::GemmOperands host = tw::GemmOperands().a(&number).b(&number).e(&number);
  CHECK(rule_of([&] { dispatcher.plan(Problem(1, 20, 16)).run(host); }) == "plan-stream");
  CHECK(rule_of([&] { dispatcher.plan(Problem(7, 20, 16)).run(host, device); }) == "kernel-check");
  return done("device", 12);
}

int main(int count, char **arguments) {
  if (count < 4) return std::puts("usage: test_device arch|run BACKEND ..."), 2;
  try {
    if (!std::strcmp(arguments[1], "run")) return run(arguments[2], arguments[3]);
    const tw::Device device(arguments[2]);
    std::printf("%s", device.arch().c_str());
    for (int i = 3; i < count; ++i)
      if (tw_device_runs(device.get(), arguments[i])) std::printf(" %s", arguments[i]);
    std::puts("");
    return 0;
  } catch (const tw::Error &error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
}
