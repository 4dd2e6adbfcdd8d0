// Appends keys and values to a cache, in pages or not, with rotary embedding of k (and q).
#pragma once
#include <tilewright/attention.hpp>

#include <string>
#include <vector>

namespace tw {

// Which elements of a head make a pair: (2 i, 2 i + 1), or (i, i + half of them).
enum class Rotary { none, interleaved, half };

inline const char *name_of(Rotary kind) {
  static const char *const names[] = {"none", "interleaved", "half"};
  return kind >= Rotary::none && kind <= Rotary::half ? names[int(kind)] : "unknown";
}

// Addresses and strides of the operands of an append: new rows, the caches they go into, and how many keys each sequence has (int32).
struct AttentionAppendOperands {
  const void *k_at = nullptr, *v_at = nullptr, *q_at = nullptr, *lengths_at = nullptr, *new_at = nullptr,
             *table_at = nullptr, *cos_at = nullptr, *sin_at = nullptr, *k_scale_at = nullptr, *v_scale_at = nullptr;
  void *cache_k_at = nullptr, *cache_v_at = nullptr, *q_out_at = nullptr;
  int64_t table_stride = 0;

  using Self = AttentionAppendOperands;
  Self &k(const void *at) { return k_at = at, *this; }
  Self &v(const void *at) { return v_at = at, *this; }
  Self &q(const void *at, void *rotated) { return q_at = at, q_out_at = rotated, *this; }  // `rotated` may be q itself
  Self &cache_k(void *at) { return cache_k_at = at, *this; }
  Self &cache_v(void *at) { return cache_v_at = at, *this; }
  Self &cache_seqlens(const void *at) { return lengths_at = at, *this; }
  Self &seqlens_new(const void *at) { return new_at = at, *this; }
  Self &block_table(const void *at, int64_t entries = 0) { return table_at = at, table_stride = entries, *this; }
  Self &rotary(const void *cos, const void *sin) { return cos_at = cos, sin_at = sin, *this; }
  Self &kv_scales(const void *of_k, const void *of_v) { return k_scale_at = of_k, v_scale_at = of_v, *this; }
};

// Operands are dense (batch, row, head, element) unless strides (batch, row, head) say otherwise.
class AttentionAppendProblem : private AttentionTerms<AttentionAppendProblem, 4> {
  using Terms = AttentionTerms<AttentionAppendProblem, 4>;
  friend Terms;

 public:
  using Operands = AttentionAppendOperands;
  using Strides = Terms::Strides;
  using Self = AttentionAppendProblem;

  // `rows` are new, and a sequence has room for `room` keys.
  AttentionAppendProblem(int64_t batch, int64_t heads_kv, int64_t rows, int64_t room, int64_t head_dim)
      : Terms(batch, heads_kv, rows, room, head_dim) {
    lengths_k_ = true;
  }

  using Terms::aligned;
  using Terms::batch;
  using Terms::head_dim;
  using Terms::head_dim_v;
  using Terms::heads_kv;
  using Terms::heads_q;
  Self &dtype(Dtype type) { return q_ = kv_ = type, *this; }                // of new rows, and of the cache
  Self &dtype_cache(Dtype type) { return kv_ = type, *this; }               // fp8 beside wider rows
  Self &heads_q(int64_t count) { return heads_q_ = count, *this; }          // of queries that are rotated too
  Self &seqlens_new(bool with = true) { return lengths_q_ = with, *this; }  // a table says how many rows are new
  // `elements` of each head are rotated, by tables of `table_rows` positions (0: as many as there is room for).
  Self &rotary(Rotary kind, int64_t elements = 0, int64_t table_rows = 0, Dtype type = Dtype::fp32) {
    return rotary_ = kind, rotated_ = elements, table_rows_ = table_rows, aux_ = type, *this;
  }
  Self &rotary_q(bool with = true) { return rotary_q_ = with, *this; }
  Self &pages(int64_t page_size, int64_t page_count, bool vectorised = false) {
    return paged_ = true, pages_ = {page_size, page_count, false, vectorised}, *this;
  }
  Self &kv_scales(Scales kind, int64_t block_rows = 0) { return scales_ = kind, scale_block_ = block_rows, *this; }
  Self &k_strides(Strides s) { return new_[0] = s, has_new_[0] = true, *this; }
  Self &v_strides(Strides s) { return new_[1] = s, has_new_[1] = true, *this; }
  Self &q_strides(Strides s) { return strides_[0] = s, has_[0] = true, *this; }
  Self &cache_k_strides(Strides s) { return strides_[1] = s, has_[1] = true, *this; }
  Self &cache_v_strides(Strides s) { return strides_[2] = s, has_[2] = true, *this; }
  Self &q_out_strides(Strides s) { return strides_[3] = s, has_[3] = true, *this; }
  Self &seqlens_k(bool with) { return lengths_k_ = with, *this; }  // as selection knows it; a run needs the table

  int64_t rows() const { return rows_; }
  int64_t room() const { return keys_; }
  Dtype dtype() const { return q_; }
  Dtype dtype_cache() const { return kv_; }
  Dtype dtype_rotary() const { return aux_; }
  Rotary rotary() const { return rotary_; }
  bool vectorised() const { return paged_ && pages_.vectorised; }

  // Throws the rule that the problem breaks.
  void check() const {
    demand_counts({{"page_count", paged_ ? pages_.count : 0}, {"scale_block", scale_block_}});
    demand_heads_and_windows();
    refuse_if(rotated() % 2 || rotated() > head_ || rotated() < 0, "rotary-size", rotated(),
              std::to_string(rotated()) + " elements of " + std::to_string(head_) + " are rotated",
              "use an even number up to the head's elements");
    refuse_if(table_rows_ < 0, "rotary-tables", table_rows_,
              "rotary tables of " + std::to_string(table_rows_) + " rows",
              "give a row for each position of a sequence, or 0 for as many as there is room for");
    if (paged_) detail::demand_pages(pages_, kv_, head_);
    demand_types();
    static const char *const operands[] = {"q", "cache_k", "cache_v", "q_out"};
    demand_operand_strides(operands, [this](int which) { return which == 3 ? rotary_q_ : which && !vectorised(); });
    for (int which = 0; which < 2; ++which) {  // new rows, which are only read
      const int64_t shape[] = {batch_, rows_, heads_kv_, which ? head_v_ : head_};
      const int64_t steps[] = {new_[which][0], new_[which][1], new_[which][2], 1};
      detail::demand_span(which ? "v" : "k", shape, 4, has_new_[which] ? steps : nullptr);
    }
  }

  // `with_text`: with the message for people, and checked first.
  Described described(bool with_text = true) const {
    if (with_text) check();
    AttentionProblem p(batch_, heads_q_, rows_, keys_, head_);
    p.heads_kv(heads_kv_).head_dim_v(head_v_).dtype(q_).dtype_kv(kv_).aligned(aligned_);
    p.seqlens_q(lengths_q_).seqlens_k(lengths_k_);
    if (paged_) p.pages(pages_.size, pages_.count, false, pages_.vectorised);
    p.q_strides(strides(0)).k_strides(strides(1)).v_strides(strides(2)).o_strides(strides(3));
    Described described = p.described(false);
    described.signature = signature(), described.family = "append";
    if (with_text) described.text = text_of("attention", q_);
    const auto put = [&](const char *name, int64_t value) {
      for (size_t at = 0; at < described.values.size(); ++at)
        if (!std::strcmp(described.names[at], name)) described.values[at] = value;
    };
    put("family", 3), put("rotary_dim", rotated()), put("rotary_q", rotary_q_), put("size_aux", bytes_of(aux_));
    return described;
  }
  detail::PlanKey key() const {
    detail::PlanKey key(5);
    add_terms(key);
    key.add(pages_.size, pages_.count, paged_, pages_.vectorised, int64_t(q_), int64_t(kv_), int64_t(rotary_), rotated_,
            table_rows_, rotary_q_, int64_t(scales_), scale_block_);
    for (int i = 0; i < 2; ++i) key.add(has_new_[i], new_[i][0], new_[i][1], new_[i][2]);
    return key;
  }
  // One kernel, and nothing between stages.
  std::vector<Described> stages() const { return detail::one_stage(described(false)); }
  std::vector<int64_t> measured(size_t) const { return measured_form({0, 1, 2}).described(false).values; }
  static int64_t between_bytes() { return 0; }
  template <class Use> void with_args(size_t, const AttentionAppendOperands &o, char *, Use use) const {
    const tw_attention_append_args arguments = args(o);
    use(&arguments);
  }
  static const char *table_at(size_t, size_t place) {
    return place == offsetof(tw_attention_append_args, lengths)       ? "cache_seqlens"
           : place == offsetof(tw_attention_append_args, lengths_new) ? "seqlens_new"
           : place == offsetof(tw_attention_append_args, pages.table) ? "block_table"
                                                                      : "a table";
  }

  tw_attention_append_args args(const AttentionAppendOperands &o) const {
    demand_operands(o);
    tw_attention_append_args a{};
    a.batch = batch_, a.heads_q = heads_q_, a.heads_kv = heads_kv_, a.rows = rows_, a.keys = keys_;
    a.head_qk = head_, a.head_v = head_v_, a.rotary = rotated();
    a.k = o.k_at, a.v = o.v_at, a.cache_k = o.cache_k_at, a.cache_v = o.cache_v_at, a.lengths = o.lengths_at;
    a.k_strides = fresh(0), a.v_strides = fresh(1), a.cache_k_strides = plain(1), a.cache_v_strides = plain(2);
    if (rotary_q_) a.q = o.q_at, a.q_out = o.q_out_at, a.q_strides = plain(0), a.q_out_strides = plain(3);
    a.lengths_new = lengths_q_ ? o.new_at : nullptr;
    if (paged_) {
      const int64_t entries = (keys_ + pages_.size - 1) / pages_.size;
      a.pages = {o.table_at, nullptr, nullptr, o.table_stride ? o.table_stride : entries, pages_.size, pages_.count};
    }
    if (rotary_ != Rotary::none) {
      a.cos = o.cos_at, a.sin = o.sin_at;
      a.table_rows = table_rows_ ? table_rows_ : keys_, a.table_stride = rotated() / 2;
    }
    a.k_scales = detail::scales_of(scales_, o.k_scale_at, heads_kv_, keys_, scale_block_);
    a.v_scales = detail::scales_of(scales_, o.v_scale_at, heads_kv_, keys_, scale_block_);
    return a;
  }

 private:
  int64_t rotated() const { return rotary_ == Rotary::none ? 0 : rotated_ ? rotated_ : head_; }
  Shape shape(int operand) const {  // q, cache_k, cache_v, q_out
    const bool cache = operand == 1 || operand == 2;
    const int64_t size = operand == 2 ? head_v_ : head_;
    if (!cache) return {batch_, rows_, heads_q_, size};
    if (paged_) return {pages_.count, pages_.size, heads_kv_, size};
    return {batch_, keys_, heads_kv_, size};
  }
  Strides strides(int operand) const {
    if (has_[operand]) return strides_[operand];
    const Shape s = shape(operand);
    if (vectorised() && (operand == 1 || operand == 2)) return {s[1] * s[2] * s[3], 0, s[1] * s[3]};
    return {s[1] * s[2] * s[3], s[2] * s[3], s[3]};
  }
  tw_attention_strides plain(int operand) const {
    const Strides s = strides(operand);
    return {s[0], s[1], s[2]};
  }
  tw_attention_strides fresh(int which) const {  // of new rows: k, v
    const int64_t size = which ? head_v_ : head_;
    if (has_new_[which]) return {new_[which][0], new_[which][1], new_[which][2]};
    return {rows_ * heads_kv_ * size, heads_kv_ * size, size};
  }
  void demand_types() const {
    const auto narrow = [](Dtype t) { return t == Dtype::fp8_e4m3 || t == Dtype::fp8_e4m3fnuz; };
    detail::demand_scales(scales_);
    refuse_if(rotary_ < Rotary::none || rotary_ > Rotary::half, "rotary-name", int64_t(rotary_),
              "no rotary embedding has the number " + std::to_string(int(rotary_)), "use one of tw::Rotary");
    if (scales_ != Scales::none && (kv_ == q_ || !narrow(kv_)))
      throw detail::request_error("scales-dtype", name_of(kv_),
                                  std::string("scales, and new rows of ") + name_of(q_) + " go into a cache of " +
                                      name_of(kv_) + " as they are",
                                  "leave the scales out, or give a cache of fp8 and rows of another type");
    refuse_if(scales_ == Scales::block && scale_block_ < 1, "scale-block", scale_block_,
              "scales for each " + std::to_string(scale_block_) + " rows", "give the rows of a block, 1 or more");
    if (!is_wide(q_) && !narrow(q_))
      throw detail::request_error("dtype-input", name_of(q_), std::string(name_of(q_)) + " is not a type of new rows",
                                  "use fp32, fp16, bf16, fp8_e4m3 or fp8_e4m3fnuz");
    if (kv_ != q_ && !(is_wide(q_) && narrow(kv_)))
      throw detail::request_error(
          "dtype-mix", name_of(kv_),
          std::string("new rows of ") + name_of(q_) + " do not go into a cache of " + name_of(kv_),
          "use a cache of their type, or of fp8");
  }
  void demand_operands(const AttentionAppendOperands &o) const {
    const detail::OperandCheck check{"AttentionAppendProblem", "AttentionAppendOperands"};
    const bool rows = batch_ && rows_, turns = rotary_ != Rotary::none, scaled = scales_ != Scales::none;
    if (rotary_ != Rotary::none && aux_ != Dtype::fp32 && aux_ != q_)
      throw detail::request_error("rotary-tables", name_of(aux_), std::string("tables of ") + name_of(aux_),
                                  "give fp32, or the type of the new rows");
    check.need(rows, o.k_at, "k"), check.need(rows, o.v_at, "v"), check.need(rows, o.cache_k_at, "cache_k");
    check.need(rows, o.cache_v_at, "cache_v"), check.need(rows, o.lengths_at, "cache_seqlens");
    check.need(rows && rotary_q_, o.q_at && o.q_out_at ? o.q_at : nullptr, "q");
    check.need(rows && lengths_q_, o.new_at, "seqlens_new"), check.need(rows && paged_, o.table_at, "block_table");
    check.need(rows && turns, o.cos_at && o.sin_at ? o.cos_at : nullptr, "rotary");
    check.need(rows && scaled, o.k_scale_at && o.v_scale_at ? o.k_scale_at : nullptr, "kv_scales");
    check.only(rotary_q_, o.q_at, "rotary_q"), check.only(lengths_q_, o.new_at, "seqlens_new");
    check.only(paged_, o.table_at, "pages"), check.only(turns, o.cos_at || o.sin_at, "rotary");
    check.only(scaled, o.k_scale_at || o.v_scale_at, "kv_scales");
    detail::demand_entries(o.table_stride, paged_ ? pages_ : Pages{}, keys_);
  }
  std::string signature() const {
    const Pages pages = paged_ ? pages_ : Pages{};
    return detail::Signature()
        .text("bias", "none")
        .flag("dropout", false)
        .text("dtype_aux", name_of(rotary_ == Rotary::none ? Dtype::fp32 : aux_))
        .text("dtype_kv", name_of(kv_))
        .text("dtype_out", name_of(kv_))
        .text("dtype_q", name_of(q_))
        .text("family", "append")
        .number("head_qk", head_class(head_))
        .number("head_v", head_class(head_v_))
        .text("lookup", detail::lookup_of(pages))
        .flag("lse", false)
        .text("mask", "none")
        .flag("masked", false)
        .flag("packed", false)
        .text("pages", detail::kind_of(pages))
        .text("rotary", name_of(rotary_))
        .text("scales", "none")
        .flag("sink", false)
        .flag("softcap", false)
        .done();
  }

  int64_t rotated_ = 0, table_rows_ = 0, scale_block_ = 0;
  Dtype q_ = Dtype::fp32, kv_ = Dtype::fp32;
  Rotary rotary_ = Rotary::none;
  Scales scales_ = Scales::none;
  Pages pages_;
  bool paged_ = false, rotary_q_ = false;
  Strides new_[2] = {};
  bool has_new_[2] = {};
};

}  // namespace tw
