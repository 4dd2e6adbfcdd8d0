// A HIP runtime whose device is the host's memory: what the tests run against where there is no AMD GPU.
// It counts what is alive, fails any call it is told to fail, and says it has the devices it is told to have.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHOWN extern "C" __attribute__((visibility("default")))

namespace {

// No library of C++ is linked into kernels, so the tables are plain arrays.  Tests call from one thread.
const int MOST = 4096;

struct Fault {
  char name[64];
  int error;
  int skip;    // calls of this name that still succeed
  bool stays;  // every later call fails with it
};
struct Block {
  void *address;
  size_t bytes;
  int device;
  bool old;
};
struct Count {
  char name[64];
  int calls;
};
struct Mark {
  double at;
};

Fault fault;  // one at a time
Block memory[MOST];
void *streams[MOST], *events[MOST], *old_streams[MOST], *old_events[MOST];
Count counts[64];
char arch_names[256] = "gfx942:sramecc+:xnack-";
char model[64] = "Fake Instinct";
int units = 304, runtime_version = 70012345;
int device_count = 1, sticky = 0, last_error = 0, current_device = 0;
size_t capacity = size_t(1) << 30, used = 0;
void *last_stream = nullptr, *captured = nullptr;
bool capturing = false;

double now() {
  timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return double(at.tv_sec) + 1e-9 * double(at.tv_nsec);
}

int fail(int error) {
  if (error) last_error = error;
  return error;
}

int *calls_of(const char *name) {
  int at = 0;
  while (counts[at].name[0] && strcmp(counts[at].name, name)) ++at;
  if (!counts[at].name[0]) strcpy(counts[at].name, name);
  return &counts[at].calls;
}

// The answer this call was told to give, 0 for none.
int predicted(const char *name) {
  ++*calls_of(name);
  if (sticky) return fail(sticky);
  if (strcmp(fault.name, name) || fault.skip-- > 0) return 0;
  fault.name[0] = 0;
  if (fault.stays) sticky = fault.error;
  return fail(fault.error);
}

// The arch of a device: names are separated by commas, the last stands for all that follow.
void arch_of(int device, char *out) {
  const char *from = arch_names;
  for (const char *comma; device-- > 0 && (comma = strchr(from, ',')); from = comma + 1) {}
  size_t length = strcspn(from, ",");
  memcpy(out, from, length);
  out[length] = 0;
}

int put(void **table, void *value) {
  for (int at = 0; at < MOST; ++at)
    if (!table[at]) {
      table[at] = value;
      return 0;
    }
  return 2;
}
bool drop(void **table, void *value) {
  for (int at = 0; at < MOST; ++at)
    if (value && table[at] == value) {
      table[at] = nullptr;
      return true;
    }
  return false;
}
int alive(void **table) {
  int count = 0;
  for (int at = 0; at < MOST; ++at) count += table[at] != nullptr;
  return count;
}
// Python may give back what an earlier test made long after that test, whenever garbage is collected.  It still can:
// those addresses are in use until then, so that no test is handed one of them, and no count or fault sees it.
bool gave_back_old(void *address) {
  for (Block &one : memory)
    if (address && one.address == address && one.old) {
      free(address);
      one = {};
      return true;
    }
  return false;
}
Block *block_of(void *address) {
  for (int at = 0; at < MOST; ++at)
    if (address && memory[at].address == address) return &memory[at];
  return nullptr;
}

}  // namespace

#define ENTER(name) \
  if (int error = predicted(name)) return error;

SHOWN void fake_model(const char *name, int compute_units, int version) {
  strcpy(model, name);
  units = compute_units;
  runtime_version = version;
}
SHOWN void fake_reset() {
  for (Block &one : memory) one.old = true;
  for (int at = 0; at < MOST; ++at) {
    if (events[at]) put(old_events, events[at]);
    if (streams[at]) put(old_streams, streams[at]);
  }
  memset(streams, 0, sizeof streams);
  memset(events, 0, sizeof events);
  memset(counts, 0, sizeof counts);
  memset(&fault, 0, sizeof fault);
  strcpy(arch_names, "gfx942:sramecc+:xnack-");
  fake_model("Fake Instinct", 304, 70012345);
  device_count = 1;
  sticky = last_error = current_device = 0;
  capacity = size_t(1) << 30;
  used = 0;
  last_stream = nullptr;
  capturing = false;
}
// A stream is being captured from now on, or (0) no longer: what may not be done then is an error.
SHOWN void fake_capture(void *stream, int on) {
  captured = stream;
  capturing = on != 0;
}
SHOWN void fake_devices(int count, const char *archs) {
  device_count = count;
  strcpy(arch_names, archs);
}
SHOWN void fake_capacity(size_t bytes) { capacity = bytes; }
SHOWN void fake_fail(const char *name, int error, int skip, int stays) {
  strcpy(fault.name, name);
  fault.error = error;
  fault.skip = skip;
  fault.stays = stays != 0;
}
SHOWN int fake_live_memory() {
  int count = 0;
  for (Block &one : memory) count += one.address && !one.old;
  return count;
}
SHOWN int fake_live_streams() { return alive(streams); }
SHOWN int fake_live_events() { return alive(events); }
SHOWN int fake_calls(const char *name) { return *calls_of(name); }
SHOWN void *fake_last_stream() { return last_stream; }
SHOWN int fake_memory_device(void *address) {
  Block *one = block_of(address);
  return one ? one->device : -1;
}
SHOWN int fake_current_device() { return current_device; }
// What a kernel's launch goes through: 0, or the error the launch was told to give.
SHOWN int fake_launch(void *stream) {
  ENTER("hipLaunchKernel")
  last_stream = stream;
  return 0;
}

SHOWN int hipGetDeviceCount(int *count) {
  ENTER("hipGetDeviceCount")
  *count = device_count;
  return device_count ? 0 : fail(100);
}
SHOWN int hipGetDevice(int *device) {
  ENTER("hipGetDevice") *device = current_device;
  return 0;
}
SHOWN int hipSetDevice(int device) {
  ENTER("hipSetDevice")
  if (device < 0 || device >= device_count) return fail(101);
  current_device = device;
  return 0;
}
SHOWN int hipGetDevicePropertiesR0600(void *out, int device) {
  ENTER("hipGetDeviceProperties")
  if (device < 0 || device >= device_count) return fail(101);
  char *raw = static_cast<char *>(out);
  memset(raw, 0, 1472);
  strcpy(raw, model);
  arch_of(device, raw + 1160);
  auto set = [&](size_t at, int32_t value) { memcpy(raw + at, &value, 4); };
  uint64_t total = capacity;
  memcpy(raw + 288, &total, 8);
  set(308, 64);
  set(348, 2100000);
  set(388, units);
  set(584, 0xc1);
  set(588, 0);
  set(592, 1);
  set(616, 4 << 20);
  return 0;
}
SHOWN int hipRuntimeGetVersion(int *version) {
  ENTER("hipRuntimeGetVersion") *version = runtime_version;
  return 0;
}
SHOWN int hipMalloc(void **out, size_t bytes) {
  ENTER("hipMalloc")
  if (capturing) return fail(900);
  if (used + bytes > capacity) return fail(2);
  for (Block &one : memory) {
    if (one.address) continue;
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    one = {*out, bytes, current_device, false};
    used += bytes;
    return 0;
  }
  return fail(2);
}
SHOWN int hipFree(void *address) {
  if (gave_back_old(address)) return 0;
  ENTER("hipFree")
  if (capturing) return fail(900);
  Block *one = block_of(address);
  if (!one) return fail(1);
  used -= one->bytes;
  free(address);
  *one = {};
  return 0;
}
SHOWN int hipMemGetInfo(size_t *free_bytes, size_t *total) {
  ENTER("hipMemGetInfo")
  *free_bytes = capacity - used;
  *total = capacity;
  return 0;
}
SHOWN int hipMemcpyAsync(void *to, const void *from, size_t bytes, int, void *stream) {
  ENTER("hipMemcpyAsync")
  memcpy(to, from, bytes);
  last_stream = stream;
  return 0;
}
SHOWN int hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                           int, void *stream) {
  ENTER("hipMemcpy2DAsync")
  if (width > to_pitch || width > from_pitch) return fail(12);
  for (size_t row = 0; row < height; ++row)
    memcpy(static_cast<char *>(to) + row * to_pitch, static_cast<const char *>(from) + row * from_pitch, width);
  last_stream = stream;
  return 0;
}
SHOWN int hipMemsetAsync(void *to, int value, size_t bytes, void *stream) {
  ENTER("hipMemsetAsync")
  memset(to, value, bytes);
  last_stream = stream;
  return 0;
}
SHOWN int hipDeviceSynchronize() { ENTER("hipDeviceSynchronize") return 0; }
SHOWN int hipStreamCreateWithFlags(void **out, unsigned) {
  ENTER("hipStreamCreateWithFlags")
  static char handles[MOST];
  static int next = 0;
  *out = &handles[next++ % MOST];
  return put(streams, *out);
}
SHOWN int hipStreamDestroy(void *stream) {
  if (drop(old_streams, stream)) return 0;
  ENTER("hipStreamDestroy")
  return drop(streams, stream) ? 0 : fail(400);
}
SHOWN int hipStreamSynchronize(void *stream) {
  ENTER("hipStreamSynchronize") return capturing && stream == captured ? fail(900) : 0;
}
SHOWN int hipStreamIsCapturing(void *stream, int *status) {
  ENTER("hipStreamIsCapturing")
  *status = captured == stream && capturing;
  return 0;
}
SHOWN int hipStreamWaitEvent(void *, void *, unsigned) { ENTER("hipStreamWaitEvent") return 0; }
SHOWN int hipEventCreateWithFlags(void **out, unsigned) {
  ENTER("hipEventCreateWithFlags")
  *out = calloc(1, sizeof(Mark));
  return put(events, *out);
}
SHOWN int hipEventDestroy(void *event) {
  if (drop(old_events, event)) {
    free(event);
    return 0;
  }
  ENTER("hipEventDestroy")
  if (!drop(events, event)) return fail(400);
  free(event);
  return 0;
}
SHOWN int hipEventRecord(void *event, void *stream) {
  ENTER("hipEventRecord")
  static_cast<Mark *>(event)->at = now();
  last_stream = stream;
  return 0;
}
SHOWN int hipEventSynchronize(void *) { ENTER("hipEventSynchronize") return 0; }
SHOWN int hipEventElapsedTime(float *out, void *start, void *stop) {
  ENTER("hipEventElapsedTime")
  *out = float((static_cast<Mark *>(stop)->at - static_cast<Mark *>(start)->at) * 1e3);
  return 0;
}
SHOWN int hipGetLastError() {
  int held = sticky ? sticky : last_error;
  last_error = 0;
  return held;
}
SHOWN const char *hipGetErrorName(int error) {
  switch (error) {
    case 0:
      return "hipSuccess";
    case 1:
      return "hipErrorInvalidValue";
    case 2:
      return "hipErrorOutOfMemory";
    case 35:
      return "hipErrorInsufficientDriver";
    case 98:
      return "hipErrorInvalidDeviceFunction";
    case 900:
      return "hipErrorStreamCaptureUnsupported";
    case 100:
      return "hipErrorNoDevice";
    case 101:
      return "hipErrorInvalidDevice";
    case 400:
      return "hipErrorInvalidHandle";
    case 700:
      return "hipErrorIllegalAddress";
    default:
      return "hipErrorUnknown";
  }
}
SHOWN const char *hipGetErrorString(int error) {
  switch (error) {
    case 2:
      return "out of memory";
    case 98:
      return "invalid device function";
    case 700:
      return "an illegal memory access was encountered";
    default:
      return "what the vendor says";
  }
}
