#include "device.hpp"

#include <algorithm>

#include "failure.hpp"
#include "host.hpp"

namespace tw {
namespace runtime {
namespace {

// What runs what, as Python's arch table has it (tests/cpp/test_devices.py compares them): an arch, the compute
// capability it is for, whether its kernels carry PTX that newer devices compile, and the archs whose kernels it runs.
struct Nvidia {
  const char *arch;
  int major, minor;
  bool portable;
  std::vector<std::string> runs;
};
const std::vector<Nvidia> &nvidia() {
  static const std::vector<Nvidia> table = {
      {"sm_80", 8, 0, true, {}},
      {"sm_86", 8, 6, true, {}},
      {"sm_89", 8, 9, true, {"sm_86"}},
      {"sm_90a", 9, 0, false, {"sm_89", "sm_86", "sm_80"}},
      {"sm_100", 10, 0, true, {"sm_89", "sm_86", "sm_80"}},
      {"sm_120", 12, 0, true, {"sm_89", "sm_86"}},
  };
  return table;
}

}  // namespace

std::vector<std::string> archs_run_by(const std::string &arch) {
  std::vector<std::string> archs = {arch};
  for (const Nvidia &known : nvidia())
    if (known.arch == arch) archs.insert(archs.end(), known.runs.begin(), known.runs.end());
  return archs;
}

std::string best_of(const std::vector<std::string> &archs, const std::string &wanted) {
  const bool any_cpu = wanted.empty() || wanted == "cpu";
  std::string best;
  if (wanted == "cuda" || wanted == "hip")
    for (const std::string &arch : archs_run_by(Device(wanted, -1).facts().arch))
      if (best.empty() && std::find(archs.begin(), archs.end(), arch) != archs.end()) best = arch;
  for (const std::string &arch : archs) {
    const bool mine = any_cpu ? cpu_level(arch) >= 0 && cpu_runs(arch) : arch == wanted;
    if (mine && (best.empty() || cpu_level(arch) > cpu_level(best))) best = arch;
  }
  return best;
}

std::string others_than(const std::vector<std::string> &archs, const std::string &wanted) {
  std::string all;
  for (const std::string &arch : archs) all += (all.empty() ? "" : ", ") + arch;
  return all + (wanted.empty() || wanted == "cpu" ? ", of which this CPU runs none" : ", not for " + wanted);
}

std::vector<std::string> archs_of_capability(int major, int minor) {
  const Nvidia *older = nullptr;
  for (const Nvidia &known : nvidia()) {
    if (known.major == major && known.minor == minor) return archs_run_by(known.arch);
    if (known.portable && (known.major < major || (known.major == major && known.minor < minor))) older = &known;
  }
  return archs_run_by(older ? older->arch : "sm_" + std::to_string(major) + std::to_string(minor));
}

int64_t device_count(const std::string &backend) {
  int devices = 0;
  Driver &driver = driver_of(backend);
  const int status = driver.count(&devices);
  if (status)
    throw bad_machine("device-none", std::to_string(status), "devices cannot be counted: " + driver.says(status),
                      "check that a GPU is here and that its driver runs");
  return devices;
}

Device::Device(const std::string &backend, int64_t index) : driver_(driver_of(backend)) {
  const int64_t devices = device_count(backend);
  if (index < 0) {
    int now = -1;
    demand(driver_.current(&now), "the current device");
    index = now < 0 ? 0 : now;
  }
  if (index >= devices)
    throw bad_machine("device-index", std::to_string(index),
                      "there is no device " + std::to_string(index) + ": the driver sees " + std::to_string(devices),
                      "use a number below that");
  facts_.backend = backend, facts_.driver = driver_.path, facts_.index = index;
  demand(driver_.describe(int(index), facts_), "a question about the device");
  demand(driver_.use(int(index)), "the device's context");
}

Device::~Device() {
  if (driver_.use(int(facts_.index))) return;  // a lost device has taken its memory along
  for (const auto &known : workspaces_) driver_.release(known.second.at);
  for (void *at : retired_) driver_.release(at);
}

void Device::demand(int status, const std::string &what) {
  if (status == 0) return;
  throw bad_machine("device", std::to_string(status), what + " failed: " + driver_.says(status),
                    "check that the device's memory and streams are its own, and that earlier launches did not fail");
}

void *Device::allocate(int64_t bytes) {
  if (bytes < 0)
    throw bad_request("size-negative", std::to_string(bytes), "an allocation of " + std::to_string(bytes) + " bytes",
                      "use 0 or more");
  void *at = nullptr;
  demand(driver_.use(int(facts_.index)), "the device's context");
  demand(driver_.allocate(&at, size_t(bytes ? bytes : 1)), "an allocation of " + std::to_string(bytes) + " bytes");
  return at;
}

void Device::release(void *at) {
  demand(driver_.use(int(facts_.index)), "the device's context");
  demand(driver_.release(at), "to free memory");
}

void Device::copy(void *to, const void *from, int64_t bytes, void *stream) {
  if (bytes <= 0) return;
  demand(driver_.use(int(facts_.index)), "the device's context");
  demand(driver_.copy(to, from, size_t(bytes), stream), "a copy of " + std::to_string(bytes) + " bytes");
}

void Device::copy_rows(void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t bytes, int64_t rows,
                       void *stream) {
  if (bytes <= 0 || rows <= 0) return;
  if (rows == 1) return copy(to, from, bytes, stream);
  if (to_pitch < bytes || from_pitch < bytes)
    throw bad_request("row-pitch", std::to_string(std::min(to_pitch, from_pitch)),
                      "rows of " + std::to_string(bytes) + " bytes overlap", "give pitches of at least a row");
  demand(driver_.use(int(facts_.index)), "the device's context");
  demand(driver_.copy_rows(to, size_t(to_pitch), from, size_t(from_pitch), size_t(bytes), size_t(rows), stream),
         "a copy of " + std::to_string(rows) + " rows");
}

void Device::clear(void *at, int64_t bytes, void *stream) {
  if (bytes <= 0) return;
  demand(driver_.use(int(facts_.index)), "the device's context");
  demand(driver_.clear(at, size_t(bytes), stream), "to clear " + std::to_string(bytes) + " bytes");
}

void Device::synchronize(void *stream) {
  demand(driver_.use(int(facts_.index)), "the device's context");
  demand(driver_.synchronize(stream), "what the stream had to do");
}

void *Device::workspace(void *stream, int64_t bytes, int64_t clear_bytes) {
  demand(driver_.use(int(facts_.index)), "the device's context");
  if (bytes <= 0) return nullptr;
  std::lock_guard<std::mutex> held(lock_);
  Scratch &scratch = workspaces_[stream];
  const int64_t behind = bytes - std::min(bytes, clear_bytes);
  if (!scratch.at || scratch.zeros < clear_bytes || scratch.bytes < behind) {
    // Twice as much as before: a stream whose problems grow gets few of them.  Work that is queued may use the old one.
    if (scratch.at) retired_.push_back(scratch.at);
    const int64_t zeros = std::max(scratch.zeros, clear_bytes), room = std::max(scratch.bytes * 2, behind);
    scratch = {nullptr, 0, 0};
    const int64_t begin = (zeros + 255) / 256 * 256;
    void *at = nullptr;
    demand(driver_.allocate(&at, size_t(begin + room)), "a workspace of " + std::to_string(begin + room) + " bytes");
    scratch = {at, begin, room};
    if (begin) demand(driver_.clear(at, size_t(begin), stream), "to clear a workspace");
  }
  return static_cast<char *>(scratch.at) + (scratch.zeros - clear_bytes);
}

}  // namespace runtime
}  // namespace tw
