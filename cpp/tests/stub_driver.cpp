// A driver without a device behind it: memory of the device is memory of the host, and work is done when it is queued.
// Compiled twice: as libcuda.so.1, and with -DSTUB_HIP as libamdhip64.so.7.  STUB_DEVICES and STUB_CAPABILITY or
// STUB_ARCH and STUB_NAME say what it counts; -1 devices: it does not start.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define STUB extern "C" __attribute__((visibility("default")))

static int devices() {
  const char *count = std::getenv("STUB_DEVICES");
  return count ? std::atoi(count) : 1;
}
static thread_local int current_device = -1;

static int copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, size_t rows) {
  if (to_pitch < bytes || from_pitch < bytes) return 1;  // as drivers do
  for (size_t row = 0; row < rows; ++row)
    std::memcpy(static_cast<char *>(to) + row * to_pitch, static_cast<const char *>(from) + row * from_pitch, bytes);
  return 0;
}

#ifdef STUB_HIP

STUB int hipGetDeviceCount(int *count) { return *count = devices(), 0; }
STUB int hipGetDevice(int *device) { return *device = current_device < 0 ? 0 : current_device, 0; }
STUB int hipSetDevice(int device) { return current_device = device, 0; }
STUB int hipGetDevicePropertiesR0600(void *into, int) {
  char *raw = static_cast<char *>(into);
  const uint64_t memory = 1 << 20;
  const int32_t units = 304, cache = 4 << 20;
  const char *arch = std::getenv("STUB_ARCH");
  std::memset(raw, 0, 1472);
  std::strcpy(raw, "a stub of HIP");
  std::strcpy(raw + 1160, arch ? arch : "gfx942:sramecc+:xnack-");
  std::memcpy(raw + 288, &memory, sizeof memory);
  std::memcpy(raw + 388, &units, sizeof units);
  std::memcpy(raw + 616, &cache, sizeof cache);
  return 0;
}
STUB int hipMalloc(void **at, size_t bytes) { return *at = std::aligned_alloc(256, (bytes + 255) / 256 * 256), !*at; }
STUB int hipFree(void *at) { return std::free(at), 0; }
STUB int hipMemcpyAsync(void *to, const void *from, size_t bytes, int, void *) {
  return std::memcpy(to, from, bytes), 0;
}
STUB int hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, size_t rows,
                          int, void *) {
  return copy_rows(to, to_pitch, from, from_pitch, bytes, rows);
}
STUB int hipMemsetAsync(void *at, int value, size_t bytes, void *) { return std::memset(at, value, bytes), 0; }
STUB int hipStreamSynchronize(void *) { return 0; }
STUB int hipRuntimeGetVersion(int *version) { return *version = 60443484, 0; }  // 6.4.43484
STUB const char *hipGetErrorString(int) { return "an error of the stub"; }

#else

static void *context_of(int device) { return reinterpret_cast<void *>(intptr_t(0x1000 + device)); }

STUB int cuInit(unsigned) { return devices() < 0 ? 100 : 0; }
STUB int cuDeviceGetCount(int *count) { return *count = devices(), 0; }
STUB int cuCtxGetCurrent(void **context) {
  return *context = current_device < 0 ? nullptr : context_of(current_device), 0;
}
STUB int cuCtxSetCurrent(void *context) {
  return current_device = int(reinterpret_cast<intptr_t>(context)) - 0x1000, 0;
}
STUB int cuCtxGetDevice(int *device) { return *device = current_device, current_device < 0 ? 201 : 0; }
STUB int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = context_of(device), 0; }
STUB int cuDeviceGetAttribute(int *value, int attribute, int) {
  int major = 9, minor = 0;
  if (const char *value = std::getenv("STUB_CAPABILITY")) std::sscanf(value, "%d.%d", &major, &minor);
  *value = attribute == 16 ? 132 : attribute == 38 ? 50 << 20 : attribute == 75 ? major : attribute == 76 ? minor : 0;
  return 0;
}
STUB int cuDeviceGetName(char *name, int bytes, int) {
  const char *value = std::getenv("STUB_NAME");
  return std::snprintf(name, size_t(bytes), "%s", value ? value : "a stub of CUDA"), 0;
}
STUB int cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = 1 << 20, 0; }
STUB int cuMemAlloc_v2(void **at, size_t bytes) {
  if (current_device < 0 || bytes > size_t(1) << 30) return current_device < 0 ? 201 : 2;
  *at = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*at, 0xab, bytes);  // what nobody cleared is not zero
  return 0;
}
STUB int cuMemFree_v2(void *at) { return std::free(at), 0; }
STUB int cuMemcpyAsync(void *to, const void *from, size_t bytes, void *) { return std::memcpy(to, from, bytes), 0; }
struct Copy2D {  // CUDA_MEMCPY2D
  size_t from_byte, from_row;
  unsigned from_kind;
  const void *from_host, *from, *from_array;
  size_t from_pitch, to_byte, to_row;
  unsigned to_kind;
  void *to_host, *to, *to_array;
  size_t to_pitch, bytes, rows;
};
STUB int cuMemcpy2DAsync_v2(const Copy2D *c, void *) {
  if (c->from_kind != 2 || c->to_kind != 2) return 1;
  return copy_rows(c->to, c->to_pitch, c->from, c->from_pitch, c->bytes, c->rows);
}
STUB int cuMemsetD8Async(void *at, unsigned char value, size_t bytes, void *) {
  return std::memset(at, value, bytes), 0;
}
STUB int cuStreamSynchronize(void *) { return 0; }
STUB int cuDriverGetVersion(int *version) { return *version = 12080, 0; }  // 12.8
STUB int cuGetErrorString(int, const char **text) { return *text = "an error of the stub", 0; }

#endif
