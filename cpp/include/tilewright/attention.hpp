// Attention, forward: o = softmax(scale * q.k + bias) v over the keys a row sees, and its lse.
#pragma once
#include <tilewright/attention_args.h>
#include <tilewright/attention_terms.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace tw {

// How scales of fp8 operands are dealt: one number for all, one a head, or one for each `scale_block` rows of a head.
enum class Scales { none, tensor, head, block };

inline const char *name_of(Scales kind) {
  static const char *const names[] = {"none", "tensor", "head", "block"};
  return kind >= Scales::none && kind <= Scales::block ? names[int(kind)] : "unknown";
}

// Keys and values in pages, by a table of each sequence or by page indices.  `vectorised` pages hold 16 bytes of a row
// side by side (<tilewright/attention_args.h>); others have the layout of their strides.
struct Pages {
  int64_t size = 0, count = 0;  // slots of a page, and pages there are
  bool indices = false, vectorised = false;
};

namespace detail {

// fp32 numbers, dense: (1), (heads), or (sequences, heads, blocks) by the kind.
inline tw_attention_scales scales_of(Scales kind, const void *at, int64_t heads, int64_t rows, int64_t block_rows) {
  if (kind == Scales::none) return {nullptr, 0, 0, 0, 0};
  if (kind != Scales::block) return {at, 0, kind == Scales::head && heads > 1 ? 1 : 0, 0, 0};
  const int64_t blocks = rows > block_rows ? (rows + block_rows - 1) / block_rows : 1;
  return {at, heads * blocks, heads > 1 ? blocks : 0, blocks > 1 ? 1 : 0, block_rows};
}

// Entries of a block table, as an operand says; 0: as many as the keys take.  Page indices are of all sequences together:
// how many there are to be, only their indptr says.
inline void demand_entries(int64_t entries, const Pages &pages, int64_t keys) {
  if (entries < 0 || entries >= int64_t(1) << 31)
    throw request_error("page-entries", std::to_string(entries),
                        "a block table of " + std::to_string(entries) + " entries a sequence",
                        "use 1 up to 2^31 - 1, or 0 for as many as the keys take");
  const int64_t least = pages.size > 0 && !pages.indices ? (keys + pages.size - 1) / pages.size : 0;
  if (entries && entries < least)
    throw request_error("page-entries", std::to_string(entries),
                        "a block table of " + std::to_string(entries) + " entries a sequence, and " +
                            std::to_string(keys) + " keys need " + std::to_string(least) + " pages of " +
                            std::to_string(pages.size),
                        "give " + std::to_string(least) + " entries, or describe a problem of at most " +
                            std::to_string(entries * pages.size) + " keys");
}

inline void demand_scales(Scales kind) {
  if (kind < Scales::none || kind > Scales::block)
    throw request_error("scales-name", std::to_string(int(kind)),
                        "no scales have the number " + std::to_string(int(kind)), "use one of tw::Scales");
}
inline const char *lookup_of(const Pages &pages) { return !pages.size ? "none" : pages.indices ? "indices" : "table"; }
inline const char *kind_of(const Pages &pages) {
  return !pages.size ? "none" : pages.vectorised ? "vectorised" : "strided";
}
// What vectorised pages require of their sizes.
inline void demand_pages(const Pages &pages, Dtype type, int64_t head) {
  constexpr int64_t kMostPage = 1024;
  const auto refuse = [](const char *rule, int64_t value, const std::string &what, const std::string &remedy) {
    throw request_error(rule, std::to_string(value), what, remedy);
  };
  if (pages.size < 1 || pages.size > kMostPage)
    refuse("page-size", pages.size, "a page of " + std::to_string(pages.size) + " slots", "use 1 to 1024");
  const int64_t vector = 16 / bytes_of(type);
  if (pages.vectorised && pages.size % vector)
    refuse("page-vector", pages.size, "a vectorised page of " + std::to_string(pages.size) + " slots",
           "use a multiple of " + std::to_string(vector) + " slots");
  if (pages.vectorised && head % vector)
    refuse("page-vector", head, "vectorised keys of " + std::to_string(head) + " elements",
           "use heads of a multiple of " + std::to_string(vector));
}

}  // namespace detail

// Addresses and strides of the operands of attention.
struct AttentionOperands : AttentionOperandTerms<AttentionOperands> {
  void *o_at = nullptr, *lse_at = nullptr;
  const void *table_at = nullptr, *indptr_at = nullptr, *last_at = nullptr;
  const void *q_scale_at = nullptr, *k_scale_at = nullptr, *v_scale_at = nullptr;
  int64_t table_stride = 0;

  AttentionOperands &o(void *at) { return o_at = at, *this; }
  AttentionOperands &lse(void *at) { return lse_at = at, *this; }
  // Entries of a sequence; with page indices, of all.
  AttentionOperands &block_table(const void *at, int64_t entries = 0) {
    return table_at = at, table_stride = entries, *this;
  }
  AttentionOperands &page_indptr(const void *at) { return indptr_at = at, *this; }
  AttentionOperands &page_last(const void *at) { return last_at = at, *this; }
  AttentionOperands &q_scale(const void *at) { return q_scale_at = at, *this; }  // fp32
  AttentionOperands &kv_scales(const void *of_k, const void *of_v) {
    return k_scale_at = of_k, v_scale_at = of_v, *this;
  }
};

class AttentionProblem : public AttentionTerms<AttentionProblem, 4> {
  using Terms = AttentionTerms<AttentionProblem, 4>;
  friend Terms;

 public:
  using Operands = AttentionOperands;

  AttentionProblem(int64_t batch, int64_t heads, int64_t seqlen_q, int64_t seqlen_k, int64_t head_dim)
      : Terms(batch, heads, seqlen_q, seqlen_k, head_dim) {}

  AttentionProblem &dtype(Dtype type) { return q_ = kv_ = type, *this; }
  AttentionProblem &dtype_kv(Dtype type) { return kv_ = type, *this; }
  AttentionProblem &dtype_out(Dtype type) { return out_ = type, has_out_ = true, *this; }
  AttentionProblem &return_lse(bool with = true) { return lse_ = with, *this; }
  AttentionProblem &sink(bool with = true) { return sink_ = with, *this; }
  AttentionProblem &pages(int64_t page_size, int64_t page_count, bool indices = false, bool vectorised = false) {
    return paged_ = true, pages_ = {page_size, page_count, indices, vectorised}, *this;
  }
  // Of operands of fp8; `scale_block` rows share a number of Scales::block.
  AttentionProblem &q_scale(Scales kind) { return q_scale_ = kind, *this; }
  AttentionProblem &kv_scales(Scales kind) { return kv_scales_ = kind, *this; }
  AttentionProblem &scale_block(int64_t rows) { return scale_block_ = rows, *this; }
  // Number of KV splits, which a second kernel combines; 0 and 1: no split.
  AttentionProblem &num_splits(int64_t parts) { return splits_ = parts, *this; }
  AttentionProblem &q_strides(Strides s) { return strides_[0] = s, has_[0] = true, *this; }
  AttentionProblem &k_strides(Strides s) { return strides_[1] = s, has_[1] = true, *this; }
  AttentionProblem &v_strides(Strides s) { return strides_[2] = s, has_[2] = true, *this; }
  AttentionProblem &o_strides(Strides s) { return strides_[3] = s, has_[3] = true, *this; }

  int64_t num_splits() const { return splits_; }
  Dtype dtype_q() const { return q_; }
  Dtype dtype_kv() const { return kv_; }
  Dtype dtype_out() const { return has_out_ ? out_ : is_wide(q_) ? q_ : Dtype::bf16; }

  // Throws the rule that the problem breaks.
  void check() const {
    constexpr int64_t kMostSplits = 128;
    demand_counts({{"num_splits", splits_},
                   {"page_count", paged_ ? pages_.count : 0},
                   {"total_q", varlen_ ? total_q_ : 0},
                   {"total_k", packed_keys() ? total_k_ : 0},
                   {"scale_block", by_block() ? scale_block_ : 0}});
    refuse_if(splits_ > kMostSplits, "splits", splits_,
              std::to_string(splits_) + " splits, and at most 128 are combined", "use 1 to 128, or leave it out");
    demand_heads_and_windows();
    if (paged_) detail::demand_pages(pages_, kv_, head_);
    demand_repeats();
    refuse_if(by_block() && scale_block_ < 1, "scale-block", scale_block_,
              "scales for each " + std::to_string(scale_block_) + " rows", "give scale_block, 1 or more");
    demand_types();
    static const char *const operands[] = {"q", "k", "v", "o"};
    demand_operand_strides(operands, [](int which) { return which == 3; });
  }

  // `with_text`: with the message for people, and checked first; without: as selection asks, which has checked it.
  Described described(bool with_text = true) const {
    if (with_text) check();
    static const std::vector<const char *> names =
        detail::joined({size_names(),
                        {"type_q", "size_q", "size_kv", "size_out", "size_aux"},
                        score_names(),
                        {"varlen",    "total_q",    "total_k",    "seqlens_q",  "seqlens_k", "pages",   "page_lookup",
                         "page_size", "page_count", "num_splits", "rotary_dim", "rotary_q",  "q_batch", "q_row",
                         "q_head",    "k_batch",    "k_row",      "k_head",     "v_batch",   "v_row",   "v_head",
                         "o_batch",   "o_row",      "o_head",     "aligned"}});
    std::vector<int64_t> v;
    v.reserve(names.size());
    add_sizes(v, family_);
    v.insert(v.end(), {type(q_), bytes_of(q_), bytes_of(kv_), bytes_of(dtype_out()), bytes_of(aux_)});
    add_scores(v);
    v.insert(v.end(), {varlen_, varlen_ ? total_q_ : 0, packed_keys() ? total_k_ : 0, lengths_q_, lengths_k_});
    v.insert(v.end(), {paged_ ? (pages_.vectorised ? 2 : 1) : 0, paged_ ? (pages_.indices ? 2 : 1) : 0,
                       paged_ ? pages_.size : 0, paged_ ? pages_.count : 0, splits_, 0, 0});
    add_strides(v);
    v.push_back(aligned_);
    return {
        "attention", signature(), with_text ? text_of("attention", q_) : std::string(), names.data(), std::move(v), 0,
        0,           family()};
  }
  // As Python's lock files call it.
  const char *family() const {
    if (family_) return family_ == 1 ? "split" : "combine";
    if (rows_ <= 8) return paged_ ? "paged" : "decode";
    if (varlen_) return "packed";
    if (paged_ || (rows_ < keys_ && bottom_right())) return "chunk";
    return left_ >= 0 ? "window" : right_ == 0 ? "prefill" : "encoder";
  }

  // What a plan depends on.
  detail::PlanKey key() const {
    detail::PlanKey key(3);
    add_terms(key);
    key.add(pages_.size, pages_.count, splits_, int64_t(q_), int64_t(kv_), int64_t(dtype_out()), lse_, sink_, paged_,
            pages_.indices, pages_.vectorised, int64_t(q_scale_), int64_t(kv_scales_), scale_block_);
    return key;
  }
  // One kernel; or a split kernel and a combine kernel, with the partial results between them.
  std::vector<Described> stages() const {
    if (splits_ <= 1) return {described(false)};
    return {part().described(false), combined().described(false)};
  }
  std::vector<int64_t> measured(size_t stage) const {
    const AttentionProblem p = splits_ <= 1 ? *this : stage == 0 ? part() : combined();
    return p.measured_form({0, 1, 2}).described(false).values;
  }
  int64_t between_bytes() const {
    if (splits_ <= 1) return 0;
    demand_parts();
    return part_bytes(part_elements()) + part_bytes(part_accum());
  }
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

  // The table whose pointer has this index in the arguments.
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
  bool vectorised() const { return paged_ && pages_.vectorised; }

 private:
  tw_attention_args filled(const AttentionOperands &o) const {
    tw_attention_args a{};
    fill_sizes(a, packed_keys()), fill_tables(a, o, packed_keys()), fill_scores(a, o);
    a.q = o.q_at, a.k = o.k_at, a.v = o.v_at, a.o = o.o_at, a.lse = lse_ ? o.lse_at : nullptr;
    tw_attention_strides *const into[] = {&a.q_strides, &a.k_strides, &a.v_strides, &a.o_strides};
    for (int operand = 0; operand < 4; ++operand) {
      const Strides s = strides(operand);
      *into[operand] = {s[0], s[1], s[2]};
    }
    a.lse_batch = varlen_ ? 0 : one_or(heads_q_ * rows_), a.lse_head = one_or(varlen_ ? total_q_ : rows_);
    if (paged_) {
      const int64_t entries = (keys_ + pages_.size - 1) / pages_.size * (pages_.indices ? batch_ : 1);
      a.pages = {o.table_at,
                 pages_.indices ? o.indptr_at : nullptr,
                 pages_.indices ? o.last_at : nullptr,
                 o.table_stride ? o.table_stride : entries,
                 pages_.size,
                 pages_.count};
    }
    a.sink = sink_ ? o.sink_at : nullptr;
    a.q_scales = detail::scales_of(q_scale_, o.q_scale_at, heads_q_, rows_, scale_block_);
    a.k_scales = detail::scales_of(kv_scales_, o.k_scale_at, heads_kv_, keys_, scale_block_);
    a.v_scales = detail::scales_of(kv_scales_, o.v_scale_at, heads_kv_, keys_, scale_block_);
    a.splits = 1;
    return a;
  }

  // The split stage; what it writes is dense and of fp32.
  AttentionProblem part() const {
    AttentionProblem p = *this;
    p.family_ = 1, p.lse_ = false, p.has_[3] = false;
    return p.dtype_out(Dtype::fp32);
  }
  // The combine stage.
  AttentionProblem combined() const {
    AttentionProblem p(batch_, heads_q_, rows_, 0, head_v_);
    p.family_ = 2, p.has_[3] = has_[3], p.strides_[3] = strides_[3];
    if (varlen_) p.varlen(total_q_, 0);
    return p.dtype_out(dtype_out()).return_lse(lse_).seqlens_q(lengths_q_).num_splits(splits_);
  }
  int64_t part_elements() const { return shape(3)[0] * shape(3)[1] * heads_q_ * head_v_; }  // of one split
  int64_t part_accum() const { return heads_q_ * (varlen_ ? total_q_ : batch_ * rows_); }
  int64_t part_bytes(int64_t elements) const { return (splits_ * elements * 4 + 63) / 64 * 64; }

  void demand_parts() const {  // that no number of bytes of them overflows
    const Shape whole = shape(3);
    const int64_t parts[] = {splits_, whole[0], whole[1], whole[2], whole[3]};
    detail::demand_span("the results of all splits", parts, 5, nullptr);
  }

  tw_attention_args part_args(const AttentionOperands &o, char *between) const {
    demand_operands(o), demand_parts();
    tw_attention_args a = part().filled(o);
    a.o = between, a.lse = between + part_bytes(part_elements());
    a.splits = splits_, a.o_split = part_elements(), a.lse_split = part_accum();
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
    a.part_split = part_elements(), a.part_lse_split = part_accum();
    a.part_lse_batch = a.lse_batch = varlen_ ? 0 : one_or(heads_q_ * rows_);
    a.part_lse_head = a.lse_head = one_or(varlen_ ? total_q_ : rows_);
    a.starts_q = varlen_ ? o.starts_q_at : nullptr, a.lengths_q = lengths_q_ ? o.lengths_q_at : nullptr;
    return a;
  }

  // Which types go together, on every target.
  void demand_types() const {
    const auto narrow = [](Dtype t) { return t == Dtype::fp8_e4m3 || t == Dtype::fp8_e4m3fnuz; };
    const auto refuse = [](const char *rule, Dtype value, const std::string &why, const char *remedy) {
      throw detail::request_error(rule, name_of(value), why, remedy);
    };
    detail::demand_scales(q_scale_), detail::demand_scales(kv_scales_);
    if (!is_wide(q_) && !narrow(q_))
      refuse("dtype-input", q_, std::string(name_of(q_)) + " is not a type of q",
             "use fp32, fp16, bf16, fp8_e4m3 or fp8_e4m3fnuz");
    if (kv_ != q_ && !(narrow(kv_) && (q_ == Dtype::fp16 || q_ == Dtype::bf16)))
      refuse("dtype-mix", kv_, std::string("keys of ") + name_of(kv_) + " do not go with queries of " + name_of(q_),
             "use the type of the queries, or fp8 with queries of fp16 or bf16");
    if (!is_wide(dtype_out()))
      refuse("dtype-output", dtype_out(), std::string("attention cannot give ") + name_of(dtype_out()),
             "use fp32, fp16 or bf16");
    if (scales() != Scales::none && !narrow(q_) && !narrow(kv_))
      refuse("scales-dtype", q_, std::string("scales of ") + name_of(scales()) + " with elements of " + name_of(q_),
             "only fp8 has scales; set AttentionOperands::scale() instead");
    if (bias_kind_ == 1 && aux_ != Dtype::fp32 && (aux_ != q_ || !is_wide(q_)))
      refuse("dtype-bias", aux_, std::string("a bias of ") + name_of(aux_) + " with queries of " + name_of(q_),
             "use fp32, or the type of the queries");
  }

  bool packed_keys() const { return varlen_ && !paged_; }
  bool by_block() const { return q_scale_ == Scales::block || kv_scales_ == Scales::block; }
  Scales scales() const { return kv_scales_ > q_scale_ ? kv_scales_ : q_scale_; }  // the finest
  // The number of selection; those of other types are -1 there.
  static int64_t type(Dtype t) {
    static const Dtype known[] = {Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::fp8_e4m3, Dtype::fp8_e4m3fnuz};
    for (int64_t number = 0; number < 5; ++number)
      if (known[number] == t) return number;
    return -1;
  }
  Shape shape(int operand) const {  // q, k, v, o: sequences or pages, rows, heads, elements
    const bool keys = operand == 1 || operand == 2;
    const int64_t size = operand < 2 ? head_ : head_v_, heads = keys ? heads_kv_ : heads_q_;
    if (!keys) return {varlen_ ? 1 : batch_, varlen_ ? total_q_ : rows_, heads, size};
    if (paged_) return {pages_.count, pages_.size, heads, size};
    return {packed_keys() ? 1 : batch_, packed_keys() ? total_k_ : keys_, heads, size};
  }
  Strides strides(int operand) const {
    if (has_[operand]) return strides_[operand];
    const Shape s = shape(operand);
    const bool keys = operand == 1 || operand == 2, packed = keys ? packed_keys() : varlen_;
    if (keys && vectorised()) return {s[1] * s[2] * s[3], 0, s[1] * s[3]};
    return {packed ? 0 : s[1] * s[2] * s[3], s[2] * s[3], s[3]};
  }
  // Names are those that specs are stored by.
  std::string signature() const {
    static const char *const families[] = {"forward", "split", "combine"};
    const Pages pages = paged_ ? pages_ : Pages{};
    return detail::Signature()
        .text("bias", bias_word())
        .flag("dropout", dropout_)
        .text("dtype_aux", aux_word())
        .text("dtype_kv", name_of(kv_))
        .text("dtype_out", name_of(dtype_out()))
        .text("dtype_q", name_of(q_))
        .text("family", families[family_])
        .number("head_qk", head_class(head_))
        .number("head_v", head_class(head_v_))
        .text("lookup", detail::lookup_of(pages))
        .flag("lse", lse_)
        .text("mask", mask_word())
        .flag("masked", masked_)
        .flag("packed", varlen_)
        .text("pages", detail::kind_of(pages))
        .text("rotary", "none")
        .text("scales", name_of(scales()))
        .flag("sink", sink_)
        .flag("softcap", softcap_)
        .done();
  }
  void demand_operands(const AttentionOperands &o) const {
    const detail::OperandCheck check{"AttentionProblem", "AttentionOperands"};
    const bool rows = batch_ && (varlen_ ? total_q_ : rows_), keys = batch_ && keys_;
    check.need(rows, o.q_at, "q"), check.need(rows, o.o_at, "o");
    check.need(rows && keys, o.k_at, "k"), check.need(rows && keys, o.v_at, "v");
    check.need(rows && lse_, o.lse_at, "lse"), check.need(rows && sink_, o.sink_at, "sink");
    check.need(packed_keys(), o.starts_k_at, "cu_seqlens_k");
    check.need(paged_, o.table_at, "block_table"), check.need(paged_ && pages_.indices, o.indptr_at, "page_indptr");
    check.need(paged_ && pages_.indices, o.last_at, "page_last");
    const bool kv = kv_scales_ != Scales::none, q = q_scale_ != Scales::none;
    check.need(rows && q, o.q_scale_at, "q_scale");
    check.need(rows && keys && kv, o.k_scale_at && o.v_scale_at ? o.k_scale_at : nullptr, "kv_scales");
    check.only(paged_ && pages_.indices, o.indptr_at, "page_indptr", "pages");
    check.only(paged_ && pages_.indices, o.last_at, "page_last", "pages");
    if (rows && keys) detail::demand_apart_from("o", o.o_at, {{"q", o.q_at}, {"k", o.k_at}, {"v", o.v_at}});
    check.only(lse_, o.lse_at, "lse", "return_lse");
    check.only(sink_, o.sink_at, "sink"), check.only(paged_, o.table_at, "pages");
    detail::demand_entries(o.table_stride, paged_ ? pages_ : Pages{}, keys_);
    check.only(q, o.q_scale_at, "q_scale"), check.only(kv, o.k_scale_at || o.v_scale_at, "kv_scales");
    demand_scores(check, o, rows);
  }

  int64_t splits_ = 0, scale_block_ = 0;
  int64_t family_ = 0;  // of a stage: 1 is the split stage, 2 combines
  Dtype q_ = Dtype::fp32, kv_ = Dtype::fp32, out_ = Dtype::fp32;
  Scales q_scale_ = Scales::none, kv_scales_ = Scales::none;
  Pages pages_;
  bool has_out_ = false, lse_ = false, sink_ = false, paged_ = false;
};

}  // namespace tw
