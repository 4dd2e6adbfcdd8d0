// The host's half of gradients of weights over halo tiles of pixels.
#pragma once
#include <tilewright/conv_args.h>
#include <tilewright/cuda/conv/split_reduce.h>
#include <tilewright/cuda/conv/halo_wgrad/shape.h>
#include <tilewright/cuda/conv/host_copies.h>
#include <tilewright/cuda/conv/tensor_maps.h>
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/say.h>

namespace tw::cuda {

template <class Config> struct HostConvHaloWgrad {
  using In = typename Config::A;
  using S = HaloWgrad<Config>;
  static constexpr int64_t clear_bytes = 0;
  enum Functions { main_function, add_function, all_functions };
  static constexpr CopyNeeds needs{false, true, false};

  static Answer broken(const tw_conv_args &) { return {}; }  // limits.h says all
  static int64_t workspace(const tw_conv_args &x) {
    HaloWgradArgs t{};
    if (!lay(x, t)) return 0;
    return parts(t, most_processors) * t.count * int64_t(sizeof(float));
  }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes), 1, true}; }

  // `follows`: a kernel of the same call comes before.
  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream,
                 bool follows = false) {
    if (!workspace) return TW_BAD_ARGS;
    HaloWgradArgs t{};
    if (!lay(x, t)) return TW_BAD_ARGS;
    const int here = place.multiprocessors > most_processors ? most_processors : place.multiprocessors;
    t.parts = int(parts(t, here)), t.partial = static_cast<float *>(workspace), t.to = x.w;
    t.filter_apart = x.w_strides[0], t.tap_apart = x.w_strides[3];
    TensorMap a = {}, b = {};
    if (int error = maps(x, t, a, b)) return status_of(error);
    const int64_t blocks = items(t) * t.parts;
    LaunchShape how = shape();
    how.early = follows;
    const int status = start(place.functions[main_function], {unsigned(blocks)}, how, stream, a, b, t);
    return status != TW_OK
               ? status
               : start(place.functions[add_function], {adding_blocks(t.count)},
                       LaunchShape{unsigned(adding_threads), unsigned(adding_threads * 4), 1, false, true}, stream, t);
  }

 private:
  static constexpr int most_processors = Config::Arch::most_processors;

  // As many groups as lie in 64 channels and in 64 filters; traversals begin at whole 16 bytes.  0: none do.
  static int64_t merged_groups(const tw_conv_args &x) {
    for (int64_t merged = x.groups < 64 ? x.groups : 64; merged > 0; --merged) {
      const bool whole = x.groups == merged || !(merged * x.channels % 8 || merged * x.filters % 8);
      if (x.groups % merged == 0 && whole && (merged == 1 || (merged * x.channels <= 64 && merged * x.filters <= 64)))
        return merged;
    }
    return 0;
  }
  static int64_t items(const HaloWgradArgs &t) { return int64_t(t.groups) * t.blocks_m * t.blocks_n * t.planes; }
  static int64_t parts(const HaloWgradArgs &t, int64_t processors) {
    const int64_t share = processors / items(t), most = share < 1 ? 1 : share;
    return most < t.chunks ? most : t.chunks;
  }
  // The arguments that follow from sizes.  limits.h says which have a halo tile; false is what the kernel has no room for.
  static bool lay(const tw_conv_args &x, HaloWgradArgs &t) {
    int64_t traversed = x.batch;
    for (int i = 0; i < 3; ++i) {
      const int64_t far = (x.window[2 - i] - 1) * x.dilation[2 - i], first = -x.before[2 - i];
      const int64_t size = x.out[2 - i] + (i < 2 ? far : 0);
      traversed *= size;
      t.grid.size[i] = divider(size), t.grid.step[i] = 1, t.grid.first[i] = int(first);
    }
    if (x.window[1] * x.window[2] > S::most_taps) return false;
    t.taps = int(x.window[1] * x.window[2]), t.planes = int(x.window[0]), t.window_w = int(x.window[2]);
    t.planes_apart = int(x.dilation[0]);
    t.reach[0] = int(x.dilation[2]), t.reach[1] = int(x.dilation[1] * t.grid.size[0].by);
    const int64_t rows = S::KP + (x.window[2] - 1) * t.reach[0] + (x.window[1] - 1) * t.reach[1];
    if (rows > Config::halo_rows) return false;
    t.halo = int(ceil_div(rows, 8) * 8);
    const int64_t merged = merged_groups(x);
    if (merged == 0) return false;
    t.groups = int(x.groups / merged), t.merged = int(merged), t.channels = int(x.channels), t.filters = int(x.filters);
    t.blocks_m = int(ceil_div(merged * x.filters, 64)), t.blocks_n = int(ceil_div(merged * x.channels, 64));
    t.by_filters = divider(x.filters), t.by_channels = divider(x.channels), t.by_taps = divider(pixels(x.window));
    t.count = x.groups * x.filters * pixels(x.window) * x.channels;
    t.chunks = int(ceil_div(traversed, S::KP));
    return true;
  }
  static int maps(const tw_conv_args &x, const HaloWgradArgs &t, TensorMap &a, TensorMap &b) {
    static KnownMaps<TraversalMap<In, S::Spatial>> known;
    TraversalKey of_x{}, of_y{};
    of_x.address = x.x, of_y.address = x.y;
    of_x.sizes[0] = x.groups * x.channels, of_y.sizes[0] = x.groups * x.filters;
    of_x.sizes[4] = of_y.sizes[4] = x.batch;
    of_x.strides[3] = x.x_strides[0], of_y.strides[3] = x.y_strides[0];
    for (int i = 0; i < 3; ++i) {
      const int size = int(t.grid.size[i].by);
      of_x.sizes[1 + i] = x.size[2 - i], of_x.strides[i] = x.x_strides[3 - i];
      of_y.sizes[1 + i] = x.out[2 - i], of_y.strides[i] = x.y_strides[3 - i];
      of_x.steps[i] = of_y.steps[i] = 1;
      of_x.lower[i] = t.grid.first[i], of_x.upper[i] = int(t.grid.first[i] + size - 1 - (x.size[2 - i] - 1));
      of_y.lower[i] = 0, of_y.upper[i] = int(size - x.out[2 - i]);
    }
    of_x.rows = t.halo, of_y.rows = S::KP;
    const int error = known.get(of_x, a);
    return error ? error : known.get(of_y, b);
  }
};

}  // namespace tw::cuda
