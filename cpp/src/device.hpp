// GPUs through their drivers, loaded with the first device.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tw {
namespace runtime {

struct DeviceFacts {
  std::string backend, arch, name, driver;
  std::string version;  // the driver's, in the words of Python's measurements
  int64_t index = 0, compute_units = 0, l2_bytes = 0, memory_bytes = 0;
};

// The functions of a driver, CUDA's or HIP's; every call returns the driver's own status, 0 is success.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual int count(int *devices) = 0;
  virtual int current(int *device) = 0;  // -1: the thread has no context
  virtual int use(int device) = 0;       // makes its primary context the thread's
  virtual int describe(int device, DeviceFacts &facts) = 0;
  virtual int allocate(void **at, size_t bytes) = 0;
  virtual int release(void *at) = 0;
  virtual int copy(void *to, const void *from, size_t bytes, void *stream) = 0;
  virtual int copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, size_t rows,
                        void *stream) = 0;
  virtual int clear(void *at, size_t bytes, void *stream) = 0;
  virtual int synchronize(void *stream) = 0;
  virtual std::string says(int status) = 0;
  std::string backend, path;
};

Driver &driver_of(const std::string &backend);
// Archs whose kernels a device runs, the best first: of a compute capability, or of what HIP calls its arch.
std::vector<std::string> archs_of_capability(int major, int minor);
std::vector<std::string> archs_run_by(const std::string &arch);
// Of some archs the requested one; the best that the current device runs (of cuda or hip), or this CPU (of cpu or of
// nothing).  Empty where there is none.
std::string best_of(const std::vector<std::string> &archs, const std::string &wanted);
// For a message where there is none: what there is instead.
std::string others_than(const std::vector<std::string> &archs, const std::string &wanted);

class Device {
 public:
  Device(const std::string &backend, int64_t index);
  const DeviceFacts &facts() const { return facts_; }
  void *allocate(int64_t bytes);
  void release(void *at);
  void copy(void *to, const void *from, int64_t bytes, void *stream);
  void copy_rows(void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t bytes, int64_t rows,
                 void *stream);
  void clear(void *at, int64_t bytes, void *stream);
  void synchronize(void *stream);
  void *workspace(void *stream, int64_t bytes, int64_t clear_bytes);
  ~Device();

 private:
  struct Scratch {
    void *at;
    int64_t zeros, bytes;  // the zeros first, so many bytes behind them
  };
  void demand(int status, const std::string &what);
  Driver &driver_;
  DeviceFacts facts_;
  std::mutex lock_;
  std::map<void *, Scratch> workspaces_;  // by stream
  std::vector<void *> retired_;           // work of a stream may still use them
};

int64_t device_count(const std::string &backend);

}  // namespace runtime
}  // namespace tw
