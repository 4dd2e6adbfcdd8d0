// What the system does with threads: which of them run, where they may, and how long their turns are.
#pragma once
#include <stdint.h>
#ifdef __linux__
#include <dirent.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

namespace {

#ifdef __linux__
inline void futex_wait(uint32_t *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
inline void futex_wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

// Which cores a thread may use: as many bits as the largest kernels have.
struct Cores {
  static constexpr int bits = 8 * sizeof(unsigned long);
  unsigned long word[8192 / bits];
  int64_t words;  // those the system reported

  bool read(pid_t thread) {
    long bytes = syscall(SYS_sched_getaffinity, thread, sizeof word, word);
    words = bytes > 0 ? bytes / int64_t(sizeof *word) : 0;
    return words > 0;
  }
  bool set(pid_t thread) const { return !syscall(SYS_sched_setaffinity, thread, words * sizeof *word, word); }
  bool same(const Cores &other) const {
    return words == other.words && !memcmp(word, other.word, size_t(words) * sizeof *word);
  }
  // This core alone, or all others.
  Cores only(int core, bool others) const {
    Cores part = *this;
    for (int64_t i = 0; i < words; ++i) {
      unsigned long bit = i == core / bits ? 1ul << core % bits : 0;
      part.word[i] &= others ? ~bit : bit;
    }
    return part;
  }
  bool any() const {
    for (int64_t i = 0; i < words; ++i)
      if (word[i]) return true;
    return false;
  }
};

// Turns as short as the system gives: a thread that wakes with short ones may interrupt one that spins.  Needs Linux
// 6.12; before, this changes nothing.
inline void take_short_turns() {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t turn, deadline, period;
  } wish = {};
  constexpr uint64_t shortest = 100000;  // nanoseconds
  if (syscall(SYS_sched_getattr, 0, &wish, sizeof wish, 0) || wish.policy != SCHED_OTHER) return;
  wish.turn = shortest;
  syscall(SYS_sched_setattr, 0, &wish, 0);
}

inline int32_t thread_id() {
  static __thread int32_t known;
  if (!known) known = int32_t(syscall(SYS_gettid));
  return known;
}

// How long a thread has been on cores, in nanoseconds; 0 where it has ended.
inline int64_t time_on_cores(int32_t thread) {
  const clockid_t clock = clockid_t(~unsigned(thread) << 3 | 6);  // as Linux numbers such clocks
  timespec time;
  return clock_gettime(clock, &time) ? 0 : int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

// Whether a thread of this process, but for the caller and those that `known` knows, was on a core since the caller
// last look, for more than a moment.  Who they are is looked up now and then; of many, the oldest are looked at.
// What they did long ago does not count unless they are on a core still.
template <class Known> bool others_ran(int64_t clock, int64_t long_ago, const Known &known) {
  constexpr int most = 8;
  static __thread int64_t last;
  const bool recent = clock - last < long_ago;
  last = clock;
  constexpr unsigned calls_a_look = 256;
  constexpr int64_t moment = 20000;  // nanoseconds
  static __thread int32_t threads[most];
  static __thread int64_t times[most];
  static __thread int count;
  static __thread unsigned calls;
  const bool look = calls++ % calls_a_look == 0;
  if (look) {
    count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (dirent *entry; folder && count < most && (entry = readdir(folder));) {
      const int32_t thread = int32_t(atoi(entry->d_name));
      if (thread > 0 && thread != thread_id() && !known(thread)) threads[count++] = thread;
    }
    if (folder) closedir(folder);
  }
  bool any = false;
  for (int i = 0; i < count; ++i) {
    const int64_t now = time_on_cores(threads[i]);
    any |= !look && now > times[i] + moment && (recent || time_on_cores(threads[i]) != now);
    times[i] = now;
  }
  return any;
}
#else
inline int32_t thread_id() { return 0; }
template <class Known> bool others_ran(int64_t, int64_t, const Known &) { return false; }
#endif

}  // namespace
