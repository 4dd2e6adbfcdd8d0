// The few calls of the CUDA driver a launch needs, declared here and found at run time: a kernel
// library builds without CUDA's headers and loads on machines without a GPU.
#pragma once
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

namespace tw::cuda {

using Context = void *;
using Function = void *;
using Stream = void *;

struct LaunchAttribute {
  int id;
  char pad[4];
  uint32_t value[16];
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned attribute_count;
};

constexpr int cluster_dimension = 4, early_launch = 6;       // launch attributes
constexpr int max_dynamic_shared = 8, shared_share = 9;      // function attributes; the second in percent
constexpr int multiprocessors = 16, major = 75, minor = 76;  // device attributes

struct Driver {
  int (*get_context)(Context *) = nullptr;
  int (*get_device)(int *) = nullptr;
  int (*device_attribute)(int *, int, int) = nullptr;
  int (*load)(void **, const void *) = nullptr;
  int (*find)(Function *, void *, const char *) = nullptr;
  int (*set_attribute)(Function, int, int) = nullptr;
  int (*launch)(const LaunchConfig *, Function, void **, void **) = nullptr;
  int (*module_of)(void **, Function) = nullptr;
  int (*resident)(int *, Function, const LaunchConfig *) = nullptr;  // clusters at a time
  int (*occupancy)(int *, Function, int, size_t) = nullptr;          // blocks of one multiprocessor at a time
  int (*encode)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *,
                int, int, int, int) = nullptr;
  int (*encode_pixels)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const int *, const int *,
                       uint32_t, uint32_t, const uint32_t *, int, int, int, int) = nullptr;
  bool whole = false;

  void open() {
    // Whoever loaded the driver first (the runtime, PyTorch) may show it to all; else the system's.
    void *from = RTLD_DEFAULT;
    if (!dlsym(from, "cuLaunchKernelEx") && !(from = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))) return;
    auto take = [from](auto *to, const char *name) {
      return (*reinterpret_cast<void **>(to) = dlsym(from, name)) != nullptr;
    };
    whole = take(&get_context, "cuCtxGetCurrent") && take(&get_device, "cuCtxGetDevice") &&
            take(&device_attribute, "cuDeviceGetAttribute") && take(&load, "cuModuleLoadData") &&
            take(&find, "cuModuleGetFunction") && take(&set_attribute, "cuFuncSetAttribute") &&
            take(&launch, "cuLaunchKernelEx");
    // From CUDA 12 on; only TMA kernels use them.
    take(&encode, "cuTensorMapEncodeTiled");
    take(&encode_pixels, "cuTensorMapEncodeIm2col");
    take(&module_of, "cuFuncGetModule");
    take(&resident, "cuOccupancyMaxActiveClusters");
    take(&occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  }
};

// A lock of a few instructions: what it guards takes nanoseconds.
struct Lock {
  char word = 0;
  void take() {
    while (__atomic_test_and_set(&word, __ATOMIC_ACQUIRE)) {}
  }
  void give() { __atomic_clear(&word, __ATOMIC_RELEASE); }
};

// Opened on first use; where there is no driver, tried again each time.
inline const Driver &driver() {
  static Driver one;
  static Lock lock;
  static bool ready = false;
  if (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) {
    lock.take();
    if (!one.whole) one.open();
    __atomic_store_n(&ready, one.whole, __ATOMIC_RELEASE);
    lock.give();
  }
  return one;
}

}  // namespace tw::cuda
