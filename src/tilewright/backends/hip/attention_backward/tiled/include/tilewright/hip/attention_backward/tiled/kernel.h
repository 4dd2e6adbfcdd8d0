// Attention's gradients by matrix instructions on any AMD GPU that has them: MFMA and WMMA, any stride, size and feature.
//
// Two passes, so that every result is added up by one wave in one order: blocks of rows traverse tiles of keys for dq, blocks of
// keys traverse tiles of rows for dk and dv.  A wave has 16 lines of its own: its scores and what dout gives them come as the
// other lines times its own, so that a lane has them of one line, and they are, as they lie in its registers, an operand of
// the accumulators.  What both passes do to an entry is what the loops do to it.  The gradients of a bias and of slopes come from
// the pass of rows, to memory that was cleared: where entries fall together they are added in any order.
//
// Where LDS has no room for the heads of both sides (`staged`), the operands of one product at a time pass through it: columns
// of both sides for scores, the same for their gradients, then what either is multiplied by.
#pragma once
#include <tilewright/hip/attention_backward/kernel.h>
#include <tilewright/gpu/attention_backward_added.h>
#include <tilewright/gpu/attention_backward_entries.h>
#include <tilewright/hip/head_fetch.h>
#include <tilewright/hip/score_operand.h>

namespace tw::hip {

struct BackwardTiledArgs {
  BackwardCall call;
  int tiles;  // of lines of the longest sequence, at least one
};

#if defined(__HIP_DEVICE_COMPILE__)

// of_keys: dk and dv of keys, else dq of rows.  First: heads of head_qk; second: of head_v.
template <class Config, bool of_keys> struct BackwardTiled {
  using T = typename Config::T;
  using Scores = Matrix<T, T, Config::head_qk>;
  using Gradients = Matrix<T, T, Config::head_v>;
  using Accumulators = typename Scores::Accumulators;
  static constexpr int tile_m = Config::tile_m, tile_n = Config::tile_n, threads = Config::threads;
  // Waves that share lines have columns of the accumulators of their own, and each the scores of all.
  static constexpr int shares = Config::column_waves;
  static_assert(tile_m * Scores::wave * shares == 16 * threads, "waves of another size");
  using Operand = ScoreOperand<Scores, T, tile_n>;
  using Lines = HeadLines<T, Config::head_qk>;
  using LinesV = HeadLines<T, Config::head_v>;
  using Transposed = HeadLines<T, tile_n>;
  static constexpr int share_of(int head) { return (head / 16 + shares - 1) / shares; }
  static constexpr int blocks = tile_n / 16, columns = share_of(Config::head_qk), columns_v = share_of(Config::head_v);
  static constexpr bool staged = Config::staged;
  static_assert(staged || (columns * 16 * shares == Config::head_qk && columns_v * 16 * shares == Config::head_v),
                "waves share columns evenly");
  // Staged: columns of a head that are in LDS at a time.
  static constexpr int part_of(int head) { return head / ((head + most_staged - 1) / most_staged); }
  static constexpr int most_staged = 256;
  static constexpr int line_bytes = (Lines::row + LinesV::row) * int(sizeof(T)),
                       transposed_bytes = Transposed::row * int(sizeof(T));
  static constexpr int larger_of(int a, int b) { return a > b ? a : b; }
  static constexpr int staged_bytes(int head) {
    return larger_of((tile_m + tile_n) * (part_of(head) * int(sizeof(T)) + 16), head * transposed_bytes);
  }
  static constexpr int lds_bytes =
      staged ? larger_of(staged_bytes(Config::head_qk), staged_bytes(Config::head_v))
             : (tile_m + tile_n) * line_bytes + (Config::head_qk + Config::head_v) * transposed_bytes;
  static_assert(lds_bytes == Config::lds_bytes, "LDS is counted otherwise in Python");

  const BackwardCall &call;
  const tw_attention_backward_args &a;
  T *const own, *const own_v, *const other, *const other_v, *const transposed, *const transposed_v;
  BackwardHead h;
  AttentionSequence s;
  int first;  // of the block's lines
  Dropout dropout{};
  float slopes = 0;  // a lane's part of the gradient of the head's slope
  static constexpr bool adds_bias = Config::dbias && !of_keys, adds_slopes = Config::dalibi && !of_keys;
  Accumulators sum[columns] = {}, sum_v[of_keys ? columns_v : 1] = {};

  TW_GPU BackwardTiled(const BackwardTiledArgs &args, char *lds)
      : call(args.call),
        a(args.call.x),
        own(reinterpret_cast<T *>(lds)),
        own_v(own + tile_m * Lines::row),
        other(own_v + tile_m * LinesV::row),
        other_v(other + tile_n * Lines::row),
        transposed(staged ? own : other_v + tile_n * LinesV::row),
        transposed_v(staged ? own : transposed + Config::head_qk * Transposed::row) {
    unsigned at = blockIdx.x;
    const unsigned tiles = unsigned(args.tiles), heads = unsigned(of_keys ? a.heads_kv : a.heads_q);
    first = int(at % tiles) * tile_m, at /= tiles;
    const int head = int(at % heads) * (of_keys ? call.group : 1), sequence = int(at / heads);
    s = sequence_in_rows(a, sequence);
    h = {sequence,
         head,
         int(s.first_row),
         int(s.rows),
         int(s.first_key),
         int(s.keys),
         a.bottom_right ? int(s.keys - s.rows) : 0};
    if constexpr (Config::dropout) dropout = dropout_of(a);
  }
  static TW_GPU int lane() { return int(threadIdx.x) % Scores::wave; }
  static TW_GPU int wave_line() { return int(threadIdx.x) / (Scores::wave * shares) * 16; }
  // Of a wave's columns, `count` of them: the first.
  static TW_GPU int first_column(int count) {
    return shares > 1 ? int(threadIdx.x) / Scores::wave % shares * count : 0;
  }
  // Of waves that have the same entries, one gives the gradients of what is added to them.
  static TW_GPU bool is_first_share() { return shares == 1 || int(threadIdx.x) / Scores::wave % shares == 0; }
  TW_GPU int count() const { return of_keys ? h.keys : h.rows; }

  static TW_GPU int unknown_zero() {
    int none = 0;
    asm volatile("" : "+v"(none));
    return none;
  }
  // Elements of a row (of q or dout) or key (of k or v) of the tile that begins at `from`; beyond the last is the last.
  struct Place {
    const void *base;
    const tw_attention_strides &strides;
    int64_t sequence, line, from, last;
    int64_t head;
    int none;  // 0, of which the compiler does not know: held from tile to tile, places would take all registers
    TW_GPU const T *operator()(int i, int d) const {
      const int64_t at = line + (from + i < last ? from + i : last);
      return static_cast<const T *>(base) + sequence * strides.batch + at * strides.row + head * strides.head + d;
    }
  };
  TW_GPU Place row_at(const void *base, const tw_attention_strides &strides, int from) const {
    return {base, strides, a.starts_q ? 0 : h.sequence, h.first_row, from, h.rows - 1, h.head, unknown_zero()};
  }
  TW_GPU Place key_at(const void *base, const tw_attention_strides &strides, int from) const {
    return {base, strides,    a.starts_k ? 0 : h.sequence, h.first_key,
            from, h.keys - 1, h.head / call.group,         unknown_zero()};
  }
  // The operands of scores and of their gradients, of either side.
  TW_GPU Place scored(bool keys, int from) const {
    return keys ? key_at(a.k, a.k_strides, from) : row_at(a.q, a.q_strides, from);
  }
  TW_GPU Place valued(bool keys, int from) const {
    return keys ? key_at(a.v, a.v_strides, from) : row_at(a.dout, a.dout_strides, from);
  }
  template <class Fetch> static TW_GPU void bring(T *to, const Place &at, int head) {
    Fetch fetch;
    fetch.me += at.none;
    fetch.load(at, head);
    fetch.put(to, at, head);
  }

  // The other lines that any of the block's own see, in whole tiles; and of keys, those that are always seen before them.
  struct Traversal {
    int begin, end, sinks;
  };
  TW_GPU Traversal traversal() const {
    const int last = (first + tile_m < count() ? first + tile_m : count()) - 1;
    if constexpr (!of_keys) {
      const Span early = window_of(a, s, first), late = window_of(a, s, last);
      const int begin = int(early.begin) / tile_n * tile_n, end = int(late.end);
      const int sinks = Config::mask == AttentionMask::generic ? int(a.sink_keys < end ? a.sink_keys : end) : 0;
      return {begin, end, sinks < begin ? sinks : begin};
    } else {
      int begin = 0, end = h.rows;
      if constexpr (Config::mask != AttentionMask::none) {
        if (call.right < backward_unbounded && first - h.shift - call.right > 0) begin = first - h.shift - call.right;
        const bool always = Config::mask == AttentionMask::generic && first < int(a.sink_keys);
        if (call.left < backward_unbounded && !always && last - h.shift + call.left + 1 < end)
          end = last - h.shift + call.left + 1;
      }
      return {begin / tile_n * tile_n, end, 0};
    }
  }

  // The compiler may put matrix instructions behind all loads, barriers of the scheduler or not: accumulators that it must have here
  // keep fragments of the next iterations out of registers.
  static TW_GPU void pace(Accumulators (&to)[blocks], int step) {
    if (shares == 1 || step % 2 == 0) return;
#pragma unroll
    for (int j = 0; j < blocks; ++j) asm volatile("" : "+v"(to[j]));
  }
  template <class Unit, class LinesOf>
  static TW_GPU void product(Accumulators (&to)[blocks], const T *others, const T *owns) {
    owns += unknown_zero();  // own lines are read again for every tile, too
#pragma unroll
    for (int k = 0; k < LinesOf::row - LinesOf::piece; k += Unit::k) {
      const int at = k + Unit::first(lane());
      const auto mine = fragment<typename Unit::Lines>(owns + LinesOf::at(wave_line() + Unit::line(lane()), at));
#pragma unroll
      for (int j = 0; j < blocks; ++j) {
        const auto some = fragment<typename Unit::Lines>(others + LinesOf::at(j * 16 + Unit::line(lane()), at));
        Unit::multiply(some, mine, to[j]);
      }
      __builtin_amdgcn_sched_barrier(0);  // one iteration after the other: registers are few
      pace(to, k / Unit::k);
    }
  }
  // Columns behind the last, of waves whose share is not whole, are never stored.
  template <int head, int count>
  static TW_GPU void add(Accumulators (&to)[count], const T *lines, const Accumulators (&scores)[blocks]) {
#pragma unroll
    for (int step = 0; step < Operand::steps; ++step) {
      const auto mine = Operand::of(scores, step);
#pragma unroll
      for (int c = 0; c < count; ++c) {
        int column = first_column(count) + c;
        if constexpr (count * 16 * shares != head) column = column < head / 16 ? column : head / 16 - 1;
        const auto some = fragment<typename Operand::Fragment>(
            lines + Transposed::at(column * 16 + Scores::line(lane()), Operand::first(step)));
        Operand::multiply(some, mine, to[c]);
        if (c % 4 == 3) __builtin_amdgcn_sched_barrier(0);
      }
    }
  }

  // `Dropout::keeps`, whose words are chosen among, not indexed: an index that is not known would keep them in memory.
  TW_GPU bool kept(uint32_t row, uint32_t column) const {
    const Philox drawn = dropout.draw(uint32_t(h.sequence * int(a.heads_q) + h.head), row, column);
    const uint32_t low = column & 8 ? drawn.word[1] : drawn.word[0], high = column & 8 ? drawn.word[3] : drawn.word[2];
    return ((column & 16 ? high : low) >> (column % 2 * 16) & 0xffffu) >= dropout.threshold;
  }
  // Scores become gradients of scores, gradients of weights become weights.
  TW_GPU void entries(Accumulators (&scores)[blocks], Accumulators (&gradients)[blocks], int from) {
    const BackwardEntries<Config> each(call, h, dropout);
    const int64_t prepared = prepared_at(a, h.sequence, h.head);
    const float *const lse = static_cast<const float *>(a.lse_log2) + prepared;
    const float *const delta = static_cast<const float *>(a.delta) + prepared;
    const int mine = first + wave_line() + lane() % 16;
#pragma unroll
    for (int j = 0; j < blocks; ++j) {
#pragma unroll
      for (int i = 0; i < Scores::accum; ++i) {
        const int its = from + j * 16 + Scores::row(lane(), i), row = of_keys ? its : mine, key = of_keys ? mine : its;
        bool keeps = true;
        if constexpr (Config::dropout) keeps = kept(uint32_t(row), uint32_t(key));
        const BackwardEntry one = each.at(scores[j][i], gradients[j][i], lse[row], delta[row], row, key, keeps);
        scores[j][i] = one.gradient, gradients[j][i] = one.weight;
        if constexpr (adds_bias)
          if (is_first_share()) each.store_bias(row, key, one.added);
        if constexpr (adds_slopes) slopes -= one.added * one.distance;
        __builtin_amdgcn_sched_barrier(0);
      }
    }
  }
  // A product of own lines and others, a part of whose columns is in LDS at a time.
  template <class Unit, int head>
  TW_GPU void staged_product(Accumulators (&to)[blocks], const Place &others, const Place &owns, int elements) const {
    constexpr int deep = part_of(head);
    using Part = HeadLines<T, deep>;
    T *const at_others = own + tile_m * Part::row;
    const auto behind = [](Place place, int d) {
      place.base = static_cast<const T *>(place.base) + d;
      return place;
    };
#pragma clang loop unroll(disable)
    for (int d = 0; d < head; d += deep) {
      // Not over a part: what a head has behind its last whole access is in its last part, and elsewhere it would be written
      // over the next line.
      const int left = elements - d < 0 ? 0 : elements - d < deep ? elements - d : deep;
      __syncthreads();  // what was there is read
      bring<RowFetch<T, T, tile_m, deep, threads>>(own, behind(owns, d), left);
      bring<RowFetch<T, T, tile_n, deep, threads>>(at_others, behind(others, d), left);
      __syncthreads();
      product<Unit, Part>(to, at_others, own);
    }
  }
  TW_GPU void sync_staged(int from) {
    Accumulators scores[blocks] = {}, gradients[blocks] = {};
    staged_product<Scores, Config::head_qk>(scores, scored(!of_keys, from), scored(of_keys, first), int(a.head_qk));
    staged_product<Gradients, Config::head_v>(gradients, valued(!of_keys, from), valued(of_keys, first), int(a.head_v));
    entries(scores, gradients, from);
    __syncthreads();
    bring<TransposedFetch<T, T, tile_n, Config::head_qk, threads, typename Operand::Order>>(
        transposed, scored(!of_keys, from), int(a.head_qk));
    __syncthreads();
    add<Config::head_qk>(sum, transposed, scores);
    if constexpr (of_keys) {
      __syncthreads();
      bring<TransposedFetch<T, T, tile_n, Config::head_v, threads, typename Operand::Order>>(
          transposed_v, valued(!of_keys, from), int(a.head_v));
      __syncthreads();
      add<Config::head_v>(sum_v, transposed_v, gradients);
    }
  }
  TW_GPU void sync(int from) {
    if constexpr (staged) return sync_staged(from);
    __syncthreads();  // the tile before is done
    bring<RowFetch<T, T, tile_n, Config::head_qk, threads>>(other, scored(!of_keys, from), int(a.head_qk));
    bring<RowFetch<T, T, tile_n, Config::head_v, threads>>(other_v, valued(!of_keys, from), int(a.head_v));
    bring<TransposedFetch<T, T, tile_n, Config::head_qk, threads, typename Operand::Order>>(
        transposed, scored(!of_keys, from), int(a.head_qk));
    if constexpr (of_keys)
      bring<TransposedFetch<T, T, tile_n, Config::head_v, threads, typename Operand::Order>>(
          transposed_v, valued(!of_keys, from), int(a.head_v));
    __syncthreads();
    Accumulators scores[blocks] = {}, gradients[blocks] = {};
    product<Scores, Lines>(scores, other, own);
    product<Gradients, LinesV>(gradients, other_v, own_v);
    entries(scores, gradients, from);
    add<Config::head_qk>(sum, transposed, scores);
    if constexpr (of_keys) add<Config::head_v>(sum_v, transposed_v, gradients);
  }

  TW_GPU void run() {
    const int head = of_keys ? h.head / call.group : h.head;
    if (first == 0) clear(head);
    if (first >= count()) return;
    if constexpr (!staged) {
      bring<RowFetch<T, T, tile_m, Config::head_qk, threads>>(own, scored(of_keys, first), int(a.head_qk));
      bring<RowFetch<T, T, tile_m, Config::head_v, threads>>(own_v, valued(of_keys, first), int(a.head_v));
    }
    const Traversal w = traversal();
#pragma clang loop unroll(disable)
    for (int i = 0; i < (of_keys ? call.group : 1); ++i, ++h.head) {
#pragma clang loop unroll(disable)
      for (int at = 0; at < w.sinks; at += tile_n) sync(at);
#pragma clang loop unroll(disable)
      for (int at = w.begin; at < w.end; at += tile_n) sync(at);
    }
    if constexpr (adds_slopes) store_slope(head);
    if (first + wave_line() + lane() % 16 >= count()) return;
    if constexpr (of_keys) {
      store_tile(sum, call.scale, a.dk, a.dk_strides, head, int(a.head_qk));
      store_tile(sum_v, 1.0f, a.dv, a.dv_strides, head, int(a.head_v));
    } else {
      store_tile(sum, call.scale, a.dq, a.dq_strides, head, int(a.head_qk));
    }
  }

  // -- results ---------------------------------------------------------------------------------------------------------

  TW_GPU T *line_of(void *base, const tw_attention_strides &strides, int64_t line, int head) const {
    const bool packed = of_keys ? a.starts_k != nullptr : a.starts_q != nullptr;
    return static_cast<T *>(base) + (packed ? 0 : h.sequence * strides.batch) + line * strides.row +
           head * strides.head;
  }
  template <int count> TW_GPU void store_tile(const Accumulators (&accum)[count], float factor, void *base,
                                              const tw_attention_strides &strides, int head, int elements) const {
    const int64_t line = (of_keys ? h.first_key : h.first_row) + first + wave_line() + lane() % 16;
    T *const to = line_of(base, strides, line, head);
#pragma unroll
    for (int c = 0; c < count; ++c)
#pragma unroll
      for (int i = 0; i < Scores::accum; ++i) {
        const int d = (first_column(count) + c) * 16 + Scores::row(lane(), i);
        if (d < elements) round_to(accum[c][i] * factor, to[d]);
      }
  }
  TW_GPU void store_slope(int head) {
#pragma unroll
    for (int bits = 1; bits < Scores::wave; bits *= 2) slopes += __shfl_xor(slopes, bits, Scores::wave);
    if (lane() == 0 && is_first_share())
      atomicAdd(static_cast<float *>(a.dalibi) + h.sequence * a.dalibi_batch + head * a.dalibi_head, slopes);
  }
  // Lines that no sequence has, or that lie behind this one's last, are zero.
  TW_GPU void clear(int head) const {
    const Unused unused = of_keys ? unused_rows(a.starts_k, h.sequence, a.batch, h.keys, a.keys, a.total_keys)
                                  : unused_rows(a.starts_q, h.sequence, a.batch, h.rows, a.rows, a.total_rows);
    if constexpr (of_keys) {
      clear(unused, a.dk, a.dk_strides, head, int(a.head_qk));
      clear(unused, a.dv, a.dv_strides, head, int(a.head_v));
    } else {
      clear(unused, a.dq, a.dq_strides, head, int(a.head_qk));
    }
  }
  TW_GPU void clear(const Unused &unused, void *base, const tw_attention_strides &strides, int head,
                    int elements) const {
    for (int part = 0; part < 2; ++part) {
      const Span span = part ? unused.behind : unused.before;
      for (int64_t line = span.begin; line < span.end; ++line)
        for (int d = threadIdx.x; d < elements; d += threads) line_of(base, strides, line, head)[d] = T{};
    }
  }
};

#endif

template <class Config, bool of_keys> __global__ void __launch_bounds__(Config::threads)
    attention_backward_tiled(const BackwardTiledArgs x) {
#if defined(__HIP_DEVICE_COMPILE__)
  __shared__ __attribute__((aligned(16))) char lds[Config::lds_bytes];
  BackwardTiled<Config, of_keys>(x, lds).run();
#endif
}

constexpr int backward_clear_threads = 256, backward_clear_blocks = 1024;

template <class Config> __global__ void __launch_bounds__(backward_clear_threads)
    attention_backward_clear(const BackwardAddedArgs x) {
#if defined(__HIP_DEVICE_COMPILE__)
  const int64_t step = int64_t(gridDim.x) * backward_clear_threads;
  const int64_t begin = int64_t(blockIdx.x) * backward_clear_threads + threadIdx.x;
  const int64_t (&n)[4] = x.bias_sizes, (&s)[4] = x.bias_strides, (&slopes)[2] = x.alibi_sizes;
  for (int64_t i = begin; i < n[0] * n[1] * n[2] * n[3]; i += step) {
    const int64_t z = i / n[3] / n[2];
    x.dbias[z / n[1] * s[0] + z % n[1] * s[1] + i / n[3] % n[2] * s[2] + i % n[3] * s[3]] = 0;
  }
  for (int64_t i = begin; i < slopes[0] * slopes[1]; i += step)
    x.dalibi[i / slopes[1] * x.alibi_strides[0] + i % slopes[1] * x.alibi_strides[1]] = 0;
#endif
}

template <class Config> struct AttentionBackwardTiled {
  using Args = tw_attention_backward_args;
  static int64_t workspace(const Args &) { return 0; }
  static int run(const Args &x, void *, void *stream) {
    if constexpr (Config::dbias || Config::dalibi)
      if (int status = clear(x, stream)) return status;
    if (int status = launch<true>(x, x.keys, x.heads_kv, stream)) return status;
    return launch<false>(x, x.rows, x.heads_q, stream);
  }

 private:
  static int clear(const Args &x, void *stream) {
    const BackwardAddedArgs added = added_of<Config>(x);
    const int64_t blocks = (added.entries() + backward_clear_threads - 1) / backward_clear_threads;
    return backward_launch(&attention_backward_clear<Config>,
                           blocks < backward_clear_blocks ? blocks : backward_clear_blocks,
                           unsigned(backward_clear_threads), stream, added);
  }
  template <bool of_keys> static int launch(const Args &x, int64_t lines, int64_t heads, void *stream) {
    const int64_t tiles = (lines + Config::tile_m - 1) / Config::tile_m;
    const BackwardTiledArgs t{backward_call<Config>(x), int(tiles > 1 ? tiles : 1)};
    return backward_launch(&attention_backward_tiled<Config, of_keys>, t.tiles * heads * x.batch,
                           unsigned(Config::threads), stream, t);
  }
};

}  // namespace tw::hip
