// Sixteen threads at one registry and one dispatcher, of every op: they list, find, write, select, plan and run at once,
// and each opens registries of its own beside.  Arguments: folders of Registry.export() with kernels of GEMM, of
// convolution and of attention.  ThreadSanitizer runs it (tests/cpp/test_sanitizers.py).
#include <atomic>
#include <thread>

#include "check.hpp"

static constexpr int kThreads = 16, kRounds = 12;

// The body with the number of each thread; what it returns counts as wrong answers.
template <class Body> static void together(Body body) {
  std::atomic<int> ready{0}, wrong{0};
  std::vector<std::thread> several;
  for (int thread = 0; thread < kThreads; ++thread)
    several.emplace_back([&, thread] {
      for (++ready; ready < kThreads;) std::this_thread::yield();  // so that all begin with nothing loaded or kept
      try {
        wrong += body(thread);
      } catch (const tw::Error &error) { std::printf("%s\n", error.what()), ++wrong; }
    });
  for (std::thread &one : several) one.join();
  CHECK(wrong == 0);
}

static tw::SelectOptions few_plans() {
  tw::SelectOptions options;
  options.plans = 6;  // so that plans are given up while others look for them
  return options;
}

static void registries(const std::string &folder) {
  const tw::Registry registry = tw::Registry::open(folder);
  const std::string json = registry.json(), digest = registry.kernel(0).digest;
  together([&](int thread) {
    int wrong = 0;
    for (int round = 0; round < 3; ++round) {
      wrong += registry.json() != json || registry.find(digest).index != 0;
      wrong += int64_t(registry.kernels().size()) != registry.size();
      wrong += registry.filter([&](const tw::KernelKey &key) { return key.digest == digest; }).size() != 1;
      wrong += registry.find("no such digest").index != -1;
      if (thread % 4 == round) wrong += tw::Registry::open(folder).json() != json;
      wrong += rule_of([&] { registry.kernel(registry.size()); }) != "kernel-index";  // errors are each thread's own
    }
    return wrong;
  });
}

static void gemms(const std::string &folder) {
  const tw::Dispatcher dispatcher(tw::Registry::open(folder), few_plans());
  const tw::Team team(3);  // of which one run at a time is made
  const std::vector<float> a(20 * 17, 1.0f), b(20 * 17, 2.0f);
  together([&](int thread) {
    int wrong = 0;
    std::vector<float> e(20 * 20);
    for (int round = 0; round < kRounds; ++round) {
      const int64_t m = 1 + (round * 7 + thread) % 11;
      const tw::GemmProblem problem = tw::GemmProblem(m, 20, 17).layout("rcr");
      const auto plan = dispatcher.plan(problem);
      const tw::GemmOperands operands = tw::GemmOperands().a(a.data()).b(b.data()).e(e.data());
      round % 3 ? plan.run(operands) : plan.run(operands, team);
      wrong += plan.problem().m() != m || e[size_t(m * 20 - 1)] != 34.0f;
      wrong += dispatcher.select(problem).kernel.digest != plan.selection().kernel.digest;
      wrong += dispatcher.candidates(problem).empty();
      if (round == thread % kRounds) dispatcher.forget_plans();
    }
    return wrong;
  });
}

static void convolutions(const std::string &folder) {
  const tw::Dispatcher dispatcher(tw::Registry::open(folder), few_plans());
  const std::vector<float> x(1 * 9 * 9 * 8, 1.0f), w(8 * 3 * 3 * 8, 2.0f);
  together([&](int thread) {
    int wrong = 0;
    std::vector<float> y(7 * 7 * 8);
    for (int round = 0; round < kRounds; ++round) {
      const int64_t size = 3 + (round + thread) % 7;
      const auto plan = dispatcher.plan(tw::ConvProblem(1, 8, 8, {size, size}, {3, 3}));
      plan.run(tw::ConvOperands().x(x.data()).w(w.data()).y(y.data()));
      wrong += y[size_t((size - 2) * (size - 2) * 8 - 1)] != 144.0f;
    }
    return wrong;
  });
}

static void attentions(const std::string &folder) {
  const tw::Dispatcher dispatcher(tw::Registry::open(folder), few_plans());
  const std::vector<float> q(16 * 2 * 32, 0.5f), k(40 * 2 * 32, 0.25f), v(40 * 2 * 32, 3.0f);
  together([&](int thread) {
    int wrong = 0;
    std::vector<float> o(16 * 2 * 32);
    for (int round = 0; round < kRounds; ++round) {
      const int64_t rows = 1 + (round + thread) % 8, parts = round % 2 ? 2 : 1;  // of two stages, and of one
      const auto plan = dispatcher.plan(tw::AttentionProblem(1, 2, rows, 40, 32).num_splits(parts));
      plan.run(tw::AttentionOperands().q(q.data()).k(k.data()).v(v.data()).o(o.data()));
      for (int64_t i = 0; i < rows * 64; ++i) wrong += std::fabs(o[size_t(i)] - 3.0f) > 1e-5f;
    }
    return wrong;
  });
}

int main(int count, char **arguments) {
  if (count < 4) return std::puts("usage: test_threads GEMM_FOLDER CONV_FOLDER ATTENTION_FOLDER"), 2;
  registries(arguments[1]), gemms(arguments[1]), convolutions(arguments[2]), attentions(arguments[3]);
  return done("threads", 4);
}
