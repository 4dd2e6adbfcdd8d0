// What the examples share: the kernels of a folder, operands on the CPU or on a GPU, and the comparison with float64.
//   PROGRAM FOLDER [cuda|hip]      (FOLDER: what export_kernels.py wrote, for the CPU or for that GPU)
#pragma once
#include <tilewright/kernel_set.hpp>
#include <tilewright/reference.hpp>
#include <tilewright/timing.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

// Numbers of the host, and a copy on the device while a call runs there.
template <class T> struct Array {
  std::vector<T> host;
  std::optional<tw::DeviceMemory> device;

  explicit Array(std::vector<T> numbers) : host(std::move(numbers)) {}
  T *data() { return host.data(); }
  size_t size() const { return host.size(); }
};

// Between -1 and 1, the same on every machine.
inline Array<float> drawn(int64_t count, uint64_t seed) {
  std::vector<float> numbers;
  uint64_t state = seed * 2862933555777941757ull + 3037000493ull;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    numbers.push_back(float(double(state >> 40) / double(1 << 23) - 1.0));
  }
  return Array<float>(std::move(numbers));
}
// For results: whatever a kernel does not write is no number.
inline Array<float> blank(int64_t count) { return Array<float>(std::vector<float>(size_t(count), std::nanf(""))); }
inline Array<int32_t> table(std::vector<int32_t> numbers) { return Array<int32_t>(std::move(numbers)); }

// Where operands lie: `operands(on_host)` for the reference.
struct OnHost {
  template <class T> T *operator()(Array<T> &array) const { return array.host.data(); }
};
constexpr OnHost on_host{};

struct Example {
  std::string folder;
  std::optional<tw::Device> device;
  tw::Dispatcher dispatcher;
  tw::Team team;  // a thread a core
  int failed = 0;

  explicit Example(const std::string &path, const std::string &backend)
      : folder(path),
        device(backend.empty() ? std::nullopt : std::optional<tw::Device>(backend)),
        dispatcher(backend.empty() ? tw::Registry::open(path) : tw::Registry::open(path, backend)) {}

  // Runs a plan.  `operands` is a function of where arrays lie: it is called with what gives their addresses.
  template <class Plan, class Operands> void run(const Plan &plan, Operands operands) {
    if (!device) return plan.run(operands(on_host), team);
    on_device(operands, [&](const auto &there) { plan.run(there, *device); });
  }
  // Arrays are copied to the device before `use`, which gets the operands there, and back after it.
  template <class Operands, class Use> void on_device(Operands operands, Use use) {
    std::vector<std::function<void()>> back;
    const auto there = [&](auto &array) {
      using T = std::decay_t<decltype(array.host[0])>;
      const int64_t bytes = int64_t(array.host.size() * sizeof(T));
      if (!array.device) array.device.emplace(device->allocate(bytes));
      device->copy(array.device->get(), array.host.data(), bytes);
      back.push_back([&array, bytes, this] { device->copy(array.host.data(), array.device->get(), bytes); });
      return static_cast<T *>(array.device->get());
    };
    use(operands(there));
    for (const auto &copy : back) copy();
    device->synchronize();
  }
  template <class Problem, class Operands> tw::Plan<Problem> plan_and_run(const Problem &problem, Operands operands) {
    const tw::Plan<Problem> plan = dispatcher.plan(problem);
    for (size_t stage = 0; stage < plan.stage_count(); ++stage)
      std::printf("%s (%s)\n", plan.selection().stage(stage).kernel.name.c_str(),
                  plan.selection().stage(stage).tier.c_str());
    run(plan, operands);
    return plan;
  }
  // Microseconds of a run, the median of some; copies to a device and back do not count.
  template <class Plan, class Operands> double microseconds(const Plan &plan, Operands operands, int rounds = 11) {
    tw::TimingOptions options;
    options.repeat = rounds;
    if (!device) return tw::timed(plan, operands(on_host), team, options).seconds * 1e6;
    double seconds = 0;
    options.batch = 20;  // a launch and a wait for the device take microseconds, which several runs share
    on_device(operands,
              [&](const auto &there) { seconds = tw::timed(plan, there, *device, nullptr, options).seconds; });
    return seconds * 1e6;
  }
  // Says the largest error beside float64, and remembers one that is too large.
  void check(const char *what, Array<float> &actual, const std::vector<double> &expected, double bound = 1e-5) {
    const double error = tw::reference::error(actual.data(), tw::Dtype::fp32, expected);
    std::printf("%s: largest error beside float64 %.1e\n", what, error);
    expect(what, actual.size() == expected.size() && error < bound);
  }
  void expect(const char *what, bool right) {
    if (!right) std::printf("WRONG: %s\n", what), ++failed;
  }
};

// q, k, v and o of attention as dense rows of heads (batch, row, head, element).
struct Heads {
  Array<float> q, k, v, o;

  explicit Heads(const tw::AttentionProblem &p)
      : q(drawn(p.batch() * p.seqlen_q() * p.heads_q() * p.head_dim(), 1)),
        k(drawn(p.batch() * p.seqlen_k() * p.heads_kv() * p.head_dim(), 2)),
        v(drawn(p.batch() * p.seqlen_k() * p.heads_kv() * p.head_dim_v(), 3)),
        o(blank(p.batch() * p.seqlen_q() * p.heads_q() * p.head_dim_v())) {}
  template <class At> tw::AttentionOperands operands(At at) {
    return tw::AttentionOperands().q(at(q)).k(at(k)).v(at(v)).o(at(o));
  }
};

// Calls an example; an error is told with its remedy, and is status 1 as wrong numbers are.
inline int example_main(int count, char **arguments, void (*body)(Example &)) {
  if (count < 2) return std::printf("usage: %s FOLDER [cuda|hip]\n", arguments[0]), 2;
  try {
    Example example(arguments[1], count > 2 ? arguments[2] : "");
    body(example);
    std::puts(example.failed ? "failed" : "all right");
    return example.failed ? 1 : 0;
  } catch (const tw::Error &error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
}

#define EXAMPLE(name) \
  static void name(Example &example); \
  int main(int count, char **arguments) { return example_main(count, arguments, name); } \
  static void name(Example &example)
