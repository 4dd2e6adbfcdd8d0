// Shared libraries: of kernels (tw_kernels) and of selection (tw_select_ask), checked before anything is called.
#pragma once
#include <tilewright/abi.h>
#include <tilewright/select/library.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "json.hpp"

namespace tw {
namespace runtime {

class SharedLibrary {
 public:
  explicit SharedLibrary(const std::string &path);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary &) = delete;
  SharedLibrary &operator=(const SharedLibrary &) = delete;
  const std::string &path() const { return path_; }
  void *symbol(const char *name) const;  // null where there is none

 private:
  void open(const std::string &place);
  void open_bytes(const std::string &bytes);
  std::string path_;
  void *handle_;
  int file_ = -1;  // in memory, of a library in a bundle
};

// The kernels of a library, and their specs as its manifests say.
struct KernelLibrary {
  explicit KernelLibrary(const std::string &path);
  SharedLibrary file;
  struct Item {
    const tw_kernel *kernel;
    Json spec;
  };
  std::vector<Item> kernels;
};

// A selection library: what it calls the numbers it takes, and the question itself.
struct SelectionLibrary {
  explicit SelectionLibrary(const std::string &path);
  SharedLibrary file;
  struct Family {
    int64_t number;
    std::vector<std::string> fields;
  };
  std::vector<std::string> problem, arch, rates;
  std::map<std::string, Family> families;
  void (*ask)(selection::Question *question);

  // What learned models see of a problem, and of it with some kernels (select/features.h); null of ops that have none.
  double (*problem_features)(const void *problem, const double *rough, float *of_problem) = nullptr;
  void (*kernel_features)(const void *problem, const void *terms, int64_t count, int64_t units, const int64_t *places,
                          int64_t some, double *of_both) = nullptr;
  int64_t of_problem = 0, of_both = 0;  // how many
  std::vector<std::string> of_terms;    // rows of each of the kernels' terms, with a ? behind those that may be missing
};

}  // namespace runtime
}  // namespace tw
