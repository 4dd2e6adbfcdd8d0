// Finding the OpenMP runtime of this process, if it has one.
#pragma once
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>
#endif

namespace {

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
// Names of libraries to try, best first: what PyTorch is linked with counts where several runtimes are loaded.
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
// Libraries are opened outside of the traversal of them: the two take the loader's locks in different orders.
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

}  // namespace
