#include "library.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "bundle.hpp"
#include "failure.hpp"

namespace tw {
namespace runtime {
namespace {

std::string base_name(const std::string &path) { return path.substr(path.find_last_of('/') + 1); }

[[noreturn]] void untrusted(const std::string &path, const char *rule, const std::string &why) {
  throw bad_machine(rule, path, base_name(path) + ": " + why,
                    "build or export it again; it is damaged or is something else");
}

std::vector<std::string> words(const char *text) {
  std::istringstream stream(text ? text : "");
  std::vector<std::string> found;
  for (std::string word; stream >> word;) found.push_back(word);
  return found;
}

template <class Function> Function function(const SharedLibrary &file, const char *name) {
  void *place = file.symbol(name);
  if (!place) untrusted(file.path(), "exports", std::string("it does not export ") + name);
  return reinterpret_cast<Function>(place);
}

}  // namespace

SharedLibrary::SharedLibrary(const std::string &path) : path_(path), handle_(nullptr) {
  if (in_bundle(path)) {
    open_bytes(Bundle::open(bundle_of(path))->file(file_in_bundle(path)));
    return;
  }
  struct stat status;
  if (stat(path.c_str(), &status) != 0)
    throw bad_machine("library", path, "there is no library " + path, "export the registry again, or correct the path");
  if (!S_ISREG(status.st_mode)) untrusted(path, "library", "it is no regular file");  // dlopen would wait for a pipe
  // A bare name would make the system search its own folders.
  open(path.find('/') == std::string::npos ? "./" + path : path);
}

void SharedLibrary::open(const std::string &place) {
  handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_) return;
  const char *said = dlerror();
  untrusted(path_, "library", std::string("the system loader refuses it: ") + (said ? said : "no reason given"));
}

// From memory, for nothing need be written to any disk.
void SharedLibrary::open_bytes(const std::string &bytes) {
  const int file = memfd_create("tilewright", MFD_CLOEXEC);
  size_t written = 0;
  while (file >= 0 && written < bytes.size()) {
    const ssize_t more = write(file, bytes.data() + written, bytes.size() - written);
    if (more <= 0) break;
    written += size_t(more);
  }
  if (file < 0 || written < bytes.size()) {
    if (file >= 0) close(file);
    throw bad_machine("memory-file", path_, "no file in memory can be made for " + path_,
                      "unpack the bundle, and use the folder");
  }
  // Kept open: the system loader knows libraries by their path, and the next file must not have the number of this one.
  file_ = file;
  open("/proc/self/fd/" + std::to_string(file));
}

SharedLibrary::~SharedLibrary() {
  if (handle_) dlclose(handle_);
  if (file_ >= 0) close(file_);
}

void *SharedLibrary::symbol(const char *name) const { return dlsym(handle_, name); }

KernelLibrary::KernelLibrary(const std::string &path) : file(path) {
  const int64_t version = function<int64_t (*)()>(file, "tw_abi_version")();
  if (version != TW_ABI_VERSION)
    throw bad_machine("abi-version", std::to_string(version),
                      base_name(path) + " has ABI version " + std::to_string(version) + ", this runtime speaks " +
                          std::to_string(TW_ABI_VERSION),
                      "build its kernels and this runtime with the same release of Tilewright");
  int64_t count = 0;
  const tw_kernel *table = function<const tw_kernel *(*)(int64_t *)>(file, "tw_kernels")(&count);
  if (count < 1 || !table) untrusted(path, "kernels", "it holds no kernel");
  for (int64_t at = 0; at < count; ++at) {
    const tw_kernel &kernel = table[at];
    if (!kernel.manifest || !kernel.check || !kernel.workspace || !kernel.launch)
      untrusted(path, "manifest", "a kernel lacks its manifest or a function");
    Json manifest = Json::parse(kernel.manifest, "the manifest of a kernel in " + base_name(path));
    const Json *spec = manifest.find("spec");
    kernels.push_back({&kernel, spec ? Json(*spec) : std::move(manifest)});
  }
}

SelectionLibrary::SelectionLibrary(const std::string &path) : file(path) {
  const int64_t version = function<int64_t (*)()>(file, "tw_select_abi_version")();
  const int64_t bytes = function<int64_t (*)()>(file, "tw_select_question_bytes")();
  if (version != selection::kVersion || bytes != int64_t(sizeof(selection::Question)))
    throw bad_machine("selection-version", std::to_string(version),
                      base_name(path) + " is a selection library of version " + std::to_string(version) +
                          ", this runtime speaks " + std::to_string(selection::kVersion),
                      "export the registry and build this runtime with the same release of Tilewright");
  const auto names = function<const char *(*)(int64_t)>(file, "tw_select_names");
  problem = words(names(0)), arch = words(names(1)), rates = words(names(2));
  for (int64_t number = 0; const char *name = names(3 + 2 * number); ++number)
    families[name] = {number, words(names(4 + 2 * number))};
  ask = function<void (*)(selection::Question *)>(file, "tw_select_ask");
  if (!file.symbol("tw_select_feature_counts")) return;
  problem_features = function<decltype(problem_features)>(file, "tw_select_problem_features");
  kernel_features = function<decltype(kernel_features)>(file, "tw_select_kernel_features");
  const char *terms = "";
  function<void (*)(int64_t *, int64_t *, const char **)>(file, "tw_select_feature_counts")(&of_problem, &of_both,
                                                                                            &terms);
  of_terms = words(terms);
}

}  // namespace runtime
}  // namespace tw
