// What this machine is: its caches and the threads a team is made of.
#include <sched.h>
#include <tilewright/runtime.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "host.hpp"

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
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
      const size_t colon = line.find(':');
      if (line.compare(0, 10, "model name") != 0 || colon == std::string::npos) continue;
      const size_t first = line.find_first_not_of(" \t", colon + 1), last = line.find_last_not_of(" \t");
      return first == std::string::npos ? std::string() : line.substr(first, last - first + 1);
    }
    return std::string();
  }();
  return model;
}

long long cpu_cores() { return cores(); }

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
