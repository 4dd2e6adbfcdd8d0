// What attention, its gradients and appends to a cache share: sizes, what a row sees, its scores, and the addresses of tables.
#pragma once
#include <tilewright/plan_key.hpp>
#include <tilewright/problem.hpp>

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace tw {

// Operands of both passes.  Tables are of int32, the logits of sinks and ALiBi's slopes of fp32.
template <class Self> struct AttentionOperandTerms {
  const void *q_at = nullptr, *k_at = nullptr, *v_at = nullptr;
  const void *mask_at = nullptr, *bias_at = nullptr, *alibi_at = nullptr, *sink_at = nullptr;
  const void *starts_q_at = nullptr, *starts_k_at = nullptr, *lengths_q_at = nullptr, *lengths_k_at = nullptr;
  double scale_is = 0, softcap_is = 0, dropout_is = 0;
  bool scaled = false;
  uint64_t seed_is = 0, offset_is = 0;

  Self &q(const void *at) { return q_at = at, self(); }
  Self &k(const void *at) { return k_at = at, self(); }
  Self &v(const void *at) { return v_at = at, self(); }
  Self &mask(const void *at) { return mask_at = at, self(); }
  Self &bias(const void *at) { return bias_at = at, self(); }
  Self &alibi_slopes(const void *at) { return alibi_at = at, self(); }  // one a query head
  Self &sink(const void *at) { return sink_at = at, self(); }           // one a query head
  Self &cu_seqlens_q(const void *at) { return starts_q_at = at, self(); }
  Self &cu_seqlens_k(const void *at) { return starts_k_at = at, self(); }
  Self &seqlens_q(const void *at) { return lengths_q_at = at, self(); }
  Self &seqlens_k(const void *at) { return lengths_k_at = at, self(); }
  Self &scale(double value) { return scale_is = value, scaled = true, self(); }  // without: 1 / sqrt(head_dim)
  Self &softcap(double value) { return softcap_is = value, self(); }
  Self &dropout(double chance, uint64_t seed, uint64_t offset = 0) {
    return dropout_is = chance, seed_is = seed, offset_is = offset, self();
  }

 private:
  Self &self() { return static_cast<Self &>(*this); }
};

namespace detail {

inline std::vector<const char *> joined(const std::vector<std::vector<const char *>> &parts) {
  std::vector<const char *> all;
  for (const auto &part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Operands that are passed and not requested, or requested and not passed.
struct OperandCheck {
  const char *problem, *operands;
  void need(bool wanted, const void *at, const char *name) const {
    if (wanted && !at)
      throw request_error("operand-missing", name,
                          std::string("the problem has an operand ") + name + ", and it is null",
                          std::string("give it with ") + operands + "::" + name + "()");
  }
  // `setter`: of the problem, where it has another name than the operand.
  void only(bool wanted, bool there, const char *name, const char *setter = nullptr) const {
    if (there && !wanted)
      throw request_error(
          "operand-unused", name, std::string("an operand of ") + name + " is set, and the problem has none",
          std::string("describe it with ") + problem + "::" + (setter ? setter : name) + "(), or leave it out");
  }
  static void number(const char *name, double number, double least, double most, const char *remedy) {
    if (!(number >= least && number < most))
      throw request_error(name, std::to_string(number), std::string(name) + " is " + std::to_string(number), remedy);
  }
};

}  // namespace detail

// `Count` operands have strides (batch, row, head); without them they are dense (batch, row, head, element)
// where nobody says otherwise.
template <class Self, int Count> class AttentionTerms {
 public:
  using Strides = std::array<int64_t, 3>;
  using Shape = std::array<int64_t, 4>;  // sequences, heads, rows, keys; 1 where it repeats

  Self &heads_kv(int64_t count) { return heads_kv_ = count, self(); }
  Self &head_dim_v(int64_t size) { return head_v_ = size, self(); }
  Self &causal(bool bottom_right = false) { return window(-1, 0, bottom_right); }
  // Keys a row sees before and after its own position; -1: all.
  Self &window(int64_t left, int64_t right, bool bottom_right = false) {
    return left_ = left, right_ = right, bottom_right_ = bottom_right, self();
  }
  Self &sink_tokens(int64_t count) { return sinks_ = count, self(); }
  Self &bias(Shape shape, Dtype type = Dtype::fp32) { return bias_kind_ = 1, bias_ = shape, aux_ = type, self(); }
  Self &alibi(bool with = true) {  // without: a bias tensor stays
    if (with || bias_kind_ == 2) bias_kind_ = with ? 2 : 0;
    return self();
  }
  Self &mask(Shape shape) { return masked_ = true, mask_ = shape, self(); }
  Self &softcap(bool with = true) { return softcap_ = with, self(); }
  Self &dropout(bool with = true) { return dropout_ = with, self(); }
  // Sequences one behind the other: rows and keys of all of them together.
  Self &varlen(int64_t total_q, int64_t total_k) {
    return varlen_ = true, total_q_ = total_q, total_k_ = total_k, self();
  }
  Self &seqlens_q(bool with = true) { return lengths_q_ = with, self(); }
  Self &seqlens_k(bool with = true) { return lengths_k_ = with, self(); }
  Self &aligned(bool to_16_bytes) { return aligned_ = to_16_bytes, self(); }

  int64_t batch() const { return batch_; }
  int64_t heads_q() const { return heads_q_; }
  int64_t heads_kv() const { return heads_kv_; }
  int64_t seqlen_q() const { return rows_; }
  int64_t seqlen_k() const { return keys_; }
  int64_t head_dim() const { return head_; }
  int64_t head_dim_v() const { return head_v_; }
  int64_t window_left() const { return left_; }
  int64_t window_right() const { return right_; }
  bool bottom_right() const { return bottom_right_ && bounded(); }
  Dtype dtype_bias() const { return aux_; }

 protected:
  static constexpr int64_t kMost = (int64_t(1) << 31) - 1;

  AttentionTerms(int64_t batch, int64_t heads, int64_t seqlen_q, int64_t seqlen_k, int64_t head_dim)
      : batch_(batch),
        heads_q_(heads),
        heads_kv_(heads),
        rows_(seqlen_q),
        keys_(seqlen_k),
        head_(head_dim),
        head_v_(head_dim) {}

  bool bounded() const { return left_ >= 0 || right_ >= 0; }
  int64_t sinks() const { return left_ < 0 ? 0 : sinks_; }
  static bool is_wide(Dtype t) { return t == Dtype::fp32 || t == Dtype::fp16 || t == Dtype::bf16; }
  static int64_t one_or(int64_t size) { return size > 1 ? size : 1; }

  // -- rules ----------------------------------------------------------------------------------------------------------

  static void refuse_if(bool broken, const char *rule, int64_t value, const std::string &message, const char *remedy) {
    if (broken) throw detail::request_error(rule, std::to_string(value), message, remedy);
  }
  void demand_counts(std::initializer_list<std::pair<const char *, int64_t>> more) const {
    const std::pair<const char *, int64_t> counts[] = {
        {"batch", batch_}, {"seqlen_q", rows_}, {"seqlen_k", keys_}, {"sink_tokens", sinks_}};
    for (const auto &count : counts) detail::demand_size(count.first, count.second, 0, kMost);
    for (const auto &count : more) detail::demand_size(count.first, count.second, 0, kMost);
    detail::demand_size("heads_q", heads_q_, 1, kMost), detail::demand_size("heads_kv", heads_kv_, 1, kMost);
    detail::demand_size("head_dim", head_, 1, kMost), detail::demand_size("head_dim_v", head_v_, 1, kMost);
  }
  void demand_heads_and_windows() const {
    constexpr int64_t kMostHead = 576;
    refuse_if(heads_q_ % heads_kv_ != 0, "heads-divide", heads_kv_,
              std::to_string(heads_q_) + " query heads and " + std::to_string(heads_kv_) + " of keys",
              "use a divisor of the query heads");
    refuse_if(head_ > kMostHead || head_v_ > kMostHead, "head-size", head_ > kMostHead ? head_ : head_v_,
              "heads have at most 576 elements", "use 1 to 576");
    refuse_if(left_ < -1 || right_ < -1, "window", left_ < -1 ? left_ : right_,
              "a window of " + std::to_string(left_) + ", " + std::to_string(right_),
              "use 0 or more, or -1 for no bound");
  }
  void demand_repeats() const {
    if (bias_kind_ == 1) demand_repeats("bias", bias_);
    if (masked_) demand_repeats("mask", mask_);
  }
  // Of the operands by their names; results are apart.
  template <class IsResult> void demand_operand_strides(const char *const *names, IsResult is_result) const {
    for (int which = 0; which < Count; ++which) {
      const Shape full = self().shape(which);
      const Strides s = has_[which] ? strides_[which] : Strides{};
      const int64_t steps[] = {s[0], s[1], s[2], 1};
      detail::demand_span(names[which], full.data(), 4, has_[which] ? steps : nullptr);
      if (is_result(which) && has_[which]) detail::demand_apart(names[which], full.data(), 4, steps);
    }
  }
  template <class Operands> void demand_scores(const detail::OperandCheck &check, const Operands &o, bool rows) const {
    check.need(rows && masked_, o.mask_at, "mask"), check.need(rows && bias_kind_ == 1, o.bias_at, "bias");
    check.need(rows && bias_kind_ == 2, o.alibi_at, "alibi_slopes"), check.need(varlen_, o.starts_q_at, "cu_seqlens_q");
    check.need(lengths_q_, o.lengths_q_at, "seqlens_q"), check.need(lengths_k_, o.lengths_k_at, "seqlens_k");
    check.only(masked_, o.mask_at, "mask"), check.only(bias_kind_ == 1, o.bias_at, "bias");
    check.only(bias_kind_ == 2, o.alibi_at, "alibi");
    check.only(varlen_, o.starts_q_at || o.starts_k_at, "cu_seqlens", "varlen");
    check.only(lengths_q_, o.lengths_q_at, "seqlens_q"), check.only(lengths_k_, o.lengths_k_at, "seqlens_k");
    check.only(softcap_, o.softcap_is != 0, "softcap"), check.only(dropout_, o.dropout_is != 0, "dropout");
    if (masked_) detail::demand_span("mask", mask_.data(), mask_.size(), nullptr);
    if (bias_kind_ == 1) detail::demand_span("bias", bias_.data(), bias_.size(), nullptr);
    constexpr double kLargest = 1e38;
    check.number("scale", o.scale_is, -kLargest, kLargest, "use a number between -1e38 and 1e38");
    if (softcap_) check.number("softcap", o.softcap_is, 1 / kLargest, kLargest, "use a number over 0, up to 1e38");
    if (dropout_) check.number("dropout", o.dropout_is, 0, 1, "use 0 or more, and less than 1");
  }

  // -- as selection takes them ----------------------------------------------------------------------------------------

  static std::vector<const char *> size_names() {
    return {"family", "batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v"};
  }
  void add_sizes(std::vector<int64_t> &v, int64_t family) const {
    v.insert(v.end(), {family, batch_, heads_q_, heads_kv_, rows_, keys_, head_, head_v_});
  }
  static std::vector<const char *> score_names() {
    return {"bottom_right", "window_left", "window_right", "sink_tokens", "bias",
            "bias_batch",   "bias_heads",  "bias_rows",    "bias_keys",   "masked",
            "mask_batch",   "mask_heads",  "mask_rows",    "mask_keys",   "softcap"};
  }
  void add_scores(std::vector<int64_t> &v) const {
    constexpr int64_t kWide = int64_t(1) << 40;
    const Shape none = {1, 1, 1, 1}, b = bias_kind_ == 1 ? bias_ : none, m = masked_ ? mask_ : none;
    v.insert(v.end(), {bottom_right(), left_ < kWide ? left_ : kWide, right_ < kWide ? right_ : kWide, sinks(),
                       bias_kind_, b[0], b[1], b[2], b[3], masked_, m[0], m[1], m[2], m[3], softcap_});
  }
  void add_strides(std::vector<int64_t> &v) const {
    for (int which = 0; which < Count; ++which)
      for (int64_t stride : self().strides(which)) v.push_back(stride);
  }
  void add_terms(detail::PlanKey &key) const {
    key.add(batch_, heads_q_, heads_kv_, rows_, keys_, head_, head_v_, left_, right_, sinks_, bias_kind_, total_q_,
            total_k_, int64_t(aux_), bottom_right_, masked_, softcap_, dropout_, varlen_, lengths_q_, lengths_k_,
            aligned_);
    for (const Shape *shape : {&bias_, &mask_}) key.add((*shape)[0], (*shape)[1], (*shape)[2], (*shape)[3]);
    for (int which = 0; which < Count; ++which)
      key.add(has_[which] ? 1 : 0, strides_[which][0], strides_[which][1], strides_[which][2]);
  }
  // The problem whose pins and measurements this one shares: dense, where heads are contiguous within the rows of these operands.
  Self measured_form(std::initializer_list<int> operands) const {
    Self p = self();
    bool usual = true;
    for (int which : operands) {
      const Strides s = self().strides(which);
      usual = usual && (s[1] > s[2] || !s[1]);
    }
    if (!usual) return p;
    for (bool &has : p.has_) has = false;
    p.aligned_ = true;
    return p;
  }
  static int64_t head_class(int64_t size) {
    for (int64_t most : {32, 64, 96, 128, 160, 192, 256, 512, 576})
      if (most >= size) return most;
    return size;
  }
  const char *bias_word() const {
    static const char *const words[] = {"none", "tensor", "alibi"};
    return words[bias_kind_];
  }
  const char *aux_word() const { return name_of(bias_kind_ == 1 ? aux_ : Dtype::fp32); }
  const char *mask_word() const { return !bounded() ? "none" : sinks() ? "generic" : "window"; }
  std::string text_of(const char *op, Dtype type) const {
    return std::string(op) + " " + name_of(type) + " b=" + std::to_string(batch_) + " h=" + std::to_string(heads_q_) +
           "/" + std::to_string(heads_kv_) + " s=" + std::to_string(rows_) + "x" + std::to_string(keys_) +
           " d=" + std::to_string(head_) + "/" + std::to_string(head_v_);
  }

  // -- arguments ------------------------------------------------------------------------------------------------------

  template <class Args> void fill_sizes(Args &a, bool packed_keys) const {
    a.batch = batch_, a.heads_q = heads_q_, a.heads_kv = heads_kv_, a.rows = rows_, a.keys = keys_;
    a.head_qk = head_, a.head_v = head_v_;
    a.total_rows = varlen_ ? total_q_ : 0, a.total_keys = packed_keys ? total_k_ : 0;
  }
  template <class Args, class Operands> void fill_tables(Args &a, const Operands &o, bool packed_keys) const {
    a.starts_q = varlen_ ? o.starts_q_at : nullptr, a.starts_k = packed_keys ? o.starts_k_at : nullptr;
    a.lengths_q = lengths_q_ ? o.lengths_q_at : nullptr, a.lengths_k = lengths_k_ ? o.lengths_k_at : nullptr;
  }
  template <class Args, class Operands> void fill_scores(Args &a, const Operands &o) const {
    a.window_left = left_, a.window_right = right_, a.bottom_right = bottom_right(), a.sink_keys = sinks();
    if (masked_) a.mask = o.mask_at, repeat(mask_, a.mask_strides);
    if (bias_kind_ == 1) a.bias = o.bias_at, repeat(bias_, a.bias_strides);
    if (bias_kind_ == 2) a.alibi = o.alibi_at, a.alibi_head = 1;
    a.scale = scale(o), a.softcap = softcap_ ? o.softcap_is : 0, a.dropout = dropout_ ? o.dropout_is : 0;
    a.seed[0] = double(o.seed_is & 0xffffffffu), a.seed[1] = double(o.seed_is >> 32);
    a.offset[0] = double(o.offset_is & 0xffffffffu), a.offset[1] = double(o.offset_is >> 32);
  }
  template <class Operands> double scale(const Operands &o) const {
    return o.scaled || o.scale_is != 0 ? o.scale_is : std::pow(double(head_), -0.5);
  }
  // Strides of dense memory with 0 where a size of 1 repeats.
  static void repeat(const Shape &shape, int64_t *strides) {
    int64_t step = 1;
    for (int i = 3; i >= 0; --i) {
      strides[i] = shape[size_t(i)] == 1 ? 0 : step;
      step *= one_or(shape[size_t(i)]);
    }
  }

  int64_t batch_, heads_q_, heads_kv_, rows_, keys_, head_, head_v_;
  int64_t left_ = -1, right_ = -1, sinks_ = 0, bias_kind_ = 0, total_q_ = 0, total_k_ = 0;
  Dtype aux_ = Dtype::fp32;
  bool bottom_right_ = false, masked_ = false, softcap_ = false, dropout_ = false, varlen_ = false, lengths_q_ = false,
       lengths_k_ = false, aligned_ = true;
  Shape bias_ = {1, 1, 1, 1}, mask_ = {1, 1, 1, 1};
  Strides strides_[Count] = {};
  bool has_[Count] = {};

 private:
  Self &self() { return static_cast<Self &>(*this); }
  const Self &self() const { return static_cast<const Self &>(*this); }
  void demand_repeats(const char *name, const Shape &shape) const {
    const Shape full = {batch_, heads_q_, rows_, keys_};
    for (size_t i = 0; i < full.size(); ++i)
      if (shape[i] != 1 && shape[i] != full[i])
        throw detail::request_error((std::string(name) + "-shape").c_str(), std::to_string(shape[i]),
                                    "dimension " + std::to_string(i) + " of the " + name + " is " +
                                        std::to_string(shape[i]) + ", and the problem has " + std::to_string(full[i]) +
                                        " there",
                                    "give " + std::to_string(full[i]) + ", or 1 where it repeats");
  }
};

}  // namespace tw
