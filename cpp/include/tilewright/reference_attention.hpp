// References in float64 of attention and its gradients: plain loops over the operands as a problem lays them out, packed
// sequences, pages and dropout included.
#pragma once
#include <tilewright/philox.h>
#include <tilewright/tilewright.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tw {
namespace reference {

inline double element(const void *array, Dtype type, int64_t index);

namespace traversal {

// One sequence: where its rows and keys begin and how many there are.
struct Sequence {
  int64_t first_row, rows, first_key, keys;
};

inline int64_t entry(const void *table, int64_t at) { return static_cast<const int32_t *>(table)[at]; }

template <class Args> Sequence sequence(const Args &a, int64_t b) {
  Sequence s{0, a.rows, 0, a.keys};
  if (a.starts_q) s.first_row = entry(a.starts_q, b), s.rows = entry(a.starts_q, b + 1) - s.first_row;
  if (a.starts_k) s.first_key = entry(a.starts_k, b), s.keys = entry(a.starts_k, b + 1) - s.first_key;
  if (a.lengths_q) s.rows = entry(a.lengths_q, b);
  if (a.lengths_k) s.keys = entry(a.lengths_k, b);
  return s;
}

// What a row sees, and its scores: window, mask, soft cap, bias and slopes.
template <class Args> struct Scores {
  const Args &a;
  Dtype bias_type;
  Sequence s;
  int64_t b, h;

  int64_t delta() const { return a.bottom_right ? s.keys - s.rows : 0; }
  int64_t four(const int64_t *t, int64_t i, int64_t j) const { return b * t[0] + h * t[1] + i * t[2] + j * t[3]; }
  bool sees(int64_t i, int64_t j) const {
    const bool left = a.window_left < 0 || j >= i + delta() - a.window_left || j < a.sink_keys;
    const bool right = a.window_right < 0 || j <= i + delta() + a.window_right;
    return left && right && (!a.mask || static_cast<const uint8_t *>(a.mask)[four(a.mask_strides, i, j)]);
  }
  double distance(int64_t i, int64_t j) const {
    const bool bounded = a.window_left >= 0 || a.window_right >= 0;
    return std::fabs(double(i + (bounded ? delta() : s.keys - s.rows) - j));
  }
  double capped(double product) const {
    return a.softcap > 0 ? a.softcap * std::tanh(a.scale * product / a.softcap) : a.scale * product;
  }
  double added(int64_t i, int64_t j) const {
    double sum = 0;
    if (a.bias) sum += element(a.bias, bias_type, four(a.bias_strides, i, j));
    if (a.alibi) sum -= element(a.alibi, Dtype::fp32, b * a.alibi_batch + h * a.alibi_head) * distance(i, j);
    return sum;
  }
  // What dropout multiplies an entry of the softmax by.
  double kept(int64_t i, int64_t j) const {
    if (a.dropout <= 0) return 1;
    const auto whole = [](const double *halves) { return uint64_t(halves[0]) | uint64_t(halves[1]) << 32; };
    const Dropout dropout = Dropout::of(a.dropout, whole(a.seed), whole(a.offset));
    const bool keeps = dropout.keeps(uint32_t(b * a.heads_q + h), uint32_t(i), uint32_t(j));
    return keeps ? 65536.0 / (65536.0 - double(dropout.threshold)) : 0;
  }
};

inline int64_t place(const tw_attention_strides &s, int64_t b, int64_t row, int64_t head, int64_t d) {
  return b * s.batch + row * s.row + head * s.head + d;
}

// The address of an element of a cache: `vector` contiguous elements of vectorised pages (k by elements, v by slots), 0 of
// others.
inline int64_t cached(const tw_attention_pages &pages, const tw_attention_strides &t, int64_t b, int64_t j,
                      int64_t head, int64_t d, int64_t size, int64_t vector, bool values) {
  if (!pages.table) return place(t, b, j, head, d);
  const int64_t first = pages.indptr ? entry(pages.indptr, b) : b * pages.stride;
  const int64_t page = entry(pages.table, first + j / pages.size), slot = j % pages.size;
  if (!vector) return place(t, page, slot, head, d);
  const int64_t start = page * t.batch + head * t.head;
  if (values) return start + (slot / vector * size + d) * vector + slot % vector;
  return start + (d / vector * pages.size + slot) * vector + d % vector;
}

inline double scale_at(const tw_attention_scales &s, int64_t b, int64_t head, int64_t row) {
  if (!s.at) return 1;
  const int64_t block = s.block_rows ? row / s.block_rows : 0;
  return element(s.at, Dtype::fp32, b * s.batch + head * s.head + block * s.block);
}

}  // namespace traversal

// o of attention, dense (batch, row, head, element; of packed rows one behind the other); `lse` (batch, head, row)
// where given.  Rows that no sequence has are 0.
inline std::vector<double> attention(const AttentionProblem &p, const AttentionOperands &o,
                                     std::vector<double> *lse = nullptr) {
  const tw_attention_args a = p.args(o);
  const int64_t lines = a.starts_q ? a.total_rows : a.batch * a.rows;
  std::vector<double> result(size_t(lines * a.heads_q * a.head_v)), score;
  if (lse) lse->assign(size_t(a.heads_q * lines), -HUGE_VAL);
  for (int64_t b = 0; b < a.batch; ++b) {
    traversal::Sequence s = traversal::sequence(a, b);
    if (a.pages.indptr) {
      const int64_t pages = traversal::entry(a.pages.indptr, b + 1) - traversal::entry(a.pages.indptr, b);
      s.keys = pages ? (pages - 1) * a.pages.size + traversal::entry(a.pages.last, b) : 0;
    }
    const int64_t vector = p.vectorised() ? 16 / bytes_of(p.dtype_kv()) : 0;
    const auto key = [&](int64_t j, int64_t head, int64_t d) {
      const int64_t at = traversal::cached(a.pages, a.k_strides, b, s.first_key + j, head, d, a.head_qk, vector, false);
      return element(a.k, p.dtype_kv(), at) * traversal::scale_at(a.k_scales, b, head, j);
    };
    const auto value = [&](int64_t j, int64_t head, int64_t d) {
      const int64_t at = traversal::cached(a.pages, a.v_strides, b, s.first_key + j, head, d, a.head_v, vector, true);
      return element(a.v, p.dtype_kv(), at) * traversal::scale_at(a.v_scales, b, head, j);
    };
    for (int64_t h = 0; h < a.heads_q; ++h)
      for (int64_t i = 0; i < s.rows; ++i) {
        const traversal::Scores<tw_attention_args> scores{a, p.dtype_bias(), s, b, h};
        const int64_t kv = h / (a.heads_q / a.heads_kv), line = (a.starts_q ? s.first_row : b * a.rows) + i;
        double most = a.sink ? element(a.sink, Dtype::fp32, h) : -HUGE_VAL;
        score.assign(size_t(s.keys), -HUGE_VAL);
        for (int64_t j = 0; j < s.keys; ++j) {
          if (!scores.sees(i, j)) continue;
          double product = 0;
          for (int64_t d = 0; d < a.head_qk; ++d)
            product += element(a.q, p.dtype_q(), traversal::place(a.q_strides, b, s.first_row + i, h, d)) *
                       traversal::scale_at(a.q_scales, b, h, i) * key(j, kv, d);
          score[size_t(j)] = scores.capped(product) + scores.added(i, j);
          most = score[size_t(j)] > most ? score[size_t(j)] : most;
        }
        if (most == -HUGE_VAL) continue;
        double sum = a.sink ? std::exp(element(a.sink, Dtype::fp32, h) - most) : 0;
        double *row = &result[size_t((line * a.heads_q + h) * a.head_v)];
        for (int64_t j = 0; j < s.keys; ++j) {
          const double weight = std::exp(score[size_t(j)] - most), kept = weight * scores.kept(i, j);
          sum += weight;
          if (kept == 0) continue;
          for (int64_t d = 0; d < a.head_v; ++d) row[d] += kept * value(j, kv, d);
        }
        for (int64_t d = 0; d < a.head_v; ++d) row[d] /= sum;
        if (lse)
          (*lse)[size_t(a.starts_q ? h * a.total_rows + line : (b * a.heads_q + h) * a.rows + i)] =
              most + std::log(sum);
      }
  }
  return result;
}

// What an append is to leave of its new rows, dense (batch, row, head, element): in the caches, before these round it,
// and of queries that are rotated too.
struct Appended {
  std::vector<double> k, v, q;
};

inline Appended append(const AttentionAppendProblem &p, const AttentionAppendOperands &o) {
  const tw_attention_append_args a = p.args(o);
  Appended appended;
  const auto rotated = [&](const void *rows, const tw_attention_strides &t, int64_t b, int64_t i, int64_t h,
                           int64_t d) {
    const auto at = [&](int64_t e) { return element(rows, p.dtype(), traversal::place(t, b, i, h, e)); };
    const int64_t half = a.rotary / 2, where = traversal::entry(a.lengths, b) + i;
    if (d >= a.rotary) return at(d);
    const bool halves = p.rotary() == Rotary::half, first = halves ? d < half : d % 2 == 0;
    const int64_t pair = halves ? d % half : d / 2, other = halves ? (first ? d + half : d - half) : d ^ 1;
    const double c = element(a.cos, p.dtype_rotary(), where * a.table_stride + pair),
                 s = element(a.sin, p.dtype_rotary(), where * a.table_stride + pair);
    return first ? at(d) * c - at(other) * s : at(d) * c + at(other) * s;
  };
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t i = 0; i < a.rows; ++i) {
      const int64_t where = traversal::entry(a.lengths, b) + i;
      for (int64_t h = 0; h < a.heads_kv; ++h) {
        for (int64_t d = 0; d < a.head_qk; ++d)
          appended.k.push_back(rotated(a.k, a.k_strides, b, i, h, d) / traversal::scale_at(a.k_scales, b, h, where));
        for (int64_t d = 0; d < a.head_v; ++d)
          appended.v.push_back(element(a.v, p.dtype(), traversal::place(a.v_strides, b, i, h, d)) /
                               traversal::scale_at(a.v_scales, b, h, where));
      }
      for (int64_t h = 0; a.q && h < a.heads_q; ++h)
        for (int64_t d = 0; d < a.head_qk; ++d) appended.q.push_back(rotated(a.q, a.q_strides, b, i, h, d));
    }
  return appended;
}

// What the caches hold of these rows, in the same order.
inline Appended appended(const AttentionAppendProblem &p, const AttentionAppendOperands &o) {
  const tw_attention_append_args a = p.args(o);
  const int64_t vector = p.vectorised() ? 16 / bytes_of(p.dtype_cache()) : 0;
  Appended held;
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t i = 0; i < a.rows; ++i)
      for (int64_t h = 0; h < a.heads_kv; ++h) {
        const int64_t j = traversal::entry(a.lengths, b) + i;
        const auto of = [&](const void *cache, const tw_attention_strides &t, int64_t d, int64_t size, bool values) {
          return element(cache, p.dtype_cache(), traversal::cached(a.pages, t, b, j, h, d, size, vector, values));
        };
        for (int64_t d = 0; d < a.head_qk; ++d) held.k.push_back(of(a.cache_k, a.cache_k_strides, d, a.head_qk, false));
        for (int64_t d = 0; d < a.head_v; ++d) held.v.push_back(of(a.cache_v, a.cache_v_strides, d, a.head_v, true));
      }
  return held;
}

// Gradients of attention, dense as q, k and v are; of a bias, of slopes and of sinks where the problem asks for them.
struct Gradients {
  std::vector<double> dq, dk, dv, dbias, dalibi, dsink;
};

namespace traversal {

// The backward pass of one row of one head; weights and products are by keys.
struct BackwardRow {
  const tw_attention_backward_args &a;
  const AttentionBackwardOperands &o;
  Dtype type;
  Scores<tw_attention_backward_args> scores;
  int64_t i, kv;
  std::vector<double> weight = {}, product = {}, along = {};  // the softmax, q . k, dout . v
  double sink = 0;                                            // the softmax of the sink's column

  double q(int64_t d) const {
    return element(a.q, type, place(a.q_strides, scores.b, scores.s.first_row + i, scores.h, d));
  }
  double dout(int64_t d) const {
    return element(a.dout, type, place(a.dout_strides, scores.b, scores.s.first_row + i, scores.h, d));
  }
  double k(int64_t j, int64_t d) const {
    return element(a.k, type, place(a.k_strides, scores.b, scores.s.first_key + j, kv, d));
  }
  double v(int64_t j, int64_t d) const {
    return element(a.v, type, place(a.v_strides, scores.b, scores.s.first_key + j, kv, d));
  }
  int64_t line() const { return (a.starts_q ? scores.s.first_row : scores.b * a.rows) + i; }
  double dlse() const {
    if (!o.dlse_at) return 0;
    const int64_t head = a.starts_q ? scores.h * a.total_rows : (scores.b * a.heads_q + scores.h) * a.rows;
    return element(o.dlse_at, Dtype::fp32, a.starts_q ? head + line() : head + i);
  }
  // False where the row sees nothing.
  bool softmax() {
    const size_t keys = size_t(scores.s.keys);
    const double logit = o.sink_at ? element(o.sink_at, Dtype::fp32, scores.h) : -HUGE_VAL;
    double most = logit, sum = 0;
    weight.assign(keys, -HUGE_VAL), product.assign(keys, 0), along.assign(keys, 0);
    for (int64_t j = 0; j < scores.s.keys; ++j) {
      if (!scores.sees(i, j)) continue;
      for (int64_t d = 0; d < a.head_qk; ++d) product[size_t(j)] += q(d) * k(j, d);
      for (int64_t d = 0; d < a.head_v; ++d) along[size_t(j)] += dout(d) * v(j, d);
      weight[size_t(j)] = scores.capped(product[size_t(j)]) + scores.added(i, j);
      most = std::max(most, weight[size_t(j)]);
    }
    if (most == -HUGE_VAL) return false;
    for (double &w : weight) w = std::exp(w - most), sum += w;
    sum += sink = std::exp(logit - most);
    for (double &w : weight) w /= sum;
    return sink /= sum, true;
  }
  // The sum of p z (dout . v), less what the gradient of lse brings.
  double delta() const {
    double sum = -dlse();
    for (int64_t j = 0; j < scores.s.keys; ++j)
      if (weight[size_t(j)] != 0) sum += weight[size_t(j)] * scores.kept(i, j) * along[size_t(j)];
    return sum;
  }
  void add_to(Gradients &g) const {
    const double less = delta();
    for (int64_t j = 0; j < scores.s.keys; ++j)
      if (weight[size_t(j)] != 0) add_to(g, j, less);
    if (!g.dsink.empty()) g.dsink[size_t(scores.h)] -= sink * less;
  }

 private:
  void add_to(Gradients &g, int64_t j, double less) const {
    const int64_t column = (a.starts_k ? scores.s.first_key : scores.b * a.keys) + j;
    const double share = weight[size_t(j)], kept = scores.kept(i, j), cap = scores.capped(product[size_t(j)]);
    const double ds = share * (kept * along[size_t(j)] - less);
    const double slope = a.softcap > 0 ? ds * (1 - cap * cap / (a.softcap * a.softcap)) : ds;
    for (int64_t d = 0; d < a.head_qk; ++d) {
      g.dq[size_t((line() * a.heads_q + scores.h) * a.head_qk + d)] += a.scale * slope * k(j, d);
      g.dk[size_t((column * a.heads_kv + kv) * a.head_qk + d)] += a.scale * slope * q(d);
    }
    for (int64_t d = 0; d < a.head_v; ++d)
      g.dv[size_t((column * a.heads_kv + kv) * a.head_v + d)] += share * kept * dout(d);
    if (a.dbias) g.dbias[size_t(scores.four(a.dbias_strides, i, j))] += ds;
    g.dalibi[size_t(scores.h)] -= ds * scores.distance(i, j);
  }
};

// Nothing yet, of the sizes of a problem's gradients.
inline Gradients no_gradients(const tw_attention_backward_args &a, bool with_sinks) {
  Gradients g;
  const int64_t lines = a.starts_q ? a.total_rows : a.batch * a.rows,
                keys = a.starts_k ? a.total_keys : a.batch * a.keys;
  g.dq.assign(size_t(lines * a.heads_q * a.head_qk), 0), g.dk.assign(size_t(keys * a.heads_kv * a.head_qk), 0);
  g.dv.assign(size_t(keys * a.heads_kv * a.head_v), 0), g.dalibi.assign(size_t(a.heads_q), 0);
  g.dsink.assign(size_t(with_sinks ? a.heads_q : 0), 0);
  const int64_t sizes[] = {a.batch, a.heads_q, a.rows, a.keys};
  int64_t elements = 1;
  for (int64_t i = 0; i < 4; ++i) elements = std::max(elements, a.dbias_strides[i] * sizes[i]);
  g.dbias.assign(size_t(a.dbias ? elements : 0), 0);
  return g;
}

}  // namespace traversal

// Sinks and dlse count where operands have them.
inline Gradients attention_backward(const AttentionBackwardProblem &p, const AttentionBackwardOperands &o) {
  char between[1];
  Gradients g;
  p.with_args(1, o, between, [&](const void *args) {
    const tw_attention_backward_args &a = *static_cast<const tw_attention_backward_args *>(args);
    g = traversal::no_gradients(a, o.dsink_at != nullptr);
    for (int64_t b = 0; b < a.batch; ++b)
      for (int64_t h = 0; h < a.heads_q; ++h) {
        const traversal::Sequence s = traversal::sequence(a, b);
        for (int64_t i = 0; i < s.rows; ++i) {
          traversal::BackwardRow row{a, o, p.dtype(), {a, p.dtype_bias(), s, b, h}, i, h / (a.heads_q / a.heads_kv)};
          if (row.softmax()) row.add_to(g);
        }
      }
  });
  return g;
}

}  // namespace reference
}  // namespace tw
