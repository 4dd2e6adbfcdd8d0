// Attention, forward: o = softmax(scale * q.k + bias) v over the keys a row sees, and its lse.
#pragma once
#include <tilewright/attention_args.h>
#include <tilewright/plan_key.hpp>
#include <tilewright/problem.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace tw {

// Where the operands of attention lie.  Tables are of int32, the logits of sinks and ALiBi's slopes of fp32.
struct AttentionOperands {
  const void *q_at = nullptr, *k_at = nullptr, *v_at = nullptr;
  void *o_at = nullptr, *lse_at = nullptr;
  const void *mask_at = nullptr, *bias_at = nullptr, *alibi_at = nullptr, *sink_at = nullptr;
  const void *starts_q_at = nullptr, *starts_k_at = nullptr, *lengths_q_at = nullptr, *lengths_k_at = nullptr;
  const void *table_at = nullptr, *indptr_at = nullptr, *last_at = nullptr;
  int64_t table_stride = 0;
  double scale_is = 0, softcap_is = 0, dropout_is = 0;
  uint64_t seed_is = 0, offset_is = 0;

  AttentionOperands &q(const void *at) { return q_at = at, *this; }
  AttentionOperands &k(const void *at) { return k_at = at, *this; }
  AttentionOperands &v(const void *at) { return v_at = at, *this; }
  AttentionOperands &o(void *at) { return o_at = at, *this; }
  AttentionOperands &lse(void *at) { return lse_at = at, *this; }
  AttentionOperands &mask(const void *at) { return mask_at = at, *this; }
  AttentionOperands &bias(const void *at) { return bias_at = at, *this; }
  AttentionOperands &alibi_slopes(const void *at) { return alibi_at = at, *this; }  // one a query head
  AttentionOperands &sink(const void *at) { return sink_at = at, *this; }           // one a query head
  AttentionOperands &cu_seqlens_q(const void *at) { return starts_q_at = at, *this; }
  AttentionOperands &cu_seqlens_k(const void *at) { return starts_k_at = at, *this; }
  AttentionOperands &seqlens_q(const void *at) { return lengths_q_at = at, *this; }
  AttentionOperands &seqlens_k(const void *at) { return lengths_k_at = at, *this; }
  // Entries of a sequence; with page indices, of all.
  AttentionOperands &block_table(const void *at, int64_t entries = 0) {
    return table_at = at, table_stride = entries, *this;
  }
  AttentionOperands &page_indptr(const void *at) { return indptr_at = at, *this; }
  AttentionOperands &page_last(const void *at) { return last_at = at, *this; }
  AttentionOperands &scale(double value) { return scale_is = value, *this; }  // 0: 1 / sqrt(head_dim)
  AttentionOperands &softcap(double value) { return softcap_is = value, *this; }
  AttentionOperands &dropout(double chance, uint64_t seed, uint64_t offset = 0) {
    return dropout_is = chance, seed_is = seed, offset_is = offset, *this;
  }
};

// Rows of heads lie one behind the other (batch, row, head, element) unless strides (batch, row, head) say otherwise.
class AttentionProblem {
 public:
  using Operands = AttentionOperands;
  using Strides = std::array<int64_t, 3>;
  using Shape = std::array<int64_t, 4>;  // sequences, heads, rows, keys; 1 where it repeats

  AttentionProblem(int64_t batch, int64_t heads, int64_t seqlen_q, int64_t seqlen_k, int64_t head_dim)
      : batch_(batch),
        heads_q_(heads),
        heads_kv_(heads),
        rows_(seqlen_q),
        keys_(seqlen_k),
        head_(head_dim),
        head_v_(head_dim) {}

  AttentionProblem &heads_kv(int64_t count) { return heads_kv_ = count, *this; }
  AttentionProblem &head_dim_v(int64_t size) { return head_v_ = size, *this; }
  AttentionProblem &dtype(Dtype type) { return q_ = kv_ = type, *this; }
  AttentionProblem &dtype_kv(Dtype type) { return kv_ = type, *this; }
  AttentionProblem &dtype_out(Dtype type) { return out_ = type, has_out_ = true, *this; }
  AttentionProblem &causal(bool bottom_right = false) { return window(-1, 0, bottom_right); }
  // Keys a row sees before and after its own place; -1: all.
  AttentionProblem &window(int64_t left, int64_t right, bool bottom_right = false) {
    return left_ = left, right_ = right, bottom_right_ = bottom_right, *this;
  }
  AttentionProblem &sink_tokens(int64_t count) { return sinks_ = count, *this; }
  AttentionProblem &bias(Shape shape, Dtype type = Dtype::fp32) {
    return bias_kind_ = 1, bias_ = shape, aux_ = type, *this;
  }
  AttentionProblem &alibi(bool with = true) { return bias_kind_ = with ? 2 : 0, *this; }
  AttentionProblem &mask(Shape shape) { return masked_ = true, mask_ = shape, *this; }
  AttentionProblem &softcap(bool with = true) { return softcap_ = with, *this; }
  AttentionProblem &dropout(bool with = true) { return dropout_ = with, *this; }
  AttentionProblem &return_lse(bool with = true) { return lse_ = with, *this; }
  AttentionProblem &sink(bool with = true) { return sink_ = with, *this; }
  // Sequences one behind the other: rows and keys of all of them together.
  AttentionProblem &varlen(int64_t total_q, int64_t total_k) {
    return varlen_ = true, total_q_ = total_q, total_k_ = total_k, *this;
  }
  AttentionProblem &seqlens_q(bool with = true) { return lengths_q_ = with, *this; }
  AttentionProblem &seqlens_k(bool with = true) { return lengths_k_ = with, *this; }
  // Keys and values in pages, found by a table of each sequence or by page indices.
  AttentionProblem &pages(int64_t page_size, int64_t page_count, bool indices = false) {
    return paged_ = true, page_size_ = page_size, page_count_ = page_count, indices_ = indices, *this;
  }
  // Keys walked in so many parts beside each other, which a second kernel puts together; 0 and 1: in one.
  AttentionProblem &num_splits(int64_t parts) { return splits_ = parts, *this; }
  AttentionProblem &q_strides(Strides s) { return strides_[0] = s, has_[0] = true, *this; }
  AttentionProblem &k_strides(Strides s) { return strides_[1] = s, has_[1] = true, *this; }
  AttentionProblem &v_strides(Strides s) { return strides_[2] = s, has_[2] = true, *this; }
  AttentionProblem &o_strides(Strides s) { return strides_[3] = s, has_[3] = true, *this; }
  AttentionProblem &aligned(bool to_16_bytes) { return aligned_ = to_16_bytes, *this; }

  int64_t batch() const { return batch_; }
  int64_t heads_q() const { return heads_q_; }
  int64_t heads_kv() const { return heads_kv_; }
  int64_t seqlen_q() const { return rows_; }
  int64_t seqlen_k() const { return keys_; }
  int64_t head_dim() const { return head_; }
  int64_t head_dim_v() const { return head_v_; }
  int64_t window_left() const { return left_; }
  int64_t window_right() const { return right_; }
  int64_t num_splits() const { return splits_; }
  bool bottom_right() const { return bottom_right_ && bounded(); }
  Dtype dtype_q() const { return q_; }
  Dtype dtype_kv() const { return kv_; }
  Dtype dtype_bias() const { return aux_; }
  Dtype dtype_out() const {
    const bool wide = q_ == Dtype::fp32 || q_ == Dtype::fp16 || q_ == Dtype::bf16;
    return has_out_ ? out_ : wide ? q_ : Dtype::bf16;
  }

  // Throws the rule that the problem breaks.
  void check() const {
    constexpr int64_t kMost = (int64_t(1) << 31) - 1, kMostHead = 576, kMostSplits = 128;
    detail::demand_size("batch", batch_, 0, kMost), detail::demand_size("seqlen_q", rows_, 0, kMost);
    detail::demand_size("seqlen_k", keys_, 0, kMost), detail::demand_size("sink_tokens", sinks_, 0, kMost);
    detail::demand_size("num_splits", splits_, 0, kMost);
    if (paged_) detail::demand_size("page_count", page_count_, 0, kMost);
    if (varlen_) detail::demand_size("total_q", total_q_, 0, kMost);
    if (packed_keys()) detail::demand_size("total_k", total_k_, 0, kMost);
    detail::demand_size("heads_q", heads_q_, 1, kMost), detail::demand_size("heads_kv", heads_kv_, 1, kMost);
    detail::demand_size("head_dim", head_, 1, kMost), detail::demand_size("head_dim_v", head_v_, 1, kMost);
    if (splits_ > kMostSplits)
      throw detail::request_error(
          "splits", std::to_string(splits_),
          std::to_string(splits_) + " splits, and parts are put together of at most " + std::to_string(kMostSplits),
          "use 1 to " + std::to_string(kMostSplits) + ", or leave it out");
    if (head_ > kMostHead || head_v_ > kMostHead)
      throw detail::request_error("head-size", std::to_string(head_ > kMostHead ? head_ : head_v_),
                                  "heads have at most " + std::to_string(kMostHead) + " elements",
                                  "use 1 to " + std::to_string(kMostHead));
    if (heads_q_ % heads_kv_)
      throw detail::request_error(
          "heads-divide", std::to_string(heads_kv_),
          std::to_string(heads_q_) + " query heads and " + std::to_string(heads_kv_) + " of keys",
          "use a divisor of the query heads");
    if (left_ < -1 || right_ < -1)
      throw detail::request_error("window", std::to_string(left_ < -1 ? left_ : right_),
                                  "a window of " + std::to_string(left_) + ", " + std::to_string(right_),
                                  "use -1 for no bound, or 0 and more");
    constexpr int64_t kMostPage = 1024;
    if (paged_ && (page_size_ < 1 || page_size_ > kMostPage))
      throw detail::request_error("page-size", std::to_string(page_size_),
                                  "a page of " + std::to_string(page_size_) + " slots",
                                  "use 1 to " + std::to_string(kMostPage));
    if (bias_kind_ == 1) demand_repeats("bias", bias_);
    if (masked_) demand_repeats("mask", mask_);
    demand_types();
    static const char *const operands[] = {"q", "k", "v", "o"};
    for (int operand = 0; operand < 4; ++operand) {
      const Shape full = shape(operand);
      const Strides s = has_[operand] ? strides_[operand] : Strides{};
      const int64_t steps[] = {s[0], s[1], s[2], 1};
      detail::demand_span(operands[operand], full.data(), 4, has_[operand] ? steps : nullptr);
      if (operand == 3 && has_[operand]) detail::demand_apart("o", full.data(), 4, steps);
    }
  }

  // `said`: with the words for people.
  Described described(bool said = true) const {
    static const char *const names[] = {
        "family",      "batch",        "heads_q",     "heads_kv",   "seqlen_q",   "seqlen_k",   "head_dim",
        "head_dim_v",  "type_q",       "size_q",      "size_kv",    "size_out",   "size_aux",   "bottom_right",
        "window_left", "window_right", "sink_tokens", "bias",       "bias_batch", "bias_heads", "bias_rows",
        "bias_keys",   "masked",       "mask_batch",  "mask_heads", "mask_rows",  "mask_keys",  "softcap",
        "varlen",      "total_q",      "total_k",     "seqlens_q",  "seqlens_k",  "pages",      "page_lookup",
        "page_size",   "page_count",   "num_splits",  "rotary_dim", "rotary_q",   "q_batch",    "q_row",
        "q_head",      "k_batch",      "k_row",       "k_head",     "v_batch",    "v_row",      "v_head",
        "o_batch",     "o_row",        "o_head",      "aligned"};
    const Shape none = {1, 1, 1, 1}, b = bias_kind_ == 1 ? bias_ : none, m = masked_ ? mask_ : none;
    constexpr int64_t kWide = int64_t(1) << 40;
    std::vector<int64_t> v = {family_,
                              batch_,
                              heads_q_,
                              heads_kv_,
                              rows_,
                              keys_,
                              head_,
                              head_v_,
                              type(q_),
                              bytes_of(q_),
                              bytes_of(kv_),
                              bytes_of(dtype_out()),
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
                              varlen_,
                              varlen_ ? total_q_ : 0,
                              packed_keys() ? total_k_ : 0,
                              lengths_q_,
                              lengths_k_,
                              paged_,
                              paged_ ? (indices_ ? 2 : 1) : 0,
                              paged_ ? page_size_ : 0,
                              paged_ ? page_count_ : 0,
                              splits_,
                              0,
                              0};
    for (int operand = 0; operand < 4; ++operand)
      for (int64_t stride : strides(operand)) v.push_back(stride);
    v.push_back(aligned_);
    return {"attention", signature(), said ? text() : std::string(), names, std::move(v)};
  }

  // What a plan depends on.
  detail::PlanKey key() const {
    detail::PlanKey key(3);
    key.add(batch_, heads_q_, heads_kv_, rows_, keys_, head_, head_v_, left_, right_, sinks_, bias_kind_, total_q_,
            total_k_, page_size_, page_count_, splits_, int64_t(q_), int64_t(kv_), int64_t(dtype_out()), int64_t(aux_));
    key.add(bottom_right_, masked_, softcap_, dropout_, lse_, sink_, varlen_, lengths_q_, lengths_k_, paged_, indices_,
            aligned_);
    for (const Shape *shape : {&bias_, &mask_}) key.add((*shape)[0], (*shape)[1], (*shape)[2], (*shape)[3]);
    for (int operand = 0; operand < 4; ++operand)
      key.add(has_[operand], strides_[operand][0], strides_[operand][1], strides_[operand][2]);
    return key;
  }
  // One kernel; or one of parts and one that puts them together, with the parts between them.
  std::vector<Described> stages() const {
    if (splits_ <= 1) return {described(false)};
    return {part().described(false), combined().described(false)};
  }
  // The problem whose pins and measurements this one shares: dense, where heads lie inside of rows.
  std::vector<int64_t> measured(size_t stage) const {
    AttentionProblem p = splits_ <= 1 ? *this : stage == 0 ? part() : combined();
    bool usual = true;
    for (int operand = 0; operand < 3; ++operand) {
      const Strides s = p.strides(operand);
      usual = usual && (s[1] > s[2] || !s[1]);
    }
    if (usual) {
      for (bool &has : p.has_) has = false;
      p.aligned_ = true;
    }
    return p.described(false).values;
  }
  int64_t between_bytes() const { return splits_ <= 1 ? 0 : part_bytes(part_elements()) + part_bytes(part_sums()); }
  template <class Use> void with_args(size_t stage, const AttentionOperands &operands, char *between, Use use) const {
    if (splits_ <= 1) {
      const tw_attention_args arguments = args(operands);
      use(&arguments);
    } else if (stage == 0) {
      const tw_attention_args arguments = part_args(operands, between);
      use(&arguments);
    } else {
      const tw_attention_combine_args arguments = combine_args(operands, between);
      use(&arguments);
    }
  }

  // The table whose pointer has this place in the arguments.
  static const char *table_at(size_t stage, size_t place) {
    if (stage == 1) return place == offsetof(tw_attention_combine_args, starts_q) ? "cu_seqlens_q" : "seqlens_q";
    const std::pair<size_t, const char *> tables[] = {{offsetof(tw_attention_args, starts_q), "cu_seqlens_q"},
                                                      {offsetof(tw_attention_args, starts_k), "cu_seqlens_k"},
                                                      {offsetof(tw_attention_args, lengths_q), "seqlens_q"},
                                                      {offsetof(tw_attention_args, lengths_k), "seqlens_k"},
                                                      {offsetof(tw_attention_args, pages.indptr), "page_indptr"},
                                                      {offsetof(tw_attention_args, pages.last), "page_last"},
                                                      {offsetof(tw_attention_args, pages.table), "block_table"}};
    for (const auto &table : tables)
      if (table.first == place) return table.second;
    return "a table";
  }

  tw_attention_args args(const AttentionOperands &o) const { return demand_operands(o), filled(o); }

 private:
  tw_attention_args filled(const AttentionOperands &o) const {
    tw_attention_args a{};
    a.batch = batch_, a.heads_q = heads_q_, a.heads_kv = heads_kv_, a.rows = rows_, a.keys = keys_, a.head_qk = head_,
    a.head_v = head_v_;
    a.total_rows = varlen_ ? total_q_ : 0, a.total_keys = packed_keys() ? total_k_ : 0;
    a.q = o.q_at, a.k = o.k_at, a.v = o.v_at, a.o = o.o_at, a.lse = lse_ ? o.lse_at : nullptr;
    tw_attention_strides *const into[] = {&a.q_strides, &a.k_strides, &a.v_strides, &a.o_strides};
    for (int operand = 0; operand < 4; ++operand) {
      const Strides s = strides(operand);
      *into[operand] = {s[0], s[1], s[2]};
    }
    const auto one_or = [](int64_t size) { return size > 1 ? size : 1; };
    a.lse_batch = varlen_ ? 0 : one_or(heads_q_ * rows_), a.lse_head = one_or(varlen_ ? total_q_ : rows_);
    a.starts_q = varlen_ ? o.starts_q_at : nullptr, a.starts_k = packed_keys() ? o.starts_k_at : nullptr;
    a.lengths_q = lengths_q_ ? o.lengths_q_at : nullptr, a.lengths_k = lengths_k_ ? o.lengths_k_at : nullptr;
    if (paged_) {
      const int64_t entries = (keys_ + page_size_ - 1) / page_size_ * (indices_ ? batch_ : 1);
      a.pages = {o.table_at,
                 indices_ ? o.indptr_at : nullptr,
                 indices_ ? o.last_at : nullptr,
                 o.table_stride ? o.table_stride : entries,
                 page_size_,
                 page_count_};
    }
    a.window_left = left_, a.window_right = right_, a.bottom_right = bottom_right(), a.sink_keys = sinks();
    a.sink = sink_ ? o.sink_at : nullptr;
    if (masked_) a.mask = o.mask_at, repeat(mask_, a.mask_strides);
    if (bias_kind_ == 1) a.bias = o.bias_at, repeat(bias_, a.bias_strides);
    if (bias_kind_ == 2) a.alibi = o.alibi_at, a.alibi_batch = 0, a.alibi_head = 1;
    a.splits = 1;
    a.scale = o.scale_is != 0 ? o.scale_is : std::pow(double(head_), -0.5);
    a.softcap = softcap_ ? o.softcap_is : 0, a.dropout = dropout_ ? o.dropout_is : 0;
    a.seed[0] = double(o.seed_is & 0xffffffffu), a.seed[1] = double(o.seed_is >> 32);
    a.offset[0] = double(o.offset_is & 0xffffffffu), a.offset[1] = double(o.offset_is >> 32);
    return a;
  }

  // The stage that walks parts of the keys; what it writes is dense and of fp32.
  AttentionProblem part() const {
    AttentionProblem p = *this;
    p.family_ = 1, p.lse_ = false, p.has_[3] = false;
    return p.dtype_out(Dtype::fp32);
  }
  // The stage that puts parts together.
  AttentionProblem combined() const {
    AttentionProblem p(batch_, heads_q_, rows_, 0, head_v_);
    p.family_ = 2, p.has_[3] = has_[3], p.strides_[3] = strides_[3];
    if (varlen_) p.varlen(total_q_, 0);
    return p.dtype_out(dtype_out()).return_lse(lse_).seqlens_q(lengths_q_).num_splits(splits_);
  }
  int64_t part_elements() const { return shape(3)[0] * shape(3)[1] * heads_q_ * head_v_; }  // of one part
  int64_t part_sums() const { return heads_q_ * (varlen_ ? total_q_ : batch_ * rows_); }
  int64_t part_bytes(int64_t elements) const { return (splits_ * elements * 4 + 63) / 64 * 64; }

  tw_attention_args part_args(const AttentionOperands &o, char *between) const {
    demand_operands(o);
    tw_attention_args a = part().filled(o);
    a.o = between, a.lse = between + part_bytes(part_elements());
    a.splits = splits_, a.o_split = part_elements(), a.lse_split = part_sums();
    return a;
  }
  tw_attention_combine_args combine_args(const AttentionOperands &o, char *between) const {
    tw_attention_combine_args a{};
    a.batch = batch_, a.heads_q = heads_q_, a.rows = rows_, a.head_v = head_v_, a.splits = splits_;
    a.total_rows = varlen_ ? total_q_ : 0;
    a.parts = between, a.part_lse = between + part_bytes(part_elements());
    a.o = o.o_at, a.lse = lse_ ? o.lse_at : nullptr;
    const Strides from = part().strides(3), to = strides(3);
    a.part_strides = {from[0], from[1], from[2]}, a.o_strides = {to[0], to[1], to[2]};
    a.part_split = part_elements(), a.part_lse_split = part_sums();
    const auto one_or = [](int64_t size) { return size > 1 ? size : 1; };
    a.part_lse_batch = a.lse_batch = varlen_ ? 0 : one_or(heads_q_ * rows_);
    a.part_lse_head = a.lse_head = one_or(varlen_ ? total_q_ : rows_);
    a.starts_q = varlen_ ? o.starts_q_at : nullptr, a.lengths_q = lengths_q_ ? o.lengths_q_at : nullptr;
    return a;
  }

  // Which types go together, on every target.
  void demand_types() const {
    const auto wide = [](Dtype t) { return t == Dtype::fp32 || t == Dtype::fp16 || t == Dtype::bf16; };
    const auto narrow = [](Dtype t) { return t == Dtype::fp8_e4m3 || t == Dtype::fp8_e4m3fnuz; };
    const auto refuse = [](const char *rule, Dtype value, const std::string &why, const char *remedy) {
      throw detail::request_error(rule, name_of(value), why, remedy);
    };
    if (!wide(q_) && !narrow(q_))
      refuse("dtype-input", q_, std::string(name_of(q_)) + " is not a type of q",
             "use fp32, fp16, bf16, fp8_e4m3 or fp8_e4m3fnuz");
    if (kv_ != q_ && !(narrow(kv_) && (q_ == Dtype::fp16 || q_ == Dtype::bf16)))
      refuse("dtype-mix", kv_, std::string("keys of ") + name_of(kv_) + " do not go with queries of " + name_of(q_),
             "use the type of the queries, or fp8 with queries of fp16 or bf16");
    if (!wide(dtype_out()))
      refuse("dtype-output", dtype_out(), std::string("attention cannot give ") + name_of(dtype_out()),
             "use fp32, fp16 or bf16");
    if (bias_kind_ == 1 && aux_ != Dtype::fp32 && (aux_ != q_ || !wide(q_)))
      refuse("dtype-bias", aux_, std::string("a bias of ") + name_of(aux_) + " with queries of " + name_of(q_),
             "use fp32, or the type of the queries");
  }

  bool bounded() const { return left_ >= 0 || right_ >= 0; }
  bool packed_keys() const { return varlen_ && !paged_; }
  int64_t sinks() const { return left_ < 0 ? 0 : sinks_; }
  // The number of selection; those of other types are -1 there.
  static int64_t type(Dtype t) {
    switch (t) {
      case Dtype::fp32:
        return 0;
      case Dtype::fp16:
        return 1;
      case Dtype::bf16:
        return 2;
      case Dtype::fp8_e4m3:
        return 3;
      case Dtype::fp8_e4m3fnuz:
        return 4;
      default:
        return -1;
    }
  }
  static int64_t head_class(int64_t size) {
    for (int64_t most : {32, 64, 96, 128, 160, 192, 256, 512, 576})
      if (most >= size) return most;
    return size;
  }
  Shape shape(int operand) const {  // q, k, v, o: sequences or pages, rows, heads, elements
    const bool keys = operand == 1 || operand == 2;
    const int64_t size = operand < 2 ? head_ : head_v_, heads = keys ? heads_kv_ : heads_q_;
    if (!keys) return {varlen_ ? 1 : batch_, varlen_ ? total_q_ : rows_, heads, size};
    if (paged_) return {page_count_, page_size_, heads, size};
    return {packed_keys() ? 1 : batch_, packed_keys() ? total_k_ : keys_, heads, size};
  }
  Strides strides(int operand) const {
    if (has_[operand]) return strides_[operand];
    const Shape s = shape(operand);
    const bool packed = operand == 1 || operand == 2 ? packed_keys() : varlen_;
    return {packed ? 0 : s[1] * s[2] * s[3], s[2] * s[3], s[3]};
  }
  void demand_repeats(const char *name, const Shape &shape) const {
    const Shape full = {batch_, heads_q_, rows_, keys_};
    for (size_t i = 0; i < full.size(); ++i)
      if (shape[i] != 1 && shape[i] != full[i])
        throw detail::request_error(std::string(name) == "bias" ? "bias-shape" : "mask-shape", std::to_string(shape[i]),
                                    std::string("dimension ") + std::to_string(i) + " of the " + name + " is " +
                                        std::to_string(shape[i]) + ", and the problem has " + std::to_string(full[i]) +
                                        " there",
                                    "give " + std::to_string(full[i]) + ", or 1 where it repeats");
  }
  static void repeat(const Shape &shape, int64_t *strides) {
    int64_t step = 1;
    for (int i = 3; i >= 0; --i) {
      strides[i] = shape[size_t(i)] == 1 ? 0 : step;
      step *= shape[size_t(i)] > 1 ? shape[size_t(i)] : 1;
    }
  }
  // Names are those that specs are stored by.
  std::string signature() const {
    static const char *const biases[] = {"none", "tensor", "alibi"}, *const families[] = {"forward", "split",
                                                                                          "combine"};
    return detail::Signature()
        .text("bias", biases[bias_kind_])
        .flag("dropout", dropout_)
        .text("dtype_aux", name_of(bias_kind_ == 1 ? aux_ : Dtype::fp32))
        .text("dtype_kv", name_of(kv_))
        .text("dtype_out", name_of(dtype_out()))
        .text("dtype_q", name_of(q_))
        .text("family", families[family_])
        .number("head_qk", head_class(head_))
        .number("head_v", head_class(head_v_))
        .text("lookup", !paged_    ? "none"
                        : indices_ ? "indices"
                                   : "table")
        .flag("lse", lse_)
        .text("mask", !bounded() ? "none"
                      : sinks()  ? "generic"
                                 : "window")
        .flag("masked", masked_)
        .flag("packed", varlen_)
        .text("pages", paged_ ? "strided" : "none")
        .text("rotary", "none")
        .text("scales", "none")
        .flag("sink", sink_)
        .flag("softcap", softcap_)
        .done();
  }
  std::string text() const {
    return std::string("attention ") + name_of(q_) + " b=" + std::to_string(batch_) + " h=" + std::to_string(heads_q_) +
           "/" + std::to_string(heads_kv_) + " s=" + std::to_string(rows_) + "x" + std::to_string(keys_) +
           " d=" + std::to_string(head_) + "/" + std::to_string(head_v_);
  }
  void demand_operands(const AttentionOperands &o) const {
    const char *missing = nullptr;
    const auto need = [&](bool wanted, const void *at, const char *name) {
      if (wanted && !at && !missing) missing = name;
    };
    const bool rows = batch_ && (varlen_ ? total_q_ : rows_), keys = batch_ && keys_;
    need(rows, o.q_at, "q"), need(rows, o.o_at, "o"), need(rows && keys, o.k_at, "k"), need(rows && keys, o.v_at, "v");
    need(rows && lse_, o.lse_at, "lse"), need(rows && masked_, o.mask_at, "mask"),
        need(rows && bias_kind_ == 1, o.bias_at, "bias");
    need(rows && bias_kind_ == 2, o.alibi_at, "alibi_slopes"), need(rows && sink_, o.sink_at, "sink");
    need(varlen_, o.starts_q_at, "cu_seqlens_q"), need(packed_keys(), o.starts_k_at, "cu_seqlens_k");
    need(lengths_q_, o.lengths_q_at, "seqlens_q"), need(lengths_k_, o.lengths_k_at, "seqlens_k");
    need(paged_, o.table_at, "block_table"), need(paged_ && indices_, o.indptr_at, "page_indptr");
    need(paged_ && indices_, o.last_at, "page_last");
    if (missing)
      throw detail::request_error("operand-missing", missing,
                                  std::string("the problem has an operand ") + missing + ", and it is null",
                                  std::string("give it with AttentionOperands::") + missing + "()");
    const char *unused = nullptr;
    const auto only = [&](bool wanted, bool there, const char *name) {
      if (there && !wanted && !unused) unused = name;
    };
    only(masked_, o.mask_at, "mask"), only(bias_kind_ == 1, o.bias_at, "bias"), only(sink_, o.sink_at, "sink");
    only(bias_kind_ == 2, o.alibi_at, "alibi"), only(varlen_, o.starts_q_at, "varlen");
    only(lengths_q_, o.lengths_q_at, "seqlens_q"), only(lengths_k_, o.lengths_k_at, "seqlens_k");
    only(paged_, o.table_at, "pages"), only(softcap_, o.softcap_is != 0, "softcap");
    only(dropout_, o.dropout_is != 0, "dropout");
    if (unused)
      throw detail::request_error("operand-unused", unused,
                                  std::string("an operand of ") + unused + " is set, and the problem has none",
                                  std::string("describe it with AttentionProblem::") + unused + "(), or leave it out");
    constexpr double kMost = 1e38;
    demand_number("scale", o.scale_is, -kMost, kMost, "use a number between -1e38 and 1e38");
    if (softcap_) demand_number("softcap", o.softcap_is, 1 / kMost, kMost, "use a number over 0, up to 1e38");
    if (dropout_) demand_number("dropout", o.dropout_is, 0, 1, "use 0 or more, and less than 1");
  }
  static void demand_number(const char *name, double number, double least, double most, const char *remedy) {
    if (!(number >= least && number < most))
      throw detail::request_error(name, std::to_string(number), std::string(name) + " is " + std::to_string(number),
                                  remedy);
  }

  int64_t batch_, heads_q_, heads_kv_, rows_, keys_, head_, head_v_, left_ = -1, right_ = -1, sinks_ = 0,
                                                                     bias_kind_ = 0;
  int64_t total_q_ = 0, total_k_ = 0, page_size_ = 0, page_count_ = 0, splits_ = 0;
  int64_t family_ = 0;  // of a stage: 1 walks parts of the keys, 2 puts them together
  Dtype q_ = Dtype::fp32, kv_ = Dtype::fp32, out_ = Dtype::fp32, aux_ = Dtype::fp32;
  bool has_out_ = false, bottom_right_ = false, masked_ = false, softcap_ = false, dropout_ = false, lse_ = false,
       sink_ = false;
  bool varlen_ = false, lengths_q_ = false, lengths_k_ = false, paged_ = false, indices_ = false, aligned_ = true;
  Shape bias_ = {1, 1, 1, 1}, mask_ = {1, 1, 1, 1};
  Strides strides_[4] = {};
  bool has_[4] = {};
};

}  // namespace tw
