// The host's team of threads, built once for a machine and shared by all kernels.
//
// Two pools can serve it.  Where an OpenMP runtime is loaded (PyTorch brings one) bodies run on its threads: they
// spin for milliseconds behind every parallel region, on the very cores that threads of our own would want.  Else
// they run on workers of our own, that spin briefly, then sleep.
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
#ifdef __linux__
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

// The entry points of a loaded runtime that GNU's and LLVM's (and Intel's) share.
struct OpenMP {
  void (*parallel)(void (*body)(void *), void *context, unsigned threads, unsigned flags);  // 0 threads: its default
  int (*most_threads)(void);                                                                // that default
  int (*in_parallel)(void);
  char library[PATH_MAX];
};

OpenMP openmp_found;
OpenMP *openmp;  // null until a runtime was found, and in a forked child: its threads stayed behind
bool forked;
pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

#ifdef __linux__
// Names of libraries to ask, best first: what PyTorch is linked with counts where several runtimes are loaded.
constexpr const char *known_names[] = {"libtorch_cpu.", "libgomp.", "libgomp-", "libomp.", "libomp-", "libiomp5."};

struct Wanted {
  const char *name;  // how the file's name begins
  char path[PATH_MAX];
};

int match(dl_phdr_info *one, size_t, void *raw) {
  auto *wanted = static_cast<Wanted *>(raw);
  const char *path = one->dlpi_name ? one->dlpi_name : "", *slash = strrchr(path, '/'),
             *name = slash ? slash + 1 : path;
  if (strncmp(name, wanted->name, strlen(wanted->name)) || strlen(path) >= sizeof wanted->path) return 0;
  strcpy(wanted->path, path);
  return 1;
}

int count_loaded(dl_phdr_info *one, size_t, void *adds) {
  *static_cast<unsigned long long *>(adds) = one->dlpi_adds;
  return 1;
}

template <class F> bool take(void *library, const char *name, F &into) {
  into = reinterpret_cast<F>(dlsym(library, name));
  return into;
}

// Whether this process came of a fork without an exec.  Its OpenMP runtime may believe in threads that the fork left
// behind, and would wait for them for ever.
bool comes_of_a_fork() {
  char text[1024] = {};
  int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  const char *at = size > 0 ? strrchr(text, ')') : nullptr;  // behind the name: state, five numbers, the flags
  for (int spaces = 0; at && spaces < 7; ++spaces) at = strchr(at + 1, ' ');
  constexpr unsigned long forked_without_exec = 0x40;  // PF_FORKNOEXEC
  return at && strtoul(at + 1, nullptr, 10) & forked_without_exec;
}

bool take_openmp(void *library) {
  OpenMP &found = openmp_found;
  if (!take(library, "GOMP_parallel", found.parallel) || !take(library, "omp_get_max_threads", found.most_threads) ||
      !take(library, "omp_in_parallel", found.in_parallel))
    return false;
  Dl_info where;
  const char *path = dladdr(reinterpret_cast<void *>(found.parallel), &where) && where.dli_fname ? where.dli_fname : "";
  strncpy(found.library, path, sizeof found.library - 1);
  __atomic_store_n(&openmp, &found, __ATOMIC_RELEASE);
  return true;
}

// What is visible to all (preloaded, or loaded as global) serves every library; else we look into those we know.
// Libraries are opened outside of the walk over them: the two take the loader's locks in different orders.
void find_openmp() {
  if (take_openmp(RTLD_DEFAULT)) return;
  for (const char *name : known_names) {
    Wanted wanted = {name, ""};
    void *library = dl_iterate_phdr(match, &wanted) ? dlopen(wanted.path, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
    if (library && take_openmp(library)) return;  // it stays open, so that it never goes away
    if (library) dlclose(library);
  }
}

// Look for a runtime, if libraries were loaded since the last look.
void look_for_openmp() {
  static unsigned long long seen;
  if (__atomic_load_n(&openmp, __ATOMIC_ACQUIRE) || forked || pthread_mutex_trylock(&looking)) return;
  unsigned long long loaded = 0;
  dl_iterate_phdr(count_loaded, &loaded);
  if (loaded != seen) {
    seen = loaded;
    if (!comes_of_a_fork()) find_openmp();
  }
  pthread_mutex_unlock(&looking);
}
#else
void look_for_openmp() {}  // on other systems OpenMP has no entry points that all runtimes share
#endif

// One body on the threads of OpenMP.  It lives on the caller's stack: a region ends when all of its threads have left.
struct Region {
  int64_t count, wanted;
  void (*body)(void *, int64_t, int64_t);
  void *context;
  FloatMode mode;
  alignas(64) int64_t next;
  alignas(64) int64_t entered;
};

void work_in_region(void *raw) {
  auto *region = static_cast<Region *>(raw);
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

// Fields that different threads write lie on different cache lines.
struct Team {
  alignas(64) uint32_t epoch;  // raised for each body; workers wait on it
  int32_t open;                // indices of this epoch may be taken
  int64_t count, wanted;
  void (*body)(void *, int64_t, int64_t);
  void *context;
  FloatMode mode;
  alignas(64) int64_t next;    // next index to hand out
  alignas(64) int64_t inside;  // workers between looking at `open` and having left
  alignas(64) int32_t sleepers;
  alignas(64) int busy;  // a caller is inside
  int64_t workers;       // started threads, without the caller
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
    if (__atomic_load_n(&team->open, __ATOMIC_SEQ_CST) && start.rank < team->wanted) {
      team->mode.set();
      take_indices(team);
    }
    __atomic_sub_fetch(&team->inside, 1, __ATOMIC_SEQ_CST);
  }
}

// What a team of a number of threads may use; each combination has one handle, whoever asks for it.
enum Pool {
  own_pool = 0,     // our workers
  shared_pool = 1,  // OpenMP's threads where a runtime is loaded, else ours
  follow_pool = 2,  // the same, and no more threads than OpenMP would take (OMP_NUM_THREADS, torch.set_num_threads)
  pools = 3,
};
struct Handle {
  tw_host_team team;
  int64_t pool;
};
Handle handles[pools][max_threads + 1];

// So many workers at least, or as many as the system gives.
void start_workers(Team *team, int64_t wanted) {
  if (wanted <= team->workers) return;
  int free_team = 0;
  while (!__atomic_compare_exchange_n(&team->busy, &free_team, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
    free_team = 0;
    sched_yield();
  }
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (int64_t rank = team->workers; rank < wanted; ++rank) {
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

void run_alone(int64_t count, void (*body)(void *, int64_t, int64_t), void *context) {
  for (int64_t index = 0; index < count; ++index) body(context, index, count);
}

void run_on_workers(Team *team, int64_t threads, int64_t count, void (*body)(void *, int64_t, int64_t), void *context) {
  team->count = count;
  team->body = body;
  team->context = context;
  team->wanted = threads - 1 < team->workers ? threads - 1 : team->workers;
  team->mode = FloatMode();
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
}

// A region always has as many threads as OpenMP takes by itself, even where fewer are to work: a runtime ends the
// threads that a smaller region has no use for, and starts them again for the next of PyTorch's.
void run_on_openmp(const OpenMP &pool, const Handle &handle, int64_t count, void (*body)(void *, int64_t, int64_t),
                   void *context) {
  const int64_t most = pool.most_threads(), asked = handle.team.threads;
  const int64_t wanted = handle.pool == follow_pool && most < asked ? most : asked;
  if (wanted <= 1 || pool.in_parallel()) return run_alone(count, body, context);
  Region region = {count, wanted, body, context, FloatMode(), 0, 0};
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
  int free_team = 0;
  if (count <= 1 || (!pool && team->workers == 0) ||
      !__atomic_compare_exchange_n(&team->busy, &free_team, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return run_alone(count, body, context);
  if (pool) run_on_openmp(*pool, *handle, count, body, context);
  else run_on_workers(team, base->threads, count, body, context);
  __atomic_store_n(&team->busy, 0, __ATOMIC_RELEASE);
}

// A forked child has none of the threads, ours or OpenMP's: it goes on alone.
void after_fork_in_child() {
  forked = true;
  openmp = nullptr;
  pthread_mutex_init(&looking, nullptr);
  if (!the_team) return;
  the_team->workers = 0;
  the_team->busy = 0;
  the_team->open = 0;
  the_team->inside = 0;
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
  if (pool == own_pool || !tw_team_openmp()) start_workers(the_team, threads - 1);
  Handle *handle = &handles[pool][threads];
  *handle = {{threads, run}, pool};
  return &handle->team;
}
}
