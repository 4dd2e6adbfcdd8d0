// The numbers of convolutions by the tma_ws pipeline, for the host that launches and the device that runs.
//
// A convolution is a matrix product whose operands TMA lays out on the way, through maps of pixels (im2col):
//
//                     rows         columns           k                           A, B are read along
//   forward           pixels of y  filters           taps x channels             k, k
//   backward_data     pixels of x  channels          taps x filters              k, columns
//   backward_weight   filters      taps x channels   pixels of y                 rows, columns
//
// Where strides are over 1, the pixels of x that meet the same taps of a filter are a class: each is a product of its
// own, all of them over the same traversal of y, and rows of one lie strides apart in x.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/cuda/conv/tma_ws/sizes.h>
#include <tilewright/cuda/gemm/tma_ws/shape.h>
#include <tilewright/gpu/divide.h>

namespace tw {

// Spatial arrays of these structs are w, h, d.

// A tap of a filter and how far it moves the traversal of pixels.
struct ConvTap {
  uint16_t number;
  uint8_t by[3];
};
// The pixels a traversal goes over: how many, how far apart in the map, and from which one on.
struct ConvGrid {
  Divider size[3];
  int step[3], first[3];
};

struct ConvWsArgs : TmaWsArgs {
  ConvGrid grid;
  int groups, classes;    // z counts groups, then classes
  int blocks;             // of a tap: stages of channels (backward_data: filters), or of columns
  int taps_in_all;        // backward_weight
  int pixels_of_a_group;  // channels of the operand that is made of pixels
  int lines_of_a_group;   // lines of the other one
  // backward_weight: columns are taps of whole 64s; where w has fewer channels, or gaps, these and how far taps lie apart.
  int channels;  // 0: columns are as w lies
  long long tap_apart;
  Divider columns;  // of a tap
  // backward_data: x, where results leave by ordinary stores.
  int rows_dense;      // one class, whose rows lie e_stride apart
  long long apart[4];  // pixels along w, h and d, then images
  long long group_apart;
  int inside[3], stride[3];
  uint16_t first_tap[most_classes + 1];
  uint8_t rest[most_classes][3];           // a class's first pixel
  ConvTap taps[most_taps + most_classes];  // `taps_in_all` is the number of none, for a class that has none
};

// Config: A, C, variant, spatial, tile_m, tile_n, stages, cluster_m, cluster_n, pingpong, tile_scheduler, tma_store.
template <class Config> struct ConvWs
    : TmaWs<typename Config::A, Config::tile_m, Config::tile_n, Config::stages, Config::cluster_m, Config::cluster_n,
            Config::pingpong, false, Config::tma_store, Config::variant == ConvVariant::backward_weight,
            Config::variant != ConvVariant::forward, Config::tile_scheduler, Config::Arch::shared_bytes> {
  using Base =
      TmaWs<typename Config::A, Config::tile_m, Config::tile_n, Config::stages, Config::cluster_m, Config::cluster_n,
            Config::pingpong, false, Config::tma_store, Config::variant == ConvVariant::backward_weight,
            Config::variant != ConvVariant::forward, Config::tile_scheduler, Config::Arch::shared_bytes>;
  static constexpr ConvVariant variant = Config::variant;
  static constexpr int Spatial = Config::spatial;
  static constexpr bool by_classes = variant == ConvVariant::backward_data && !Config::tma_store &&
                                     Config::tile_scheduler == TileScheduler::data_parallel;
  // Results of rows that lie anywhere leave through rows of shared memory that begin 16 bytes further than they end, so
  // that lanes meet in few banks.
  static constexpr bool by_rows = by_classes && sizeof(typename Config::C) == 2 && Base::BN % 16 == 0;
  static constexpr int row_bytes = Base::chunk_columns * 2 + 16;
  static_assert(!by_rows || 64 * row_bytes <= Base::buffers * Base::chunk, "rows have the room of buffers");
  static constexpr int pixels =
      variant == ConvVariant::backward_weight ? 64 : Base::BM / Base::ClusterN;  // of a traversal
  static_assert(variant == ConvVariant::forward || sizeof(typename Config::A) == 2, "wgmma reads others along k only");
  static_assert(variant != ConvVariant::backward_weight || Base::BN % 64 == 0, "columns come 64 at a time");

  static constexpr bool ragged = variant == ConvVariant::backward_weight;

#ifdef TW_ON_GPU
  using typename Base::Corner;
  static TW_GPU long long column_at(const TmaWsArgs &args, int column) {
    auto &x = static_cast<const ConvWsArgs &>(args);
    if (!x.channels) return column;
    const int tap = x.columns.quotient(column), channel = column - tap * int(x.columns.by);
    return channel < x.channels ? tap * x.tap_apart + channel : -1;
  }
  static TW_GPU Corner corner(const TmaWsArgs &args, int column, int z) {
    auto &x = static_cast<const ConvWsArgs &>(args);
    if (!ragged || !x.channels) return {column, z};
    const int tap = x.columns.quotient(column);
    return {column - tap * int(x.columns.by), tap};
  }
  static TW_GPU long long row_at(const TmaWsArgs &args, int z, int row) {
    if constexpr (!by_classes) return Base::row_at(args, z, row);
    auto &x = static_cast<const ConvWsArgs &>(args);
    if (row >= x.m) return -1;
    if (x.rows_dense) return row * x.e_stride + z * x.group_apart;
    const int number = z / x.groups;
    long long at = (z - number * x.groups) * x.group_apart;
    int left = row;
#pragma unroll
    for (int i = 0; i < Spatial; ++i) {
      const int next = x.grid.size[i].quotient(left);
      const int pixel = (left - next * int(x.grid.size[i].by)) * x.stride[i] + x.rest[number][i];
      if (pixel >= x.inside[i]) return -1;
      at += pixel * x.apart[i];
      left = next;
    }
    return at + left * x.apart[3];
  }
#endif
};

}  // namespace tw
