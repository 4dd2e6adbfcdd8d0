// The host's half of convolutions in copies: any memory that another kernel would refuse, channels-first among it.
//
// Operands are copied to dense channels-last memory in the workspace, the kernel of conv.h works on the copies, and its
// result is copied back.  Only what needs it is copied.  A copy has as many channels and filters a group as the kernel's
// loads are wide, and as many groups as it merges.  Of a result that is copied nothing is filled up forward, so that D
// tensors are read where they lie, with strides of their own.
#pragma once
#include <tilewright/hip/conv/kernel.h>
#include <tilewright/hip/conv/copies.h>

namespace tw::hip {

template <int bytes> struct ElementBits;
template <> struct ElementBits<1> {
  using type = uint8_t;
};
template <> struct ElementBits<2> {
  using type = uint16_t;
};
template <> struct ElementBits<4> {
  using type = uint32_t;
};

template <class Config, bool back> __global__ void __launch_bounds__(ConvCopy::threads) conv_copy(const ConvCopy x) {
#if defined(__HIP_DEVICE_COMPILE__)
  using T = std::conditional_t<back, typename Config::C, typename Config::A>;
  conv_move<back, typename ElementBits<int(sizeof(T))>::type>(x);
#endif
}

template <class Config, class Limits> struct ConvCopied : PlainKernel {
  using Inner = Conv<Config, Limits>;
  using T = typename Config::A;
  using C = typename Config::C;
  static constexpr bool forward = Inner::forward, data = Inner::data, weight = Inner::weight;
  static constexpr int64_t most_lines = int64_t(1) << 30, alignment = 256;

  // Channels and filters of a group in the copies, in multiples of these: whole loads of one group, or of merged ones.
  static constexpr int shared_by_groups = Config::merged & -Config::merged;
  static constexpr int of_merged(int load) { return load > shared_by_groups ? load / shared_by_groups : 1; }
  static constexpr int larger(int a, int b) { return a > b ? a : b; }
  static constexpr int channel_grain = forward ? larger(of_merged(Config::read_a), Config::read_b) : Config::read_b;
  static constexpr int filter_grain = forward ? 1 : of_merged(Config::read_a);

  // One operand: whether it is copied, and the copy's numbers.
  struct One {
    bool made, result;
    int64_t images, size[3], channels, row;  // of the copy: filters are images of weights
    ConvCopy::Spread spread_images, spread_channels;

    int64_t width() const { return result ? int64_t(sizeof(C)) : int64_t(sizeof(T)); }
    double lines() const { return double(images) * size[0] * size[1] * size[2]; }
    double elements() const { return made ? lines() * row : 0; }
    int64_t bytes() const { return Inner::up(int64_t(elements()) * width(), alignment); }
    void lay(int64_t *strides) const {
      strides[4] = 1, strides[3] = row, strides[2] = row * size[2], strides[1] = strides[2] * size[1];
      strides[0] = strides[1] * size[0];
    }
  };
  struct All {
    int64_t groups, channels, filters;  // of the problem in copies
    One x, w, y;
  };

  static ConvCopy::Spread spread(int64_t groups, int64_t own, int64_t each) {
    return {divider(each), int(own), int(groups)};
  }
  // As a problem has it in Python: of all operands or none.
  static bool aligned(const tw_conv_args &x) {
    return !Inner::apart(x.x, 16) && !Inner::apart(x.w, 16) && !Inner::apart(x.y, 16);
  }
  // Whether the kernel can read an operand where it lies; of results whether it can write it.
  static bool taken(bool aligned, const int64_t *strides, bool result, int load) {
    if (strides[4] != 1 || (!result && load > 1 && !aligned)) return false;
    for (int i = 0; i < 4; ++i)
      if (strides[i] < 0 || (!result && strides[i] % load)) return false;
    return true;
  }
  static One one(bool made, bool result, const int64_t (&size)[3], ConvCopy::Spread images, ConvCopy::Spread channels,
                 int64_t all_images, int64_t all_channels, bool padded_rows) {
    const int64_t piece = 16 / (result ? int64_t(sizeof(C)) : int64_t(sizeof(T)));
    const int64_t row = padded_rows ? Inner::up(all_channels, piece) : all_channels;
    return {made, result, all_images, {size[0], size[1], size[2]}, all_channels, row, images, channels};
  }
  static All of(const tw_conv_args &x) {
    All made{};
    made.groups = Inner::up(x.groups, Config::merged);
    made.channels = Inner::up(x.channels, channel_grain), made.filters = Inner::up(x.filters, filter_grain);
    const bool more_groups = made.groups != x.groups, more_channels = made.channels != x.channels,
               more_filters = made.filters != x.filters;
    const int of_x = weight ? Config::read_b : Config::read_a;
    const bool taps = data || (x.w_strides[3] == x.channels && Inner::even(x.w_strides, 1, x.window));
    const auto images = spread(1, x.batch, x.batch > 0 ? x.batch : 1);
    made.x = one(more_groups || more_channels || !taken(aligned(x), x.x_strides, data, of_x), data, x.size, images,
                 spread(x.groups, x.channels, made.channels), x.batch, made.groups * made.channels, data);
    made.w = one(more_groups || more_channels || more_filters || !taps || !taken_w(x), weight, x.window,
                 spread(x.groups, x.filters, made.filters), spread(1, x.channels, made.channels),
                 made.groups * made.filters, made.channels, false);
    made.y = one(more_groups || more_filters || !taken(aligned(x), x.y_strides, forward, Config::read_a) ||
                     (weight && !Inner::even(x.y_strides, x.batch, x.out)),
                 forward, x.out, images, spread(x.groups, x.filters, made.filters), x.batch, made.groups * made.filters,
                 forward);
    return made;
  }
  // Forward reads a filter as one row, of merged groups a tap of it; only its beginning need be whole.
  static bool taken_w(const tw_conv_args &x) {
    if (!forward) return taken(aligned(x), x.w_strides, weight, Config::read_b);
    return taken(true, x.w_strides, true, 1) && x.w_strides[0] % Config::read_b == 0 &&
           (Config::read_b == 1 || aligned(x));
  }

  // The problem in copies, which lie one after another from `room` on.
  static tw_conv_args inner(const tw_conv_args &given, const All &all, char *room) {
    tw_conv_args x = given;
    x.groups = all.groups, x.channels = all.channels, x.filters = all.filters;
    if (all.x.made) x.x = room, room += all.x.bytes(), all.x.lay(x.x_strides);
    if (all.w.made) x.w = room, room += all.w.bytes(), all.w.lay(x.w_strides);
    if (all.y.made) x.y = room, all.y.lay(x.y_strides);
    return x;
  }

  static int check(const void *args, char *why, size_t bytes) {
    const auto *x = static_cast<const tw_conv_args *>(args);
    if (x && (double(x->batch) * x->groups * x->channels * x->filters > 4e18 || x->channels >= most_lines ||
              x->filters >= most_lines || x->groups >= most_lines || x->batch >= most_lines))
      return say({TW_LIMIT, "2^30 or more images, groups, channels or filters"}, why, bytes);
    return selection::check_conv<Config, Limits>(x, x && aligned(*x), why, bytes);
  }

  static int64_t beside(const tw_conv_args &copied) { return Inner::up(Inner::workspace(&copied, 0), alignment); }
  static int64_t workspace(const void *args, int64_t) {
    const tw_conv_args &x = *static_cast<const tw_conv_args *>(args);
    if (nothing_written<Config>(x)) return 0;
    const All all = of(x);
    return beside(inner(x, all, nullptr)) + all.x.bytes() + all.w.bytes() + all.y.bytes();
  }

  // Whether neighbouring pixels of a channel lie side by side in whole accesses.
  static bool pixels_beside(const One &one, const void *tensor, const int64_t *strides, int64_t piece) {
    if (strides[3] != 1 || !Inner::even(strides, 1, one.size) || pixels(one.size) % piece) return false;
    return strides[0] % piece == 0 && strides[4] % piece == 0 && !Inner::apart(tensor, 16);
  }
  static bool channels_beside(const One &one, const void *tensor, const int64_t *strides, int64_t piece) {
    if (one.spread_channels.own != int(one.spread_channels.each.by) || one.channels % piece) return false;
    if (one.channels != int64_t(one.spread_channels.own) * one.spread_channels.groups) return false;
    for (int i = 0; i < 4; ++i)
      if (strides[i] % piece) return false;
    return !Inner::apart(tensor, 16);
  }
  static ConvCopy arguments(const One &one, void *tensor, void *copy, const int64_t *strides) {
    ConvCopy made{};
    const int64_t piece = 16 / one.width();
    made.tensor = tensor, made.copy = copy, made.lines = int(one.lines()), made.row = int(one.row);
    made.channels = int(one.channels), made.pieces = divider(Inner::ceil_div(one.channels, piece));
    for (int i = 0; i < 3; ++i) made.size[i] = divider(one.size[2 - i]), made.apart[i] = strides[3 - i];
    made.apart[3] = strides[0], made.apart[4] = strides[4];
    made.images = one.spread_images, made.columns = one.spread_channels, made.whole = one.row % piece == 0;
    const bool transposed = strides[4] != 1;
    made.bits = transposed ? ConvCopy::least_bits : 0;
    while (transposed && made.bits < ConvCopy::most_bits && 1 << made.bits < one.channels) ++made.bits;
    made.blocks = divider(Inner::ceil_div(one.channels, 1 << made.bits));
    made.beside = (transposed ? pixels_beside : channels_beside)(one, tensor, strides, piece) && made.whole;
    return made;
  }
  static int move(const One &one, void *tensor, void *copy, const int64_t *strides, bool back, hipStream_t stream) {
    if (!one.made || one.result != back || one.lines() < 1) return TW_OK;
    ConvCopy x = arguments(one, tensor, copy, strides);
    const int64_t blocks = x.bits ? Inner::ceil_div(x.lines, ConvCopy::tile >> x.bits) * x.blocks.by
                                  : Inner::ceil_div(int64_t(x.lines) * x.pieces.by, ConvCopy::threads);
    const auto kernel = reinterpret_cast<const void *>(back ? &conv_copy<Config, true> : &conv_copy<Config, false>);
    void *words[] = {&x};
    const dim3 grid(unsigned(blocks < ConvCopy::most_blocks ? blocks : ConvCopy::most_blocks));
    const hipError_t error = hipLaunchKernel(kernel, grid, dim3(ConvCopy::threads), words, 0, stream);
    return error == hipSuccess ? int(TW_OK) : TW_DEVICE | int(error) << 8;
  }

  static int launch(const void *args, void *workspace, void *stream) {
    if (int code = check(args, nullptr, 0)) return code;
    const tw_conv_args &x = *static_cast<const tw_conv_args *>(args);
    if (nothing_written<Config>(x)) return TW_OK;
    if (!workspace) return TW_BAD_ARGS;
    const All all = of(x);
    const auto on = static_cast<hipStream_t>(stream);
    const tw_conv_args copied = inner(x, all, static_cast<char *>(workspace) + beside(inner(x, all, nullptr)));
    int status = TW_OK;
    for (int back = 0; back < 2 && status == TW_OK; ++back) {
      if (back) status = Inner::launch_checked(copied, workspace, stream);
      if (status == TW_OK) status = move(all.x, x.x, copied.x, x.x_strides, back, on);
      if (status == TW_OK) status = move(all.w, x.w, copied.w, x.w_strides, back, on);
      if (status == TW_OK) status = move(all.y, x.y, copied.y, x.y_strides, back, on);
    }
    return status;
  }
};

}  // namespace tw::hip
