// Runs an AOTInductor package whose graph has ops of Tilewright: package PACKAGE LIBPYTHON PYTHON INPUT OUTPUT, with floats
// as they lie in memory.  The ops are Python's below the dispatcher, so the program starts an interpreter first.
#include <ATen/ops/from_blob.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

// Let libpython run `import tilewright.torch`, as the interpreter at `program` would; false where it cannot.
bool start_python(const char *library, const char *program) {
  void *python = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  if (!python) return std::fprintf(stderr, "%s\n", dlerror()), false;
  auto decode = reinterpret_cast<wchar_t *(*)(const char *, size_t *)>(dlsym(python, "Py_DecodeLocale"));
  auto name = reinterpret_cast<void (*)(const wchar_t *)>(dlsym(python, "Py_SetProgramName"));
  auto start = reinterpret_cast<void (*)(int)>(dlsym(python, "Py_InitializeEx"));
  auto run = reinterpret_cast<int (*)(const char *, void *)>(dlsym(python, "PyRun_SimpleStringFlags"));
  auto let_go = reinterpret_cast<void *(*)()>(dlsym(python, "PyEval_SaveThread"));
  if (!decode || !name || !start || !run || !let_go) return false;
  name(decode(program, nullptr));
  start(0);
  if (run("import tilewright.torch", nullptr)) return false;
  let_go();  // ops take the interpreter when they need it, in whichever thread
  return true;
}

}  // namespace

int main(int count, char **given) {
  if (count != 6 || !start_python(given[2], given[3])) return 2;
  std::ifstream file(given[4], std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  const at::Tensor x = at::from_blob(values.data(), {int64_t(values.size()) / 16, 16}).clone();
  torch::inductor::AOTIModelPackageLoader loader(given[1]);
  at::Tensor y;
  for (int turn = 0; turn < 3; ++turn) y = loader.run({x}).at(0).contiguous();  // planned, then C's, then remembered
  std::ofstream(given[5], std::ios::binary)
      .write(static_cast<const char *>(y.const_data_ptr()), std::streamsize(y.nbytes()));
  return 0;
}
