// The host's half of the skinny pipeline.
#pragma once
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/cuda/gemm/pipelines.h>

namespace tw::cuda {

template <class Config> struct HostSkinny {
  using S = skinny_of<Config>;
  static constexpr int64_t clear_bytes = 0;

  static Answer broken(const tw_gemm_args &x) {
    if (x.k == 0) return {TW_LIMIT, "k is 0: this pipeline has nothing to copy"};
    if (x.m >= most_size || x.n >= most_size || x.k >= most_size) return {TW_LIMIT, "a size is 2^31 or more"};
    if (odd_a<Config>(x))
      return {TW_ALIGNMENT, "A, its leading stride or its batch stride is not a multiple of 16 bytes"};
    if (odd_b<Config>(x))
      return {TW_ALIGNMENT, "B, its leading stride or its batch stride is not a multiple of 16 bytes"};
    if ((Config::few_columns ? x.n : x.m) > S::tokens)
      return {TW_LIMIT, "more rows (or columns) than this kernel holds"};
    if (x.k % 8) return {TW_DIVISIBILITY, "k is not a multiple of 8"};
    if (x.batch > 65535) return {TW_LIMIT, "the batch is over 65535"};
    return {};
  }
  static int64_t workspace(const tw_gemm_args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes)}; }

  static int run(const tw_gemm_args &x, const Loaded::Place &place, void *, void *stream) {
    SkinnyArgs t{};
    t.a = x.a, t.b = x.b, t.e = x.e;
    t.m = int(x.m), t.n = int(x.n), t.k = int(x.k), t.batch = int(x.batch);
    t.a_stride = x.a_stride, t.b_stride = x.b_stride, t.e_stride = x.e_stride;
    t.a_batch = x.a_batch_stride, t.b_batch = x.b_batch_stride, t.e_batch = x.e_batch_stride;
    t.finish = epilogue_args(x);
    if (S::Swapped)
      t.a = x.b, t.b = x.a, t.m = int(x.n), t.n = int(x.m), t.a_stride = x.b_stride, t.b_stride = x.a_stride,
      t.a_batch = x.b_batch_stride, t.b_batch = x.a_batch_stride;
    return start(place.functions[0], {unsigned(ceil_div(t.n, S::rows)), unsigned(x.batch)}, shape(), stream, t);
  }
};

}  // namespace tw::cuda
