// Bundles: one ZIP file with stored entries only, and a manifest that has the digest of every other file.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "json.hpp"

namespace tw {
namespace runtime {

// Only what is needed is read.  The file stays open, so that one put in its place later changes nothing.
class Bundle {
 public:
  explicit Bundle(const std::string &path);
  ~Bundle();
  Bundle(const Bundle &) = delete;
  Bundle &operator=(const Bundle &) = delete;
  // One that somebody still holds, or else opened now.
  static std::shared_ptr<const Bundle> open(const std::string &path);
  // The bytes of a file, once their digest is what the manifest says.
  std::string file(const std::string &name) const;
  // Every byte: of the files, their digests and that none is there of which the manifest says nothing, and of what lies
  // between them.  How many files there are.
  int64_t check() const;
  // The requested target, the best that a GPU runs (cuda or hip) or, of an empty one, that this CPU does.
  std::string target(const std::string &wanted) const;
  std::string registry(const std::string &target) const;  // the name of its file

 private:
  struct Place {
    uint64_t at, bytes;
  };
  std::string stored(const std::string &name) const;
  std::string bytes_at(uint64_t at, uint64_t bytes) const;
  void read_directory();
  void check_headers() const;
  std::string path_;
  int file_;
  uint64_t size_ = 0;
  std::map<std::string, Place> places_;
  Json manifest_;
};

// A file of a bundle has the path BUNDLE!/FILE: these say whether a path is such, and its parts.
bool in_bundle(const std::string &path);
std::string bundle_of(const std::string &path);
std::string file_in_bundle(const std::string &path);

}  // namespace runtime
}  // namespace tw
