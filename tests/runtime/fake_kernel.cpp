// A device's kernel that is host code behind the same C ABI: E = alpha * A.B + beta * C + D0 + D1.  What it is told by
// macros: IN (int8_t, or uint16_t for bf16), OUT, whether A and B are stored by rows, NUM_D, whether it wants a WORKSPACE,
// how many bytes at its start it wants CLEAR (it fails where they are not), and GRAINS: what m, n and k must be multiples of; where that of k is over 1 it insists on 16-byte alignment too.
// Its launch goes through the fake runtime, found as a real kernel finds the vendor's call.
#include <dlfcn.h>
#include <string.h>
#include <tilewright/gemm_args.h>

#define SHOWN extern "C" __attribute__((visibility("default")))

static double value_of(int8_t x) { return x; }
static double value_of(uint16_t x) {
  uint32_t bits = uint32_t(x) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static bool odd(const void *at) { return reinterpret_cast<uintptr_t>(at) % 16 != 0; }

static int check(const void *raw, char *why, size_t bytes) {
  if (bytes) *why = 0;
  auto &x = *static_cast<const tw_gemm_args *>(raw);
  constexpr int64_t grains[] = {GRAINS};
  if (x.m % grains[0] || x.n % grains[1] || x.k % grains[2]) return TW_DIVISIBILITY;
  if (grains[2] > 1 && (!x.k || odd(x.a) || odd(x.b) || odd(x.e))) return TW_ALIGNMENT;
  return TW_OK;
}
static int64_t workspace(const void *raw, int64_t) {
  auto *args = static_cast<const tw_gemm_args *>(raw);
  return WORKSPACE * (CLEAR + args->m * args->n * int64_t(sizeof(OUT)));
}
static int launch(const void *raw, void *scratch, void *stream) {
  auto queue = reinterpret_cast<int (*)(void *)>(dlsym(RTLD_DEFAULT, QUEUE));
  if (!queue) return TW_DEVICE;
  if (int error = queue(stream)) return TW_DEVICE | error << 8;
  char why[8];
  if (int code = check(raw, why, 8)) return code;
  auto &args = *static_cast<const tw_gemm_args *>(raw);
  auto begin = static_cast<char *>(WORKSPACE ? scratch : nullptr);
  for (int64_t i = 0; begin && i < CLEAR; ++i)
    if (begin[i]) return TW_DEVICE;
  auto accum = reinterpret_cast<OUT *>(begin ? begin + CLEAR : nullptr);
  for (int64_t z = 0; z < args.batch; ++z)
    for (int64_t i = 0; i < args.m; ++i)
      for (int64_t j = 0; j < args.n; ++j) {
        auto a = static_cast<const IN *>(args.a) + z * args.a_batch_stride,
             b = static_cast<const IN *>(args.b) + z * args.b_batch_stride;
        double sum = 0;
        for (int64_t k = 0; k < args.k; ++k)
          sum += value_of(A_ROWS ? a[i * args.a_stride + k] : a[k * args.a_stride + i]) *
                 value_of(B_ROWS ? b[k * args.b_stride + j] : b[j * args.b_stride + k]);
        sum *= args.alpha;
        if (args.beta != 0)
          sum += args.beta * static_cast<const OUT *>(args.c)[z * args.c_batch_stride + i * args.c_stride + j];
        for (int t = 0; t < NUM_D; ++t)
          sum += static_cast<const OUT *>(
              args.d[t])[z * args.d_batch_stride[t] + i * args.d_row_stride[t] + j * args.d_col_stride[t]];
        auto value = OUT(sum);
        if (accum) accum[i * args.n + j] = value;
        static_cast<OUT *>(args.e)[z * args.e_batch_stride + i * args.e_stride + j] =
            accum ? accum[i * args.n + j] : value;
      }
  return TW_OK;
}

SHOWN int64_t tw_abi_version(void) { return TW_ABI_VERSION; }
static const tw_kernel table[] = {{MANIFEST, check, workspace, launch, nullptr, nullptr, CLEAR}};
SHOWN const tw_kernel *tw_kernels(int64_t *count) {
  *count = 1;
  return table;
}
