// The kernels at hand: libraries, folders and registries of a target, listed, found and filtered.
#pragma once
#include <tilewright/problem.hpp>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tw {

namespace detail {
// The value of a member of an object of canonical JSON (no blanks), as text; a word without its quotes; empty where there
// is no such member.
inline std::string member(const std::string &object, const std::string &name) {
  const std::string wanted = "\"" + name + "\":";
  int depth = 0;
  bool word = false;
  for (size_t at = 0, start = std::string::npos; at < object.size(); ++at) {
    const char letter = object[at];
    if (!word && depth == 1 && start == std::string::npos && object.compare(at, wanted.size(), wanted) == 0) {
      start = at + wanted.size(), at = start - 1;
      continue;
    }
    if (letter == '"' && (at == 0 || object[at - 1] != '\\')) word = !word;
    if (word) continue;
    const bool closes = letter == '}' || letter == ']';
    if (start != std::string::npos && depth == 1 && (letter == ',' || closes)) {
      const std::string value = object.substr(start, at - start);
      return value.size() > 1 && value[0] == '"' ? value.substr(1, value.size() - 2) : value;
    }
    depth += (letter == '{' || letter == '[') - closes;
  }
  return "";
}
}  // namespace detail

// A kernel as a registry lists it.  Its key is op, signature and schedule (canonical JSON), and the arch; the digest
// stands for all of them.
struct KernelKey {
  int64_t index = -1;  // its index in the registry
  std::string digest, name, op, arch, signature, schedule, spec, library;
  bool fallback = false, estimated = false;
  bool copied = false;               // it serves problems in padded copies of their operands too,
  std::vector<int64_t> grains = {};  // made by these (GEMM: sizes are multiples of them)

  // A field of the signature or the schedule by its name: "forward", "128", "[384,128]", "true"; empty: it has none.
  std::string field(const std::string &name) const {
    const std::string value = detail::member(signature, name);
    return value.empty() ? detail::member(schedule, name) : value;
  }
  // The numbers of a field: {384, 128} of a tile, {2} of a number of stages; empty where it has none, or words.
  std::vector<int64_t> numbers(const std::string &name) const {
    const std::string text = field(name);
    std::vector<int64_t> all;
    if (text.find_first_not_of("[]-0123456789,") != std::string::npos) return all;
    for (const char *at = text.c_str(); *at;) {
      char *end = nullptr;
      const long long number = std::strtoll(at, &end, 10);
      if (end != at) all.push_back(number);
      at = end != at ? end : at + 1;
    }
    return all;
  }
};

// A handle: copies are the same registry, and what would move one copies it, so that none is empty.
class Registry {
 public:
  Registry(const Registry &) = default;
  Registry &operator=(const Registry &) = default;
  // `target` is an arch, such as "x86_64_v3"; empty: that of the first registry that is added.
  explicit Registry(const std::string &target = "") {
    detail::demand_runtime();
    tw_registry *made = nullptr;
    detail::demand(tw_registry_new(target.c_str(), &made));
    registry_.reset(made, tw_registry_free);
  }
  // A registry of a folder or file that `Registry.export()` of Python wrote, or of a bundle.
  static Registry open(const std::string &path) { return std::move(Registry().add(path)); }
  // The same for a target: an arch, or "cpu", "cuda" or "hip" for what this CPU or the current device runs best.
  static Registry open(const std::string &path, const std::string &target) {
    return std::move(Registry(target).add(path));
  }

  // A library of kernels, a registry's JSON file, or a folder of either.
  Registry &add(const std::string &path) & { return detail::demand(tw_registry_add(get(), path.c_str())), *this; }
  Registry &&add(const std::string &path) && { return std::move(static_cast<Registry &>(*this).add(path)); }
  Registry &add_json(const std::string &text, const std::string &folder = ".") {
    return detail::demand(tw_registry_add_json(get(), text.data(), int64_t(text.size()), folder.c_str())), *this;
  }
  std::string json() const {
    const char *text = nullptr;
    detail::demand(tw_registry_json(get(), &text));
    return text;
  }

  std::string target() const { return tw_registry_target(get()); }
  int64_t size() const { return tw_registry_count(get()); }
  KernelKey kernel(int64_t index) const {
    const tw_entry found = entry(index);
    KernelKey key{index,         found.digest,        found.name,          found.op,
                  found.arch,    found.signature,     found.schedule,      found.spec,
                  found.library, found.fallback != 0, found.estimated != 0};
    key.copied = found.grains != nullptr;
    if (key.copied) key.grains.assign(found.grains, found.grains + found.grain_count);
    return key;
  }
  std::vector<KernelKey> kernels() const {
    return filter([](const KernelKey &) { return true; });
  }
  std::vector<KernelKey> filter(const std::function<bool(const KernelKey &)> &wanted) const {
    std::vector<KernelKey> some;
    for (int64_t index = 0; index < size(); ++index) {
      KernelKey key = kernel(index);
      if (wanted(key)) some.push_back(std::move(key));
    }
    return some;
  }
  // By the digest or at least its first eight digits; an index of -1 where there is none.
  KernelKey find(const std::string &digest) const {
    const int64_t index = tw_registry_find(get(), digest.c_str());
    return index < 0 ? KernelKey{} : kernel(index);
  }
  // The kernels of a problem's signature; of one of several stages, those of the first.
  template <class Problem> std::vector<KernelKey> matching(const Problem &problem) const {
    problem.check();
    return matching(problem.stages().at(0));
  }
  std::vector<KernelKey> matching(const Described &described) const {
    std::vector<KernelKey> some;
    for (int64_t index = 0; index < size(); ++index) {
      const tw_entry found = entry(index);
      if (described.op == found.op && described.signature == found.signature) some.push_back(kernel(index));
    }
    return some;
  }

  // The entry points of a kernel, its library loaded now if need be.
  const tw_kernel &load(int64_t index) const {
    const tw_kernel *kernel = nullptr;
    detail::demand(tw_registry_kernel(get(), index, &kernel));
    return *kernel;
  }
  tw_registry *get() const { return registry_.get(); }

 private:
  tw_entry entry(int64_t index) const {  // its texts are the registry's
    tw_entry found{};
    found.size = sizeof found;
    return detail::demand(tw_registry_entry(get(), index, &found)), found;
  }

  std::shared_ptr<tw_registry> registry_;  // plans keep it alive
};

// Reads every byte of a bundle, as `tilewright bundle check` does: how many files there are, or an error that names the
// one that was changed.
inline int64_t check_bundle(const std::string &path) {
  int64_t files = 0;
  detail::demand(tw_bundle_check(path.c_str(), &files));
  return files;
}

}  // namespace tw
