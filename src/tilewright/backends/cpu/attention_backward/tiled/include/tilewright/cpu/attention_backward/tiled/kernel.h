// The tiled pipeline of `grad`: rows in lanes, keys block by block.
//
// A task has some blocks of keys of one sequence and one head of keys.  For each block it traverses the tiles of rows of all
// query heads that read it.  With rows in lanes, scores are (keys x rows): P' = exp(K Q' - lse), dP' = V dO', and then
//
//   dV += P' dO     dK += dS' Q     dQ += dS K
//
// with dk and dv of a block and dq of all rows in fp32.  A task that has all keys owns dq; where a problem has few heads
// its keys are splits, whose dq are added up afterwards in their order.  Which splits there are follows from the problem
// alone, so that results are the same on any number of threads.
#pragma once
#include <tilewright/cpu/attention_backward/micro.h>
#include <tilewright/cpu/attention_backward/touch.h>
#include <tilewright/cpu/attention_backward/view.h>
#include <tilewright/cpu/copies/pack.h>
#include <tilewright/select/threads.h>

namespace tw {

// Config: as attention_backward_rules.h says, and tile_m (rows of a tile), tile_n (keys of a block), warp_tile_m (rows in
// the lanes of a register block), warp_tile_n (keys, or rows of a gradient, at once), warp_vectors (vectors of elements of
// a gradient at once).
template <class Config> struct AttentionGradTiled {
  using T = typename Config::T;
  using D = tw::Dot<T, T>;
  using Args = tw_attention_backward_args;
  using Rows = TileRows<Config::tile_m>;
  using Touching = TouchGradients<Config>;
  static constexpr int step = D::step, deep = Config::warp_tile_n, vectors = Config::warp_vectors;
  static constexpr int tile = Config::tile_m, lane_rows = Config::warp_tile_m, row_vectors = lane_rows / lanes;
  static constexpr int64_t block = Config::tile_n, inner = 8 * deep;  // keys of a block, and of what stays in the L1
  static constexpr int columns = vectors * lanes;
  // Words of a row of a head along its elements, and elements of a gradient's row, filled up to whole panels.
  static constexpr int k_words = (Config::head_qk / step + lanes - 1) / lanes * lanes + lanes;
  static constexpr int v_words = (Config::head_v / step + lanes - 1) / lanes * lanes + lanes;
  static constexpr int k_size = (Config::head_qk + columns - 1) / columns * columns;
  static constexpr int v_size = (Config::head_v + columns - 1) / columns * columns;
  static_assert(tile % lane_rows == 0 && lane_rows % lanes == 0 && tile % step == 0 && block % inner == 0 &&
                    inner % step == 0,
                "tiles do not divide");

  // ---- memory of a worker, in words ------------------------------------------------------------
  static constexpr int64_t tile_pairs = tile / step;
  static constexpr int64_t kw_at = 0, vw_at = kw_at + block * k_words, kx_at = vw_at + block * v_words;
  static constexpr int64_t dk_at = kx_at + block / step * k_size, dv_at = dk_at + block * k_size;
  static constexpr int64_t qt_at = dv_at + block * v_size, dot_at = qt_at + int64_t(tile) * k_words;
  static constexpr int64_t qx_at = dot_at + int64_t(tile) * v_words, dox_at = qx_at + tile_pairs * k_size;
  static constexpr int64_t s_at = dox_at + tile_pairs * v_size, p_at = s_at + inner * tile;
  static constexpr int64_t flat_at = p_at + inner * tile, kept_at = flat_at + (Config::softcap ? inner * tile : 0);
  static constexpr int64_t more_at = kept_at + (Config::dropout ? inner * tile : 0);
  static constexpr int64_t rows_at = more_at + (step > 1 ? 3 * inner * tile_pairs : 0);
  static constexpr int64_t slot_words = (rows_at + int64_t(sizeof(Rows)) / 4 + 16 + 15) / 16 * 16;
  static constexpr int64_t shortest_part = 512, enough = 24;

  // ---- splits of the keys ---------------------------------------------------------------------------
  // Owners: the items of an owner are one thread's, one after the other.  Where a bias or slopes that have a gradient are
  // shared by sequences, heads or keys, so is their owner; else each item has its own.
  struct Parts {
    int64_t count, span, batch, heads, keys;  // splits of the keys; owners: sequences, heads, splits
    explicit Parts(const Args &x) : count(1), span(most(1, x.keys)), batch(x.batch), heads(x.heads_kv), keys(1) {
      if (Config::dbias && !x.dbias_strides[0]) batch = least(1, batch);
      if (Config::dbias && !x.dbias_strides[1]) heads = 1;
      if (Config::dalibi && !x.dalibi_batch) batch = least(1, batch);
      const bool shared = Config::dalibi || (Config::dbias && !x.dbias_strides[3]);
      const int64_t items = batch * heads, shortest = Config::dbias ? block : shortest_part;
      if (shared || items >= enough || items < 1 || x.keys < 2 * shortest) return;
      span = most(shortest, up((x.keys + enough / items - 1) / most(1, enough / items), block));
      keys = count = (x.keys + span - 1) / span;
    }
    int64_t owners() const { return batch * heads * keys; }
    // The items of an owner: sequence, head of keys and split, each from one number on in steps of another.
    template <class Body> void items(const Args &x, int64_t owner, const Body &body) const {
      const int64_t part = owner % keys, head = owner / keys % heads, sequence = owner / keys / heads;
      for (int64_t b = sequence; b < x.batch; b += batch)
        for (int64_t h = head; h < x.heads_kv; h += heads) body((b * x.heads_kv + h) * count + part);
    }
  };
  static int64_t dq_words(const Args &x) { return x.heads_q / x.heads_kv * up(x.rows, tile) * k_size; }
  static int64_t threads_of(const Args &x, int64_t threads) {
    const double rows = x.starts_q ? double(x.total_rows) : double(x.batch) * double(x.rows);
    const double work = rows * double(x.heads_q) * double(x.keys) * double(x.head_qk + x.head_v);
    const double some = work / double(selection::kSmallestShare) + 1;
    const int64_t items = most(1, Parts(x).owners());
    return least(items, some < double(threads) ? int64_t(some) : threads);
  }
  // dq of splits is kept until all are there; else it is the worker's.
  static int64_t dq_count(const Args &x, const Parts &p, int64_t threads) {
    return p.count > 1 ? x.batch * x.heads_kv * p.count : threads;
  }
  static int64_t workspace(const Args &x, int64_t threads) {
    const int64_t workers = threads_of(x, threads);
    return (workers * slot_words + dq_count(x, Parts(x), workers) * dq_words(x)) * 4 + 64;
  }

  // ---- packing ---------------------------------------------------------------------------------------
  // Rows of words along their elements: out[row * Words + group]; rows to `upto` are zeros.
  template <int Words> static __attribute__((noinline)) void pack_along(const T *from, int64_t ld, int64_t rows,
                                                                        int64_t upto, int64_t size, uint32_t *out) {
    for (int64_t i = 0; i < rows; ++i, from += ld, out += Words)
      for (int64_t g = 0; g * step < size; g += lanes)
        store_u(out + g, words_along<D>(from + g * step, size - g * step));
    for (int64_t i = rows; i < upto; ++i, out += Words) __builtin_memset(out, 0, Words * 4);
  }
  // Words across rows: panels of `columns` elements, in each group after group of `step` rows.
  template <int Size> static __attribute__((noinline)) void pack_across(const T *from, int64_t ld, int64_t rows,
                                                                        int64_t groups, int64_t size, uint32_t *out) {
    for (int64_t panel = 0; panel < Size; panel += columns)
      for (int64_t g = 0; g < groups; ++g)
        for (int64_t v = 0; v < columns; v += lanes, out += lanes) {
          const int64_t d = panel + v, i = g * step;
          store_u(out, d < size && i < rows ? words_across<D>(from + i * ld + d, ld, size - d, rows - i) : vu{});
        }
  }
  // Rows turned into lanes: panels of `lane_rows` rows, in each group after group of words along the elements.
  template <int Words> static __attribute__((noinline)) void pack_transposed(const T *from, int64_t ld, int64_t rows,
                                                                             int64_t size, uint32_t *out) {
    const int64_t groups = (size + step - 1) / step;
    for (int64_t panel = 0; panel < tile; panel += lane_rows, out += int64_t(lane_rows) * Words)
      for (int64_t v = 0; v < lane_rows; v += lanes)
        for (int64_t g = 0; g < groups; g += lanes) {
          vi none{};
          const int64_t i = panel + v;
          if (i < rows)
            square_of_lines<D>(from + i * ld + g * step, ld, rows - i, size - g * step, least(lanes, groups - g),
                               out + g * lane_rows + v, lane_rows, &none);
          else
            for (int64_t t = 0; t < least(lanes, groups - g); ++t) store_u(out + (g + t) * lane_rows + v, vu{});
        }
  }

  // ---- a block of keys -----------------------------------------------------------------------------
  struct Task {
    const Args &x;
    Sequence s;
    int64_t head_kv, first, count;  // keys of the block
    uint32_t *words;
    float *dq;  // of all rows of the query heads that read these keys
    int64_t dq_rows;

    uint32_t *at(int64_t place) const { return words + place; }
    float *floats(int64_t place) const { return reinterpret_cast<float *>(words + place); }
  };

  static void begin(const Task &t) {
    const Args &x = t.x;
    const int64_t upto = up(t.count, inner), key = t.s.first_key + t.first;
    const T *k = row_at<T>(x.k, x.k_strides, t.s.index, key, t.head_kv);
    const T *v = row_at<T>(x.v, x.v_strides, t.s.index, key, t.head_kv);
    pack_along<k_words>(k, x.k_strides.row, t.count, upto, x.head_qk, t.at(kw_at));
    pack_along<v_words>(v, x.v_strides.row, t.count, upto, x.head_v, t.at(vw_at));
    for (int64_t j = 0; j < t.count; j += inner)
      pack_across<k_size>(k + j * x.k_strides.row, x.k_strides.row, least(inner, t.count - j), inner / step, x.head_qk,
                          keys_across(t, j));
    __builtin_memset(t.at(dk_at), 0, size_t(upto) * k_size * 4);
    __builtin_memset(t.at(dv_at), 0, size_t(upto) * v_size * 4);
  }
  // Keys as the second factor of dq, in panels.
  static uint32_t *keys_across(const Task &t, int64_t j) { return t.at(kx_at) + j / step * k_size; }

  static void finish(const Task &t) {
    const Args &x = t.x;
    const int64_t key = t.s.first_key + t.first;
    for (int64_t j = 0; j < t.count; ++j) {
      store_row(row_at<T>(x.dk, x.dk_strides, t.s.index, key + j, t.head_kv), t.floats(dk_at) + j * k_size, x.head_qk,
                float(x.scale));
      store_row(row_at<T>(x.dv, x.dv_strides, t.s.index, key + j, t.head_kv), t.floats(dv_at) + j * v_size, x.head_v,
                1.0f);
    }
  }
  static TW_INLINE void store_row(T *to, const float *from, int64_t size, float factor) {
    for (int64_t d = 0; d < size; d += lanes) store_from_float(to + d, load_f(from + d) * factor, size - d);
  }

  // ---- a tile of rows with a block of keys -----------------------------------------------------
  static __attribute__((noinline)) void pack_tile(const Task &t, int64_t head, int64_t row, int64_t rows) {
    const Args &x = t.x;
    const T *q = row_at<T>(x.q, x.q_strides, t.s.index, t.s.first_row + row, head);
    const T *dout = row_at<T>(x.dout, x.dout_strides, t.s.index, t.s.first_row + row, head);
    pack_transposed<k_words>(q, x.q_strides.row, rows, x.head_qk, t.at(qt_at));
    pack_transposed<v_words>(dout, x.dout_strides.row, rows, x.head_v, t.at(dot_at));
    pack_across<k_size>(q, x.q_strides.row, rows, tile_pairs, x.head_qk, t.at(qx_at));
    pack_across<v_size>(dout, x.dout_strides.row, rows, tile_pairs, x.head_v, t.at(dox_at));
  }

  // (keys x rows) of a product along the elements of heads.
  template <int Words> static TW_INLINE void scores(const uint32_t *keys, const uint32_t *transposed, int64_t count,
                                                    int64_t groups, float *out) {
    for (int64_t panel = 0; panel < tile; panel += lane_rows)
      gradient_rows<D, deep, 0, row_vectors, Words, 1, false, step == 1 ? score_run : 0>(
          count, groups, keys, transposed + panel * Words, out + panel, tile);
  }

  static void pairs(const Task &t, const Rows &rows, int64_t j, int64_t count, float *dq) {
    const Args &x = t.x;
    float *s = t.floats(s_at), *p = t.floats(p_at);
    const int64_t k_groups = (x.head_qk + step - 1) / step, v_groups = (x.head_v + step - 1) / step;
    scores<k_words>(t.at(kw_at) + j * k_words, t.at(qt_at), count, k_groups, s);
    scores<v_words>(t.at(vw_at) + j * v_words, t.at(dot_at), count, v_groups, p);
    typename Touching::Step of{0.0f, s, p, t.floats(flat_at), t.floats(kept_at)};
    of.factor = Touching::touch(x, t.s, rows, t.first + j, count, s, of.flat);
    if constexpr (Config::dropout) Touching::drop(x, t.s, rows, dropout_of(x), t.first + j, count, of.kept);
    const uint32_t *weights = t.at(s_at), *by_keys = t.at(p_at), *by_rows = t.at(p_at);
    if constexpr (step == 1) Touching::weigh(rows, count, of);
    else {
      constexpr int64_t part = inner * tile_pairs;
      Touching::weigh_pairs(rows, count, of, t.at(more_at), t.at(more_at) + part, t.at(more_at) + 2 * part);
      weights = t.at(more_at), by_keys = t.at(more_at) + part, by_rows = t.at(more_at) + 2 * part;
    }
    if constexpr (Touching::gradients) Touching::add_up(x, t.s, rows, t.first + j, count, of);
    // A last tile has fewer rows: what is added up along them ends there, and dq has no more of them.
    const int64_t full = up(count, deep), key_groups = (count + step - 1) / step;
    const int64_t row_groups = (rows.count + step - 1) / step, dq_rows = least(tile, up(rows.count, deep));
    for (int64_t d = 0; d < v_size && d < x.head_v; d += columns)
      gradient_rows<D, deep, 0, vectors, int(tile_pairs), 1, true>(
          full, row_groups, weights, t.at(dox_at) + tile_pairs * d, t.floats(dv_at) + j * v_size + d, v_size);
    for (int64_t d = 0; d < k_size && d < x.head_qk; d += columns) {
      gradient_rows<D, deep, 0, vectors, int(tile_pairs), 1, true>(
          full, row_groups, by_keys, t.at(qx_at) + tile_pairs * d, t.floats(dk_at) + j * k_size + d, k_size);
      gradient_rows<D, deep, tile % deep, vectors, 1, tile, true>(dq_rows, key_groups, by_rows,
                                                                  keys_across(t, j) + inner / step * d, dq + d, k_size);
    }
  }

  static void rows_of_head(const Task &t, int64_t head) {
    const Args &x = t.x;
    auto &rows = *reinterpret_cast<Rows *>(t.at(rows_at));
    for (int64_t row = 0; row < t.s.rows; row += tile) {
      const int64_t count = least(tile, t.s.rows - row);
      rows.fill(x, t.s, head, row, count);
      float *dq = t.dq + (head % (x.heads_q / x.heads_kv) * t.dq_rows + row) * k_size;
      int64_t done = 0;  // keys of the block: both segments may end in one group of them
      bool packed = false;
      for (int segment = 0; segment < 2; ++segment) {
        const Span seen = rows.seen(x, segment);
        const int64_t low = most(seen.begin, t.first) - t.first, high = least(seen.end, t.first + t.count) - t.first;
        for (done = most(done, low / inner * inner); done < high; done += inner) {
          if (!packed) pack_tile(t, head, row, count), packed = true;
          pairs(t, rows, done, least(inner, t.count - done), dq);
        }
      }
    }
  }

  static void run(const Args &x, const Parts &p, int64_t item, uint32_t *words, float *dq) {
    const int64_t part = item % p.count, head_kv = item / p.count % x.heads_kv, group = x.heads_q / x.heads_kv;
    Task t{x, Sequence(x, item / p.count / x.heads_kv), head_kv, 0, 0, words, dq, up(x.rows, tile)};
    __builtin_memset(dq, 0, size_t(dq_words(x)) * 4);
    const int64_t low = part * p.span, high = p.count > 1 ? least(t.s.keys, low + p.span) : t.s.keys;
    for (t.first = low; t.first < high; t.first += block) {
      t.count = least(block, high - t.first);
      begin(t);
      for (int64_t head = head_kv * group; head < (head_kv + 1) * group; ++head) rows_of_head(t, head);
      finish(t);
    }
  }

  // dq of one head's rows, of its splits added up.
  static void write_dq(const Args &x, const Sequence &s, int64_t head, const float *dq, int64_t parts) {
    const int64_t ahead = dq_words(x), of_head = head % (x.heads_q / x.heads_kv) * up(x.rows, tile) * k_size;
    for (int64_t row = 0; row < s.rows; ++row) {
      T *to = row_at<T>(x.dq, x.dq_strides, s.index, s.first_row + row, head);
      const float *from = dq + of_head + row * k_size;
      for (int64_t d = 0; d < x.head_qk; d += lanes) {
        vf sum = load_f(from + d);
        for (int64_t part = 1; part < parts; ++part) sum += load_f(from + part * ahead + d);
        store_from_float(to + d, sum * float(x.scale), x.head_qk - d);
      }
    }
  }

  // The gradients of what is added to scores are added up where they lie.
  static void zero_added(const Args &x) {
    if constexpr (Config::dbias) {
      const int64_t sizes[4] = {x.batch, x.heads_q, x.rows, x.keys};
      int64_t to[4];
      for (int i = 0; i < 4; ++i) to[i] = x.dbias_strides[i] ? sizes[i] : 1;
      for (int64_t b = 0; b < to[0]; ++b)
        for (int64_t h = 0; h < to[1]; ++h)
          for (int64_t i = 0; i < to[2]; ++i)
            for (int64_t j = 0; j < to[3]; ++j)
              static_cast<float *>(x.dbias)[entry_at(x.dbias_strides, x, b, h, i, j)] = 0.0f;
    }
    if constexpr (Config::dalibi)
      for (int64_t b = 0; b < (x.dalibi_batch ? x.batch : 1); ++b)
        for (int64_t h = 0; h < x.heads_q; ++h)
          static_cast<float *>(x.dalibi)[b * x.dalibi_batch + h * x.dalibi_head] = 0.0f;
  }

  static int launch(const Args &x, void *memory, void *stream) {
    zero_unused<T>(x);
    if constexpr (Touching::gradients) zero_added(x);
    const Parts p(x);
    const int64_t owners = p.owners(), workers = threads_of(x, team_size(stream));
    if (owners < 1) return TW_OK;
    auto *words = reinterpret_cast<uint32_t *>((reinterpret_cast<uintptr_t>(memory) + 63) / 64 * 64);
    auto *dq = reinterpret_cast<float *>(words + workers * slot_words);
    const int64_t group = x.heads_q / x.heads_kv, size = dq_words(x);
    int64_t next = 0;
    parallel(stream, workers, [&](int64_t worker) {
      for (int64_t owner; (owner = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < owners;)
        p.items(x, owner, [&](int64_t item) {
          float *mine = dq + (p.count > 1 ? item : worker) * size;
          run(x, p, item, words + worker * slot_words, mine);
          if (p.count > 1) return;
          const int64_t head = item % x.heads_kv * group;
          for (int64_t h = head; h < head + group; ++h) write_dq(x, Sequence(x, item / x.heads_kv), h, mine, 1);
        });
    });
    if (p.count > 1)
      parallel(stream, x.batch * x.heads_q, [&](int64_t task) {
        const int64_t b = task / x.heads_q, head = task % x.heads_q;
        write_dq(x, Sequence(x, b), head, dq + (b * x.heads_kv + head / group) * p.count * size, p.count);
      });
    return TW_OK;
  }
};

}  // namespace tw
