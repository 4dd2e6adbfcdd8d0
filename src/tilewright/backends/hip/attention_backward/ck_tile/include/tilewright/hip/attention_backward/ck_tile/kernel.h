// CK Tile's kernels of dq, dk and dv behind the C ABI.  Nothing here depends on CK Tile.  A Config says beside what its
// signature has (attention_backward_rules.h):
//   Element              the device's type of q, k, v and dout
//   tile_*, warp_*       the block; threads; pad_head_qk, pad_head_v: where it has edge code of heads
//   deterministic        tiles of keys leave dq in slices, which are added up in one order
#pragma once
#include <tilewright/hip/attention_backward/kernel.h>
#include <tilewright/hip/attention_backward/ck_tile/element.h>
#include <tilewright/hip/attention_backward/ck_tile/launch.h>

namespace tw::hip {

#if defined(__HIP_DEVICE_COMPILE__)
template <class Config> struct AttentionBackwardDevice;
#endif

template <class Config> __global__ void __launch_bounds__(Config::threads, Config::blocks_per_cu)
    attention_backward_block(const BackwardLaunch x) {
#if defined(__HIP_DEVICE_COMPILE__)
  using Device = AttentionBackwardDevice<Config>;
  static_assert(int(Device::Kernel::kBlockSize) == Config::threads, "a block is not the waves that legality has");
  static_assert(int(Device::Kernel::GetSmemSize()) <= 65536, "LDS is more than a block has");
  Device::run(x);
#endif
}

constexpr unsigned backward_plain_threads = 256;
constexpr int64_t backward_most_blocks = 4096;

template <class Config> __global__ void __launch_bounds__(backward_plain_threads)
    attention_backward_prepare(const BackwardPrepare x) {
#ifdef TW_ON_GPU
  const int64_t step = int64_t(gridDim.x) * backward_plain_threads;
  const int64_t first = int64_t(blockIdx.x) * backward_plain_threads + threadIdx.x;
  for (int64_t i = first; i < x.prepared; i += step)
    x.lse[i] = x.lse_log2[i] * 0.69314718f, x.delta[i] = x.delta_given[i] * x.kept;
  for (int part = 0; part < 3; ++part)
    for (int64_t i = first; i < x.clears[part]; i += step) x.cleared[part][i] = 0.0f;
#endif
}
template <class Config> __global__ void __launch_bounds__(backward_plain_threads)
    attention_backward_add_slices(const BackwardSlices x) {
#ifdef TW_ON_GPU
  const int64_t step = int64_t(gridDim.x) * backward_plain_threads;
  for (int64_t i = int64_t(blockIdx.x) * backward_plain_threads + threadIdx.x; i < x.elements; i += step) {
    float sum = 0;
    for (int64_t slice = 0; slice < x.slices; ++slice) sum += x.from[slice * x.elements + i];
    x.to[i] = sum;
  }
#endif
}

template <class Config> struct CkTileAttentionBackward {
  using Args = tw_attention_backward_args;
  static constexpr int64_t tile_n0 = Config::tile_n0;

  static int64_t workspace(const Args &x) {
    const Sizes n(x);
    return (2 * n.prepared + (Config::deterministic ? n.slices * n.dq : 0)) * int64_t(sizeof(float));
  }
  static int run(const Args &x, void *workspace, void *stream) {
    const Sizes n(x);
    float *lse = static_cast<float *>(workspace), *delta = lse + n.prepared;
    float *accum = static_cast<float *>(x.dq), *dq = Config::deterministic ? delta + n.prepared : accum;
    const Dropout stated = Dropout::of(Config::dropout ? x.dropout : 0.0, 0, 0);
    BackwardPrepare p{static_cast<const float *>(x.lse_log2),
                      static_cast<const float *>(x.delta),
                      lse,
                      delta,
                      1.0f / stated.keep,
                      n.prepared,
                      {},
                      {}};
    p.cleared[0] = dq, p.clears[0] = Config::deterministic ? n.slices * n.dq : n.dq;
    // Where each key meets a row its accumulators are written; elsewhere nobody would.
    if (backward_all_accum<Config> && (x.starts_q || x.lengths_q || x.rows == 0))
      p.cleared[1] = static_cast<float *>(x.dk), p.clears[1] = n.dk, p.cleared[2] = static_cast<float *>(x.dv),
      p.clears[2] = n.dv;
    int64_t most = p.prepared;
    for (int64_t each : p.clears) most = each > most ? each : most;
    if (int status = plain(&attention_backward_prepare<Config>, most, stream, p)) return status;
    if (x.rows > 0 && x.keys > 0 && x.batch > 0)
      if (int status = grad(x, n, lse, delta, dq, stream)) return status;
    if constexpr (Config::deterministic)
      return plain(&attention_backward_add_slices<Config>, n.dq, stream, BackwardSlices{dq, accum, n.slices, n.dq});
    return TW_OK;
  }

 private:
  // Elements; there are no gaps between prepared rows, nor between accumulators.
  struct Sizes {
    int64_t prepared, dq, dk, dv, slices;
    explicit Sizes(const Args &x) {
      const auto rows_of = [&x](const void *starts, int64_t rows, int64_t total) {
        const int64_t sequences = x.batch > 1 ? x.batch : 1;
        return starts ? (total / prepared_rows + sequences) * prepared_rows : prepared_end(rows) * x.batch;
      };
      prepared = rows_of(x.starts_q, x.rows, x.total_rows) * x.heads_q, dq = prepared * x.head_qk;
      const int64_t keys = rows_of(x.starts_k, x.keys, x.total_keys) * x.dkv_heads;
      dk = keys * x.head_qk, dv = keys * x.head_v, slices = (x.keys + tile_n0 - 1) / tile_n0;
    }
  };
  template <class X> static int plain(void (*kernel)(const X), int64_t elements, void *stream, const X &x) {
    const int64_t wanted = (elements + backward_plain_threads - 1) / backward_plain_threads;
    return backward_launch(kernel, wanted < backward_most_blocks ? wanted : backward_most_blocks,
                           backward_plain_threads, stream, x);
  }
  static int grad(const Args &x, const Sizes &n, const float *lse, const float *delta, float *dq, void *stream) {
    BackwardLaunch b{x, lse, delta, dq, n.dq, float(x.scale * 1.4426950408889634), float(x.scale)};
    if (b.x.window_left < 0) b.x.window_left = -1;
    if (b.x.window_right < 0) b.x.window_right = -1;
    void *words[] = {&b};
    const dim3 grid(unsigned((x.keys + tile_n0 - 1) / tile_n0), unsigned(x.heads_q), unsigned(x.batch));
    const hipError_t error = hipLaunchKernel(reinterpret_cast<const void *>(&attention_backward_block<Config>), grid,
                                             dim3(Config::threads), words, 0, static_cast<hipStream_t>(stream));
    return error == hipSuccess ? TW_OK : TW_DEVICE | int(error) << 8;
  }
};

}  // namespace tw::hip
