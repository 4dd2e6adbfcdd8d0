#include "bundle.hpp"

#include <cstdint>
#include <fstream>
#include <iterator>

#include "device.hpp"
#include "failure.hpp"
#include "host.hpp"
#include "sha256.hpp"

namespace tw {
namespace runtime {
namespace {

const char kMark[] = ".twb!/";

uint64_t little(const std::string &data, size_t at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(data[at + size_t(i)]);
  return value;
}

[[noreturn]] void damaged(const std::string &path, const std::string &why) {
  throw bad_machine("bundle-damaged", path, path + ": " + why, "copy or build the bundle again");
}

}  // namespace

bool in_bundle(const std::string &path) { return path.find(kMark) != std::string::npos; }
std::string bundle_of(const std::string &path) { return path.substr(0, path.find(kMark) + 4); }
std::string file_in_bundle(const std::string &path) { return path.substr(path.find(kMark) + sizeof kMark - 1); }

Bundle::Bundle(const std::string &path) : path_(path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw bad_request("bundle-file", path, path + " cannot be read",
                      "give a file that `tilewright bundle build` wrote");
  data_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  // The end of the central directory is the last record; our bundles have no comment behind it.
  constexpr size_t kEnd = 22, kEntry = 46;
  if (data_.size() < kEnd || little(data_, data_.size() - kEnd, 4) != 0x06054b50)
    damaged(path, "it does not end as a ZIP file does");
  const size_t end = data_.size() - kEnd;
  const uint64_t count = little(data_, end + 10, 2);
  uint64_t at = little(data_, end + 16, 4);
  for (uint64_t i = 0; i < count; ++i) {
    if (at + kEntry > end || little(data_, at, 4) != 0x02014b50) damaged(path, "its directory is broken");
    const uint64_t method = little(data_, at + 10, 2), bytes = little(data_, at + 24, 4),
                   name = little(data_, at + 28, 2);
    const uint64_t more = little(data_, at + 30, 2) + little(data_, at + 32, 2), local = little(data_, at + 42, 4);
    if (at + kEntry + name > end || local + 30 > end) damaged(path, "its directory is broken");
    if (method != 0 || little(data_, at + 20, 4) != bytes) damaged(path, "an entry is compressed");
    const uint64_t start = local + 30 + little(data_, local + 26, 2) + little(data_, local + 28, 2);
    if (start > end || bytes > end - start) damaged(path, "an entry is cut off");
    places_[data_.substr(at + kEntry, name)] = {start, bytes};
    at += kEntry + name + more;
  }
  manifest_ = Json::parse(stored("manifest.json"), path + ", manifest.json");
  const Json *format = manifest_.find("format");
  if (!format || format->text("its format") != "tilewright-bundle") damaged(path, "it is no bundle");
  const int64_t version = manifest_.at("version", path).integer("its version");
  if (version != 1)
    throw bad_request("bundle-version", std::to_string(version),
                      path + " is of version " + std::to_string(version) + ", and this runtime reads 1",
                      "build it again, or use the runtime of the release that built it");
}

std::string Bundle::stored(const std::string &name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) damaged(path_, "it has no file " + name);
  return data_.substr(place->second.at, place->second.bytes);
}

std::string Bundle::file(const std::string &name) const {
  const Json &facts = manifest_.at("files", "the manifest").at(name, "the files of the manifest");
  std::string bytes = stored(name);
  if (sha256_hex(bytes) != facts.at("sha256", name).text("its digest"))
    throw bad_machine("bundle-digest", name, path_ + ": " + name + " was changed: its digest is not the manifest's",
                      "copy or build the bundle again");
  return bytes;
}

int64_t Bundle::check() const {
  const Json::Members &files = manifest_.at("files", "the manifest").members("files");
  for (const auto &listed : files) file(listed.first);
  for (const auto &place : places_)
    if (place.first != "manifest.json" && !manifest_.at("files", "the manifest").find(place.first))
      damaged(path_, "its manifest does not name the file " + place.first);
  return int64_t(files.size());
}

std::string Bundle::target(const std::string &wanted) const {
  const Json &targets = manifest_.at("targets", "the manifest");
  std::string best, all;
  if (wanted == "cuda" || wanted == "hip")
    for (const std::string &arch : archs_run_by(Device(wanted, -1).facts().arch))
      if (best.empty() && targets.find(arch)) best = arch;
  for (const auto &target : targets.members("targets")) {
    all += (all.empty() ? "" : ", ") + target.first;
    const bool mine = wanted.empty() ? cpu_level(target.first) >= 0 && cpu_runs(target.first) : target.first == wanted;
    if (mine && (best.empty() || cpu_level(target.first) > cpu_level(best))) best = target.first;
  }
  if (best.empty())
    throw bad_request(
        "bundle-target", wanted,
        path_ + " has kernels for " + all + (wanted.empty() ? ", of which this CPU runs none" : ", not for " + wanted),
        "name one of its targets, or build a bundle for this one");
  return best;
}

std::string Bundle::registry(const std::string &target) const {
  return manifest_.at("targets", "the manifest").at(target, "targets").at("registry", target).text("its registry");
}

}  // namespace runtime
}  // namespace tw
