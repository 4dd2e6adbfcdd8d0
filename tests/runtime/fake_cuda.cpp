// A CUDA driver whose device is the host's memory: what the tests run against where there is no NVIDIA GPU.
// It counts what is alive, fails any call it is told to fail, and keeps the last launch to look at.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

#define SHOWN extern "C" __attribute__((visibility("default")))

namespace {
std::mutex lock;
std::map<std::string, int> faults, calls;
std::map<void *, size_t> memory;
std::set<void *> old_memory;  // of earlier tests
std::set<void *> streams, events;
int device_count = 1, capability = 90, version = 13000, sticky = 0, capture_mode = 0;
bool capturing = false;
void *captured = nullptr;
int held = 1;
size_t capacity = size_t(1) << 30, used = 0;
char contexts[8];
thread_local void *current = nullptr;
std::string module_function;  // of the last launch

struct Launch {
  uint32_t grid[3], block[3], shared, cluster, parameters;
  void *stream;
  unsigned char first[512];  // what the last parameter points at
} last;

int predicted(const char *name) {
  ++calls[name];
  if (sticky) return sticky;
  auto found = faults.find(name);
  if (found == faults.end()) return 0;
  int error = found->second;
  faults.erase(found);
  if (error == 700 || error == 719 || error == 716) sticky = error;
  return error;
}
}  // namespace

#define ENTER(name) \
  std::lock_guard<std::mutex> guard(lock); \
  if (int error = predicted(name)) return error;

SHOWN void fake_cuda_reset() {
  std::lock_guard<std::mutex> guard(lock);
  // Python may give it back long after its test, whenever garbage is collected: until then no test is handed such an
  // address again, and then no count or fault sees it.
  for (auto &one : memory) old_memory.insert(one.first);
  faults.clear();
  calls.clear();
  memory.clear();
  streams.clear();
  events.clear();
  device_count = 1;
  capability = 90;
  version = 13000;
  sticky = capture_mode = 0;
  capacity = size_t(1) << 30;
  held = 1;
  used = 0;
  current = nullptr;
  last = Launch{};
  capturing = false;
}
// A stream is being captured from now on, or (0) no longer: what may not be done then is an error.
SHOWN void fake_cuda_capture(void *stream, int on) {
  captured = stream;
  capturing = on != 0;
}
SHOWN void fake_cuda_devices(int count, int cc) {
  device_count = count;
  capability = cc;
}
// Blocks that a multiprocessor holds at a time.
SHOWN void fake_cuda_hold(int blocks) { held = blocks; }
SHOWN void fake_cuda_version(int number) { version = number; }
SHOWN void fake_cuda_capacity(size_t bytes) { capacity = bytes; }
SHOWN void fake_cuda_fail(const char *name, int error) { faults[name] = error; }
SHOWN int fake_cuda_calls(const char *name) { return calls[name]; }
SHOWN int fake_cuda_alive() { return int(memory.size()); }
SHOWN int fake_cuda_capture_mode() { return capture_mode; }
SHOWN int fake_cuda_holds(void *address) { return int(memory.count(address)); }
// What the launch of a kernel that is host code goes through.
SHOWN int fake_cuda_launch(void *stream) {
  ENTER("cuLaunchKernelEx") last.stream = stream;
  return 0;
}
SHOWN const Launch *fake_cuda_last() { return &last; }
SHOWN const char *fake_cuda_function() { return module_function.c_str(); }

SHOWN int cuInit(unsigned) { ENTER("cuInit") return device_count ? 0 : 100; }
SHOWN int cuDriverGetVersion(int *number) {
  ENTER("cuDriverGetVersion") *number = version;
  return 0;
}
SHOWN int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int, size_t) {
  ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor") *blocks = held;
  return 0;
}
SHOWN int cuDeviceGetCount(int *count) {
  ENTER("cuDeviceGetCount") *count = device_count;
  return 0;
}
SHOWN int cuDeviceGetName(char *name, int, int) {
  ENTER("cuDeviceGetName") std::strcpy(name, "Fake H200");
  return 0;
}
SHOWN int cuDeviceTotalMem_v2(size_t *bytes, int) {
  ENTER("cuDeviceTotalMem") *bytes = capacity;
  return 0;
}
SHOWN int cuDeviceGetAttribute(int *value, int attribute, int) {
  ENTER("cuDeviceGetAttribute")
  switch (attribute) {
    case 10:
      *value = 32;
      break;
    case 13:
      *value = 1980000;
      break;
    case 16:
      *value = 132;
      break;
    case 38:
      *value = 60 << 20;
      break;
    case 75:
      *value = capability / 10;
      break;
    case 76:
      *value = capability % 10;
      break;
    default:
      *value = 0;
  }
  return 0;
}
SHOWN int cuDevicePrimaryCtxRetain(void **context, int device) {
  ENTER("cuDevicePrimaryCtxRetain")
  if (device < 0 || device >= device_count) return 101;
  *context = contexts + device;
  return 0;
}
SHOWN int cuCtxGetCurrent(void **context) {
  ENTER("cuCtxGetCurrent") *context = current;
  return 0;
}
SHOWN int cuCtxSetCurrent(void *context) {
  ENTER("cuCtxSetCurrent") current = context;
  return 0;
}
SHOWN int cuCtxGetDevice(int *device) {
  ENTER("cuCtxGetDevice")
  if (!current) return 201;
  *device = int(static_cast<char *>(current) - contexts);
  return 0;
}
SHOWN int cuCtxSynchronize() { ENTER("cuCtxSynchronize") return 0; }
SHOWN int cuMemAlloc_v2(void **address, size_t bytes) {
  ENTER("cuMemAlloc")
  if (!current) return 201;
  if (capturing && capture_mode != 2) return 900;
  if (used + bytes > capacity) return 2;
  void *made = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(made, 0xcd, bytes);  // what fresh memory holds is anyone's guess
  memory[made] = bytes;
  used += bytes;
  *address = made;
  return 0;
}
SHOWN int cuMemFree_v2(void *address) {
  std::lock_guard<std::mutex> guard(lock);
  if (old_memory.erase(address)) {
    std::free(address);
    return 0;
  }
  if (int error = predicted("cuMemFree")) return error;
  if (capturing && capture_mode != 2) return 900;
  if (!memory.count(address)) return 1;
  used -= memory[address];
  memory.erase(address);
  std::free(address);
  return 0;
}
SHOWN int cuMemGetInfo_v2(size_t *free, size_t *total) {
  ENTER("cuMemGetInfo") *free = capacity - used;
  *total = capacity;
  return 0;
}
SHOWN int cuMemcpyAsync(void *to, const void *from, size_t bytes, void *) {
  ENTER("cuMemcpyAsync") std::memcpy(to, from, bytes);
  return 0;
}
struct Side {
  size_t x, y;
  int memory;
  const void *host;
  char *address;
  void *array;
  size_t pitch;
};
SHOWN int cuMemcpy2DAsync_v2(const void *raw, void *stream) {
  ENTER("cuMemcpy2DAsync")
  struct Copy {
    Side from, to;
    size_t width, height;
  };
  auto &copy = *static_cast<const Copy *>(raw);
  // The driver's own conditions; memory of kind 4 is found out by its address.
  if (copy.from.memory != 4 || copy.to.memory != 4 || copy.width > copy.from.pitch || copy.width > copy.to.pitch)
    return 1;
  if (copy.from.x || copy.from.y || copy.to.x || copy.to.y || copy.from.host || copy.to.host) return 1;
  for (size_t row = 0; row < copy.height; ++row)
    std::memcpy(copy.to.address + row * copy.to.pitch, copy.from.address + row * copy.from.pitch, copy.width);
  last.stream = stream;
  return 0;
}
SHOWN int cuMemsetD8Async(void *to, unsigned char value, size_t bytes, void *) {
  ENTER("cuMemsetD8Async") std::memset(to, value, bytes);
  return 0;
}
SHOWN int cuStreamCreate(void **stream, unsigned) {
  ENTER("cuStreamCreate") streams.insert(*stream = std::malloc(8));
  return 0;
}
SHOWN int cuStreamDestroy_v2(void *stream) {
  ENTER("cuStreamDestroy") streams.erase(stream);
  return 0;
}
SHOWN int cuStreamSynchronize(void *stream) {
  ENTER("cuStreamSynchronize") return capturing && stream == captured ? 900 : 0;
}
SHOWN int cuStreamIsCapturing(void *stream, int *status) {
  ENTER("cuStreamIsCapturing")
  *status = capturing && stream == captured;
  return 0;
}
SHOWN int cuStreamWaitEvent(void *, void *, unsigned) { ENTER("cuStreamWaitEvent") return 0; }
SHOWN int cuEventCreate(void **event, unsigned) {
  ENTER("cuEventCreate") events.insert(*event = std::malloc(8));
  return 0;
}
SHOWN int cuEventDestroy_v2(void *event) {
  ENTER("cuEventDestroy") events.erase(event);
  return 0;
}
SHOWN int cuEventRecord(void *, void *) { ENTER("cuEventRecord") return 0; }
SHOWN int cuEventSynchronize(void *) { ENTER("cuEventSynchronize") return 0; }
SHOWN int cuEventElapsedTime(float *took, void *, void *) {
  ENTER("cuEventElapsedTime") *took = 0.5f;
  return 0;
}
SHOWN int cuThreadExchangeStreamCaptureMode(int *mode) {
  ENTER("cuThreadExchangeStreamCaptureMode")
  int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return 0;
}
SHOWN int cuModuleLoadData(void **module, const void *image) {
  ENTER("cuModuleLoadData")
  if (std::memcmp(image, "\177ELF", 4)) return 200;
  *module = const_cast<void *>(image);
  return 0;
}
SHOWN int cuModuleGetFunction(void **function, void *, const char *name) {
  ENTER("cuModuleGetFunction")
  *function = strdup(name);
  return 0;
}
SHOWN int cuFuncSetAttribute(void *, int, int) { ENTER("cuFuncSetAttribute") return 0; }
SHOWN int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *sizes,
                                 const uint64_t *strides, const uint32_t *box, const uint32_t *, int, int swizzle, int,
                                 int) {
  ENTER("cuTensorMapEncodeTiled")
  // The driver's own conditions.
  if (rank != 3 || reinterpret_cast<uintptr_t>(address) % 16 || reinterpret_cast<uintptr_t>(map) % 64) return 1;
  const int bytes = type == 0   ? 1
                    : type == 7 ? 4
                                : 2,
            most = swizzle == 3   ? 128
                   : swizzle == 2 ? 64
                   : swizzle == 1 ? 32
                                  : 1 << 20;
  for (int i = 0; i < 3; ++i)
    if (!sizes[i] || sizes[i] > (uint64_t(1) << 32) || !box[i] || box[i] > 256) return 1;
  if (strides[0] % 16 || strides[1] % 16 || !strides[0] || !strides[1] || int(box[0]) * bytes > most) return 1;
  std::memset(map, 0xab, 128);
  return 0;
}
SHOWN int cuLaunchKernelEx(const void *raw, void *function, void **parameters, void **) {
  ENTER("cuLaunchKernelEx")
  module_function = static_cast<const char *>(function);
  struct Attribute {
    int id;
    char pad[4];
    uint32_t value[16];
  };
  struct Config {
    uint32_t grid[3], block[3], shared;
    void *stream;
    Attribute *attributes;
    unsigned count;
  };
  auto *config = static_cast<const Config *>(raw);
  std::memcpy(last.grid, config->grid, 24);
  last.shared = config->shared;
  last.stream = config->stream;
  last.cluster = config->count ? config->attributes[0].value[0] : 1;
  if (last.grid[0] % last.cluster || !last.grid[0] || !last.grid[1]) return 1;
  // Kernels of the tma_ws pipeline have five parameters, the others (those that copy for it too) one; all fit in 256 bytes.
  const bool tma_ws = config->shared > 48 * 1024 && module_function.find("_tma_ws_") != std::string::npos;
  std::memcpy(last.first, parameters[tma_ws ? 4 : 0], 216);
  return 0;
}
SHOWN int cuGetErrorName(int error, const char **name) {
  *name = error == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == 100 ? "CUDA_ERROR_NO_DEVICE"
          : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == 716 ? "CUDA_ERROR_MISALIGNED_ADDRESS"
          : error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
          : error == 900 ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
          : error == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
                         : "CUDA_ERROR_UNKNOWN";
  return 0;
}
SHOWN int cuGetErrorString(int, const char **text) {
  *text = "what the driver says";
  return 0;
}
