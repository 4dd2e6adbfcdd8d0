// Gradients of weights of first layers: few channels, at most eight, of one group.
//
// k is pixels, 16 an instruction.  A row of x lies in shared memory as lines of 16 bytes: eight channels of a pixel, or four
// of two neighbours where the window moves by an even number of pixels.  Between neighbouring results the window moves
// over `phases` lines, and lines of one phase lie together: what 16 results meet in one line of their windows is 16 lines
// of 16 bytes in a row, an operand without a swizzle that may begin at any of them.  Its columns go on one row of the
// window below the other, as far apart as rows lie, so that one instruction multiplies eight elements of every row.
// Warps spread x out into lines as they read it, with the padding, rows that the stage before has out of that; the copy
// engine brings y.  Parts of the pixels are
// added in order by a second kernel.
//
// The numbers, for the host that launches and the device that runs.
#pragma once
#include <tilewright/cuda/gemm/tma_ws/shape.h>
#include <tilewright/gpu/divide.h>

namespace tw {

struct SmallChannelWgradArgs {
  const void *from;  // x
  float *partial;    // [part][64 filters][plane][line][row][filter][element of the line]
  void *to;
  long long apart[4];               // of x: pixels along w, h, d, then images
  int size[3], before[3], step[3];  // w, h, d
  int deep_apart;                   // dilation along d
  int channels, filters, narrow;    // narrow: four channels a pixel
  int shift, words;                 // pixels of a line before the first tap; pairs of pixels are whole words
  int window_w, planes, lines;      // of the window; lines of 16 bytes of its row
  int phases, row;                  // row: lines of one phase
  int segment, high, rows;          // results of a stage: across, in whole 16s, and down; rows of x they meet
  int rows_apart, again;            // from row to row of the window, and what the stage before has too: lines
  int y_bytes, stage_bytes;
  Divider segments, chunks, depth, by_row, by_phase;  // a stage's number is chunk of rows, segment, plane, image
  int count, parts, blocks_m;                         // stages; how many blocks share them; of 64 filters
  Divider by_channels, by_taps, by_width;
  long long filter_apart, tap_apart, weights, part_apart;  // of w; all of them; from split to split
};

// Config: A, C, filter_rows, lines (of a warpgroup), stages.
template <class Config> struct SmallChannelWgrad {
  using In = typename Config::A;
  static constexpr int Rows = Config::filter_rows, N = 8 * Rows, Each = Config::lines, Stages = Config::stages;
  static constexpr int groups = 2, summing = groups * 128, spreading = 224, threads = summing + spreading + 32;
  static constexpr int line = 16, barriers = 256, most_shared = Config::Arch::shared_bytes;
#ifdef TW_ON_GPU
  // Where the accumulators of a line begin in a split.
  static TW_GPU long long place(const SmallChannelWgradArgs &x, int m, int plane, int line) {
    return (((long long)m * x.planes + plane) * x.lines + line) * (Rows * 512);
  }
#endif
  static_assert(sizeof(In) == 2 && Stages <= 8 && N <= 256, "stages");
};

}  // namespace tw
