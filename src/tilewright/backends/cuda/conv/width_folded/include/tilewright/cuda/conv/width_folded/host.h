// The host's half of convolutions of few channels: copies, and the convolution of many that they make of it.
#pragma once
#include <tilewright/cuda/conv/width_folded/shape.h>
#include <tilewright/cuda/conv/tma_ws/host.h>

namespace tw::cuda {

template <class Config> constexpr bool comes_filled<FoldedInto<Config>> = Config::variant == ConvVariant::backward_data;

template <class Config> struct HostConvWidthFolded {
  using Inner = HostConvTmaWs<FoldedInto<Config>>;
  using In = typename Config::A;
  using C = typename Config::C;
  static constexpr bool data = Config::variant == ConvVariant::backward_data,
                        weight = Config::variant == ConvVariant::backward_weight;
  static constexpr int64_t clear_bytes = Inner::clear_bytes;
  enum Functions { main_function, pixels_function, weights_function, all_functions };
  static constexpr CopyNeeds needs{false, false, true};

  static Answer broken(const tw_conv_args &x) { return x.batch == 0 ? Answer{} : Inner::broken(folded(x, nullptr)); }
  static int64_t workspace(const tw_conv_args &x) {
    const Rooms rooms = room_for(x);
    return beside(x) + rooms.x + rooms.w + rooms.y;
  }
  static constexpr LaunchShape shape() { return Inner::shape(); }

  // `follows`: a kernel of the same call comes before.
  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream,
                 bool follows = false) {
    if (!workspace) return TW_BAD_ARGS;
    char *room = static_cast<char *>(workspace) + beside(x);
    const tw_conv_args inner = folded(x, room);
    int status = TW_OK;
    if (!data) status = move(place.functions[pixels_function], pixels_in(x, inner), stream, follows);
    if (!weight && status == TW_OK)
      status = move(place.functions[weights_function], weights_of(x, inner), stream, follows || !data);
    if (status == TW_OK) status = Inner::run(inner, place, workspace, stream, true);
    if (weight && status == TW_OK) status = move(place.functions[weights_function], weights_of(x, inner), stream, true);
    if (data && status == TW_OK) status = move(place.functions[pixels_function], pixels_out(x, inner), stream, true);
    return status;
  }

 private:
  static constexpr int64_t most_bytes = int64_t(1) << 31;
  // Bytes of the copies: pixels of x, the weights, results.
  struct Rooms {
    int64_t x, w, y;
  };
  static int64_t whole(int64_t bytes) { return ceil_div(bytes, 128) * 128; }
  static int64_t beside(const tw_conv_args &x) { return whole(Inner::workspace(folded(x, nullptr))); }
  static int64_t width(const tw_conv_args &x) { return (x.out[2] - 1) * x.stride[2] + Folded::width / Folded::pixel; }
  static int64_t columns(const tw_conv_args &x) {
    return ceil_div(x.channels * (by_taps(x) ? x.window[2] : pixels(x.stride)), 8) * 8;
  }
  static int64_t row_of(int64_t filters) { return ceil_div(filters, 64) * 64; }  // of backward_data's weights
  static bool by_taps(const tw_conv_args &x) { return pixels(x.stride) == 1; }
  static Rooms room_for(const tw_conv_args &x) {
    const int64_t lines = x.filters * x.window[0] * x.window[1] * Folded::width;
    if (!data)
      return {whole(x.batch * x.size[0] * x.size[1] * width(x) * Folded::pixel * int64_t(sizeof(In))),
              whole(lines * int64_t(weight ? sizeof(C) : sizeof(In))), 0};
    const tw_conv_args inner = folded(x, nullptr);
    return {0, whole(inner.filters * pixels(inner.window) * row_of(inner.channels) * int64_t(sizeof(In))),
            whole(inner.batch * pixels(inner.out) * inner.filters * int64_t(sizeof(float)))};
  }
  static void dense(int64_t (&strides)[5], const int64_t (&size)[3], int64_t channels) {
    strides[4] = 1, strides[3] = channels, strides[2] = channels * size[2];
    strides[1] = strides[2] * size[1], strides[0] = strides[1] * size[0];
  }

  // The convolution of many channels, its copies from `room` on.
  static tw_conv_args folded(const tw_conv_args &given, char *room) {
    tw_conv_args x = given;
    if (data) {
      x.x = given.y, x.w = room;
      x.channels = given.filters, x.filters = columns(given);
      for (int i = 0; i < 5; ++i) x.x_strides[i] = given.y_strides[i];
      for (int i = 0; i < 3; ++i) {
        int64_t lowest, highest;
        reached(given, i, lowest, highest);
        x.size[i] = given.out[i], x.out[i] = ceil_div(given.size[i], given.stride[i]);
        x.window[i] = highest - lowest + 1, x.before[i] = -lowest, x.stride[i] = x.dilation[i] = 1;
      }
      if (by_taps(given)) x.out[2] = given.out[2], x.window[2] = 1, x.before[2] = 0;
      dense(x.w_strides, x.window, row_of(x.channels));
      dense(x.y_strides, x.out, x.filters);
      x.y = room + whole(x.filters * pixels(x.window) * row_of(x.channels) * int64_t(sizeof(In)));
      return x;
    }
    x.x = room, x.w = room + whole(given.batch * given.size[0] * given.size[1] * width(given) * Folded::pixel *
                                   int64_t(sizeof(In)));
    x.channels = Folded::width, x.size[2] = (given.out[2] - 1) * given.stride[2] + 1;
    x.window[2] = x.dilation[2] = 1, x.before[2] = 0;
    const int64_t wide[3] = {given.size[0], given.size[1], width(given)};
    dense(x.x_strides, wide, Folded::pixel);
    dense(x.w_strides, x.window, Folded::width);
    return x;
  }
  // The pixels of y that any pixel of a stride meets, from the first one's on.
  static void reached(const tw_conv_args &x, int i, int64_t &lowest, int64_t &highest) {
    const ClassAxis axis{x.stride[i], x.dilation[i], x.before[i], x.window[i]};
    bool any = false;
    lowest = highest = 0;
    for (int64_t rest = 0; rest < axis.stride; ++rest)
      for (int64_t tap = 0; tap < axis.window; ++tap) {
        if (!axis.meets(tap, rest)) continue;
        const int64_t at = axis.reads(tap, rest);
        lowest = any && lowest < at ? lowest : at, highest = any && highest > at ? highest : at;
        any = true;
      }
  }

  static int move(Function function, FoldArgs t, void *stream, bool follows) {
    return start(function, {unsigned(ceil_div(t.count, Folded::threads))},
                 LaunchShape{unsigned(Folded::threads), 0, 1, false, follows}, stream, t);
  }
  static FoldArgs common(const tw_conv_args &x) {
    FoldArgs t{};
    t.channels = int(x.channels), t.filters = int(x.filters);
    t.filter_apart = x.w_strides[0], t.tap_apart = x.w_strides[3];
    t.channel_apart = x.x_strides[4], t.weight_apart = x.w_strides[4];
    t.apart[3] = x.x_strides[0];
    for (int i = 0; i < 3; ++i) {
      t.apart[i] = x.x_strides[3 - i], t.window[i] = int(x.window[2 - i]);
      t.stride[i] = divider(x.stride[2 - i]), t.dilation[i] = int(x.dilation[2 - i]);
      t.padding[i] = int(x.before[2 - i]);
    }
    t.lines = divider(x.window[0] * x.window[1]), t.by_taps = by_taps(x);
    return t;
  }
  static FoldArgs pixels_in(const tw_conv_args &x, const tw_conv_args &inner) {
    FoldArgs t = common(x);
    t.from = x.x, t.to = inner.x;
    t.size[0] = divider(width(x)), t.size[1] = divider(x.size[1]), t.size[2] = divider(x.size[0]);
    t.inside = int(x.size[2]), t.before = int(x.before[2]);
    t.count = x.batch * x.size[0] * x.size[1] * width(x);
    return t;
  }
  static FoldArgs pixels_out(const tw_conv_args &x, const tw_conv_args &inner) {
    FoldArgs t = common(x);
    t.from = inner.y, t.to = x.x, t.row = int(inner.filters);
    for (int i = 0; i < 3; ++i) t.size[i] = divider(x.size[2 - i]), t.folded[i] = int(inner.out[2 - i]);
    t.count = x.batch * pixels(x.size);
    return t;
  }
  static FoldArgs weights_of(const tw_conv_args &x, const tw_conv_args &inner) {
    FoldArgs t = common(x);
    t.from = weight ? inner.w : x.w, t.to = weight ? x.w : inner.w;
    t.columns = divider(data ? row_of(x.filters) : x.channels);
    if (data) {
      for (int i = 0; i < 3; ++i) t.size[i] = divider(inner.window[2 - i]), t.first[i] = int(-inner.before[2 - i]);
      t.count = inner.filters * pixels(inner.window) * row_of(x.filters);
    } else {
      t.size[0] = divider(x.window[2]);
      t.count = x.filters * x.window[0] * x.window[1] * (weight ? x.window[2] * x.channels : Folded::width);
    }
    return t;
  }
};

}  // namespace tw::cuda
