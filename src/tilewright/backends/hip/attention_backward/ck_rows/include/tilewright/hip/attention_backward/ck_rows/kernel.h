// CK Tile's dot_do_o and convert_dq behind the C ABI.  Nothing here depends on CK Tile.  A Config says beside what its
// signature has (attention_backward_rules.h):
//   Element              the device's type of out, dout and results
//   threads; pad_rows, pad_head: where it has edge code; deterministic: convert_dq adds up accumulators of splits
#pragma once
#include <tilewright/hip/attention_backward/rows/kernel.h>
#include <tilewright/hip/attention_backward/ck_rows/launch.h>
#include <tilewright/hip/attention_backward/ck_tile/element.h>

namespace tw::hip {

#if defined(__HIP_DEVICE_COMPILE__)
template <class Config> struct CkDotDevice;
template <class Config> struct CkConvertDevice;
#endif
constexpr int64_t ck_rows_of_block = 64;

template <class Config> __global__ void __launch_bounds__(Config::threads) ck_dot_do_o(const CkDotLaunch x) {
#if defined(__HIP_DEVICE_COMPILE__)
  static_assert(int(CkDotDevice<Config>::Kernel::kBlockSize) == Config::threads, "a block is not what Python has");
  CkDotDevice<Config>::run(x.x);
#endif
}
template <class Config> __global__ void __launch_bounds__(Config::threads) ck_convert_dq(const CkConvertLaunch x) {
#if defined(__HIP_DEVICE_COMPILE__)
  static_assert(int(CkConvertDevice<Config>::Kernel::kBlockSize) == Config::threads, "a block is not what Python has");
  CkConvertDevice<Config>::run(x);
#endif
}

template <class X> int ck_launch(void (*kernel)(const X), int64_t rows, int64_t heads, int64_t batch, unsigned threads,
                                 void *stream, X x) {
  if (rows <= 0 || batch <= 0) return TW_OK;
  void *words[] = {&x};
  const dim3 grid(unsigned((rows + ck_rows_of_block - 1) / ck_rows_of_block), unsigned(heads), unsigned(batch));
  const hipError_t error = hipLaunchKernel(reinterpret_cast<const void *>(kernel), grid, dim3(threads), words, 0,
                                           static_cast<hipStream_t>(stream));
  return error == hipSuccess ? TW_OK : TW_DEVICE | int(error) << 8;
}

template <class Config> struct CkRowsDot {
  using Args = tw_attention_backward_dot_args;
  static int64_t workspace(const Args &) { return 0; }
  static int run(const Args &x, void *, void *stream) {
    // Blocks behind a sequence's last row fill up what `grad` may read.
    const int64_t rows = prepared_end(x.rows);
    if (int status = ck_launch(&ck_dot_do_o<Config>, rows, x.heads_q, x.batch, Config::threads, stream, CkDotLaunch{x}))
      return status;
    if constexpr (Config::dsink)
      return backward_launch(&attention_backward_dsink<Config>, x.heads_q, unsigned(BackwardRows<Config>::threads),
                             stream, backward_dot_args<Config>(x));
    return TW_OK;
  }
};

template <class Config> struct CkRowsConvert {
  using Args = tw_attention_backward_convert_args;
  static int64_t workspace(const Args &) { return 0; }
  static int run(const Args &x, void *, void *stream) {
    const float scale = float(x.scale);
    if (int status = result(x.dq, x.rows, x.head_qk, x.heads_q, x.batch, scale, stream)) return status;
    if (int status = result(x.dk, x.keys, x.head_qk, x.heads_kv, x.batch, scale, stream)) return status;
    return result(x.dv, x.keys, x.head_v, x.heads_kv, x.batch, 1.0f, stream);
  }

 private:
  static int result(const tw_attention_backward_sums &accum, int64_t rows, int64_t head, int64_t heads, int64_t batch,
                    float factor, void *stream) {
    if (!accum.to) return TW_OK;
    return ck_launch(&ck_convert_dq<Config>, rows, heads, batch, Config::threads, stream,
                     CkConvertLaunch{accum, rows, head, factor});
  }
};

}  // namespace tw::hip
