// Gradients of weights over halo tiles of pixels: what conv/halo/shape.h says of forward, with the pixels as k.
//
// Rows are counted with the padding, in x and in y alike, so that the x of a tap is the same run of rows of shared memory
// for every tap, moved; the rows of y that are padding are zeros.  A stage is a halo tile of x and its rows of y, 64 channels
// and 64 filters: one fetch for all taps of a plane, of which each of three warpgroups accumulates up to three.  Groups of few
// channels lie side by side in these 64; what one group's filters make of another's channels does not leave.  Where
// at most 32 channels are there, no others are multiplied.  Parts of the pixels are added in order by a second kernel.
#pragma once
#include <tilewright/cuda/conv/halo_wgrad/memory.h>
#include <tilewright/cuda/conv/tma_ws/shape.h>

namespace tw {

struct HaloWgradArgs {
  ConvGrid grid;
  float *partial;  // [part][filter][tap][channel]
  void *to;
  long long filter_apart, tap_apart;         // of w
  int halo;                                  // rows of x of a stage
  int taps, planes, reach[2];                // of a plane; planes; rows from tap to tap along w and h
  int window_w, planes_apart;                // taps of a row; pixels from plane to plane
  int chunks, parts;                         // of the pixels: stages, and how many blocks share them
  int groups, merged, channels, filters;     // groups of merged ones; of one
  int blocks_m, blocks_n;                    // of 64 filters, of 64 channels
  Divider by_filters, by_channels, by_taps;  // of one group
  long long count;                           // of weights
};

// Config: A, C, spatial, pixels (of a stage), halo_rows (rows there is room for), stages.
template <class Config> struct HaloWgrad {
  using In = typename Config::A;
  static constexpr int KP = Config::pixels, Halos = Config::stages, Spatial = Config::spatial, each = 3, most_taps = 9;
  static constexpr int threads = 512;
  static constexpr int x_bytes = halo_bytes_of(Config::halo_rows), y_bytes = halo_bytes_of(KP),
                       stage_bytes = x_bytes + y_bytes;
  static constexpr int shared_bytes = halo_wgrad_shared_bytes(Halos, Config::halo_rows, KP);
  static_assert(sizeof(In) == 2 && KP % 64 == 0 && Config::halo_rows % 8 == 0 && Halos <= 8, "stages");
};

}  // namespace tw
