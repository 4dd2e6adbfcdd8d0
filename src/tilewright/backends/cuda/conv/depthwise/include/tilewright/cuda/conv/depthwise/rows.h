// What threads of depthwise convolutions read: strips of pixels, rows of them, vectors of channels.
#pragma once
#include <tilewright/cuda/conv/depthwise/shape.h>
#include <tilewright/cuda/primitives/device.h>

namespace tw {

// What a thread works on: its vector of channels, and where its strip lies.
template <class G> struct Strip {
  int w, h, d, image;  // of the strip's first pixel
  TW_GPU Strip(const DepthwiseArgs &x, long long number) {
    const int all = int(number), row = x.strips.quotient(all), plane = x.rows.quotient(row);
    image = x.planes.quotient(plane);
    w = (all - row * int(x.strips.by)) * G::TW;
    h = (row - plane * int(x.rows.by)) * (G::TH ? G::TH : 1);
    d = plane - image * int(x.planes.by);
  }
};

// A vector of channels, as the words it comes in: taken apart early, each element would have a register of its own.
template <class T, int V> struct Pixel {
  static constexpr bool half = V * sizeof(T) < 4;  // one channel of two bytes: of an odd number, they begin anywhere
  static constexpr int words = half ? 1 : V * sizeof(T) / 4;
  struct alignas(4 * words) Words {
    uint32_t w[words];
  };
  Words word;

  // Zeros, where it is not there.
  TW_GPU void load(const T *from, bool there) {
    word = Words{};
    if constexpr (half) {
      if (there) word.w[0] = *reinterpret_cast<const uint16_t *>(from);
    } else {
      if (there) word = *reinterpret_cast<const Words *>(from);
    }
  }
  TW_GPU void widen(float (&to)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) to[i] = one(i, T{});
  }

 private:
  TW_GPU float one(int i, float) const { return __uint_as_float(word.w[i % words]); }
  TW_GPU float one(int i, bf16) const {
    return __uint_as_float(i % 2 ? word.w[i / 2] & 0xffff0000u : word.w[i / 2] << 16);
  }
  TW_GPU float one(int i, fp16) const { return to_float(fp16{uint16_t(i % 2 ? word.w[i / 2] >> 16 : word.w[i / 2])}); }
};

// Whether a tap of a row meets one, and which: backward_data with strides meets every so many only.
template <class Config> TW_GPU bool meets(const DepthwiseArgs &x, int axis, int pixel, int tap, int &at) {
  if constexpr (Config::variant == ConvVariant::backward_data && Config::filter_size == 0) {
    const int steps = pixel + x.before[axis] - tap * x.dilation[axis], stride = x.stride[axis];
    at = stride == 1 ? steps : stride == 2 ? steps >> 1 : steps / stride;  // a division takes long
    return steps >= 0 && at * stride == steps && at < x.size[axis];
  } else {
    at = pixel * x.stride[axis] - x.before[axis] + tap * x.dilation[axis];
    return at >= 0 && at < x.size[axis];
  }
}

// Neighbouring pixels of a row, on their way from memory while others are multiplied.
template <class T, int V, int Count> struct Row {
  Pixel<T, V> pixels[Count];

  // Those whose bit is set; zeros for the others.
  TW_GPU void load(const T *from, int apart, uint32_t there) {
#pragma unroll
    for (int j = 0; j < Count; ++j, from += apart) pixels[j].load(from, there >> j & 1);
  }
};
// Of the pixels from `first` on, which ones lie in a row of `size`.
template <int Count> TW_GPU uint32_t inside_row(int first, int size) {
  const uint32_t all = Count < 32 ? (1u << Count) - 1 : ~0u;
  const uint32_t low = first >= 0 ? all : -first >= Count ? 0u : all << -first;
  const int left = size - first;
  return left >= Count ? low : left <= 0 ? 0u : low & ((1u << left) - 1);
}

}  // namespace tw
