// Plans in a folder, for processes without Python: what `tilewright.torch.plans` wrote, with the libraries of the kernels.
// The file holds numbers and structs as this library has them in memory, and is read by the very library that is beside it.
#pragma once
#include <fstream>
#include <iterator>

#include <tilewright/abi.h>
#include <tilewright/torch/calls.h>

namespace {

struct StoredOp {
  std::string name, schema, kinds;
  int64_t results, writes;
};
struct StoredPlan {
  int64_t op;
  bool on_gpu;
  std::string key;  // with the number of the op left zero
  std::shared_ptr<const Prepared> prepared;
};

// A file that is read from front to end; whatever is not there ends it.
class StoredFile {
 public:
  explicit StoredFile(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path + " cannot be read");
    bytes_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  const char *take(int64_t count) {
    if (count < 0 || size_t(count) > bytes_.size() - at_) throw std::runtime_error("plans.bin is cut off or damaged");
    at_ += size_t(count);
    return bytes_.data() + at_ - size_t(count);
  }
  int64_t number() {
    int64_t value = 0;
    memcpy(&value, take(8), 8);
    return value;
  }
  std::string text() {
    const int64_t length = number();
    return std::string(take(length), size_t(length));
  }
  // So many structs; their memory is the caller's.
  template <class T> std::vector<T> structs() {
    const int64_t count = number();
    if (count < 0 || count > int64_t(bytes_.size())) throw std::runtime_error("plans.bin is damaged");
    std::vector<T> all(static_cast<size_t>(count));
    if (count) memcpy(all.data(), take(count * int64_t(sizeof(T))), size_t(count) * sizeof(T));
    return all;
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

// Whether the CPU has every feature that kernels were compiled for, by the names of /proc/cpuinfo; else the first it lacks.
std::string lacking(const std::string &wanted) {
  std::ifstream file("/proc/cpuinfo");
  std::string line, flags = " ";
  while (flags.size() < 2 && std::getline(file, line))
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) flags += line.substr(line.find(':') + 1) + " ";
  for (size_t at = 0; at < wanted.size();) {
    const size_t end = std::min(wanted.find(' ', at), wanted.size());
    const std::string flag = wanted.substr(at, end - at);
    if (!flag.empty() && flags.find(" " + flag + " ") == std::string::npos) return flag;
    at = end + 1;
  }
  return "";
}

void *opened(const std::string &path) {
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  return library;
}
const tw_kernel &kernel_in(void *library, int64_t index) {
  auto version = reinterpret_cast<int64_t (*)()>(dlsym(library, "tw_abi_version"));
  auto table = reinterpret_cast<const tw_kernel *(*)(int64_t *)>(dlsym(library, "tw_kernels"));
  int64_t count = 0;
  const tw_kernel *kernels = version && table && version() == TW_ABI_VERSION ? table(&count) : nullptr;
  if (!kernels || index < 0 || index >= count) throw std::runtime_error("a library of kernels is not the one it was");
  return kernels[index];
}

// The NVIDIA driver, as far as plans for GPUs need it, and the one kind of GPU that they are for: kernels were compiled for its
// architecture, and the grids of some for its number of multiprocessors.
class StoredGpu {
 public:
  int64_t architecture = 0, multiprocessors = 0;  // 90 is 9.0; 0: no plan is for a GPU

  // What is current in a thread that works on a device of PyTorch's; throws where that is not such a GPU.
  uint64_t context(int64_t index) {
    if (!library_ && !(library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)))
      throw std::runtime_error("plans of the folder are for a GPU, and this machine has no NVIDIA driver");
    auto start = function<int (*)(unsigned)>("cuInit");
    auto device_of = function<int (*)(int *, int)>("cuDeviceGet");
    auto attribute = function<int (*)(int *, int, int)>("cuDeviceGetAttribute");
    auto retain = function<int (*)(void **, int)>("cuDevicePrimaryCtxRetain");
    current = function<int (*)(void *)>("cuCtxGetCurrent");
    int device = 0, major = 0, minor = 0, count = 0;
    void *primary = nullptr;
    if (start(0) || device_of(&device, int(index)) || attribute(&major, 75, device) || attribute(&minor, 76, device) ||
        attribute(&count, 16, device))
      throw std::runtime_error("plans of the folder are for GPU " + std::to_string(index) +
                               ", which the driver does not have");
    if (major * 10 + minor != architecture || count != multiprocessors)
      throw std::runtime_error("plans of the folder are for a GPU of architecture " + std::to_string(architecture) +
                               " with " + std::to_string(multiprocessors) + " multiprocessors, and GPU " +
                               std::to_string(index) + " has architecture " + std::to_string(major * 10 + minor) +
                               " and " + std::to_string(count) + ": write the folder on such a GPU");
    if (retain(&primary, device)) throw std::runtime_error("the driver gives no context of the GPU");
    return uint64_t(reinterpret_cast<uintptr_t>(primary));
  }
  int (*current)(void *answer) = nullptr;

 private:
  void *library_ = nullptr;

  template <class Function> Function function(const char *name) {
    if (void *at = dlsym(library_, name)) return reinterpret_cast<Function>(at);
    throw std::runtime_error(std::string("the NVIDIA driver lacks ") + name);
  }
};

// Everything in a folder; throws where it is not whole, or not for this machine.
class Stored {
 public:
  std::vector<StoredOp> ops;
  std::vector<StoredPlan> plans;

  Stored(const std::string &folder, int64_t version) : file_(folder + "/plans.bin"), folder_(folder) {
    if (std::string(file_.take(8), 8) != "twplans1" || file_.number() != version)
      throw std::runtime_error("plans.bin is of another version of tilewright: write the folder anew");
    const std::string flag = lacking(file_.text());
    if (!flag.empty())
      throw std::runtime_error("this CPU has no " + flag +
                               ", which kernels of the folder need: write it on such a CPU");
    gpu_.architecture = file_.number(), gpu_.multiprocessors = file_.number();
    for (int64_t count = file_.number(); count > 0; --count) libraries_.push_back(opened(folder + "/" + file_.text()));
    for (int64_t count = file_.number(); count > 0; --count) {
      StoredOp op;
      op.name = file_.text(), op.schema = file_.text(), op.kinds = file_.text(), op.results = file_.number();
      op.writes = file_.number();
      ops.push_back(op);
    }
    for (int64_t count = file_.number(); count > 0; --count) plans.push_back(read_plan());
  }

 private:
  StoredFile file_;
  std::string folder_;
  std::vector<void *> libraries_;
  void *teams_ = nullptr;
  StoredGpu gpu_;

  void *team(int64_t threads, int64_t pool) {
    if (!threads) return nullptr;
    if (!teams_) teams_ = opened(folder_ + "/libtilewright_team.so");
    auto make = reinterpret_cast<void *(*)(int64_t, int64_t)>(dlsym(teams_, "tw_team"));
    auto look = reinterpret_cast<const char *(*)()>(dlsym(teams_, "tw_team_openmp"));
    if (!make || !look) throw std::runtime_error("libtilewright_team.so is not the library it was");
    look();  // for the OpenMP runtime of this process
    return make(threads, pool);
  }
  StoredPlan read_plan() {
    StoredPlan stored;
    stored.op = file_.number();
    if (stored.op < 0 || stored.op >= int64_t(ops.size())) throw std::runtime_error("plans.bin is damaged");
    stored.key = file_.text();
    Plan plan{};
    const int64_t threads = file_.number(), pool = file_.number();
    plan.team = team(threads, pool);
    plan.scratch_bytes = file_.number(), plan.clear_bytes = file_.number(), plan.between = file_.number();
    plan.written = uint64_t(file_.number());
    plan.device_type = file_.number(), plan.device_index = file_.number();
    stored.on_gpu = file_.number() != 0;
    if (stored.on_gpu) plan.expected = gpu_.context(plan.device_index), plan.current = gpu_.current;
    const auto spans = file_.structs<Span>();
    const auto arguments = file_.structs<int64_t>();
    const auto scalars = file_.structs<double>();
    const auto mades = file_.structs<Made>();
    auto stages = file_.structs<Stage>();
    std::vector<std::vector<char>> args(stages.size());
    std::vector<std::vector<Pointer>> pointers(stages.size());
    std::vector<std::vector<Scalar>> places(stages.size());
    for (size_t i = 0; i < stages.size(); ++i) {
      const int64_t library = file_.number(), index = file_.number();
      args[i] = file_.structs<char>(), pointers[i] = file_.structs<Pointer>(), places[i] = file_.structs<Scalar>();
      Stage &stage = stages[i];
      if (library < 0 || library >= int64_t(libraries_.size()) || int64_t(args[i].size()) != stage.bytes ||
          int64_t(pointers[i].size()) != stage.pointers || int64_t(places[i].size()) != stage.scalars)
        throw std::runtime_error("plans.bin is damaged");
      stage.launch = kernel_in(libraries_[size_t(library)], index).launch;
      stage.args = args[i].data(), stage.pointer = pointers[i].data(), stage.scalar = places[i].data();
    }
    bool whole = arguments.size() == spans.size() && arguments.size() <= size_t(most_slots);
    for (size_t slot = 0; whole && slot < arguments.size(); ++slot)
      whole = arguments[slot] < int64_t(ops[size_t(stored.op)].kinds.size()) &&
              (arguments[slot] >= 0 || !(plan.written >> slot & 1));
    if (!whole || int64_t(mades.size()) != ops[size_t(stored.op)].results)
      throw std::runtime_error("plans.bin is damaged");
    plan.stage = stages.data(), plan.span = spans.data(), plan.argument = arguments.data();
    plan.scalar = scalars.data(), plan.made = mades.data();
    plan.stages = int64_t(stages.size()), plan.slots = int64_t(spans.size());
    plan.scalars = int64_t(scalars.size()), plan.mades = int64_t(mades.size());
    stored.prepared = std::make_shared<const Prepared>(plan);
    return stored;
  }
};

}  // namespace
