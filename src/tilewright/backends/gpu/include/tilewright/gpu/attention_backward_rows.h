// The stages before and behind attention's gradients, which memory decides: lanes share a row and read 16 bytes each.  A
// vendor's exp2_fast comes before this header.
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
  // Blocks that share a tile of prepared rows: as many as it takes for a device to be full, of a row a thread at least.
  static int shares_of(int64_t tiles) {
    int shares = 1;
    while (tiles * shares < 2048 && prepared_rows / (2 * shares) >= rows_at_once) shares *= 2;
    return shares;
  }
};

struct BackwardDotArgs {
  tw_attention_backward_dot_args x;
  int tiles;   // of prepared rows, of the longest sequence
  int wide;    // rows are whole 16 bytes
  int shares;  // blocks that share a tile
  int64_t blocks() const { return tiles * x.heads_q * x.batch * shares; }
};
struct BackwardConvertArgs {
  tw_attention_backward_convert_args x;
  int row_tiles, key_tiles;   // of the longest sequence, of as many rows as are prepared together
  int dq_blocks, dkv_blocks;  // that work on dq, and on dk
  int wide;
  int shares;  // blocks that share a tile
  int64_t tiles() const { return int64_t(dq_blocks) + (x.dv.to ? 2 : 1) * int64_t(dkv_blocks); }
  int64_t blocks() const { return tiles() * shares; }
};

inline bool backward_whole(const void *at, const tw_attention_strides &s, int64_t head, int64_t bytes) {
  return uintptr_t(at) % 16 == 0 && (s.batch * bytes | s.row * bytes | s.head * bytes | head * bytes) % 16 == 0;
}

template <class Config> BackwardDotArgs backward_dot_args(const tw_attention_backward_dot_args &x) {
  constexpr int64_t size = sizeof(typename Config::T);
  BackwardDotArgs d{x, int(prepared_end(x.rows) / prepared_rows), 0, 1};
  d.shares = BackwardRows<Config>::shares_of(d.blocks());
  d.wide = backward_whole(x.out, x.out_strides, x.head_v, size) && backward_whole(x.dout, x.dout_strides, 0, size);
  return d;
}
template <class Config> BackwardConvertArgs backward_convert_args(const tw_attention_backward_convert_args &x) {
  // Packed rows that no sequence has are the first tile's, of a sequence without rows too.
  const auto tiles = [](int64_t rows, const void *starts) {
    const int needed = int(prepared_end(rows) / prepared_rows);
    return starts && needed < 1 ? 1 : needed;
  };
  const auto whole = [](const tw_attention_backward_sums &sums, int64_t head) {
    return !sums.to || (backward_whole(sums.source, sums.source_strides, head, 4) &&
                        backward_whole(sums.to, sums.to_strides, head, sizeof(typename Config::T)));
  };
  BackwardConvertArgs c{x, tiles(x.rows, x.starts_q), tiles(x.keys, x.starts_k), 0, 0, 0, 1};
  c.wide = whole(x.dq, x.head_qk) && whole(x.dk, x.head_qk) && whole(x.dv, x.head_v);
  c.dq_blocks = int(x.dq.to ? c.row_tiles * x.heads_q * x.batch : 0);
  c.dkv_blocks = int(x.dk.to ? c.key_tiles * x.heads_kv * x.batch : 0);
  c.shares = BackwardRows<Config>::shares_of(c.tiles());
  return c;
}

}  // namespace tw

#ifdef TW_ON_GPU

namespace tw {

// Some elements of a row, as many as 16 bytes have; `left` of them are there.
template <class T, int Count> TW_GPU void read_piece(T (&to)[Count], const T *from, int left, bool wide) {
  if (wide && left >= Count) {
    *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
    return;
  }
#pragma unroll
  for (int i = 0; i < Count; ++i)
    if (i < left) to[i] = from[i];
    else round_to(0.0f, to[i]);
}
template <class T, int Count> TW_GPU void write_piece(T *to, const T (&from)[Count], int left, bool wide) {
  if (wide && left >= Count) {
    *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
    return;
  }
#pragma unroll
  for (int i = 0; i < Count; ++i)
    if (i < left) to[i] = from[i];
}

// What `grad` needs to know of a row: a block for so many rows of a head as are prepared together.
template <class Config> TW_GPU void backward_dot(const BackwardDotArgs &d) {
  using S = BackwardRows<Config>;
  using T = typename Config::T;
  const tw_attention_backward_dot_args &x = d.x;
  const int share = int(blockIdx.x) % d.shares, rows = int(prepared_rows) / d.shares;
  const int64_t number = int64_t(blockIdx.x) / d.shares, z = number / d.tiles, tile = number - z * d.tiles;
  const int64_t sequence = z / x.heads_q, head = z - sequence * x.heads_q;
  AttentionSequence s{sequence, 0, 0, 0, 0};
  rows_of(x, s);
  if (tile * prepared_rows >= prepared_end(s.rows)) return;
  const int64_t prepared = prepared_at(x, sequence, head);
  const T *out = static_cast<const T *>(x.out) + sequence * x.out_strides.batch + head * x.out_strides.head;
  const T *dout = static_cast<const T *>(x.dout) + sequence * x.dout_strides.batch + head * x.dout_strides.head;
  const int lane = int(threadIdx.x) % S::lanes;
#pragma unroll 4
  for (int i = int(threadIdx.x) / S::lanes; i < rows; i += S::rows_at_once) {
    const int64_t row = tile * prepared_rows + share * rows + i, at = s.first_row + row;
    float sum = 0;
    if (row < s.rows)
      for (int e = lane * S::piece; e < int(x.head_v); e += S::lanes * S::piece) {
        alignas(16) T a[S::piece], b[S::piece];
        read_piece(a, out + at * x.out_strides.row + e, int(x.head_v) - e, d.wide);
        read_piece(b, dout + at * x.dout_strides.row + e, int(x.head_v) - e, d.wide);
#pragma unroll
        for (int j = 0; j < S::piece; ++j) sum += to_float(a[j]) * to_float(b[j]);
      }
#pragma unroll
    for (int bits = 1; bits < S::lanes; bits *= 2) sum += lane_xor(sum, bits);
    if (lane) continue;
    float lse = INFINITY;
    if (row < s.rows) {
      const float given =
          static_cast<const float *>(x.lse)[sequence * x.lse_batch + head * x.lse_head + s.first_row + row];
      lse = given == -INFINITY ? INFINITY : given * 1.44269504f;
      if constexpr (Config::dlse)
        sum -= static_cast<const float *>(x.dlse)[sequence * x.dlse_batch + head * x.dlse_head + s.first_row + row];
      if (given == -INFINITY) sum = 0.0f;  // NaN in dlse of a row without keys goes nowhere
    }
    static_cast<float *>(x.delta)[prepared + row] = sum;
    static_cast<float *>(x.lse_log2)[prepared + row] = lse;
  }
}
// The gradient of a head's sink logit: a block a head, in one order.  `sums` is shared memory, a float for 32 threads.
template <class Config> TW_GPU void backward_dsink(const BackwardDotArgs &d, float *sums) {
  const tw_attention_backward_dot_args &x = d.x;
  constexpr int threads = BackwardRows<Config>::threads;
  const int head = int(blockIdx.x);
  const float sink = static_cast<const float *>(x.sink)[head] * 1.44269504f;
  float sum = 0;
  for (int64_t b = 0; b < x.batch; ++b) {
    AttentionSequence s{b, 0, 0, 0, 0};
    rows_of(x, s);
    const int64_t at = prepared_at(x, b, head);
    for (int64_t row = threadIdx.x; row < s.rows; row += threads)
      sum += exp2_fast(sink - static_cast<const float *>(x.lse_log2)[at + row]) *
             static_cast<const float *>(x.delta)[at + row];
  }
#pragma unroll
  for (int bits = 1; bits < 32; bits *= 2) sum += lane_xor(sum, bits);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  for (int i = 1; i < threads / 32; ++i) sum += sums[i];
  static_cast<float *>(x.dsink)[head] = -sum;
}

// Rows of one result: sums over parts, or zeros where there is nothing to add up.
template <class Config> struct RowConverter {
  using S = BackwardRows<Config>;
  using T = typename Config::T;
  const tw_attention_backward_sums &x;
  const void *starts;
  int64_t sequence, head;
  int columns;
  float factor;
  bool wide;

  TW_GPU void row(int64_t from, int64_t to, bool there) const {
    const float *sums = static_cast<const float *>(x.source) + (starts ? 0 : sequence * x.source_strides.batch) +
                        head * x.parts * x.source_strides.head + from * x.source_strides.row;
    T *results = static_cast<T *>(x.to) + (starts ? 0 : sequence * x.to_strides.batch) + head * x.to_strides.head +
                 to * x.to_strides.row;
    for (int e = int(threadIdx.x) % S::lanes * S::piece; e < columns; e += S::lanes * S::piece) {
      float sum[S::piece];
#pragma unroll
      for (int j = 0; j < S::piece; ++j) sum[j] = 0;
      if (there)
#pragma unroll 4
        for (int64_t p = 0; p < x.parts; ++p) add(sum, sums + p * x.source_strides.head + e, columns - e);
      alignas(16) T rounded[S::piece];
#pragma unroll
      for (int j = 0; j < S::piece; ++j) round_to(sum[j] * factor, rounded[j]);
      write_piece(results + e, rounded, columns - e, wide);
    }
  }

 private:
  TW_GPU void add(float (&sum)[S::piece], const float *from, int left) const {
#pragma unroll
    for (int q = 0; q < S::piece / 4; ++q) {
      alignas(16) float four[4];
      read_piece(four, from + q * 4, left - q * 4, wide);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[q * 4 + j] += four[j];
    }
  }
};

// One result's blocks: a tile of rows of a head and a sequence each.
template <class Config> TW_GPU void convert_tile(const tw_attention_backward_sums &sums, const void *starts,
                                                 const void *lengths, int64_t batch, int64_t heads, int64_t room,
                                                 int64_t total, int columns, float factor, bool wide, int64_t number,
                                                 int tiles, int share, int shares) {
  using S = BackwardRows<Config>;
  const int64_t z = number / tiles, tile = number - z * tiles, sequence = z / heads, head = z - sequence * heads;
  const int64_t first = starts ? table_entry(starts, sequence) : 0;
  const int64_t rows = lengths  ? table_entry(lengths, sequence)
                       : starts ? table_entry(starts, sequence + 1) - first
                                : room;
  const RowConverter<Config> converter{sums, starts, sequence, head, columns, factor, wide};
  const int64_t prepared = prepared_first(starts, sequence), end = starts ? rows : room;
  const int line = int(threadIdx.x) / S::lanes;
#pragma unroll 4
  for (int i = line; i < int(prepared_rows) / shares; i += S::rows_at_once) {
    const int64_t row = tile * prepared_rows + share * (int(prepared_rows) / shares) + i;
    if (row < end) converter.row(prepared + row, first + row, row < rows);
  }
  if (!starts || tile != 0 || share != 0) return;
  const Unused unused = unused_rows(starts, sequence, batch, rows, room, total);
  for (int part = 0; part < 2; ++part) {
    const Span span = part ? unused.behind : unused.before;
    for (int64_t row = span.begin + line; row < span.end; row += S::rows_at_once) converter.row(0, row, false);
  }
}

template <class Config> TW_GPU void backward_convert(const BackwardConvertArgs &c) {
  const tw_attention_backward_convert_args &x = c.x;
  const int share = int(blockIdx.x) % c.shares;
  int64_t number = int64_t(blockIdx.x) / c.shares;
  if (number < c.dq_blocks) {
    convert_tile<Config>(x.dq, x.starts_q, x.lengths_q, x.batch, x.heads_q, x.rows, x.total_rows, int(x.head_qk),
                         float(x.scale), c.wide, number, c.row_tiles, share, c.shares);
    return;
  }
  number -= c.dq_blocks;
  const bool values = number >= c.dkv_blocks;
  convert_tile<Config>(values ? x.dv : x.dk, x.starts_k, x.lengths_k, x.batch, x.heads_kv, x.keys, x.total_keys,
                       int(values ? x.head_v : x.head_qk), values ? 1.0f : float(x.scale), c.wide,
                       values ? number - c.dkv_blocks : number, c.key_tiles, share, c.shares);
}

}  // namespace tw
#endif
