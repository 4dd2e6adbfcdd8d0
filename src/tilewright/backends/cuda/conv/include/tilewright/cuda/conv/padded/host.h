// The host's half of convolutions in copies: which are made, and the convolution of another pipeline that they are of.
#pragma once
#include <tilewright/cuda/conv/host_copies.h>
#include <tilewright/cuda/conv/padded/shape.h>
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/say.h>

namespace tw::cuda {

// Inner: the host's half of the pipeline.  `always`: also where no channels lie apart, and copies only fill up.
template <class Config, class Inner, bool always> struct HostConvPadded {
  using In = typename Config::A;
  using C = typename Config::C;
  static constexpr int64_t clear_bytes = Inner::clear_bytes, most = int64_t(1) << 31;
  static constexpr ConvVariant variant = Config::variant;
  static constexpr bool forward = variant == ConvVariant::forward, data = variant == ConvVariant::backward_data,
                        weight = variant == ConvVariant::backward_weight;
  static constexpr CopyNeeds needs = Inner::needs;
  static constexpr int64_t piece = 16 / int64_t(sizeof(In));  // channels that are filled up to whole ones
  static constexpr int pad_function = Inner::all_functions;

  static Answer broken(const tw_conv_args &x) {
    return x.batch == 0 ? Answer{} : Inner::broken(inner(x, of(x), nullptr));
  }
  static int64_t workspace(const tw_conv_args &x) {
    const Copies copies = of(x);
    int64_t bytes = beside(x, copies);
    for (const Copy &one : copies.of) bytes += one.bytes();
    return bytes;
  }
  static constexpr LaunchShape shape() { return Inner::shape(); }

  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    if (!workspace) return TW_BAD_ARGS;
    const Copies copies = of(x);
    const tw_conv_args y = inner(x, copies, static_cast<char *>(workspace) + beside(x, copies));
    bool in = false;
    int status = move(x, y, copies, false, in, place, stream);
    if (status == TW_OK) status = Inner::run(y, place, workspace, stream, in);
    return status == TW_OK ? move(x, y, copies, true, in, place, stream) : status;
  }

 private:
  enum Operands { of_x, of_w, of_y, of_d, operands = of_d + TW_CONV_MAX_D };
  // One tensor: whether it is copied, and the copy's shape.
  struct Copy {
    bool made, result, transposed;
    int64_t images, all_images, size[3], channels, all;  // as it is, and as the copy is
    int64_t each;                                        // bytes of an element

    int64_t elements() const { return made ? all_images * pixels(size) * all : 0; }
    int64_t bytes() const { return ceil_div(elements() * each, 128) * 128; }
    void lay(int64_t *strides) const {
      strides[4] = 1, strides[3] = all, strides[2] = all * size[2], strides[1] = strides[2] * size[1];
      strides[0] = strides[1] * size[0];
    }
    PadArgs arguments(void *tensor, const int64_t *strides) const {
      PadArgs t{};
      t.tensor = tensor;
      t.bytes = int(each), t.pixels = int(pixels(size)), t.images = int(images), t.channels = int(channels);
      t.all = int(all), t.count = elements() * each / 16, t.pieces = divider(all * each / 16);
      for (int i = 0; i < 3; ++i) t.size[i] = divider(size[2 - i]), t.apart[i] = strides[3 - i];
      t.apart[3] = strides[0], t.apart[4] = strides[4];
      int64_t extent = (images - 1) * strides[0] + (channels - 1) * strides[4] + 1;
      for (int i = 0; i < 3; ++i) extent += (size[i] - 1) * strides[i + 1];
      if (transposed) cut(t, extent);
      return t;
    }
    // Tiles: of single elements where the pixels of a channel are not contiguous, of runs where they are few.
    void cut(PadArgs &t, int64_t extent) const {
      const int64_t piece = 16 / each, tile = Padded::tile_bytes / each;
      int64_t step = 1;
      bool planes = extent < most - 64;  // places are counted in 32 bits
      for (int i = 0; i < 3; ++i) {
        planes = planes && (t.size[i].by == 1 || t.apart[i] == step);
        step *= t.size[i].by;
      }
      // Results whose rows end off 16 bytes leave in longer ones: their ends leave piece by piece.
      const bool off = odd(t.tensor) || odd(t.apart[3], each) || odd(t.apart[4], each);
      const int64_t wide = Padded::wide_bytes / each / (result && off ? 2 : 1);
      const bool run = planes && t.apart[4] == step && step * wide <= tile;
      t.kind = run ? PadKind::run : planes ? PadKind::rows : PadKind::elements;
      int64_t many = piece;
      t.shift = 0;
      while (many < all && (run ? many * 2 * step <= tile && many * 2 <= Padded::most_channels : many < wide))
        many *= 2, ++t.shift;
      t.tile_channels = int(many), t.tile_pixels = int(run ? step : tile / many);
      t.mask = planes && ragged(t) ? int(piece - 1) : 0, t.extent = planes ? int(extent) : 0;
      t.row = int(run ? step : t.tile_pixels + piece), t.skip = int(run ? 0 : piece);
      t.chunks = divider((run ? ceil_div(many * step, piece) : t.tile_pixels / piece) + (t.mask ? 1 : 0));
      t.blocks = divider(ceil_div(all, many)), t.tiles = divider(ceil_div(step, t.tile_pixels));
    }
    // Whether some row of a tile begins off 16 bytes.
    bool ragged(const PadArgs &t) const {
      const int64_t rows = t.kind == PadKind::run ? t.tile_channels * t.apart[4] : t.apart[4];
      return odd(t.tensor) || odd(t.apart[3], each) || odd(rows, each);
    }
    int64_t blocks(const PadArgs &t) const {
      return t.kind == PadKind::pieces ? ceil_div(t.count, Padded::threads * Padded::moved)
                                       : int64_t(t.blocks.by) * t.tiles.by * all_images;
    }
  };
  static unsigned shared_bytes(const PadArgs &t) {
    if (t.kind == PadKind::pieces) return 0;
    if (t.kind == PadKind::run) return unsigned(t.chunks.by * 16);
    return unsigned(t.tile_channels * (t.row * t.bytes + t.bytes));  // `skip` is an element a channel
  }
  struct Copies {
    Copy of[operands];
  };

  static int64_t whole(int64_t count) { return ceil_div(count, piece) * piece; }
  static int64_t groups_of(const tw_conv_args &x) { return needs.whole_groups ? whole(x.groups) : x.groups; }
  // Channels of a pixel of x, and filters, as copies have them.
  static int64_t all_channels(const tw_conv_args &x) {
    if (needs.whole_groups) return groups_of(x) * x.channels;
    return x.groups == 1 && !needs.any_pixels ? whole(x.channels) : x.groups * x.channels;
  }
  static int64_t all_filters(const tw_conv_args &x) {
    if (needs.whole_groups) return groups_of(x) * x.filters;
    return x.groups == 1 ? whole(x.filters) : x.groups * x.filters;
  }

  // A tensor that must be copied where it is odd, and where more is in the copy.
  static Copy copy_of(const void *at, const int64_t *strides, const int64_t (&size)[3], int64_t images,
                      int64_t all_images, int64_t channels, int64_t all, bool result, bool even) {
    Copy one{false,    result,     strides[4] != 1,
             images,   all_images, {size[0], size[1], size[2]},
             channels, all,        int64_t(result ? sizeof(C) : sizeof(In))};
    one.made = all != channels || all_images != images || odd(at) || one.transposed || !even;
    for (int i = 0; i < 4; ++i) one.made = one.made || odd(strides[i], one.each);
    return one;
  }
  static Copies of(const tw_conv_args &x) {
    const int64_t channels = x.groups * x.channels, filters = x.groups * x.filters;
    const int64_t more_channels = all_channels(x), more_filters = all_filters(x);
    const bool taps = even_pixels(x.w_strides, x.window, 1);
    Copies made{};
    made.of[of_x] = copy_of(x.x, x.x_strides, x.size, x.batch, x.batch, channels, more_channels, data,
                            !data || even_pixels(x.x_strides, x.size, x.batch));
    made.of[of_y] = copy_of(x.y, x.y_strides, x.out, x.batch, x.batch, filters, more_filters, forward,
                            data || even_pixels(x.y_strides, x.out, x.batch));
    Copy &w = made.of[of_w];
    w = copy_of(x.w, x.w_strides, x.window, filters, more_filters, x.channels, whole(x.channels), weight, taps);
    const bool grown = more_filters != filters || more_channels != channels;
    // What fills up the taps of joined groups in the copy is no channel: only a distance.
    if (needs.any_filters) w.made = grown || odd(x.w) || (w.transposed && !needs.whole_groups) || !taps;
    if (needs.any_pixels) made.of[of_x].made = false, w.made = grown || !taps;
    for (int i = 0; i < Config::num_d; ++i) made.of[of_d + i] = copy_of_d(x, i, more_filters);
    return made;
  }
  // D tensors are one number a channel, or as large as y; what repeats otherwise is written out.
  static bool one_pixel(const int64_t *strides) { return !strides[0] && !strides[1] && !strides[2] && !strides[3]; }
  static Copy copy_of_d(const tw_conv_args &x, int i, int64_t all) {
    const int64_t *strides = x.d_strides[i], filters = x.groups * x.filters;
    const int64_t images = one_pixel(strides) ? 1 : x.batch;
    Copy one{
        false, false, strides[4] != 1, images, images, {1, 1, 1}, filters, all, int64_t(sizeof(typename Config::D))};
    for (int k = 0; k < 3 && !one_pixel(strides); ++k) one.size[k] = x.out[k];
    one.made = all != filters || one.transposed || !even_pixels(strides, x.out, x.batch);
    return one;
  }
  static tw_conv_args inner(const tw_conv_args &given, const Copies &copies, char *room) {
    tw_conv_args x = given;
    if (needs.whole_groups) x.groups = groups_of(given);
    else if (given.groups == 1) x.channels = all_channels(given), x.filters = all_filters(given);
    void **at[3] = {&x.x, &x.w, &x.y};
    int64_t *strides[3] = {x.x_strides, x.w_strides, x.y_strides};
    for (int i = 0; i < operands; ++i) {
      const Copy &one = copies.of[i];
      if (!one.made) continue;
      int64_t *lies = i < of_d ? strides[i] : x.d_strides[i - of_d];
      one.lay(lies);
      if (i < of_d) *at[i] = room;
      else x.d[i - of_d] = room;
      if (i >= of_d && one_pixel(given.d_strides[i - of_d])) lies[0] = lies[1] = lies[2] = lies[3] = 0;
      room += one.bytes();
    }
    return x;
  }
  static int64_t beside(const tw_conv_args &x, const Copies &copies) {
    return ceil_div(Inner::workspace(inner(x, copies, nullptr)), 128) * 128;
  }
  // All copies in, or the result back, in one launch; `follows`: whether a kernel of this call came before, then one did.
  static int move(const tw_conv_args &x, const tw_conv_args &y, const Copies &copies, bool back, bool &follows,
                  const Loaded::Place &place, void *stream) {
    const void *from[operands] = {x.x, x.w, x.y, x.d[0], x.d[1]}, *to[operands] = {y.x, y.w, y.y, y.d[0], y.d[1]};
    const int64_t *strides[operands] = {x.x_strides, x.w_strides, x.y_strides, x.d_strides[0], x.d_strides[1]};
    PadCall call{};
    int64_t blocks = 0;
    int parts = 0;
    unsigned shared = 0;
    for (int i = 0; i < operands; ++i) {
      const Copy &one = copies.of[i];
      if (!one.made || one.result != back) continue;
      PadArgs &t = call.part[parts];
      t = one.arguments(const_cast<void *>(from[i]), strides[i]);
      t.copy = const_cast<void *>(to[i]), t.back = back;
      call.first[parts++] = unsigned(blocks);
      blocks += one.blocks(t);
      shared = shared > shared_bytes(t) ? shared : shared_bytes(t);
    }
    for (int i = parts; i <= Padded::most_parts; ++i) call.first[i] = unsigned(blocks);
    if (back) follows = true;
    if (!parts) return TW_OK;
    const LaunchShape how{unsigned(Padded::threads), shared, 1, false, follows};
    follows = true;
    return start(place.functions[pad_function], {unsigned(blocks)}, how, stream, call);
  }
};

}  // namespace tw::cuda
