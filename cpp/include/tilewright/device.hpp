// GPUs, through a driver that is loaded when the first one is opened: no header or library of CUDA or HIP is needed to
// build a program.
#pragma once
#include <tilewright/error.hpp>

#include <memory>
#include <string>

namespace tw {

namespace detail {
inline bool is_gpu(const std::string &arch) { return arch.rfind("sm_", 0) == 0 || arch.rfind("gfx", 0) == 0; }
inline const char *backend_of(const std::string &arch) { return arch.rfind("gfx", 0) == 0 ? "hip" : "cuda"; }
}  // namespace detail

class Device;

// Memory of a device, freed with the object.
class DeviceMemory {
 public:
  DeviceMemory(std::shared_ptr<tw_device> device, int64_t bytes) : device_(std::move(device)), bytes_(bytes) {
    detail::demand(tw_device_allocate(device_.get(), bytes, &at_));
  }
  ~DeviceMemory() {
    if (at_) tw_device_release(device_.get(), at_);  // an error of a lost device has nobody to go to
  }
  DeviceMemory(DeviceMemory &&other) noexcept
      : device_(std::move(other.device_)), at_(other.at_), bytes_(other.bytes_) {
    other.at_ = nullptr;
  }
  DeviceMemory &operator=(DeviceMemory &&) = delete;
  void *get() const { return at_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<tw_device> device_;
  void *at_ = nullptr;
  int64_t bytes_;
};

// One GPU.  Streams are those of its driver (a CUstream, cudaStream_t or hipStream_t); null is the default one.  A handle:
// copies are the same device, and what would move one copies it, so that none is empty.
class Device {
 public:
  Device(const Device &) = default;
  Device &operator=(const Device &) = default;
  // `backend`: "cuda" or "hip"; `index`: -1 for the device of the thread's current context.
  explicit Device(const std::string &backend, int64_t index = -1) {
    detail::demand_runtime();
    tw_device *opened = nullptr;
    detail::demand(tw_device_open(backend.c_str(), index, &opened));
    device_.reset(opened, tw_device_free);
  }
  static int64_t count(const std::string &backend) {
    int64_t devices = 0;
    detail::demand(tw_device_count(backend.c_str(), &devices));
    return devices;
  }

  std::string arch() const { return facts().arch; }  // such as "sm_90a": the target of a registry
  std::string name() const { return facts().name; }
  tw_device_facts facts() const {
    tw_device_facts facts{};
    facts.size = sizeof facts;
    detail::demand(tw_device_describe(get(), &facts));
    return facts;
  }

  DeviceMemory allocate(int64_t bytes) const { return DeviceMemory(device_, bytes); }
  // Queued on the stream; memory of the host must not change before the stream has executed it.
  void copy(void *to, const void *from, int64_t bytes, void *stream = nullptr) const {
    detail::demand(tw_device_copy(get(), to, from, bytes, stream));
  }
  // Rows of so many bytes, which begin a pitch apart; both within the device's memory.
  void copy_rows(void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t bytes, int64_t rows,
                 void *stream = nullptr) const {
    detail::demand(tw_device_copy_rows(get(), to, to_pitch, from, from_pitch, bytes, rows, stream));
  }
  void clear(void *at, int64_t bytes, void *stream = nullptr) const {
    detail::demand(tw_device_clear(get(), at, bytes, stream));
  }
  void synchronize(void *stream = nullptr) const { detail::demand(tw_device_synchronize(get(), stream)); }
  // Scratch memory that the device keeps for a stream.
  void *workspace(void *stream, int64_t bytes, int64_t clear_bytes) const {
    void *at = nullptr;
    detail::demand(tw_device_workspace(get(), stream, bytes, clear_bytes, &at));
    return at;
  }
  tw_device *get() const { return device_.get(); }

 private:
  std::shared_ptr<tw_device> device_;
};

}  // namespace tw
