/* A stand-in for the HIP runtime, linked by name (libamdhip64) with libraries that hipcc built.
 *
 * Device memory is host memory, streams and events are nothing, and every kernel launch goes to the function
 * given to tw_fake_hip_on_launch, with the fat binary the kernel came from, its name and its arguments.  So a
 * real library runs here with all of its host code: argument checks, tails, grids, split-K, packing. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_FUNCTION = 98, LAUNCH_FAILURE = 719 };

typedef struct dim3 {
  uint32_t x, y, z;
} dim3;
typedef struct launch {
  const void *binary; /* start of the offload bundle */
  const char *kernel;
  uint32_t grid[3], block[3];
  uint64_t shared;
  void *stream;
  void **args; /* one pointer an argument */
} launch;
typedef int (*on_launch)(const launch *);

typedef struct wrapper {
  uint32_t magic, version;
  const void *binary;
  void *unused;
} wrapper;
typedef struct entry {
  const void *host;
  const char *name;
  const wrapper *from;
} entry;

static on_launch callback;
static entry *entries;
static size_t entry_count, entry_room;
static int last_error, compute_units = 304, warp_lanes = 64;
static struct {
  dim3 grid, block;
  size_t shared;
  void *stream;
} pushed;

API void tw_fake_hip_on_launch(on_launch function) { callback = function; }
API void tw_fake_hip_device(int units, int lanes) { compute_units = units, warp_lanes = lanes; }

static int answer(int code) {
  if (code) last_error = code;
  return code;
}

/* ---- what the compiler's startup code calls ---- */

API void **__hipRegisterFatBinary(const void *data) {
  const void **handle = malloc(sizeof *handle);
  if (handle) *handle = data;
  return (void **)handle;
}
API void __hipUnregisterFatBinary(void **handle) {
  size_t kept = 0;
  for (size_t i = 0; i < entry_count; ++i)
    if (entries[i].from != (const wrapper *)*handle) entries[kept++] = entries[i];
  entry_count = kept;
  free(handle);
}
API void __hipRegisterFunction(void **handle, const void *host, char *device_function, const char *name, uint32_t limit,
                               void *tid, void *bid, void *block, void *grid, int *size) {
  (void)device_function, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)size;
  if (entry_count == entry_room) {
    size_t room = entry_room ? 2 * entry_room : 64;
    entry *more = realloc(entries, room * sizeof *more);
    if (!more) {
      fprintf(stderr, "fake HIP runtime: out of memory\n");
      abort();
    }
    entries = more, entry_room = room;
  }
  entries[entry_count++] = (entry){host, name, (const wrapper *)*handle};
}
API void __hipRegisterVar(void **handle, void *var, char *host, char *device, int ext, size_t size, int constant,
                          int global) {
  (void)handle, (void)var, (void)host, (void)device, (void)ext, (void)size, (void)constant, (void)global;
}
API int __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = stream;
  return SUCCESS;
}
API int __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream) {
  *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *stream = pushed.stream;
  return SUCCESS;
}

/* ---- launches ---- */

API int hipLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared, void *stream) {
  for (size_t i = 0; i < entry_count; ++i)
    if (entries[i].host == host) {
      launch one = {entries[i].from->binary,
                    entries[i].name,
                    {grid.x, grid.y, grid.z},
                    {block.x, block.y, block.z},
                    shared,
                    stream,
                    args};
      if (!callback) return answer(LAUNCH_FAILURE);
      return answer(callback(&one) ? LAUNCH_FAILURE : SUCCESS);
    }
  return answer(INVALID_FUNCTION);
}

/* ---- memory ---- */

API int hipMalloc(void **out, size_t size) {
  size = (size + 255) / 256 * 256;
  *out = aligned_alloc(256, size ? size : 256);
  return answer(*out ? SUCCESS : OUT_OF_MEMORY);
}
API int hipMallocAsync(void **out, size_t size, void *stream) {
  (void)stream;
  return hipMalloc(out, size);
}
API int hipHostMalloc(void **out, size_t size, unsigned flags) {
  (void)flags;
  return hipMalloc(out, size);
}
API int hipFree(void *at) {
  free(at);
  return SUCCESS;
}
API int hipFreeAsync(void *at, void *stream) {
  (void)stream;
  return hipFree(at);
}
API int hipHostFree(void *at) { return hipFree(at); }
API int hipMemcpy(void *to, const void *from, size_t size, int kind) {
  (void)kind;
  memmove(to, from, size);
  return SUCCESS;
}
API int hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
  (void)stream;
  return hipMemcpy(to, from, size, kind);
}
API int hipMemset(void *at, int value, size_t size) {
  memset(at, value, size);
  return SUCCESS;
}
API int hipMemsetAsync(void *at, int value, size_t size, void *stream) {
  (void)stream;
  return hipMemset(at, value, size);
}
API int hipMemset2D(void *at, size_t pitch, int value, size_t width, size_t height) {
  for (size_t row = 0; row < height; ++row) memset((char *)at + row * pitch, value, width);
  return SUCCESS;
}
API int hipMemset2DAsync(void *at, size_t pitch, int value, size_t width, size_t height, void *stream) {
  (void)stream;
  return hipMemset2D(at, pitch, value, width, height);
}

/* ---- device, streams, events ---- */

API int hipGetDeviceCount(int *count) {
  *count = 1;
  return SUCCESS;
}
API int hipGetDevice(int *device) {
  *device = 0;
  return SUCCESS;
}
API int hipSetDevice(int device) { return answer(device == 0 ? SUCCESS : INVALID_VALUE); }
API int hipDeviceSynchronize(void) { return SUCCESS; }
API int hipStreamSynchronize(void *stream) {
  (void)stream;
  return SUCCESS;
}
API int hipStreamCreate(void **stream) {
  *stream = NULL;
  return SUCCESS;
}
API int hipStreamDestroy(void *stream) {
  (void)stream;
  return SUCCESS;
}
API int hipEventCreate(void **event) {
  *event = NULL;
  return SUCCESS;
}
API int hipEventDestroy(void *event) {
  (void)event;
  return SUCCESS;
}
API int hipEventRecord(void *event, void *stream) {
  (void)event, (void)stream;
  return SUCCESS;
}
API int hipEventSynchronize(void *event) {
  (void)event;
  return SUCCESS;
}
API int hipEventElapsedTime(float *ms, void *from, void *to) {
  (void)from, (void)to;
  *ms = 1.0f;
  return SUCCESS;
}
API int hipGetLastError(void) {
  int now = last_error;
  last_error = SUCCESS;
  return now;
}
API int hipPeekAtLastError(void) { return last_error; }
API const char *hipGetErrorString(int code) { return code ? "error of the fake HIP runtime" : "no error"; }
API const char *hipGetErrorName(int code) { return code ? "hipErrorLaunchFailure" : "hipSuccess"; }
API int hipDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 63 ? compute_units : attribute == 87 ? warp_lanes : 1; /* numbers of ROCm 6 and 7 */
  return SUCCESS;
}
API int hipOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads, size_t shared) {
  (void)host, (void)threads, (void)shared;
  *blocks = 1;
  return SUCCESS;
}
API int hipFuncSetAttribute(const void *host, int attribute, int value) {
  (void)host, (void)attribute, (void)value;
  return SUCCESS;
}
