// The numbers of convolutions by the gather pipeline, for the host that launches and the device that runs.
//
// An implicit GEMM whose operands are gathered piece by piece, wherever they lie.  What is counted are `places`: pixels
// of y, or of x in backward_data, where those of one residue of the strides are a class.  From a place each tap leads to
// a pixel of the `gathered` tensor, x, or y in backward_data:
//
//   forward          A: a line is a place, k is taps by channels     B: a line is a filter
//   backward_data    A: a line is a place, k is taps by filters      B: a line is a channel
//   backward_weight  A: a line is a filter, k is places              B: a line is a tap's channel
//
// Where an element lies is the sum of what its line says and what its k says, and whether it is there follows from two
// sets of bits, one for each tap of each axis: those of the place (which taps meet the tensor) and that of the tap.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/cuda/conv/gather/memory.h>
#include <tilewright/gpu/divide.h>
#include <tilewright/gpu/multistage_shape.h>

namespace tw {

// Width, height or depth.  Strides of tensors in elements, modulo 2^32: only what is there must fit.
struct GatherAxis {
  Divider grid;                        // places
  Divider apart;                       // gathered pixels between neighbouring taps
  int step, extent;                    // gathered pixels from place to place, and of the tensor
  int backwards;                       // later taps lie before earlier ones
  int inside, spread;                  // pixels of the tensor the places lie in, and from place to place
  unsigned gathered, pitch;            // stride of the gathered tensor, from pixel to pixel and from tap to tap
  unsigned place, tap;                 // stride from place to place of the tensor they lie in, and from tap to tap of w
  Divider taps[gather_strides];        // of a class; none count as one, of no channels
  int first[gather_strides];           // the pixel that the first tap of the first place meets
  unsigned first_tap[gather_strides];  // in elements of w
  unsigned rest[gather_strides];       // in elements, from the first place of the first class
  int classes;
};

struct ConvGatherArgs {
  TileOrder order;  // tiles_n are those of all groups, the batch is classes
  const void *a, *b;
  void *e;
  const void *d[TW_CONV_MAX_D];
  float *partial;                                               // split-K: a tile of accumulators for each block
  unsigned *flags;                                              // zero before a launch and after it
  long long a_group, b_group, e_group, d_group[TW_CONV_MAX_D];  // from group to group, in elements
  long long d_image[TW_CONV_MAX_D], d_place[TW_CONV_MAX_D][3], d_column[TW_CONV_MAX_D];
  int m, n, places;        // lines of A and of B of a group; places of a class, with those beyond the edge
  Divider tiles_n, inner;  // of a group; channels (filters) of a tap
  unsigned gathered_image, place_image;
  unsigned a_inner, b_inner;  // from channel to channel of a tap
  unsigned line;              // from line to line of the operand whose lines are no places and no taps
  unsigned e_row, e_column;   // backward_weight: filters; channels
  int wide, down;             // results leave in words along columns; one by one along rows
  GatherAxis axes[3];         // width, height, depth
};

// How an operand comes into shared memory.  AlongK: neighbouring threads read along k, else along lines.  Vector: bytes
// that are copied at a time; where these are one element of under four bytes, they come through registers, and as many k
// as a word has are stored together.  Plain floats lie along lines there: four of them along k come through registers too,
// and are transposed on the way, which takes less than to copy them one by one.
template <class T, int Lines_, int Deep_, bool AlongK_, int Vector_, int Threads> struct Gathered {
  using Element = T;
  static constexpr int Lines = Lines_, Deep = Deep_, Vector = Vector_, size = sizeof(T);
  static constexpr bool AlongK = AlongK_, plain = is_float<T>::value, single = gather_single(Vector), realigned = false;
  static constexpr bool transposed = gather_transposed(plain, AlongK, Vector),
                        held = gather_held(plain, AlongK, Vector);
  using Place = typename place_of<plain, T, Lines, Deep, AlongK || single>::type;
  static constexpr int stage_bytes = Place::bytes;
  static constexpr int piece_k = gather_piece_k(size, AlongK, Vector),
                       piece_lines = gather_piece_lines(size, AlongK, Vector),
                       across = gather_across(size, Lines, Deep, plain, AlongK, Vector);
  static constexpr int others = Threads / across;  // that are dealt out at a time along the other axis
  // Of a thread, and how far these are apart.
  static constexpr int line_step = AlongK ? others : Lines, k_step = AlongK ? across * piece_k : others * piece_k;
  static constexpr int lines = AlongK ? (Lines + others - 1) / others : 1;
  static constexpr int ks = (Deep + k_step - 1) / k_step;
  static constexpr bool whole = AlongK ? Lines % others == 0 && Deep % k_step == 0 : Deep % k_step == 0;
  static constexpr int grain = gather_grain(size, AlongK, Vector);
  static_assert(Threads % across == 0, "a thread's pieces lie in one column");
  static_assert(!single || !plain, "floats are copied four bytes at a time");
};

// Config: A, C, variant, tile_m, tile_n, tile_k, warps_m, warps_n, stages, along_a, along_b, vector_a, vector_b (bytes),
// together.
template <class Config> struct ConvGather {
  static constexpr ConvVariant variant = Config::variant;
  static constexpr bool weight = variant == ConvVariant::backward_weight;
  static constexpr TileScheduler Scheduler = TileScheduler::split_k;
  static constexpr int BM = Config::tile_m, BN = Config::tile_n, BK = Config::tile_k, Stages = Config::stages;
  static constexpr int warps = Config::warps_m * Config::warps_n, threads = warps * 32;
  static constexpr int warp_m = BM / Config::warps_m, warp_n = BN / Config::warps_n;
  using A = Gathered<typename Config::A, BM, BK, Config::along_a, Config::vector_a, threads>;
  using B = Gathered<typename Config::A, BN, BK, Config::along_b, Config::vector_b, threads>;
  using Sum = typename sum_of<typename Config::A>::type;
  static constexpr int stage_bytes = A::stage_bytes + B::stage_bytes, ring_bytes = Stages * stage_bytes;
  static constexpr int staging_rows = Config::warps_m * Config::unit_m;
  static constexpr int table_at = multistage_shared_bytes(ring_bytes, Config::warps_m, BN);
  static constexpr int grain = A::grain < B::grain ? A::grain : B::grain, entries = BK / grain;
  static constexpr int ahead = gather_ahead, table_bytes = gather_table_bytes(BK, grain),
                       lines_at = table_at + table_bytes;
  static constexpr int rows_at = lines_at + gather_line_bytes(BM, BN), row_bytes = gather_row_bytes(Config::num_d);
  static constexpr int shared_bytes = gather_shared_bytes(rows_at, BM, BN, Config::num_d);
  static constexpr int ctas_per_sm = Config::ctas_per_sm;  // blocks of a multiprocessor, at least
  static_assert(warp_m % Config::unit_m == 0, "a warp's part is whole units");
  static_assert(Stages <= ahead, "those under way before the first multiplication are worked out");
  static_assert(Stages >= 3, "what comes through registers is stored a step later");
};

}  // namespace tw
