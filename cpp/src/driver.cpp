// libcuda and libamdhip64 behind one interface.  Only functions whose signature is the same in all versions are used.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "device.hpp"
#include "failure.hpp"

namespace tw {
namespace runtime {
namespace {

struct Opened {
  void *handle = nullptr;
  std::string path, why;
};

// The first of these libraries that the system loader finds; one that this process has already comes first.
Opened open_first(const char *chosen_by, std::vector<std::string> names) {
  Opened opened;
  if (const char *chosen = std::getenv(chosen_by)) names = {chosen};
  for (int mode : {RTLD_NOLOAD | RTLD_NOW, RTLD_NOW | RTLD_LOCAL})
    for (const std::string &name : names) {
      opened.handle = dlopen(name.c_str(), mode);
      opened.path = name;
      if (opened.handle) return opened;
      if (const char *said = dlerror()) opened.why = said;
    }
  return opened;
}

template <class Function> void take(const Opened &opened, const char *name, Function *&into) {
  void *place = dlsym(opened.handle, name);
  if (!place)
    throw bad_machine("device-library", opened.path, opened.path + " has no function " + name,
                      "install a driver of CUDA 12.3 or later, or ROCm 6 or later");
  into = reinterpret_cast<Function *>(place);
}

// The version a driver says, with the line of the kernel module where the system has it: as Python's measurements have it.
std::string with_module(const std::string &version, const char *file) {
  std::ifstream stream(file);
  std::string line, text;
  std::getline(stream, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
  return text.empty() ? version : version + "; " + text;
}

class Cuda : public Driver {
 public:
  Cuda() {
    const Opened opened = open_first("TILEWRIGHT_CUDA_LIBRARY", {"libcuda.so.1", "libcuda.so"});
    if (!opened.handle)
      throw bad_machine("device-library", "libcuda.so.1", "the CUDA driver cannot be loaded: " + opened.why,
                        "install NVIDIA's driver (in a container, start it with the GPU), or set "
                        "TILEWRIGHT_CUDA_LIBRARY to the library");
    backend = "cuda", path = opened.path;
    take(opened, "cuInit", init_), take(opened, "cuDeviceGetCount", count_);
    take(opened, "cuCtxGetCurrent", get_context_), take(opened, "cuCtxSetCurrent", set_context_);
    take(opened, "cuCtxGetDevice", get_device_), take(opened, "cuDevicePrimaryCtxRetain", retain_);
    take(opened, "cuDeviceGetAttribute", attribute_), take(opened, "cuDeviceGetName", name_);
    take(opened, "cuDeviceTotalMem_v2", memory_), take(opened, "cuMemAlloc_v2", allocate_);
    take(opened, "cuMemFree_v2", release_), take(opened, "cuMemcpyAsync", copy_);
    take(opened, "cuMemcpy2DAsync_v2", copy_rows_);
    take(opened, "cuMemsetD8Async", set_), take(opened, "cuStreamSynchronize", synchronize_);
    take(opened, "cuGetErrorString", error_), take(opened, "cuDriverGetVersion", version_);
    const int status = init_(0);
    if (status)
      throw bad_machine("device-none", std::to_string(status), "the CUDA driver does not start: " + says(status),
                        "check that a GPU is here and that its driver runs (nvidia-smi)");
  }
  int count(int *devices) override { return count_(devices); }
  int current(int *device) override {
    void *context = nullptr;
    const int status = get_context_(&context);
    if (status || !context) return *device = -1, status;
    return get_device_(device);
  }
  int use(int device) override {
    void *context = nullptr;
    {
      std::lock_guard<std::mutex> held(lock_);
      void *&known = contexts_[device];
      if (!known)
        if (const int status = retain_(&known, device)) return status;
      context = known;
    }
    void *now = nullptr;
    if (get_context_(&now) == 0 && now == context) return 0;
    return set_context_(context);
  }
  int describe(int device, DeviceFacts &facts) override {
    constexpr int kUnits = 16, kCache = 38, kMajor = 75, kMinor = 76;  // CUdevice_attribute
    int units = 0, cache = 0, major = 0, minor = 0;
    char name[256] = "";
    size_t bytes = 0;
    int version = 0;
    int status = attribute_(&units, kUnits, device);
    if (!status) status = attribute_(&cache, kCache, device);
    if (!status) status = attribute_(&major, kMajor, device);
    if (!status) status = attribute_(&minor, kMinor, device);
    if (!status) status = name_(name, int(sizeof name), device);
    if (!status) status = memory_(&bytes, device);
    if (!status) status = version_(&version);
    const std::string number = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    facts.version = with_module("CUDA " + number, "/proc/driver/nvidia/version");
    facts.compute_units = units, facts.l2_bytes = cache, facts.memory_bytes = int64_t(bytes), facts.name = name;
    facts.arch = archs_of_capability(major, minor).front();
    return status;
  }
  int allocate(void **at, size_t bytes) override { return allocate_(at, bytes); }
  int release(void *at) override { return release_(at); }
  int copy(void *to, const void *from, size_t bytes, void *stream) override { return copy_(to, from, bytes, stream); }
  int copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, size_t rows,
                void *stream) override {
    constexpr unsigned kDevice = 2;  // CU_MEMORYTYPE_DEVICE
    Copy2D copy{};
    copy.from.kind = copy.to.kind = kDevice;
    copy.from.device = const_cast<void *>(from), copy.from.pitch = from_pitch;
    copy.to.device = to, copy.to.pitch = to_pitch, copy.bytes = bytes, copy.rows = rows;
    return copy_rows_(&copy, stream);
  }
  int clear(void *at, size_t bytes, void *stream) override { return set_(at, 0, bytes, stream); }
  int synchronize(void *stream) override { return synchronize_(stream); }
  std::string says(int status) override {
    const char *text = nullptr;
    return error_(status, &text) == 0 && text ? text : "error " + std::to_string(status);
  }

 private:
  // Addresses of the device are 64-bit numbers in CUDA's headers, which the calling convention passes as pointers are.
  int (*init_)(unsigned) = nullptr;
  int (*count_)(int *) = nullptr;
  int (*get_context_)(void **) = nullptr;
  int (*set_context_)(void *) = nullptr;
  int (*get_device_)(int *) = nullptr;
  int (*retain_)(void **, int) = nullptr;
  int (*attribute_)(int *, int, int) = nullptr;
  int (*name_)(char *, int, int) = nullptr;
  int (*memory_)(size_t *, int) = nullptr;
  int (*allocate_)(void **, size_t) = nullptr;
  int (*release_)(void *) = nullptr;
  int (*copy_)(void *, const void *, size_t, void *) = nullptr;
  // CUDA_MEMCPY2D.
  struct Side {
    size_t first_byte, first_row;
    unsigned kind;
    void *host, *device, *array;
    size_t pitch;
  };
  struct Copy2D {
    Side from, to;
    size_t bytes, rows;
  };
  int (*copy_rows_)(const Copy2D *, void *) = nullptr;
  int (*set_)(void *, unsigned char, size_t, void *) = nullptr;
  int (*synchronize_)(void *) = nullptr;
  int (*error_)(int, const char **) = nullptr;
  int (*version_)(int *) = nullptr;
  std::mutex lock_;
  std::map<int, void *> contexts_;
};

class Hip : public Driver {
 public:
  Hip() {
    std::vector<std::string> names = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"};
    for (const char *name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"})
      names.push_back(std::string("/opt/rocm/lib/") + name);
    const Opened opened = open_first("TILEWRIGHT_HIP_LIBRARY", names);
    if (!opened.handle)
      throw bad_machine("device-library", "libamdhip64.so", "the HIP runtime cannot be loaded: " + opened.why,
                        "install ROCm's HIP runtime, or set TILEWRIGHT_HIP_LIBRARY to the library");
    backend = "hip", path = opened.path;
    take(opened, "hipGetDeviceCount", count_), take(opened, "hipGetDevice", get_);
    take(opened, "hipSetDevice", set_device_), take(opened, "hipGetDevicePropertiesR0600", properties_);
    take(opened, "hipMalloc", allocate_), take(opened, "hipFree", release_), take(opened, "hipMemcpyAsync", copy_);
    take(opened, "hipMemcpy2DAsync", copy_rows_);
    take(opened, "hipMemsetAsync", set_), take(opened, "hipStreamSynchronize", synchronize_);
    take(opened, "hipGetErrorString", error_), take(opened, "hipRuntimeGetVersion", version_);
  }
  int count(int *devices) override { return count_(devices); }
  int current(int *device) override { return get_(device); }
  int use(int device) override { return set_device_(device); }
  int describe(int device, DeviceFacts &facts) override {
    // hipDeviceProp_tR0600: its size, and the fields that are read.
    constexpr size_t kBytes = 1472, kMemory = 288, kUnits = 388, kCache = 616, kArch = 1160;
    char raw[kBytes + 256] = "";
    int status = properties_(raw, device), version = 0;
    if (!status) status = version_(&version);
    const std::string parts = std::to_string(version / 10000000) + "." + std::to_string(version / 100000 % 100) + "." +
                              std::to_string(version % 100000);
    facts.version = with_module("HIP " + parts, "/sys/module/amdgpu/version");
    const auto number = [&raw](size_t at) {
      int32_t value;
      std::memcpy(&value, raw + at, sizeof value);
      return int64_t(value);
    };
    uint64_t memory = 0;
    std::memcpy(&memory, raw + kMemory, sizeof memory);
    raw[255] = 0, raw[kArch + 255] = 0;
    const std::string arch = raw + kArch;
    facts.name = raw, facts.arch = arch.substr(0, arch.find(':')), facts.memory_bytes = int64_t(memory);
    facts.compute_units = number(kUnits), facts.l2_bytes = number(kCache);
    return status;
  }
  int allocate(void **at, size_t bytes) override { return allocate_(at, bytes); }
  int release(void *at) override { return release_(at); }
  int copy(void *to, const void *from, size_t bytes, void *stream) override {
    return copy_(to, from, bytes, kFindOut, stream);
  }
  int copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, size_t rows,
                void *stream) override {
    return copy_rows_(to, to_pitch, from, from_pitch, bytes, rows, kFindOut, stream);
  }
  int clear(void *at, size_t bytes, void *stream) override { return set_(at, 0, bytes, stream); }
  int synchronize(void *stream) override { return synchronize_(stream); }
  std::string says(int status) override {
    const char *text = error_(status);
    return text ? text : "error " + std::to_string(status);
  }

 private:
  int (*count_)(int *) = nullptr;
  int (*get_)(int *) = nullptr;
  int (*set_device_)(int) = nullptr;
  int (*properties_)(void *, int) = nullptr;
  int (*allocate_)(void **, size_t) = nullptr;
  int (*release_)(void *) = nullptr;
  int (*copy_)(void *, const void *, size_t, int, void *) = nullptr;
  static constexpr int kFindOut = 4;  // hipMemcpyDefault: by the addresses
  int (*copy_rows_)(void *, size_t, const void *, size_t, size_t, size_t, int, void *) = nullptr;
  int (*set_)(void *, int, size_t, void *) = nullptr;
  int (*synchronize_)(void *) = nullptr;
  const char *(*error_)(int) = nullptr;
  int (*version_)(int *) = nullptr;
};

}  // namespace

// Loaded once and never unloaded: kernels hold functions of it.  One that fails is tried anew by the next caller.
Driver &driver_of(const std::string &backend) {
  static std::mutex lock;
  static std::map<std::string, std::unique_ptr<Driver>> drivers;
  std::lock_guard<std::mutex> held(lock);
  std::unique_ptr<Driver> &known = drivers[backend];
  if (!known && backend == "cuda") known = std::make_unique<Cuda>();
  else if (!known && backend == "hip") known = std::make_unique<Hip>();
  if (!known)
    throw bad_request("backend-name", backend, "there are no devices of '" + backend + "'", "use cuda or hip");
  return *known;
}

}  // namespace runtime
}  // namespace tw
