// A "gfx942" kernel that is host code behind the same C ABI: E = alpha * A.B + beta * C, int8 in and int32 out,
// row-major A and C, column-major B.  Its launch goes through the fake runtime, found as a real kernel finds hipLaunchKernel.
#include <cstring>
#include <dlfcn.h>
#include <tilewright/abi.h>

#define SHOWN extern "C" __attribute__((visibility("default")))

static int check(const void *, char *, size_t) { return TW_OK; }
static int64_t workspace(const void *raw, int64_t) {
  auto *args = static_cast<const tw_gemm_args *>(raw);
  return WORKSPACE * args->m * args->n * int64_t(sizeof(int32_t));
}
static int launch(const void *raw, void *scratch, void *stream) {
  auto queue = reinterpret_cast<int (*)(void *)>(dlsym(RTLD_DEFAULT, "fake_launch"));
  if (!queue || queue(stream)) return TW_DEVICE;
  auto &args = *static_cast<const tw_gemm_args *>(raw);
  auto a = static_cast<const int8_t *>(args.a), b = static_cast<const int8_t *>(args.b);
  auto c = static_cast<const int32_t *>(args.c);
  auto e = static_cast<int32_t *>(args.e), sums = static_cast<int32_t *>(WORKSPACE ? scratch : nullptr);
  for (int64_t i = 0; i < args.m; ++i)
    for (int64_t j = 0; j < args.n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < args.k; ++k) sum += double(a[i * args.a_stride + k]) * b[j * args.b_stride + k];
      auto value = int32_t(args.alpha * sum + (args.beta != 0 ? args.beta * c[i * args.c_stride + j] : 0));
      if (sums) sums[i * args.n + j] = value;
      e[i * args.e_stride + j] = sums ? sums[i * args.n + j] : value;
    }
  return TW_OK;
}

SHOWN int64_t tw_abi_version(void) { return TW_ABI_VERSION; }
static const tw_kernel table[] = {{MANIFEST, check, workspace, launch, nullptr, nullptr}};
SHOWN const tw_kernel *tw_kernels(int64_t *count) { *count = 1; return table; }
