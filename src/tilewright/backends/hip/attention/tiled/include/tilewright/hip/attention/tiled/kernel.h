// Attention by matrix instructions on any AMD GPU that has them: MFMA and WMMA, any stride, size and feature.
//
// A block has tile_m rows of queries, 16 * row_blocks a wave; rows of the query heads that share a head of keys lie side by
// side in it, so that few rows of many heads fill it too.  It traverses tiles of tile_n keys: keys lie in LDS as they are,
// values transposed, and while waves multiply, lanes already hold what comes next.
//
// Both products are transposed: scores are keys times queries, results values times weights.  So a lane's scores are
// all of one row (lane % 16), and are, as they lie in its registers, what the second product takes of this row.
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/export.h>
#include <tilewright/hip/attention/tiled/softmax.h>
#include <tilewright/hip/attention/tiled/traversal.h>
#include <tilewright/hip/head_fetch.h>
#include <tilewright/select/attention_args.h>

namespace tw::hip {

#if defined(__HIP_DEVICE_COMPILE__)

template <class Config> struct AttentionTiled : BlockRows<Config> {
  using Base = BlockRows<Config>;
  using Base::x, Base::s, Base::head_kv, Base::rows, Base::part;
  using Q = typename Config::Q;
  using KV = typename Config::KV;
  using O = typename Config::O;
  using M = typename Config::Multiplied;
  using Tile = ScoreTile<Config>;
  using Unit = typename Tile::Unit;
  using Weights = ScoreOperand<Unit, M, Config::tile_n>;
  using Row = LaneRow<Config>;
  static constexpr int row_blocks = Config::row_blocks, tile_m = Config::tile_m, tile_n = Config::tile_n,
                       threads = Config::threads;
  // Waves that share rows have columns of the result of their own, and each the scores of all.
  static constexpr int shares = Config::column_waves;
  static constexpr int wave_rows = 16 * row_blocks, columns = Config::head_v / 16 / shares,
                       steps = Config::head_qk / Unit::k;
  static_assert(wave_rows * (threads / Unit::wave / shares) == tile_m, "waves of another size");
  static_assert(columns * 16 * shares == Config::head_v, "waves share columns evenly");
  using FetchQ = RowFetch<Q, M, tile_m, Config::head_qk, threads>;
  using FetchK = RowFetch<KV, M, tile_n, Config::head_qk, threads>;
  using FetchV = std::conditional_t<Config::pages == AttentionPages::vectorised,
                                    VectorFetch<KV, M, tile_n, Config::head_v, threads, typename Weights::Order>,
                                    TransposedFetch<KV, M, tile_n, Config::head_v, threads, typename Weights::Order>>;
  using KLines = typename FetchK::Lines;
  using VLines = typename FetchV::Lines;
  static constexpr int q_bytes = tile_m * KLines::row * int(sizeof(M)), k_bytes = tile_n * KLines::row * int(sizeof(M)),
                       v_bytes = Config::head_v * VLines::row * int(sizeof(M)), tiles_bytes = k_bytes + v_bytes;
  // Where registers are few, queries stay in LDS, and nothing is fetched ahead; else they make room for keys once lanes
  // hold them.
  static constexpr bool stays = Config::lean, ahead = !Config::lean;
  static constexpr int lds_bytes = stays ? q_bytes + tiles_bytes : q_bytes > tiles_bytes ? q_bytes : tiles_bytes;
  static_assert(lds_bytes == Config::lds_bytes, "LDS is counted otherwise in Python");

  M *const queries, *const keys, *const values;
  typename Unit::Lines q[stays ? 1 : row_blocks][stays ? 1 : steps];
  typename Unit::Accumulators o[row_blocks][columns] = {};
  Row own[row_blocks];
  SeenKeys seen;  // by rows of the wave
  float fold;     // from scores to powers of two

  TW_GPU AttentionTiled(const AttentionTiledArgs &a, char *lds)
      : Base(a),
        queries(reinterpret_cast<M *>(lds)),
        keys(reinterpret_cast<M *>(lds + (stays ? q_bytes : 0))),
        values(reinterpret_cast<M *>(lds + (stays ? q_bytes : 0) + k_bytes)) {}

  static TW_GPU int lane() { return Tile::lane(); }
  static TW_GPU int wave() { return __builtin_amdgcn_readfirstlane(int(threadIdx.x) / Unit::wave); }
  // Of which the compiler does not know that it is the same each time: what follows from it is worked out anew, where else
  // it would be held from the first tile to the last.
  static TW_GPU int thread() {
    int number = int(threadIdx.x);
    asm volatile("" : "+v"(number));
    return number;
  }
  TW_GPU int own_row(int r) const { return this->first + wave_row() + r * 16 + thread() % 16; }
  static TW_GPU int wave_row() { return wave() / shares * wave_rows; }
  static TW_GPU int first_column() { return shares > 1 ? wave() % shares * columns : 0; }  // of 16 elements

  // -- operands --------------------------------------------------------------------------------------------------------

  struct RowPlace {
    const AttentionTiled &t;
    TW_GPU const Q *operator()(int line, int d) const {
      const int row = t.at_most_last(t.first + line);
      return static_cast<const Q *>(t.x.q) + t.s.index * t.x.q_strides.batch +
             (t.s.first_row + t.position(row)) * t.x.q_strides.row + t.head(row) * t.x.q_strides.head + d;
    }
  };
  // Keys of a tile; those beyond the last are the last one.
  struct KeyAt {
    const AttentionTiled &t;
    int first;
    TW_GPU int64_t key(int line) const { return first + line < t.s.keys ? first + line : t.s.keys - 1; }
    TW_GPU int count() const { return int(t.s.keys) - first; }  // that there are, from the first on
  };
  struct KPlace : KeyAt {
    TW_GPU const KV *operator()(int line, int d) const {
      const tw_attention_args &x = this->t.x;
      const KeyPlace at = key_place<Config::pages>(x, x.k_strides, this->t.s, this->key(line), this->t.head_kv);
      return static_cast<const KV *>(x.k) + k_element<Config::pages, int(sizeof(KV))>(at, x.pages.size, d);
    }
  };
  struct VPlace : KeyAt {
    TW_GPU const KV *operator()(int line, int d) const {
      const tw_attention_args &x = this->t.x;
      const KeyPlace at = key_place<Config::pages>(x, x.v_strides, this->t.s, this->key(line), this->t.head_kv);
      return static_cast<const KV *>(x.v) + v_element<Config::pages, int(sizeof(KV))>(at, x.head_v, d);
    }
  };

  TW_GPU typename Unit::Lines query(int r, int step) const {
    return fragment<typename Unit::Lines>(
        queries + KLines::at(wave_row() + r * 16 + Unit::line(lane()), step * Unit::k + Unit::first(lane())));
  }

  TW_GPU void take_queries() {
    FetchQ fetch;
    const RowPlace at{*this};
    fetch.load(at, int(x.head_qk));
    fetch.put(queries, at, int(x.head_qk));
    __syncthreads();
    if constexpr (!stays) {
#pragma unroll
      for (int r = 0; r < row_blocks; ++r)
#pragma unroll
        for (int step = 0; step < steps; ++step) q[r][step] = query(r, step);
      __syncthreads();
    }
  }
  TW_GPU void take_rows() {
    const int low = this->at_most_last(this->first + wave_row());
    seen = this->seen_by(low, this->at_most_last(this->first + wave_row() + wave_rows - 1));
    if (this->first + wave_row() >= rows) seen = {0, 0, 0, 0};  // a wave without rows only fetches
    fold = Tile::scored || !(x.scale > 0) ? attention_log2e : float(x.scale) * attention_log2e;
#pragma unroll
    for (int r = 0; r < row_blocks; ++r) {
      const int row = this->at_most_last(this->first + wave_row() + r * 16 + lane() % 16);
      Row &mine = own[r];
      mine.position = this->position(row), mine.head = this->head(row);
      mine.score = AttentionScore<Config>(x, s, mine.head, mine.position);
      if constexpr (Config::scales != AttentionScales::none) {
        mine.factor = scale_at(x.q_scales, s.index, mine.head, mine.position);
        if constexpr (Config::scales != AttentionScales::block)
          mine.factor *= scale_at(x.k_scales, s.index, head_kv, 0);
      }
      mine.top = minus_infinity(), mine.sum = 0;
      if constexpr (Config::sink) take_sink(mine);
    }
  }
  // One more column of the softmax, in the first split; one lane of the row has its exponential.
  TW_GPU void take_sink(Row &mine) const {
    if (part != 0) return;
    const float logit = static_cast<const float *>(x.sink)[mine.head];
    if (logit == minus_infinity()) return;
    mine.sum = lane() >= 16 ? 0.0f : logit != logit ? logit : exp2_fast(Tile::raised);
    if (logit == logit) mine.top = logit;
  }

  // -- a tile of keys --------------------------------------------------------------------------------------------------

  // Fragments are read of LDS so many registers ahead, and no more: all that are written out, the compiler would read at
  // once, and spill.
  static constexpr int most_ahead = stays ? 32 : 48;
  template <int words> static TW_GPU void pace(int step) {
    constexpr int steps_ahead = words < most_ahead ? most_ahead / words : 1;
    if (step % steps_ahead == steps_ahead - 1) __builtin_amdgcn_sched_barrier(0);
  }

  TW_GPU void multiply_keys(Tile &tile) const {
    constexpr int words = (Tile::key_blocks + (stays ? row_blocks : 0)) * Unit::bytes / 4;
#pragma unroll
    for (int r = 0; r < row_blocks; ++r)
#pragma unroll
      for (int j = 0; j < Tile::key_blocks; ++j) tile.v[r][j] = {};
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      typename Unit::Lines rows_of[row_blocks];
#pragma unroll
      for (int r = 0; r < row_blocks; ++r) {
        if constexpr (stays) rows_of[r] = query(r, step);
        else rows_of[r] = q[r][step];
      }
#pragma unroll
      for (int j = 0; j < Tile::key_blocks; ++j) {
        const auto some = fragment<typename Unit::Lines>(
            keys + KLines::at(j * 16 + Unit::line(lane()), step * Unit::k + Unit::first(lane())));
#pragma unroll
        for (int r = 0; r < row_blocks; ++r) Unit::multiply(some, rows_of[r], tile.v[r][j]);
      }
      pace<words>(step);
    }
  }
  TW_GPU void multiply_values(const Tile &tile) {
    using Fragment = typename Weights::Fragment;
#pragma unroll
    for (int step = 0; step < Weights::steps; ++step) {
      Fragment weights[row_blocks];
#pragma unroll
      for (int r = 0; r < row_blocks; ++r) weights[r] = Weights::of(tile.v[r], step);
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        const auto some = fragment<Fragment>(
            values + VLines::at((first_column() + c) * 16 + Unit::line(lane()), Weights::first(step)));
#pragma unroll
        for (int r = 0; r < row_blocks; ++r) Weights::multiply(some, weights[r], o[r][c]);
        pace<int(sizeof(Fragment)) / 4>(c);
      }
    }
  }
  TW_GPU void score(Tile &tile, int first) {
    if constexpr (Tile::scored) tile.become(x, s, own, head_kv, first);
    else if (!(x.scale > 0)) tile.times(float(x.scale));
    if (first < seen.whole_begin || first + tile_n > seen.whole_end) {
#pragma unroll
      for (int r = 0; r < row_blocks; ++r) {
        const Span span = window_of(x, s, this->position(this->at_most_last(own_row(r))));
        tile.hide(r, int(span.begin) - first, int(span.end) - first, int(x.sink_keys) - first);
      }
    }
  }
  TW_GPU void sync(int first, const Dropout &dropout) {
    Tile tile;
    multiply_keys(tile);
    score(tile, first);
#pragma unroll
    for (int r = 0; r < row_blocks; ++r) {
      const float factor = tile.weigh(r, fold, own[r]);
      if (__any(factor != 1.0f)) {
#pragma unroll
        for (int c = 0; c < columns; ++c) o[r][c] *= factor;
      }
      if constexpr (Config::dropout) tile.drop(r, dropout, uint32_t(s.index * x.heads_q + own[r].head), own[r], first);
      if constexpr (Config::scales == AttentionScales::block) {
        const int start = Tile::forgotten(first), last = int(s.keys) - 1;
        tile.template each<true>(r, [&](float &one, int key) {
          one *= scale_at(x.v_scales, s.index, head_kv, start + key < last ? start + key : last);
        });
      }
    }
    multiply_values(tile);
  }

  TW_GPU void run() {
    if (this->first >= rows) return;
    const TileTraversal traversal = this->traversal();
    const int head_qk = int(x.head_qk), head_v = int(x.head_v);
    FetchK fetch_k;
    FetchV fetch_v;
    const auto load_keys = [&](int i) { fetch_k.load(KPlace{{*this, traversal[i] * tile_n}}, head_qk); };
    const auto load_values = [&](int i) { fetch_v.load(VPlace{{*this, traversal[i] * tile_n}}, head_v); };
    if (ahead && traversal.count > 0) load_keys(0), load_values(0);
    take_queries();
    take_rows();
    Dropout dropout{};
    if constexpr (Config::dropout) dropout = dropout_of(x);
#pragma clang loop unroll(disable)
    for (int i = 0; i < traversal.count; ++i) {
      const int at = traversal[i] * tile_n;
      fetch_k.me = fetch_v.me = thread();
      if (!ahead) load_keys(i);
      if (i > 0) __syncthreads();  // the tile before is done
      fetch_k.put(keys, KPlace{{*this, at}}, head_qk);
      if (!ahead) load_values(i);
      fetch_v.put(values, VPlace{{*this, at}}, head_v);
      __syncthreads();
      if (ahead && i + 1 < traversal.count) load_keys(i + 1), load_values(i + 1);
      if (at < seen.end && (at + tile_n > seen.begin || at < x.sink_keys)) sync(at, dropout);
    }
    store(dropout);
  }

  // -- results ---------------------------------------------------------------------------------------------------------

  TW_GPU void store(const Dropout &dropout) const {
#pragma unroll
    for (int r = 0; r < row_blocks; ++r) {
      const Row &mine = own[r];
      const int row = own_row(r), position = this->position(row), head = this->head(row);
      float sum = mine.sum;
#pragma unroll
      for (int bits = 16; bits < Unit::wave; bits *= 2) sum += lane_xor(sum, bits);
      float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
      if constexpr (Config::dropout) factor *= dropout.keep;
      if constexpr (Config::scales != AttentionScales::none && Config::scales != AttentionScales::block)
        factor *= scale_at(x.v_scales, s.index, head_kv, 0);
      if (row >= rows) continue;
      O *const to = static_cast<O *>(x.o) + part * x.o_split + s.index * x.o_strides.batch +
                    (s.first_row + position) * x.o_strides.row + head * x.o_strides.head;
#pragma unroll
      for (int c = 0; c < columns; ++c) store_column(to, first_column() + c, o[r][c], factor);
      if constexpr (Config::lse || Config::family == AttentionFamily::split) {
        if (lane() < 16 && first_column() == 0) {
          float *const lse = static_cast<float *>(x.lse) + part * x.lse_split + s.index * x.lse_batch +
                             head * x.lse_head + s.first_row + position;
          const float ln2 = 0.6931471805599453f;
          *lse = sum == 0.0f ? minus_infinity() : (mine.top * fold - Tile::raised) * ln2 + logf(sum);
        }
      }
    }
  }
  // What a lane has of 16 elements: neighbours, but on RDNA 3.
  TW_GPU void store_column(O *to, int c, const typename Unit::Accumulators &some, float factor) const {
    struct __attribute__((packed)) Anywhere {
      O v[Unit::accum];
    } rounded;
#pragma unroll
    for (int i = 0; i < Unit::accum; ++i) round_to(some[i] * factor, rounded.v[i]);
    const int first = c * 16 + Unit::row(lane(), 0), head = int(x.head_v);
    if (!Weights::halves && first + Unit::accum <= head) *reinterpret_cast<Anywhere *>(to + first) = rounded;
    else {
#pragma unroll
      for (int i = 0; i < Unit::accum; ++i) {
        const int d = c * 16 + Unit::row(lane(), i);
        if (d < head) to[d] = rounded.v[i];
      }
    }
  }
};

#endif

template <class Config> __global__ void __launch_bounds__(Config::threads)
    attention_tiled_block(const AttentionTiledArgs a) {
#if defined(__HIP_DEVICE_COMPILE__)
  __shared__ __attribute__((aligned(16))) char lds[Config::lds_bytes];
  AttentionTiled<Config>(a, lds).run();
#endif
}

template <class Config, class Limits> struct AttentionTiledKernel : PlainKernel {
  static int check(const void *args, char *why, size_t bytes) {
    const auto *x = static_cast<const tw_attention_args *>(args);
    const Answer common = broken_of<Config>(x);
    return common.code ? say(common, why, bytes) : selection::check_limits<Config, Limits>(*x, why, bytes);
  }
  static int64_t workspace(const void *, int64_t) { return 0; }
  static int launch(const void *args, void *, void *stream) {
    AttentionTiledArgs a{*static_cast<const tw_attention_args *>(args), {}, 0};
    if (no_rows(a.x)) return TW_OK;
    const int64_t group = a.x.heads_q / a.x.heads_kv;
    a.by_group = divider(group);
    a.row_tiles = int((a.x.rows * group + Config::tile_m - 1) / Config::tile_m);
    const int64_t blocks = a.row_tiles * a.x.heads_kv * a.x.splits * a.x.batch;
    void *words[] = {&a};
    const hipError_t error =
        hipLaunchKernel(reinterpret_cast<const void *>(&attention_tiled_block<Config>), dim3(unsigned(blocks)),
                        dim3(Config::threads), words, 0, static_cast<hipStream_t>(stream));
    return error == hipSuccess ? TW_OK : TW_DEVICE | int(error) << 8;
  }
};

}  // namespace tw::hip
