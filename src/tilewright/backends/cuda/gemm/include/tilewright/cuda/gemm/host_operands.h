// How C and the D tensors of a problem are loaded by a tma_ws kernel whose results are stored by TMA.
#pragma once
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/cuda/gemm/pipelines.h>
#include <tilewright/cuda/host/tensor_maps.h>

namespace tw::cuda {

// S: the shape of the kernel.
template <class Config, class S> struct HostAuxOperands {
  using C = typename Config::C;
  using D = typename Config::D;

  // 0, or the driver's error.
  static int set_up(const tw_gemm_args &x, TmaWsArgs &t, TensorMap &map) {
    constexpr bool multiplies = Config::epilogue == Epilogue::MultiDMultiply || gated<Config::epilogue>;
    int error = 0;
    t.first_aux = x.beta == 0;
    if (x.beta != 0) {
      t.aux_operands[0] = {x.c, x.c_stride, x.c_batch_stride, float(x.beta), LoadMode::carried};
      error = set_load_mode<C>(x, 0, t, map);
    }
    for (int i = 0; i < Config::num_d && !error; ++i) {
      AuxOperand &d = t.aux_operands[i + 1];
      d = {x.d[i], x.d_row_stride[i], x.d_batch_stride[i], multiplies ? 0.0f : 1.0f, LoadMode::carried};
      if (x.d_col_stride[i] == 0) d.load_mode = LoadMode::column;
      else if (d.stride == 0) d.load_mode = LoadMode::row;
      else error = set_load_mode<D>(x, i + 1, t, map);
    }
    return error;
  }

 private:
  // The first whole matrix comes as boxes if TMA can read it: into the buffers results leave from, where
  // whoever is carried comes later.
  template <class T> static int set_load_mode(const tw_gemm_args &x, int which, TmaWsArgs &t, TensorMap &map) {
    constexpr int64_t size = sizeof(T);
    AuxOperand &aux = t.aux_operands[which];
    bool first = size == 2;
    for (int i = t.first_aux; i < which; ++i)
      first = first && t.aux_operands[i].load_mode != LoadMode::carried && t.aux_operands[i].load_mode != LoadMode::box;
    if (!first || aux.stride <= 0 || aux.batch_stride < 0 || odd(aux.at) || odd(aux.stride, size) ||
        (x.batch > 1 && odd(aux.batch_stride, size)))
      return 0;
    static ChunkMaps<C, S::chunk_columns, 64> maps;
    aux.load_mode = LoadMode::box;
    t.boxes = 1, t.every_box = aux.batch_stride ? 1 : 0;
    return maps.get(MapKey{aux.at, x.n, x.m, aux.batch_stride ? x.batch : 1, aux.stride, aux.batch_stride}, map);
  }
};

}  // namespace tw::cuda
