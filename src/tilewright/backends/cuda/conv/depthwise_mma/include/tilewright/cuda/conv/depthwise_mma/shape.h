// Gradients of depthwise weights by matrix instructions: windows of up to 7 rows of up to 8 taps that move pixel by pixel.
//
// Of one channel, k is 16 pixels of a row of x.  The rows of A are y, moved by as many pixels as the window is wide, of two
// neighbouring rows of results; the columns of B are the rows of x that these meet.  So 98 of 128 accumulators of an instruction
// are taps of a window of 7x7, where a thread that multiplies by itself needs a widened value for each.  A lane reads
// eight channels of a pixel at once, and what it holds of two pixels becomes a word of two pixels for each channel.
// Tiles are whole rows of images, of 32 channels, that TMA brings with their padding; pixels lie so that lanes
// that read together never meet in a bank.
//
// The numbers, for the host that launches and the device that runs.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/gpu/divide.h>

namespace tw {

struct DepthwiseMmaArgs {
  void *to;
  float *partial;                             // [part][tap][channel]
  long long filter_apart, tap_apart;          // of w
  int before[3];                              // w, h, d
  int depth, out_depth, planes, step, apart;  // along d: of x, of y, of the window, stride and dilation
  int channels, taps, window_w, window_h;
  int row, row_of_y;          // pixels of a row of a tile of x, and of y
  int rows, lines, segments;  // of a tile: rows of x and of y, 16s of pixels
  int x_bytes, stage_bytes, box_bytes;
  Divider by_segments, chunks, results;  // a tile's number is chunk of rows, plane, image
  int tiles, blocks, parts;              // blocks of channels, and how many share the tiles of one
};

// Config: A, C, stages.
template <class Config> struct DepthwiseMma {
  static constexpr int Channels = 32, pixel = 64, Stages = Config::stages;
  static constexpr int chunks = Channels / 8, sharing = 3,
                       warps = chunks * sharing;  // warps that share a chunk's units
  static constexpr int working = warps * 32, threads = working + 32;
  static constexpr int margin = 8, deep = 16;  // pixels before a row of y, of an instruction
  static constexpr int barriers = 128, most_shared = Config::Arch::shared_bytes, staging = warps * 8 * 128 * 4;
  static_assert(sizeof(typename Config::A) == 2 && Stages <= 4, "two-byte elements");
};

}  // namespace tw
