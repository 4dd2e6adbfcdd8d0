/* libtilewright: kernels at hand, and the choice among them.  Plain C; <tilewright/tilewright.hpp> is the C++ client.
 *
 * It knows no op: a problem is given as its signature (canonical JSON: names sorted, no blanks) and as numbers by name,
 * which the selection library of its kernels checks.  Every struct begins with its size as the caller knows it: fields
 * are only added at the end, and a library fills in or reads what both know.  A function that can fail answers 0, or
 * not 0 and the reason by tw_last_error(), which is the calling thread's own.  Any number of threads may ask a registry;
 * nobody may add to it or free it meanwhile. */
#ifndef TILEWRIGHT_RUNTIME_H
#define TILEWRIGHT_RUNTIME_H

#include <tilewright/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_RUNTIME_MAJOR 1 /* another one is refused */
#define TW_RUNTIME_MINOR 5 /* a client takes its own and later ones */
#define TW_RUNTIME_API __attribute__((visibility("default")))

TW_RUNTIME_API int64_t tw_runtime_version(void); /* major << 16 | minor */

typedef struct tw_error {
  int64_t size;
  const char *owner; /* request, machine or tilewright */
  const char *rule, *value, *message, *remedy;
} tw_error;
/* Of the last call of this thread that failed. */
TW_RUNTIME_API const tw_error *tw_last_error(void);

typedef struct tw_registry tw_registry;
/* `target`: an arch such as x86_64_v3; empty: that of the first file added. */
TW_RUNTIME_API int tw_registry_new(const char *target, tw_registry **registry);
TW_RUNTIME_API void tw_registry_free(tw_registry *registry);
/* A library of kernels (.so), a registry (.json), or a folder with a registry.json or with libraries. */
TW_RUNTIME_API int tw_registry_add(tw_registry *registry, const char *path);
/* What Python's Registry.to_json() wrote; files it names are relative to `folder`. */
TW_RUNTIME_API int tw_registry_add_json(tw_registry *registry, const char *text, int64_t bytes, const char *folder);
/* The same JSON again, the calling thread's own until its next call of this function; file names are absolute. */
TW_RUNTIME_API int tw_registry_json(tw_registry *registry, const char **text);
TW_RUNTIME_API const char *tw_registry_target(const tw_registry *registry);

typedef struct tw_entry {
  int64_t size;
  const char *digest, *name, *op, *arch;
  const char *signature, *schedule, *spec; /* canonical JSON */
  const char *library;                     /* a file; empty where it is not built */
  int64_t fallback;                        /* not 0: it serves what no other kernel of its signature does */
  int64_t estimated;                       /* not 0: the selection library knows it */
  const int64_t *grains;                   /* since 1.3: what its copies are made by; null: it takes none */
  int64_t grain_count;
} tw_entry;
TW_RUNTIME_API int64_t tw_registry_count(const tw_registry *registry);
TW_RUNTIME_API int tw_registry_entry(const tw_registry *registry, int64_t index, tw_entry *entry);
/* The index of a kernel by its digest, or by the first digits of it where no other begins so; -1 where there is none. */
TW_RUNTIME_API int64_t tw_registry_find(const tw_registry *registry, const char *digest);
/* The kernel of an entry, its library loaded now if need be; valid as long as the registry. */
TW_RUNTIME_API int tw_registry_kernel(tw_registry *registry, int64_t index, const tw_kernel **kernel);

typedef struct tw_problem {
  int64_t size;
  const char *op, *signature, *text; /* text: the problem as people read it, for errors */
  const char *const *names;
  const int64_t *values;
  int64_t count;
  const int64_t *measured; /* since 1.1: its measured form, which pins and measurements know it by; null: the values */
  double bytes, flops;     /* since 1.2: of the measured form; learned models look at them */
  const char *family;      /* since 1.2: which problems share what lock files pin; null: none */
} tw_problem;

typedef struct tw_select_options {
  int64_t size;
  int64_t threads;        /* 0: tw_threads() */
  int64_t l2_bytes;       /* 0: of this machine */
  int64_t strict;         /* not 0: a fallback kernel is refused */
  const uint8_t *allowed; /* a byte an entry of the registry: 0 leaves it out; null: all */
} tw_select_options;

typedef struct tw_choice {
  int64_t size;
  int64_t kernel;    /* its index in the registry */
  int64_t served;    /* kernels that serve the problem */
  double seconds;    /* estimated, predicted or measured */
  int64_t tier;      /* enum tw_tier */
  const char *model; /* since 1.2: that chose; null where none did; valid as long as the registry */
} tw_choice;
/* By their indices among Python's seven. */
enum tw_tier {
  TW_TIER_LOCKED = 0,
  TW_TIER_MEASURED = 1,
  TW_TIER_MODEL = 2,
  TW_TIER_HEURISTIC = 3,
  TW_TIER_FALLBACK = 6
};

TW_RUNTIME_API int tw_select(const tw_registry *registry, const tw_problem *problem, const tw_select_options *options,
                             tw_choice *choice);

/* What is said of each kernel of a problem's signature. */
typedef struct tw_candidate {
  int64_t size;
  int64_t kernel;
  double seconds;   /* estimated; infinite where it does not serve the problem */
  const char *rule; /* that the problem breaks; null where the kernel serves it */
  char why[256], remedy[256];
} tw_candidate;
/* Calls `visit` for each, in the registry's order. */
TW_RUNTIME_API int tw_candidates(const tw_registry *registry, const tw_problem *problem,
                                 const tw_select_options *options, void (*visit)(void *context, const tw_candidate *),
                                 void *context);

/* A team of threads for kernels of CPUs; the calling thread is one of them.  One run at a time: others wait. */
TW_RUNTIME_API int tw_team_new(int64_t threads, tw_host_team **team);
TW_RUNTIME_API void tw_team_free(tw_host_team *team);
/* Threads that a team is made of where nobody says: OMP_NUM_THREADS, but not more than there are cores for. */
TW_RUNTIME_API int64_t tw_threads(void);
TW_RUNTIME_API int64_t tw_l2_bytes(void);

/* Since 1.1. */

/* Choices that the registry brings along: pins of a lock file, measurements, and models a signature.  Those of other
 * machines do not count. */
TW_RUNTIME_API int64_t tw_registry_choices(const tw_registry *registry);

/* Another number whenever something was added that choices depend on. */
TW_RUNTIME_API int64_t tw_registry_generation(const tw_registry *registry);

/* A GPU, through its driver, which is loaded now: `backend` is cuda or hip, `index` a device, or -1 for that of the
 * thread's current context (of none: device 0).  Memory and streams are of its primary context, the one that CUDA's
 * runtime and PyTorch use; each call makes it current for the calling thread. */
typedef struct tw_device tw_device;
typedef struct tw_device_facts {
  int64_t size;
  const char *backend, *arch, *name, *driver; /* arch: whose kernels suit it best; driver: the library's path */
  int64_t index, compute_units, l2_bytes, memory_bytes;
} tw_device_facts;
TW_RUNTIME_API int tw_device_count(const char *backend, int64_t *count);
TW_RUNTIME_API int tw_device_open(const char *backend, int64_t index, tw_device **device);
TW_RUNTIME_API void tw_device_free(tw_device *device);
TW_RUNTIME_API int tw_device_describe(const tw_device *device, tw_device_facts *facts);
/* Not 0 where kernels of an arch run on it. */
TW_RUNTIME_API int64_t tw_device_runs(const tw_device *device, const char *arch);
TW_RUNTIME_API int tw_device_allocate(tw_device *device, int64_t bytes, void **at);
TW_RUNTIME_API int tw_device_release(tw_device *device, void *at);
/* Copies and fills are queued on the stream (null: the default one); the memory may be the host's or the device's. */
TW_RUNTIME_API int tw_device_copy(tw_device *device, void *to, const void *from, int64_t bytes, void *stream);
TW_RUNTIME_API int tw_device_clear(tw_device *device, void *at, int64_t bytes, void *stream);
TW_RUNTIME_API int tw_device_synchronize(tw_device *device, void *stream);
/* Scratch memory that the device keeps for a stream and makes larger when need be: `bytes`, the first `clear_bytes` of
 * which are zero unless a kernel broke its promise to leave them so. */
TW_RUNTIME_API int tw_device_workspace(tw_device *device, void *stream, int64_t bytes, int64_t clear_bytes, void **at);

/* Reads every byte of a bundle: a file that was changed is an error that names it. */
TW_RUNTIME_API int tw_bundle_check(const char *path, int64_t *files);

/* Since 1.4. */

/* Rows of so many bytes, which begin `to_pitch` and `from_pitch` bytes apart, within the device's memory; queued. */
TW_RUNTIME_API int tw_device_copy_rows(tw_device *device, void *to, int64_t to_pitch, const void *from,
                                       int64_t from_pitch, int64_t bytes, int64_t rows, void *stream);

/* Since 1.5. */

/* Calls `visit` with the index of each kernel that a lock file pins for a problem: its own, or where it has none those of
 * its family.  Whether they serve it is not looked at. */
TW_RUNTIME_API int tw_pinned(const tw_registry *registry, const tw_problem *problem,
                             void (*visit)(void *context, int64_t kernel), void *context);

#ifdef __cplusplus
}
#endif
#endif
