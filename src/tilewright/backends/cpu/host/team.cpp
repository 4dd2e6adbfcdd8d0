// The host's team of threads: workers that spin briefly, then sleep, and run one body at a time.
//
// Built once for a machine and shared by all kernels.  Indices are handed out one by one, to whoever
// is there: a worker that is asleep, or has lost its core to another program, is not waited for, its
// share is done by the others.  A caller that finds the team busy (another thread is inside it) does
// all indices itself.  Kernels give the same result on any number of threads, so this is only slower,
// never different.
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tilewright/abi.h>
#ifdef __linux__
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

constexpr int64_t max_threads = 1024;
constexpr int spin_turns = 1500;  // some tens of microseconds: longer than the gap between two calls

// Fields that different threads write lie on different cache lines.
struct Team {
  alignas(64) uint32_t epoch;  // raised for each body; workers wait on it
  int32_t open;                // indices of this epoch may be taken
  int64_t count, wanted;
  void (*body)(void *, int64_t, int64_t);
  void *context;
  alignas(64) int64_t next;    // next index to hand out
  alignas(64) int64_t inside;  // workers between looking at `open` and having left
  alignas(64) int32_t sleepers;
  alignas(64) int busy;  // a caller is inside
  int64_t workers;       // started threads, without the caller
  // One handle a thread count: callers that want different counts share the workers.
  tw_host_team handles[max_threads + 1];
};

Team *the_team;

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void sleep_until_epoch_leaves(Team *team, uint32_t seen) {
#ifdef __linux__
  __atomic_add_fetch(&team->sleepers, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&team->epoch, __ATOMIC_SEQ_CST) == seen)
    syscall(SYS_futex, &team->epoch, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  __atomic_sub_fetch(&team->sleepers, 1, __ATOMIC_SEQ_CST);
#else
  timespec nap = {0, 50000};
  while (__atomic_load_n(&team->epoch, __ATOMIC_SEQ_CST) == seen) nanosleep(&nap, nullptr);
#endif
}

void wake(Team *team) {
#ifdef __linux__
  if (__atomic_load_n(&team->sleepers, __ATOMIC_SEQ_CST) > 0)
    syscall(SYS_futex, &team->epoch, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
#else
  (void)team;
#endif
}

void take_indices(Team *team) {
  for (;;) {
    int64_t index = __atomic_fetch_add(&team->next, 1, __ATOMIC_ACQ_REL);
    if (index >= team->count) return;
    team->body(team->context, index, team->count);
  }
}

struct Start {
  Team *team;
  int64_t rank;
  uint32_t seen;
};

void *work(void *raw) {
  Start start = *static_cast<Start *>(raw);
  free(raw);
  Team *team = start.team;
  uint32_t seen = start.seen;
  for (;;) {
    int turns = 0;
    while (__atomic_load_n(&team->epoch, __ATOMIC_ACQUIRE) == seen) {
      if (++turns < spin_turns) pause_cpu();
      else sleep_until_epoch_leaves(team, seen);
    }
    seen = __atomic_load_n(&team->epoch, __ATOMIC_ACQUIRE);
    // Announce first, look second: the caller closes first and counts second, so that it either sees
    // this worker inside, or this worker sees the door closed.
    __atomic_add_fetch(&team->inside, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&team->open, __ATOMIC_SEQ_CST) && start.rank < team->wanted) take_indices(team);
    __atomic_sub_fetch(&team->inside, 1, __ATOMIC_SEQ_CST);
  }
}

void run(tw_host_team *base, int64_t count, void (*body)(void *, int64_t, int64_t), void *context) {
  Team *team = the_team;
  int free_team = 0;
  if (team->workers == 0 || count <= 1 ||
      !__atomic_compare_exchange_n(&team->busy, &free_team, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
    for (int64_t index = 0; index < count; ++index) body(context, index, count);
    return;
  }
  team->count = count;
  team->body = body;
  team->context = context;
  team->wanted = base->threads - 1 < team->workers ? base->threads - 1 : team->workers;
  __atomic_store_n(&team->next, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&team->open, 1, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&team->epoch, 1, __ATOMIC_SEQ_CST);
  wake(team);
  take_indices(team);
  __atomic_store_n(&team->open, 0, __ATOMIC_SEQ_CST);
  // Whoever came in is still in an index, or on the way out; the fields are theirs until then.
  for (int turns = 0; __atomic_load_n(&team->inside, __ATOMIC_SEQ_CST) > 0; ++turns) {
    if (turns < spin_turns) pause_cpu();
    else sched_yield();  // a worker lost its core: give it ours
  }
  __atomic_store_n(&team->busy, 0, __ATOMIC_RELEASE);
}

void after_fork_in_child() {
  if (!the_team) return;  // a forked child has none of the workers: it goes on alone
  the_team->workers = 0;
  the_team->busy = 0;
  the_team->open = 0;
  the_team->inside = 0;
  the_team->sleepers = 0;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int64_t tw_team_abi_version(void) { return TW_ABI_VERSION; }

// A handle for `threads` threads (the caller counts as one) on the team of this process, starting
// workers as needed; null when memory is short.  Callers serialise their calls.
__attribute__((visibility("default"))) tw_host_team *tw_team(int64_t threads) {
  if (threads < 1) threads = 1;
  if (threads > max_threads) threads = max_threads;
  if (!the_team) {
    void *room = nullptr;
    if (posix_memalign(&room, alignof(Team), sizeof(Team))) return nullptr;
    memset(room, 0, sizeof(Team));
    the_team = static_cast<Team *>(room);
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
  }
  Team *team = the_team;
  if (threads - 1 > team->workers) {
    int free_team = 0;
    while (!__atomic_compare_exchange_n(&team->busy, &free_team, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
      free_team = 0;
      sched_yield();
    }
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (int64_t rank = team->workers; rank < threads - 1; ++rank) {
      auto *start = static_cast<Start *>(malloc(sizeof(Start)));
      if (!start) break;
      *start = {team, rank, team->epoch};
      pthread_t thread;
      if (pthread_create(&thread, &detached, work, start)) {
        free(start);
        break;
      }
      ++team->workers;
    }
    pthread_attr_destroy(&detached);
    __atomic_store_n(&team->busy, 0, __ATOMIC_RELEASE);
  }
  tw_host_team *handle = &team->handles[threads];
  handle->threads = threads;
  handle->run = run;
  return handle;
}
}
