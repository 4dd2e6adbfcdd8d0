// What the examples share: their arguments, operands on the CPU or on a GPU, and the comparison with float64.
//   PROGRAM [FOLDER] [--target cpu|cuda|hip|ARCH]
// FOLDER holds the kernels that export_kernels.py wrote; left out, it is kernels, or kernels-TARGET with a target.
#pragma once
#include <tilewright/kernel_set.hpp>
#include <tilewright/reference.hpp>
#include <tilewright/timing.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

// A line of text: say("m ", 64, ", ", 0.5).
template <class... Words> void say(const Words &...words) {
  std::ostringstream line;
  line.precision(4);
  (line << ... << words);
  std::puts(line.str().c_str());
}

// Numbers of the host, and a copy on the device while a call runs there.
template <class T> struct Array {
  std::vector<T> host;
  std::optional<tw::DeviceMemory> device;

  explicit Array(std::vector<T> numbers) : host(std::move(numbers)) {}
  T *data() { return host.data(); }
  size_t size() const { return host.size(); }
  T &operator[](int64_t index) { return host[size_t(index)]; }
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
inline void make_blank(Array<float> &array) { std::fill(array.host.begin(), array.host.end(), std::nanf("")); }
inline Array<int32_t> table(std::vector<int32_t> numbers) { return Array<int32_t>(std::move(numbers)); }

// Where operands lie: `operands(on_host)` for the reference.
struct OnHost {
  template <class T> T *operator()(Array<T> &array) const { return array.host.data(); }
};
constexpr OnHost on_host{};

struct Arguments {
  std::string folder, target, backend;  // backend: cuda or hip; empty on the CPU

  Arguments(int count, char **words) {
    for (int at = 1; at < count; ++at) {
      const std::string word = words[at];
      if (word == "--target" && at + 1 < count) target = words[++at];
      else if (folder.empty() && word.rfind("-", 0) != 0) folder = word;
      else usage(words[0]);
    }
    if (folder.empty()) folder = target.empty() ? "kernels" : "kernels-" + target;
    if (target == "cpu") target.clear();
    if (target == "cuda" || target.rfind("sm_", 0) == 0) backend = "cuda";
    if (target == "hip" || target.rfind("gfx", 0) == 0) backend = "hip";
  }
  [[noreturn]] static void usage(const char *program) {
    throw tw::Error("request", "usage", program, std::string("usage: ") + program + " [FOLDER] [--target TARGET]",
                    "FOLDER: what export_kernels.py wrote; TARGET: cpu, cuda, hip or an arch such as sm_90a");
  }
};

struct Example {
  std::string folder;
  std::optional<tw::Device> device;
  tw::Dispatcher dispatcher;
  tw::Team team;  // a thread a core
  int failed = 0;

  explicit Example(const Arguments &arguments)
      : folder(arguments.folder),
        device(arguments.backend.empty() ? std::nullopt : std::optional<tw::Device>(arguments.backend)),
        dispatcher(tw::Registry::open(arguments.folder, arguments.target)) {}

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
  // Plans, says which kernel was chosen for each stage and by which tier, and runs.
  template <class Problem, class Operands> tw::Plan<Problem> plan_and_run(const Problem &problem, Operands operands) {
    const tw::Plan<Problem> plan = dispatcher.plan(problem);
    for (size_t stage = 0; stage < plan.stage_count(); ++stage)
      say(plan.selection().stage(stage).kernel.name, " (", plan.selection().stage(stage).tier, ")");
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
  // Whether there are kernels of a problem beside the fallback: of attention in fp32, NVIDIA GPUs have no others.
  template <class Problem> bool has_kernels(const Problem &problem) const {
    const std::vector<tw::KernelKey> kernels = dispatcher.registry().matching(problem);
    return std::any_of(kernels.begin(), kernels.end(), [](const tw::KernelKey &key) { return !key.fallback; });
  }
  // Says the largest error beside float64, and remembers one that is too large.
  void check(const std::string &what, Array<float> &actual, const std::vector<double> &expected, double bound = 1e-5) {
    const double error = tw::reference::error(actual.data(), tw::Dtype::fp32, expected);
    say(what, ": largest error beside float64 ", error);
    expect(what, actual.size() == expected.size() && error < bound);
  }
  void expect(const std::string &what, bool right) {
    if (!right) say("WRONG: ", what), ++failed;
  }
  // That a mistake is an error of this rule; says its message and remedy.
  template <class Mistake> void refused(const char *rule, Mistake mistake) {
    try {
      mistake();
      expect(std::string("nothing was refused by the rule ") + rule, false);
    } catch (const tw::Error &error) {
      say("refused: ", error.what());
      expect(std::string("refused by the rule ") + rule, error.rule() == rule && error.owner() == "request");
    }
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
inline int example_main(int count, char **words, void (*body)(Example &)) {
  try {
    Example example{Arguments(count, words)};
    body(example);
    std::puts(example.failed ? "failed" : "all right");
    return example.failed ? 1 : 0;
  } catch (const tw::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    if (error.rule() == "registry-path") std::fprintf(stderr, "  here: python export_kernels.py writes it\n");
    return error.rule() == "usage" ? 2 : 1;
  }
}

#define EXAMPLE(name) \
  static void name(Example &example); \
  int main(int count, char **words) { return example_main(count, words, name); } \
  static void name(Example &example)
