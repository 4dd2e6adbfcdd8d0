// Gradients of attention: dq, dk and dv of dout, in two or three stages (dot, grad, and convert where grad leaves sums).
#pragma once
#include <tilewright/attention_backward_args.h>
#include <tilewright/plan_key.hpp>
#include <tilewright/problem.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace tw {

// Where the operands of attention's gradients lie.  `lse` is what the forward pass gave, of fp32; so are dlse and the
// gradients of bias, slopes and sinks.
struct AttentionBackwardOperands {
  const void *q_at = nullptr, *k_at = nullptr, *v_at = nullptr, *out_at = nullptr, *dout_at = nullptr,
             *lse_at = nullptr, *dlse_at = nullptr;
  void *dq_at = nullptr, *dk_at = nullptr, *dv_at = nullptr, *dbias_at = nullptr, *dalibi_at = nullptr,
       *dsink_at = nullptr;
  const void *mask_at = nullptr, *bias_at = nullptr, *alibi_at = nullptr, *sink_at = nullptr;
  const void *starts_q_at = nullptr, *starts_k_at = nullptr, *lengths_q_at = nullptr, *lengths_k_at = nullptr;
  double scale_is = 0, softcap_is = 0, dropout_is = 0;
  uint64_t seed_is = 0, offset_is = 0;

  using Self = AttentionBackwardOperands;
  Self &q(const void *at) { return q_at = at, *this; }
  Self &k(const void *at) { return k_at = at, *this; }
  Self &v(const void *at) { return v_at = at, *this; }
  Self &out(const void *at) { return out_at = at, *this; }
  Self &dout(const void *at) { return dout_at = at, *this; }
  Self &lse(const void *at) { return lse_at = at, *this; }
  Self &dlse(const void *at) { return dlse_at = at, *this; }
  Self &dq(void *at) { return dq_at = at, *this; }
  Self &dk(void *at) { return dk_at = at, *this; }
  Self &dv(void *at) { return dv_at = at, *this; }
  Self &dbias(void *at) { return dbias_at = at, *this; }
  Self &dalibi(void *at) { return dalibi_at = at, *this; }
  Self &dsink(void *at) { return dsink_at = at, *this; }
  Self &mask(const void *at) { return mask_at = at, *this; }
  Self &bias(const void *at) { return bias_at = at, *this; }
  Self &alibi_slopes(const void *at) { return alibi_at = at, *this; }
  Self &sink(const void *at) { return sink_at = at, *this; }
  Self &cu_seqlens_q(const void *at) { return starts_q_at = at, *this; }
  Self &cu_seqlens_k(const void *at) { return starts_k_at = at, *this; }
  Self &seqlens_q(const void *at) { return lengths_q_at = at, *this; }
  Self &seqlens_k(const void *at) { return lengths_k_at = at, *this; }
  Self &scale(double value) { return scale_is = value, *this; }  // 0: 1 / sqrt(head_dim)
  Self &softcap(double value) { return softcap_is = value, *this; }
  Self &dropout(double chance, uint64_t seed, uint64_t offset = 0) {
    return dropout_is = chance, seed_is = seed, offset_is = offset, *this;
  }
};

// Which results `grad` leaves as sums of fp32 to a third stage; kernels of CPUs leave none.
enum class Sums { none, dq, dkv, all };

// Rows of heads lie one behind the other (batch, row, head, element) unless strides (batch, row, head) say otherwise.
class AttentionBackwardProblem {
 public:
  using Operands = AttentionBackwardOperands;
  using Strides = std::array<int64_t, 3>;
  using Shape = std::array<int64_t, 4>;  // sequences, heads, rows, keys; 1 where it repeats
  using Self = AttentionBackwardProblem;
  enum Operand { q, k, v, out, dout, dq, dk, dv };

  AttentionBackwardProblem(int64_t batch, int64_t heads, int64_t seqlen_q, int64_t seqlen_k, int64_t head_dim)
      : batch_(batch),
        heads_q_(heads),
        heads_kv_(heads),
        rows_(seqlen_q),
        keys_(seqlen_k),
        head_(head_dim),
        head_v_(head_dim) {}

  Self &heads_kv(int64_t count) { return heads_kv_ = count, *this; }
  Self &head_dim_v(int64_t size) { return head_v_ = size, *this; }
  Self &dtype(Dtype type) { return type_ = type, *this; }
  Self &causal(bool bottom_right = false) { return window(-1, 0, bottom_right); }
  Self &window(int64_t left, int64_t right, bool bottom_right = false) {
    return left_ = left, right_ = right, bottom_right_ = bottom_right, *this;
  }
  Self &sink_tokens(int64_t count) { return sinks_ = count, *this; }
  Self &bias(Shape shape, Dtype type = Dtype::fp32) { return bias_kind_ = 1, bias_ = shape, aux_ = type, *this; }
  Self &alibi(bool with = true) { return bias_kind_ = with ? 2 : 0, *this; }
  Self &mask(Shape shape) { return masked_ = true, mask_ = shape, *this; }
  Self &softcap(bool with = true) { return softcap_ = with, *this; }
  Self &dropout(bool with = true) { return dropout_ = with, *this; }
  Self &varlen(int64_t total_q, int64_t total_k) {
    return varlen_ = true, total_q_ = total_q, total_k_ = total_k, *this;
  }
  Self &seqlens_q(bool with = true) { return lengths_q_ = with, *this; }
  Self &seqlens_k(bool with = true) { return lengths_k_ = with, *this; }
  Self &dlse(bool with = true) { return dlse_ = with, *this; }    // lse has a gradient too
  Self &dsink(bool with = true) { return dsink_ = with, *this; }  // these are asked for besides
  Self &dbias(bool with = true) { return dbias_ = with, *this; }
  Self &dalibi(bool with = true) { return dalibi_ = with, *this; }
  Self &deterministic(bool same_bits = true) { return deterministic_ = same_bits, *this; }
  // `dkv_parts`: sums of dk and dv that a head of keys has, where they are left; 0: one a query head.
  Self &sums(Sums left, int64_t dkv_parts = 0) { return sums_ = left, parts_ = dkv_parts, *this; }
  Self &strides(Operand which, Strides s) { return strides_[which] = s, has_[which] = true, *this; }
  Self &aligned(bool to_16_bytes) { return aligned_ = to_16_bytes, *this; }

  int64_t batch() const { return batch_; }
  int64_t heads_q() const { return heads_q_; }
  int64_t heads_kv() const { return heads_kv_; }
  int64_t seqlen_q() const { return rows_; }
  int64_t seqlen_k() const { return keys_; }
  int64_t head_dim() const { return head_; }
  int64_t head_dim_v() const { return head_v_; }
  Dtype dtype() const { return type_; }
  Dtype dtype_bias() const { return aux_; }

  // Throws the rule that the problem breaks.
  void check() const {
    constexpr int64_t kMost = (int64_t(1) << 31) - 1, kMostHead = 576;
    const std::pair<const char *, int64_t> counts[] = {{"batch", batch_},
                                                       {"seqlen_q", rows_},
                                                       {"seqlen_k", keys_},
                                                       {"total_q", varlen_ ? total_q_ : 0},
                                                       {"total_k", varlen_ ? total_k_ : 0},
                                                       {"sink_tokens", sinks_}};
    for (const auto &count : counts) detail::demand_size(count.first, count.second, 0, kMost);
    detail::demand_size("heads_q", heads_q_, 1, kMost), detail::demand_size("heads_kv", heads_kv_, 1, kMost);
    detail::demand_size("head_dim", head_, 1, kMost), detail::demand_size("head_dim_v", head_v_, 1, kMost);
    refuse_if(parts_ < 0 || parts_ > 1024, "dkv-parts", parts_, "parts of sums of dk and dv",
              "use 1 to 1024, or 0 for one a query head");
    refuse_if(heads_q_ % heads_kv_ != 0, "heads-divide", heads_kv_, "query heads do not share heads of keys evenly",
              "use a divisor of the query heads");
    refuse_if(head_ > kMostHead || head_v_ > kMostHead, "head-size", head_ > head_v_ ? head_ : head_v_,
              "heads have at most 576 elements", "use 1 to 576");
    refuse_if(left_ < -1 || right_ < -1, "window", left_ < -1 ? left_ : right_, "a window under -1",
              "use 0 or more, or -1 for no bound");
    if (bias_kind_ == 1) demand_repeats("bias-shape", bias_);
    if (masked_) demand_repeats("mask-shape", mask_);
    const bool wide = type_ == Dtype::fp32 || type_ == Dtype::fp16 || type_ == Dtype::bf16;
    refuse_if(!wide, "dtype-input", int64_t(type_), std::string("attention of ") + name_of(type_) + " has no gradients",
              "use fp32, fp16 or bf16");
    refuse_if(bias_kind_ == 1 && aux_ != Dtype::fp32 && aux_ != type_, "dtype-bias", int64_t(aux_),
              std::string("a bias of ") + name_of(aux_), "use fp32, or the type of the queries");
    refuse_if(dbias_ && bias_kind_ != 1, "dbias-bias", bias_kind_, "the gradient of a bias that is not there",
              "describe the bias, or leave it out");
    refuse_if(dalibi_ && bias_kind_ != 2, "dalibi-bias", bias_kind_, "the gradient of slopes that are not there",
              "use alibi(), or leave it out");
    static const char *const names[] = {"q", "k", "v", "o", "do", "dq", "dk", "dv"};
    for (int which = q; which <= dv; ++which) {
      const Shape full = shape(which);
      const Strides s = has_[which] ? strides_[which] : Strides{};
      const int64_t steps[] = {s[0], s[1], s[2], 1};
      detail::demand_span(names[which], full.data(), 4, has_[which] ? steps : nullptr);
      if (which >= dq && has_[which]) detail::demand_apart(names[which], full.data(), 4, steps);
    }
  }

  Described described(bool said = true) const { return stage(1).described_stage(1, said); }
  detail::PlanKey key() const {
    detail::PlanKey key(4);
    key.add(batch_, heads_q_, heads_kv_, rows_, keys_, head_, head_v_, left_, right_, sinks_, bias_kind_, total_q_,
            total_k_, int64_t(type_), int64_t(aux_), int64_t(sums_), parts_);
    key.add(bottom_right_, masked_, softcap_, dropout_, varlen_, lengths_q_, lengths_k_, dlse_, dsink_, dbias_, dalibi_,
            deterministic_, aligned_);
    for (const Shape *shape : {&bias_, &mask_}) key.add((*shape)[0], (*shape)[1], (*shape)[2], (*shape)[3]);
    for (int which = q; which <= dv; ++which)
      key.add(has_[which] ? 1 : 0, strides_[which][0], strides_[which][1], strides_[which][2]);
    return key;
  }

  std::vector<Described> stages() const {
    std::vector<Described> all = {stage(0).described_stage(0, false), stage(1).described_stage(1, false)};
    if (sums_ != Sums::none) all.push_back(stage(2).described_stage(2, false));
    return all;
  }
  // The problem whose pins and measurements this one shares: dense, where heads lie inside of rows.
  std::vector<int64_t> measured(size_t which) const {
    Self p = stage(int(which));
    bool usual = true;
    for (int operand : {q, k, dout}) {
      const Strides s = p.strides(operand);
      usual = usual && (s[1] > s[2] || !s[1]);
    }
    if (usual) {
      for (bool &has : p.has_) has = false;
      p.aligned_ = true;
    }
    return p.described_stage(int(which), false).values;
  }
  int64_t between_bytes() const { return sums_at(3); }
  template <class Use> void with_args(size_t which, const AttentionBackwardOperands &o, char *between, Use use) const {
    demand_operands(o);
    if (which == 0) {
      const tw_attention_backward_dot_args arguments = dot_args(o, between);
      use(&arguments);
    } else if (which == 1) {
      const tw_attention_backward_args arguments = grad_args(o, between);
      use(&arguments);
    } else {
      const tw_attention_backward_convert_args arguments = convert_args(o, between);
      use(&arguments);
    }
  }
  static const char *table_at(size_t, size_t) { return "a table of lengths"; }

 private:
  static constexpr int64_t kRows = TW_ATTENTION_BACKWARD_ROWS;

  static void refuse_if(bool broken, const char *rule, int64_t value, const std::string &why, const char *remedy) {
    if (broken)
      throw detail::request_error(rule, std::to_string(value), why + " (" + std::to_string(value) + ")", remedy);
  }
  void demand_repeats(const char *rule, const Shape &shape) const {
    const Shape full = {batch_, heads_q_, rows_, keys_};
    for (size_t i = 0; i < full.size(); ++i)
      refuse_if(shape[i] != 1 && shape[i] != full[i], rule, shape[i],
                "dimension " + std::to_string(i) + " does not go with " + std::to_string(full[i]),
                "give the problem's own size, or 1 where it repeats");
  }
  bool bounded() const { return left_ >= 0 || right_ >= 0; }
  int64_t sinks() const { return left_ < 0 ? 0 : sinks_; }
  bool bottom_right() const { return bottom_right_ && bounded(); }
  bool sums_dq() const { return sums_ == Sums::dq || sums_ == Sums::all; }
  bool sums_dkv() const { return sums_ == Sums::dkv || sums_ == Sums::all; }
  int64_t dkv_heads() const { return !sums_dkv() ? heads_kv_ : parts_ > 0 ? heads_kv_ * parts_ : heads_q_; }

  Shape shape(int which) const {  // sequences, rows, heads, elements
    const bool keys = which == k || which == v || which == dk || which == dv;
    const int64_t size = which == v || which == out || which == dout || which == dv ? head_v_ : head_;
    if (keys) return {varlen_ ? 1 : batch_, varlen_ ? total_k_ : keys_, heads_kv_, size};
    return {varlen_ ? 1 : batch_, varlen_ ? total_q_ : rows_, heads_q_, size};
  }
  Strides strides(int which) const {
    if (has_[which]) return strides_[which];
    const Shape s = shape(which);
    return {varlen_ ? 0 : s[1] * s[2] * s[3], s[2] * s[3], s[3]};
  }
  tw_attention_strides plain(int which) const {
    const Strides s = strides(which);
    return {s[0], s[1], s[2]};
  }

  // -- what stages hand on --------------------------------------------------------------------------------------------

  int64_t prepared_rows(bool keys) const {
    const int64_t rows = keys ? keys_ : rows_, total = keys ? total_k_ : total_q_;
    return varlen_ ? (total / kRows + (batch_ > 1 ? batch_ : 1)) * kRows : (rows + kRows - 1) / kRows * kRows;
  }
  int64_t sequences() const { return varlen_ ? 1 : batch_; }
  static int64_t lines(int64_t elements) { return (4 * elements + 63) / 64 * 64; }
  // Behind delta and lse_log2: the sums of dq, dk and dv, as far as there are; 3 is the end.
  int64_t sums_at(int which) const {
    int64_t at = 2 * lines(sequences() * heads_q_ * prepared_rows(false));
    if (which > 0 && sums_dq()) at += lines(sequences() * heads_q_ * prepared_rows(false) * head_);
    if (which > 1 && sums_dkv()) at += lines(sequences() * dkv_heads() * prepared_rows(true) * head_);
    if (which > 2 && sums_dkv()) at += lines(sequences() * dkv_heads() * prepared_rows(true) * head_v_);
    return at;
  }
  tw_attention_strides sums_strides(int which) const {  // 0: dq, 1: dk, 2: dv
    const int64_t rows = prepared_rows(which > 0), heads = which ? dkv_heads() : heads_q_,
                  size = which == 2 ? head_v_ : head_;
    return {varlen_ ? 0 : heads * rows * size, size, rows * size};
  }

  // -- arguments ------------------------------------------------------------------------------------------------------

  tw_attention_backward_dot_args dot_args(const AttentionBackwardOperands &o, char *between) const {
    tw_attention_backward_dot_args a{};
    a.batch = batch_, a.heads_q = heads_q_, a.rows = rows_, a.head_v = head_v_, a.total_rows = varlen_ ? total_q_ : 0;
    a.out = o.out_at, a.dout = o.dout_at, a.out_strides = plain(out), a.dout_strides = plain(dout);
    a.lse = o.lse_at, a.dlse = dlse_ ? o.dlse_at : nullptr;
    const auto one_or = [](int64_t size) { return size > 1 ? size : 1; };
    a.lse_batch = a.dlse_batch = varlen_ ? 0 : one_or(heads_q_ * rows_);
    a.lse_head = a.dlse_head = one_or(varlen_ ? total_q_ : rows_);
    a.starts_q = varlen_ ? o.starts_q_at : nullptr, a.lengths_q = lengths_q_ ? o.lengths_q_at : nullptr;
    a.delta = between, a.lse_log2 = between + lines(sequences() * heads_q_ * prepared_rows(false));
    a.prepared_head = prepared_rows(false), a.prepared_batch = varlen_ ? 0 : heads_q_ * a.prepared_head;
    a.sink = dsink_ ? o.sink_at : nullptr, a.dsink = dsink_ ? o.dsink_at : nullptr;
    return a;
  }

  tw_attention_backward_args grad_args(const AttentionBackwardOperands &o, char *between) const {
    tw_attention_backward_args a{};
    sizes(a);
    a.q = o.q_at, a.k = o.k_at, a.v = o.v_at, a.dout = o.dout_at;
    a.q_strides = plain(q), a.k_strides = plain(k), a.v_strides = plain(v), a.dout_strides = plain(dout);
    a.dq = sums_dq() ? between + sums_at(0) : o.dq_at, a.dq_strides = sums_dq() ? sums_strides(0) : plain(dq);
    a.dk = sums_dkv() ? between + sums_at(1) : o.dk_at, a.dk_strides = sums_dkv() ? sums_strides(1) : plain(dk);
    a.dv = sums_dkv() ? between + sums_at(2) : o.dv_at, a.dv_strides = sums_dkv() ? sums_strides(2) : plain(dv);
    const tw_attention_backward_dot_args prepared = dot_args(o, between);
    a.delta = prepared.delta, a.lse_log2 = prepared.lse_log2;
    a.prepared_batch = prepared.prepared_batch, a.prepared_head = prepared.prepared_head;
    a.dkv_heads = dkv_heads(), a.deterministic = deterministic_;
    tables(a, o);
    a.window_left = left_, a.window_right = right_, a.bottom_right = bottom_right(), a.sink_keys = sinks();
    if (masked_) a.mask = o.mask_at, repeat(mask_, a.mask_strides);
    if (bias_kind_ == 1) a.bias = o.bias_at, repeat(bias_, a.bias_strides);
    if (dbias_) a.dbias = o.dbias_at, repeat(bias_, a.dbias_strides);
    if (bias_kind_ == 2) a.alibi = o.alibi_at, a.alibi_head = 1;
    if (dalibi_) a.dalibi = o.dalibi_at, a.dalibi_head = 1;
    a.scale = scale(o), a.softcap = softcap_ ? o.softcap_is : 0, a.dropout = dropout_ ? o.dropout_is : 0;
    a.seed[0] = double(o.seed_is & 0xffffffffu), a.seed[1] = double(o.seed_is >> 32);
    a.offset[0] = double(o.offset_is & 0xffffffffu), a.offset[1] = double(o.offset_is >> 32);
    return a;
  }

  tw_attention_backward_convert_args convert_args(const AttentionBackwardOperands &o, char *between) const {
    tw_attention_backward_convert_args a{};
    sizes(a), tables(a, o);
    const int64_t parts = dkv_heads() / heads_kv_;
    if (sums_dq()) a.dq = {between + sums_at(0), o.dq_at, 1, sums_strides(0), plain(dq)};
    if (sums_dkv()) a.dk = {between + sums_at(1), o.dk_at, parts, sums_strides(1), plain(dk)};
    if (sums_dkv()) a.dv = {between + sums_at(2), o.dv_at, parts, sums_strides(2), plain(dv)};
    a.scale = scale(o);
    return a;
  }

  template <class Args> void sizes(Args &a) const {
    a.batch = batch_, a.heads_q = heads_q_, a.heads_kv = heads_kv_, a.rows = rows_, a.keys = keys_;
    a.head_qk = head_, a.head_v = head_v_;
    a.total_rows = varlen_ ? total_q_ : 0, a.total_keys = varlen_ ? total_k_ : 0;
  }
  template <class Args> void tables(Args &a, const AttentionBackwardOperands &o) const {
    a.starts_q = varlen_ ? o.starts_q_at : nullptr, a.starts_k = varlen_ ? o.starts_k_at : nullptr;
    a.lengths_q = lengths_q_ ? o.lengths_q_at : nullptr, a.lengths_k = lengths_k_ ? o.lengths_k_at : nullptr;
  }
  double scale(const AttentionBackwardOperands &o) const {
    return o.scale_is != 0 ? o.scale_is : std::pow(double(head_), -0.5);
  }
  static void repeat(const Shape &shape, int64_t *strides) {
    int64_t step = 1;
    for (int i = 3; i >= 0; --i) {
      strides[i] = shape[size_t(i)] == 1 ? 0 : step;
      step *= shape[size_t(i)] > 1 ? shape[size_t(i)] : 1;
    }
  }

  void demand_operands(const AttentionBackwardOperands &o) const {
    const bool rows = batch_ && (varlen_ ? total_q_ : rows_), keys = batch_ && (varlen_ ? total_k_ : keys_);
    const struct {
      bool wanted;
      const void *at;
      const char *name;
    } all[] = {{rows, o.q_at, "q"},
               {rows, o.out_at, "out"},
               {rows, o.dout_at, "dout"},
               {rows, o.lse_at, "lse"},
               {rows, o.dq_at, "dq"},
               {keys, o.k_at, "k"},
               {keys, o.v_at, "v"},
               {keys, o.dk_at, "dk"},
               {keys, o.dv_at, "dv"},
               {rows && dlse_, o.dlse_at, "dlse"},
               {rows && masked_, o.mask_at, "mask"},
               {rows && bias_kind_ == 1, o.bias_at, "bias"},
               {rows && bias_kind_ == 2, o.alibi_at, "alibi_slopes"},
               {dbias_, o.dbias_at, "dbias"},
               {dalibi_, o.dalibi_at, "dalibi"},
               {dsink_, o.sink_at, "sink"},
               {dsink_, o.dsink_at, "dsink"},
               {varlen_, o.starts_q_at, "cu_seqlens_q"},
               {varlen_, o.starts_k_at, "cu_seqlens_k"},
               {lengths_q_, o.lengths_q_at, "seqlens_q"},
               {lengths_k_, o.lengths_k_at, "seqlens_k"}};
    for (const auto &one : all)
      if (one.wanted && !one.at)
        throw detail::request_error("operand-missing", one.name,
                                    std::string("the problem has an operand ") + one.name + ", and it is null",
                                    std::string("give it with AttentionBackwardOperands::") + one.name + "()");
  }

  // -- stages as selection takes them ---------------------------------------------------------------------------------

  // The problem of one kernel: what it does not read has its default.
  Self stage(int family) const {
    Self p = *this;
    if (family == 1) return p.dlse_ = p.dsink_ = false, p.has_[out] = false, p;
    p.bottom_right_ = p.masked_ = p.softcap_ = p.dropout_ = p.dbias_ = p.dalibi_ = false;
    p.left_ = p.right_ = -1, p.sinks_ = p.bias_kind_ = 0, p.aux_ = Dtype::fp32;
    if (family == 2) {
      p.dlse_ = p.dsink_ = false;
      for (int which : {q, k, v, out, dout}) p.has_[which] = false;
      if (!sums_dq()) p.has_[dq] = false;
      if (!sums_dkv()) p.has_[dk] = p.has_[dv] = false;
      return p;
    }
    for (int which : {q, k, v, dq, dk, dv}) p.has_[which] = false;
    p.keys_ = p.total_k_ = 0, p.heads_kv_ = heads_q_, p.head_ = head_v_, p.lengths_k_ = false, p.sums_ = Sums::none,
    p.parts_ = 0;
    return p;
  }

  Described described_stage(int family, bool said) const {
    static const char *const names[] = {
        "family",      "batch",         "heads_q",    "heads_kv",   "seqlen_q",     "seqlen_k",    "head_dim",
        "head_dim_v",  "type",          "size",       "size_aux",   "bottom_right", "window_left", "window_right",
        "sink_tokens", "bias",          "bias_batch", "bias_heads", "bias_rows",    "bias_keys",   "masked",
        "mask_batch",  "mask_heads",    "mask_rows",  "mask_keys",  "softcap",      "dropout",     "varlen",
        "total_q",     "total_k",       "seqlens_q",  "seqlens_k",  "dlse",         "dsink",       "dbias",
        "dalibi",      "deterministic", "accumulate", "q_batch",    "q_row",        "q_head",      "k_batch",
        "k_row",       "k_head",        "v_batch",    "v_row",      "v_head",       "o_batch",     "o_row",
        "o_head",      "do_batch",      "do_row",     "do_head",    "dq_batch",     "dq_row",      "dq_head",
        "dk_batch",    "dk_row",        "dk_head",    "dv_batch",   "dv_row",       "dv_head",     "aligned",
        "dkv_parts"};
    const Shape none = {1, 1, 1, 1}, b = bias_kind_ == 1 ? bias_ : none, m = masked_ ? mask_ : none;
    constexpr int64_t kWide = int64_t(1) << 40;
    const int64_t type = type_ == Dtype::fp32 ? 0 : type_ == Dtype::fp16 ? 1 : type_ == Dtype::bf16 ? 2 : -1;
    std::vector<int64_t> values = {family,
                                   batch_,
                                   heads_q_,
                                   heads_kv_,
                                   rows_,
                                   keys_,
                                   head_,
                                   head_v_,
                                   type,
                                   bytes_of(type_),
                                   bytes_of(aux_),
                                   bottom_right(),
                                   left_ < kWide ? left_ : kWide,
                                   right_ < kWide ? right_ : kWide,
                                   sinks(),
                                   bias_kind_,
                                   b[0],
                                   b[1],
                                   b[2],
                                   b[3],
                                   masked_,
                                   m[0],
                                   m[1],
                                   m[2],
                                   m[3],
                                   softcap_,
                                   dropout_,
                                   varlen_,
                                   varlen_ ? total_q_ : 0,
                                   varlen_ ? total_k_ : 0,
                                   lengths_q_,
                                   lengths_k_,
                                   dlse_,
                                   dsink_,
                                   dbias_,
                                   dalibi_,
                                   deterministic_,
                                   int64_t(sums_)};
    for (int which = q; which <= dv; ++which)
      for (int64_t stride : strides(which)) values.push_back(stride);
    values.push_back(aligned_), values.push_back(dkv_heads() / (heads_kv_ > 1 ? heads_kv_ : 1));
    return {"attention_backward", signature(family), said ? text() : std::string(), names, std::move(values)};
  }

  static int64_t head_class(int64_t size) {
    for (int64_t most : {32, 64, 96, 128, 160, 192, 256, 512, 576})
      if (most >= size) return most;
    return size;
  }
  std::string signature(int family) const {
    static const char *const biases[] = {"none", "tensor", "alibi"}, *const families[] = {"dot", "grad", "convert"},
                             *const kinds[] = {"none", "dq", "dkv", "all"};
    return detail::Signature()
        .text("accumulate", kinds[int(sums_)])
        .text("bias", biases[bias_kind_])
        .flag("dalibi", dalibi_)
        .flag("dbias", dbias_)
        .flag("dlse", dlse_)
        .flag("dropout", dropout_)
        .flag("dsink", dsink_)
        .text("dtype", name_of(type_))
        .text("dtype_aux", name_of(bias_kind_ == 1 ? aux_ : Dtype::fp32))
        .text("family", families[family])
        .number("head_dim", head_class(head_))
        .number("head_dim_v", head_class(head_v_))
        .text("mask", !bounded() ? "none"
                      : sinks()  ? "generic"
                                 : "window")
        .flag("masked", masked_)
        .flag("softcap", softcap_)
        .flag("varlen", varlen_)
        .done();
  }
  std::string text() const {
    return std::string("attention_backward ") + name_of(type_) + " b=" + std::to_string(batch_) +
           " h=" + std::to_string(heads_q_) + "/" + std::to_string(heads_kv_) + " s=" + std::to_string(rows_) + "x" +
           std::to_string(keys_) + " d=" + std::to_string(head_) + "/" + std::to_string(head_v_);
  }

  int64_t batch_, heads_q_, heads_kv_, rows_, keys_, head_, head_v_,
      left_ = -1, right_ = -1, sinks_ = 0, bias_kind_ = 0, total_q_ = 0, total_k_ = 0, parts_ = 0;
  Dtype type_ = Dtype::fp32, aux_ = Dtype::fp32;
  Sums sums_ = Sums::none;
  bool bottom_right_ = false, masked_ = false, softcap_ = false, dropout_ = false, varlen_ = false, lengths_q_ = false,
       lengths_k_ = false, dlse_ = false, dsink_ = false, dbias_ = false, dalibi_ = false, deterministic_ = false,
       aligned_ = true;
  Shape bias_ = {1, 1, 1, 1}, mask_ = {1, 1, 1, 1};
  Strides strides_[8] = {};
  bool has_[8] = {};
};

}  // namespace tw
