#include "bundle.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <mutex>

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

// The checksum of ZIP.
uint32_t crc32(const std::string &data) {
  static const std::array<uint32_t, 256> of_byte = [] {
    std::array<uint32_t, 256> accum{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t sum = byte;
      for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
      accum[byte] = sum;
    }
    return accum;
  }();
  uint32_t sum = ~0u;
  for (const char each : data) sum = sum >> 8 ^ of_byte[(sum ^ static_cast<unsigned char>(each)) & 0xff];
  return ~sum;
}

void put(std::string &to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i, value >>= 8) to += char(value & 0xff);
}
// What a local and a central header of `tilewright bundle build` share, from the version that is needed to extract it.
std::string shared_fields(uint32_t crc, uint64_t bytes, uint64_t name) {
  constexpr uint64_t kNeeds = 20, kDate = 33;
  std::string fields;
  put(fields, kNeeds, 2), put(fields, 0, 2), put(fields, 0, 2), put(fields, 0, 2), put(fields, kDate, 2);
  put(fields, crc, 4), put(fields, bytes, 4), put(fields, bytes, 4), put(fields, name, 2), put(fields, 0, 2);
  return fields;
}

[[noreturn]] void damaged(const std::string &path, const std::string &why) {
  throw bad_machine("bundle-damaged", path, path + ": " + why, "copy or build the bundle again");
}

}  // namespace

bool in_bundle(const std::string &path) { return path.find(kMark) != std::string::npos; }
std::string bundle_of(const std::string &path) { return path.substr(0, path.find(kMark) + 4); }
std::string file_in_bundle(const std::string &path) { return path.substr(path.find(kMark) + sizeof kMark - 1); }

std::shared_ptr<const Bundle> Bundle::open(const std::string &path) {
  static std::mutex lock;
  static std::map<std::string, std::weak_ptr<const Bundle>> known;
  std::lock_guard<std::mutex> held(lock);
  if (const std::shared_ptr<const Bundle> bundle = known[path].lock()) return bundle;
  const auto bundle = std::make_shared<const Bundle>(path);
  known[path] = bundle;
  return bundle;
}

Bundle::Bundle(const std::string &path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status{};
  if (file_ < 0 || fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (file_ >= 0) close(file_);
    throw bad_request("bundle-file", path, path + " cannot be read",
                      "give a file that `tilewright bundle build` wrote");
  }
  size_ = uint64_t(status.st_size);
  try {
    read_directory();
  } catch (...) {
    close(file_);
    throw;
  }
}

Bundle::~Bundle() { close(file_); }

std::string Bundle::bytes_at(uint64_t at, uint64_t bytes) const {
  if (at > size_ || bytes > size_ - at) damaged(path_, "an entry is cut off");
  std::string data(size_t(bytes), '\0');
  for (size_t done = 0; done < data.size();) {
    const ssize_t more = pread(file_, &data[done], data.size() - done, off_t(at + done));
    if (more <= 0) damaged(path_, "it cannot be read whole");
    done += size_t(more);
  }
  return data;
}

void Bundle::read_directory() {
  // The end of the central directory is the last record; our bundles have no comment behind it.
  constexpr uint64_t kEnd = 22, kEntry = 46, kLocal = 30;
  if (size_ < kEnd) damaged(path_, "it does not end as a ZIP file does");
  const uint64_t end = size_ - kEnd;
  const std::string last = bytes_at(end, kEnd);
  if (little(last, 0, 4) != 0x06054b50) damaged(path_, "it does not end as a ZIP file does");
  const uint64_t count = little(last, 10, 2), start = little(last, 16, 4);
  if (start > end) damaged(path_, "its directory is broken");
  const std::string directory = bytes_at(start, end - start);
  size_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (at + kEntry > directory.size() || little(directory, at, 4) != 0x02014b50)
      damaged(path_, "its directory is broken");
    const uint64_t method = little(directory, at + 10, 2), bytes = little(directory, at + 24, 4),
                   name = little(directory, at + 28, 2), local = little(directory, at + 42, 4);
    const uint64_t more = little(directory, at + 30, 2) + little(directory, at + 32, 2);
    if (at + kEntry + name > directory.size() || local + kLocal > end) damaged(path_, "its directory is broken");
    if (method != 0 || little(directory, at + 20, 4) != bytes) damaged(path_, "an entry is compressed");
    const std::string head = bytes_at(local, kLocal);
    const uint64_t first = local + kLocal + little(head, 26, 2) + little(head, 28, 2);
    if (first > end || bytes > end - first) damaged(path_, "an entry is cut off");
    const std::string text = directory.substr(at + kEntry, name);
    if (!places_.emplace(text, Place{first, bytes}).second) damaged(path_, text + " is in it twice");
    // The only file that no digest is known of.
    if (text == "manifest.json" && crc32(stored(text)) != little(directory, at + 16, 4))
      throw bad_machine("bundle-digest", text, path_ + ": " + text + " was changed: its checksum differs",
                        "copy or build the bundle again");
    at += kEntry + name + more;
  }
  manifest_ = Json::parse(stored("manifest.json"), path_ + ", manifest.json");
  const Json *format = manifest_.find("format");
  if (!format || format->text("its format") != "tilewright-bundle") damaged(path_, "it is no bundle");
  const int64_t version = manifest_.at("version", path_).integer("its version");
  if (version != 1)
    throw bad_request("bundle-version", std::to_string(version),
                      path_ + " is of version " + std::to_string(version) + ", and this runtime reads 1",
                      "build it again, or use the runtime of the release that built it");
}

std::string Bundle::stored(const std::string &name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) damaged(path_, "it has no file " + name);
  return bytes_at(place->second.at, place->second.bytes);
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
  check_headers();
  return int64_t(files.size());
}

// What lies between and behind the files is what `tilewright bundle build` writes there.
void Bundle::check_headers() const {
  constexpr uint64_t kCreatedBy = 788, kMode = 0x81a40000;
  std::string central;
  uint64_t at = 0;
  const auto demand_next = [&](const std::string &expected) {
    if (bytes_at(at, expected.size()) != expected) damaged(path_, "its directory was changed after it was written");
    at += expected.size();
  };
  for (const auto &place : places_) {
    const std::string fields = shared_fields(crc32(stored(place.first)), place.second.bytes, place.first.size());
    central += "PK\1\2", put(central, kCreatedBy, 2), central += fields;
    put(central, 0, 2), put(central, 0, 2), put(central, 0, 2), put(central, kMode, 4), put(central, at, 4);
    central += place.first;
    demand_next("PK\3\4" + fields + place.first);
    at += place.second.bytes;
  }
  std::string end = "PK\5\6";
  put(end, 0, 4), put(end, places_.size(), 2), put(end, places_.size(), 2), put(end, central.size(), 4),
      put(end, at, 4);
  put(end, 0, 2);
  demand_next(central), demand_next(end);
  if (at != size_) damaged(path_, std::to_string(size_ - at) + " bytes follow its end");
}

std::string Bundle::target(const std::string &wanted) const {
  std::vector<std::string> targets;
  for (const auto &target : manifest_.at("targets", "the manifest").members("targets")) targets.push_back(target.first);
  const std::string best = best_of(targets, wanted);
  if (best.empty())
    throw bad_request("bundle-target", wanted, path_ + " has kernels for " + others_than(targets, wanted),
                      "name one of its targets, or build a bundle for this one");
  return best;
}

std::string Bundle::registry(const std::string &target) const {
  return manifest_.at("targets", "the manifest").at(target, "targets").at("registry", target).text("its registry");
}

}  // namespace runtime
}  // namespace tw
