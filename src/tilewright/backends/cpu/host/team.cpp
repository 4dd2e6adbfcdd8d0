// The host's team of threads, built once for a machine and shared by all kernels.
//
// Two pools can serve it.  Where an OpenMP runtime is loaded (PyTorch brings one) bodies run on its threads: they
// spin for milliseconds behind every parallel region, on the very cores that threads of our own would want.  Else, and
// where OpenMP's threads would come late, they run on workers of our own, that spin briefly, then sleep.
//
// Either way indices are handed out one by one, to whoever is there.  A worker of ours that is asleep, or has lost
// its core to another program, is not waited for: its share is done by the others.  A caller that finds the team busy
// (another thread is inside it) does all indices itself.  Kernels give the same result on any number of threads, so
// this is only slower, never different.
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tilewright/abi.h>
#include <tilewright/cpu/host/openmp.h>
#include <tilewright/cpu/host/scheduling.h>

namespace {

constexpr int64_t max_threads = 1024;
constexpr int spin_turns = 1500;  // some tens of microseconds: longer than the gap between two calls

// The caller's rounding and treatment of denormals, for whoever works for it: PyTorch sets them for one thread, and
// results must not depend on which thread computes what.
struct FloatMode {
#if defined(__x86_64__) || defined(__i386__)
  static constexpr unsigned flags = 0x3f;  // what happened so far: each thread's own
  unsigned word = __builtin_ia32_stmxcsr() & ~flags;
  void set() const {
    unsigned now = __builtin_ia32_stmxcsr();
    if ((now & ~flags) != word) __builtin_ia32_ldmxcsr(word | (now & flags));
  }
#elif defined(__aarch64__)
  uint64_t word = read();
  static uint64_t read() {
    uint64_t now;
    asm volatile("mrs %0, fpcr" : "=r"(now));
    return now;
  }
  void set() const {
    if (read() != word) asm volatile("msr fpcr, %0" ::"r"(word));
  }
#else
  void set() const {}
#endif
};

// -- the threads of OpenMP --------------------------------------------------------------------------------------------

// One body on the threads of OpenMP.  It lives on the caller's stack: a region ends when all of its threads have left.
struct Region {
  int64_t count, wanted;
  void (*body)(void *, int64_t, int64_t);
  void *context;
  FloatMode mode;
  alignas(64) int64_t next;
  alignas(64) int64_t entered;
  int32_t caller;  // the id of its thread
};

// Threads that ever helped, so far as there is room.
int32_t helpers[max_threads];
int32_t helpers_known;

bool is_helper(int32_t thread) {
  const int32_t count = __atomic_load_n(&helpers_known, __ATOMIC_ACQUIRE);
  for (int32_t i = 0; i < count && i < max_threads; ++i)
    if (__atomic_load_n(&helpers[i], __ATOMIC_RELAXED) == thread) return true;
  return false;
}
void note_helper(int32_t self) {
  static __thread bool noted;
  if (noted) return;
  noted = true;
  const int32_t place = __atomic_fetch_add(&helpers_known, 1, __ATOMIC_ACQ_REL);
  if (place < max_threads) __atomic_store_n(&helpers[place], self, __ATOMIC_RELAXED);
}

void work_in_region(void *raw) {
  auto *region = static_cast<Region *>(raw);
  const int32_t self = thread_id();
  if (self != region->caller) note_helper(self);
  if (__atomic_fetch_add(&region->entered, 1, __ATOMIC_RELAXED) >= region->wanted) return;
  const FloatMode before;
  region->mode.set();
  for (;;) {
    int64_t index = __atomic_fetch_add(&region->next, 1, __ATOMIC_RELAXED);
    if (index >= region->count) break;
    region->body(region->context, index, region->count);
  }
  before.set();
}

// -- our own threads --------------------------------------------------------------------------------------------------

// Threads of other libraries may spin on cores that ours need: OpenBLAS's do for tens of milliseconds behind a product
// of NumPy's, without ever yielding.  The system then gives our workers their turns late and takes them away early.  So
// a worker is kept off its caller's core, where it would wait for the very thread that waits for it; it requests short
// turns, which start soon; and if it lost its core within an index, the caller, when all else is done, lends it its own.

struct Worker;

// Fields that different threads write lie on different cache lines.
struct Team {
  alignas(64) uint32_t epoch;  // raised for each body; workers wait on it
  int32_t open;                // indices of this epoch may be taken
  int32_t polite;              // workers sleep at once when they have left
  int64_t count, wanted;
  void (*body)(void *, int64_t, int64_t);
  void *context;
  FloatMode mode;
  alignas(64) int64_t next;     // next index to hand out
  alignas(64) uint32_t inside;  // workers between looking at `open` and having left
  int32_t caller_sleeps;        // until one of them leaves
  alignas(64) int32_t sleepers;
  alignas(64) int busy;  // a caller is inside
  int64_t workers;       // started threads, without the caller; read by callers that are not inside too
  Worker *newest;        // of them
};

Team *the_team;

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A thread of ours.  It lives as long as the process.
struct Worker {
  Team *team;
  int64_t rank;
  uint32_t seen;
  Worker *older;
  alignas(64) int32_t inside;
#ifdef __linux__
  pid_t thread;  // 0 until it runs
  int avoided;   // the core we keep it off; -1: none
  bool placed;   // whether we set `left`
  Cores all, left;

  // What is not as we left it was set by someone else, and is what counts from then on.
  bool place(int core, bool others) {
    const pid_t here = __atomic_load_n(&thread, __ATOMIC_ACQUIRE);
    Cores now;
    if (!here || !now.read(here)) return false;
    if (!placed || !now.same(left)) all = now;
    Cores part = all.only(core, others);
    placed = part.any() && part.set(here);
    left = part;
    avoided = placed && others ? core : -1;
    return placed;
  }
#endif
};

void keep_off_my_core(Team *team) {
#ifdef __linux__
  constexpr int most_at_once = 8;  // two system calls each, and only where the caller has moved
  const int core = sched_getcpu();
  int moved = 0;
  for (Worker *at = team->newest; core >= 0 && at && moved < most_at_once; at = at->older)
    if (at->avoided != core && at->rank < team->wanted) moved += at->place(core, true);
#else
  (void)team;
#endif
}

// One worker that is inside goes on where the caller runs, who sleeps meanwhile.
void lend_my_core(Team *team) {
#ifdef __linux__
  const uint32_t inside = __atomic_load_n(&team->inside, __ATOMIC_SEQ_CST);
  const int core = sched_getcpu();
  for (Worker *at = team->newest; core >= 0 && inside && at; at = at->older) {
    if (!__atomic_load_n(&at->inside, __ATOMIC_SEQ_CST) || !at->place(core, false)) continue;
    __atomic_store_n(&team->caller_sleeps, 1, __ATOMIC_SEQ_CST);
    futex_wait(&team->inside, inside);
    __atomic_store_n(&team->caller_sleeps, 0, __ATOMIC_SEQ_CST);
    return;
  }
#endif
  sched_yield();
  (void)team;
}

void sleep_until_epoch_leaves(Team *team, uint32_t seen) {
#ifdef __linux__
  __atomic_add_fetch(&team->sleepers, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&team->epoch, __ATOMIC_SEQ_CST) == seen) futex_wait(&team->epoch, seen);
  __atomic_sub_fetch(&team->sleepers, 1, __ATOMIC_SEQ_CST);
#else
  timespec nap = {0, 50000};
  while (__atomic_load_n(&team->epoch, __ATOMIC_SEQ_CST) == seen) nanosleep(&nap, nullptr);
#endif
}

void wake(Team *team) {
#ifdef __linux__
  if (__atomic_load_n(&team->sleepers, __ATOMIC_SEQ_CST) > 0) futex_wake(&team->epoch);
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

// Announce first, look second: the caller closes first and counts second, so that it either sees
// this worker inside, or this worker sees the door closed.
void enter(Team *team, Worker *self) {
  __atomic_add_fetch(&team->inside, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&team->open, __ATOMIC_SEQ_CST) && self->rank < team->wanted) {
    __atomic_store_n(&self->inside, 1, __ATOMIC_RELAXED);
    team->mode.set();
    take_indices(team);
    __atomic_store_n(&self->inside, 0, __ATOMIC_RELAXED);
  }
  __atomic_sub_fetch(&team->inside, 1, __ATOMIC_SEQ_CST);
#ifdef __linux__
  if (__atomic_load_n(&team->caller_sleeps, __ATOMIC_SEQ_CST)) futex_wake(&team->inside);
#endif
}

void *work(void *raw) {
  auto *self = static_cast<Worker *>(raw);
  Team *team = self->team;
  uint32_t seen = self->seen;
#ifdef __linux__
  take_short_turns();
  __atomic_store_n(&self->thread, thread_id(), __ATOMIC_RELEASE);
#endif
  for (;;) {
    int turns = __atomic_load_n(&team->polite, __ATOMIC_RELAXED) ? spin_turns : 0;
    while (__atomic_load_n(&team->epoch, __ATOMIC_ACQUIRE) == seen) {
      if (++turns < spin_turns) pause_cpu();
      else sleep_until_epoch_leaves(team, seen);
    }
    seen = __atomic_load_n(&team->epoch, __ATOMIC_ACQUIRE);
    enter(team, self);
  }
}

int64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// Whoever came in is still in an index, or on the way out; the fields are theirs until then.  An index that takes much
// longer than others took is one whose worker has lost its core.
void await_workers(Team *team, int64_t began) {
  for (int turns = 0; turns < spin_turns; ++turns) {
    if (__atomic_load_n(&team->inside, __ATOMIC_SEQ_CST) == 0) return;
    pause_cpu();
  }
  constexpr int64_t shortest = 100000;  // a core that is lost is lost for milliseconds
  const int64_t now = nanoseconds(), part = (now - began) / 8, patience = part < shortest ? shortest : part;
  for (int64_t until = now + patience; __atomic_load_n(&team->inside, __ATOMIC_SEQ_CST) > 0;) {
    if (nanoseconds() < until) {
      pause_cpu();
      continue;
    }
    lend_my_core(team);
    until = nanoseconds() + patience;
  }
}

// What a team of a number of threads may use; each combination has one handle.
enum Pool {
  own_pool = 0,     // our workers
  shared_pool = 1,  // OpenMP's threads where a runtime is loaded, but for calls that would wait for them; else ours
  follow_pool = 2,  // the same, and no more threads than OpenMP would take (OMP_NUM_THREADS, torch.set_num_threads)
  openmp_pool = 3,  // as `shared_pool`, but OpenMP's even if that means to wait
  openmp_follow_pool = 4,
  pools = 5,
};
struct Handle {
  tw_host_team team;
  int64_t pool;
};
Handle handles[pools][max_threads + 1];

// So many workers at least, or as many as the system gives.  The team is the caller's alone.
void start_workers(Team *team, int64_t wanted) {
  if (wanted <= team->workers) return;
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (int64_t rank = team->workers; rank < wanted; ++rank) {
    void *room = nullptr;
    if (posix_memalign(&room, alignof(Worker), sizeof(Worker))) break;
    memset(room, 0, sizeof(Worker));
    auto *worker = static_cast<Worker *>(room);
    worker->team = team;
    worker->rank = rank;
    worker->seen = team->epoch;
    worker->older = team->newest;
#ifdef __linux__
    worker->avoided = -1;
#endif
    pthread_t thread;
    if (pthread_create(&thread, &detached, work, worker)) {
      free(worker);
      break;
    }
    team->newest = worker;
    __atomic_store_n(&team->workers, rank + 1, __ATOMIC_RELAXED);
  }
  pthread_attr_destroy(&detached);
}

bool enter_team(Team *team) {
  int free_team = 0;
  return __atomic_compare_exchange_n(&team->busy, &free_team, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}
void leave_team(Team *team) { __atomic_store_n(&team->busy, 0, __ATOMIC_RELEASE); }

void run_alone(int64_t count, void (*body)(void *, int64_t, int64_t), void *context) {
  for (int64_t index = 0; index < count; ++index) body(context, index, count);
}

void run_on_workers(Team *team, bool polite, int64_t threads, int64_t count, void (*body)(void *, int64_t, int64_t),
                    void *context) {
  const int64_t began = nanoseconds();
  team->count = count;
  team->body = body;
  team->context = context;
  team->wanted = threads - 1 < team->workers ? threads - 1 : team->workers;
  team->mode = FloatMode();
  __atomic_store_n(&team->polite, int32_t(polite), __ATOMIC_RELAXED);
  keep_off_my_core(team);
  __atomic_store_n(&team->next, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&team->open, 1, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&team->epoch, 1, __ATOMIC_SEQ_CST);
  wake(team);
  take_indices(team);
  __atomic_store_n(&team->open, 0, __ATOMIC_SEQ_CST);
  await_workers(team, began);
}

// A region always has as many threads as OpenMP takes by itself, even where fewer are to work: a runtime ends the
// threads that a smaller region has no use for, and starts them again for the next of PyTorch's.
//
// A region ends when all of its threads have come and gone, which takes milliseconds where others spin on their cores,
// as behind a product of NumPy's.  Workers of ours are not waited for.  They do not spin then: OpenMP's come next.
bool openmp_would_wait(Team *team) {
  constexpr int64_t for_now = 5000000;  // nanoseconds: the next calls are soon
  static __thread int64_t until;
  if (__atomic_load_n(&helpers_known, __ATOMIC_ACQUIRE) == 0) return false;
  const int64_t now = nanoseconds();
  const bool contested = others_ran(now, for_now, [&](int32_t thread) {
#ifdef __linux__
    for (Worker *at = team->newest; at; at = at->older)
      if (__atomic_load_n(&at->thread, __ATOMIC_ACQUIRE) == thread) return true;
#endif
    return is_helper(thread);
  });
  if (contested) until = now + for_now;
  return now < until;
}

void run_on_openmp(const OpenMP &pool, Team *team, const Handle &handle, int64_t count,
                   void (*body)(void *, int64_t, int64_t), void *context) {
  const int64_t most = pool.most_threads(), requested = handle.team.threads;
  const bool follows = handle.pool == follow_pool || handle.pool == openmp_follow_pool;
  const int64_t wanted = follows && most < requested ? most : requested;
  if (wanted <= 1 || pool.in_parallel()) return run_alone(count, body, context);
  if (handle.pool < openmp_pool && openmp_would_wait(team)) {
    start_workers(team, wanted - 1);
    if (team->workers) return run_on_workers(team, true, wanted, count, body, context);
  }
  Region region = {count, wanted, body, context, FloatMode(), 0, 0, thread_id()};
  pool.parallel(work_in_region, &region, wanted > most ? unsigned(wanted) : 0, 0);
}

void run(tw_host_team *base, int64_t count, void (*body)(void *, int64_t, int64_t), void *context) {
  constexpr uint32_t runs_a_look = 64;  // a look costs more than a small kernel
  static uint32_t runs;
  Team *team = the_team;
  const auto *handle = reinterpret_cast<const Handle *>(base);
  const bool shares = handle->pool != own_pool;
  if (shares && __atomic_add_fetch(&runs, 1, __ATOMIC_RELAXED) % runs_a_look == 0) look_for_openmp();
  const OpenMP *pool = shares ? __atomic_load_n(&openmp, __ATOMIC_ACQUIRE) : nullptr;
  if (count <= 1 || (!pool && !__atomic_load_n(&team->workers, __ATOMIC_RELAXED)) || !enter_team(team))
    return run_alone(count, body, context);
  if (pool) run_on_openmp(*pool, team, *handle, count, body, context);
  else run_on_workers(team, false, base->threads, count, body, context);
  leave_team(team);
}

// A forked child has none of the threads, ours or OpenMP's: it goes on alone.
void after_fork_in_child() {
  forked = true;
  openmp = nullptr;
  pthread_mutex_init(&looking, nullptr);
  if (!the_team) return;
  the_team->workers = 0;
  the_team->newest = nullptr;
  the_team->busy = 0;
  the_team->open = 0;
  the_team->inside = 0;
  the_team->caller_sleeps = 0;
  the_team->sleepers = 0;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int64_t tw_team_abi_version(void) { return TW_ABI_VERSION; }

// The OpenMP runtime whose threads are shared: the path of its library, or null while there is none.
__attribute__((visibility("default"))) const char *tw_team_openmp(void) {
  look_for_openmp();
  const OpenMP *pool = __atomic_load_n(&openmp, __ATOMIC_ACQUIRE);
  return pool ? pool->library : nullptr;
}

// A handle for `threads` threads (the caller counts as one) on a pool of this process, starting workers as needed;
// null when memory is short.  Callers serialise their calls.
__attribute__((visibility("default"))) tw_host_team *tw_team(int64_t threads, int64_t pool) {
  if (threads < 1) threads = 1;
  if (threads > max_threads) threads = max_threads;
  if (pool < 0 || pool >= pools) pool = own_pool;
  if (!the_team) {
    void *room = nullptr;
    if (posix_memalign(&room, alignof(Team), sizeof(Team))) return nullptr;
    memset(room, 0, sizeof(Team));
    the_team = static_cast<Team *>(room);
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
  }
  if ((pool == own_pool || !tw_team_openmp()) && threads - 1 > __atomic_load_n(&the_team->workers, __ATOMIC_RELAXED)) {
    while (!enter_team(the_team)) sched_yield();
    start_workers(the_team, threads - 1);
    leave_team(the_team);
  }
  Handle *handle = &handles[pool][threads];
  *handle = {{threads, run}, pool};
  return &handle->team;
}
}
