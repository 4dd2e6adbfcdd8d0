// What this machine is: its caches and the threads a team is made of.
#include "host.hpp"

#include <sched.h>
#include <sys/utsname.h>
#include <tilewright/runtime.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "device.hpp"
#include "failure.hpp"
#include "sha256.hpp"

namespace {

std::string line_of(const std::string &path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return text;
}

int64_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string place = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string kind = line_of(place + "type"), text = line_of(place + "size");
    if (line_of(place + "level") != std::to_string(level) || (kind != "Data" && kind != "Unified") || text.empty())
      continue;
    const int64_t scale = text.back() == 'K'   ? 1 << 10
                          : text.back() == 'M' ? 1 << 20
                          : text.back() == 'G' ? 1 << 30
                                               : 1;
    return std::strtoll(text.c_str(), nullptr, 10) * scale;
  }
  return 0;
}

int64_t cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  int64_t count = CPU_COUNT(&allowed);
  std::ifstream quota("/sys/fs/cgroup/cpu.max");  // of the container; half a core is not counted
  std::string most;
  int64_t period = 0;
  if (quota >> most >> period && most != "max" && period > 0) {
    const int64_t share = std::strtoll(most.c_str(), nullptr, 10) / period;
    if (share < count) count = share;
  }
  return count < 1 ? 1 : count;
}

// What /proc/cpuinfo says of the first core behind one of these names.
std::string cpu_line(const char *name, const char *other) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':'), end = line.find_last_not_of(" \t", colon == 0 ? 0 : colon - 1);
    if (colon == std::string::npos || colon == 0 || end == std::string::npos) continue;
    const std::string key = line.substr(0, end + 1);
    if (key != name && key != other) continue;
    const size_t first = line.find_first_not_of(" \t", colon + 1), last = line.find_last_not_of(" \t");
    return first == std::string::npos ? std::string() : line.substr(first, last - first + 1);
  }
  return {};
}

// The instructions that the system names.
std::set<std::string> cpu_flags() {
  std::istringstream listed(cpu_line("flags", "Features"));
  std::set<std::string> flags;
  for (std::string flag; listed >> flag;) flags.insert(flag);
  return flags;
}

// As Python's digest of them.
std::string flags_digest() {
  std::string text;
  for (const std::string &flag : cpu_flags()) text += (text.empty() ? "" : " ") + flag;
  return tw::runtime::sha256_hex(text).substr(0, 16);
}

std::string machine_name() {
  utsname names{};
  return uname(&names) == 0 ? names.machine : "";
}

}  // namespace

namespace tw {
namespace runtime {

int cpu_level(const std::string &arch) {
  static const char *const levels[] = {"generic", "x86_64_v3", "x86_64_v4", "x86_64_v4_vnni", "x86_64_v4_bf16"};
  for (int level = 0; level < 5; ++level)
    if (arch == levels[level]) return level;
  return -1;
}

const std::string &cpu_model() {
  static const std::string model = [] {
    const std::string model = cpu_line("model name", "model name");
    return model.empty() ? machine_name() : model;
  }();
  return model;
}

std::map<std::string, Json> identity_of(const std::string &arch) {
  std::map<std::string, Json> words;
  if (cpu_level(arch) >= 0) {
    words["model"] = Json(cpu_model()), words["machine"] = Json(machine_name()), words["flags"] = Json(flags_digest());
    words["cores"] = Json(int64_t(cores())), words["l2_bytes"] = Json(tw_l2_bytes());
    words["l3_bytes"] = Json(cache_bytes(3));
    return words;
  }
  try {
    const DeviceFacts facts = Device(arch.compare(0, 3, "gfx") == 0 ? "hip" : "cuda", -1).facts();
    words["model"] = Json(facts.name), words["arch"] = Json(facts.arch);
    words["compute_units"] = Json(facts.compute_units), words["memory_bytes"] = Json(facts.memory_bytes);
    words["driver"] = Json(facts.version);
  } catch (const Failure &) {  // no driver, or no device
  }
  return words;
}

long long cpu_cores() { return cores(); }

int64_t dual_fma() {
  static const int64_t dual = [] {
    const std::set<std::string> flags = cpu_flags();
    return int64_t(flags.count("avx512_bf16") && flags.count("avx_vnni"));
  }();
  return dual;
}

bool cpu_runs(const std::string &arch) {
  const int level = cpu_level(arch);
#if defined(__x86_64__)
  __builtin_cpu_init();
  const auto has = [](int from) {
    if (from == 1)
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    if (from == 2)
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return from == 3 ? __builtin_cpu_supports("avx512vnni") != 0 : __builtin_cpu_supports("avx512bf16") != 0;
  };
  for (int from = 1; from <= level; ++from)
    if (!has(from)) return false;
  return true;
#else
  return level <= 0;
#endif
}

}  // namespace runtime
}  // namespace tw

int64_t tw_l2_bytes(void) {
  static const int64_t bytes = cache_bytes(2) ? cache_bytes(2) : 512 << 10;
  return bytes;
}

int64_t tw_threads(void) {
  static const int64_t count = [] {
    const int64_t most = cores();
    const char *text = std::getenv("OMP_NUM_THREADS");
    const int64_t wanted = text ? std::strtoll(text, nullptr, 10) : 0;
    return wanted > 0 && wanted < most ? wanted : most;
  }();
  return count;
}
