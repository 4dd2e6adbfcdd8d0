// A convolution kernel behind the C ABI: what it refuses, with a sentence, and how its launches are made.
// As in gemm.h nothing here depends on CK Tile: ConvDevice, in the device's pass only, says what a block does.
#pragma once
#include <tilewright/hip/conv/limits.h>
#include <tilewright/hip/conv/traversal.h>
#include <tilewright/hip/gemm.h>
#include <tilewright/select/conv_args.h>

namespace tw::hip {

template <class Config> struct ConvDevice;

template <class Config, int tails> __global__ void __launch_bounds__(Config::threads, 1)
    conv_block(const ConvLaunch<conv_classes<Config>> x) {
#if defined(__HIP_DEVICE_COMPILE__)
  ConvDevice<Config>::template run<tails>(x);
#endif
}

// Partial sums of a split k become the gradient of the weights.
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

// Limits: the family's limits.h as a type (TW_LIMITS of select/check.h).
template <class Config, class Limits> struct Conv : PlainKernel {
  using T = typename Config::A;
  using C = typename Config::C;
  using D = typename Config::D;
  using Launched = ConvLaunch<conv_classes<Config>>;
  static constexpr ConvVariant variant = Config::variant;
  static constexpr bool forward = variant == ConvVariant::forward, data = variant == ConvVariant::backward_data,
                        weight = variant == ConvVariant::backward_weight, splits = Config::split_k > 1;
  static constexpr int width = out_width<Config>;
  static constexpr int64_t most_slices = int64_t(256) << 20, most_blocks = (int64_t(1) << 16) - 1;  // along y and z

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
  static int64_t residues(const tw_conv_args &x) {
    double all = 1;
    for (int axis = 0; data && axis < TW_CONV_SPATIAL; ++axis)
      all *= double(x.stride[axis] < x.size[axis] ? x.stride[axis] : x.size[axis]);
    return all > 1e9 ? int64_t(1e9) : int64_t(all);
  }

  // Whether the operands that are read begin at whole loads.
  static bool reads_aligned(const tw_conv_args &x) {
    constexpr int64_t a = Config::read_a * int64_t(sizeof(T)), b = Config::read_b * int64_t(sizeof(T));
    return !apart(forward ? x.x : x.y, a) && !apart(weight ? x.x : x.w, b);
  }
  static int check(const void *args, char *why, size_t bytes) {
    const auto *x = static_cast<const tw_conv_args *>(args);
    return selection::check_conv<Config, Limits>(x, x && reads_aligned(*x), why, bytes);
  }

  static int64_t tiles(int64_t rows, int64_t columns) {
    return ceil_div(rows, Config::tile_m) * ceil_div(columns, Config::tile_n);
  }
  // What there is not of k reads as zeros: a pipeline that needs several iterations has them.
  static int64_t turns(int64_t k) {
    const int64_t needed = ceil_div(k, int64_t(Config::tile_k) * Config::split_k);
    return needed < Config::least_loops ? Config::least_loops : needed;
  }
  static int64_t parts(const tw_conv_args &x) {
    const int64_t needed = splits ? ceil_div(depth(x), turns(depth(x)) * Config::tile_k) : 1;
    return needed < 1 ? 1 : needed;
  }
  static tw_conv_args of_images(const tw_conv_args &x, int64_t count) {
    tw_conv_args made = x;
    made.batch = count;
    return made;
  }
  // Images of one launch of backward_weight, as limits.h counts them; all of them where that is one, or where none is.
  static int64_t summed_images(const tw_conv_args &x) {
    if (!weight || !splits || x.batch < 2) return x.batch;
    const auto of = [](double span, int64_t apart) {
      return selection::hip_conv::ReadByImages{selection::Wide(span * sizeof(T)),
                                               selection::Wide(apart) * int64_t(sizeof(T))};
    };
    const int64_t images =
        selection::hip_conv::images_at_once(x.batch, of(span(x.x_strides, 1, x.size, x.channels), x.x_strides[0]),
                                            of(span(x.y_strides, 1, x.out, x.filters), x.y_strides[0]), pixels(x.out));
    return images > 0 ? images : x.batch;
  }
  // Of every launch.
  static int64_t all_parts(const tw_conv_args &x) {
    const int64_t images = summed_images(x);
    if (images >= x.batch) return parts(x);
    const int64_t rest = x.batch % images;
    return x.batch / images * parts(of_images(x, images)) + (rest ? parts(of_images(x, rest)) : 0);
  }
  // Elements of one split of a group; rows are whole accesses of any width.
  static int64_t slice(const tw_conv_args &x) { return rows(x) * up(columns(x), 16); }
  static int64_t slices(const tw_conv_args &x) { return all_parts(x) * slice(x) * 4; }
  static int64_t at_once(const tw_conv_args &x) {
    int64_t most = !splits ? x.groups : summed_images(x) < x.batch ? 1 : most_slices / slices(x);
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
    one.a = a, one.b = b, one.e = result(x), one.accum = workspace;
    one.m = int(rows(x)), one.n = int(columns(x)), one.k = int(depth(x)), one.parts = int(parts(x));
    const double of_a = (forward ? span_x(x) : span_y(x)) * sizeof(T),
                 of_b = (weight ? span_x(x) : span_w(x)) * sizeof(T);
    one.a_bytes = uint32_t(of_a < 0 ? 0 : of_a), one.b_bytes = uint32_t(of_b < 0 ? 0 : of_b);
    one.a_stride = int(x.y_strides[3]), one.b_stride = int(x.w_strides[0]);
    one.depth = divider(read_channels(x)), one.filter = int(x.w_strides[0]);
    one.inner = divider(own(read_channels(x))), one.outer = divider(own(data ? x.channels : x.filters));
    one.a_group = forward ? x.channels : x.filters, one.b_group = weight ? x.channels : x.filters * x.w_strides[0];
    one.e_group = forward ? x.filters : data ? x.channels : x.filters * x.w_strides[0];
    one.accum_stride = up(columns(x), 16), one.wide = wide_bits(x);
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
  // Some groups; `grid` has their tiles, and what else there is.  Splits of k are added where no launch follows with more.
  static int run(Launched &one, dim3 grid, hipStream_t stream, bool last = true) {
    const int variant = variant_of<Config>(one.classes[0].turns);
    const void *kernel = chosen(variant, std::make_integer_sequence<int, variants<Config>>());
    const int status = start(kernel, grid, Config::threads, one, stream);
    return status != TW_OK || !splits || !last ? status : add_parts(one, grid.y, stream);
  }
  static int add_parts(Launched &one, int64_t groups, hipStream_t stream) {
    if constexpr (splits) {
      const int64_t pieces = ceil_div(one.n, width);
      one.finish_across = 1;
      while (one.finish_across < finish_threads && one.finish_across < pieces) one.finish_across *= 2;
      const int64_t rows = ceil_div(one.m, finish_threads / one.finish_across);
      const dim3 all(ceil_div(pieces, one.finish_across), rows < most_blocks ? rows : most_blocks, groups);
      return start(reinterpret_cast<const void *>(&conv_finish<Config>), all, finish_threads, one, stream);
    }
    return TW_OK;
  }

  // Residues whose pixels are read in iterations of the same tail are one launch.
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
    const int code = check(args, nullptr, 0);
    return code ? code : launch_checked(*static_cast<const tw_conv_args *>(args), workspace, stream);
  }
  // What is gathered may span more than 32-bit offsets reach: images then go in several launches (of backward_weight where
  // k is split), and forward also rows of one image.  Both as limits.h counts them.
  static tw_conv_args advanced(const tw_conv_args &x, int stride, int64_t read_by, int64_t written_by) {
    tw_conv_args made = x;
    const int64_t of_x = forward ? read_by : written_by, of_y = forward ? written_by : read_by;
    made.x = const_cast<void *>(data ? moved<C>(x.x, of_x * x.x_strides[stride])
                                     : moved<T>(x.x, of_x * x.x_strides[stride]));
    made.y = const_cast<void *>(forward ? moved<C>(x.y, of_y * x.y_strides[stride])
                                        : moved<T>(x.y, of_y * x.y_strides[stride]));
    for (int t = 0; t < Config::num_d; ++t) made.d[t] = moved<D>(x.d[t], written_by * x.d_strides[t][stride]);
    return made;
  }
  static int launch_checked(const tw_conv_args &args, void *workspace, void *stream) {
    const tw_conv_args x = merged(args);
    if (nothing_written<Config>(x)) return TW_OK;
    if (splits && !workspace) return TW_BAD_ARGS;
    if constexpr (weight) {
      const int64_t images = summed_images(x);
      return images < x.batch ? launch_sums(x, images, workspace, stream) : launch_slice(x, workspace, stream);
    }
    const double one = span(read(x), 1, read_size(x), read_channels(x)) * sizeof(T);
    const auto image = selection::Wide(one), apart = selection::Wide(read(x)[0]) * int64_t(sizeof(T));
    const int64_t images = selection::hip_conv::images_at_once(x.batch, image, apart, pixels(data ? x.size : x.out));
    for (int64_t first = 0; images > 0 && first < x.batch; first += images) {
      tw_conv_args some = advanced(x, 0, first, first);
      some.batch = x.batch - first < images ? x.batch - first : images;
      if (int status = launch_slice(some, workspace, stream); status != TW_OK) return status;
    }
    return images > 0 ? int(TW_OK) : launch_rows(x, image, workspace, stream);
  }
  // Some images at a time of one group of backward_weight; splits of k of all launches lie one behind the other.
  static int launch_sums(const tw_conv_args &x, int64_t images, void *workspace, void *stream) {
    const auto on = static_cast<hipStream_t>(stream);
    for (int64_t z = 0; z < x.groups; ++z) {
      Launched one{};
      int64_t held = 0;
      for (int64_t first = 0; first < x.batch; first += images) {
        const int64_t count = x.batch - first < images ? x.batch - first : images;
        const tw_conv_args some = of_images(advanced(x, 0, first, first), count);
        one = from_group(launch_of(some, static_cast<float *>(workspace) + held * slice(x)), z);
        one.classes[0] = all_pixels(some);
        if (int status = run(one, dim3(tiles(one.m, one.n), 1, one.parts), on, false); status != TW_OK) return status;
        held += one.parts;
      }
      one.accum = workspace, one.parts = int(held);
      if (int status = add_parts(one, 1, on); status != TW_OK) return status;
    }
    return TW_OK;
  }
  // Every image alone, some rows of its result at a time.  Rows of the image that these read may be outside of it: one is
  // left then, which none of them reads.
  static int launch_rows(const tw_conv_args &x, selection::Wide image, void *workspace, void *stream) {
    const int axis = selection::hip_conv::sliced_axis(x.out);
    if (!forward || axis < 0) return TW_LIMIT;
    const selection::Wide apart = selection::Wide(read(x)[1 + axis]) * int64_t(sizeof(T));
    const int64_t taps = (x.window[axis] - 1) * x.dilation[axis] + 1;
    const int64_t rows =
        selection::hip_conv::rows_at_once(x.out[axis], x.stride[axis], taps, image - (x.size[axis] - 1) * apart, apart);
    if (rows == 0) return TW_LIMIT;
    for (int64_t n = 0; n < x.batch; ++n)
      for (int64_t first = 0; first < x.out[axis]; first += rows) {
        const int64_t count = x.out[axis] - first < rows ? x.out[axis] - first : rows;
        const int64_t from = first * x.stride[axis] - x.before[axis], last = x.size[axis] - 1;
        const int64_t low = from < 0 ? 0 : from > last ? last : from, end = from + (count - 1) * x.stride[axis] + taps;
        tw_conv_args some = advanced(advanced(x, 0, n, n), 1 + axis, low, first);
        some.batch = 1, some.out[axis] = count, some.before[axis] = low - from;
        some.size[axis] = (end > last + 1 ? last + 1 : end <= low ? low + 1 : end) - low;
        if (int status = launch_slice(some, workspace, stream); status != TW_OK) return status;
      }
    return TW_OK;
  }
  static Launched from_group(const Launched &all, int64_t z) {
    Launched one = all;
    one.a = moved<T>(all.a, z * all.a_group), one.b = moved<T>(all.b, z * all.b_group);
    one.e = static_cast<C *>(all.e) + z * all.e_group;
    for (int t = 0; t < Config::num_d; ++t) one.d[t] = moved<D>(all.d[t], z * all.d_group[t]);
    return one;
  }
  static int launch_slice(const tw_conv_args &x, void *workspace, void *stream) {
    const auto on = static_cast<hipStream_t>(stream);
    Launched all = launch_of(x, workspace);
    if constexpr (data) return run_residues(x, all, on);
    all.classes[0] = all_pixels(x);
    const int64_t step = at_once(x);
    for (int64_t z = 0; z < x.groups; z += step) {
      Launched one = from_group(all, z);
      const dim3 grid(tiles(one.m, one.n), x.groups - z < step ? x.groups - z : step, one.parts);
      if (int status = run(one, grid, on); status != TW_OK) return status;
    }
    return TW_OK;
  }
};

}  // namespace tw::hip
