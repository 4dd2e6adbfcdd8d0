// What this machine is: its caches and the threads a team is made of.
#include <sched.h>
#include <tilewright/runtime.h>

#include <cstdlib>
#include <fstream>
#include <string>

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
