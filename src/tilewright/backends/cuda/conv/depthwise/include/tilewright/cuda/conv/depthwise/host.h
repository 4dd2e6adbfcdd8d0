// The host's half of depthwise convolutions.
#pragma once
#include <tilewright/conv_args.h>
#include <tilewright/cuda/conv/depthwise/shape.h>
#include <tilewright/cuda/conv/host_copies.h>
#include <tilewright/cuda/host/launch.h>
#include <tilewright/say.h>

namespace tw::cuda {

template <class Config> struct HostConvDepthwise {
  using G = Depthwise<Config>;
  using In = typename Config::A;
  static constexpr int64_t clear_bytes = 0, most = int64_t(1) << 31;
  static constexpr bool data = Config::variant == ConvVariant::backward_data, weight = G::weight;
  static constexpr bool overlaps = can_overlap<Config>::value;
  static constexpr int most_vecs = 32;
  enum Functions { main_function, add_function, all_functions };
  static constexpr CopyNeeds needs{true, true, false};

  static Answer broken(const tw_conv_args &x) { return broken_ds<Config>(x); }  // limits.h says the rest
  static int64_t workspace(const tw_conv_args &x) {
    return weight ? parts(x, most_processors) * taps(x) * x.groups * int64_t(sizeof(float)) : 0;
  }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(G::threads), unsigned(G::most_shared)}; }

  // `follows`: a kernel of the same call comes before.
  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream,
                 bool follows = false) {
    if (weight && !workspace) return TW_BAD_ARGS;
    DepthwiseArgs t = arguments(x);
    const int here = place.multiprocessors > most_processors ? most_processors : place.multiprocessors;
    t.parts = int(parts(x, here));
    t.partial = static_cast<float *>(workspace);
    LaunchShape how = shape();
    how.shared_bytes = unsigned(shared(x)), how.early = follows && overlaps;
    const int64_t blocks = int64_t(t.blocks) * t.parts * lines(x);
    int status = start(place.functions[main_function], {unsigned(blocks)}, how, stream, t);
    if (weight && status == TW_OK)
      status = start(place.functions[add_function], {unsigned(ceil_div(taps(x) * x.groups, G::threads))},
                     LaunchShape{unsigned(G::threads), 0, 1, false, overlaps}, stream, t);
    return status;
  }

 private:
  static constexpr int64_t V_bytes = G::V * int64_t(sizeof(In));
  static constexpr int most_processors = Config::Arch::most_processors;

  static int64_t taps(const tw_conv_args &x) { return x.window[0] * x.window[1] * x.window[2]; }
  static const int64_t *written(const tw_conv_args &x) { return data ? x.size : x.out; }
  // Vectors of channels of a block: as even as possible.
  static int64_t vecs(const tw_conv_args &x) {
    const int64_t all = x.groups / G::V, blocks = ceil_div(all, most_vecs);
    return ceil_div(all, blocks);
  }
  static int64_t shared(const tw_conv_args &x) {
    const int64_t row = vecs(x) * G::V * int64_t(sizeof(float));
    return weight ? G::KW * (G::threads / vecs(x)) * row : taps(x) * row;
  }
  static int64_t bands(const tw_conv_args &x) { return ceil_div(written(x)[1], G::TH ? G::TH : 1); }
  // Blocks of a block of channels that differ in what they add up.
  static int64_t lines(const tw_conv_args &x) { return !weight ? 1 : G::TH ? x.window[0] : x.window[0] * x.window[1]; }
  static int64_t strips(const tw_conv_args &x) {
    const int64_t *to = written(x);
    return ceil_div(to[2], G::TW) * bands(x) * to[0] * x.batch;
  }
  // How many blocks share the strips of a block of channels: a few rounds of what runs at a time.
  static int64_t parts(const tw_conv_args &x, int64_t processors) {
    const int64_t slots = G::threads / vecs(x), blocks = ceil_div(x.groups / G::V, vecs(x)) * lines(x);
    const int64_t fair = ceil_div(processors * G::ctas_per_sm, blocks), all = ceil_div(strips(x), slots);
    return all < fair ? all : fair;
  }
  static DepthwiseArgs arguments(const tw_conv_args &x) {
    DepthwiseArgs t{};
    const bool flipped = data && G::KW > 0;  // a convolution of y with the filter flipped
    const int64_t *from = data ? x.out : x.size, *to = written(x);
    const int64_t *from_strides = data ? x.y_strides : x.x_strides, *to_strides = data ? x.x_strides : x.y_strides;
    t.from = data ? x.y : x.x, t.with = weight ? x.y : x.w, t.to = weight ? x.w : data ? x.x : x.y;
    for (int i = 0; i < 3; ++i) {
      t.size[i] = int(from[2 - i]), t.out[i] = int(to[2 - i]), t.window[i] = int(x.window[2 - i]);
      t.stride[i] = int(x.stride[2 - i]), t.dilation[i] = int(x.dilation[2 - i]), t.before[i] = int(x.before[2 - i]);
      if (flipped) t.before[i] = (t.window[i] - 1) * t.dilation[i] - t.before[i];
      t.from_apart[i] = from_strides[3 - i], t.to_apart[i] = to_strides[3 - i];
    }
    t.from_apart[3] = from_strides[0], t.to_apart[3] = to_strides[0];
    t.filter_apart = x.w_strides[0], t.tap_apart = x.w_strides[3];
    t.channels = int(x.groups), t.taps = int(taps(x)), t.flipped = flipped;
    t.vecs = int(vecs(x)), t.by_vecs = divider(t.vecs), t.by_taps = divider(t.taps),
    t.blocks = int(ceil_div(x.groups / G::V, t.vecs));
    t.strips = divider(ceil_div(to[2], G::TW)), t.rows = divider(bands(x)), t.planes = divider(to[0]);
    t.work = strips(x);
    t.finish.alpha = 1;
    for (int i = 0; i < Config::num_d; ++i)
      t.finish.d[i] = x.d[i], t.finish.d_row[i] = x.d_strides[i][3], t.finish.d_column[i] = x.d_strides[i][4];
    return t;
  }
};

}  // namespace tw::cuda
