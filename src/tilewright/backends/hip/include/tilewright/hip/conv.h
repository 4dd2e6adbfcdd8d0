// A convolution kernel behind the C ABI: what it refuses, with a sentence, and how its launches are made.
// As in gemm.h nothing here depends on CK Tile: ConvDevice, in the device's pass only, says what a block does.
#pragma once
#include <tilewright/hip/conv_walk.h>
#include <tilewright/hip/gemm.h>

namespace tw::hip {

template <class Config> struct ConvDevice;

template <class Config, int tails> __global__ void __launch_bounds__(Config::threads, 1)
    conv_block(const ConvLaunch<conv_classes<Config>> x) {
#if defined(__HIP_DEVICE_COMPILE__)
  ConvDevice<Config>::template run<tails>(x);
#endif
}

// Sums of the parts of a split k become the gradient of the weights.
template <class Config> __global__ void __launch_bounds__(finish_threads)
    conv_finish(const ConvLaunch<conv_classes<Config>> x) {
#if defined(__HIP_DEVICE_COMPILE__)
  ConvDevice<Config>::finish(x);
#endif
}

// One residue of an axis of backward_data: its pixels, the taps that read them and where in y they do.
struct ResidueOfAxis {
  int64_t pixels = 0, taps = 0, first_tap = 0, first = 0;

  ResidueOfAxis(const tw_conv_args &x, int axis, int64_t residue) {
    const int64_t stride = x.stride[axis], begin = residue + x.before[axis];
    pixels = (x.size[axis] - residue + stride - 1) / stride;
    for (first_tap = 0; first_tap < x.window[axis] && first_tap < stride; ++first_tap)
      if ((begin - first_tap * x.dilation[axis]) % stride == 0) {
        taps = (x.window[axis] - first_tap + tap_step(x, axis) - 1) / tap_step(x, axis);
        first = (begin - first_tap * x.dilation[axis]) / stride;
        return;
      }
    first_tap = 0;  // nothing reads these pixels: their gradient is 0
  }
  static int64_t common(int64_t a, int64_t b) { return b ? common(b, a % b) : a; }
  // From one of its taps to the next, and how far that moves what they read, backwards.
  static int64_t tap_step(const tw_conv_args &x, int axis) {
    return x.stride[axis] / common(x.stride[axis], x.dilation[axis]);
  }
  static int64_t moved(const tw_conv_args &x, int axis) {
    return x.dilation[axis] / common(x.stride[axis], x.dilation[axis]);
  }
};

template <class Config> struct Conv : PlainKernel {
  using T = typename Config::A;
  using C = typename Config::C;
  using D = typename Config::D;
  using Launched = ConvLaunch<conv_classes<Config>>;
  static constexpr ConvVariant variant = Config::variant;
  static constexpr bool forward = variant == ConvVariant::forward, data = variant == ConvVariant::backward_data,
                        weight = variant == ConvVariant::backward_weight, splits = Config::split_k > 1;
  static constexpr int width = out_width<Config>;
  // Offsets inside operands are 32-bit.
  static constexpr int64_t most_bytes = (int64_t(1) << 31) - (1 << 16), most_size = int64_t(1) << 30;
  static constexpr int64_t most_threads = int64_t(1) << 32, most_slices = int64_t(256) << 20;
  static constexpr int64_t most_groups = (int64_t(1) << 16) - 1, most_residues = 512;

  static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
  static int64_t up(int64_t size, int64_t step) { return ceil_div(size, step) * step; }
  static bool apart(const void *pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes != 0; }

  // The problem as the kernel has it: several groups are one.  Of one of them `own` says channels and filters.
  static tw_conv_args merged(const tw_conv_args &x) {
    tw_conv_args made = x;
    made.groups /= Config::merged, made.channels *= Config::merged, made.filters *= Config::merged;
    return made;
  }
  static int64_t own(int64_t of_all) { return of_all / Config::merged; }

  // The operand that is read at taps: its strides and spatial sizes.
  static const int64_t *read(const tw_conv_args &x) { return data ? x.y_strides : x.x_strides; }
  static const int64_t (&read_size(const tw_conv_args &x))
      [TW_CONV_SPATIAL] { return data ? x.out : x.size; } static int64_t read_channels(const tw_conv_args &x) {
    return data ? x.filters : x.channels;
  }
  // Rows, columns and k of the largest class.
  static int64_t rows(const tw_conv_args &x) { return weight ? x.filters : x.batch * pixels(data ? x.size : x.out); }
  static int64_t columns(const tw_conv_args &x) {
    return weight ? x.channels * pixels(x.window) : data ? x.channels : x.filters;
  }
  static int64_t depth(const tw_conv_args &x) {
    return weight ? x.batch * pixels(x.out) : read_channels(x) * pixels(x.window);
  }

  // Elements from the first to the last of a group.
  static double span(const int64_t *strides, int64_t first, const int64_t (&sizes)[TW_CONV_SPATIAL], int64_t channels) {
    double found = double(first - 1) * strides[0] + channels;
    for (int axis = 0; axis < TW_CONV_SPATIAL; ++axis) found += double(sizes[axis] - 1) * strides[1 + axis];
    return found;
  }
  static double span_x(const tw_conv_args &x) { return span(x.x_strides, x.batch, x.size, x.channels); }
  static double span_w(const tw_conv_args &x) { return span(x.w_strides, x.filters, x.window, own(x.channels)); }
  static double span_y(const tw_conv_args &x) { return span(x.y_strides, x.batch, x.out, x.filters); }

  // Whether pixels lie at equal distances, images too.
  static bool even(const int64_t *strides, int64_t images, const int64_t (&sizes)[TW_CONV_SPATIAL]) {
    int64_t apart = strides[TW_CONV_SPATIAL];
    for (int axis = TW_CONV_SPATIAL - 2; axis >= 0; --axis) {
      apart *= sizes[axis + 1];
      if (sizes[axis] > 1 && strides[1 + axis] != apart) return false;
    }
    return images < 2 || strides[0] == apart * sizes[0];
  }
  static bool one_tap(const tw_conv_args &x) {
    for (int axis = 0; axis < TW_CONV_SPATIAL; ++axis)
      if (x.window[axis] != 1 || x.stride[axis] != 1 || x.before[axis] || x.out[axis] != x.size[axis]) return false;
    return true;
  }
  static int64_t residues(const tw_conv_args &x) {
    double all = 1;
    for (int axis = 0; data && axis < TW_CONV_SPATIAL; ++axis)
      all *= double(x.stride[axis] < x.size[axis] ? x.stride[axis] : x.size[axis]);
    return all > 1e9 ? int64_t(1e9) : int64_t(all);
  }

  // The first rule that is broken.  The op's `limits` says the same in Python.
  static Answer broken(const tw_conv_args *args) {
    if (const Answer common = broken_conv<Config>(args); common.code) return common;
    if (nothing_written<Config>(*args)) return {};
    if (args->groups % Config::merged)
      return {TW_DIVISIBILITY, "the groups are no multiple of those that the kernel merges"};
    const tw_conv_args x = merged(*args);
    if (x.x_strides[4] != 1 || x.w_strides[4] != 1 || x.y_strides[4] != 1)
      return {TW_ALIGNMENT, "channels do not lie side by side"};
    for (int i = 0; i < TW_CONV_SPATIAL + 1; ++i)
      if (x.x_strides[i] < 0 || x.w_strides[i] < 0 || x.y_strides[i] < 0)
        return {TW_LIMIT, "an operand is laid out backwards"};
    if (const Answer laid = broken_layout(x); laid.code) return laid;
    if (const Answer reads = broken_reads(x); reads.code) return reads;
    return broken_sizes(x);
  }

  static Answer broken_layout(const tw_conv_args &x) {
    if (!data && (x.w_strides[3] != own(x.channels) || !even(x.w_strides, 1, x.window)))
      return {TW_LIMIT, "the taps of a filter do not lie side by side"};
    if (weight && !even(x.y_strides, x.batch, x.out))
      return {TW_LIMIT, "the pixels of y do not lie at equal distances"};
    if (!Config::pointwise) return {};
    if (!one_tap(x)) return {TW_LIMIT, "the kernel is for windows of one tap, without stride or padding"};
    if (!even(read(x), x.batch, read_size(x)))
      return {TW_LIMIT, "the pixels that are read do not lie at equal distances"};
    return {};
  }

  static bool whole(const int64_t *strides, int64_t extent, const void *at, int of) {
    for (int i = 0; i < TW_CONV_SPATIAL + 1; ++i)
      if (strides[i] % of) return false;
    return extent % of == 0 && !apart(at, of * int64_t(sizeof(T)));
  }
  // Operands are read in whole accesses only.  The result and D tensors may lie as they like.
  static Answer broken_reads(const tw_conv_args &x) {
    constexpr int of_x = weight ? Config::read_b : Config::read_a, of_y = Config::read_a, of_w = Config::read_b;
    if (!data && !whole(x.x_strides, x.channels, x.x, of_x))
      return {TW_ALIGNMENT, "channels, a stride or the address of x are no multiple of the width of its loads"};
    if (!forward && !whole(x.y_strides, x.filters, x.y, of_y))
      return {TW_ALIGNMENT, "filters, a stride or the address of y are no multiple of the width of its loads"};
    // forward reads a filter as one row; of merged groups a tap of it.
    const int64_t row = Config::merged > 1 ? own(x.channels) : depth(x);
    if (forward && (row % of_w || x.w_strides[0] % of_w || apart(x.w, of_w * int64_t(sizeof(T)))))
      return {TW_ALIGNMENT, "a filter's elements, stride or address are no multiple of the width of their loads"};
    if (data && !whole(x.w_strides, own(x.channels), x.w, of_w))
      return {TW_ALIGNMENT, "channels, a stride or the address of w are no multiple of the width of its loads"};
    return {};
  }

  static Answer broken_sizes(const tw_conv_args &x) {
    const double bytes = sizeof(T), most = double(most_bytes);
    if ((!data && span_x(x) * bytes >= most) || (!forward && span_y(x) * bytes >= most) ||
        (!weight && span_w(x) * bytes >= most))
      return {TW_LIMIT, "an operand of one group spans 2 GiB or more"};
    for (int axis = 0; axis < TW_CONV_SPATIAL; ++axis)
      if (double(x.size[axis]) + x.before[axis] >= double(most_size) ||
          double(x.window[axis]) * x.dilation[axis] >= double(most_size) ||
          double(x.out[axis]) * x.stride[axis] >= double(most_size))
        return {TW_LIMIT, "an axis with its padding and window has 2^30 pixels or more"};
    const double all = pixels_as_double(x.window);
    const double of_rows = weight ? double(x.filters) : x.batch * pixels_as_double(data ? x.size : x.out);
    const double of_columns = weight ? x.channels * all : double(columns(x));
    const double of_depth = weight ? x.batch * pixels_as_double(x.out) : read_channels(x) * all;
    if (of_rows >= double(most_size) || of_columns >= double(most_size) || of_depth >= double(most_size))
      return {TW_LIMIT, "rows, columns or depth of the product are 2^30 or more"};
    if (tiles(rows(x), columns(x)) * Config::threads >= most_threads)
      return {TW_LIMIT, "the result has so many tiles that a launch would have 2^32 threads or more"};
    if (x.groups > most_groups) return {TW_LIMIT, "there are 2^16 groups or more"};
    if (residues(x) > most_residues) return {TW_LIMIT, "strides make more than 512 residues of pixels"};
    return {};
  }
  static double pixels_as_double(const int64_t (&sizes)[TW_CONV_SPATIAL]) {
    return double(sizes[0]) * sizes[1] * sizes[2];
  }

  static int check(const void *args, char *why, size_t bytes) {
    return say(broken(static_cast<const tw_conv_args *>(args)), why, bytes);
  }

  static int64_t tiles(int64_t rows, int64_t columns) {
    return ceil_div(rows, Config::tile_m) * ceil_div(columns, Config::tile_n);
  }
  // What there is not of k reads as zeros: a pipeline that needs several turns has them.
  static int64_t turns(int64_t k) {
    const int64_t needed = ceil_div(k, int64_t(Config::tile_k) * Config::split_k);
    return needed < Config::least_loops ? Config::least_loops : needed;
  }
  static int64_t parts(const tw_conv_args &x) {
    const int64_t needed = splits ? ceil_div(depth(x), turns(depth(x)) * Config::tile_k) : 1;
    return needed < 1 ? 1 : needed;
  }
  // Bytes of all parts of one group; rows are whole accesses of any width.
  static int64_t slices(const tw_conv_args &x) { return parts(x) * rows(x) * up(columns(x), 16) * 4; }
  static int64_t at_once(const tw_conv_args &x) {
    int64_t most = splits ? most_slices / slices(x) : x.groups;
    if (most > x.groups) most = x.groups;
    return most < 1 ? 1 : most;
  }
  static int64_t workspace(const void *args, int64_t) {
    const tw_conv_args x = merged(*static_cast<const tw_conv_args *>(args));
    return splits ? at_once(x) * slices(x) : 0;
  }

  // What of the result and the D tensors moves in whole accesses; `of_group` is where the next group's columns begin.
  static bool wide(const int64_t *strides, int count, int64_t of_group, const void *at, int64_t size) {
    for (int i = 0; i < count; ++i)
      if (strides[i] % width) return false;
    return of_group % width == 0 && !apart(at, width * size);
  }
  static int wide_bits(const tw_conv_args &x) {
    constexpr int all = TW_CONV_SPATIAL + 1;
    const int64_t of_y = x.groups > 1 ? x.filters : 0, of_x = x.groups > 1 ? x.channels : 0;
    const bool whole = forward ? wide(x.y_strides, all, of_y, x.y, sizeof(C))
                       : data  ? wide(x.x_strides, all, of_x, x.x, sizeof(C))
                               : wide(x.w_strides, 1, 0, x.w, sizeof(C));
    int bits = whole ? wide_e : 0;
    for (int t = 0; t < Config::num_d; ++t)
      if (x.d_strides[t][4] == 1 && wide(x.d_strides[t], all, of_y, x.d[t], sizeof(D))) bits |= wide_d << t;
    return bits;
  }
  static void *result(const tw_conv_args &x) { return forward ? x.y : data ? x.x : x.w; }

  static Launched launch_of(const tw_conv_args &x, void *workspace) {
    Launched one{};
    const void *a = forward ? x.x : x.y, *b = weight ? x.x : x.w;
    one.a = a, one.b = b, one.e = result(x), one.sums = workspace;
    one.m = int(rows(x)), one.n = int(columns(x)), one.k = int(depth(x)), one.parts = int(parts(x));
    const double of_a = (forward ? span_x(x) : span_y(x)) * sizeof(T),
                 of_b = (weight ? span_x(x) : span_w(x)) * sizeof(T);
    one.a_bytes = uint32_t(of_a < 0 ? 0 : of_a), one.b_bytes = uint32_t(of_b < 0 ? 0 : of_b);
    one.a_stride = int(x.y_strides[3]), one.b_stride = int(x.w_strides[0]);
    one.depth = divider(read_channels(x)), one.filter = int(x.w_strides[0]);
    one.inner = divider(own(read_channels(x))), one.outer = divider(own(data ? x.channels : x.filters));
    one.a_group = forward ? x.channels : x.filters, one.b_group = weight ? x.channels : x.filters * x.w_strides[0];
    one.e_group = forward ? x.filters : data ? x.channels : x.filters * x.w_strides[0];
    one.sums_stride = up(columns(x), 16), one.wide = wide_bits(x);
    const int64_t *written = forward ? x.y_strides : data ? x.x_strides : x.w_strides;
    one.read[0] = int(read(x)[0]), one.written[0] = written[0];
    for (int axis = 0; axis < TW_CONV_SPATIAL; ++axis) {
      one.size[axis] = int(read_size(x)[axis]), one.read[1 + axis] = int(read(x)[1 + axis]);
      one.written[1 + axis] = written[1 + axis] * (data ? x.stride[axis] : 1);
      one.step[axis] = data ? 1 : int(x.stride[axis]);
      one.reach[axis] = data ? -int(ResidueOfAxis::moved(x, axis)) : int(x.dilation[axis]);
      one.tap[axis] = int(x.w_strides[1 + axis] * ResidueOfAxis::tap_step(x, axis));
    }
    for (int t = 0; t < Config::num_d; ++t) {
      one.d[t] = x.d[t], one.d_column[t] = x.d_strides[t][4], one.d_group[t] = x.filters * x.d_strides[t][4];
      for (int i = 0; i < TW_CONV_SPATIAL + 1; ++i) one.d_written[t][i] = x.d_strides[t][i];
    }
    return one;
  }

  // The one class of forward and backward_weight.
  static ConvClass all_pixels(const tw_conv_args &x) {
    ConvClass made{};
    made.pixels = int(x.batch * pixels(x.out)), made.taps = int(pixels(x.window)), made.turns = int(turns(depth(x)));
    for (int axis = 0; axis < TW_CONV_SPATIAL; ++axis) {
      made.size[axis] = divider(x.out[axis]), made.window[axis] = divider(x.window[axis]);
      made.first[axis] = -int(x.before[axis]);
    }
    return made;
  }
  static ConvClass residue(const tw_conv_args &x, int64_t number) {
    ConvClass made{};
    int64_t all = x.batch, taps = 1;
    for (int axis = TW_CONV_SPATIAL - 1; axis >= 0; --axis) {
      const int64_t count = x.stride[axis] < x.size[axis] ? x.stride[axis] : x.size[axis], rest = number % count;
      const ResidueOfAxis one(x, axis, rest);
      number /= count, all *= one.pixels, taps *= one.taps;
      made.size[axis] = divider(one.pixels), made.window[axis] = divider(one.taps ? one.taps : 1);
      made.first[axis] = int(one.first), made.written += rest * x.x_strides[1 + axis];
      made.weights += int(one.first_tap * x.w_strides[1 + axis]);
    }
    made.pixels = int(all), made.taps = int(taps), made.turns = int(turns(taps * x.filters));
    return made;
  }

  template <int... every> static const void *chosen(int variant, std::integer_sequence<int, every...>) {
    static const void *const all[] = {reinterpret_cast<const void *>(&conv_block<Config, every>)...};
    return all[variant];
  }
  static int start(const void *kernel, dim3 grid, int threads, Launched &one, hipStream_t stream) {
    void *args[] = {&one};
    const hipError_t error = hipLaunchKernel(kernel, grid, dim3(threads), args, 0, stream);
    return error == hipSuccess ? int(TW_OK) : TW_DEVICE | int(error) << 8;
  }
  // Some groups; `grid` has their tiles, and what else there is.
  static int run(Launched &one, dim3 grid, hipStream_t stream) {
    const int variant = variant_of<Config>(one.classes[0].turns);
    const void *kernel = chosen(variant, std::make_integer_sequence<int, variants<Config>>());
    if (int status = start(kernel, grid, Config::threads, one, stream); status != TW_OK || !splits) return status;
    if constexpr (splits) {
      const int64_t pieces = ceil_div(one.n, width);
      one.finish_across = 1;
      while (one.finish_across < finish_threads && one.finish_across < pieces) one.finish_across *= 2;
      const int64_t rows = ceil_div(one.m, finish_threads / one.finish_across);
      const dim3 all(ceil_div(pieces, one.finish_across), rows < most_groups ? rows : most_groups, grid.y);
      return start(reinterpret_cast<const void *>(&conv_finish<Config>), all, finish_threads, one, stream);
    }
    return TW_OK;
  }

  // Residues whose pixels are read in turns of the same tail are one launch.
  static int run_residues(const tw_conv_args &x, Launched &one, hipStream_t stream) {
    const int64_t count = residues(x);
    for (int variant = 0; variant < variants<Config>; ++variant) {
      int held = 0;
      int64_t most = 0;
      for (int64_t number = 0; number <= count; ++number) {
        if (number < count) {
          const ConvClass next = residue(x, number);
          if (variant_of<Config>(next.turns) != variant) continue;
          one.classes[held++] = next;
          if (const int64_t needed = tiles(next.pixels, one.n); needed > most) most = needed;
        }
        if (!held || (number < count && held < conv_classes<Config>)) continue;
        if (int status = run(one, dim3(most, x.groups, held), stream); status != TW_OK) return status;
        held = 0, most = 0;
      }
    }
    return TW_OK;
  }

  template <class Of> static const void *moved(const void *from, int64_t elements) {
    return static_cast<const Of *>(from) + elements;
  }
  static int launch(const void *args, void *workspace, void *stream) {
    if (int code = broken(static_cast<const tw_conv_args *>(args)).code) return code;
    const tw_conv_args x = merged(*static_cast<const tw_conv_args *>(args));
    if (nothing_written<Config>(x)) return TW_OK;
    if (splits && !workspace) return TW_BAD_ARGS;
    const auto on = static_cast<hipStream_t>(stream);
    Launched all = launch_of(x, workspace);
    if constexpr (data) return run_residues(x, all, on);
    all.classes[0] = all_pixels(x);
    const int64_t step = at_once(x);
    for (int64_t z = 0; z < x.groups; z += step) {
      Launched one = all;
      one.a = moved<T>(all.a, z * all.a_group), one.b = moved<T>(all.b, z * all.b_group);
      one.e = static_cast<C *>(all.e) + z * all.e_group;
      for (int t = 0; t < Config::num_d; ++t) one.d[t] = moved<D>(all.d[t], z * all.d_group[t]);
      const dim3 grid(tiles(one.m, one.n), x.groups - z < step ? x.groups - z : step, one.parts);
      if (int status = run(one, grid, on); status != TW_OK) return status;
    }
    return TW_OK;
  }
};

}  // namespace tw::hip
