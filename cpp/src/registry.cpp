#include "registry.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "bundle.hpp"
#include "device.hpp"
#include "failure.hpp"
#include "host.hpp"
#include "sha256.hpp"

namespace tw {
namespace runtime {
namespace {

constexpr size_t kMostBytes = size_t(256) << 20;

bool is_folder(const std::string &path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}
bool exists(const std::string &path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0;
}
bool is_file(const std::string &path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}
bool ends_with(const std::string &text, const std::string &end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string content(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (is_file(path) && file && file.peek() == std::ifstream::traits_type::eof())
    throw bad_request("registry-file", path, path + " is empty", "give a file that Registry.export() wrote");
  if (!is_file(path) || !(text << file.rdbuf()) || text.str().size() > kMostBytes)
    throw bad_request("registry-file", path, path + " cannot be read", "give a file that Registry.export() wrote");
  return text.str();
}

// Where a file that a registry names is; a library of this process has an absolute path whatever the current folder.
std::string placed(const std::string &folder, const std::string &file) {
  const std::string path = file.empty() || file[0] == '/' ? file : folder + "/" + file;
  char whole[PATH_MAX];
  return realpath(path.c_str(), whole) ? whole : path;
}

bool is_backend(const std::string &target) { return target == "cpu" || target == "cuda" || target == "hip"; }
bool run_by_a_device(const std::string &arch, const std::string &backend) {
  if (backend == "cpu") return cpu_level(arch) >= 0;  // whether this one runs it is said when a kernel is loaded
  const std::vector<std::string> archs = archs_run_by(Device(backend, -1).facts().arch);
  return std::find(archs.begin(), archs.end(), arch) != archs.end();
}

// Whether measurements were made on machines like this, in the words that they have; each machine is compared once.
class Machines {
 public:
  bool same(const Json &machine, const std::string &arch) {
    const auto known = known_.emplace(arch + '\n' + machine.written(), false);
    if (known.second) {
      Json devices = Json::list();
      devices.push(machine);
      known.first->second = knows_device(devices, arch);
    }
    return known.first->second;
  }

 private:
  std::map<std::string, bool> known_;
};

// A file that a registry names, of a folder or of a bundle.
std::string file_bytes(const std::string &path) {
  return in_bundle(path) ? Bundle::open(bundle_of(path))->file(file_in_bundle(path)) : content(path);
}

std::string key_of(const std::string &op, const std::string &signature) { return op + '\n' + signature; }

std::string all(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

// Where the digits of a registry's own digest begin in its text; npos where it has none.
size_t digest_place(const std::string &text) {
  static const std::string name = "\"registry_sha256\"";
  const auto behind = [&](size_t at, char c) {
    at = at < text.size() ? text.find_first_not_of(" \t\r\n", at) : at;
    return at < text.size() && text[at] == c ? at + 1 : text.size();
  };
  const size_t at = text.find(name);
  if (at == std::string::npos) return at;
  const size_t place = behind(behind(at + name.size(), ':'), '"');
  return place + 64 <= text.size() ? place : std::string::npos;
}

// Selection computes with the numbers as they stand: a text that is not as it was written is refused whole.
void demand_as_written(const std::string &text, const std::string &what) {
  const size_t at = digest_place(text);
  if (at == std::string::npos)
    throw bad_request("registry-digest", what, what + " has no digest of itself: it was cut, or written by hand",
                      "write it with Registry.export() or Registry.to_json(), of this release");
  if (sha256_hex(text.substr(0, at) + text.substr(at + 64)) != text.substr(at, 64))
    throw bad_machine("registry-digest", what, what + " was changed since it was written: its digest is another",
                      "export the registry again");
}

void demand_names(const std::vector<std::string> &names, const Json &values, const std::string &what) {
  bool same = values.members(what).size() == names.size();
  for (const std::string &name : names) same = same && values.find(name);
  if (same) return;
  throw bad_request("selection-names", what,
                    "the selection library takes " + all(names) + " of " + what + ", and gets others",
                    "export the registry and its selection library together, with one release of Tilewright");
}

// Numbers go to selection as they stand, which divides by some: one that no export writes is refused.
void demand_number(const std::string &what, const std::string &name, int64_t number, int64_t least) {
  if (number >= least && number <= selection::kMostNumber) return;
  throw bad_machine("registry-number", name,
                    name + " of " + what + " is " + std::to_string(number) + ", and must be from " +
                        std::to_string(least) + " to " + std::to_string(selection::kMostNumber),
                    "write the registry's JSON again: it was changed");
}

}  // namespace

const Entry &Registry::entry(int64_t index) const {
  if (index < 0 || index >= count())
    throw bad_request("kernel-index", std::to_string(index),
                      "there is no kernel " + std::to_string(index) + ": the registry has " + std::to_string(count()),
                      count() ? "use an index from 0 to " + std::to_string(count() - 1) : "add kernels first");
  return entries_[size_t(index)];
}

int64_t Registry::find(const std::string &digest) const {
  const auto known = by_digest_.find(digest);
  if (known != by_digest_.end()) return known->second;
  int64_t place = -1;
  for (int64_t at = 0; at < count() && digest.size() >= 8; ++at) {
    if (entries_[size_t(at)].digest.compare(0, digest.size(), digest) != 0) continue;
    if (place >= 0) return -1;
    place = at;
  }
  return place;
}

void Registry::add(const std::string &path) {
  if (is_folder(path)) add_folder(path);
  else if (ends_with(path, ".twb")) add_bundle(placed(".", path));
  else if (ends_with(path, ".json"))
    add_json(content(path), path.find('/') == std::string::npos ? "." : path.substr(0, path.find_last_of('/')), path);
  else if (is_file(path) || ends_with(path, ".so")) add_library(path);
  else
    throw bad_request(
        "registry-path", path,
        exists(path) ? path + " is neither a file nor a folder" : "there is no file or folder '" + path + "'",
        "give a folder or JSON file that Registry.export() wrote, a bundle, or a library of kernels");
}

void Registry::add_folder(const std::string &path) {
  if (is_file(path + "/registry.json")) return add(path + "/registry.json");
  std::vector<std::string> libraries, archs;
  if (DIR *folder = opendir(path.c_str())) {
    while (const dirent *item = readdir(folder)) {
      const std::string name = item->d_name;
      if (ends_with(name, ".so")) libraries.push_back(path + "/" + name);
      if (name[0] != '.' && is_file(path + "/" + name + "/registry.json")) archs.push_back(name);
    }
    closedir(folder);
  }
  if (libraries.empty() && !archs.empty()) return add_archs(path, std::move(archs));
  if (libraries.empty())
    throw bad_request("registry-folder", path, path + " holds neither a registry.json nor libraries",
                      "give a folder that Registry.export() wrote, or one of built libraries");
  std::sort(libraries.begin(), libraries.end());
  for (const std::string &library : libraries) add_library(library);
}

// A folder with one for each arch, as `tilewright_add_kernels` builds it, is opened as a bundle is.
void Registry::add_archs(const std::string &path, std::vector<std::string> archs) {
  std::sort(archs.begin(), archs.end());
  const std::string best = best_of(archs, target_);
  if (best.empty())
    throw bad_request("registry-target", target_, path + " has kernels for " + others_than(archs, target_),
                      "name one of these archs, or build kernels for this one");
  add(path + "/" + best + "/registry.json");
}

void Registry::add_bundle(const std::string &path) {
  bundles_.push_back(Bundle::open(path));
  const Bundle &bundle = *bundles_.back();
  const std::string target = bundle.target(target_), name = bundle.registry(target);
  if (is_backend(target_)) target_ = target;
  add_json(bundle.file(name), path + "!", path + ", " + name, true);
}

void Registry::add_library(const std::string &path) {
  const std::shared_ptr<KernelLibrary> library = load(placed(".", path));
  for (const KernelLibrary::Item &item : library->kernels) {
    Json json = Json::object(), spec = item.spec;
    const std::string text = spec.written(), digest = sha256_hex(text);
    const std::string op = spec.at("op", "a spec").text("its op");
    json.set("digest", Json(digest));
    json.set("name", Json(op + "_" + digest.substr(0, 8)));
    json.set("op", Json(op));
    json.set("library", Json(library->file.path()));
    json.set("fallback", Json(false));
    json.set("selection", Json());
    json.set("spec", std::move(spec));
    add_entry(json, "", Json());
  }
  adopt(*library);
  settle();
}

void Registry::add_json(const std::string &text, const std::string &folder, const std::string &what, bool compared) {
  const Json whole = Json::parse(text, what);
  const Json *format = whole.find("format");
  if (!format || format->text("its format") != "tilewright-registry")
    throw bad_request("registry-json", what, what + " is no registry's JSON", "give what Registry.to_json() wrote");
  const int64_t version = whole.at("version", what).integer("its version");
  if (version != 1)
    throw bad_request("registry-json-version", std::to_string(version),
                      what + " is of version " + std::to_string(version) + ", and this runtime reads 1",
                      "write it again, or use the runtime of the release that wrote it");
  if (!compared) demand_as_written(text, what);
  const std::string target = whole.at("target", what).text("its target");
  if (target_.empty() || (is_backend(target_) && run_by_a_device(target, target_))) target_ = target;
  if (target != target_)
    throw bad_request("registry-target", target, what + " is of " + target + ", and this registry of " + target_,
                      "open it as one of " + target + ", or export kernels for " + target_);
  const Json &shared = whole.at("selection", what);
  for (const auto &set : shared.members("selection")) add_set(set.first, set.second, folder);
  for (const Json &entry : whole.at("kernels", what).items("kernels")) add_entry(entry, folder, shared);
  if (const Json *rows = whole.find("choices"))
    for (const Json &row : rows->items("choices")) pinned_.push_back(row);
  if (const Json *rows = whole.find("models")) add_models(*rows, folder);
  if (const Json *units = whole.find("compute_units")) units_ = units->integer("compute_units");
  settle();
}

// Models of other devices are kept for writing, and not read.
void Registry::add_models(const Json &rows, const std::string &folder) {
  for (const Json &row : rows.items("models")) {
    const std::string path = placed(folder, row.at("file", "a model").text("its file"));
    const bool known = knows_device(row.at("devices", "a model"), target_);
    at_hand_.push_back(known ? read_model(row, file_bytes(path)) : nullptr);
    Json kept = Json::object();
    for (const auto &member : row.members("a model"))
      kept.set(member.first, member.first == "file" ? Json(path) : member.second);
    models_.push_back(std::move(kept));
  }
}

// The models that know the kernels of a signature: these, in this order, and no others.
void Registry::settle_models() {
  for (size_t at = 0; at < models_.size(); ++at) {
    if (!at_hand_[at]) continue;
    const std::string op = models_[at].at("op", "a model").text("its op");
    for (const Json &listed : models_[at].at("groups", "a model").items("groups")) {
      const auto known = groups_.find(key_of(op, listed.at("signature", "a model").written()));
      if (known == groups_.end() || !known->second.library || !known->second.library->kernel_features) continue;
      const std::vector<Json> &digests = listed.at("kernels", "a model").items("kernels");
      bool same = digests.size() == known->second.kernels.size();
      for (size_t i = 0; same && i < digests.size(); ++i)
        same = digests[i].text("a digest") == entries_[size_t(known->second.kernels[i])].digest;
      if (!same) continue;
      known->second.voices.push_back(read_voice(*at_hand_[at], *known->second.library, listed));
      ++choices_;
    }
  }
}

void Registry::add_set(const std::string &name, const Json &shared, const std::string &folder) {
  if (selections_.count(name)) return;
  const Json &file = shared.at("library", name);
  if (file.is_null()) return;  // its kernels are known, and nothing estimates them
  const std::string path = placed(folder, file.text("a selection library"));
  auto library = std::make_unique<SelectionLibrary>(path);
  std::vector<std::string> fields;
  for (const Json &field : shared.at("problem", name).items("problem")) fields.push_back(field.text("a name"));
  if (fields != library->problem)
    throw bad_request("selection-names", name,
                      "the selection library " + name + " takes problems otherwise than the registry says",
                      "export the registry and its selection library together");
  selections_[name] = std::move(library);
  Json kept = Json::object();
  for (const auto &member : shared.members(name))
    kept.set(member.first, member.first == "library" ? Json(path) : member.second);
  sets_[name] = std::move(kept);
}

const int64_t *Registry::integers(const std::vector<std::string> &names, const Json &values, const std::string &what) {
  demand_names(names, values, what);
  integers_.emplace_back();
  for (const std::string &name : names) {
    const int64_t number = values.find(name)->integer(name), least = selection::least_number(name.c_str());
    demand_number(what, name, number, least);
    integers_.back().push_back(number);
  }
  return integers_.back().data();
}

const double *Registry::reals(const std::vector<std::string> &names, const Json &values, const std::string &what) {
  demand_names(names, values, what);
  reals_.emplace_back();
  for (const std::string &name : names) {
    const double number = values.find(name)->real(name);
    if (!std::isfinite(number))
      throw bad_machine("registry-number", name, name + " of " + what + " is no finite number",
                        "write the registry's JSON again: it was changed");
    reals_.back().push_back(number);
  }
  return reals_.back().data();
}

void Registry::add_entry(const Json &json, const std::string &folder, const Json &shared) {
  Entry entry;
  const std::string what = "a kernel of a registry";
  const Json &spec = json.at("spec", what);
  entry.digest = json.at("digest", what).text("its digest");
  entry.name = json.at("name", what).text("its name"), entry.op = json.at("op", what).text("its op");
  entry.arch = spec.at("arch", "a spec").text("its arch"), entry.spec = spec.written();
  entry.signature = spec.at("signature", "a spec").written(), entry.schedule = spec.at("schedule", "a spec").written();
  if (sha256_hex(entry.spec) != entry.digest)
    throw bad_machine("registry-digest", entry.name, entry.name + " has another digest than its entry says",
                      "write the registry's JSON again: it was changed");
  if (by_digest_.count(entry.digest)) return;
  const Json *fallback = json.find("fallback"), *file = json.find("library"), *numbers = json.find("selection");
  entry.fallback = fallback && fallback->boolean("fallback");
  if (const Json *grains = json.find("copies"))
    if (!grains->is_null()) {
      entry.copied = true, entry.grains.reserve(1);  // a place of its own even where there are none
      for (const Json &grain : grains->items("copies")) entry.grains.push_back(grain.integer("a grain"));
      for (int64_t grain : entry.grains) demand_number(entry.name, "a grain of copies", grain, 0);
    }
  if (file && !file->is_null()) entry.library = placed(folder, file->text("library"));
  if (numbers && !numbers->is_null()) {
    const std::string set = numbers->at("set", entry.name).text("set"),
                      family = numbers->at("family", entry.name).text("family");
    const auto library = selections_.find(set);
    if (library != selections_.end() && library->second->families.count(family)) {
      const SelectionLibrary &native = *library->second;
      const std::string arch = numbers->at("arch", entry.name).text("arch"), key = set + '\n' + arch;
      if (!archs_.count(key)) {
        const Json &facts = shared.at(set, "selection");
        archs_[key] = {integers(native.arch, facts.at("arch", set).at(arch, set), "an arch"),
                       reals(native.rates, facts.at("rates", set).at(arch, set), "rates")};
      }
      const SelectionLibrary::Family &its = native.families.at(family);
      entry.set = set;
      entry.candidate = {its.number, integers(its.fields, numbers->at("schedule", entry.name), family),
                         archs_[key].first, archs_[key].second};
    }
  }
  Json kept = Json::object();
  for (const auto &member : json.members(what))
    kept.set(member.first, member.first == "library" && !entry.library.empty() ? Json(entry.library) : member.second);
  entry.json = std::move(kept);
  by_digest_[entry.digest] = count();
  entries_.push_back(std::move(entry));
}

void Registry::settle() {
  ++generation_;
  groups_.clear();
  for (int64_t at = 0; at < count(); ++at) {
    Group &group = groups_[key_of(entries_[size_t(at)].op, entries_[size_t(at)].signature)];
    (entries_[size_t(at)].fallback ? group.fallbacks : group.kernels).push_back(at);
  }
  for (auto &known : groups_) {
    Group &group = known.second;
    std::vector<int64_t> &every = group.every = group.kernels;
    every.insert(every.end(), group.fallbacks.begin(), group.fallbacks.end());
    std::vector<int64_t> sorted = every;
    std::sort(sorted.begin(), sorted.end(),
              [&](int64_t a, int64_t b) { return entries_[size_t(a)].digest < entries_[size_t(b)].digest; });
    for (int64_t at : every) {
      const Entry &entry = entries_[size_t(at)];
      const SelectionLibrary *const mine = entry.set.empty() ? nullptr : selections_.at(entry.set).get();
      if (mine && group.library && mine != group.library)
        throw bad_machine(
            "registry-set", entry.name,
            entry.name + " is of the selection library " + entry.set + ", and another kernel of its signature is not",
            "write the registry's JSON again: it was changed");
      if (mine) group.library = mine;
      group.candidates.push_back(entry.set.empty() ? selection::Candidate{-1, nullptr, nullptr, nullptr}
                                                   : entry.candidate);
      group.order.push_back(std::find(sorted.begin(), sorted.end(), at) - sorted.begin());
    }
  }
  settle_choices();
  settle_models();
}

std::string choice_key(const int64_t *numbers, size_t count, int64_t threads) {
  std::string key(reinterpret_cast<const char *>(&threads), sizeof threads);
  return key.append(reinterpret_cast<const char *>(numbers), count * sizeof *numbers);
}

// Pins, and measurements of a machine like this one.
void Registry::settle_choices() {
  choices_ = 0;
  Machines machines;
  for (const Json &row : pinned_) {
    const std::string what = "a choice", tier = row.at("tier", what).text("its tier");
    const auto kernel = by_digest_.find(row.at("digest", what).text("its digest"));
    const auto group = groups_.find(key_of(row.at("op", what).text("its op"), row.at("signature", what).written()));
    if (kernel == by_digest_.end() || group == groups_.end()) continue;
    const bool locked = tier == "locked";
    if (!locked &&
        (tier != "measured" || !machines.same(row.at("machine", what), entries_[size_t(kernel->second)].arch)))
      continue;
    std::vector<int64_t> numbers;
    for (const Json &number : row.at("numbers", what).items("numbers")) numbers.push_back(number.integer("a number"));
    const int64_t threads = locked ? -1 : row.at("threads", what).integer("threads");
    group->second.choices[choice_key(numbers.data(), numbers.size(), threads)] = {
        kernel->second, locked ? TW_TIER_LOCKED : TW_TIER_MEASURED, row.at("seconds", what).real("seconds")};
    ++choices_;
    const Json *family = row.find("family");
    if (locked && family && !family->text("its family").empty())
      group->second.families[family->text("its family")].push_back(kernel->second);
  }
}

// What the kernels at hand have that differ the least in their signature, for people; of several the first at hand.
std::string Registry::nearest(const tw_problem &problem) const {
  const Json wanted = Json::parse(problem.signature, "a signature");
  std::map<std::string, std::string> fields;
  for (const auto &member : wanted.members("a signature")) fields[member.first] = member.second.written();
  std::string said;
  std::pair<size_t, int64_t> least{SIZE_MAX, 0};
  for (const auto &known : groups_) {
    const int64_t first = known.second.every.front();
    const Entry &entry = entries_[size_t(first)];
    if (entry.op != problem.op) continue;
    const Json &has = entry.json.at("spec", entry.name).at("signature", "a spec");
    std::string words;
    size_t differ = 0;
    for (const auto &field : fields) {
      const Json *other = has.find(field.first);
      const std::string value = other ? other->written() : "none";
      if (value == field.second) continue;
      words += (differ++ ? ", " : "") + field.first + " " + value + " in place of " + field.second;
    }
    if (std::make_pair(differ, first) < least) least = {differ, first}, said = words;
  }
  return said.empty() ? "" : "; the nearest has " + said;
}

const Group &Registry::group(const tw_problem &problem) const {
  static thread_local std::string key;  // as key_of, and its memory is kept
  key.assign(problem.op).push_back('\n');
  const auto known = groups_.find(key.append(problem.signature));
  if (known != groups_.end()) return known->second;
  int64_t same = 0;
  for (const Entry &entry : entries_) same += entry.op == problem.op;
  throw bad_request("no-kernel", problem.signature,
                    "no kernel for " + std::string(problem.text) + ": no kernel of " + problem.op +
                        " in the registry (" + std::to_string(same) + ") has its signature " + problem.signature +
                        nearest(problem),
                    "export kernels of this signature (tilewright specs lists them), or make the bundle with such a "
                    "problem too");
}

std::shared_ptr<KernelLibrary> Registry::load(const std::string &path) {
  const auto known = libraries_.find(path);
  if (known != libraries_.end()) return known->second;
  auto library = std::make_shared<KernelLibrary>(path);
  libraries_[path] = library;
  return library;
}

void Registry::adopt(const KernelLibrary &library) {
  for (const KernelLibrary::Item &item : library.kernels) {
    const auto known = by_digest_.find(sha256_hex(item.spec.written()));
    if (known != by_digest_.end()) entries_[size_t(known->second)].kernel = item.kernel;
  }
}

const tw_kernel *Registry::kernel(int64_t index) {
  const Entry &wanted = entry(index);
  std::lock_guard<std::mutex> held(loading_);
  if (!cpu_runs(wanted.arch))
    throw bad_machine("arch-not-here", wanted.arch,
                      wanted.name + " is for " + wanted.arch + ", which this CPU does not run",
                      "use a registry of an arch that it runs; generic runs everywhere");
  if (wanted.kernel) return wanted.kernel;
  if (wanted.library.empty())
    throw bad_request("kernel-library", wanted.name, wanted.name + " is not built: the registry names no library of it",
                      "build it (Registry.export() in Python builds all of a registry)");
  adopt(*load(wanted.library));
  if (!wanted.kernel)
    throw bad_machine("kernel-library", wanted.library, wanted.library + " does not hold " + wanted.name,
                      "export the registry again");
  return wanted.kernel;
}

std::string Registry::json() const {
  Json whole = Json::object(), kernels = Json::list(), sets = Json::object();
  for (const Entry &entry : entries_) kernels.push(entry.json);
  for (const auto &set : sets_) sets.set(set.first, set.second);
  whole.set("format", Json(std::string("tilewright-registry")));
  whole.set("version", Json(int64_t(1)));
  whole.set("target", Json(target_));
  whole.set("kernels", std::move(kernels));
  whole.set("selection", std::move(sets));
  if (!pinned_.empty()) {
    Json rows = Json::list();
    for (const Json &row : pinned_) rows.push(row);
    whole.set("choices", std::move(rows));
  }
  if (!models_.empty()) {
    Json rows = Json::list();
    for (const Json &row : models_) rows.push(row);
    whole.set("models", std::move(rows));
    if (units_) whole.set("compute_units", Json(units_));
  }
  whole.set("registry_sha256", Json(std::string()));
  std::string text = whole.written();
  const std::string digest = sha256_hex(text), mark = "\"registry_sha256\":\"";
  return text.insert(text.find(mark) + mark.size(), digest);
}

}  // namespace runtime
}  // namespace tw
