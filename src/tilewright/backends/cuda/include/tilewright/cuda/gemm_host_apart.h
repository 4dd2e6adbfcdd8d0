// Operands of a tma_ws kernel whose rows begin anywhere, and that are fetched apart for it (tma_ws_shape.h) rather than
// copied first.
#pragma once
#include <tilewright/cuda/gemm_host_common.h>
#include <tilewright/cuda/gemm_pipelines.h>
#include <tilewright/cuda/tensor_maps.h>

namespace tw::cuda {

// An operand as the kernel sees it, with lines of k or, where these are contiguous, k of lines.
struct Operand {
  const void *at;
  int64_t lines, stride, batch_stride;
};

template <class Config> struct HostApart {
  using S = tma_ws_of<Config>;
  static constexpr int64_t period = S::period, size = sizeof(typename S::In);

  static bool of_a(const tw_gemm_args &x) { return S::Turned ? second(x) : first(x); }
  static bool of_b(const tw_gemm_args &x) { return S::Turned ? first(x) : second(x); }

  // Of the kernel's operands.  Where both are contiguous along lines, k is in the same order in both.
  static bool first(const tw_gemm_args &x) {
    if (!S::apart_a || !batches(x)) return false;
    return S::MajorA ? both(x) : odd_first(x);
  }
  static bool second(const tw_gemm_args &x) {
    if (!S::apart_b || !batches(x)) return false;
    return S::MajorB ? both(x) : odd_second(x);
  }

  static Apart how(const Operand &o) { return {1, int(int64_t(intptr_t(o.at)) % 16 / size), int(o.stride % period)}; }
  // One map for each kind of rows; 0, or the driver's error.  A kind without rows gets those of another: its results are
  // beyond E.
  template <int Count>
  static int maps(const Operand &o, bool lines_first, const tw_gemm_args &x, TensorMaps<Count> &to) {
    static MapCache<typename S::In, lines_box, S::kind_rows, 3> cache;
    const int64_t rows = lines_first ? x.k : o.lines, length = lines_first ? o.lines : x.k;
    const Apart apart = how(o);
    for (int64_t kind = 0; kind < Count; ++kind) {
      const int64_t row = kind < rows ? kind : 0, shift = (apart.first + row * apart.step) % period;
      const char *at = static_cast<const char *>(o.at) + (row * o.stride - shift) * size;
      const MapKey key{at,
                       shift + length,
                       (rows - row + period - 1) / period,
                       o.batch_stride ? x.batch : 1,
                       o.stride * period,
                       o.batch_stride};
      if (int error = cache.get(key, to.at[kind])) return error;
    }
    return 0;
  }

 private:
  static constexpr int lines_box = 128 / int(sizeof(typename S::In));
  static bool odd_first(const tw_gemm_args &x) { return S::Turned ? odd_b<Config>(x) : odd_a<Config>(x); }
  static bool odd_second(const tw_gemm_args &x) { return S::Turned ? odd_a<Config>(x) : odd_b<Config>(x); }
  static bool both(const tw_gemm_args &x) {
    return S::MajorA && S::MajorB && S::apart_a && S::apart_b && x.k >= period && (odd_first(x) || odd_second(x));
  }
  // Every matrix of a batch begins at the same place between multiples of 16 bytes.
  static bool batches(const tw_gemm_args &x) {
    return x.batch == 1 || (!odd(x.a_batch_stride, size) && (Config::packed || !odd(x.b_batch_stride, size)));
  }
};

}  // namespace tw::cuda
