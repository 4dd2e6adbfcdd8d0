// Matrices whose rows start anywhere, copied to rows that start at multiples of 128 bytes: what a copy
// engine, which reads whole 16-byte pieces, can take.  Bytes behind a row's end are left as they come.
#pragma once
#include <tilewright/gpu/device.h>

namespace tw {

struct RepackJob {
  const char *from, *end;  // behind the last byte of the last matrix
  char *to;
  long long length, lines, batch;  // bytes of a row, rows, matrices
  long long stride, batch_stride;  // bytes; the copy's rows are `to_stride` apart, its matrices follow each other
  long long to_stride;
  int transposed;  // the copy's rows are along what is across in the matrix, `length` bytes of it (cuda/copies/transpose.h)
};
struct RepackArgs {
  RepackJob job[2];
  unsigned first;  // blocks of the first job; the others do the second
};
struct Repack {
  static constexpr int threads = 256, warps = threads / 32, piece = 32 * 16, stretch = 2 * piece;
};

#ifdef TW_ON_GPU

// Four bytes at an aligned place, of which some may lie outside the matrix: those are not touched.
TW_GPU uint32_t word_within(const char *p, const char *begin, const char *end) {
  uint32_t word = 0;
#pragma unroll 1
  for (int i = 0; i < 4; ++i)
    if (p + i >= begin && p + i < end) word |= uint32_t(uint8_t(p[i])) << 8 * i;
  return word;
}

// 16 bytes from anywhere, out of the two 16-byte words they lie in: from byte `off` on.
struct Shifted {
  const uint4 low, high;
  TW_GPU explicit Shifted(const char *from)
      : low(reinterpret_cast<const uint4 *>(from)[0]), high(reinterpret_cast<const uint4 *>(from)[1]) {}
  TW_GPU uint4 get(int off) const {
    uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = off & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = off & 4 ? w[i + 1] : w[i];
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = uint32_t((uint64_t(w[i + 1]) << 32 | w[i]) >> 8 * (off & 3));
    return {out[0], out[1], out[2], out[3]};
  }
};

// The same where the matrix begins or ends, byte by byte.
TW_GPU uint4 bytes_within(const char *from, const char *end) {
  uint32_t out[4] = {};
#pragma unroll 1
  for (int i = 0; i < 16 && from + i < end; ++i) {
    const uint32_t byte = uint32_t(uint8_t(from[i])) << 8 * (i % 4);
#pragma unroll
    for (int word = 0; word < 4; ++word) out[word] |= i / 4 == word ? byte : 0;
  }
  return {out[0], out[1], out[2], out[3]};
}

// A warp (32 threads) for each stretch of a row, two pieces of 16 bytes a thread, of which both come before one leaves: a
// short copy is nothing but waiting.
TW_GPU void repack(const RepackArgs &x, unsigned block, unsigned blocks, unsigned thread) {
  const bool second = block >= x.first;
  const RepackJob &job = x.job[second];
  const unsigned mine = second ? block - x.first : block, all = second ? blocks - x.first : x.first;
  const unsigned along = unsigned((job.length + Repack::stretch - 1) / Repack::stretch), lines = unsigned(job.lines);
  // Stretches are counted in 32 bits: so many would fill hundreds of gigabytes.
  for (unsigned item = mine * Repack::warps + thread / 32, items = along * lines * unsigned(job.batch); item < items;
       item += all * Repack::warps) {
    unsigned row = item, stretch = 0, z = 0;
    if (along > 1) row = item / along, stretch = item - row * along;
    unsigned line = row;
    if (job.batch > 1) z = row / lines, line = row - z * lines;
    const long long at = (long long)stretch * Repack::stretch + thread % 32 * 16;
    if (at >= job.length) continue;
    const char *from = job.from + z * job.batch_stride + line * job.stride + at;
    uint4 *to = reinterpret_cast<uint4 *>(job.to + row * job.to_stride + at);
    const bool more = at + Repack::piece < job.length;
    const int next = more ? Repack::piece : 0, off = int(reinterpret_cast<uintptr_t>(from) & 15);
    if (from - off < job.from || from + next - off + 32 > job.end) {
      *to = bytes_within(from, job.end);
      if (more) to[Repack::piece / 16] = bytes_within(from + next, job.end);
    } else {  // comes first in memory
      const Shifted first(from - off), then(from + next - off);
      *to = first.get(off);
      if (more) to[Repack::piece / 16] = then.get(off);
    }
  }
}

#endif
}  // namespace tw
