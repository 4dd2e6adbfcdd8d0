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
  static constexpr int threads = 128, together = 5,
                       moved = 2;  // 16 bytes of a thread that are under way, transposed or not
  static constexpr int tile_bytes = 8192, most_channels = 512;  // of a tile
  static constexpr int wide_bytes = 128;                        // of a pixel of a tile, where rows are long
  static constexpr int blocks = 8;                              // of a multiprocessor
  static constexpr int most_parts = 4;                          // tensors of a launch: x, w and two D tensors
};

// How a tensor lies: pixels are copied as they are, or tiles of rows, of one run of channels, or of single elements
// transposed.
enum class PadKind : int { pieces, rows, run, elements };

struct PadArgs {
  void *tensor, *copy;
  long long apart[5];             // of the tensor: pixels along w, h, d, then images, then channels
  long long count;                // pieces of 16 bytes of the copy
  Divider size[3], pieces;        // pixels along w, h, d; pieces of a pixel of the copy
  Divider blocks, tiles, chunks;  // of channels; of pixels of an image; 16 bytes of a row of shared memory
  PadKind kind;
  int bytes, back;            // of an element; to the tensor
  int pixels, extent;         // of an image; elements of the tensor with what lies between, of rows and runs
  int images, channels, all;  // of the tensor, and channels of the copy
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
#include <tilewright/cuda/primitives/device.h>

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
  const long long first = block * (Padded::threads * Padded::moved) + threadIdx.x;
  Piece some[Padded::moved];
  T *place[Padded::moved];
  int there[Padded::moved];
#pragma unroll
  for (int i = 0; i < Padded::moved; ++i) {
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
  for (int i = 0; i < Padded::moved; ++i) {
    const long long at = first + i * Padded::threads;
    if (!x.back && at < x.count) static_cast<Piece *>(x.copy)[at] = some[i];
    if (!x.back) continue;
#pragma unroll
    for (int c = 0; c < each; ++c)
      if (c < there[i]) place[i][c] = some[i].v[c];
  }
}

// A tile of channels by pixels of one image.  Places in a tensor are counted in 32 bits where pixels lie side by side: the
// host sees to it.
template <class T> struct TransposedTile {
  static constexpr int each = 16 / int(sizeof(T)), together = Padded::together, threads = Padded::threads;
  using Piece = Some<T, each>;
  using Words = Some<uint32_t, 4>;  // where they are only moved
  const PadArgs &x;
  T *shared, *tensor;
  int image, channel, pixel;  // the first ones
  int channels, pixels;       // that the tensor has of it
  int rows, length;           // of shared memory, and what the tensor has of one: a channel's pixels, or the whole run
  int begin, apart, off;      // of the tensor: where it begins, from row to row, and how far behind 16 bytes it is

  TW_GPU TransposedTile(const PadArgs &args, int block)
      : x(args), shared(reinterpret_cast<T *>(dynamic_shared())), tensor(static_cast<T *>(args.tensor)) {
    const int tile = x.blocks.quotient(block);
    channel = (block - tile * int(x.blocks.by)) * x.tile_channels;
    image = x.tiles.quotient(tile), pixel = (tile - image * int(x.tiles.by)) * x.tile_pixels;
    channels = image < x.images ? max(0, min(x.tile_channels, x.channels - channel)) : 0;
    pixels = min(x.tile_pixels, x.pixels - pixel);
    const bool run = x.kind == PadKind::run;
    rows = run ? channels > 0 : channels, length = run ? channels * x.row : pixels;
    begin = int(image * x.apart[3] + channel * x.apart[4]) + pixel, apart = int(x.apart[4]);
    off = begin + int(reinterpret_cast<uintptr_t>(tensor) / sizeof(T) % each);
  }
  // How far behind 16 bytes a row begins, outside and in shared memory; and where those 16 bytes are.
  TW_GPU int skew(int row) const { return (off + row * apart) & x.mask; }
  TW_GPU int place(int row) const { return row * x.row + row / each * x.skip; }

  // Pieces of the copy: 16 bytes of channels of a pixel.  A thread has the same channels of all its pixels.
  template <bool Back> TW_GPU void pieces() const {
    const int c = (threadIdx.x & ((1 << x.shift) - 1)) * each, there = channels - c, step = threads >> x.shift;
    if (channel + c >= x.all || (Back && there <= 0)) return;
    int from[each];  // where its channels are in shared memory
#pragma unroll
    for (int k = 0; k < each; ++k) from[k] = place(c + k) + (x.kind == PadKind::run ? skew(0) : skew(c + k));
    T *copy = static_cast<T *>(x.copy) + ((long long)image * x.pixels + pixel) * x.all + channel + c;
    for (int first = threadIdx.x >> x.shift; first < pixels; first += step * together) {
      Piece some[together];
      if constexpr (Back) {
#pragma unroll
        for (int i = 0; i < together; ++i)
          if (first + i * step < pixels) some[i] = *reinterpret_cast<const Piece *>(copy + (first + i * step) * x.all);
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int p = first + i * step;
        if (p >= pixels) break;
        if constexpr (Back) {
#pragma unroll
          for (int k = 0; k < each; ++k)
            if (k < there) shared[from[k] + p] = some[i].v[k];
        } else {
#pragma unroll
          for (int k = 0; k < each; ++k) some[i].v[k] = shared[from[k] + p];
          *reinterpret_cast<Piece *>(copy + p * x.all) = some[i];
        }
      }
    }
  }

  // Zeros for the channels that the copy has and the tensor has not.
  TW_GPU void blank() const {
    const int here = min(x.tile_channels, x.all - channel), wide = x.kind == PadKind::run ? x.row : x.tile_pixels;
    const int first = x.kind == PadKind::run ? skew(0) : 0;
    for (int at = channels * wide + threadIdx.x; at < here * wide; at += threads) {
      const int c = at / wide;
      shared[first + place(c) + (at - c * wide) + (x.kind == PadKind::run ? 0 : skew(c))] = T{};
    }
  }
  // Whole 16 bytes of the tensor that have anything of a row; what else they have is read and not looked at.
  TW_GPU void fetch() const {
    const int count = rows * int(x.chunks.by);
    for (int first = threadIdx.x; first < count; first += threads * together) {
      Words some[together];
      int to[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int at = first + i * threads, row = x.chunks.quotient(at), number = (at - row * int(x.chunks.by)) * each;
        const int off_by = skew(row), start = begin + row * apart - off_by + number;
        const bool inside = start >= 0 && start + each <= x.extent;
        to[i] = at < count && number < off_by + length ? place(row) + number : -1;
        if (to[i] >= 0 && inside) some[i] = *reinterpret_cast<const Words *>(tensor + start);
        if (to[i] >= 0 && !inside) {  // the first or last ones of all
          for (int k = 0; k < each; ++k)
            if (start + k >= 0 && start + k < x.extent) shared[to[i] + k] = tensor[start + k];
          to[i] = -1;
        }
      }
#pragma unroll
      for (int i = 0; i < together; ++i)
        if (to[i] >= 0) *reinterpret_cast<Words *>(shared + to[i]) = some[i];
    }
  }
  // Whole 16 bytes that belong to a row, then what is left at its ends.
  TW_GPU void store_tile() const {
    const int count = rows * int(x.chunks.by);
#pragma unroll 2
    for (int at = threadIdx.x; at < count; at += threads) {
      const int row = x.chunks.quotient(at), number = (at - row * int(x.chunks.by)) * each, off_by = skew(row);
      if (number >= off_by && number + each <= off_by + length)
        *reinterpret_cast<Words *>(tensor + (begin + row * apart - off_by + number)) =
            *reinterpret_cast<const Words *>(shared + place(row) + number);
    }
    for (int at = threadIdx.x; at < 2 * rows; at += threads) {
      const int row = at / 2, off_by = skew(row), end = off_by + length, last = (end - 1) & -each;
      const int number = at % 2 ? last : 0, from = at % 2 ? 0 : off_by, to = min(each, end - number);
      if ((at % 2 && last == 0) || to - from == each) continue;
      store_end<1>(tensor + (begin + row * apart - off_by + number), shared + place(row) + number, from, to);
    }
  }
  // Part of 16 bytes in pieces of 1, 2, 4 and so on that begin where such do, on both sides.
  template <int Size> static TW_GPU void store_end(T *out, const T *in, int from, int to) {
    if constexpr (Size < each) {
      using Part = Some<T, Size>;
      if (from < to && (from & Size)) {
        *reinterpret_cast<Part *>(out + from) = *reinterpret_cast<const Part *>(in + from);
        from += Size;
      }
      if (from < to && (to & Size)) {
        to -= Size;
        *reinterpret_cast<Part *>(out + to) = *reinterpret_cast<const Part *>(in + to);
      }
      store_end<Size * 2>(out, in, from, to);
    }
  }
  // Pixels that lie anywhere, one by one.
  template <bool Back> TW_GPU void elements() const {
    for (int at = threadIdx.x; at < channels * x.tile_pixels; at += threads) {
      const int c = at / x.tile_pixels, p = at - c * x.tile_pixels;
      if (p >= pixels) continue;
      T &outside = tensor[padded_place(x, pixel + p, image) + (channel + c) * x.apart[4]],
        &inside = shared[place(c) + p];
      if constexpr (Back) outside = inside;
      else inside = outside;
    }
  }
};

template <class T> TW_GPU void turn_tile(const PadArgs &x, int block) {
  const TransposedTile<T> tile(x, block);
  if (x.back) {
    tile.template pieces<true>();
    __syncthreads();
    if (x.kind == PadKind::elements) tile.template elements<true>();
    else tile.store_tile();
    return;
  }
  if (x.kind == PadKind::elements) tile.template elements<false>();
  else tile.fetch();
  tile.blank();
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
