// What scores meet between the products, where lanes are rows: soft cap, bias, mask, ALiBi and the window; then the
// softmax and its gradient.
#pragma once
#include <tilewright/cpu/attention_backward/view.h>
#include <tilewright/cpu/primitives/dot.h>
#include <tilewright/cpu/primitives/exponential.h>
#include <tilewright/cpu/primitives/philox.h>

namespace tw {

// One sequence of the batch, and what its rows see.
struct Sequence : AttentionSequence {
  int64_t shift, beside;  // row i stands beside key i + shift; for ALiBi beside another

  Sequence(const tw_attention_backward_args &x, int64_t b)
      : AttentionSequence(sequence_in_rows(x, b)), shift(window_shift(x, *this)), beside(alibi_shift(x, *this)) {}
};

// The rows in the lanes of a tile: of one head.
template <int Most> struct TileRows {
  int64_t head, row, count;
  int64_t first, end;                // keys that any of them sees by the window
  int32_t latest_from, earliest_to;  // which all of them see
  int32_t from[Most], to[Most];      // which each sees; lanes without a row see none
  float log[Most], delta[Most];      // lanes without a row have no weight

  __attribute__((noinline)) void fill(const tw_attention_backward_args &x, const Sequence &s, int64_t of_head,
                                      int64_t row0, int64_t n) {
    head = of_head, row = row0, count = n, first = s.keys, end = 0, latest_from = 0, earliest_to = int32_t(s.keys);
    const float *deltas = static_cast<const float *>(x.delta) + prepared_at(x, s.index, head) + row;
    const float *logs = lse_rows(x, s, head) + row;
    for (int64_t t = 0; t < Most; ++t) {
      const bool there = t < n;
      const Span seen = there ? window_of(x, s, row + t) : Span{0, 0};
      from[t] = int32_t(seen.begin), to[t] = int32_t(seen.end);
      log[t] = there ? subtracted_lse(logs[t]) : -minus_infinity;
      delta[t] = there ? deltas[t] : 0.0f;
      if (!there) continue;
      first = least(first, seen.begin), end = most(end, seen.end);
      if (from[t] > latest_from) latest_from = from[t];
      if (to[t] < earliest_to) earliest_to = to[t];
    }
  }
  TW_INLINE bool all_see(int64_t j0, int64_t j1, int64_t sinks) const {
    return j1 <= earliest_to && (j0 >= latest_from || j1 <= sinks);
  }
  // Keys that some row sees: first keys that are always seen, where they lie apart from the window, and the window.
  TW_INLINE Span seen(const tw_attention_backward_args &x, int segment) const {
    const int64_t sinks = least(x.sink_keys, end);
    if (segment == 0) return sinks < first ? Span{0, sinks} : Span{0, 0};
    return sinks < first ? Span{first, end} : Span{0, end};
  }
};

// Out of line: transposing a square is many instructions, and who comes here is not in a hurry.
__attribute__((noinline)) inline void transposed_square(vu (&square)[lanes]) { transpose(square); }

template <class Config> struct TouchGradients {
  using Bias = typename Config::Aux;
  using Args = tw_attention_backward_args;
  static constexpr int width = Config::tile_m;
  using Rows = TileRows<width>;
  static constexpr bool bounded = Config::mask != AttentionMask::none;
  static constexpr bool slopes = Config::bias == AttentionBias::alibi;
  static constexpr bool touched = Config::masked || Config::bias != AttentionBias::none;
  static constexpr bool gradients = Config::dbias || Config::dalibi;  // ds is wanted before the cap's part

  // Raw products of keys j0 to j0 + keys become scores, but for the factor that is returned; `flat` is
  // what a soft cap makes of a gradient.
  static __attribute__((noinline)) float touch(const Args &x, const Sequence &s, const Rows &t, int64_t j0,
                                               int64_t keys, float *scores, [[maybe_unused]] float *flat) {
    float factor = float(x.scale);
    if constexpr (Config::softcap) cap(x, keys, scores, flat), factor = 1.0f;
    else if (touched || !(factor > 0.0f)) scale(factor, keys, scores), factor = 1.0f;  // minus infinity keeps its sign
    if constexpr (Config::bias == AttentionBias::tensor) squares<true>(x, s, t, j0, keys, scores);
    if constexpr (Config::masked) squares<false>(x, s, t, j0, keys, scores);
    if constexpr (slopes) lean(x, s, t, j0, keys, scores);
    if (bounded && !t.all_see(j0, j0 + keys, x.sink_keys)) bound(x, t, j0, keys, scores);
    return factor;
  }

  // What weights and gradients of an iteration are made of; `kept` is what dropout multiplies entries by.
  struct Step {
    float factor;
    float *scores, *products, *flat, *kept;
  };

  // Weights and gradients of scores in place: p = e^(s - log), g = p (z dp - delta), and the weight z p.
  static __attribute__((noinline)) void weigh(const Rows &t, int64_t keys, const Step &x) {
    for (int64_t v = 0; v < width; v += lanes) {
      const vf log = load_f(t.log + v), delta = load_f(t.delta + v);
      for (int64_t at = v; at < keys * width; at += width) {
        const Found found = one(x, at, log, delta);
        store_f(x.scores + at, found.weight);
        store_f(x.products + at, found.g);
        if constexpr (gradients && Config::softcap) store_f(x.flat + at, found.ds);
      }
    }
  }
  // The same as pairs of bf16: weights and gradients along rows, and gradients along keys.
  static __attribute__((noinline)) void weigh_pairs(const Rows &t, int64_t keys, const Step &x, uint32_t *weights,
                                                    uint32_t *by_keys, uint32_t *by_rows) {
    auto *of_weights = reinterpret_cast<bf16 *>(weights);
    auto *of_gradients = reinterpret_cast<bf16 *>(by_keys);
    for (int64_t v = 0; v < width; v += lanes) {
      const vf log = load_f(t.log + v), delta = load_f(t.delta + v);
      auto stored = [&](int64_t at) {
        const Found found = one(x, at, log, delta);
        store_from_float(of_weights + at, found.weight);
        if constexpr (gradients) store_f((Config::softcap ? x.flat : x.products) + at, found.ds);
        const vu bits = rounded(found.g);
        store_narrow(of_gradients + at, bits);
        return bits;
      };
      uint32_t *to = by_rows + v;
      for (int64_t j = 0; j < keys; j += 2, to += width) {
        const vu low = stored(j * width + v), high = j + 1 < keys ? stored((j + 1) * width + v) : vu{};
        store_u(to, low | high << 16);
      }
    }
  }

  // What dropout multiplies the entries of keys j0 to j0 + keys by: 0, or what is kept is scaled by.
  static __attribute__((noinline)) void drop(const Args &x, const Sequence &s, const Rows &t, const Dropout &dropout,
                                             int64_t j0, int64_t keys, float *kept) {
    const uint32_t of_head = uint32_t(s.index * x.heads_q + t.head);
    const vi threshold = splat(int32_t(dropout.threshold));
    for (int64_t v = 0; v < width; v += lanes) {
      vu row;
      for (int l = 0; l < lanes; ++l) row[l] = uint32_t(t.row + v + l);
      for (int64_t first = j0 / 32 * 32; first < j0 + keys; first += 32)
        for (int64_t pair = 0; pair < 4; ++pair) {  // each draw decides two columns of eight in a row, four times
          vu words[4] = {splat(uint32_t(first / 32 * 4 + pair)), row, splat(of_head), splat(dropout.offset_low)};
          philox_lanes(words, dropout.seed_low, dropout.seed_high);
          for (int64_t c = 0; c < 8; ++c) {
            const int64_t key = first + c / 2 * 8 + pair * 2 + c % 2 - j0;
            if (key < 0 || key >= keys) continue;
            const vi drawn = vi(words[c / 2] >> (c % 2 * 16) & 0xffffu);
            store_f(kept + key * width + v, select(vi(drawn >= threshold), splat(dropout.keep), vf{}));
          }
        }
    }
  }

  // The gradients of what is added to scores: `ds` is (keys x rows).
  static __attribute__((noinline)) void add_up(const Args &x, const Sequence &s, const Rows &t, int64_t j0,
                                               int64_t keys, const Step &of) {
    const float *ds = Config::softcap ? of.flat : of.products;
    if constexpr (Config::dbias) add_bias(x, s, t, j0, keys, ds);
    if constexpr (Config::dalibi) {
      vf sum{};
      for (int64_t v = 0; v < t.count; v += lanes) {
        const vf place = places(s, t, v);
        for (int64_t j = 0; j < keys; ++j) sum += load_f(ds + j * width + v) * vabs(place - float(j0 + j));
      }
      static_cast<float *>(x.dalibi)[s.index * x.dalibi_batch + t.head * x.dalibi_head] -= sum_lanes(sum);
    }
  }

 private:
  struct Found {
    vf weight, ds, g;
  };
  static TW_INLINE Found one(const Step &x, int64_t at, vf log, vf delta) {
    const vf p = weight_of(load_f(x.scores + at) * x.factor, log);
    vf weight = p, product = load_f(x.products + at);
    if constexpr (Config::dropout) weight = p * load_f(x.kept + at), product = product * load_f(x.kept + at);
    const vf ds = p * (product - delta);
    if constexpr (Config::softcap) return {weight, ds, ds * load_f(x.flat + at)};
    else return {weight, ds, ds};
  }

  // A weight that is rounded to bf16 next need not be precise.  Else the score is rounded before the difference, as the
  // forward pass rounds it: of the row's largest score, which lse is nearly, the error is then the same in both.
  static TW_INLINE vf weight_of(vf score, vf log) {
    constexpr bool precise = Dot<typename Config::T, typename Config::T>::step == 1;
    const vf apart = (precise ? rounded_here(score) : score) - log;
    return vexp_weight<precise>(select(vi(apart > 88.0f), splat(88.0f), apart));  // lse may be another call's
  }

  // The nearest bf16, in the low half of each lane.
  static TW_INLINE vu rounded(vf x) {
    const vu bits = vu(x), near = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return select(vi(x == x), near, (bits >> 16) | 0x40u);
  }

  static void scale(float factor, int64_t keys, float *scores) {
    for (int64_t at = 0; at < keys * width; at += lanes) store_f(scores + at, load_f(scores + at) * factor);
  }
  static void cap(const Args &x, int64_t keys, float *scores, float *flat) {
    if (!(x.softcap > 0)) {
      scale(float(x.scale), keys, scores);
      for (int64_t at = 0; at < keys * width; at += lanes) store_f(flat + at, splat(1.0f));
      return;
    }
    const vf scaled = splat(float(x.scale)), inside = splat(float(1 / x.softcap)), outside = splat(float(x.softcap));
    for (int64_t at = 0; at < keys * width; at += lanes) {
      const TanhAndSlope found = tanh_and_slope(rounded_here(load_f(scores + at) * scaled) * inside);
      store_f(scores + at, outside * found.tanh);
      store_f(flat + at, found.slope);
    }
  }

  // A bias or a mask: squares of rows by keys, transposed.
  template <bool Added>
  static void squares(const Args &x, const Sequence &s, const Rows &t, int64_t j0, int64_t keys, float *scores) {
    const auto &strides = Added ? x.bias_strides : x.mask_strides;
    for (int64_t v = 0; v < t.count; v += lanes)
      for (int64_t j = 0; j < keys; j += lanes) {
        const int64_t some = least(lanes, keys - j);
        vu square[lanes];
#pragma GCC unroll 1
        for (int64_t l = 0; l < lanes; ++l) {
          const int64_t at = entry_at(strides, x, s.index, t.head, t.row + least(v + l, t.count - 1), j0 + j);
          if constexpr (Added) square[l] = vu(line(static_cast<const Bias *>(x.bias) + at, strides[3], some));
          else square[l] = bytes(static_cast<const uint8_t *>(x.mask) + at, strides[3], some);
        }
        transposed_square(square);
        for (int64_t l = 0; l < some; ++l) {
          float *to = scores + (j + l) * width + v;
          if constexpr (Added) store_f(to, load_f(to) + vf(square[l]));
          else store_f(to, select(vi(square[l] == 0u), splat(minus_infinity), load_f(to)));
        }
      }
  }
  // A line of a bias or a mask for `count` keys, the other lanes anything.
  static __attribute__((noinline)) vf line(const Bias *from, int64_t stride, int64_t count) {
    if (stride == 1) return load_as_float(from, count);
    float part[lanes];
#pragma GCC unroll 1
    for (int64_t l = 0; l < lanes; ++l) part[l] = to_float(from[least(l, count - 1) * stride]);
    return load_f(part);
  }
  static __attribute__((noinline)) vu bytes(const uint8_t *from, int64_t stride, int64_t count) {
    if (stride == 1 && count >= lanes) return widen_bytes(from);
    uint32_t part[lanes];
#pragma GCC unroll 1
    for (int64_t l = 0; l < lanes; ++l) part[l] = from[least(l, count - 1) * stride];
    return load_u(part);
  }

  // Where rows stand among keys, for ALiBi.
  static TW_INLINE vf places(const Sequence &s, const Rows &t, int64_t v) {
    vf found;
    for (int l = 0; l < lanes; ++l) found[l] = float(t.row + v + l + s.beside);
    return found;
  }
  // Squares of keys by rows, transposed and added where the bias lies.
  static void add_bias(const Args &x, const Sequence &s, const Rows &t, int64_t j0, int64_t keys, const float *ds) {
    const auto &strides = x.dbias_strides;
    for (int64_t v = 0; v < t.count; v += lanes)
      for (int64_t j = 0; j < keys; j += lanes) {
        const int64_t some = least(lanes, keys - j);
        vu square[lanes];
#pragma GCC unroll 1
        for (int64_t l = 0; l < lanes; ++l) square[l] = l < some ? load_u(ds + (j + l) * width + v) : vu{};
        transposed_square(square);
#pragma GCC unroll 1
        for (int64_t l = 0; l < least(lanes, t.count - v); ++l) {
          float *to = static_cast<float *>(x.dbias) + entry_at(strides, x, s.index, t.head, t.row + v + l, j0 + j);
          if (strides[3] == 1) store_from_float(to, load_as_float(to, some) + vf(square[l]), some);
          else if (!strides[3]) *to += sum_lanes(vf(square[l]));
          else
            for (int64_t c = 0; c < some; ++c) to[c * strides[3]] += vf(square[l])[c];
        }
      }
  }

  static void lean(const Args &x, const Sequence &s, const Rows &t, int64_t j0, int64_t keys, float *scores) {
    const vf slope = splat(static_cast<const float *>(x.alibi)[s.index * x.alibi_batch + t.head * x.alibi_head]);
    for (int64_t v = 0; v < width; v += lanes) {
      const vf place = places(s, t, v);
      for (int64_t j = 0; j < keys; ++j) {
        float *at = scores + j * width + v;
        store_f(at, load_f(at) - slope * vabs(place - float(j0 + j)));
      }
    }
  }
  static void bound(const Args &x, const Rows &t, int64_t j0, int64_t keys, float *scores) {
    for (int64_t v = 0; v < width; v += lanes) {
      const vi from = vi(load_u(t.from + v)), to = vi(load_u(t.to + v));
      for (int64_t j = 0; j < keys; ++j) {
        float *at = scores + j * width + v;
        const vi key = splat(int32_t(j0 + j)), low = j0 + j < x.sink_keys ? vi{} : from;
        store_f(at, select(vi(key >= low) & vi(key < to), load_f(at), splat(minus_infinity)));
      }
    }
  }
};

}  // namespace tw
