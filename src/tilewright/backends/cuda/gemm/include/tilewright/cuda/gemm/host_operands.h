// How C and the D tensors of a problem come to the sums of a tma_ws kernel whose results leave by TMA.
#pragma once
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/cuda/gemm/pipelines.h>
#include <tilewright/cuda/host/tensor_maps.h>

namespace tw::cuda {

// S: the shape of the kernel.
template <class Config, class S> struct HostGuests {
  using C = typename Config::C;
  using D = typename Config::D;

  // 0, or the driver's error.
  static int invite(const tw_gemm_args &x, TmaWsArgs &t, TensorMap &map) {
    constexpr bool multiplies = Config::epilogue == Epilogue::MultiDMultiply || gated<Config::epilogue>;
    int error = 0;
    t.first_guest = x.beta == 0;
    if (x.beta != 0) {
      t.guests[0] = {x.c, x.c_stride, x.c_batch_stride, float(x.beta), Comes::carried};
      error = seat<C>(x, 0, t, map);
    }
    for (int i = 0; i < Config::num_d && !error; ++i) {
      Guest &d = t.guests[i + 1];
      d = {x.d[i], x.d_row_stride[i], x.d_batch_stride[i], multiplies ? 0.0f : 1.0f, Comes::carried};
      if (x.d_col_stride[i] == 0) d.comes = Comes::column;
      else if (d.stride == 0) d.comes = Comes::row;
      else error = seat<D>(x, i + 1, t, map);
    }
    return error;
  }

 private:
  // The first whole matrix comes as boxes if TMA can read it: into the buffers results leave from, where
  // whoever is carried comes later.
  template <class T> static int seat(const tw_gemm_args &x, int which, TmaWsArgs &t, TensorMap &map) {
    constexpr int64_t size = sizeof(T);
    Guest &guest = t.guests[which];
    bool first = size == 2;
    for (int i = t.first_guest; i < which; ++i)
      first = first && t.guests[i].comes != Comes::carried && t.guests[i].comes != Comes::box;
    if (!first || guest.stride <= 0 || guest.batch_stride < 0 || odd(guest.at) || odd(guest.stride, size) ||
        (x.batch > 1 && odd(guest.batch_stride, size)))
      return 0;
    static ChunkMaps<C, S::chunk_columns, 64> maps;
    guest.comes = Comes::box;
    t.boxes = 1, t.every_box = guest.batch_stride ? 1 : 0;
    return maps.get(MapKey{guest.at, x.n, x.m, guest.batch_stride ? x.batch : 1, guest.stride, guest.batch_stride},
                    map);
  }
};

}  // namespace tw::cuda
