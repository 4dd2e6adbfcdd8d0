// A library with one GEMM of fp32 that says it is of a GPU and runs on the host, for a stub of the driver.  STUB_SPEC: its
// spec; STUB_CLEAR: the zeros it wants at the start of its workspace, which it uses and puts back.
#include <dlfcn.h>
#include <tilewright/gemm_args.h>

#include <cstdio>
#include <cstring>

namespace {

int check(const void *args, char *why, size_t bytes) {
  if (static_cast<const tw_gemm_args *>(args)->m != 7) return 0;
  return std::snprintf(why, bytes, "seven rows"), TW_LIMIT;
}
int64_t workspace(const void *, int64_t) { return STUB_CLEAR + 1000; }

const float *number(const void *array, int64_t at) { return static_cast<const float *>(array) + at; }

// A and B by rows; D tensors are added.
void element(const tw_gemm_args &g, int64_t matrix, int64_t i, int64_t j) {
  float sum = 0;
  for (int64_t k = 0; k < g.k; ++k)
    sum += *number(g.a, matrix * g.a_batch_stride + i * g.a_stride + k) *
           *number(g.b, matrix * g.b_batch_stride + k * g.b_stride + j);
  sum *= float(g.alpha);
  if (g.beta != 0) sum += float(g.beta) * *number(g.c, matrix * g.c_batch_stride + i * g.c_stride + j);
  for (int d = 0; d < TW_MAX_D; ++d)
    if (g.d[d]) sum += *number(g.d[d], matrix * g.d_batch_stride[d] + i * g.d_row_stride[d] + j * g.d_col_stride[d]);
  static_cast<float *>(g.e)[matrix * g.e_batch_stride + i * g.e_stride + j] = sum;
}

int launch(const void *args, void *scratch, void *) {
  const tw_gemm_args &g = *static_cast<const tw_gemm_args *>(args);
  void *context = nullptr;
  auto *now = reinterpret_cast<int (*)(void **)>(dlsym(RTLD_DEFAULT, "cuCtxGetCurrent"));
  if (now && (now(&context) || !context)) return TW_DEVICE | 201 << 8;
  char *mine = static_cast<char *>(scratch);
  for (int i = 0; i < STUB_CLEAR; ++i)
    if (mine[i]) return TW_DEVICE | 999 << 8;
  std::memset(mine, 0x77, STUB_CLEAR + 1000);
  std::memset(mine, 0, STUB_CLEAR);
  for (int64_t matrix = 0; matrix < g.batch; ++matrix)
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j) element(g, matrix, i, j);
  return TW_OK;
}

const tw_kernel kernel = {"{\"spec\": " STUB_SPEC "}", check, workspace, launch, nullptr, nullptr, STUB_CLEAR};

}  // namespace

extern "C" __attribute__((visibility("default"))) int64_t tw_abi_version(void) { return TW_ABI_VERSION; }
extern "C" __attribute__((visibility("default"))) const tw_kernel *tw_kernels(int64_t *count) {
  return *count = 1, &kernel;
}
