// Operands of one- and four-byte elements whose lines are contiguous, copied to lines along k: wgmma reads such types
// along k only.  A block transposes tiles of 128 lines by 128 bytes of k through shared memory.
#pragma once
#include <tilewright/gpu/repack.h>

namespace tw {

struct Turn {
  static constexpr int threads = 256, lines = 128, row = 128, piece = 16, shared_bytes = lines * row;
};

}  // namespace tw

#ifdef TW_ON_GPU
#include <tilewright/cuda/copies/copies.h>

namespace tw {

// Rows of the job's matrix are k.  Beyond its last line and its last k there are zeros.
template <int Size> struct TurnTile {
  static constexpr int each = 4 / Size, words = Turn::lines * Turn::row / 4 / Turn::threads;  // k of a word; a thread's
  static constexpr int turns = words / each, across = Turn::lines / (8 * each);
  const RepackJob &job;
  const char *from, *end;  // the matrix, and the last byte of all matrices
  long long line0, k0;     // of the tile
  long long deep;          // k of the matrix
  int side, quarter, warp;

  TW_GPU TurnTile(const RepackJob &x, unsigned thread)
      : job(x), deep(x.length / Size), side(thread % 8), quarter(thread / 8 % 4), warp(thread / 32) {
    end = job.from + (job.batch - 1) * job.batch_stride + (deep - 1) * job.stride + job.lines * Size;
  }

  // A piece is 16 bytes of k; those of a line are swapped about so that the lanes that write one by one, and those
  // that read along k, meet in no bank.
  static TW_GPU int place(int line, int piece, int word) {
    return line * Turn::row + ((piece ^ (line / each & 7)) << 4) + word * 4;
  }

  // Word after word: a warp takes 8 words of lines by 4 words of k.
  TW_GPU void load(uint32_t (&w)[words]) const {
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      const int job_number = warp + i * (Turn::threads / 32);
      const long long line = line0 + (job_number % across * 8 + side) * each,
                      k = k0 + (job_number / across * 4 + quarter) * each;
#pragma unroll
      for (int q = 0; q < each; ++q)
        w[i * each + q] = line < job.lines && k + q < deep ? word(from + (k + q) * job.stride + line * Size) : 0;
    }
  }
  TW_GPU void store(char *tile, const uint32_t (&w)[words]) const {
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      const int job_number = warp + i * (Turn::threads / 32), line = (job_number % across * 8 + side) * each,
                piece = job_number / across;
      if constexpr (Size == 4) {
        store_shared(tile + place(line, piece, quarter), w[i]);
      } else {
        // Bytes 0 and 1 of two words side by side, then of two such pairs.
        const uint32_t *v = w + i * 4;
        const uint32_t low0 = permute(v[0], v[1], 0x5140), low1 = permute(v[2], v[3], 0x5140);
        const uint32_t high0 = permute(v[0], v[1], 0x7362), high1 = permute(v[2], v[3], 0x7362);
        store_shared(tile + place(line, piece, quarter), permute(low0, low1, 0x5410));
        store_shared(tile + place(line + 1, piece, quarter), permute(low0, low1, 0x7632));
        store_shared(tile + place(line + 2, piece, quarter), permute(high0, high1, 0x5410));
        store_shared(tile + place(line + 3, piece, quarter), permute(high0, high1, 0x7632));
      }
    }
  }
  // Whole pieces: rows of the copy have room for them.
  TW_GPU void store_tile(const char *tile, long long first_line) const {
#pragma unroll
    for (int i = 0; i < Turn::shared_bytes / Turn::piece / Turn::threads; ++i) {
      const int at = int(warp * 32 + quarter * 8 + side) + i * Turn::threads, line = at / 8, piece = at % 8;
      const long long byte = k0 * Size + piece * Turn::piece;
      if (line0 + line < job.lines && byte < job.length)
        *reinterpret_cast<Word16 *>(job.to + (first_line + line0 + line) * job.to_stride + byte) =
            load_shared<Word16>(tile + place(line, piece, 0));
    }
  }

 private:
  // Four bytes from anywhere; those outside the matrix are not touched.
  TW_GPU uint32_t word(const char *p) const {
    if constexpr (Size == 4) return *reinterpret_cast<const uint32_t *>(p);
    const int off = int(reinterpret_cast<uintptr_t>(p) & 3);
    const char *at = p - off;
    if (at < job.from || at + 8 > end)
      return funnel(word_within(at, job.from, end), word_within(at + 4, job.from, end), 8 * off);
    const uint32_t *words = reinterpret_cast<const uint32_t *>(at);
    return off ? funnel(words[0], words[1], 8 * off) : words[0];
  }
};

template <int Size> TW_GPU void turn(const RepackJob &job, long long block, long long blocks, unsigned thread) {
  char *tile = dynamic_shared();
  TurnTile<Size> t(job, thread);
  const long long across = (job.lines + Turn::lines - 1) / Turn::lines, down = (job.length + Turn::row - 1) / Turn::row;
  for (long long at = block; at < across * down * job.batch; at += blocks) {
    const long long z = at / (across * down), inside = at % (across * down);
    t.from = job.from + z * job.batch_stride;
    t.line0 = inside % across * Turn::lines, t.k0 = inside / across * (Turn::row / Size);
    uint32_t w[TurnTile<Size>::words];
    t.load(w);
    if (at != block) block_barrier();  // all have read the tile before
    t.store(tile, w);
    block_barrier();
    t.store_tile(tile, z * job.lines);
  }
}

// The copies that a tma_ws kernel needs of its operands; Size: the bytes of an element of those that are transposed, or 0.
template <int Size> TW_GPU void copy_operands(const RepackArgs &x, unsigned block, unsigned blocks, unsigned thread) {
  let_next_kernel_in();
  if constexpr (Size != 0) {
    const bool second = block >= x.first;
    if (x.job[second].transposed)
      return turn<Size>(x.job[second], second ? block - x.first : block, second ? blocks - x.first : x.first, thread);
  }
  repack(x, block, blocks, thread);
}

}  // namespace tw
#endif
