// How long a plan takes: runs after a warm-up, the median of several, with caches warm or written over.
#pragma once
#include <tilewright/plan.hpp>

#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <vector>

namespace tw {

struct TimingOptions {
  int64_t warmup = 2;        // runs before the first that counts
  int64_t repeat = 11;       // measurements, of which the median is taken
  int64_t batch = 1;         // runs of a measurement; several hide what a launch and a wait for a GPU take
  int64_t flush_bytes = 0;   // of other memory written before each measurement: more than the last cache makes it cold
  double least_seconds = 0;  // measurements go on until they took so long together; up to a day
};

// Seconds of one run.
struct Timing {
  double seconds = 0, least = 0, most = 0;  // the median, and the ends
  double spread = 0;                        // the middle half of all over the median: how much to believe it
  int64_t measurements = 0;
};

namespace detail {

constexpr double kLongest = 86400;  // a day: more would hardly be meant, and infinity or NaN has no end

constexpr int64_t kMostFlushed = int64_t(1) << 34;

inline void demand_timing(const TimingOptions &options) {
  if (options.repeat < 1 || options.batch < 1 || options.warmup < 0 || options.flush_bytes < 0)
    throw request_error("timing-options", std::to_string(options.repeat),
                        "no measurement is asked for, or a number of runs or bytes is negative",
                        "use repeat and batch of 1 or more");
  if (options.flush_bytes > kMostFlushed)
    throw request_error("timing-options", std::to_string(options.flush_bytes),
                        std::to_string(options.flush_bytes) + " bytes to write over, more than any cache has",
                        "use up to 2^34 flush_bytes: twice the last cache is enough");
  if (!(options.least_seconds >= 0 && options.least_seconds <= kLongest))
    throw request_error("timing-options", std::to_string(options.least_seconds),
                        "measurements that take " + std::to_string(options.least_seconds) + " seconds together",
                        "use 0 to 86400 least_seconds");
}

// Memory that is written over between measurements.
inline std::vector<char> flushed(int64_t bytes) {
  try {
    return std::vector<char>(size_t(bytes));
  } catch (const std::bad_alloc &) {
    throw Error("machine", "memory", std::to_string(bytes),
                "no memory for " + std::to_string(bytes) + " bytes to write over between measurements",
                "use fewer flush_bytes: twice the last cache is enough");
  }
}

// `run` queues or makes a run, `wait` ends when all are done, `flush` writes over caches.
template <class Run, class Wait, class Flush>
Timing timed(const TimingOptions &options, Run run, Wait wait, Flush flush) {
  for (int64_t i = 0; i < options.warmup; ++i) run();
  wait();
  std::vector<double> times;
  double whole = 0;
  while (int64_t(times.size()) < options.repeat || whole < options.least_seconds) {
    flush(), wait();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < options.batch; ++i) run();
    wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    whole += took.count(), times.push_back(took.count() / double(options.batch));
  }
  std::sort(times.begin(), times.end());
  const size_t count = times.size();
  Timing timing{times[count / 2], times.front(), times.back(), 0, int64_t(count)};
  timing.spread = timing.seconds > 0 ? (times[count * 3 / 4] - times[count / 4]) / timing.seconds : 0;
  return timing;
}

}  // namespace detail

// On the CPU.
template <class Problem> Timing timed(const Plan<Problem> &plan, const typename Problem::Operands &operands,
                                      const Team &team, const TimingOptions &options = {}) {
  detail::demand_timing(options);  // before memory is asked for
  std::vector<char> other = detail::flushed(options.flush_bytes);
  char value = 0;
  return detail::timed(
      options, [&] { plan.run(operands, team); }, [] {}, [&] { std::fill(other.begin(), other.end(), ++value); });
}

// On a GPU, on one of its streams; operands are in its memory.
template <class Problem> Timing timed(const Plan<Problem> &plan, const typename Problem::Operands &operands,
                                      const Device &device, void *stream = nullptr, const TimingOptions &options = {}) {
  detail::demand_timing(options);
  const DeviceMemory other = device.allocate(std::max<int64_t>(1, options.flush_bytes));
  return detail::timed(
      options, [&] { plan.run(operands, device, stream); }, [&] { device.synchronize(stream); },
      [&] {
        if (options.flush_bytes) device.clear(other.get(), options.flush_bytes, stream);
      });
}

}  // namespace tw
