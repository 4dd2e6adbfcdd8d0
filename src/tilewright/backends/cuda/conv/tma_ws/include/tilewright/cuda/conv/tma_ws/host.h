// The host's half of convolutions by the tma_ws pipeline: what they refuse, the traversal, tensor maps and launches.
#pragma once
#include <tilewright/conv_args.h>
#include <tilewright/cuda/conv/blocks.h>
#include <tilewright/cuda/conv/host_copies.h>
#include <tilewright/cuda/conv/tensor_maps.h>
#include <tilewright/cuda/conv/traversal.h>
#include <tilewright/cuda/schedulers/tile_scheduler.h>
#include <tilewright/cuda/gemm/host_operands.h>
#include <tilewright/say.h>

namespace tw::cuda {

// Whether the rows of weights that a kernel is given are filled up with zeros already.
template <class Config> constexpr bool comes_filled = false;

template <class Config> struct HostConvTmaWs {
  using In = typename Config::A;
  using C = typename Config::C;
  using S = ConvWs<Config>;
  using Scheduling = HostTileScheduler<S, typename Config::Arch>;
  static constexpr bool forward = S::variant == ConvVariant::forward, data = S::variant == ConvVariant::backward_data,
                        weight = S::variant == ConvVariant::backward_weight;
  static constexpr int64_t clear_bytes = Scheduling::clear_bytes;
  enum Functions { main_function, blocks_function, all_functions };
  static constexpr CopyNeeds needs{false, Config::merged, false};

  static Answer broken(const tw_conv_args &x) { return broken_ds<Config>(x); }  // limits.h says the rest
  static int64_t workspace(const tw_conv_args &x) { return Scheduling::bytes + block_bytes(x); }
  static constexpr LaunchShape shape() {
    return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes), unsigned(S::Cluster), true};
  }

  // `follows`: a kernel of the same call comes before.
  static int run(const tw_conv_args &given, const Loaded::Place &place, void *workspace, void *stream,
                 bool follows = false) {
    const int64_t merged = merged_groups(given);
    const bool apart = block_bytes(given) > 0;
    if ((Scheduling::shares || apart) && !workspace) return TW_BAD_ARGS;
    void *room = static_cast<char *>(workspace) + Scheduling::bytes;
    tw_conv_args x = given;
    if (!weight && apart)
      if (int status = move_blocks(given, room, true, place, stream, follows)) return status;
    join_groups(x, merged);
    if (apart) lay_apart(x, room);
    ConvWsArgs t{};
    if (!lay_traversal<Config>(x, t)) return TW_BAD_ARGS;
    TensorMap a = {}, b = {}, e = {}, d = {};
    const int64_t channels = apart || comes_filled<Config> ? wide(x) : x.channels;
    if (int error = maps(x, channels, t, a, b, e, d)) return status_of(error);
    Scheduling::lend(t, workspace);
    constexpr int64_t limit = Scheduling::most_blocks / S::Cluster;
    const int64_t here = place.clusters < 1 ? 1 : place.clusters > limit ? limit : place.clusters;
    const int64_t clusters = Scheduling::schedule(t.order, here);
    LaunchShape how = shape();
    how.early = follows || (!weight && apart);
    const int status =
        start(place.functions[main_function], {unsigned(clusters * S::Cluster)}, how, stream, a, b, e, d, t);
    return weight && apart && status == TW_OK ? move_blocks(given, room, false, place, stream, true) : status;
  }

  // Whether pixels lie at equal distances; a stride along one pixel says nothing.
  static bool pixels_dense(const int64_t *strides, const int64_t *sizes, int64_t images) {
    return even_pixels(strides, sizes, images);
  }

 protected:
  static int64_t taps(const tw_conv_args &x) { return x.window[0] * x.window[1] * x.window[2]; }
  static constexpr int64_t whole_row = forward ? S::BK : 64;  // channels that are fetched together
  // Channels of a tap of the weights, as they lie in the workspace.
  static int64_t wide(const tw_conv_args &x) {
    return weight || fills_up(x) || comes_filled<Config> ? ceil_div(x.channels, whole_row) * whole_row : x.channels;
  }
  // Rows of weights that end before their 128 bytes do come slowly, some ten cycles each: where they are many, they are filled
  // up in a copy.
  static bool fills_up(const tw_conv_args &x) {
    if (weight || Config::merged || comes_filled<Config> || x.channels % whole_row == 0) return false;
    const int64_t *to = data ? x.size : x.out, columns = data ? x.channels : x.filters;
    const int64_t deep = ceil_div(data ? x.filters : x.channels, S::BK), usual_processors = Config::Arch::processors,
                  many = 600;
    const int64_t tiles = ceil_div(x.batch * to[0] * to[1] * to[2], S::BM) * ceil_div(columns, S::BN) * x.groups;
    return double(ceil_div(tiles, usual_processors)) * deep * taps(x) * S::BN >= double(many);
  }

  // Of how many groups one is made: as few as fill whole stages, two or more.
  static int64_t merged_groups(const tw_conv_args &x) {
    if (!Config::merged) return 1;
    const int64_t deep = data ? x.filters : x.channels;
    for (int64_t merged = 2; merged <= x.groups; ++merged)
      if (x.groups % merged == 0 && merged * deep % S::BK == 0) return merged;
    return 0;
  }
  // Gradients whose taps are no whole 64s of columns side by side.
  static bool odd_columns(const tw_conv_args &x) {
    return weight && (x.channels % 64 || (taps(x) > 1 && x.w_strides[3] != x.channels));
  }
  // Of those, the ones that leave to where they belong, tap by tap, with nothing in between.
  static bool ragged(const tw_conv_args &x) {
    return odd_columns(x) && !Config::merged && x.groups == 1 && x.channels % 8 == 0 && !odd(x.w) &&
           !odd(x.w_strides[0], sizeof(C)) && !odd(x.w_strides[3], sizeof(C));
  }
  // Filters of several groups as one, or whose channels are filled up, or a gradient whose columns are, lie in the
  // workspace.
  static int64_t block_bytes(const tw_conv_args &x) {
    const int64_t merged = merged_groups(x);
    tw_conv_args y = x;
    join_groups(y, merged);
    const bool apart = merged > 1 || (odd_columns(x) && !ragged(x)) || fills_up(x);
    return apart ? ceil_div(y.groups * y.filters * taps(y) * wide(y) * int64_t(sizeof(C)), 128) * 128 : 0;
  }
  static void join_groups(tw_conv_args &x, int64_t merged) {
    x.groups /= merged, x.channels *= merged, x.filters *= merged;
  }
  static void lay_apart(tw_conv_args &x, void *room) {
    x.w = room;
    const int64_t tap = wide(x);
    x.w_strides[4] = 1, x.w_strides[3] = tap, x.w_strides[2] = tap * x.window[2];
    x.w_strides[1] = x.w_strides[2] * x.window[1], x.w_strides[0] = x.w_strides[1] * x.window[0];
  }
  static int move_blocks(const tw_conv_args &x, void *room, bool spread, const Loaded::Place &place, void *stream,
                         bool follows) {
    const int64_t merged = merged_groups(x);
    tw_conv_args y = x;
    join_groups(y, merged);
    BlocksArgs t{};
    t.from = spread ? x.w : room, t.to = spread ? room : x.w;
    t.merged = divider(merged), t.filters = divider(x.filters), t.channels = divider(x.channels);
    t.taps = divider(taps(x)), t.wide = divider(wide(y));
    t.count = x.groups * x.filters * taps(x) * (spread ? wide(y) : x.channels);
    t.filter_apart = x.w_strides[0], t.tap_apart = x.w_strides[3];
    const int64_t blocks = ceil_div(t.count, Blocks::threads * 4), most = int64_t(place.multiprocessors) * 8;
    return start(place.functions[blocks_function], {unsigned(blocks < most ? blocks : most)},
                 LaunchShape{unsigned(Blocks::threads), 0, 1, false, follows}, stream, t);
  }

  static bool readable(const void *at, const int64_t *strides, int count) {
    bool whole = !odd(at);
    for (int i = 0; i < count; ++i) whole = whole && !odd(strides[i], sizeof(In)) && strides[i] > 0;
    return whole;
  }

  // As a matrix product: rows, columns and results, for GEMM's epilogue stores.
  static tw_gemm_args product(const tw_conv_args &x, const ConvWsArgs &t) {
    tw_gemm_args g{};
    g.m = t.m, g.n = t.n, g.k = 1, g.batch = x.groups, g.alpha = 1;
    const int64_t *strides = forward ? x.y_strides : data ? x.x_strides : x.w_strides;
    g.e = forward ? x.y : data ? x.x : x.w;
    g.e_stride = weight ? strides[0] : strides[3];
    g.e_batch_stride = weight ? strides[0] * x.filters : t.n;
    for (int i = 0; i < Config::num_d; ++i) {
      g.d[i] = x.d[i], g.d_row_stride[i] = x.d_strides[i][3], g.d_col_stride[i] = x.d_strides[i][4];
      g.d_batch_stride[i] = x.d_strides[i][4] * x.filters;
    }
    return g;
  }

  // Also what of the arguments follows from where things lie.  `channels`: of the weights, zeros included.
  static int maps(const tw_conv_args &x, int64_t channels, ConvWsArgs &t, TensorMap &a, TensorMap &b, TensorMap &e,
                  TensorMap &d) {
    using Pixels = KnownMaps<PixelMap<In, S::Spatial, S::pixels>>;
    // Contiguous lines come 64 at a time, of as many k as a block of a cluster fetches.
    constexpr int parts = weight ? S::ClusterN : S::ClusterM;
    using Lines = MapCache<In, S::MajorB ? 64 : S::BK, S::MajorB ? 64 / parts : S::BN / parts, 3>;
    using Results = MapCache<C, S::chunk_columns, 64, S::chunk_columns == 64 ? 3 : S::chunk_columns == 32 ? 2 : 1>;
    static Pixels pixels;
    static Lines lines;
    int error = pixels.get(traversal_key(x, t), weight ? b : a);
    const int64_t all = x.groups * x.filters;
    const MapKey filters{x.w, channels, all, taps(x), x.w_strides[0], x.w_strides[3]};
    const MapKey rows{x.y, all, x.batch * x.out[0] * x.out[1] * x.out[2], 1, x.y_strides[3], 0};
    if (!error) error = lines.get(weight ? rows : filters, weight ? a : b);
    const tw_gemm_args g = product(x, t);
    t.e = g.e, t.e_stride = g.e_stride, t.e_batch_stride = g.e_batch_stride;
    t.finish = epilogue_args(g);
    if (ragged(x)) t.channels = int(x.channels), t.tap_apart = x.w_strides[3], t.columns = divider(t.blocks * 64);
    if constexpr (S::by_classes) set_rows(x, t);
    if constexpr (S::TmaStore) {
      static Results results;
      MapKey key{g.e, g.n, g.m, g.batch, g.e_stride, g.e_batch_stride};
      if (t.channels) key = {g.e, x.channels, x.filters, taps(x), x.w_strides[0], x.w_strides[3]};
      if (!error) error = results.get(key, e);
      if (!error) error = HostAuxOperands<Config, S>::set_up(g, t, d);
    }
    return error;
  }
  static PixelKey traversal_key(const tw_conv_args &x, const ConvWsArgs &t) {
    const int64_t *size = data ? x.out : x.size, *strides = data ? x.y_strides : x.x_strides;
    PixelKey key{};
    key.address = data ? x.y : x.x;
    key.sizes[0] = x.groups * (data ? x.filters : x.channels), key.sizes[4] = x.batch;
    key.strides[3] = strides[0];
    for (int i = 0; i < 3; ++i) {
      key.sizes[1 + i] = size[2 - i], key.strides[i] = strides[3 - i];
      key.steps[i] = t.grid.step[i], key.lower[i] = t.grid.first[i];
      key.upper[i] = int(t.grid.first[i] + (int64_t(t.grid.size[i].by) - 1) * t.grid.step[i] - (size[2 - i] - 1));
    }
    return key;
  }
  // Rows of x by classes.  `e_stride` says only how results are aligned: it has the bits of all strides.
  static void set_rows(const tw_conv_args &x, ConvWsArgs &t) {
    t.group_apart = x.channels, t.e_batch_stride = 0;
    for (int i = 0; i < 3; ++i) t.apart[i] = x.x_strides[3 - i], t.inside[i] = int(x.size[2 - i]);
    t.apart[3] = x.x_strides[0];
    t.first_aux = 1;
    t.rows_dense = t.classes == 1 && pixels_dense(x.x_strides, x.size, x.batch);
    if (!t.rows_dense) t.e_stride = t.apart[0] | t.apart[1] | t.apart[2] | t.apart[3] | x.channels;
  }
};

}  // namespace tw::cuda
