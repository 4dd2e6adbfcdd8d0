// The host's half of the gather pipeline: any strides, sizes that are counted in 32 bits.
#pragma once
#include <tilewright/cuda/conv/gather/limits.h>
#include <tilewright/cuda/conv/gather/shape.h>
#include <tilewright/cuda/schedulers/tile_scheduler.h>
#include <tilewright/cuda/gemm/host_common.h>

namespace tw::cuda {

template <class Config> struct HostConvGather {
  using In = typename Config::A;
  using C = typename Config::C;
  using S = ConvGather<Config>;
  using Scheduling = HostTileScheduler<S, typename Config::Arch>;
  static constexpr bool forward = S::variant == ConvVariant::forward, data = S::variant == ConvVariant::backward_data,
                        weight = S::variant == ConvVariant::backward_weight;
  static constexpr int64_t clear_bytes = Scheduling::clear_bytes, most = most_size / 2;

  static Answer broken(const tw_conv_args &) { return {}; }  // limits.h says all
  // Of accumulators that blocks share: where there are so many tiles that none is shared, nothing.
  static int64_t workspace(const tw_conv_args &x) {
    return tiles(x) * 2 <= double(Scheduling::most_blocks) ? Scheduling::bytes : 0;
  }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes)}; }

  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    ConvGatherArgs t{};
    lay(x, t);
    const int64_t blocks = schedule(t.order, place);
    if (t.order.parts > 1 && !workspace) return TW_BAD_ARGS;
    if (t.order.parts > 1) Scheduling::lend(t, workspace);
    return start(place.functions[0], {unsigned(blocks)}, shape(), stream, t);
  }

 private:
  static int64_t residues(int64_t stride, int64_t size) { return !data ? 1 : stride < size ? stride : size; }
  static double tiles(const tw_conv_args &x) {
    double lines = weight ? double(x.filters) : double(x.batch), classes = 1;
    for (int i = 0; i < 3; ++i) {
      if (!weight) lines *= double(data ? ceil_div(x.size[i], x.stride[i]) : x.out[i]);
      classes *= double(residues(x.stride[i], x.size[i]));
    }
    const double columns = double(forward ? x.filters : x.channels) * double(weight ? pixels(x.window) : 1);
    return __builtin_ceil(lines / S::BM) * __builtin_ceil(columns / S::BN) * classes * double(x.groups);
  }
  // Whether elements of one group lie farther apart than 32 bits count.
  static bool far(const int64_t *strides, int64_t first, const int64_t *sizes, int64_t channels) {
    const auto reach = [](int64_t size, int64_t stride) {
      return size > 1 ? double(size - 1) * double(stride < 0 ? -stride : stride) : 0.0;
    };
    double all = reach(first, strides[0]) + reach(channels, strides[4]);
    for (int i = 0; i < 3; ++i) all += reach(sizes[i], strides[1 + i]);
    return all >= double(most_size);
  }
  static bool readable(const void *at, const int64_t *strides, int64_t channels, int64_t bytes) {
    constexpr int64_t size = sizeof(In);
    if (bytes <= size) return true;
    bool whole = !odd(at) && strides[4] == 1 && channels * size % bytes == 0;
    for (int i = 0; i < 4; ++i) whole = whole && strides[i] * size % bytes == 0;
    return whole;
  }
  static void lay_axis(const tw_conv_args &x, int i, GatherAxis &axis) {
    const int at = 2 - i;
    const int64_t stride = x.stride[at], dilation = x.dilation[at], window = x.window[at];
    const int64_t from_x = x.x_strides[1 + at], from_y = x.y_strides[1 + at], from_w = x.w_strides[1 + at];
    if (!data) {
      axis.grid = divider(x.out[at]), axis.apart = divider(dilation);
      axis.step = int(stride), axis.extent = int(x.size[at]);
      axis.inside = int(x.out[at]), axis.spread = 1;
      axis.gathered = unsigned(from_x), axis.pitch = unsigned(dilation * from_x);
      axis.place = unsigned(from_y), axis.tap = unsigned(from_w);
      axis.taps[0] = divider(window), axis.first[0] = -int(x.before[at]);
      axis.classes = 1;
      return;
    }
    // Taps that meet a residue are `pitch` apart, and neighbours of these so many pixels of y.
    int64_t common = stride;
    for (int64_t rest = dilation; rest;) {
      const int64_t next = common % rest;
      common = rest, rest = next;
    }
    const int64_t pitch = stride / common, apart = dilation / common;
    axis.grid = divider(ceil_div(x.size[at], stride)), axis.apart = divider(apart);
    axis.step = 1, axis.extent = int(x.out[at]), axis.backwards = 1;
    axis.inside = int(x.size[at]), axis.spread = int(stride);
    axis.gathered = unsigned(from_y), axis.pitch = unsigned(-apart * from_y);
    axis.place = unsigned(stride * from_x), axis.tap = unsigned(pitch * from_w);
    axis.classes = int(residues(stride, x.size[at]));
    for (int64_t rest = 0; rest < axis.classes; ++rest) {
      axis.taps[rest] = Divider{0, 0, 31};
      axis.rest[rest] = unsigned(rest * from_x);
      for (int64_t tap = 0; tap < window && tap < pitch; ++tap) {
        const int64_t reach = rest + x.before[at] - tap * dilation;
        if (reach % stride) continue;
        axis.taps[rest] = divider((window - 1 - tap) / pitch + 1);
        axis.first[rest] = int(reach / stride), axis.first_tap[rest] = unsigned(tap * from_w);
        break;
      }
    }
  }
  static void lay(const tw_conv_args &x, ConvGatherArgs &t) {
    const int64_t *from = data ? x.y_strides : x.x_strides, *of = data ? x.x_strides : x.y_strides;
    int64_t places = x.batch, classes = 1;
    for (int i = 0; i < 3; ++i) {
      lay_axis(x, i, t.axes[i]);
      places *= t.axes[i].grid.by, classes *= t.axes[i].classes;
    }
    const int64_t inner = data ? x.filters : x.channels, taps = pixels(x.window);
    t.places = int(places), t.inner = divider(inner);
    t.m = int(weight ? x.filters : places), t.n = int(weight ? taps * inner : forward ? x.filters : x.channels);
    t.gathered_image = unsigned(from[0]), t.place_image = unsigned(of[0]);
    const int64_t x_group = x.channels * x.x_strides[4], y_group = x.filters * x.y_strides[4];
    const int64_t w_group = x.filters * x.w_strides[0];
    t.a = forward ? x.x : x.y, t.b = weight ? x.x : x.w, t.e = forward ? x.y : data ? x.x : x.w;
    t.a_group = forward ? x_group : y_group, t.b_group = weight ? x_group : w_group;
    t.e_group = forward ? y_group : data ? x_group : w_group;
    t.a_inner = unsigned(from[4]);
    t.b_inner = unsigned(weight ? x.x_strides[4] : forward ? x.w_strides[4] : x.w_strides[0]);
    t.line = unsigned(weight ? x.y_strides[4] : forward ? x.w_strides[0] : x.w_strides[4]);
    t.e_row = unsigned(x.w_strides[0]), t.e_column = unsigned(weight ? x.w_strides[4] : of[4]);
    for (int i = 0; i < Config::num_d; ++i) {
      t.d[i] = x.d[i], t.d_group[i] = x.filters * x.d_strides[i][4];
      t.d_image[i] = x.d_strides[i][0], t.d_column[i] = x.d_strides[i][4];
      for (int k = 0; k < 3; ++k) t.d_place[i][k] = x.d_strides[i][3 - k];
    }
    constexpr int64_t width = sizeof(C) == 4 ? 4 : 8;
    const int64_t *to = weight ? x.w_strides : of;
    bool whole = !odd(t.e) && to[4] == 1 && (forward ? x.filters : x.channels) % width == 0;
    for (int i = 0; i < 4; ++i) whole = whole && to[i] % width == 0;
    t.wide = whole, t.down = to[4] != 1;
    t.tiles_n = divider(ceil_div(t.n, S::BN));
    t.order.batch = int(classes), t.order.group = 8;
    t.order.tiles_m = int(ceil_div(t.m, S::BM)), t.order.tiles_n = int(t.tiles_n.by * x.groups);
    const int64_t steps = ceil_div(weight ? places : taps * inner, S::BK);
    t.order.steps = steps ? int(steps) : 1;  // of no images, one k-block of zeros
  }

  // As many splits of k as make it short, of those resident at a time (they wait for each other).
  static int64_t schedule(TileOrder &order, const Loaded::Place &place) {
    constexpr int limit = Scheduling::most_blocks / S::ctas_per_sm;
    const int64_t processors = place.multiprocessors > limit ? limit : place.multiprocessors;
    const int64_t ctas_per_sm = place.ctas_per_sm < S::ctas_per_sm ? place.ctas_per_sm : S::ctas_per_sm;
    const int64_t tiles = int64_t(order.tiles_m) * order.tiles_n * order.batch;
    using Arch = typename Config::Arch;
    constexpr double step = double(S::BM) * S::BN * S::BK / (sizeof(In) == 4 ? Arch::plain_macs : Arch::mma_macs);
    constexpr selection::PartCosts costs{step, selection::cuda_conv::gather::kAlone, Arch::sync,
                                         double(S::BM) * S::BN * 8 / Arch::sums};
    const int64_t best = selection::filling_parts(tiles, order.steps, processors, ctas_per_sm, costs);
    order.share = int(ceil_div(order.steps, best));
    order.parts = int(ceil_div(order.steps, order.share));
    return tiles * order.parts;
  }
};

}  // namespace tw::cuda
