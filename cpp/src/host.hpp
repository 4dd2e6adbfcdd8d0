// What this machine is, for those that load kernels of CPUs.
#pragma once
#include <map>
#include <string>

#include "json.hpp"

namespace tw {
namespace runtime {

// Whether this CPU has the instructions of an arch of CPUs; true of archs of other devices, whose drivers say so.
bool cpu_runs(const std::string &arch);
// How many instruction sets beyond the plainest an arch of CPUs requires; -1 of other devices.
int cpu_level(const std::string &arch);
// The model as /proc/cpuinfo says it, and the cores that this process may use.
const std::string &cpu_model();
long long cpu_cores();
// 1 if this CPU starts two multiply-adds of 512 bits in a cycle, where others of the levels with bf16 start one.
int64_t dual_fma();
// What makes two measurements of an arch comparable, by Python's words: of this CPU, or of the GPU at hand; none where
// no device of the arch's kind is here.
std::map<std::string, Json> identity_of(const std::string &arch);

}  // namespace runtime
}  // namespace tw
