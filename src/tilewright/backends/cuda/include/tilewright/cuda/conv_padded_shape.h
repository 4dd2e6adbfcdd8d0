// The numbers of copies with whole 8s of channels, and the copy.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/gpu/divide.h>
#include <tilewright/gpu/epilogue.h>

namespace tw {

struct Padded {
  static constexpr int threads = 256, piece = 8, tile = 64;
  // Where channels lie apart, tiles of 64 pixels by 64 channels turn in shared memory; rows meet in few banks.
  template <class T> static constexpr int turned_row = tile + 4 / int(sizeof(T) < 4 ? sizeof(T) : 4);
};

// A tensor (of w: filters as images, taps as pixels) and its dense copy, whose channels and images may be more.
struct PadArgs {
  void *tensor, *copy;
  long long count;             // pieces of the copy, or its pixels where channels lie apart
  Divider pieces, size[3];     // of a pixel; pixels along w, h, d
  long long apart[5];          // of the tensor: pixels along w, h, d, then images, then channels
  int images, channels, back;  // back: to the tensor
  int blocks;                  // of 64 channels, where they lie apart
};

}  // namespace tw

#ifdef TW_ON_GPU
#include <tilewright/cuda/device.h>

namespace tw {

// Where a pixel of the copy lies in the tensor, less its channels; -1: there is none.
TW_GPU long long padded_place(const PadArgs &x, int pixel) {
  const int line = x.size[0].quotient(pixel), plane = x.size[1].quotient(line), image = x.size[2].quotient(plane);
  const int w = pixel - line * int(x.size[0].by), h = line - plane * int(x.size[1].by),
            d = plane - image * int(x.size[2].by);
  return image < x.images ? image * x.apart[3] + d * x.apart[2] + h * x.apart[1] + w * x.apart[0] : -1;
}

// A piece a thread, in or back.  Elements of C are those of the result.
template <class Config> TW_GPU void pad_pieces(const PadArgs &x, long long at) {
  if (at >= x.count) return;
  const int pixel = x.pieces.quotient(int(at)), first = (int(at) - pixel * int(x.pieces.by)) * Padded::piece;
  const long long place = padded_place(x, pixel);
  if (x.back) {
    using C = typename Config::C;
    const C *from = static_cast<const C *>(x.copy) + at * Padded::piece;
    C *to = static_cast<C *>(x.tensor) + place + first;
    for (int i = 0; i < Padded::piece; ++i)
      if (place >= 0 && first + i < x.channels) to[i] = from[i];
  } else {
    using A = typename Config::A;
    const A *from = static_cast<const A *>(x.tensor) + place + first;
    Some<A, Padded::piece> some;
#pragma unroll
    for (int i = 0; i < Padded::piece; ++i) some.v[i] = place >= 0 && first + i < x.channels ? from[i] : A{};
    static_cast<Some<A, Padded::piece> *>(x.copy)[at] = some;
  }
}

// 64 pixels by 64 channels a block: threads go along pixels in the tensor, along channels in the copy.
template <class T> TW_GPU void turn_tile(const PadArgs &x, long long block) {
  constexpr int tile = Padded::tile, row = Padded::turned_row<T>;
  T *shared = reinterpret_cast<T *>(dynamic_shared());  // [channel][pixel]
  const long long pixels = block / x.blocks;
  const int first = int(block - pixels * x.blocks) * tile, mine = threadIdx.x % tile;
  const long long pixel = pixels * tile + mine, all = (long long)x.pieces.by * Padded::piece;
  const long long place = pixel < x.count ? padded_place(x, int(pixel)) : -1;
  T *tensor = static_cast<T *>(x.tensor);
  const auto pieces = [&](auto move) {  // of the copy
    for (int at = threadIdx.x; at < tile * tile / Padded::piece; at += Padded::threads) {
      const int channel = at % (tile / Padded::piece) * Padded::piece, one = at / (tile / Padded::piece);
      const long long number = pixels * tile + one;
      if (number < x.count && first + channel < all)
        move(static_cast<Some<T, Padded::piece> *>(x.copy)[(number * all + first + channel) / Padded::piece],
             shared + channel * row + one);
    }
  };
  if (x.back) {
    pieces([&](Some<T, Padded::piece> &piece, T *to) {
      const Some<T, Padded::piece> some = piece;
#pragma unroll
      for (int i = 0; i < Padded::piece; ++i) to[i * row] = some.v[i];
    });
    __syncthreads();
    for (int c = threadIdx.x / tile; c < tile; c += Padded::threads / tile)
      if (place >= 0 && first + c < x.channels) tensor[place + (first + c) * x.apart[4]] = shared[c * row + mine];
    return;
  }
  for (int c = threadIdx.x / tile; c < tile; c += Padded::threads / tile)
    shared[c * row + mine] = place >= 0 && first + c < x.channels ? tensor[place + (first + c) * x.apart[4]] : T{};
  __syncthreads();
  pieces([&](Some<T, Padded::piece> &piece, const T *from) {
    Some<T, Padded::piece> some;
#pragma unroll
    for (int i = 0; i < Padded::piece; ++i) some.v[i] = from[i * row];
    piece = some;
  });
}

template <class Config> TW_GPU void pad_channels(const PadArgs &x) {
  let_next_kernel_in();
  wait_for_kernel_before();
  if (!x.blocks) pad_pieces<Config>(x, blockIdx.x * (long long)Padded::threads + threadIdx.x);
  else if (x.back) turn_tile<typename Config::C>(x, blockIdx.x);
  else turn_tile<typename Config::A>(x, blockIdx.x);
}

}  // namespace tw
#endif
