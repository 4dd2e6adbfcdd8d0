// The host's half of depthwise convolutions over tiles: what they refuse, how large tiles are, maps and launches.
#pragma once
#include <tilewright/conv_args.h>
#include <tilewright/cuda/conv/split_reduce.h>
#include <tilewright/cuda/conv/depthwise_tile/shape.h>
#include <tilewright/cuda/conv/host_copies.h>
#include <tilewright/cuda/conv/tensor_maps.h>
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/say.h>

namespace tw::cuda {

template <class Config> struct HostConvDepthwiseTile {
  using G = DepthwiseTile<Config>;
  using In = typename Config::A;
  using C = typename Config::C;
  static constexpr int64_t clear_bytes = 0, most = int64_t(1) << 31;
  static constexpr bool data = Config::variant == ConvVariant::backward_data, weight = G::weight;
  enum Functions { main_function, add_function, all_functions };
  static constexpr CopyNeeds needs{true, true, false};

  static Answer broken(const tw_conv_args &x) { return broken_ds<Config>(x); }  // limits.h says the rest
  static int64_t workspace(const tw_conv_args &x) {
    if (!weight) return 0;
    const int64_t lines = blocks(x) * x.window[0], parts = most_waves * most_processors / lines;
    return (parts < 1 ? 1 : parts) * pixels(x.window) * x.groups * int64_t(sizeof(float));
  }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(G::threads), unsigned(G::most_shared), 1, true}; }

  // `follows`: a kernel of the same call comes before.
  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream,
                 bool follows = false) {
    if (weight && !workspace) return TW_BAD_ARGS;
    const int here = place.multiprocessors > most_processors ? most_processors : place.multiprocessors;
    const Tiles tiles = laid(x, here);
    if (!tiles.stages) return TW_BAD_ARGS;
    DepthwiseTileArgs t = arguments(x, tiles);
    t.partial = static_cast<float *>(workspace);
    TensorMap a = {}, b = {};
    if (int error = maps(x, t, a, b)) return status_of(error);
    LaunchShape how = shape();
    how.shared_bytes = unsigned(tiles.shared), how.early = follows;
    const int64_t count = int64_t(t.blocks) * t.parts * (weight ? x.window[0] : 1);
    int status = start(place.functions[main_function], {unsigned(count)}, how, stream, a, b, t);
    if (weight && status == TW_OK)
      status = start(place.functions[add_function], {adding_blocks(pixels(x.window) * x.groups)},
                     LaunchShape{unsigned(adding_threads), unsigned(adding_threads * 4), 1, false, true}, stream, t);
    return status;
  }

 private:
  static constexpr int most_processors = Config::Arch::most_processors, usual_processors = Config::Arch::processors;
  static constexpr int most_waves = 2;
  static constexpr int64_t bytes_in = 35, bytes_moved = 18, latency = 1500,
                           a_row = 64;  // of one multiprocessor, a cycle

  static const int64_t *written(const tw_conv_args &x) { return data ? x.size : x.out; }
  static int64_t blocks(const tw_conv_args &x) { return ceil_div(x.groups, G::Channels); }
  static int64_t whole(int64_t bytes) { return ceil_div(bytes, 128) * 128; }
  // Pixels of a row that are whole 128 bytes.
  static int64_t even(int64_t count) { return ceil_div(count * G::pixel, 128) * 128 / G::pixel; }

  // How images are cut into tiles; no stages: not at all.
  struct Tiles {
    int64_t segments, chunks, strips, lines, row, rows, stages, shared, parts, tiles;
  };
  // Of a tile, about: multiplications, for which units of the tiles under way must be enough, or what comes in, or memory.
  static int64_t cycles_of(const Tiles &one, const tw_conv_args &x, int64_t groups, int64_t stage) {
    const int64_t planes = weight ? 1 : x.window[0], unit = planes * (G::K * G::K * G::TH * G::TW * 3 / 4 + 40);
    const int64_t there = one.stages * groups < 2 * G::warps ? one.stages * groups : 2 * G::warps;
    const int64_t rows = planes * one.rows + (weight ? one.lines : 0);  // short ones come slowly
    const int64_t multiply = groups * unit * 2 * G::warps / there, fetch = stage / bytes_in + rows * a_row;
    const int64_t results = one.lines * one.strips * G::TW * G::pixel;
    const int64_t moved = results * (G::S * G::S + G::Up * G::Up) / bytes_moved;
    int64_t longest = multiply > fetch ? multiply : fetch;
    longest = longest > moved ? longest : moved;
    return longest + (one.stages > 1 ? 100 : fetch + latency);
  }
  // What a cut depends on; problems seen before are not cut again.
  struct Cut {
    int64_t of[9];
    Tiles tiles;
    bool is(const Cut &o) const {
      bool same = true;
      for (int i = 0; i < 9; ++i) same = same && of[i] == o.of[i];
      return same;
    }
  };
  static Tiles laid(const tw_conv_args &x, int64_t processors) {
    static Lock lock{};
    static Cut known[16] = {};
    const int64_t *to = written(x);
    Cut one{{x.batch, x.groups, to[0], to[1], to[2], x.window[0], x.stride[0], processors, 1}, {}};
    uint64_t hash = 0;
    for (int64_t each : one.of) hash = (hash ^ uint64_t(each)) * 0x9e3779b97f4a7c15, hash ^= hash >> 32;
    Cut &place = known[hash % 16];
    lock.take();
    const bool found = place.is(one);
    if (found) one.tiles = place.tiles;
    lock.give();
    if (found) return one.tiles;
    one.tiles = cut(x, processors);
    lock.take();
    place = one;
    lock.give();
    return one.tiles;
  }
  // The cut with the least estimated cycles of the busiest multiprocessor.
  static Tiles cut(const tw_conv_args &x, int64_t processors) {
    static constexpr int64_t across[] = {1, 2, 3, 4, 8, 16, 64, most},
                             down[] = {1, 2, 3, 4, 6, 8, 12, 16, 32, 64, most};
    const int64_t *sizes = written(x), to[3] = {sizes[0], ceil_div(sizes[1], G::Up), ceil_div(sizes[2], G::Up)};
    const int64_t strips = ceil_div(to[2], G::TW), up = ceil_div(to[1], G::TH);
    const int64_t fixed = G::barriers + 128 + (weight ? 0 : whole(pixels(x.window) * G::Channels * 4));
    Tiles best{};
    int64_t least = 0;
    for (int64_t segments : across) {
      for (int64_t chunks : down) {
        Tiles one{};
        one.strips = ceil_div(strips, segments), one.lines = ceil_div(up, chunks) * G::TH;
        one.row = even((one.strips * G::TW - 1) * G::S + G::wide), one.rows = (one.lines - 1) * G::S + G::wide;
        if (one.row > 256 || one.rows > 256 || even(one.strips * G::TW) > 256) continue;  // of a box
        one.segments = ceil_div(strips, one.strips), one.chunks = ceil_div(to[1], one.lines);
        const int64_t planes = weight ? 1 : x.window[0];
        int64_t stage = planes * one.rows * one.row * G::pixel;
        if (weight) stage += one.lines * even(one.strips * G::TW) * G::pixel;
        const int64_t room = (G::most_shared - fixed) / stage;
        if (room < 1) continue;
        one.tiles = one.segments * one.chunks * to[0] * x.batch;
        one.stages = room < G::most_stages ? room : G::most_stages;
        const int64_t groups = ceil_div(one.strips * one.lines / G::TH, G::each);
        const int64_t each = cycles_of(one, x, groups, stage);
        for (int64_t waves = 1; waves <= most_waves; ++waves) {
          const int64_t lines = blocks(x) * (weight ? x.window[0] : 1), share = waves * processors / lines;
          one.parts = share < 1 ? 1 : share < one.tiles ? share : one.tiles;
          const int64_t rounds = share < 1 ? ceil_div(lines, processors) : waves;
          const int64_t cycles = rounds * (ceil_div(one.tiles, one.parts) * each + stage / bytes_in + latency);
          if (best.stages && cycles >= least) continue;
          least = cycles, best = one;
          const int64_t used = one.stages * stage;
          best.shared = fixed + (used < G::staging ? G::staging : used);
        }
      }
    }
    return best;
  }
  static DepthwiseTileArgs arguments(const tw_conv_args &x, const Tiles &tiles) {
    DepthwiseTileArgs t{};
    const int64_t *from = data ? x.out : x.size, *to = written(x), *to_strides = data ? x.x_strides : x.y_strides;
    t.with = x.w, t.to = weight ? x.w : data ? x.x : x.y;
    for (int i = 0; i < 3; ++i) {
      t.out[i] = int(to[2 - i]), t.before[i] = int(x.before[2 - i]), t.to_apart[i] = to_strides[3 - i];
      if (data) t.before[i] = int((x.window[2 - i] - 1) * x.dilation[2 - i] - x.before[2 - i]);
      if (G::Up > 1 && i < 2) t.before[i] = int((G::K - 1) / 2 - ceil_div(x.before[2 - i], 2));
    }
    t.to_apart[3] = to_strides[0];
    t.depth = int(from[0]), t.planes = int(x.window[0]), t.step = int(x.stride[0]), t.apart = int(x.dilation[0]);
    t.filter_apart = x.w_strides[0], t.tap_apart = x.w_strides[3];
    t.channels = int(x.groups), t.taps = int(pixels(x.window)), t.flipped = data && G::Up == 1;
    t.odd = int(x.before[2] % 2);
    t.strips = int(tiles.strips), t.lines = int(tiles.lines), t.row = int(tiles.row), t.rows = int(tiles.rows);
    t.row_of_y = int(even(tiles.strips * G::TW));
    t.stages = int(tiles.stages), t.groups = int(ceil_div(tiles.strips * tiles.lines / G::TH, G::each));
    t.by_strips = divider(t.strips), t.segments = divider(tiles.segments);
    t.chunks = divider(tiles.chunks), t.results = divider(to[0]);
    t.tiles = int(tiles.tiles), t.blocks = int(blocks(x)), t.parts = int(tiles.parts);
    t.finish.alpha = 1;
    for (int i = 0; i < Config::num_d; ++i)
      t.finish.d[i] = x.d[i], t.finish.d_row[i] = x.d_strides[i][3], t.finish.d_column[i] = x.d_strides[i][4];
    return t;
  }
  static int maps(const tw_conv_args &x, const DepthwiseTileArgs &t, TensorMap &a, TensorMap &b) {
    static KnownMaps<TileMap<In, G::Channels>> known;
    const auto key = [&x](const void *at, const int64_t *size, const int64_t *strides, int pixels, int rows) {
      return TileKey{at,
                     {x.groups, size[2], size[1], size[0] * x.batch},
                     {strides[3], strides[2], size[0] > 1 ? strides[1] : strides[0]},
                     uint32_t(pixels),
                     uint32_t(rows)};
    };
    const int error =
        known.get(data ? key(x.y, x.out, x.y_strides, t.row, t.rows) : key(x.x, x.size, x.x_strides, t.row, t.rows), a);
    if (error || !weight) return error;
    return known.get(key(x.y, x.out, x.y_strides, t.row_of_y, t.lines), b);
  }
};

}  // namespace tw::cuda
