// The kernels at hand and the choice among them: what is read from registries, folders and libraries.
#pragma once
#include <tilewright/runtime.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "bundle.hpp"
#include "library.hpp"
#include "models.hpp"

namespace tw {
namespace runtime {

struct Entry {
  std::string digest, name, op, arch, signature, schedule, spec, library;
  bool fallback = false, copied = false;  // copied: it serves problems in padded copies too
  std::vector<int64_t> grains;            // of these
  std::string set;                        // of its selection library; empty where none knows it
  selection::Candidate candidate;         // its numbers, in the library's order
  const tw_kernel *kernel = nullptr;
  Json json;  // as it was read, for writing
};

// A kernel that was pinned or measured for a problem.
struct Choice {
  int64_t kernel;  // its place among the entries
  int64_t tier;    // enum tw_tier
  double seconds;  // measured
};

// The kernels of one signature, ready for queries.
struct Group {
  std::vector<int64_t> kernels, fallbacks;  // places among the entries
  std::vector<int64_t> every;               // both, in this order
  const SelectionLibrary *library = nullptr;
  std::vector<selection::Candidate> candidates;
  std::vector<int64_t> order;                            // of equal estimates the lower digest
  std::unordered_map<std::string, Choice> choices;       // by `choice_key`
  std::map<std::string, std::vector<int64_t>> families;  // places of kernels that are pinned for such problems
  std::vector<Voice> voices;                             // models that know these kernels, in the order of their use
};

// A problem's numbers and a number of threads as the key of a choice; threads: -1 of pins, 0 of GPUs.
std::string choice_key(const int64_t *numbers, size_t count, int64_t threads);

class Registry {
 public:
  explicit Registry(std::string target) : target_(std::move(target)) {}

  void add(const std::string &path);
  // `compared`: with its digest already.
  void add_json(const std::string &text, const std::string &folder, const std::string &what, bool compared = false);
  std::string json() const;
  const std::string &target() const { return target_; }
  int64_t generation() const { return generation_; }
  int64_t choices() const { return choices_; }
  int64_t units() const { return units_; }

  int64_t count() const { return int64_t(entries_.size()); }
  const Entry &entry(int64_t index) const;
  int64_t find(const std::string &digest) const;
  const tw_kernel *kernel(int64_t index);

  const Group &group(const tw_problem &problem) const;
  void settle();  // groups anew, after something was added

 private:
  std::string nearest(const tw_problem &problem) const;
  void settle_choices();
  void settle_models();
  void add_folder(const std::string &path);
  void add_archs(const std::string &path, std::vector<std::string> archs);
  void add_library(const std::string &path);
  void add_bundle(const std::string &path);
  void add_models(const Json &rows, const std::string &folder);
  void add_set(const std::string &name, const Json &shared, const std::string &folder);
  void add_entry(const Json &json, const std::string &folder, const Json &shared);
  const int64_t *integers(const std::vector<std::string> &names, const Json &values, const std::string &what);
  const double *reals(const std::vector<std::string> &names, const Json &values, const std::string &what);
  std::shared_ptr<KernelLibrary> load(const std::string &path);
  void adopt(const KernelLibrary &library);

  std::string target_;
  std::deque<Entry> entries_;
  std::unordered_map<std::string, int64_t> by_digest_;
  std::unordered_map<std::string, Group> groups_;                            // by op and signature
  std::map<std::string, std::unique_ptr<SelectionLibrary>> selections_;      // by set
  std::map<std::string, Json> sets_;                                         // as they were read
  std::map<std::string, std::pair<const int64_t *, const double *>> archs_;  // by set and arch
  std::map<std::string, std::shared_ptr<KernelLibrary>> libraries_;          // by path
  std::deque<std::vector<int64_t>> integers_;
  std::deque<std::vector<double>> reals_;
  std::vector<std::shared_ptr<const Bundle>> bundles_;  // whose files are read when they are needed
  std::mutex loading_;
  std::vector<Json> pinned_;  // choices as they were read
  int64_t choices_ = 0;       // of them, and of models, that count here
  int64_t units_ = 0;         // that work is dealt to on a GPU; 0 on CPUs, where they are the threads
  std::vector<Json> models_;  // as they were read
  std::vector<std::unique_ptr<Model>> at_hand_;  // those that know this machine; null for the others
  int64_t generation_ = 0;                       // another one whenever something was added
};

}  // namespace runtime
}  // namespace tw
