// Dense channels-last copies of a convolution's operands, and back of its result.
//
// A tensor is a table of lines (images and pixels; of weights filters and taps) by channels.  In the copy a group may have
// more channels, more filters, and there may be more groups: what the tensor has not is zero there.  Where channels lie
// apart, tiles turn in LDS: lanes go along pixels in the tensor, along channels in the copy.
#pragma once
#include <tilewright/gpu/divide.h>

namespace tw::hip {

struct ConvCopy {
  static constexpr int threads = 256, tile_bits = 12, tile = 1 << tile_bits, most_blocks = 1 << 20;
  static constexpr int least_bits = 4, most_bits = 6;  // of the channels of a tile

  // Neighbours of the copy's channels or filters: of `each` in a group there are `own` in the tensor.
  struct Spread {
    Divider each;
    int own, groups;
  };
  void *tensor, *copy;
  int lines, row;          // of the copy: pixels of all images, and elements from one to the next
  int channels;            // of all groups in the copy
  Divider pieces;          // of 16 bytes that hold them
  Divider size[3];         // pixels along w, h, d
  int64_t apart[5];        // strides of the tensor: w, h, d, image, channel
  Spread images, columns;  // of weights the images are filters
  int bits;                // of a tile's channels; 0: they lie side by side in the tensor too
  Divider blocks;          // tiles across all channels
  int whole;               // 16 bytes of the copy are moved at once
  int beside;              // so are 16 bytes of the tensor: neighbours of a tile's pixels, or channels
};

}  // namespace tw::hip

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

template <class T> struct ConvMover {
  static constexpr int piece = 16 / int(sizeof(T));
  struct alignas(16) Piece {
    T v[piece];
  };
  const ConvCopy &x;
  TW_GPU explicit ConvMover(const ConvCopy &copy) : x(copy) {}

  // Number of the tensor's channel or filter; -1: it has none.
  static TW_GPU int number(const ConvCopy::Spread &s, int at) {
    const int group = s.each.quotient(at), one = at - group * int(s.each.by);
    return group < s.groups && one < s.own ? group * s.own + one : -1;
  }
  // Where a line begins in the tensor, if it has it.
  struct Line {
    bool there;
    int64_t at;
  };
  TW_GPU Line line(int at) const {
    if (at >= x.lines) return {false, 0};
    const int row = x.size[0].quotient(at), plane = x.size[1].quotient(row), image = x.size[2].quotient(plane);
    const int w = at - row * int(x.size[0].by), h = row - plane * int(x.size[1].by),
              d = plane - image * int(x.size[2].by);
    const int own = number(x.images, image);
    return {own >= 0, own * x.apart[3] + d * x.apart[2] + h * x.apart[1] + w * x.apart[0]};
  }
  TW_GPU T *tensor(int64_t at) const { return static_cast<T *>(x.tensor) + at; }
  TW_GPU T *copy(int line, int channel) const { return static_cast<T *>(x.copy) + int64_t(line) * x.row + channel; }

  // Channels side by side in both: a piece a thread.
  template <bool back> TW_GPU void pieces() const {
    const int64_t all = int64_t(x.lines) * x.pieces.by, step = int64_t(gridDim.x) * ConvCopy::threads;
    for (int64_t at = int64_t(blockIdx.x) * ConvCopy::threads + threadIdx.x; at < all; at += step) {
      const int pixel = x.pieces.quotient(int(at)), first = (int(at) - pixel * int(x.pieces.by)) * piece;
      const Line from = line(pixel);
      T *in_copy = copy(pixel, first);
      if (x.beside && from.there) {  // then nothing is filled up either
        if constexpr (back) *reinterpret_cast<Piece *>(tensor(from.at + first)) = *reinterpret_cast<Piece *>(in_copy);
        else *reinterpret_cast<Piece *>(in_copy) = *reinterpret_cast<Piece *>(tensor(from.at + first));
        continue;
      }
      const int count = x.channels - first < piece ? x.channels - first : piece;
      Piece some{};
      if constexpr (back) read(some, in_copy, count);
#pragma unroll
      for (int i = 0; i < piece; ++i) {
        const int own = from.there && i < count ? number(x.columns, first + i) : -1;
        if (own < 0) continue;
        if constexpr (back) *tensor(from.at + own * x.apart[4]) = some.v[i];
        else some.v[i] = *tensor(from.at + own * x.apart[4]);
      }
      if constexpr (!back) write(in_copy, some, count);
    }
  }

  // Tiles of 16 to 64 channels by as many pixels as make 4096 elements.
  template <bool back> TW_GPU void tiles(T *lds) const {
    const int down = ConvCopy::tile_bits - x.bits, all = ((x.lines + (1 << down) - 1) >> down) * int(x.blocks.by);
    for (int at = blockIdx.x; at < all; at += gridDim.x) {
      const int block = x.blocks.quotient(at), first = (at - block * int(x.blocks.by)) << x.bits, line = block << down;
      if constexpr (back) {
        of_copy<true>(lds, line, first, down);
        __syncthreads();
        of_tensor<true>(lds, line, first, down);
      } else {
        of_tensor<false>(lds, line, first, down);
        __syncthreads();
        of_copy<false>(lds, line, first, down);
      }
      __syncthreads();
    }
  }

 private:
  static constexpr int piece_bits = sizeof(T) == 1 ? 4 : sizeof(T) == 2 ? 3 : 2;
  // `down` is the bits of a tile's pixels.  Neighbouring rows begin in other banks.
  static TW_GPU int lds_row(int down) { return (1 << down) + (sizeof(T) < 4 ? 4 / int(sizeof(T)) : 1); }

  TW_GPU void read(Piece &some, const T *from, int count) const {
    if (x.whole) some = *reinterpret_cast<const Piece *>(from);
    else {
#pragma unroll
      for (int i = 0; i < piece; ++i)
        if (i < count) some.v[i] = from[i];
    }
  }
  TW_GPU void write(T *to, const Piece &some, int count) const {
    if (x.whole) *reinterpret_cast<Piece *>(to) = some;
    else {
#pragma unroll
      for (int i = 0; i < piece; ++i)
        if (i < count) to[i] = some.v[i];
    }
  }

  // LDS is [channel][pixel].  Lanes along channels, a piece each.
  template <bool back> TW_GPU void of_copy(T *lds, int first_line, int first, int down) const {
    const int pieces = x.bits - piece_bits, row = lds_row(down);
    for (int at = threadIdx.x; at < 1 << (down + pieces); at += ConvCopy::threads) {
      const int one = at >> pieces, channel = (at - (one << pieces)) * piece, count = x.channels - first - channel;
      if (first_line + one >= x.lines || count <= 0) continue;
      T *in_lds = lds + channel * row + one, *in_copy = copy(first_line + one, first + channel);
      Piece some{};
      if constexpr (back) {
        read(some, in_copy, count < piece ? count : piece);
#pragma unroll
        for (int i = 0; i < piece; ++i) in_lds[i * row] = some.v[i];
      } else {
#pragma unroll
        for (int i = 0; i < piece; ++i) some.v[i] = in_lds[i * row];
        write(in_copy, some, count < piece ? count : piece);
      }
    }
  }
  // Lanes along pixels, one each, or a piece.
  template <bool back> TW_GPU void of_tensor(T *lds, int first_line, int first, int down) const {
    if (x.beside) of_tensor<back, piece_bits>(lds, first_line, first, down);
    else of_tensor<back, 0>(lds, first_line, first, down);
  }
  template <bool back, int width_bits> TW_GPU void of_tensor(T *lds, int first_line, int first, int down) const {
    constexpr int width = 1 << width_bits;
    const int lanes = down - width_bits, row = lds_row(down), mine = (int(threadIdx.x) & ((1 << lanes) - 1)) * width;
    const Line from = line(first_line + mine);
    for (int channel = int(threadIdx.x) >> lanes; channel < 1 << x.bits; channel += ConvCopy::threads >> lanes) {
      const int own = from.there && first + channel < x.channels ? number(x.columns, first + channel) : -1;
      T *in_lds = lds + channel * row + mine, *in_tensor = tensor(from.at + own * x.apart[4]);
      if constexpr (width == 1) {
        if constexpr (!back) *in_lds = own < 0 ? T{} : *in_tensor;
        else if (own >= 0) *in_tensor = *in_lds;
      } else {
        Piece some{};
        if constexpr (!back) {
          if (own >= 0) some = *reinterpret_cast<const Piece *>(in_tensor);
#pragma unroll
          for (int i = 0; i < width; ++i) in_lds[i] = some.v[i];
        } else if (own >= 0) {
#pragma unroll
          for (int i = 0; i < width; ++i) some.v[i] = in_lds[i];
          *reinterpret_cast<Piece *>(in_tensor) = some;
        }
      }
    }
  }
};

// Elements of one, two or four bytes: what they mean does not matter.
template <bool back, class T> TW_GPU void conv_move(const ConvCopy &x) {
  __shared__ T lds[ConvCopy::tile + (1 << ConvCopy::most_bits) * (sizeof(T) < 4 ? 4 / int(sizeof(T)) : 1)];
  const ConvMover<T> mover(x);
  if (x.bits) mover.template tiles<back>(lds);
  else mover.template pieces<back>();
}

}  // namespace tw::hip
#endif
