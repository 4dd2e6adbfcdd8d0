// Kernels declared in C++: constexpr data that the compiler checks, and that `tilewright_add_kernels` of CMake builds.
//
//   TW_KERNEL_SET(my_kernels,
//     .add(Signature().dtype("fp32").layout("rcr"), Algorithm().tile(72, 512, 256))
//     .add(Signature().dtype("fp16").layout("rcr").elementwise("Relu", 1), Algorithm().pipeline("compv4"), "gfx942"))
//
// What an `Algorithm` does not set is any: all kernels of the arch that fit are built.  What a signature does not set is
// plain, on every arch: fp32 and rrr, forward and 2D, no epilogue; of attention fp16, heads of 128, no mask and no other
// feature.  `ANY` and `ANY_INT` stand for all values in both.  A word that nobody knows, a size under 1, or a tile that
// waves do not cover is an error of the compiler.  A declaration that no kernel of an arch meets is an error of the
// build; with auto_correct() the nearest kernels are built.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tw {
namespace decl {

constexpr const char *ANY = "*";
constexpr int64_t ANY_INT = -1;

constexpr bool same(const char *a, const char *b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}
// In a constant expression the throw is what the compiler shows, with the line that declared it.
template <size_t N> constexpr const char *known(const char *word, const char *const (&words)[N], const char *rule) {
  for (const char *each : words)
    if (same(word, each)) return word;
  if (same(word, ANY)) return word;
  throw rule;
}
constexpr int64_t size_or_any(int64_t size) {
  return size == ANY_INT || (size >= 1 && size <= int64_t(1) << 20) ? size : throw "a size is 1 or more, or ANY_INT";
}

// A named word, or some numbers.
struct Field {
  const char *name = "", *word = nullptr;
  int64_t numbers[6] = {ANY_INT, ANY_INT, ANY_INT, ANY_INT, ANY_INT, ANY_INT};
  int64_t count = 0;
};

template <class Self> class Fields {
 public:
  static constexpr size_t kMost = 16;
  constexpr size_t size() const { return used_; }
  constexpr const Field &operator[](size_t at) const { return fields_[at]; }
  constexpr const Field *find(const char *name) const {
    for (size_t at = 0; at < used_; ++at)
      if (same(fields_[at].name, name)) return &fields_[at];
    return nullptr;
  }

 protected:
  constexpr Field &field(const char *name) {
    for (size_t at = 0; at < used_; ++at)
      if (same(fields_[at].name, name)) return fields_[at];
    if (used_ == kMost) throw "too many fields";
    fields_[used_].name = name;
    return fields_[used_++];
  }
  constexpr Self &word(const char *name, const char *value) {
    field(name).word = value;
    return static_cast<Self &>(*this);
  }
  constexpr Self &number(const char *name, size_t at, size_t count, int64_t value) {
    Field &mine = field(name);
    mine.numbers[at] = size_or_any(value), mine.count = int64_t(count);
    return static_cast<Self &>(*this);
  }
  constexpr Self &flag(const char *name, bool value) {
    Field &mine = field(name);
    mine.numbers[0] = value, mine.count = 1;
    return static_cast<Self &>(*this);
  }

 private:
  Field fields_[kMost] = {};
  size_t used_ = 0;
};

constexpr const char *kTypes[] = {"fp32",         "tf32",         "fp16", "bf16", "fp8_e4m3", "fp8_e5m2",
                                  "fp8_e4m3fnuz", "fp8_e5m2fnuz", "fp8",  "bf8",  "int8",     "int32"};
constexpr const char *kOps[] = {"PassThrough", "MultiDAdd",  "MultiDMultiply", "Relu",
                                "Gelu",        "FastGelu",   "Silu",           "Sigmoid",
                                "Tanh",        "SiluAndMul", "GeluAndMul",     "FastGeluAndMul"};

// What a GEMM computes.
class Signature : public Fields<Signature> {
 public:
  static constexpr const char *op() { return "gemm"; }
  constexpr Signature &dtype(const char *type) { return word("dtype", known(type, kTypes, "dtype: no such type")); }
  constexpr Signature &dtype_c(const char *type) {
    return word("dtype_c", known(type, kTypes, "dtype_c: no such type"));
  }
  constexpr Signature &layout(const char *letters) {
    constexpr const char *layouts[] = {"rcr", "rrr", "crr", "ccr"};
    return word("layout", known(letters, layouts, "layout: use rcr, rrr, crr or ccr"));
  }
  constexpr Signature &elementwise(const char *what, int64_t num_d = 0) {
    word("elementwise", known(what, kOps, "elementwise: no such epilogue"));
    field("num_d").numbers[0] = num_d >= 0 && num_d <= 4 ? num_d : throw "num_d: 0 to 4";
    field("num_d").count = 1;
    return *this;
  }
};

// How: shapes in the order m, n, k; `wave` is the grid of waves of a block, `warp` the tile of one.
class Algorithm : public Fields<Algorithm> {
 public:
  constexpr Algorithm &tile(int64_t m, int64_t n, int64_t k = ANY_INT) { return three("tile", m, n, k); }
  constexpr Algorithm &wave(int64_t m, int64_t n, int64_t k = 1) { return three("wave", m, n, k); }
  constexpr Algorithm &warp(int64_t m, int64_t n, int64_t k = ANY_INT) { return three("warp", m, n, k); }
  constexpr Algorithm &tile_m(int64_t size) { return number("tile", 0, 3, size); }
  constexpr Algorithm &tile_n(int64_t size) { return number("tile", 1, 3, size); }
  constexpr Algorithm &tile_k(int64_t size) { return number("tile", 2, 3, size); }
  constexpr Algorithm &wave_m(int64_t count) { return number("wave", 0, 3, count); }
  constexpr Algorithm &wave_n(int64_t count) { return number("wave", 1, 3, count); }
  constexpr Algorithm &wave_k(int64_t count) { return number("wave", 2, 3, count); }
  constexpr Algorithm &warp_m(int64_t size) { return number("warp", 0, 3, size); }
  constexpr Algorithm &warp_n(int64_t size) { return number("warp", 1, 3, size); }
  constexpr Algorithm &warp_k(int64_t size) { return number("warp", 2, 3, size); }
  constexpr Algorithm &pipeline(const char *name) { return word("pipeline", name); }
  constexpr Algorithm &scheduler(const char *name) {
    constexpr const char *schedulers[] = {"auto", "intrawave", "interwave"};
    return word("scheduler", known(name, schedulers, "scheduler: use intrawave or interwave"));
  }
  constexpr Algorithm &epilogue(const char *name) {
    constexpr const char *stores[] = {"cshuffle", "default", "direct"};
    return word("epilogue", known(name, stores, "epilogue: use cshuffle or default"));
  }
  constexpr Algorithm &pad(bool m, bool n, bool k) {
    Field &mine = field("pad");
    mine.numbers[0] = m, mine.numbers[1] = n, mine.numbers[2] = k, mine.count = 3;
    return *this;
  }
  constexpr Algorithm &auto_fill() { return *this; }  // what is not set is any already
  constexpr Algorithm &auto_correct(bool take_nearest = true) { return flag("auto_correct", take_nearest); }

  // A tile is a whole number of what its waves compute, unless the nearest that is will do.
  constexpr bool sound() const {
    const Field *tile = find("tile"), *wave = find("wave"), *warp = find("warp"), *nearest = find("auto_correct");
    if (!tile || !wave || !warp || (nearest && nearest->numbers[0])) return true;
    for (size_t axis = 0; axis < 2; ++axis) {
      const int64_t all = tile->numbers[axis], waves = wave->numbers[axis], one = warp->numbers[axis];
      if (all != ANY_INT && waves != ANY_INT && one != ANY_INT && all % (waves * one)) return false;
    }
    return true;
  }

 private:
  constexpr Algorithm &three(const char *name, int64_t m, int64_t n, int64_t k) {
    return number(name, 0, 3, m), number(name, 1, 3, n), number(name, 2, 3, k);
  }
};

class GroupedConvSignature : public Fields<GroupedConvSignature> {
 public:
  static constexpr const char *op() { return "conv"; }
  using Self = GroupedConvSignature;
  constexpr Self &dtype(const char *type) { return word("dtype", known(type, kTypes, "dtype: no such type")); }
  constexpr Self &direction(const char *name) {
    constexpr const char *names[] = {"forward", "backward_data", "backward_weight", "fwd", "bwd_data", "bwd_weight"};
    return word("direction", known(name, names, "direction: use forward, backward_data or backward_weight"));
  }
  // Convolutions of one dimension run on kernels of two.
  constexpr Self &dims(int64_t spatial) {
    const bool known_rank = spatial == ANY_INT || (spatial >= 1 && spatial <= 3);
    return number("dims", 0, 1, known_rank ? spatial : throw "dims: 1, 2 or 3");
  }
  constexpr Self &elementwise(const char *what, int64_t num_d = 0) {
    word("elementwise", known(what, kOps, "elementwise: no such epilogue"));
    field("num_d").numbers[0] = num_d >= 0 && num_d <= 2 ? num_d : throw "num_d: 0, 1 or 2";
    field("num_d").count = 1;
    return *this;
  }
};
using GroupedConvAlgorithm = Algorithm;

class FmhaSignature : public Fields<FmhaSignature> {
 public:
  static constexpr const char *op() { return "attention"; }
  using Self = FmhaSignature;
  constexpr Self &family(const char *name) {
    constexpr const char *names[] = {"fwd", "forward", "fwd_splitkv", "split", "fwd_splitkv_combine", "combine"};
    return word("family", known(name, names, "family: use fwd, fwd_splitkv or fwd_splitkv_combine"));
  }
  constexpr Self &dtype(const char *type) { return word("dtype", known(type, kTypes, "dtype: no such type")); }
  constexpr Self &mode(const char *name) {
    constexpr const char *names[] = {"batch", "group"};
    return word("mode", known(name, names, "mode: use batch or group"));
  }
  // Values have heads of the same size unless `v` says another; ANY_INT: every size that kernels are made for.
  constexpr Self &hdim(int64_t q, int64_t v = ANY_INT) {
    if (q == ANY_INT && v != ANY_INT) throw "hdim: a size of values with any of queries";
    return number("hdim", 0, 2, q), number("hdim", 1, 2, v == ANY_INT ? q : v);
  }
  constexpr Self &mask(const char *name) {
    constexpr const char *names[] = {"no", "none", "causal", "window", "generic"};
    return word("mask", known(name, names, "mask: use no, causal, window or generic"));
  }
  constexpr Self &bias(const char *name) {
    constexpr const char *names[] = {"no", "none", "bias", "tensor", "alibi"};
    return word("bias", known(name, names, "bias: use no, bias or alibi"));
  }
  constexpr Self &lse(bool with = true) { return flag("lse", with); }
  constexpr Self &dropout(bool with = true) { return flag("dropout", with); }
  constexpr Self &logits(bool with = true) { return flag("softcap", with); }
  constexpr Self &sink(bool with = true) { return flag("sink", with); }
};

// The six numbers of a tile are m0, n0, k0, n1, k1 and k0max; kernels of CPUs have the first two.
class FmhaAlgorithm : public Fields<FmhaAlgorithm> {
 public:
  using Self = FmhaAlgorithm;
  constexpr Self &tile(int64_t m0, int64_t n0, int64_t k0 = ANY_INT, int64_t n1 = ANY_INT, int64_t k1 = ANY_INT,
                       int64_t k0max = ANY_INT) {
    const int64_t sizes[] = {m0, n0, k0, n1, k1, k0max};
    for (size_t at = 0; at < 6; ++at) number("tile", at, 6, sizes[at]);
    return *this;
  }
  constexpr Self &tile_m0(int64_t size) { return number("tile", 0, 6, size); }
  constexpr Self &tile_n0(int64_t size) { return number("tile", 1, 6, size); }
  constexpr Self &tile_k0(int64_t size) { return number("tile", 2, 6, size); }
  constexpr Self &tile_n1(int64_t size) { return number("tile", 3, 6, size); }
  constexpr Self &tile_k1(int64_t size) { return number("tile", 4, 6, size); }
  constexpr Self &tile_k0max(int64_t size) { return number("tile", 5, 6, size); }
  constexpr Self &wave(int64_t m, int64_t n, int64_t k = 1) {
    return number("wave", 0, 3, m), number("wave", 1, 3, n), number("wave", 2, 3, k);
  }
  constexpr Self &warp(int64_t m, int64_t n, int64_t k = ANY_INT) {
    return number("warp", 0, 3, m), number("warp", 1, 3, n), number("warp", 2, 3, k);
  }
  constexpr Self &pipeline(const char *name) { return word("pipeline", name); }
  constexpr Self &padding(bool s, bool sk, bool d, bool dv) {
    Field &mine = field("pad");
    mine.numbers[0] = s, mine.numbers[1] = sk, mine.numbers[2] = d, mine.numbers[3] = dv, mine.count = 4;
    return *this;
  }
  constexpr Self &block_per_cu(int64_t count) { return number("block_per_cu", 0, 1, count); }
  constexpr Self &max_splits_log2(int64_t log2) { return number("max_splits_log2", 0, 1, log2); }
  constexpr Self &auto_fill() { return *this; }
  constexpr Self &auto_correct(bool take_nearest = true) { return flag("auto_correct", take_nearest); }
  constexpr bool sound() const { return true; }
};

// One declaration: its op, fields of the signature and of the algorithm, and an arch.
struct Kernel {
  const char *op = "", *arch = ANY;
  Field signature[16], algorithm[16];
  size_t signature_size = 0, algorithm_size = 0;
};

template <size_t N> class KernelSet {
 public:
  constexpr size_t size() const { return N; }
  constexpr const Kernel &operator[](size_t at) const { return kernels_[at]; }
  constexpr const Kernel *begin() const { return kernels_; }
  constexpr const Kernel *end() const { return kernels_ + N; }

  template <class Sig, class Alg>
  constexpr KernelSet<N + 1> add(Sig signature, Alg algorithm, const char *arch = ANY) const {
    static_assert(std::is_same_v<Sig, FmhaSignature> == std::is_same_v<Alg, FmhaAlgorithm>,
                  "FmhaSignature goes with FmhaAlgorithm, the other signatures with Algorithm");
    if (!algorithm.sound()) throw "a tile is no whole number of waves: change it, or use auto_correct()";
    KernelSet<N + 1> larger;
    for (size_t at = 0; at < N; ++at) larger.kernels_[at] = kernels_[at];
    Kernel &last = larger.kernels_[N];
    last.op = Sig::op(), last.arch = arch;
    for (; last.signature_size < signature.size(); ++last.signature_size)
      last.signature[last.signature_size] = signature[last.signature_size];
    for (; last.algorithm_size < algorithm.size(); ++last.algorithm_size)
      last.algorithm[last.algorithm_size] = algorithm[last.algorithm_size];
    return larger;
  }

 private:
  template <size_t> friend class KernelSet;
  Kernel kernels_[N ? N : 1] = {};
};

// A set as JSON, in a section of the object file, where `tilewright_add_kernels` finds it.
template <size_t Bytes> struct Written {
  char mark[8] = {'t', 'w', '-', 's', 'e', 't', '-', '1'};
  int64_t bytes = 0;
  char text[Bytes] = {};

  constexpr void put(const char *what) {
    for (; *what; ++what) {
      if (bytes + 1 >= int64_t(Bytes)) throw "a declaration is too long";
      text[bytes++] = *what;
    }
  }
  constexpr void quoted(const char *what) {
    for (const char *at = what; *at; ++at)
      if (*at == '"' || *at == '\\' || *at < ' ') throw "a word has a character that no name has";
    put("\""), put(what), put("\"");
  }
  constexpr void number(int64_t value) {
    char digits[21] = {};
    int at = 20;
    const bool negative = value < 0;
    if (negative) value = -value;
    do digits[--at] = char('0' + value % 10), value /= 10;
    while (value);
    if (negative) digits[--at] = '-';
    put(digits + at);
  }
  constexpr void fields(const Field *from, size_t count) {
    put("{");
    for (size_t at = 0; at < count; ++at) {
      if (at) put(",");
      quoted(from[at].name), put(":");
      if (from[at].word) quoted(from[at].word);
      else {
        put("[");
        for (int64_t each = 0; each < from[at].count; ++each) {
          if (each) put(",");
          number(from[at].numbers[each]);
        }
        put("]");
      }
    }
    put("}");
  }
};

template <size_t N> constexpr auto written(const char *name, const KernelSet<N> &set) {
  Written<256 + N * 1024> all;
  all.put("{\"set\":"), all.quoted(name), all.put(",\"kernels\":[");
  for (size_t at = 0; at < N; ++at) {
    if (at) all.put(",");
    all.put("{\"op\":"), all.quoted(set[at].op), all.put(",\"arch\":"), all.quoted(set[at].arch);
    all.put(",\"signature\":"), all.fields(set[at].signature, set[at].signature_size);
    all.put(",\"algorithm\":"), all.fields(set[at].algorithm, set[at].algorithm_size), all.put("}");
  }
  all.put("]}");
  return all;
}

}  // namespace decl
}  // namespace tw

#define TW_KERNEL_SET(set_name, ...) \
  static constexpr auto set_name = [] { \
    using namespace ::tw::decl; \
    return ::tw::decl::KernelSet<0>() __VA_ARGS__; \
  }(); \
  static_assert(set_name.size() > 0, "a set has kernels"); \
  [[gnu::used, gnu::section("tw_kernel_sets"), gnu::aligned(8)]] static constexpr auto set_name##_written = \
      ::tw::decl::written(#set_name, set_name)

#define DECL_KERNEL_SET(set_name, ...) TW_KERNEL_SET(set_name, __VA_ARGS__)
#define DECL_GROUPED_CONV_KERNEL_SET(set_name, ...) TW_KERNEL_SET(set_name, __VA_ARGS__)
#define DECL_FMHA_KERNEL_SET(set_name, ...) TW_KERNEL_SET(set_name, __VA_ARGS__)
