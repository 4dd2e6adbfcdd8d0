// Plans that a dispatcher keeps: the same plan for the same problem, another for another, none that outlives its reasons.
// Arguments: a folder of Registry.export() with kernels of GEMM.
#include <tilewright/timing.hpp>

#include <atomic>
#include <cmath>
#include <thread>

#include "check.hpp"

using Gemm = tw::GemmProblem;

static Gemm problem(int64_t m) { return Gemm(m, 20, 17).layout("rcr"); }

static void kept(const tw::Registry &registry) {
  const tw::Dispatcher dispatcher(registry);
  const auto first = dispatcher.plan(problem(33)), again = dispatcher.plan(problem(33));
  CHECK(&first.selection() == &again.selection() && dispatcher.kept_plans() == 1);
  // Whatever a plan depends on makes another of it.
  const std::vector<Gemm> others = {problem(34),
                                    Gemm(33, 20, 17).layout("rrr"),
                                    problem(33).with_c(),
                                    problem(33).a_stride(18),
                                    problem(33).aligned(false),
                                    problem(33).batch(2)};
  for (const Gemm &other : others) CHECK(&dispatcher.plan(other).selection() != &first.selection());
  CHECK(dispatcher.kept_plans() == 1 + int64_t(others.size()));
  dispatcher.forget_plans();
  CHECK(dispatcher.kept_plans() == 0 && first.problem().m() == 33);  // a plan in someone's hands stays one
  // One that breaks a rule is refused every time.
  for (int i = 0; i < 2; ++i) CHECK(rule_of([&] { dispatcher.plan(problem(-1)); }) == "size-negative");
  // Too many dimensions for any key.
  const std::vector<int64_t> long_one(200, 1);
  for (int i = 0; i < 2; ++i)
    CHECK(rule_of([&] { dispatcher.plan(tw::ConvProblem(1, 8, 8, long_one, long_one)); }) == "spatial-rank");
}

static void limits(const tw::Registry &registry) {
  tw::SelectOptions options;
  options.plans = 8;
  const tw::Dispatcher few(registry, options);
  const auto used = few.plan(problem(1));
  for (int64_t m = 2; m < 100; ++m) {
    few.plan(problem(m));
    CHECK(few.kept_plans() <= 8 && &few.plan(problem(1)).selection() == &used.selection());  // what is used stays
  }
  // Asked for over and over, more problems than are kept.
  for (int64_t most = 2; most < 30; ++most)
    for (int64_t m = 1; m <= most; ++m) {
      few.plan(problem(m));
      CHECK(few.kept_plans() <= 8);
    }
  for (int64_t tw::SelectOptions::*number :
       {&tw::SelectOptions::threads, &tw::SelectOptions::l2_bytes, &tw::SelectOptions::plans}) {
    tw::SelectOptions negative;
    negative.*number = -1;
    CHECK(!rule_of([&] { tw::Dispatcher(registry, negative); }).empty());
  }
  options.plans = 0;
  const tw::Dispatcher none(registry, options);
  none.plan(problem(1));
  CHECK(none.kept_plans() == 0);
}

// A heuristic and kernels that are added count at once.
static void reasons(const std::string &folder) {
  tw::Registry registry = tw::Registry::open(folder);
  tw::Dispatcher dispatcher(registry);
  const auto before = dispatcher.plan(problem(33));
  dispatcher.heuristic(
      [](const tw::Described &, const std::vector<tw::Candidate> &serving) { return int64_t(serving.size()) - 1; });
  const auto mine = dispatcher.plan(problem(33));
  CHECK(before.selection().tier != "named" && mine.selection().tier == "named");
  registry.add(folder);  // the same kernels once more
  CHECK(&dispatcher.plan(problem(33)).selection() != &mine.selection());
}

static void threads(const tw::Registry &registry) {
  tw::SelectOptions options;
  options.plans = 6;  // so that plans are given up while others look for them
  const tw::Dispatcher dispatcher(registry, options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> several;
  for (int thread = 0; thread < 16; ++thread)
    several.emplace_back([&, thread] {
      const std::vector<float> a(20 * 17, 1.0f), b(20 * 17, 2.0f);
      std::vector<float> e(20 * 20);
      for (int64_t round = 0; round < 60; ++round) {
        const int64_t m = 1 + (round * 7 + thread) % 11;
        const auto plan = dispatcher.plan(problem(m));
        plan.run(tw::GemmOperands().a(a.data()).b(b.data()).e(e.data()));
        if (plan.problem().m() != m || e[size_t(m * 20 - 1)] != 34.0f) ++wrong;
      }
    });
  for (std::thread &one : several) one.join();
  CHECK(wrong == 0);
}

// Measurements that would have no end, or none at all, are refused before the first run.
static void times(const tw::Registry &registry) {
  const auto plan = tw::Dispatcher(registry).plan(problem(3));
  const std::vector<float> a(20 * 17, 1.0f);
  std::vector<float> e(20 * 20);
  const auto operands = tw::GemmOperands().a(a.data()).b(a.data()).e(e.data());
  const tw::Team team(1);
  tw::TimingOptions options;
  options.repeat = 3, options.least_seconds = 1e-4;
  const tw::Timing timing = tw::timed(plan, operands, team, options);
  CHECK(timing.measurements >= 3 && timing.least <= timing.seconds && timing.seconds <= timing.most);
  for (double seconds : {HUGE_VAL, double(NAN), -1.0, 1e9}) {
    options.least_seconds = seconds;
    CHECK(rule_of([&] { tw::timed(plan, operands, team, options); }) == "timing-options");
    CHECK(value_of([&] { tw::timed(plan, operands, team, options); }) == std::to_string(seconds));
  }
  options.least_seconds = 0, options.flush_bytes = -1;
  CHECK(rule_of([&] { tw::timed(plan, operands, team, options); }) == "timing-options");
  options.flush_bytes = INT64_MAX;
  CHECK(value_of([&] { tw::timed(plan, operands, team, options); }) == std::to_string(INT64_MAX));
}

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: test_plans FOLDER"), 2;
  const tw::Registry registry = tw::Registry::open(arguments[1]);
  kept(registry), limits(registry), reasons(arguments[1]), threads(registry), times(registry);
  return done("plans", 5);
}
