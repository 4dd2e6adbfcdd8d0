// Gradients of attention: dq, dk and dv of dout, in two or three stages (dot, grad, and convert where grad leaves fp32 accumulators).
#pragma once
#include <tilewright/attention_backward_args.h>
#include <tilewright/attention_terms.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace tw {

// Addresses and strides of the operands of attention's gradients.  `lse` is what the forward pass gave, of fp32; so are dlse and the
// gradients of bias, slopes and sinks.
struct AttentionBackwardOperands : AttentionOperandTerms<AttentionBackwardOperands> {
  const void *out_at = nullptr, *dout_at = nullptr, *lse_at = nullptr, *dlse_at = nullptr;
  void *dq_at = nullptr, *dk_at = nullptr, *dv_at = nullptr, *dbias_at = nullptr, *dalibi_at = nullptr,
       *dsink_at = nullptr;

  using Self = AttentionBackwardOperands;
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
};

// Which results `grad` leaves as fp32 accumulators to a third stage; kernels of CPUs leave none.
enum class Accums { none, dq, dkv, all };

class AttentionBackwardProblem : public AttentionTerms<AttentionBackwardProblem, 8> {
  using Terms = AttentionTerms<AttentionBackwardProblem, 8>;
  friend Terms;

 public:
  using Operands = AttentionBackwardOperands;
  using Self = AttentionBackwardProblem;
  enum Operand : int { q, k, v, out, dout, dq, dk, dv };

  AttentionBackwardProblem(int64_t batch, int64_t heads, int64_t seqlen_q, int64_t seqlen_k, int64_t head_dim)
      : Terms(batch, heads, seqlen_q, seqlen_k, head_dim) {}

  Self &dtype(Dtype type) { return type_ = type, *this; }
  Self &dlse(bool with = true) { return dlse_ = with, *this; }    // lse has a gradient too
  Self &dsink(bool with = true) { return dsink_ = with, *this; }  // these are requested besides
  Self &dbias(bool with = true) { return dbias_ = with, *this; }
  Self &dalibi(bool with = true) { return dalibi_ = with, *this; }
  Self &deterministic(bool same_bits = true) { return deterministic_ = same_bits, *this; }
  // `dkv_splits`: accumulators of dk and dv per KV head, where they are left; 0: one per query head.
  Self &accum(Accums left, int64_t dkv_splits = 0) { return accum_ = left, parts_ = dkv_splits, *this; }
  Self &strides(Operand which, Strides s) {
    if (which < q || which > dv)
      throw detail::request_error("operand-name", std::to_string(int(which)),
                                  "no operand has the number " + std::to_string(int(which)),
                                  "use one of AttentionBackwardProblem::Operand");
    return strides_[which] = s, has_[which] = true, *this;
  }

  Dtype dtype() const { return type_; }

  // Throws the rule that the problem breaks.
  void check() const {
    demand_counts({{"total_q", varlen_ ? total_q_ : 0}, {"total_k", varlen_ ? total_k_ : 0}});
    refuse_if(accum_ < Accums::none || accum_ > Accums::all, "accum", int64_t(accum_),
              "no accumulators have the number " + std::to_string(int(accum_)), "use one of tw::Accums");
    refuse_if(parts_ < 0 || parts_ > 1024, "dkv-splits", parts_, std::to_string(parts_) + " splits of dk and dv",
              "use 1 to 1024, or 0 for one a query head");
    demand_heads_and_windows(), demand_repeats();
    refuse_if(!is_wide(type_), "dtype-input", int64_t(type_),
              std::string("attention of ") + name_of(type_) + " has no gradients", "use fp32, fp16 or bf16");
    refuse_if(bias_kind_ == 1 && aux_ != Dtype::fp32 && aux_ != type_, "dtype-bias", int64_t(aux_),
              std::string("a bias of ") + name_of(aux_), "use fp32, or the type of the queries");
    refuse_if(dbias_ && bias_kind_ != 1, "dbias-bias", bias_kind_, "the gradient of a bias that is not there",
              "describe the bias, or leave it out");
    refuse_if(dalibi_ && bias_kind_ != 2, "dalibi-bias", bias_kind_, "the gradient of slopes that are not there",
              "use alibi(), or leave it out");
    static const char *const names[] = {"q", "k", "v", "o", "do", "dq", "dk", "dv"};
    demand_operand_strides(names, [](int which) { return which >= dq; });
  }

  // `with_text`: with the message for people, and checked first.
  Described described(bool with_text = true) const {
    if (with_text) check();
    return stage(1).described_stage(1, with_text);
  }
  detail::PlanKey key() const {
    detail::PlanKey key(4);
    add_terms(key);
    key.add(int64_t(type_), int64_t(accum_), parts_, dlse_, dsink_, dbias_, dalibi_, deterministic_);
    return key;
  }

  std::vector<Described> stages() const {
    std::vector<Described> all = {stage(0).described_stage(0, false), stage(1).described_stage(1, false)};
    if (accum_ != Accums::none) all.push_back(stage(2).described_stage(2, false));
    return all;
  }
  std::vector<int64_t> measured(size_t which) const {
    return stage(int(which)).measured_form({q, k, dout}).described_stage(int(which), false).values;
  }
  int64_t between_bytes() const {
    demand_between();
    return accum_at(3);
  }
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

  bool accum_dq() const { return accum_ == Accums::dq || accum_ == Accums::all; }
  bool accum_dkv() const { return accum_ == Accums::dkv || accum_ == Accums::all; }
  int64_t dkv_heads() const { return !accum_dkv() ? heads_kv_ : parts_ > 0 ? heads_kv_ * parts_ : heads_q_; }

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

  // -- what one stage leaves for the next --------------------------------------------------------------------------------------------

  int64_t prepared_rows(bool keys) const {
    const int64_t rows = keys ? keys_ : rows_, total = keys ? total_k_ : total_q_;
    return varlen_ ? (total / kRows + (batch_ > 1 ? batch_ : 1)) * kRows : (rows + kRows - 1) / kRows * kRows;
  }
  int64_t sequences() const { return varlen_ ? 1 : batch_; }
  static int64_t lines(int64_t elements) { return (4 * elements + 63) / 64 * 64; }
  // Behind delta and lse_log2: the accumulators of dq, dk and dv, as far as there are; 3 is the end.
  int64_t accum_at(int which) const {
    int64_t at = 2 * lines(sequences() * heads_q_ * prepared_rows(false));
    if (which > 0 && accum_dq()) at += lines(sequences() * heads_q_ * prepared_rows(false) * head_);
    if (which > 1 && accum_dkv()) at += lines(sequences() * dkv_heads() * prepared_rows(true) * head_);
    if (which > 2 && accum_dkv()) at += lines(sequences() * dkv_heads() * prepared_rows(true) * head_v_);
    return at;
  }
  tw_attention_strides accum_strides(int which) const {  // 0: dq, 1: dk, 2: dv
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
    fill_sizes(a, varlen_), fill_tables(a, o, varlen_), fill_scores(a, o);
    a.q = o.q_at, a.k = o.k_at, a.v = o.v_at, a.dout = o.dout_at;
    a.q_strides = plain(q), a.k_strides = plain(k), a.v_strides = plain(v), a.dout_strides = plain(dout);
    a.dq = accum_dq() ? between + accum_at(0) : o.dq_at, a.dq_strides = accum_dq() ? accum_strides(0) : plain(dq);
    a.dk = accum_dkv() ? between + accum_at(1) : o.dk_at, a.dk_strides = accum_dkv() ? accum_strides(1) : plain(dk);
    a.dv = accum_dkv() ? between + accum_at(2) : o.dv_at, a.dv_strides = accum_dkv() ? accum_strides(2) : plain(dv);
    const tw_attention_backward_dot_args prepared = dot_args(o, between);
    a.delta = prepared.delta, a.lse_log2 = prepared.lse_log2;
    a.prepared_batch = prepared.prepared_batch, a.prepared_head = prepared.prepared_head;
    a.lse = prepared.lse, a.lse_batch = prepared.lse_batch, a.lse_head = prepared.lse_head;
    a.dkv_heads = dkv_heads(), a.deterministic = deterministic_;
    if (dbias_) a.dbias = o.dbias_at, repeat(bias_, a.dbias_strides);
    if (dalibi_) a.dalibi = o.dalibi_at, a.dalibi_head = 1;
    return a;
  }

  tw_attention_backward_convert_args convert_args(const AttentionBackwardOperands &o, char *between) const {
    tw_attention_backward_convert_args a{};
    fill_sizes(a, varlen_), fill_tables(a, o, varlen_);
    const int64_t parts = dkv_heads() / heads_kv_;
    if (accum_dq()) a.dq = {between + accum_at(0), o.dq_at, 1, accum_strides(0), plain(dq)};
    if (accum_dkv()) a.dk = {between + accum_at(1), o.dk_at, parts, accum_strides(1), plain(dk)};
    if (accum_dkv()) a.dv = {between + accum_at(2), o.dv_at, parts, accum_strides(2), plain(dv)};
    a.scale = scale(o);
    return a;
  }

  void demand_between() const {                                               // that no number of bytes overflows
    const int64_t sums[] = {8, sequences(), std::max(heads_q_, dkv_heads()),  // of dq, dk and dv, and what is as large
                            std::max(prepared_rows(false), prepared_rows(true)), std::max(head_, head_v_)};
    detail::demand_span("what stages hand on", sums, 5, nullptr);
  }
  void demand_operands(const AttentionBackwardOperands &o) const {
    demand_between();
    const detail::OperandCheck check{"AttentionBackwardProblem", "AttentionBackwardOperands"};
    const bool rows = batch_ && (varlen_ ? total_q_ : rows_), keys = batch_ && (varlen_ ? total_k_ : keys_);
    check.need(rows, o.q_at, "q"), check.need(rows, o.out_at, "out"), check.need(rows, o.dout_at, "dout");
    check.need(rows, o.lse_at, "lse"), check.need(rows, o.dq_at, "dq"), check.need(keys, o.k_at, "k");
    check.need(keys, o.v_at, "v"), check.need(keys, o.dk_at, "dk"), check.need(keys, o.dv_at, "dv");
    check.need(rows && dlse_, o.dlse_at, "dlse"), check.need(dbias_, o.dbias_at, "dbias");
    check.need(dalibi_, o.dalibi_at, "dalibi"), check.need(dsink_, o.sink_at, "sink");
    check.need(dsink_, o.dsink_at, "dsink"), check.need(varlen_, o.starts_k_at, "cu_seqlens_k");
    check.only(dlse_, o.dlse_at, "dlse"), check.only(dbias_, o.dbias_at, "dbias");
    check.only(dalibi_, o.dalibi_at, "dalibi"), check.only(dsink_, o.dsink_at, "dsink");
    if (rows && keys) demand_results_apart(o);
    demand_scores(check, o, rows);
  }
  static void demand_results_apart(const AttentionBackwardOperands &o) {
    const std::pair<const char *, const void *> results[] = {{"dq", o.dq_at}, {"dk", o.dk_at}, {"dv", o.dv_at}};
    for (const auto &result : results)
      detail::demand_apart_from(result.first, result.second,
                                {{"q", o.q_at}, {"k", o.k_at}, {"v", o.v_at}, {"out", o.out_at}, {"dout", o.dout_at}});
    detail::demand_apart_from("dk", o.dk_at, {results[0]});
    detail::demand_apart_from("dv", o.dv_at, {results[0], results[1]});
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
      if (!accum_dq()) p.has_[dq] = false;
      if (!accum_dkv()) p.has_[dk] = p.has_[dv] = false;
      return p;
    }
    for (int which : {q, k, v, dq, dk, dv}) p.has_[which] = false;
    p.keys_ = p.total_k_ = 0, p.heads_kv_ = heads_q_, p.head_ = head_v_, p.lengths_k_ = false, p.accum_ = Accums::none,
    p.parts_ = 0;
    return p;
  }

  Described described_stage(int family, bool with_text) const {
    static const std::vector<const char *> names = detail::joined(
        {size_names(),
         {"type", "size", "size_aux"},
         score_names(),
         {"dropout",  "varlen",   "total_q",       "total_k",    "seqlens_q", "seqlens_k", "dlse",     "dsink",
          "dbias",    "dalibi",   "deterministic", "accumulate", "q_batch",   "q_row",     "q_head",   "k_batch",
          "k_row",    "k_head",   "v_batch",       "v_row",      "v_head",    "o_batch",   "o_row",    "o_head",
          "do_batch", "do_row",   "do_head",       "dq_batch",   "dq_row",    "dq_head",   "dk_batch", "dk_row",
          "dk_head",  "dv_batch", "dv_row",        "dv_head",    "aligned",   "dkv_splits"}});
    std::vector<int64_t> values;
    values.reserve(names.size());
    add_sizes(values, family);
    values.insert(values.end(), {type_ == Dtype::fp32   ? 0
                                 : type_ == Dtype::fp16 ? 1
                                 : type_ == Dtype::bf16 ? 2
                                                        : -1,
                                 bytes_of(type_), bytes_of(aux_)});
    add_scores(values);
    values.insert(values.end(), {dropout_, varlen_, varlen_ ? total_q_ : 0, varlen_ ? total_k_ : 0, lengths_q_,
                                 lengths_k_, dlse_, dsink_, dbias_, dalibi_, deterministic_, int64_t(accum_)});
    add_strides(values);
    values.push_back(aligned_), values.push_back(dkv_heads() / one_or(heads_kv_));
    return {"attention_backward",
            signature(family),
            with_text ? text_of("attention_backward", type_) : std::string(),
            names.data(),
            std::move(values),
            0,
            0,
            family_name(family)};
  }

  // As Python's lock files call the problem of a stage.
  const char *family_name(int family) const {
    if (family != 1) return family ? "convert" : "dot";
    if (varlen_) return "packed";
    return left_ >= 0 ? "window" : right_ == 0 ? "decoder" : "encoder";
  }
  std::string signature(int family) const {
    static const char *const families[] = {"dot", "grad", "convert"}, *const kinds[] = {"none", "dq", "dkv", "all"};
    return detail::Signature()
        .text("accumulate", kinds[int(accum_)])
        .text("bias", bias_word())
        .flag("dalibi", dalibi_)
        .flag("dbias", dbias_)
        .flag("dlse", dlse_)
        .flag("dropout", dropout_)
        .flag("dsink", dsink_)
        .text("dtype", name_of(type_))
        .text("dtype_aux", aux_word())
        .text("family", families[family])
        .number("head_dim", head_class(head_))
        .number("head_dim_v", head_class(head_v_))
        .text("mask", mask_word())
        .flag("masked", masked_)
        .flag("softcap", softcap_)
        .flag("varlen", varlen_)
        .done();
  }

  int64_t parts_ = 0;
  Dtype type_ = Dtype::fp32;
  Accums accum_ = Accums::none;
  bool dlse_ = false, dsink_ = false, dbias_ = false, dalibi_ = false, deterministic_ = false;
};

}  // namespace tw
