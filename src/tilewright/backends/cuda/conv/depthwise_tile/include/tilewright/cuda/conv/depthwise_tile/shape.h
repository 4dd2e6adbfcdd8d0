// Depthwise convolutions of windows that slide over tiles of shared memory: TMA brings the tiles, padding and
// all, so that no thread checks what lies inside an image, and memory is busy while threads multiply.
//
// A tile is rows of pixels of one plane, `channels` of them; a unit is `lines` by `pixels` results, two channels a lane.
// Units go round the warps, across tiles, so that none has fewer than others.  backward_weight: a unit meets its window
// in x, and the accumulators of all taps stay in registers until the tiles are done.
//
// The numbers, for the host that launches and the device that runs.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/gpu/divide.h>
#include <tilewright/gpu/epilogue.h>

namespace tw {

struct DepthwiseTileArgs {
  const void *with;  // w
  void *to;
  float *partial;                                // backward_weight: [part][tap][channel]
  int out[3], before[3];                         // w, h, d
  int depth, planes, step, apart;                // along d: of what is read, of the window, stride and dilation
  long long to_apart[4];                         // pixels along w, h, d, then images
  long long filter_apart, tap_apart;             // of w
  int channels, taps, flipped;                   // flipped: the last tap first
  int odd;                                       // of backward_data with strides: the padding is
  int strips, lines;                             // of a tile of results: units across, rows
  int row, rows, row_of_y;                       // of a tile that is read: pixels of a row, rows; whole 128 bytes
  int stages, groups;                            // tiles under way; units of a tile, as many as a warp takes as one
  Divider by_strips, segments, chunks, results;  // a tile's number is segment, chunk, plane, image
  int tiles, blocks, parts;                      // blocks of channels, and how many share the tiles of one
  EpilogueArgs finish;
};

// Config: A, C, variant, window (wide and high), step, spread (the dilation), pixels, lines, channels.
template <class Config> struct DepthwiseTile {
  static constexpr bool weight = Config::variant == ConvVariant::backward_weight,
                        data = Config::variant == ConvVariant::backward_data;
  // Up: results that lie in one stride are made together, of backward_data; pixels and lines of a unit count strides.
  static constexpr int K = Config::filter_size, S = data ? 1 : Config::stride, Up = data ? Config::stride : 1,
                       D = Config::dilation, wide = Up > 1 ? (K + 1) / 2 : (K - 1) * D + 1, TW = Config::tile_w,
                       TH = Config::tile_h, Channels = Config::channels, Lanes = Channels / 2,
                       each = 32 / Lanes;  // units of a warp at once
  static_assert(Up <= 2 && (Up == 1 || (D == 1 && K % 2 == 1)), "strides of backward_data");
  static constexpr int reach = (TW - 1) * S + wide, high = (TH - 1) * S + wide;  // pixels that a unit meets
  static constexpr int pixel = Channels * 2;                                     // bytes
  // That multiply, beside the producer: as many for each scheduler, where registers allow.
  static constexpr int warps = weight && K > 3 ? (K > 5 ? 11 : 15) : 16;
  static constexpr int threads = (warps + 1) * 32, working = warps * 32, slots = warps * each;
  static constexpr int most_stages = 4, most_shared = Config::Arch::shared_bytes, barriers = 128;
  static constexpr int staging = weight ? K * K * slots * Channels * 4 : 0;  // the accumulators of all warps
  static_assert(sizeof(typename Config::A) == 2 && (Channels == 32 || Channels == 64), "a lane has two channels");
};

}  // namespace tw
