// The numbers of the stages before and behind attention's gradients, which memory decides: lanes share a row and read 16
// bytes each.
#pragma once
#include <tilewright/attention_backward_rules.h>
#include <tilewright/gpu/types.h>

namespace tw {

// Config: what attention_backward_rules.h says, and early: it may come in before the kernel before it is done.
template <class Config> struct BackwardRows {
  using T = typename Config::T;
  static constexpr int threads = 256, piece = 16 / int(sizeof(T));  // elements that a lane reads at once
  static constexpr int lanes_of(int pieces) {
    int lanes = 1;
    while (lanes < pieces && lanes < 32) lanes *= 2;
    return lanes;
  }
  // Lanes that share a row, of a head as long as the longest.
  static constexpr int most = Config::head_v > Config::head_qk ? Config::head_v : Config::head_qk;
  static constexpr int lanes = lanes_of((most + piece - 1) / piece), rows_at_once = threads / lanes;
};

struct BackwardDotArgs {
  tw_attention_backward_dot_args x;
  int tiles;  // of prepared rows, of the longest sequence
  int wide;   // rows are whole 16 bytes
};
struct BackwardConvertArgs {
  tw_attention_backward_convert_args x;
  int row_tiles, key_tiles;   // of the longest sequence, of as many rows as are prepared together
  int dq_blocks, dkv_blocks;  // that work on dq, and on dk
  int wide;
};

}  // namespace tw
