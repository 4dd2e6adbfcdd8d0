// The host's half of convolutions in aligned copies.
#pragma once
#include <tilewright/cuda/conv_host_tma_ws.h>
#include <tilewright/cuda/conv_padded_shape.h>

namespace tw::cuda {

template <class Config> struct HostConvPadded {
  using Inner = HostConvTmaWs<Config>;
  using In = typename Config::A;
  using C = typename Config::C;
  static constexpr int64_t clear_bytes = Inner::clear_bytes, most = int64_t(1) << 31;
  static constexpr ConvVariant variant = Config::variant;
  enum Functions { pad_function = 2 };

  static Answer broken(const tw_conv_args &x) {
    if (x.batch == 0) return Inner::broken(x);
    const int64_t joined = Config::merged ? x.groups : 1;  // what is one after another in a pixel
    if (x.groups != 1 && (x.channels * joined % Padded::piece || x.filters * joined % Padded::piece))
      return {TW_LIMIT, "the channels or filters of a group, or of all merged ones, are no whole 8s"};
    for (int i = 0; i < 5; ++i)
      if (x.x_strides[i] < 1 || x.w_strides[i] < 1 || x.y_strides[i] < 1) return {TW_LIMIT, "a stride is below 1"};
    if (Config::num_d > 0 && x.groups * x.filters % Padded::piece)
      return {TW_LIMIT, "D tensors are not copied, and filters are no whole 8s"};
    const Copies copies = of(x);
    if (!copies.x.made && !copies.w.made && !copies.y.made) return {TW_LIMIT, "nothing is there to be copied"};
    if (copies.x.elements() >= most || copies.w.elements() >= most || copies.y.elements() >= most)
      return {TW_LIMIT, "2^31 or more elements to copy"};
    return Inner::broken(inner(x, copies, nullptr));
  }
  static int64_t workspace(const tw_conv_args &x) {
    const Copies copies = of(x);
    return beside(x, copies) + copies.x.bytes() + copies.w.bytes() + copies.y.bytes();
  }
  static constexpr LaunchShape shape() { return Inner::shape(); }

  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    if (!workspace) return TW_BAD_ARGS;
    const Copies copies = of(x);
    const tw_conv_args y = inner(x, copies, static_cast<char *>(workspace) + beside(x, copies));
    bool follows = false;  // a kernel of this call comes before
    const auto move = [&](const Copy &one, void *tensor, void *copy, const int64_t *strides, bool back) {
      if (!one.made || one.result != back) return int(TW_OK);
      PadArgs t = one.arguments(strides);
      t.tensor = tensor, t.copy = copy, t.back = back;
      const int64_t blocks = t.blocks ? ceil_div(t.count, Padded::tile) * t.blocks : ceil_div(t.count, Padded::threads);
      const unsigned shared = !t.blocks ? 0 : back ? turned_bytes<C> : turned_bytes<In>;
      const LaunchShape how{unsigned(Padded::threads), shared, 1, false, follows};
      follows = true;
      return start(place.functions[pad_function], {unsigned(blocks)}, how, stream, t);
    };
    int status = TW_OK;
    for (int back = 0; back < 2 && status == TW_OK; ++back) {
      if (back) status = Inner::run(y, place, workspace, stream, follows), follows = true;
      if (status == TW_OK) status = move(copies.x, x.x, y.x, x.x_strides, back);
      if (status == TW_OK) status = move(copies.w, x.w, y.w, x.w_strides, back);
      if (status == TW_OK) status = move(copies.y, x.y, y.y, x.y_strides, back);
    }
    return status;
  }

 private:
  template <class T> static constexpr unsigned turned_bytes =
      unsigned(Padded::tile * Padded::turned_row<T> * int(sizeof(T)));
  // One tensor: whether it is copied, and the copy's shape.
  struct Copy {
    bool made, result;
    int64_t images, all_images, size[3], channels, all;  // as it is, and as the copy is

    int64_t elements() const { return made ? all_images * size[0] * size[1] * size[2] * all : 0; }
    int64_t bytes() const { return ceil_div(elements() * int64_t(result ? sizeof(C) : sizeof(In)), 128) * 128; }
    void lay(int64_t *strides) const {
      strides[4] = 1, strides[3] = all, strides[2] = all * size[2], strides[1] = strides[2] * size[1];
      strides[0] = strides[1] * size[0];
    }
    PadArgs arguments(const int64_t *strides) const {
      PadArgs t{};
      const bool turned = strides[4] != 1;
      t.count = elements() / (turned ? all : Padded::piece), t.pieces = divider(all / Padded::piece);
      t.blocks = turned ? int(ceil_div(all, Padded::tile)) : 0, t.apart[4] = strides[4];
      for (int i = 0; i < 3; ++i) t.size[i] = divider(size[2 - i]), t.apart[i] = strides[3 - i];
      t.apart[3] = strides[0], t.images = int(images), t.channels = int(channels);
      return t;
    }
  };
  struct Copies {
    Copy x, w, y;
  };
  static int64_t whole(int64_t count) { return ceil_div(count, Padded::piece) * Padded::piece; }
  static Copy copy_of(const void *at, const int64_t *strides, const int64_t (&size)[3], int64_t images,
                      int64_t all_images, int64_t channels, bool result, bool even) {
    Copy one{false, result, images, all_images, {size[0], size[1], size[2]}, channels, whole(channels)};
    const int64_t bytes = result ? sizeof(C) : sizeof(In);
    one.made = one.all != channels || all_images != images || odd(at) || strides[4] != 1 || !even;
    for (int i = 0; i < 4; ++i) one.made = one.made || odd(strides[i], bytes);
    return one;
  }
  static Copies of(const tw_conv_args &x) {
    const int64_t all = x.groups * x.filters;
    constexpr bool data = variant == ConvVariant::backward_data;
    Copies made{copy_of(x.x, x.x_strides, x.size, x.batch, x.batch, x.groups * x.channels, data,
                        !data || Inner::pixels_dense(x.x_strides, x.size, x.batch)),
                copy_of(x.w, x.w_strides, x.window, all, whole(all), x.channels,
                        variant == ConvVariant::backward_weight, Inner::weights_dense(x)),
                copy_of(x.y, x.y_strides, x.out, x.batch, x.batch, all, variant == ConvVariant::forward,
                        data || Inner::pixels_dense(x.y_strides, x.out, x.batch))};
    // Filters of merged groups are spread or picked element by element, whatever taps and filters lie apart.
    if (Config::merged) made.w.made = odd(x.w) || x.w_strides[4] != 1 || !Inner::weights_dense(x);
    return made;
  }
  static tw_conv_args inner(const tw_conv_args &given, const Copies &copies, char *room) {
    tw_conv_args x = given;
    // Of several groups, pixels are whole.  Where the taps of w are not, groups are merged, and what fills these up in the
    // copy is no channel: only a distance.
    if (given.groups == 1) x.channels = whole(given.channels), x.filters = whole(given.filters);
    if (copies.x.made) x.x = room, room += copies.x.bytes(), copies.x.lay(x.x_strides);
    if (copies.w.made) x.w = room, room += copies.w.bytes(), copies.w.lay(x.w_strides);
    if (copies.y.made) x.y = room, copies.y.lay(x.y_strides);
    return x;
  }
  static int64_t beside(const tw_conv_args &x, const Copies &copies) {
    return ceil_div(Inner::workspace(inner(x, copies, nullptr)), 128) * 128;
  }
};

}  // namespace tw::cuda
