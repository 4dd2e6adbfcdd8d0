// A library as PyTorch is one to us: it runs parallel regions on the threads of an OpenMP runtime.
#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

extern "C" {

// The ids of the threads of a region, by their number; the answer is how many there are.
int region_threads(long *ids, int most) {
  int count = 0;
#pragma omp parallel
  {
    if (omp_get_thread_num() < most) ids[omp_get_thread_num()] = syscall(SYS_gettid);
#pragma omp single
    count = omp_get_num_threads();
  }
  return count;
}

void set_threads(int count) { omp_set_num_threads(count); }

// Keep a core busy, as threads of a BLAS do behind their work.
void spin(double seconds) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  for (double end = double(now.tv_sec) + double(now.tv_nsec) * 1e-9 + seconds;
       double(now.tv_sec) + double(now.tv_nsec) * 1e-9 < end;)
    clock_gettime(CLOCK_MONOTONIC, &now);
}

// Run something on one thread of a region of two.
void inside_region(void (*body)(void *), void *context) {
#pragma omp parallel num_threads(2)
  {
#pragma omp single
    body(context);
  }
}

// Bodies of a team.  The first notes who computed an index, and how often.
struct Notes {
  long ids[64];
  int64_t times[64], arrived;
};
void note(void *raw, int64_t index, int64_t) {
  auto *notes = static_cast<Notes *>(raw);
  notes->ids[index] = syscall(SYS_gettid);
  __atomic_add_fetch(&notes->times[index], 1, __ATOMIC_SEQ_CST);
}

// The second waits until every index is in the hands of a thread; after a while it gives up.
void note_and_meet(void *raw, int64_t index, int64_t count) {
  auto *notes = static_cast<Notes *>(raw);
  note(raw, index, count);
  __atomic_add_fetch(&notes->arrived, 1, __ATOMIC_SEQ_CST);
  for (time_t until = time(nullptr) + 20;
       __atomic_load_n(&notes->arrived, __ATOMIC_SEQ_CST) < count && time(nullptr) < until;)
    sched_yield();
}

int flush_denormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
  return 1;
#else
  return 0;
#endif
}
}
