// Runs kernels linked into this program under sanitizers.  Each line of standard input is one call; every operand
// is a heap block of exactly the bytes the call may touch, so that one element too many is an error.
#include <initializer_list>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewright/gemm_args.h>

namespace {

void run_in_turn(tw_host_team *, int64_t count, void (*body)(void *, int64_t, int64_t), void *context) {
  for (int64_t i = count; i-- > 0;) body(context, i, count);
}

struct Matrix {
  long long lines, length, ld, size;
};

long long bytes_of(const Matrix &x, long long batch, long long apart) {
  if (!x.lines || !x.length || !batch) return 0;
  return ((batch - 1) * apart + (x.lines - 1) * x.ld + x.length) * x.size;
}

void *make(const Matrix &x, long long batch, long long apart, long long less = 0) {
  long long bytes = bytes_of(x, batch, apart) - less;
  void *memory = malloc(size_t(bytes > 0 ? bytes : 1));
  memset(memory, 0x3c, size_t(bytes > 0 ? bytes : 1));  // a modest number in every type
  return memory;
}

}  // namespace

int main(int argc, char **) {
  int64_t kernels = 0;
  const tw_kernel *table = tw_kernels(&kernels);
  tw_host_team team{3, run_in_turn};
  long long index, m, n, k, batch, beta, num_d, threads, ran = 0;
  Matrix a, b, c, d;
  while (scanf("%lld %lld %lld %lld %lld %lld %lld %lld", &index, &m, &n, &k, &batch, &beta, &num_d, &threads) == 8) {
    for (Matrix *x : {&a, &b, &c, &d})
      if (scanf("%lld %lld %lld %lld", &x->lines, &x->length, &x->ld, &x->size) != 4) return 2;
    if (index >= kernels) return 3;
    const tw_kernel &kernel = table[index];
    tw_gemm_args x{};
    x.m = m, x.n = n, x.k = k, x.batch = batch, x.alpha = 1.5, x.beta = beta ? 0.5 : 0;
    x.a_stride = a.ld, x.b_stride = b.ld, x.c_stride = x.e_stride = c.ld;
    x.a_batch_stride = a.lines * a.ld, x.b_batch_stride = b.lines * b.ld;
    x.c_batch_stride = x.e_batch_stride = c.lines * c.ld;
    void *left = make(a, batch, x.a_batch_stride, argc > 1 ? a.size : 0), *right = make(b, batch, x.b_batch_stride);
    void *old = make(c, batch, x.c_batch_stride), *out = make(c, batch, x.e_batch_stride);
    void *bias = make(d, 1, 0), *packed = nullptr;
    x.a = left, x.b = right, x.c = beta ? old : nullptr, x.e = out;
    for (int t = 0; t < num_d; ++t) x.d[t] = bias, x.d_row_stride[t] = t ? 0 : d.ld, x.d_col_stride[t] = 1;
    void *stream = threads > 1 ? &team : nullptr;
    if (kernel.pack) {
      packed = aligned_alloc(64, size_t(kernel.packed_bytes(&x) + 127) / 64 * 64);
      if (kernel.pack(&x, packed, stream)) return 4;
      x.b = packed;
    }
    char why[100];
    if (kernel.check(&x, why, sizeof why)) {
      printf("refused: %s\n", why);
      return 5;
    }
    // Not aligned_alloc, which wants whole multiples: the block must be exactly as long as it was asked for.
    size_t scratch_bytes = size_t(kernel.workspace(&x, threads));
    void *scratch = nullptr;
    if (posix_memalign(&scratch, 64, scratch_bytes ? scratch_bytes : 1)) return 6;
    if (kernel.launch(&x, scratch, stream)) return 7;
    for (void *one : {left, right, old, out, bias, packed, scratch}) free(one);
    ++ran;
  }
  printf("%lld calls, %lld kernels\n", ran, (long long)kernels);
  return 0;
}
