// Depthwise convolutions: a filter for each channel.  There is little to multiply and much to move, so a thread keeps a
// few neighbouring channels of a strip of pixels in registers and slides the window over it.
//
// The numbers, for the host that launches and the device that runs.  Spatial arrays are w, h, d.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/gpu/divide.h>
#include <tilewright/gpu/epilogue.h>

namespace tw {

struct DepthwiseArgs {
  const void *from;  // pixels that are read: x, or of backward_data y
  const void *with;  // w, or of backward_weight y
  void *to;
  float *partial;  // backward_weight: [part][tap][channel]
  int size[3], out[3], window[3], stride[3], dilation[3], before[3];
  long long from_apart[4], to_apart[4];  // pixels along w, h, d, then images; of backward_weight, `to` means y
  long long filter_apart, tap_apart;     // of w
  int channels, taps, flipped;           // flipped: the last tap first
  int vecs;                              // vectors of channels that a block's threads lie along
  Divider by_vecs, by_taps, strips, rows, planes;
  long long work;     // strips in all
  int blocks, parts;  // of channels, and how many share the strips of one
  EpilogueArgs finish;
};

// Config: A, C, variant, spatial, filter_size (its width; 0: any), stride (along w), pixels of a strip, vector, together.
template <class Config> struct Depthwise {
  static constexpr int threads = 128, TW = Config::pixels, V = Config::vector, KW = Config::filter_size,
                       SW = Config::stride;
  static constexpr int TH = Config::rolling_rows;  // of a strip that the window rolls down; 0: one, and any height
  static constexpr bool weight = Config::variant == ConvVariant::backward_weight;
  static constexpr int reach = (TW - 1) * SW + KW;         // pixels that a strip meets in a row
  static constexpr int ctas_per_sm = Config::ctas_per_sm;  // blocks of a multiprocessor
  static constexpr int most_shared = 48 * 1024;
  static_assert((V == 1 || V == 2 || V == 4) && V * sizeof(typename Config::A) <= 16, "a vector is one word of memory");
  static_assert(TH == 0 || (KW > 0 && SW == 1), "a window that rolls moves pixel by pixel");
  static_assert(reach < 32, "a bit for each");
  static_assert(!weight || KW > 0, "the taps are counted when it is compiled");
};

}  // namespace tw
