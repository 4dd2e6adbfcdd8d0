// The host's half of convolutions over halo tiles of pixels.
#pragma once
#include <tilewright/cuda/conv/halo/shape.h>
#include <tilewright/cuda/conv/tma_ws/host.h>

namespace tw::cuda {

template <class Config> struct HostConvHalo : HostConvTmaWs<Config> {
  using Inner = HostConvTmaWs<Config>;
  using In = typename Config::A;
  using C = typename Config::C;
  using S = ConvHalo<Config>;
  using Inner::data, Inner::forward;
  static constexpr int64_t clear_bytes = 0;

  // Of D tensors; limits.h says the rest.
  static Answer broken(const tw_conv_args &x) {
    for (int i = 0; i < Config::num_d && x.batch; ++i)
      if (x.d_strides[i][3] || x.d_strides[i][4] != 1) return {TW_LIMIT, "a D tensor is not one value per channel"};
    return {};
  }
  static int64_t workspace(const tw_conv_args &x) { return diagonal(x) ? 0 : Inner::block_bytes(x); }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes), 1, true}; }

  static int run(const tw_conv_args &given, const Loaded::Place &place, void *workspace, void *stream,
                 bool follows = false) {
    const bool apart = workspace_needed(given);
    if (apart && !workspace) return TW_BAD_ARGS;
    tw_conv_args x = given;
    if (apart)
      if (int status = Inner::move_blocks(given, workspace, true, place, stream, follows)) return status;
    Inner::join_groups(x, Inner::merged_groups(given));
    if (apart) Inner::lay_apart(x, workspace);
    ConvHaloArgs t{};
    if (!lay_halo(x, t)) return TW_BAD_ARGS;
    TensorMap a = {}, b = {}, e = {}, d = {};
    if (diagonal(given)) {
      t.merged = int(Inner::merged_groups(given));
      t.rows_of_one = int(given.filters), t.columns_of_one = int(given.channels);
    }
    if (int error = maps(x, apart ? Inner::wide(x) : x.channels, t, a, b)) return status_of(error);
    const int64_t fixed = int64_t(t.order.tiles_n) * t.order.batch, here = place.multiprocessors;
    int64_t blocks = fixed * t.order.tiles_m < here ? fixed * t.order.tiles_m : here;
    t.resident = int64_t(t.taps_in_all) * t.blocks <= S::Taps && fixed <= here;
    if (t.resident) blocks = fixed * (t.order.tiles_m < here / fixed ? t.order.tiles_m : here / fixed);
    LaunchShape how = shape();
    how.early = follows || apart;
    return start(place.functions[0], {unsigned(blocks)}, how, stream, a, b, e, d, t);
  }

 private:
  static bool workspace_needed(const tw_conv_args &x) { return workspace(x) > 0; }
  // Whether weights of merged groups can be fetched as they are: one stage of k, all columns in one tile.
  static bool diagonal(const tw_conv_args &x) {
    const int64_t merged = Inner::merged_groups(x), strides[2] = {x.w_strides[0], x.w_strides[3]};
    return merged > 1 && x.filters % 8 == 0 && x.channels * merged <= 64 && x.filters * merged <= (data ? 64 : S::BN) &&
           (!data || S::BN == 64) && Inner::readable(x.w, strides, 2);
  }
  // Residues of taps.
  static int64_t kinds(const tw_conv_args &x, int axis) {
    return x.stride[axis] < x.window[axis] ? x.stride[axis] : x.window[axis];
  }
  // The arguments that follow from sizes.  limits.h says which have a halo tile; false is what the arguments have no room for.
  static bool lay_halo(const tw_conv_args &x, ConvHaloArgs &t) {
    const int64_t *out = data ? x.size : x.out;
    int64_t traversed = x.batch;
    for (int i = 0; i < 3; ++i) {
      const int64_t far = (x.window[2 - i] - 1) * x.dilation[2 - i], before = x.before[2 - i], step = x.stride[2 - i];
      const int64_t first = data ? before - far : -before, size = out[2 - i] + (i < 2 ? far / step : 0);
      traversed *= size;
      t.grid.size[i] = divider(size), t.grid.step[i] = int(step), t.grid.first[i] = int(first);
      t.inside[i] = int(out[2 - i]), t.apart[i] = (data ? x.x_strides : x.y_strides)[3 - i];
      if (i == 2) continue;
      t.most[i] = int(ceil_div(x.window[2 - i], step)), t.last_residue[i] = int((x.window[2 - i] - 1) % step);
      t.apart_of_taps[i] = int(i ? step * x.window[2] : step);
    }
    if (x.window[0] * kinds(x, 1) * kinds(x, 2) > most_taps) return false;
    t.apart[3] = (data ? x.x_strides : x.y_strides)[0];
    t.reach[0] = int(x.dilation[2]), t.reach[1] = int(x.dilation[1] * t.grid.size[0].by);
    const int64_t rows = S::BM + (t.most[0] - 1) * t.reach[0] + (t.most[1] - 1) * t.reach[1];
    if (rows > Config::halo_rows) return false;
    t.halo = int(ceil_div(rows, 8) * 8);
    for (int64_t d = 0; d < x.window[0]; ++d)
      for (int64_t h = 0; h < kinds(x, 1); ++h)
        for (int64_t w = 0; w < kinds(x, 2); ++w)
          t.taps[t.kinds++] = {uint16_t((d * x.window[1] + h) * x.window[2] + w),
                               {uint8_t(w), uint8_t(h), uint8_t(d * x.dilation[0])}};
    t.last_tap = data ? int(pixels(x.window)) - 1 : -1;
    t.blocks = int(ceil_div(data ? x.filters : x.channels, S::BK));
    t.groups = int(x.groups), t.classes = 1, t.taps_in_all = int(pixels(x.window));
    t.pixels_of_a_group = int(data ? x.filters : x.channels), t.lines_of_a_group = int(x.filters);
    t.m = int(traversed), t.n = int(data ? x.channels : x.filters), t.group_apart = t.n;
    t.order = {int(x.groups), int(ceil_div(t.m, S::BM)), int(ceil_div(t.n, S::BN)), 16, 1, 0, 1, 0};
    return true;
  }
  static int maps(const tw_conv_args &x, int64_t channels, ConvHaloArgs &t, TensorMap &a, TensorMap &b) {
    using Lines = MapCache<In, S::MajorB ? 64 : S::BK, S::MajorB ? 64 : S::BN, 3>;
    static KnownMaps<TraversalMap<In, S::Spatial>> halos;
    static Lines lines;
    TraversalKey key{};
    static_cast<PixelKey &>(key) = Inner::traversal_key(x, t);
    key.rows = t.halo;
    if (int error = halos.get(key, a)) return error;
    const int64_t all = x.groups * x.filters;
    if (t.merged) {
      static KnownMaps<RowsMap> rows;
      RowsKey one{};
      static_cast<MapKey &>(one) = MapKey{x.w, t.columns_of_one, all, Inner::taps(x), x.w_strides[0], x.w_strides[3]};
      one.rows = t.rows_of_one;
      if (int error = rows.get(one, b)) return error;
    } else if (int error = lines.get(MapKey{x.w, channels, all, Inner::taps(x), x.w_strides[0], x.w_strides[3]}, b))
      return error;
    const tw_gemm_args g = Inner::product(x, t);
    t.e = g.e, t.finish = epilogue_args(g), t.first_aux = 1;
    for (int i = 0; i < Config::num_d; ++i)
      t.aux_operands[i + 1] = {g.d[i], 0, g.d_batch_stride[i],
                               Config::epilogue == Epilogue::MultiDMultiply ? 0.0f : 1.0f, LoadMode::row};
    return 0;
  }
  // Rows of weights of one group.
  struct RowsKey : MapKey {
    int rows;
    bool operator==(const RowsKey &o) const { return rows == o.rows && MapKey::operator==(o); }
    uint64_t hash() const { return MapKey::hash() * 31 + uint64_t(rows); }
  };
  struct RowsMap {
    using Key = RowsKey;
    static int encode(const RowsKey &key, TensorMap &map) {
      return encode_boxes<In>(key, 64, uint32_t(key.rows), 3, map);
    }
  };
};

}  // namespace tw::cuda
