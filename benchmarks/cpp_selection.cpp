// What it takes to choose a kernel for a problem (warm, no plan kept) and to find the plan of one that was planned
// before, in microseconds of CPU time of this thread; and, for comparison, on the clock of the wall.
//   cpp_selection FOLDER [REPEATS]     (FOLDER: what Registry.export() wrote; kernels of fp32 of one op or of several)
#include <tilewright/tilewright.hpp>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return double(time.tv_sec) * 1e6 + double(time.tv_nsec) * 1e-3;
}

struct Took {
  double cpu, wall;  // microseconds of one call
};

// The median of 21 rounds, each of some calls: a round that was interrupted is none of the middle ones.
template <class Call> Took timed(int64_t repeats, Call call) {
  std::vector<double> cpu, wall;
  for (int round = 0; round < 21; ++round) {
    const double cpu_start = now(CLOCK_THREAD_CPUTIME_ID), wall_start = now(CLOCK_MONOTONIC);
    for (int64_t i = 0; i < repeats; ++i) call(i);
    cpu.push_back((now(CLOCK_THREAD_CPUTIME_ID) - cpu_start) / double(repeats));
    wall.push_back((now(CLOCK_MONOTONIC) - wall_start) / double(repeats));
  }
  std::sort(cpu.begin(), cpu.end()), std::sort(wall.begin(), wall.end());
  return {cpu[10], wall[10]};
}

// `make(i)`: problems of sizes that differ, so that nothing but the library's own preparation is warm.
template <class Make> void report(const char *name, const tw::Dispatcher &dispatcher, int64_t repeats, Make make) {
  const auto problem = make(0);
  const size_t kernels = dispatcher.registry().matching(problem).size();
  if (!kernels) return;
  const Took chosen = timed(repeats, [&](int64_t i) { dispatcher.select(make(i)); });
  const std::string tier = dispatcher.select(problem).tier;  // of the first: by a model, by estimates, ...
  std::printf("%-10s %3zu kernels  select by %s %6.2f us (wall %6.2f)", name, kernels, tier.c_str(), chosen.cpu,
              chosen.wall);
  bool built = true;  // a registry without libraries can be asked, and not planned with
  for (int64_t i = 0; i < 16; ++i) built = built && !dispatcher.select(make(i)).kernel.library.empty();
  if (built) {
    for (int64_t i = 0; i < 16; ++i) dispatcher.plan(make(i));
    const Took kept = timed(repeats, [&](int64_t i) { dispatcher.plan(make(i % 16)); });
    std::printf("  plan kept %6.3f us (wall %6.3f)", kept.cpu, kept.wall);
  }
  std::puts("");
}

}  // namespace

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: cpp_selection FOLDER [REPEATS]"), 2;
  try {
    const int64_t repeats = count > 2 ? std::atoll(arguments[2]) : 2000;
    const tw::Dispatcher dispatcher(tw::Registry::open(arguments[1]));
    report("gemm", dispatcher, repeats, [](int64_t i) {
      return tw::GemmProblem(1 + i * 37 % 2048, 64 * (1 + i * 13 % 37), 64 * (1 + i * 29 % 31)).layout("rcr");
    });
    report("conv", dispatcher, repeats, [](int64_t i) {
      const int64_t size = 7 * (1 + i * 13 % 8), channels = 16 * (1 + i * 7 % 15);
      return tw::ConvProblem(1 + i * 29 % 32, channels, channels, {size, size}, {3, 3}).padding({1, 1});
    });
    report("attention", dispatcher, repeats,
           [](int64_t i) { return tw::AttentionProblem(1 + i % 16, 8, 128, 128 + i, 64).causal(); });
    return 0;
  } catch (const tw::Error &error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
}
