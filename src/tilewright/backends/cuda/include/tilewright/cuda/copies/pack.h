// B packed beforehand, as the stages of tma_ws want it: for each 128 bytes of k all columns one after the
// other, 128 bytes each, their 16-byte pieces swizzled as wgmma reads them.  Eight columns are an atom of
// 1024 bytes, and the columns of any tile are one run of atoms: the form does not depend on the tile.
#pragma once
#include <tilewright/gpu/types.h>

namespace tw {

struct PackArgs {
  const void *from;
  char *to;
  long long lines, k, batch;       // columns of B, in elements
  long long stride, batch_stride;  // of B
  long long padded, blocks;        // columns up to whole atoms, and blocks of k: beyond B there are zeros
};
struct Pack {
  static constexpr int threads = 256, row = 128, atom = 8, piece = 16;
};

#ifdef TW_ON_GPU

// What the matrix units read of an element; floats are rounded here, where no tensor map does it.
template <class T> TW_GPU T as_read(T x) { return x; }
TW_GPU tf32 as_read(tf32 x) {
  const uint32_t bits = __float_as_uint(x.value);
  return (bits & 0x7f800000) == 0x7f800000 ? x : tf32{__uint_as_float((bits + 0x1000) & 0xffffe000)};
}

// A thread for each piece, neighbours along what is contiguous in B.
template <class T, bool KContiguous> TW_GPU void pack(const PackArgs &x, long long thread, long long threads) {
  constexpr int each = Pack::piece / sizeof(T), pieces = Pack::row / Pack::piece;
  const long long matrix = x.padded * x.blocks * pieces;
  for (long long at = thread; at < matrix * x.batch; at += threads) {
    const long long z = at / matrix, inside = at % matrix;
    const long long line = KContiguous ? inside / (x.blocks * pieces) : inside % x.padded;
    const long long along = KContiguous ? inside % (x.blocks * pieces) : inside / x.padded;
    const T *from = static_cast<const T *>(x.from) + z * x.batch_stride;
    alignas(16) T values[each];
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const long long k = along * each + i;
      values[i] =
          line < x.lines && k < x.k ? as_read(from[KContiguous ? line * x.stride + k : k * x.stride + line]) : T{};
    }
    char *row = x.to + ((z * x.blocks + along / pieces) * x.padded + line) * Pack::row;
    *reinterpret_cast<uint4 *>(row + ((along % pieces) ^ (line % Pack::atom)) * Pack::piece) =
        *reinterpret_cast<const uint4 *>(values);
  }
}

#endif
}  // namespace tw
