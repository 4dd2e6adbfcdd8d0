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
  // Lanes that share a row, of a head as long as the longest, and how often they read to have all of it.
  static constexpr int most = Config::head_v > Config::head_qk ? Config::head_v : Config::head_qk;
  static constexpr int lanes = lanes_of((most + piece - 1) / piece), rows_at_once = threads / lanes;
  static constexpr int reads = (most + lanes * piece - 1) / (lanes * piece);
  // Rows whose loads are in flight together; element by element it is slow anyhow.
  static constexpr int wide_batch = reads < 4 ? 4 / reads : 1;
  // The same of fp32 accumulators, four of which are 16 bytes.
  static constexpr int four = 4, accum_lanes = lanes_of((most + four - 1) / four);
  static constexpr int accum_rows_at_once = threads / accum_lanes;
  static constexpr int accum_reads = (most + accum_lanes * four - 1) / (accum_lanes * four);
  static constexpr int accum_batch = accum_reads < 4 ? 4 / accum_reads : 1;
  // Blocks that share a tile of prepared rows.  Where they are many, each thread has a batch of rows, whose loads take as
  // long as those of one; where they would leave multiprocessors without a block, a row at least.
  static int shares_of(int64_t tiles, int at_once, int batch) {
    constexpr int64_t few = 256, many = 2048;
    int shares = 1;
    while (tiles * shares < many && prepared_rows / (2 * shares) >= at_once * (tiles * shares < few ? 1 : batch))
      shares *= 2;
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
  d.shares =
      BackwardRows<Config>::shares_of(d.blocks(), BackwardRows<Config>::rows_at_once, BackwardRows<Config>::wide_batch);
  d.wide = backward_whole(x.out, x.out_strides, x.head_v, size) && backward_whole(x.dout, x.dout_strides, 0, size);
  return d;
}
template <class Config> BackwardConvertArgs backward_convert_args(const tw_attention_backward_convert_args &x) {
  // Packed rows that no sequence has are the first tile's, of a sequence without rows too.
  const auto tiles = [](int64_t rows, const void *starts) {
    const int needed = int(prepared_end(rows) / prepared_rows);
    return starts && needed < 1 ? 1 : needed;
  };
  const auto whole = [](const tw_attention_backward_sums &accum, int64_t head) {
    return !accum.to || (backward_whole(accum.source, accum.source_strides, head, 4) &&
                         backward_whole(accum.to, accum.to_strides, head, sizeof(typename Config::T)));
  };
  BackwardConvertArgs c{x, tiles(x.rows, x.starts_q), tiles(x.keys, x.starts_k), 0, 0, 0, 1};
  c.wide = whole(x.dq, x.head_qk) && whole(x.dk, x.head_qk) && whole(x.dv, x.head_v);
  c.dq_blocks = int(x.dq.to ? c.row_tiles * x.heads_q * x.batch : 0);
  c.dkv_blocks = int(x.dk.to ? c.key_tiles * x.heads_kv * x.batch : 0);
  c.shares = BackwardRows<Config>::shares_of(c.tiles(), BackwardRows<Config>::accum_rows_at_once,
                                             BackwardRows<Config>::accum_batch);
  return c;
}

}  // namespace tw

#ifdef TW_ON_GPU

namespace tw {

// Some elements of a row, `left` of them are there (zeros stand for the others).  Wide: they lie at a multiple of their
// bytes, and all or none are there, so that loads of several rows need no branches between them.
template <bool Wide, class T, int Count> TW_GPU void read_piece(T (&to)[Count], const T *from, int left) {
  static_assert(Count * sizeof(T) == 16, "whole 16 bytes");
  if constexpr (Wide) {
    uint4 words = {0, 0, 0, 0};
    if (left > 0) words = *reinterpret_cast<const uint4 *>(from);
    *reinterpret_cast<uint4 *>(to) = words;
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i)
      if (i < left) to[i] = from[i];
      else round_to(0.0f, to[i]);
  }
}
template <int Bytes> struct words_of {
  using type = uint4;
};
template <> struct words_of<8> {
  using type = uint2;
};
template <bool Wide, class T, int Count> TW_GPU void write_piece(T *to, const T (&from)[Count], int left) {
  using Words = typename words_of<Count *int(sizeof(T))>::type;
  static_assert(Count * sizeof(T) == sizeof(Words), "8 or 16 bytes");
  if constexpr (Wide) {
    if (left > 0) *reinterpret_cast<Words *>(to) = *reinterpret_cast<const Words *>(from);
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i)
      if (i < left) to[i] = from[i];
  }
}

// A block's part of what `grad` adds to.
template <class Config> TW_GPU void backward_dot_clear(const tw_attention_backward_dot_args &x) {
  constexpr int threads = BackwardRows<Config>::threads;
  uint4 *to = static_cast<uint4 *>(x.cleared);
  for (int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x; i < x.cleared_bytes / 16;
       i += int64_t(gridDim.x) * threads)
    to[i] = uint4{0, 0, 0, 0};
}

// What `grad` needs to know of a row: a block for so many rows of a head as are prepared together.
template <class Config, bool Wide> TW_GPU void backward_dot_rows(const BackwardDotArgs &d) {
  using S = BackwardRows<Config>;
  using T = typename Config::T;
  constexpr int batch = Wide ? S::wide_batch : 1;
  const tw_attention_backward_dot_args &x = d.x;
  // Numbers of blocks are such of 32 bits: division of 64 takes a while.
  const unsigned number = blockIdx.x / unsigned(d.shares), share = blockIdx.x - number * unsigned(d.shares);
  const unsigned z = number / unsigned(d.tiles), heads = unsigned(x.heads_q);
  const int rows = int(prepared_rows) / d.shares;
  const int64_t tile = number - z * unsigned(d.tiles), sequence = z / heads, head = z - unsigned(sequence) * heads;
  AttentionSequence s{sequence, 0, 0, 0, 0};
  rows_of(x, s);
  if (tile * prepared_rows >= prepared_end(s.rows)) return;
  const int64_t prepared = prepared_at(x, sequence, head), first = tile * prepared_rows + int(share) * rows;
  const T *out = static_cast<const T *>(x.out) + sequence * x.out_strides.batch + head * x.out_strides.head +
                 (s.first_row + first) * x.out_strides.row;
  const T *dout = static_cast<const T *>(x.dout) + sequence * x.dout_strides.batch + head * x.dout_strides.head +
                  (s.first_row + first) * x.dout_strides.row;
  const float *natural = static_cast<const float *>(x.lse) + sequence * x.lse_batch + head * x.lse_head + s.first_row;
  const float *change = nullptr;
  if constexpr (Config::dlse)
    change = static_cast<const float *>(x.dlse) + sequence * x.dlse_batch + head * x.dlse_head + s.first_row;
  const int lane = int(threadIdx.x) % S::lanes, columns = int(x.head_v);
#pragma unroll 1
  for (int line = int(threadIdx.x) / S::lanes; line < rows; line += S::rows_at_once * batch) {
    alignas(16) T a[batch][S::reads][S::piece], b[batch][S::reads][S::piece];
    float lse[batch], dlse[batch];  // on their way with the rows
#pragma unroll
    for (int r = 0; r < batch; ++r) {
      const int i = line + r * S::rows_at_once;
      const bool there = i < rows && first + i < s.rows;
      lse[r] = there ? natural[first + i] : -INFINITY;
      if constexpr (Config::dlse) dlse[r] = there ? change[first + i] : 0.0f;
#pragma unroll
      for (int n = 0; n < S::reads; ++n) {
        const int e = (lane + n * S::lanes) * S::piece, left = there ? columns - e : 0;
        read_piece<Wide>(a[r][n], out + i * x.out_strides.row + e, left);
        read_piece<Wide>(b[r][n], dout + i * x.dout_strides.row + e, left);
      }
    }
#pragma unroll
    for (int r = 0; r < batch; ++r) {
      const int i = line + r * S::rows_at_once;
      const int64_t row = first + i;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < S::reads; ++n)
#pragma unroll
        for (int j = 0; j < S::piece; ++j) sum += to_float(a[r][n][j]) * to_float(b[r][n][j]);
#pragma unroll
      for (int bits = 1; bits < S::lanes; bits *= 2) sum += lane_xor(sum, bits);
      if (lane || i >= rows) continue;
      if constexpr (Config::dlse) sum -= dlse[r];
      const bool blind = lse[r] == -INFINITY;  // a row without keys, or none: NaN in its dlse goes nowhere
      static_cast<float *>(x.delta)[prepared + row] = blind ? 0.0f : sum;
      static_cast<float *>(x.lse_log2)[prepared + row] = blind ? INFINITY : lse[r] * 1.44269504f;
    }
  }
}
template <class Config> TW_GPU void backward_dot(const BackwardDotArgs &d) {
  backward_dot_clear<Config>(d.x);
  if (d.wide) backward_dot_rows<Config, true>(d);
  else backward_dot_rows<Config, false>(d);
}
// The gradient of a head's sink logit: a block a head, in one order.  `sums` is shared memory, a float for 32 threads.
template <class Config> TW_GPU void backward_dsink(const BackwardDotArgs &d, float *accum) {
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
  if (threadIdx.x % 32 == 0) accum[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  for (int i = 1; i < threads / 32; ++i) sum += accum[i];
  static_cast<float *>(x.dsink)[head] = -sum;
}

// Rows of one result of a head: accumulators added up over splits, or zeros where there is nothing to add up.
template <class Config, bool Wide> struct RowConverter {
  using S = BackwardRows<Config>;
  using T = typename Config::T;
  static constexpr int batch = Wide ? S::accum_batch : 1;
  const float *accum;
  T *results;
  int64_t accum_stride, part_stride, results_stride;
  int parts, columns;
  float factor;

  TW_GPU RowConverter(const tw_attention_backward_sums &x, bool packed, int64_t sequence, int64_t head, int columns,
                      float factor)
      : accum(static_cast<const float *>(x.source) + (packed ? 0 : sequence * x.source_strides.batch) +
              head * x.parts * x.source_strides.head),
        results(static_cast<T *>(x.to) + (packed ? 0 : sequence * x.to_strides.batch) + head * x.to_strides.head),
        accum_stride(x.source_strides.row),
        part_stride(x.source_strides.head),
        results_stride(x.to_strides.row),
        parts(int(x.parts)),
        columns(columns),
        factor(factor) {}

  // `count` rows, a batch of a thread's at a time; of the first `there` accumulators are read.
  TW_GPU void rows(int64_t from, int64_t to, int64_t count, int64_t there) const {
    const int line = int(threadIdx.x) / S::accum_lanes, first = int(threadIdx.x) % S::accum_lanes * S::four;
    const float *source = accum + (from + line) * accum_stride + first;
    T *target = results + (to + line) * results_stride + first;
    const int64_t source_step = S::accum_rows_at_once * accum_stride,
                  target_step = S::accum_rows_at_once * results_stride;
#pragma unroll 1
    for (int left = int(count) - line, known = int(there < count ? there : count) - line; left > 0;
         left -= S::accum_rows_at_once * batch, known -= S::accum_rows_at_once * batch) {
      some(source, source_step, target, target_step, left, known, columns - first);
      source += batch * source_step, target += batch * target_step;
    }
  }

 private:
  using Batch = float[batch][S::accum_reads][S::four];

  TW_GPU void some(const float *source, int64_t source_step, T *target, int64_t target_step, int left, int known,
                   int columns_left) const {
    alignas(16) Batch sum;
    read(sum, source, source_step, known, columns_left);
#pragma unroll 1
    for (int p = 1; p < parts; ++p) {
      alignas(16) Batch more;
      read(more, source + p * part_stride, source_step, known, columns_left);
#pragma unroll
      for (int r = 0; r < batch; ++r)
#pragma unroll
        for (int n = 0; n < S::accum_reads; ++n)
#pragma unroll
          for (int j = 0; j < S::four; ++j) sum[r][n][j] += more[r][n][j];
    }
#pragma unroll
    for (int r = 0; r < batch; ++r)
#pragma unroll
      for (int n = 0; n < S::accum_reads; ++n) {
        constexpr int apart = S::accum_lanes * S::four;
        alignas(16) T rounded[S::four];
#pragma unroll
        for (int j = 0; j < S::four; ++j) round_to(sum[r][n][j] * factor, rounded[j]);
        write_piece<Wide>(target + r * target_step + n * apart, rounded,
                          r * S::accum_rows_at_once < left ? columns_left - n * apart : 0);
      }
  }
  static TW_GPU void read(Batch &into, const float *source, int64_t step, int known, int columns_left) {
    constexpr int apart = S::accum_lanes * S::four;
#pragma unroll
    for (int r = 0; r < batch; ++r)
#pragma unroll
      for (int n = 0; n < S::accum_reads; ++n)
        read_piece<Wide>(into[r][n], source + r * step + n * apart,
                         r * S::accum_rows_at_once < known ? columns_left - n * apart : 0);
  }
};

// One result's blocks: a tile of rows of a head and a sequence each.
struct ConvertTile {
  const void *starts, *lengths;
  int64_t batch, heads, room, total;
  unsigned number;
  int columns, tiles, share, shares;
  float factor;
};
template <class Config, bool Wide>
TW_GPU void convert_tile(const tw_attention_backward_sums &accum, const ConvertTile &t) {
  const unsigned z = t.number / unsigned(t.tiles), heads = unsigned(t.heads);
  const int64_t tile = t.number - z * unsigned(t.tiles), sequence = z / heads;
  const int64_t head = z - unsigned(sequence) * heads, first = t.starts ? table_entry(t.starts, sequence) : 0;
  const int64_t rows = t.lengths  ? table_entry(t.lengths, sequence)
                       : t.starts ? table_entry(t.starts, sequence + 1) - first
                                  : t.room;
  const RowConverter<Config, Wide> converter(accum, t.starts != nullptr, sequence, head, t.columns, t.factor);
  const int64_t end = t.starts ? rows : t.room, each = prepared_rows / t.shares;
  const int64_t row = tile * prepared_rows + t.share * each, count = end - row < each ? end - row : each;
  converter.rows(prepared_first(t.starts, sequence) + row, first + row, count, rows - row);
  if (!t.starts || tile != 0 || t.share != 0) return;
  const Unused unused = unused_rows(t.starts, sequence, t.batch, rows, t.room, t.total);
#pragma unroll 1
  for (int part = 0; part < 2; ++part) {
    const Span span = part ? unused.behind : unused.before;
    converter.rows(0, span.begin, span.end - span.begin, 0);
  }
}

template <class Config, bool Wide> TW_GPU void backward_convert_rows(const BackwardConvertArgs &c) {
  const tw_attention_backward_convert_args &x = c.x;
  const int block = int(blockIdx.x / unsigned(c.shares)), behind_dq = block - c.dq_blocks;
  const bool rows = behind_dq < 0, values = behind_dq >= c.dkv_blocks;
  ConvertTile t;
  t.starts = rows ? x.starts_q : x.starts_k, t.lengths = rows ? x.lengths_q : x.lengths_k;
  t.batch = x.batch, t.heads = rows ? x.heads_q : x.heads_kv;
  t.room = rows ? x.rows : x.keys, t.total = rows ? x.total_rows : x.total_keys;
  t.number = unsigned(rows ? block : values ? behind_dq - c.dkv_blocks : behind_dq);
  t.columns = int(values ? x.head_v : x.head_qk), t.tiles = rows ? c.row_tiles : c.key_tiles;
  t.share = int(blockIdx.x) - block * c.shares, t.shares = c.shares;
  t.factor = values ? 1.0f : float(x.scale);
  convert_tile<Config, Wide>(rows ? x.dq : values ? x.dv : x.dk, t);
}
template <class Config> TW_GPU void backward_convert(const BackwardConvertArgs &c) {
  if (c.wide) backward_convert_rows<Config, true>(c);
  else backward_convert_rows<Config, false>(c);
}

}  // namespace tw
#endif
