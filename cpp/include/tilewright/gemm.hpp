// GEMM: E = epilogue(alpha * A.B + beta * C, D0, D1, ...), batched.
#pragma once
#include <tilewright/copies.hpp>
#include <tilewright/gemm_args.h>
#include <tilewright/plan_key.hpp>
#include <tilewright/problem.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace tw {

class PackedB;  // <tilewright/packing.hpp>

namespace detail {
inline void demand_column_stride(int64_t step) {
  if (step != 0 && step != 1)
    throw request_error(
        "d-column-stride", std::to_string(step),
        "the columns of a D tensor are " + std::to_string(step) + " elements apart, and kernels read them side by side",
        "use 1, or 0 for one number a row; copy a D tensor with other strides");
}
}  // namespace detail

// Addresses and strides of the operands of a GEMM.  Batch strides are in elements; -1: matrices follow each other.  Beta is 1 unless it
// is set; it counts where the problem is `with_c()`.
struct GemmOperands {
  const void *a_at = nullptr, *b_at = nullptr, *c_at = nullptr, *b_up_at = nullptr, *d_at[TW_MAX_D] = {};
  void *e_at = nullptr;
  int64_t a_batch = -1, b_batch = -1, c_batch = -1, e_batch = -1, d_batch[TW_MAX_D] = {-1, -1, -1, -1};
  int64_t d_row[TW_MAX_D] = {-1, -1, -1, -1}, d_col[TW_MAX_D] = {1, 1, 1, 1};
  int64_t count_d = 0;
  double alpha_is = 1, beta_is = 1;
  std::string b_kernel;      // the digest of the kernel that B was packed for; empty where unknown
  int64_t b_packed[3] = {};  // of what was packed: n, k, matrices

  GemmOperands &a(const void *at, int64_t batch_stride = -1) { return a_at = at, a_batch = batch_stride, *this; }
  GemmOperands &b(const void *at, int64_t batch_stride = -1) {
    return b_at = at, b_batch = batch_stride, b_kernel.clear(), *this;
  }
  GemmOperands &b(const PackedB &packed);  // which stays where it is as long as operands are used
  GemmOperands &c(const void *at, int64_t batch_stride = -1) { return c_at = at, c_batch = batch_stride, *this; }
  GemmOperands &e(void *at, int64_t batch_stride = -1) { return e_at = at, e_batch = batch_stride, *this; }
  GemmOperands &b_up(const void *at) { return b_up_at = at, *this; }
  GemmOperands &alpha(double value) { return alpha_is = value, *this; }
  GemmOperands &beta(double value) { return beta_is = value, *this; }
  // The next D tensor: elements of a row are contiguous, or one is for the whole row (a column stride of 0; others are
  // refused here); `bias`: one number a column; `residual`: one as large as E.
  GemmOperands &d(const void *at, int64_t row_stride = -1, int64_t col_stride = 1, int64_t batch_stride = -1) {
    if (count_d >= TW_MAX_D)
      throw detail::request_error("epilogue-d-count", std::to_string(count_d + 1), "more D tensors than kernels take",
                                  "give at most " + std::to_string(TW_MAX_D));
    detail::demand_column_stride(col_stride);
    d_at[count_d] = at, d_row[count_d] = row_stride, d_col[count_d] = col_stride, d_batch[count_d] = batch_stride;
    return ++count_d, *this;
  }
  GemmOperands &bias(const void *at) { return d(at, 0, 1, 0); }
  GemmOperands &residual(const void *at) { return d(at); }
};

class GemmProblem {
 public:
  using Operands = GemmOperands;

  GemmProblem(int64_t m, int64_t n, int64_t k) : m_(m), n_(n), k_(k) {}

  GemmProblem &dtype(Dtype type) { return a_ = b_ = type, *this; }  // of A and B
  GemmProblem &dtype_a(Dtype type) { return a_ = type, *this; }
  GemmProblem &dtype_b(Dtype type) { return b_ = type, *this; }
  GemmProblem &dtype_c(Dtype type) { return c_ = type, has_c_ = true, *this; }  // of C and E
  GemmProblem &dtype_d(Dtype type) { return d_ = type, has_d_ = true, *this; }
  GemmProblem &layout(std::string letters) { return layout_ = std::move(letters), *this; }  // A, B, E: r or c
  GemmProblem &batch(int64_t count) { return batch_ = count, *this; }
  GemmProblem &epilogue(Epilogue what, int64_t num_d = 0) { return epilogue_ = what, num_d_ = num_d, *this; }
  GemmProblem &with_c(bool takes_part = true) { return beta_ = takes_part, *this; }
  GemmProblem &preshuffled(bool packed = true) { return preshuffled_ = packed, *this; }
  GemmProblem &a_stride(int64_t elements) { return a_stride_ = elements, *this; }
  GemmProblem &b_stride(int64_t elements) { return b_stride_ = elements, *this; }
  GemmProblem &c_stride(int64_t elements) { return c_stride_ = elements, *this; }
  GemmProblem &broadcast_a(bool one = true) { return broadcast_a_ = one, *this; }  // one matrix for the whole batch
  GemmProblem &broadcast_b(bool one = true) { return broadcast_b_ = one, *this; }
  GemmProblem &aligned(bool to_16_bytes) { return aligned(to_16_bytes, to_16_bytes, to_16_bytes); }
  GemmProblem &aligned(bool a, bool b, bool e) { return aligned_a_ = a, aligned_b_ = b, aligned_e_ = e, *this; }

  int64_t m() const { return m_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t batch() const { return batch_; }
  const std::string &layout() const { return layout_; }
  Dtype dtype_a() const { return a_; }
  Dtype dtype_b() const { return b_; }
  Dtype dtype_c() const { return has_c_ ? c_ : default_output(); }
  Dtype dtype_d() const { return has_d_ ? d_ : dtype_c(); }
  Epilogue epilogue() const { return epilogue_; }
  int64_t num_d() const { return num_d_; }
  bool uses_c() const { return beta_; }
  bool a_rows() const { return by_rows(0); }
  bool b_rows() const { return by_rows(1); }
  bool dual() const { return num_d_ == 0 && is_gate(epilogue_); }
  int64_t a_stride() const { return a_stride_ ? a_stride_ : one_or(a_rows() ? k_ : m_); }
  int64_t b_stride() const { return b_stride_ ? b_stride_ : one_or(b_rows() ? n_ : k_); }
  int64_t c_stride() const { return c_stride_ ? c_stride_ : one_or(n_); }
  double flops() const { return 2.0 * double(m_) * double(n_) * double(k_) * double(batch_) * (dual() ? 2 : 1); }
  // Each operand read once, the result written once.
  double bytes() const {
    using Real = long double;
    const Real a = Real(m_) * Real(k_) * Real(bytes_of(a_)) * Real(broadcast_a_ ? 1 : batch_);
    const Real b = Real(k_) * Real(n_) * Real(bytes_of(b_)) * Real(broadcast_b_ ? 1 : batch_) * (dual() ? 2 : 1);
    const Real e = Real(m_) * Real(n_) * Real(batch_), d = e * Real(num_d_) * Real(bytes_of(dtype_d()));
    return double(a + b + d + e * Real(bytes_of(dtype_c())) * (beta_ ? 2 : 1));
  }

  // Throws the rule that the problem breaks.
  void check() const {
    constexpr int64_t kMost = int64_t(1) << 40;
    detail::demand_size("m", m_, 0, kMost), detail::demand_size("n", n_, 0, kMost);
    detail::demand_size("k", k_, 0, kMost), detail::demand_size("batch", batch_, 0, kMost);
    demand_span("size-huge", "A", m_, k_), demand_span("size-huge", "B", k_, n_), demand_span("size-huge", "E", m_, n_);
    const bool known = layout_ == "rcr" || layout_ == "rrr" || layout_ == "crr" || layout_ == "ccr";
    if (!known)
      throw detail::request_error("layout-name", layout_, "layout '" + layout_ + "' is not supported",
                                  "use rcr, rrr, crr or ccr");
    demand_span("stride-huge", "A", a_rows() ? m_ : k_, a_stride());
    demand_span("stride-huge", "B", b_rows() ? k_ : n_, b_stride()), demand_span("stride-huge", "E", m_, c_stride());
    detail::demand_epilogue(epilogue_, num_d_, true, TW_MAX_D);
    if (dual() && (beta_ || preshuffled_))
      throw detail::request_error("dual-operands", name_of(epilogue_), "a gate of two products with a packed B or a C",
                                  "give both B unpacked and no C, or give the second product as a D tensor");
    if (is_gate(epilogue_) && !is_float(dtype_c()))
      throw detail::request_error("gate-dtype", name_of(dtype_c()),
                                  std::string(name_of(epilogue_)) + " with results of " + name_of(dtype_c()),
                                  "use fp32, fp16 or bf16 results");
    demand_stride("A", a_stride(), a_rows() ? k_ : m_), demand_stride("E", c_stride(), n_);
    if (!preshuffled_) demand_stride("B", b_stride(), b_rows() ? n_ : k_);
    demand_types();
  }

  // `with_text`: with the message for people, and checked first; without: as selection asks, which has checked it.
  Described described(bool with_text = true) const {
    if (with_text) check();
    static const char *const names[] = {
        "m",         "n",         "k",           "batch",       "a_stride",    "b_stride", "c_stride",
        "num_d",     "beta",      "preshuffled", "broadcast_a", "broadcast_b", "aligned",  "aligned_a",
        "aligned_b", "aligned_c", "type_a",      "type_b",      "size_a",      "size_b",   "size_c",
        "size_d",    "a_rows",    "b_rows",      "plain",       "activation",  "dual"};
    return {"gemm", signature(), with_text ? text() : std::string(), names, numbers(), bytes(), flops(), family()};
  }
  // As Python's lock files call it.
  const char *family() const {
    using Real = long double;
    if (m_ <= 16) return "decode";
    if (m_ % 2 && n_ % 2 && k_ % 2) return "odd";
    if (flops() < 2.0 * 128 * 128 * 128) return "small";
    if (m_ >= 4096 && n_ <= 512) return "tall";
    return m_ <= 512 && Real(n_) * Real(k_) >= 4 * Real(m_) * Real(m_) ? "mid" : "large";
  }

  static const char *table_at(size_t, size_t) { return "an operand"; }  // by its index in the arguments: there is none

  // What a plan depends on.
  detail::PlanKey key() const {
    detail::PlanKey key(1);
    key.add(m_, n_, k_, batch_, num_d_, a_stride_, b_stride_, c_stride_, int64_t(a_), int64_t(b_), int64_t(dtype_c()),
            int64_t(dtype_d()), int64_t(epilogue_), beta_, preshuffled_, broadcast_a_, broadcast_b_, aligned_a_,
            aligned_b_, aligned_e_);
    return key.add(layout_.c_str());
  }
  // One kernel, and nothing between stages.
  std::vector<Described> stages() const { return detail::one_stage(described(false)); }
  // The problem whose pins and measurements this one shares: rows and matrices that follow each other.
  std::vector<int64_t> measured(size_t) const {
    GemmProblem p = *this;
    p.a_stride_ = p.b_stride_ = p.c_stride_ = 0;
    const auto odd = [](int64_t elements, Dtype type) { return elements * bytes_of(type) % 16 != 0; };
    const bool apart = batch_ > 1 && (odd(p.c_stride() * m_, dtype_c()) ||
                                      (!broadcast_a_ && odd(p.a_stride() * (a_rows() ? m_ : k_), a_)) ||
                                      (!broadcast_b_ && !preshuffled_ && odd(p.b_stride() * (b_rows() ? k_ : n_), b_)));
    if (apart) p.aligned(false);
    return p.numbers();
  }
  static int64_t between_bytes() { return 0; }
  template <class Use> void with_args(size_t, const GemmOperands &operands, char *, Use use) const {
    const tw_gemm_args arguments = args(operands);
    use(&arguments);
  }

  // The problem that a kernel serves in dense copies, sizes filled up to multiples of its `grains` (m, n, k; of GPUs
  // also: below which k it becomes which).  A packed B stays as it is, and the sizes it was packed for.
  std::optional<GemmProblem> in_copies(const std::vector<int64_t> &grains) const {
    if (grains.size() != 3 && grains.size() != 5) return std::nullopt;
    GemmProblem p = *this;
    p.a_stride_ = p.c_stride_ = 0, p.broadcast_a_ = false, p.aligned(true);
    if (packed()) return p;
    p.b_stride_ = 0, p.broadcast_b_ = p.preshuffled_ = false;
    if (grains.size() == 5 && p.k_ < grains[3]) p.k_ = grains[4];
    int64_t *const sizes[] = {&p.m_, &p.n_, &p.k_};
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t grain = grains[axis] > 1 ? grains[axis] : 1;
      *sizes[axis] = (*sizes[axis] + grain - 1) / grain * grain;
    }
    return p;
  }
  // Operands 0 to 4 are a, b, b_up, c and e, those behind are D tensors.
  std::vector<detail::Copied> copies(const GemmProblem &larger, const GemmOperands &o) const {
    const tw_gemm_args x = args(o);
    std::vector<detail::Copied> all;
    const auto add = [&](int operand, const void *at, bool by_rows, std::pair<int64_t, int64_t> sizes,
                         std::pair<int64_t, int64_t> more, std::vector<int64_t> strides, Dtype type) {
      if (!by_rows) std::swap(sizes.first, sizes.second), std::swap(more.first, more.second);
      if (at)
        all.push_back({operand,
                       const_cast<void *>(at),
                       operand == 4,
                       bytes_of(type),
                       {batch_, sizes.first, sizes.second},
                       std::move(strides),
                       {batch_, more.first, more.second}});
    };
    add(0, x.a, a_rows(), {m_, k_}, {larger.m_, larger.k_}, {x.a_batch_stride, x.a_stride, 1}, a_);
    if (!packed()) add(1, x.b, b_rows(), {k_, n_}, {larger.k_, larger.n_}, {x.b_batch_stride, x.b_stride, 1}, b_);
    if (dual()) add(2, x.b_up, b_rows(), {k_, n_}, {larger.k_, larger.n_}, {x.b_batch_stride, x.b_stride, 1}, b_);
    const std::pair<int64_t, int64_t> sizes(m_, n_), more(larger.m_, larger.n_);
    if (beta_) add(3, x.c, true, sizes, more, {x.c_batch_stride, x.c_stride, 1}, dtype_c());
    add(4, x.e, true, sizes, more, {x.e_batch_stride, x.e_stride, 1}, dtype_c());
    for (int64_t i = 0; i < num_d_; ++i)
      add(5 + int(i), x.d[i], true, sizes, more, {x.d_batch_stride[i], x.d_row_stride[i], x.d_col_stride[i]},
          dtype_d());
    return all;
  }
  static void put_copy(GemmOperands &o, int operand, void *at) {
    if (operand == 0) o.a(at);
    else if (operand == 1) o.b(at);
    else if (operand == 2) o.b_up(at);
    else if (operand == 3) o.c(at);
    else if (operand == 4) o.e(at);
    else o.d_at[operand - 5] = at, o.d_row[operand - 5] = o.d_batch[operand - 5] = -1, o.d_col[operand - 5] = 1;
  }

  int64_t b_matrices() const { return broadcast_b_ && batch_ > 1 ? 1 : batch_; }
  bool preshuffled() const { return preshuffled_; }
  // Of B alone, before it is packed.
  tw_gemm_args packing_args(const void *b, int64_t batch_stride) const {
    if (batch_stride < -1)
      throw detail::request_error("stride-range", std::to_string(batch_stride),
                                  "matrices of B are " + std::to_string(batch_stride) + " elements apart",
                                  "use 0 or more, or -1 for matrices that follow each other");
    if (n_ && k_ && batch_ && !b)
      throw detail::request_error("operand-missing", "b", "B is to be packed, and it is null", "give its address");
    tw_gemm_args x{};
    x.m = m_, x.n = n_, x.k = k_, x.batch = batch_, x.b = b, x.b_stride = b_stride();
    demand_stride("B", b_stride(), b_rows() ? n_ : k_);
    const int64_t shape[] = {batch_, b_rows() ? k_ : n_, b_rows() ? n_ : k_}, strides[] = {batch_stride, b_stride(), 1};
    if (batch_stride >= 0) detail::demand_span("b", shape, 3, strides);
    x.b_batch_stride = broadcast_b_ || batch_ == 1 ? 0 : batch_stride >= 0 ? batch_stride : shape[1] * b_stride();
    return x;
  }
  tw_gemm_args args(const GemmOperands &o) const {
    demand_pointers(o), demand_packed(o), demand_steps(o);
    tw_gemm_args x{};
    x.m = m_, x.n = n_, x.k = k_, x.batch = batch_;
    x.a = o.a_at, x.b = o.b_at, x.c = o.c_at, x.e = o.e_at, x.b_up = o.b_up_at;
    x.a_stride = a_stride(), x.b_stride = b_stride(), x.c_stride = x.e_stride = c_stride();
    x.a_batch_stride = broadcast_a_ ? 0 : o.a_batch >= 0 ? o.a_batch : x.a_stride * (a_rows() ? m_ : k_);
    x.b_batch_stride = broadcast_b_ ? 0 : o.b_batch >= 0 ? o.b_batch : x.b_stride * (b_rows() ? k_ : n_);
    x.e_batch_stride = o.e_batch >= 0 ? o.e_batch : x.e_stride * m_;
    x.c_batch_stride = o.c_batch >= 0 ? o.c_batch : x.c_stride * m_;
    for (int64_t i = 0; i < num_d_; ++i) {
      x.d[i] = o.d_at[i], x.d_col_stride[i] = o.d_col[i];
      x.d_row_stride[i] = o.d_row[i] >= 0 ? o.d_row[i] : n_;
      x.d_batch_stride[i] = o.d_batch[i] >= 0 ? o.d_batch[i] : x.d_row_stride[i] * m_;
    }
    x.alpha = o.alpha_is, x.beta = beta_ ? o.beta_is : 0;
    return x;
  }

 private:
  // By the names that `described` gives them.
  std::vector<int64_t> numbers() const {
    const Epilogue e = epilogue_;
    const bool activation = e >= Epilogue::gelu && e != Epilogue::none, plain = num_d_ == 0 && e == Epilogue::none;
    return {m_,
            n_,
            k_,
            batch_,
            a_stride(),
            b_stride(),
            c_stride(),
            num_d_,
            beta_,
            preshuffled_,
            broadcast_a_,
            broadcast_b_,
            aligned_a_ && aligned_b_ && aligned_e_,
            aligned_a_,
            aligned_b_,
            aligned_e_,
            type(a_),
            type(b_),
            bytes_of(a_),
            bytes_of(b_),
            bytes_of(dtype_c()),
            bytes_of(dtype_d()),
            a_rows(),
            b_rows(),
            plain,
            activation,
            dual()};
  }
  bool by_rows(size_t operand) const { return operand < layout_.size() && layout_[operand] == 'r'; }
  static int64_t one_or(int64_t size) { return size > 1 ? size : 1; }
  // The number of selection (`Type` of select/gemm.h), which has none for the types of older AMD GPUs.
  static int64_t type(Dtype t) {
    if (t == Dtype::fp8_e4m3fnuz || t == Dtype::fp8_e5m2fnuz) return 8;
    return t > Dtype::fp8_e5m2fnuz ? int64_t(t) - 2 : int64_t(t);
  }
  Dtype default_output() const {
    if (a_ == b_ && (a_ == Dtype::fp32 || a_ == Dtype::fp16 || a_ == Dtype::bf16)) return a_;
    return a_ == Dtype::int8 ? Dtype::int32 : Dtype::fp32;
  }
  bool packed() const { return preshuffled_ && k_; }
  const char *variant() const {
    if (packed()) return "preshuffle";
    return num_d_ || epilogue_ != Epilogue::none ? "multi_d" : "standard";
  }
  std::string signature() const {
    return detail::Signature()
        .text("dtype_a", name_of(a_))
        .text("dtype_acc", name_of(accumulator(a_)))
        .text("dtype_b", name_of(b_))
        .text("dtype_c", name_of(dtype_c()))
        .text("dtype_d", name_of(num_d_ ? dtype_d() : dtype_c()))
        .text("epilogue", name_of(epilogue_))
        .text("layout", layout_.c_str())
        .number("num_d", num_d_)
        .text("variant", variant())
        .done();
  }
  std::string text() const {
    return "gemm m=" + std::to_string(m_) + " n=" + std::to_string(n_) + " k=" + std::to_string(k_) +
           (batch_ != 1 ? " batch=" + std::to_string(batch_) : "") + " " + name_of(a_) + " " + layout_ +
           (epilogue_ != Epilogue::none ? std::string(" ") + name_of(epilogue_) : "");
  }
  void demand_stride(const char *what, int64_t stride, int64_t row) const {
    if (stride < row)
      throw detail::request_error("stride-short", std::to_string(stride),
                                  std::string("the leading stride of ") + what + " is " + std::to_string(stride) +
                                      ", shorter than its row of " + std::to_string(row),
                                  "use " + std::to_string(row) + " or more");
  }
  void demand_span(const char *rule, const char *what, int64_t rows, int64_t stride) const {
    const long double bytes = 4.0L * static_cast<long double>(rows) * static_cast<long double>(stride) *
                              static_cast<long double>(batch_ > 1 ? batch_ : 1);
    if (bytes >= 4611686018427387904.0L)
      throw detail::request_error(rule, std::to_string(stride), std::string(what) + " spans more than 62 bits of bytes",
                                  "use a shorter stride, or split the problem");
  }
  // What no target computes; which types a target has kernels for, its registry says.
  void demand_types() const {
    for (Dtype type : {a_, b_}) detail::demand_type(type);
    const bool whole = a_ == Dtype::int8 || b_ == Dtype::int8;
    const bool tf32 = a_ == Dtype::tf32 || b_ == Dtype::tf32;
    if (whole || tf32 ? a_ != b_ : a_ == Dtype::int32 || b_ == Dtype::int32)
      throw detail::request_error("dtype-mix", name_of(b_),
                                  std::string(name_of(a_)) + " times " + name_of(b_) + " is not supported",
                                  "int8 goes with int8 only, tf32 with tf32, other floats with each other");
    detail::demand_results(whole ? Dtype::int8 : a_, dtype_c(), num_d_, dtype_d());
  }
  void demand_pointers(const GemmOperands &o) const {
    if (o.count_d != num_d_)
      throw detail::request_error(
          "epilogue-d-count", std::to_string(o.count_d),
          std::to_string(o.count_d) + " D tensors, and the problem says " + std::to_string(num_d_),
          "give as many as the problem's epilogue() says");
    if (m_ == 0 || n_ == 0 || batch_ == 0) return;
    const char *missing = !o.e_at                              ? "e"
                          : k_ && !o.a_at                      ? "a"
                          : k_ && !o.b_at                      ? "b"
                          : beta_ && o.beta_is != 0 && !o.c_at ? "c"
                          : dual() && k_ && !o.b_up_at         ? "b_up"
                                                               : nullptr;
    for (int64_t i = 0; i < num_d_ && !missing; ++i)
      if (!o.d_at[i]) missing = "d";
    if (missing)
      throw detail::request_error("operand-missing", missing,
                                  std::string("the problem has an operand ") + missing + ", and it is null",
                                  std::string("give it with GemmOperands::") + missing + "()");
    if (k_) detail::demand_apart_from("e", o.e_at, {{"a", o.a_at}, {"b", o.b_at}, {"b_up", o.b_up_at}});
    if (o.c_at && !beta_)
      throw detail::request_error("operand-unused", "c", "C is given, and the problem has none",
                                  "describe it with GemmProblem::with_c(), or leave C out");
    if (!beta_ && o.beta_is != 1 && o.beta_is != 0)
      throw detail::request_error("operand-unused", std::to_string(o.beta_is),
                                  "beta is " + std::to_string(o.beta_is) + ", and the problem has no C",
                                  "describe C with GemmProblem::with_c() and give it, or leave beta out");
    if (o.b_up_at && !dual())
      throw detail::request_error("operand-unused", "b_up", "a second B is given, and the problem has one product",
                                  "describe a gate without D tensors (Epilogue::silu_and_mul), or leave b_up out");
  }
  // Kernels read a packed B as far as the problem's sizes say.
  void demand_packed(const GemmOperands &o) const {
    const int64_t wanted[] = {n_, k_, b_matrices()};
    if (o.b_kernel.empty() || std::equal(wanted, wanted + 3, o.b_packed)) return;
    const auto sizes_text = [](const int64_t *sizes) {
      return "n=" + std::to_string(sizes[0]) + " k=" + std::to_string(sizes[1]) + " batch=" + std::to_string(sizes[2]);
    };
    throw detail::request_error(
        "packed-format", sizes_text(o.b_packed),
        "B was packed with " + sizes_text(o.b_packed) + ", and the problem has " + sizes_text(wanted),
        "pack B with a plan of the problem's n, k and batch");
  }
  // -1 stands for what dense memory has; no other stride is negative.  Results of a batch are apart.
  void demand_steps(const GemmOperands &o) const {
    const auto demand_step = [](const char *name, int64_t step) {
      if (step < -1 || step >= int64_t(1) << 60)
        throw detail::request_error("stride-range", std::to_string(step),
                                    std::string("a stride of ") + name + " is " + std::to_string(step),
                                    "use 0 up to 2^60, or -1 for matrices that follow each other");
    };
    demand_step("a", o.a_batch), demand_step("b", o.b_batch), demand_step("c", o.c_batch), demand_step("e", o.e_batch);
    for (int64_t i = 0; i < num_d_; ++i) {
      demand_step("d", o.d_batch[i]), demand_step("d", o.d_row[i]);
      detail::demand_column_stride(o.d_col[i]);
    }
    const int64_t shape[] = {batch_, m_, n_}, strides[] = {o.e_batch, c_stride(), 1};
    if (o.e_batch >= 0) detail::demand_span("e", shape, 3, strides), detail::demand_apart("e", shape, 3, strides);
    // No offset leaves 60 bits; matrices that follow each other are known not to.
    const auto within = [&](const char *name, int64_t batch, int64_t rows, int64_t row, int64_t cols, int64_t col) {
      const int64_t sizes[] = {batch_, rows, cols}, steps_of[] = {batch, row, col};
      detail::demand_span(name, sizes, 3, steps_of);
    };
    if (o.a_batch >= 0) within("a", o.a_batch, a_rows() ? m_ : k_, a_stride(), a_rows() ? k_ : m_, 1);
    if (o.b_batch >= 0) within("b", o.b_batch, b_rows() ? k_ : n_, b_stride(), b_rows() ? n_ : k_, 1);
    if (o.c_batch >= 0) within("c", o.c_batch, m_, c_stride(), n_, 1);
    for (int64_t i = 0; i < num_d_; ++i) {
      const int64_t row = o.d_row[i] >= 0 ? o.d_row[i] : n_;
      within("d", 0, m_, row, n_, o.d_col[i]);  // first: matrices that follow each other are m rows apart
      within("d", o.d_batch[i] >= 0 ? o.d_batch[i] : row * m_, m_, row, n_, o.d_col[i]);
    }
  }

  int64_t m_, n_, k_, batch_ = 1, num_d_ = 0, a_stride_ = 0, b_stride_ = 0, c_stride_ = 0;
  Dtype a_ = Dtype::fp32, b_ = Dtype::fp32, c_ = Dtype::fp32, d_ = Dtype::fp32;
  bool has_c_ = false, has_d_ = false, beta_ = false, preshuffled_ = false, broadcast_a_ = false, broadcast_b_ = false;
  bool aligned_a_ = true, aligned_b_ = true, aligned_e_ = true;
  std::string layout_ = "rrr";
  Epilogue epilogue_ = Epilogue::none;
};

}  // namespace tw
