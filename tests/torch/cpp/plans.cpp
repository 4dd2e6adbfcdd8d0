// Runs an AOTInductor package whose graph has ops of Tilewright, in a process without Python: plans PACKAGE FOLDER INPUT
// OUTPUT COLUMNS DEVICE, with floats as they lie in memory.  FOLDER is what `tilewright.torch.plans` wrote.  PACKAGE may be
// the library of a model too (`torch._export.aot_compile`), which is loaded without PyTorch's loader of packages.
#include <ATen/ops/from_blob.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>
#ifdef WITH_CUDA
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cuda.h>
#endif

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

// Let the library beside the plans define the ops and load what it is to run; false where it cannot.
bool load_plans(const std::string &folder) {
  void *library = dlopen((folder + "/libtilewright_torch.so").c_str(), RTLD_NOW);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), false;
  auto load = reinterpret_cast<int (*)(const char *)>(dlsym(library, "tw_torch_load"));
  auto problem = reinterpret_cast<const char *(*)()>(dlsym(library, "tw_torch_problem"));
  if (!load || !problem) return false;
  if (load(folder.c_str())) return std::fprintf(stderr, "%s\n", problem()), false;
  return true;
}

using Model = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>)>;

Model loaded(const std::string &path, const std::string &device) {
  if (path.size() < 3 || path.compare(path.size() - 3, 3, ".so")) {
    auto loader = std::make_shared<torch::inductor::AOTIModelPackageLoader>(path);
    return [loader](std::vector<at::Tensor> inputs) { return loader->run(inputs); };
  }
  std::shared_ptr<torch::inductor::AOTIModelContainerRunner> runner;
  if (device == "cpu") runner = std::make_shared<torch::inductor::AOTIModelContainerRunnerCpu>(path, 1);
#ifdef WITH_CUDA
  else runner = std::make_shared<torch::inductor::AOTIModelContainerRunnerCuda>(path, 1, device);
#endif
  if (!runner) throw std::runtime_error("this program was made without CUDA");
  return [runner](std::vector<at::Tensor> inputs) { return runner->run(inputs); };
}

}  // namespace

int main(int count, char **given) {
  if (count != 7 || !load_plans(given[2])) return 2;
  if (dlsym(RTLD_DEFAULT, "Py_InitializeEx")) return std::fprintf(stderr, "this process has a Python\n"), 3;
  std::ifstream file(given[3], std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  const int64_t columns = std::stoll(given[5]);
  try {
    const at::Tensor x =
        at::from_blob(values.data(), {int64_t(values.size()) / columns, columns}).clone().to(c10::Device(given[6]));
    const Model model = loaded(given[1], given[6]);
    at::Tensor y;
    for (int turn = 0; turn < 3; ++turn) y = model({x}).at(0).cpu().contiguous();
    std::ofstream(given[4], std::ios::binary)
        .write(static_cast<const char *>(y.const_data_ptr()), std::streamsize(y.nbytes()));
  } catch (const std::exception &error) { return std::fprintf(stderr, "%s\n", error.what()), 4; }
  return 0;
}
