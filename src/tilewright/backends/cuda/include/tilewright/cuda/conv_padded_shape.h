// The copies of operands and results: channels side by side, as many as make whole 16 bytes.
//
// A tensor is copied as images of pixels of channels (of w: filters as images, taps as pixels; a bias is one pixel).  Where
// its channels lie side by side, threads move 16 bytes of a pixel each.  Where they lie apart, blocks turn tiles of channels
// by pixels in shared memory, 8 KB each: they read and write 16 bytes at a time on both sides, also where a channel's
// pixels begin anywhere (rows of a tile lie as far off 16 bytes in shared memory as they do outside).  Few pixels, as
// of small windows, come with those of the next channels in one run.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/gpu/divide.h>
#include <tilewright/gpu/epilogue.h>

namespace tw {

struct Padded {
  static constexpr int threads = 128, together = 4;             // 16 bytes of a thread that are under way
  static constexpr int tile_bytes = 8192, most_channels = 512;  // of a tile
  static constexpr int wide_bytes = 128;                        // of a pixel of a tile, where rows are long
  static constexpr int most_parts = 4;                          // tensors of a launch: x, w and two D tensors
};

// How a tensor lies: pixels are copied as they are, or tiles of rows, of one run of channels, or of single elements turned.
enum class PadKind : int { pieces, rows, run, elements };

struct PadArgs {
  void *tensor, *copy;
  long long apart[5];             // of the tensor: pixels along w, h, d, then images, then channels
  long long extent;               // its elements, and what lies between
  long long count;                // pieces of 16 bytes of the copy
  Divider size[3], pieces;        // pixels along w, h, d; pieces of a pixel of the copy
  Divider blocks, tiles, chunks;  // of channels; of pixels of an image; 16 bytes of a row of shared memory
  PadKind kind;
  int bytes, back;                        // of an element; to the tensor
  int pixels;                             // of an image
  int images, channels, all;              // of the tensor, and channels of the copy
  int tile_channels, tile_pixels, shift;  // powers of two; of the pieces of a tile's pixel
  // Elements from channel to channel in shared memory, and what each 16 bytes of channels add so that banks are met once; by
  // how much of 16 bytes rows may be off.
  int row, skip, mask;
};

// Tensors one after the other: the first block of each, and the one behind the last.
struct PadCall {
  PadArgs part[Padded::most_parts];
  unsigned first[Padded::most_parts + 1];
};

}  // namespace tw

#ifdef TW_ON_GPU
#include <tilewright/cuda/device.h>

namespace tw {

// Where a pixel of an image lies, less its channels.
TW_GPU long long padded_place(const PadArgs &x, int pixel, int image) {
  const int line = x.size[0].quotient(pixel), plane = x.size[1].quotient(line);
  const int w = pixel - line * int(x.size[0].by), h = line - plane * int(x.size[1].by);
  return image * x.apart[3] + plane * x.apart[2] + h * x.apart[1] + w * x.apart[0];
}

// Channels are side by side: pieces of a pixel, in or back.
template <class T> TW_GPU void pad_pieces(const PadArgs &x, long long block) {
  constexpr int each = 16 / int(sizeof(T));
  using Piece = Some<T, each>;
  const long long first = block * (Padded::threads * Padded::together) + threadIdx.x;
  Piece some[Padded::together];
  T *place[Padded::together];
  int there[Padded::together];
#pragma unroll
  for (int i = 0; i < Padded::together; ++i) {
    const long long at = first + i * Padded::threads;
    const int pixel = x.pieces.quotient(int(at < x.count ? at : 0)),
              channel = (int(at) - pixel * int(x.pieces.by)) * each;
    const int number = x.size[2].quotient(x.size[1].quotient(x.size[0].quotient(pixel)));
    there[i] = at < x.count && number < x.images ? x.channels - channel : 0;
    place[i] = static_cast<T *>(x.tensor) + padded_place(x, pixel - number * x.pixels, number) + channel;
    if (x.back && at < x.count) some[i] = static_cast<const Piece *>(x.copy)[at];
    if (x.back) continue;
#pragma unroll
    for (int c = 0; c < each; ++c) some[i].v[c] = c < there[i] ? place[i][c] : T{};
  }
#pragma unroll
  for (int i = 0; i < Padded::together; ++i) {
    const long long at = first + i * Padded::threads;
    if (!x.back && at < x.count) static_cast<Piece *>(x.copy)[at] = some[i];
    if (!x.back) continue;
#pragma unroll
    for (int c = 0; c < each; ++c)
      if (c < there[i]) place[i][c] = some[i].v[c];
  }
}

// A tile of channels by pixels of one image.
template <class T> struct TurnedTile {
  static constexpr int each = 16 / int(sizeof(T));
  using Piece = Some<T, each>;
  const PadArgs &x;
  T *shared, *tensor;
  int image, channel, pixel;  // the first ones
  int channels, pixels;       // that the tensor has of it
  long long begin;            // of the tensor: where it begins
  unsigned off;               // how far behind 16 bytes, in elements

  TW_GPU TurnedTile(const PadArgs &args, int block)
      : x(args), shared(reinterpret_cast<T *>(dynamic_shared())), tensor(static_cast<T *>(args.tensor)) {
    const int tile = x.blocks.quotient(block);
    channel = (block - tile * int(x.blocks.by)) * x.tile_channels;
    image = x.tiles.quotient(tile), pixel = (tile - image * int(x.tiles.by)) * x.tile_pixels;
    channels = image < x.images ? max(0, min(x.tile_channels, x.channels - channel)) : 0;
    pixels = min(x.tile_pixels, x.pixels - pixel);
    begin = image * x.apart[3] + channel * x.apart[4] + pixel;
    off = unsigned(begin) + unsigned(reinterpret_cast<uintptr_t>(tensor) / sizeof(T));
  }
  // Where a channel's first pixel is in shared memory.
  TW_GPU int row(int c) const {
    return c * x.row + c / each * x.skip +
           int((off + (x.kind == PadKind::run ? 0u : c * unsigned(x.apart[4]))) & x.mask);
  }

  // Pieces of the copy: 16 bytes of channels of a pixel.
  template <bool Back> TW_GPU void pieces() const {
    const int across = 1 << x.shift, count = pixels << x.shift;
    const long long base = ((long long)image * x.pixels + pixel) * x.all + channel;
    for (int first = threadIdx.x; first < count; first += Padded::threads * Padded::together) {
      Piece some[Padded::together];
#pragma unroll
      for (int i = 0; i < Padded::together; ++i) {
        const int at = first + i * Padded::threads, c = (at & (across - 1)) * each, p = at >> x.shift;
        Piece *copy = reinterpret_cast<Piece *>(static_cast<T *>(x.copy) + base + (long long)p * x.all + c);
        if (at >= count || channel + c >= x.all) continue;
        if constexpr (Back) {
          some[i] = *copy;
        } else {
#pragma unroll
          for (int k = 0; k < each; ++k) some[i].v[k] = c + k < channels ? shared[row(c + k) + p] : T{};
          *copy = some[i];
        }
      }
      if constexpr (Back) {
#pragma unroll
        for (int i = 0; i < Padded::together; ++i) {
          const int at = first + i * Padded::threads, c = (at & (across - 1)) * each, p = at >> x.shift;
#pragma unroll
          for (int k = 0; k < each; ++k)
            if (at < count && c + k < channels) shared[row(c + k) + p] = some[i].v[k];
        }
      }
    }
  }

  // 16 bytes of the tensor, from whole 16 bytes on: of a row of the tile, or of the one run that it is.
  struct Chunk {
    T *shared;
    long long start, from, to;  // elements of the tensor: where it starts, and what of it belongs here
  };
  TW_GPU Chunk chunk(int at) const {
    const int c = x.chunks.quotient(at), number = at - c * int(x.chunks.by);
    const long long first = begin + c * x.apart[4], last = first + (x.kind == PadKind::run ? channels * x.row : pixels);
    const int skew = row(c) - (c * x.row + c / each * x.skip);
    const long long start = first - skew + number * each;
    return {shared + c * x.row + c / each * x.skip + number * each, start, max(start, first), min(start + each, last)};
  }
  TW_GPU int chunks() const { return (x.kind == PadKind::run ? (channels > 0) : channels) * int(x.chunks.by); }

  TW_GPU void fetch() const {
    const int count = chunks();
    for (int first = threadIdx.x; first < count; first += Padded::threads * Padded::together) {
      Piece some[Padded::together];
#pragma unroll
      for (int i = 0; i < Padded::together; ++i) {
        if (first + i * Padded::threads >= count) continue;
        const Chunk one = chunk(first + i * Padded::threads);
        if (one.from >= one.to) continue;
        if (one.start >= 0 && one.start + each <= x.extent) {
          some[i] = *reinterpret_cast<const Piece *>(tensor + one.start);
        } else {
#pragma unroll
          for (int k = 0; k < each; ++k)
            if (one.start + k >= one.from && one.start + k < one.to) some[i].v[k] = tensor[one.start + k];
        }
      }
#pragma unroll
      for (int i = 0; i < Padded::together; ++i) {
        if (first + i * Padded::threads >= count) continue;
        const Chunk one = chunk(first + i * Padded::threads);
        if (one.from < one.to) *reinterpret_cast<Piece *>(one.shared) = some[i];
      }
    }
  }
  TW_GPU void leave() const {
    const int count = chunks();
    for (int at = threadIdx.x; at < count; at += Padded::threads) {
      const Chunk one = chunk(at);
      if (one.from >= one.to) continue;
      const Piece some = *reinterpret_cast<const Piece *>(one.shared);
      if (one.to - one.from == each) {
        *reinterpret_cast<Piece *>(tensor + one.start) = some;
      } else {
#pragma unroll
        for (int k = 0; k < each; ++k)
          if (one.start + k >= one.from && one.start + k < one.to) tensor[one.start + k] = some.v[k];
      }
    }
  }
  // Pixels that lie anywhere, one by one.
  template <bool Back> TW_GPU void elements() const {
    for (int at = threadIdx.x; at < channels * x.tile_pixels; at += Padded::threads) {
      const int c = at / x.tile_pixels, p = at - c * x.tile_pixels;
      if (p >= pixels) continue;
      T &outside = tensor[padded_place(x, pixel + p, image) + (channel + c) * x.apart[4]], &inside = shared[row(c) + p];
      if constexpr (Back) outside = inside;
      else inside = outside;
    }
  }
};

template <class T> TW_GPU void turn_tile(const PadArgs &x, int block) {
  const TurnedTile<T> tile(x, block);
  if (x.back) {
    tile.template pieces<true>();
    __syncthreads();
    if (x.kind == PadKind::elements) tile.template elements<true>();
    else tile.leave();
    return;
  }
  if (x.kind == PadKind::elements) tile.template elements<false>();
  else tile.fetch();
  __syncthreads();
  tile.template pieces<false>();
}

template <class T> TW_GPU void pad_part(const PadArgs &x, int block) {
  if (x.kind == PadKind::pieces) pad_pieces<T>(x, block);
  else turn_tile<T>(x, block);
}

// Elements are bits here: of operands, results and D tensors.
template <class Config> TW_GPU void pad_channels(const PadCall &x) {
  constexpr int a = sizeof(typename Config::A), c = sizeof(typename Config::C), d = sizeof(typename Config::D);
  let_next_kernel_in();
  wait_for_kernel_before();
  int number = 0;
  while (blockIdx.x >= x.first[number + 1]) ++number;
  const PadArgs &part = x.part[number];
  const int block = int(blockIdx.x - x.first[number]);
  if constexpr (a == 1 || c == 1 || d == 1)
    if (part.bytes == 1) return pad_part<uint8_t>(part, block);
  if constexpr (a == 2 || c == 2 || d == 2)
    if (part.bytes == 2) return pad_part<uint16_t>(part, block);
  if constexpr (a == 4 || c == 4 || d == 4)
    if (part.bytes == 4) return pad_part<uint32_t>(part, block);
}

}  // namespace tw
#endif
