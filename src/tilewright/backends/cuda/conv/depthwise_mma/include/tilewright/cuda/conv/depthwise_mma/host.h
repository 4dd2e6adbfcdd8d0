// The host's half of gradients of depthwise weights by matrix instructions.
#pragma once
#include <tilewright/conv_args.h>
#include <tilewright/cuda/conv/split_reduce.h>
#include <tilewright/cuda/conv/depthwise_mma/shape.h>
#include <tilewright/cuda/conv/tensor_maps.h>
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/say.h>

namespace tw::cuda {

template <class Config> struct HostConvDepthwiseMma {
  using G = DepthwiseMma<Config>;
  using In = typename Config::A;
  static constexpr int64_t clear_bytes = 0;
  enum Functions { main_function, add_function };

  static Answer broken(const tw_conv_args &) { return {}; }  // limits.h says all
  static int64_t workspace(const tw_conv_args &x) {
    const int64_t parts = most_processors / (blocks(x) * x.window[0]);
    return (parts < 1 ? 1 : parts) * pixels(x.window) * x.groups * int64_t(sizeof(float));
  }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(G::threads), unsigned(G::most_shared), 1, true}; }

  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    const int here = place.multiprocessors > most_processors ? most_processors : place.multiprocessors;
    const Tiles tiles = laid(x, here);
    if (!workspace || !tiles.lines) return TW_BAD_ARGS;
    DepthwiseMmaArgs t = arguments(x, tiles);
    t.partial = static_cast<float *>(workspace);
    TensorMap a = {}, b = {};
    if (int error = maps(x, t, a, b)) return status_of(error);
    LaunchShape how = shape();
    const int64_t used = int64_t(G::Stages) * t.stage_bytes;
    how.shared_bytes = unsigned((used < G::staging ? G::staging : used) + beside);
    int status = start(place.functions[main_function], {unsigned(int64_t(t.blocks) * t.parts * x.window[0])}, how,
                       stream, a, b, t);
    if (status == TW_OK)
      status = start(place.functions[add_function], {adding_blocks(pixels(x.window) * x.groups)},
                     LaunchShape{unsigned(adding_threads), unsigned(adding_threads * 4), 1, false, true}, stream, t);
    return status;
  }

 private:
  static constexpr int64_t most_processors = Config::Arch::most_processors, usual_processors = Config::Arch::processors,
                           most_planes = 7, most_rows = 7, most_columns = 8, least_taps = 16, most_box = 256,
                           most_lines = 32, beside = 2048;

  // Tiles of whole rows of an image: how many rows of results, their 16s of pixels; no lines: none fit.
  struct Tiles {
    int64_t segments, lines, rows, row, row_of_y, x_bytes, stage, tiles, parts;
  };
  static int64_t blocks(const tw_conv_args &x) { return ceil_div(x.groups, G::Channels); }
  static int64_t whole(int64_t bytes) { return ceil_div(bytes, 1024) * 1024; }
  // The rows of results with which the busiest multiprocessor reads the fewest bytes.
  static Tiles laid(const tw_conv_args &x, int64_t processors) {
    Tiles best{};
    int64_t least = 0;
    const int64_t share = processors / (blocks(x) * x.window[0]);
    for (int64_t lines = 2; lines <= most_lines && (lines == 2 || lines < x.out[1] + 2); lines += 2) {
      Tiles one{};
      one.segments = ceil_div(x.out[2] + x.window[2] - 1, G::deep), one.lines = lines;
      one.rows = lines + x.window[1] - 1, one.row = one.segments * G::deep + 4;
      one.row_of_y = one.segments * G::deep + G::margin;
      if (one.row_of_y > most_box) break;
      one.x_bytes = whole(one.rows * one.row * G::pixel);
      one.stage = one.x_bytes + whole(lines * one.row_of_y * G::pixel);
      if (G::Stages * one.stage + beside > G::most_shared) break;
      one.tiles = ceil_div(x.out[1], lines) * x.out[0] * x.batch;
      one.parts = share < 1 ? 1 : share < one.tiles ? share : one.tiles;
      const int64_t bytes = ceil_div(one.tiles, one.parts) * (one.stage + latency) + one.stage;
      if (best.lines && bytes >= least) continue;
      best = one, least = bytes;
    }
    return best;
  }
  static constexpr int64_t latency = 4096;  // of a tile, as bytes

  static DepthwiseMmaArgs arguments(const tw_conv_args &x, const Tiles &tiles) {
    DepthwiseMmaArgs t{};
    t.to = x.w, t.filter_apart = x.w_strides[0], t.tap_apart = x.w_strides[3];
    for (int i = 0; i < 3; ++i) t.before[i] = int(x.before[2 - i]);
    t.depth = int(x.size[0]), t.out_depth = int(x.out[0]), t.planes = int(x.window[0]);
    t.step = int(x.stride[0]), t.apart = int(x.dilation[0]);
    t.channels = int(x.groups), t.taps = int(pixels(x.window));
    t.window_w = int(x.window[2]), t.window_h = int(x.window[1]);
    t.row = int(tiles.row), t.row_of_y = int(tiles.row_of_y), t.rows = int(tiles.rows), t.lines = int(tiles.lines);
    t.segments = int(tiles.segments), t.x_bytes = int(tiles.x_bytes), t.stage_bytes = int(tiles.stage);
    t.box_bytes = int((tiles.rows * tiles.row + tiles.lines * tiles.row_of_y) * G::pixel);
    t.by_segments = divider(tiles.segments), t.chunks = divider(ceil_div(x.out[1], tiles.lines));
    t.results = divider(x.out[0]);
    t.tiles = int(tiles.tiles), t.blocks = int(blocks(x)), t.parts = int(tiles.parts);
    return t;
  }
  static int maps(const tw_conv_args &x, const DepthwiseMmaArgs &t, TensorMap &a, TensorMap &b) {
    static KnownMaps<TileMap<In, G::Channels, 2>> known;
    const auto key = [&x](const void *at, const int64_t *size, const int64_t *strides, int pixels, int rows) {
      return TileKey{at,
                     {x.groups, size[2], size[1], size[0] * x.batch},
                     {strides[3], strides[2], size[0] > 1 ? strides[1] : strides[0]},
                     uint32_t(pixels),
                     uint32_t(rows)};
    };
    const int error = known.get(key(x.x, x.size, x.x_strides, t.row, t.rows), a);
    return error ? error : known.get(key(x.y, x.out, x.y_strides, t.row_of_y, t.lines), b);
  }
};

}  // namespace tw::cuda
