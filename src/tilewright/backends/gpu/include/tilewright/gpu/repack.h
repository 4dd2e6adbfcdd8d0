// Matrices whose rows start anywhere, copied to rows that start at multiples of 128 bytes: what a copy
// engine, which reads whole 16-byte pieces, can take.  Bytes behind a row's end are left as they come.
#pragma once
#include <tilewright/gpu/device.h>

namespace tw {

struct RepackJob {
  const char *from;
  char *to;
  long long length, lines, batch;  // bytes of a row, rows, matrices
  long long stride, batch_stride;  // bytes; the copy's rows are `to_stride` apart, its matrices follow each other
  long long to_stride;
  int turned;  // the copy's rows are along what is across in the matrix, `length` bytes of it (cuda/turn.h)
};
struct RepackArgs {
  RepackJob job[2];
  unsigned first;  // blocks of the first job; the others do the second
};
struct Repack {
  static constexpr int threads = 256, lines_at_once = 8;
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

// A warp (32 threads) for each row, 16 bytes a thread and turn: five aligned words, shifted into four.
TW_GPU void repack(const RepackArgs &x, unsigned block, unsigned blocks, unsigned thread) {
  const bool second = block >= x.first;
  const RepackJob &job = x.job[second];
  const long long mine = second ? block - x.first : block, all = second ? blocks - x.first : x.first;
  const char *end = job.from + (job.batch - 1) * job.batch_stride + (job.lines - 1) * job.stride + job.length;
  for (long long row = mine * Repack::lines_at_once + thread / 32; row < job.lines * job.batch;
       row += all * Repack::lines_at_once) {
    const long long z = row / job.lines, line = row - z * job.lines;
    const char *from = job.from + z * job.batch_stride + line * job.stride;
    char *to = job.to + row * job.to_stride;
    const int off = int(reinterpret_cast<uintptr_t>(from) & 3);
    from -= off;
#pragma unroll 2
    for (long long at = thread % 32 * 16; at < job.length; at += 32 * 16) {
      uint32_t w[5], out[4];
      const char *p = from + at;
#pragma unroll
      for (int i = 0; i < 5; ++i)
        w[i] = p >= job.from && p + 20 <= end ? reinterpret_cast<const uint32_t *>(p)[i]
                                              : word_within(p + i * 4, job.from, end);
#pragma unroll
      for (int i = 0; i < 4; ++i) out[i] = uint32_t((uint64_t(w[i + 1]) << 32 | w[i]) >> 8 * off);
      *reinterpret_cast<uint4 *>(to + at) = uint4{out[0], out[1], out[2], out[3]};
    }
  }
}

#endif
}  // namespace tw
