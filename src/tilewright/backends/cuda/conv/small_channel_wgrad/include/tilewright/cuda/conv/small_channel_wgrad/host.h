// The host's half of gradients of weights of first layers: what they refuse, how large stages are, launches.
#pragma once
#include <tilewright/conv_args.h>
#include <tilewright/cuda/conv/split_reduce.h>
#include <tilewright/cuda/conv/small_channel_wgrad/shape.h>
#include <tilewright/cuda/conv/tensor_maps.h>
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/say.h>

namespace tw::cuda {

template <class Config> struct HostConvSmallChannelWgrad {
  using In = typename Config::A;
  using S = SmallChannelWgrad<Config>;
  static constexpr int64_t clear_bytes = 0;
  enum Functions { main_function, add_function };

  static Answer broken(const tw_conv_args &) { return {}; }  // limits.h says all
  static int64_t workspace(const tw_conv_args &x) {
    return parts(x, laid(x), most_processors) * part_apart(x) * int64_t(sizeof(float));
  }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), unsigned(S::most_shared), 1, true}; }

  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    const Stage stage = laid(x);
    if (!workspace || !stage.high) return TW_BAD_ARGS;
    SmallChannelWgradArgs t = arguments(x, stage);
    const int here = place.multiprocessors > most_processors ? most_processors : place.multiprocessors;
    t.parts = int(parts(x, stage, here)), t.partial = static_cast<float *>(workspace);
    TensorMap y = {};
    static KnownMaps<TileMap<In, 64, 3>> known;
    if (int error = known.get(TileKey{x.y,
                                      {x.filters, x.out[2], x.out[1], x.out[0] * x.batch},
                                      {x.y_strides[3], x.y_strides[2], x.out[0] > 1 ? x.y_strides[1] : x.y_strides[0]},
                                      uint32_t(stage.segment),
                                      uint32_t(stage.high)},
                              y))
      return status_of(error);
    LaunchShape how = shape();
    how.shared_bytes = unsigned(S::Stages * t.stage_bytes + S::barriers + 1024);
    const int status = start(place.functions[main_function], {unsigned(items(x) * t.parts)}, how, stream, y, t);
    return status != TW_OK
               ? status
               : start(place.functions[add_function], {adding_blocks(t.weights)},
                       LaunchShape{unsigned(adding_threads), unsigned(adding_threads * 4), 1, false, true}, stream, t);
  }

 private:
  static constexpr int64_t most_processors = Config::Arch::most_processors, usual_processors = Config::Arch::processors,
                           latency = 1500, most_channels = 8, most_width = 64, most_stride = 8, most_high = 16,
                           most_segment = 256;

  // Stages of results: across, and down; 0 where none fits.
  struct Stage {
    int64_t segment, high, segments, chunks, row, rows;
  };
  static bool narrow(const tw_conv_args &x) { return x.channels <= 4 && x.stride[2] % 2 == 0; }
  // A pixel more before the window where lines have room for it, so that pairs of pixels begin at even ones.
  static int64_t shift(const tw_conv_args &x) { return narrow(x) && x.before[2] % 2 && x.window[2] % 2; }
  static bool words(const tw_conv_args &x) {
    bool even = reinterpret_cast<uintptr_t>(x.x) % 4 == 0 && x.size[2] % 2 == 0 && (x.before[2] + shift(x)) % 2 == 0;
    for (int i = 0; i < 3; ++i) even = even && x.x_strides[i] % 2 == 0;
    return even && narrow(x) && x.channels == 3 && x.x_strides[3] == 3;
  }
  static int64_t lines(const tw_conv_args &x) { return ceil_div(x.window[2] * (narrow(x) ? 4 : 8), 8); }
  static int64_t phases(const tw_conv_args &x) { return narrow(x) ? x.stride[2] / 2 : x.stride[2]; }
  static int64_t weights(const tw_conv_args &x) { return x.filters * pixels(x.window) * x.channels; }
  static int64_t part_apart(const tw_conv_args &x) { return items(x) * lines(x) * S::Rows * 512; }
  static int64_t items(const tw_conv_args &x) { return ceil_div(x.filters, 64) * x.window[0]; }
  static int64_t parts(const tw_conv_args &x, const Stage &stage, int64_t processors) {
    const int64_t share = processors / items(x), all = stage.segments * stage.chunks * x.out[0] * x.batch,
                  most = share < 1 ? 1 : share;
    return most < all ? most : all;
  }
  static int64_t stage_bytes(const tw_conv_args &x, const Stage &stage) {
    const int64_t of_x = stage.rows * phases(x) * stage.row * S::line;
    return stage.segment * stage.high * 128 + ceil_div(of_x, 1024) * 1024;
  }
  // About, of the busiest multiprocessor: stages in which the longest of y, products and lines to spread counts, and what
  // comes before the first one.
  static int64_t cycles(const tw_conv_args &x, const Stage &one) {
    const int64_t pixels = one.segment * one.high, line = phases(x) * one.row, moved = one.high * x.stride[1];
    const int64_t read = (moved < one.rows ? moved : one.rows) * line, again = one.rows * line - read;
    constexpr int64_t each = S::N / 2 > 16 + S::N / 4 ? S::N / 2 : 16 + S::N / 4;  // wgmma, or its operands
    const int64_t products = pixels / 16 * S::groups * S::Each * each, spread = latency + 4 * read + again / 2;
    int64_t longest = products > spread ? products : spread;
    longest = longest > pixels * 15 / 2 ? longest : pixels * 15 / 2;
    const int64_t share = parts(x, one, usual_processors), all = one.segments * one.chunks * x.out[0] * x.batch;
    const int64_t rounds = ceil_div(all, share) * ceil_div(items(x) * share, usual_processors);
    return (rounds - 1) * longest + latency + 4 * one.rows * line + products;
  }
  // The rows of results of a stage that take the fewest, as far as there is room.
  static Stage laid(const tw_conv_args &x) {
    Stage best{};
    int64_t least = 0;
    const int64_t wide = ceil_div(x.out[2], 16) * 16, segments = ceil_div(wide, most_segment);
    for (int64_t high = 1; high <= most_high && (high == 1 || high <= x.out[1]); ++high) {
      Stage one{};
      one.segment = ceil_div(ceil_div(x.out[2], segments), 16) * 16, one.high = high;
      one.segments = ceil_div(x.out[2], one.segment), one.chunks = ceil_div(x.out[1], high);
      one.row = one.segment + (lines(x) - 1) / phases(x);
      one.rows = (high - 1) * x.stride[1] + (S::Rows - 1) * x.dilation[1] + 1;
      if (S::Stages * stage_bytes(x, one) + S::barriers + 1024 > S::most_shared) break;
      const int64_t cost = cycles(x, one);
      if (best.high && cost >= least) continue;
      best = one, least = cost;
    }
    return best;
  }
  static SmallChannelWgradArgs arguments(const tw_conv_args &x, const Stage &stage) {
    SmallChannelWgradArgs t{};
    t.from = x.x, t.to = x.w;
    for (int i = 0; i < 3; ++i) {
      t.apart[i] = x.x_strides[3 - i], t.size[i] = int(x.size[2 - i]);
      t.before[i] = int(x.before[2 - i]), t.step[i] = int(x.stride[2 - i]);
    }
    t.before[0] += int(shift(x)), t.shift = int(shift(x)), t.words = words(x);
    t.apart[3] = x.x_strides[0], t.deep_apart = int(x.dilation[0]);
    t.channels = int(x.channels), t.filters = int(x.filters), t.narrow = narrow(x);
    t.window_w = int(x.window[2]), t.planes = int(x.window[0]), t.lines = int(lines(x));
    t.phases = int(phases(x)), t.row = int(stage.row);
    t.segment = int(stage.segment), t.high = int(stage.high), t.rows = int(stage.rows);
    t.rows_apart = int(x.dilation[1] * phases(x) * stage.row);
    const int64_t again = stage.rows - stage.high * x.stride[1];
    t.again = int((again < 0 ? 0 : again) * phases(x) * stage.row);
    t.y_bytes = int(stage.segment * stage.high * 128), t.stage_bytes = int(stage_bytes(x, stage));
    t.segments = divider(stage.segments), t.chunks = divider(stage.chunks), t.depth = divider(x.out[0]);
    t.by_row = divider(phases(x) * stage.row), t.by_phase = divider(stage.row);
    t.count = int(stage.segments * stage.chunks * x.out[0] * x.batch), t.blocks_m = int(ceil_div(x.filters, 64));
    t.by_channels = divider(x.channels), t.by_taps = divider(pixels(x.window)), t.by_width = divider(x.window[2]);
    t.part_apart = part_apart(x);
    t.filter_apart = x.w_strides[0], t.tap_apart = x.w_strides[3], t.weights = weights(x);
    return t;
  }
};

}  // namespace tw::cuda
