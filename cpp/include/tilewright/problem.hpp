// What all problems share: element types, fused work, a signature as canonical JSON, numbers by name.
#pragma once
#include <tilewright/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace tw {

enum class Dtype { fp32, tf32, fp16, bf16, fp8_e4m3, fp8_e5m2, fp8_e4m3fnuz, fp8_e5m2fnuz, int8, int32 };

inline const char *name_of(Dtype type) {
  static const char *const names[] = {"fp32",     "tf32",         "fp16",         "bf16", "fp8_e4m3",
                                      "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz", "int8", "int32"};
  return type >= Dtype::fp32 && type <= Dtype::int32 ? names[int(type)] : "unknown";
}
inline int64_t bytes_of(Dtype type) {
  static const int64_t bytes[] = {4, 4, 2, 2, 1, 1, 1, 1, 1, 4};
  return type >= Dtype::fp32 && type <= Dtype::int32 ? bytes[int(type)] : 1;
}
inline bool is_float(Dtype type) { return type != Dtype::int8 && type != Dtype::int32; }
inline Dtype accumulator(Dtype type) { return type == Dtype::int8 ? Dtype::int32 : Dtype::fp32; }

// What is fused behind the accumulation.  An activation with D tensors adds them first; add and multiply take one or more.  The gates
// multiply an activation of the sum by D0, or without one by a second product.
enum class Epilogue {
  none,
  add,
  multiply,
  relu,
  gelu,
  fastgelu,
  silu,
  sigmoid,
  tanh,
  silu_and_mul,
  gelu_and_mul,
  fastgelu_and_mul
};

inline const char *name_of(Epilogue epilogue) {
  static const char *const names[] = {"PassThrough", "MultiDAdd",  "MultiDMultiply", "Relu",
                                      "Gelu",        "FastGelu",   "Silu",           "Sigmoid",
                                      "Tanh",        "SiluAndMul", "GeluAndMul",     "FastGeluAndMul"};
  return epilogue >= Epilogue::none && epilogue <= Epilogue::fastgelu_and_mul ? names[int(epilogue)] : "unknown";
}
inline bool is_gate(Epilogue epilogue) { return epilogue >= Epilogue::silu_and_mul; }

namespace detail {

// An object of JSON, written name by name; names are sorted.
class Signature {
 public:
  template <size_t N> Signature &text(const char (&name)[N], const char *value) {
    return begin(name), put("\"", 1), put(value, std::strlen(value)), put("\"", 1), *this;
  }
  template <size_t N> Signature &number(const char (&name)[N], int64_t value) {
    if (value >= 0 && value <= 9) return begin(name), put(&"0123456789"[value], 1), *this;
    const std::string digits = std::to_string(value);
    return begin(name), put(digits.data(), digits.size()), *this;
  }
  template <size_t N> Signature &flag(const char (&name)[N], bool value) {
    return begin(name), value ? put("true", 4) : put("false", 5), *this;
  }
  std::string done() { return put("}", 1), more_.append(here_, size_), std::move(more_); }

 private:
  template <size_t N> void begin(const char (&name)[N]) {
    put(first_ ? "{\"" : ",\"", 2), first_ = false;
    put(name, N - 1), put("\":", 2);
  }
  // Written for every choice: into a string piece by piece it took longer than the choice.
  inline __attribute__((always_inline)) void put(const char *text, size_t bytes) {
    if (bytes > sizeof here_ - size_) return spill(text, bytes);
    std::memcpy(here_ + size_, text, bytes), size_ += bytes;
  }
  void spill(const char *text, size_t bytes) { more_.append(here_, size_).append(text, bytes), size_ = 0; }
  char here_[768];
  size_t size_ = 0;
  bool first_ = true;
  std::string more_;  // what did not fit
};

inline void demand_size(const char *name, int64_t size, int64_t least, int64_t most) {
  if (size < least)
    throw request_error(least ? "size-positive" : "size-negative", std::to_string(size),
                        std::string(name) + " is " + std::to_string(size), "use " + std::to_string(least) + " or more");
  if (size > most)
    throw request_error("size-huge", std::to_string(size),
                        std::string(name) + " is " + std::to_string(size) + ", over " + std::to_string(most),
                        "split the problem");
}

// That no offset of an operand leaves 60 bits; without strides the operand is dense.
inline void demand_span(const char *name, const int64_t *shape, size_t rank, const int64_t *strides) {
  long double elements = 1, reach = 0, longest = 0;
  for (size_t i = 0; i < rank; ++i) {
    const long double step = strides ? std::fabs(static_cast<long double>(strides[i])) : 0;
    if (shape[i] > 1) elements *= static_cast<long double>(shape[i]);
    if (shape[i] > 1) reach += step * static_cast<long double>(shape[i] - 1);
    if (step > longest) longest = step;  // structs hold it in 64 bits, even of a dimension of one element
  }
  if (longest > reach) reach = longest;
  if (elements < 1152921504606846976.0L && reach < 1152921504606846976.0L) return;
  std::string text;
  for (size_t i = 0; i < rank; ++i) text += (i ? "x" : "") + std::to_string(shape[i]);
  throw request_error("size-huge", text, std::string(name) + " of " + text + " spans more than 2^60 elements",
                      strides ? "split the problem, or use shorter strides" : "split the problem");
}

// That the elements of a result share no memory; its span is known to be small enough.
inline void demand_apart(const char *name, const int64_t *shape, size_t rank, const int64_t *strides) {
  std::vector<std::pair<int64_t, int64_t>> axes;  // step, size
  for (size_t i = 0; i < rank; ++i) {
    if (shape[i] == 0) return;
    if (shape[i] > 1) axes.emplace_back(strides[i] < 0 ? -strides[i] : strides[i], shape[i]);
  }
  std::sort(axes.begin(), axes.end());
  int64_t reach = 0;
  for (const auto &axis : axes) {
    if (axis.first <= reach)
      throw request_error("stride-overlap", std::to_string(axis.first),
                          std::string(name) + " is written with a stride of " + std::to_string(axis.first) +
                              " across " + std::to_string(reach + 1) + " elements: different elements share memory",
                          "give strides under which elements are apart");
    reach += axis.first * (axis.second - 1);
  }
}

// That a result is not where an operand is that kernels read while they write it.
inline void demand_apart_from(const char *result, const void *at,
                              std::initializer_list<std::pair<const char *, const void *>> operands) {
  for (const auto &operand : operands)
    if (at && at == operand.second)
      throw request_error(
          "out-overlaps", operand.first,
          std::string(result) + " has the address of " + operand.first + ", which is still read while it is written",
          std::string("give ") + result + " memory of its own");
}

inline void demand_type(Dtype type) {
  if (type >= Dtype::fp32 && type <= Dtype::int32) return;
  throw request_error("dtype-input", std::to_string(int(type)), "no type has the number " + std::to_string(int(type)),
                      "use one of tw::Dtype");
}

// `gates`: the op has those too; `most_d`: D tensors that its kernels take.
inline void demand_epilogue(Epilogue epilogue, int64_t num_d, bool gates, int64_t most_d) {
  if (epilogue < Epilogue::none || epilogue > Epilogue::fastgelu_and_mul || (is_gate(epilogue) && !gates))
    throw request_error(
        "epilogue-name", std::to_string(int(epilogue)),
        "the op has no epilogue " + std::string(name_of(epilogue)) + " of the number " + std::to_string(int(epilogue)),
        "use one of tw::Epilogue; gates are of GEMM only");
  const int64_t least = epilogue == Epilogue::add || epilogue == Epilogue::multiply ? 1 : 0;
  const int64_t most = epilogue == Epilogue::none ? 0 : is_gate(epilogue) ? 1 : most_d;
  if (num_d < least || num_d > most)
    throw request_error("epilogue-d-count", std::to_string(num_d),
                        std::string(name_of(epilogue)) + " with " + std::to_string(num_d) + " D tensors is not defined",
                        "give " + std::to_string(least) + " to " + std::to_string(most) +
                            " D tensors; to add tensors use Epilogue::add");
}

// Which types of results and of D tensors there are of inputs of a type, on every target.
inline void demand_results(Dtype input, Dtype result, int64_t num_d, Dtype d) {
  const bool wide = result == Dtype::fp32 || result == Dtype::fp16 || result == Dtype::bf16;
  const bool whole = result == Dtype::int32 || result == Dtype::int8 || result == Dtype::fp32;
  if (input == Dtype::int8 ? !whole : !wide)
    throw request_error("dtype-output", name_of(result),
                        std::string(name_of(input)) + " cannot give " + name_of(result),
                        input == Dtype::int8 ? "use int32, int8 or fp32" : "use fp32, fp16 or bf16");
  if (num_d && d != result && (whole || d != Dtype::fp32))
    throw request_error("dtype-d", name_of(d),
                        std::string("D tensors of ") + name_of(d) + " do not go with an output of " + name_of(result),
                        whole ? "use the type of the result" : "use the type of the result, or fp32");
}

}  // namespace detail

// A problem as the runtime takes it.
struct Described {
  std::string op, signature, text;
  const char *const *names = nullptr;
  std::vector<int64_t> values;
  double bytes = 0, flops = 0;         // that it moves and computes, whatever the kernel
  const char *family = nullptr;        // by its sizes: lock files pin kernels for such problems
  std::vector<int64_t> measured = {};  // of the measured form, where a registry has choices that are known by it

  tw_problem plain() const {
    tw_problem problem{};
    problem.size = sizeof problem;
    problem.op = op.c_str(), problem.signature = signature.c_str(), problem.text = text.c_str();
    problem.names = names, problem.values = values.data(), problem.count = int64_t(values.size());
    problem.measured = measured.empty() ? nullptr : measured.data();
    problem.bytes = bytes, problem.flops = flops, problem.family = family;
    return problem;
  }
};

namespace detail {

// Stages of a problem that has one; a list in braces would copy it.
inline std::vector<Described> one_stage(Described only) {
  std::vector<Described> stages;
  stages.push_back(std::move(only));
  return stages;
}

}  // namespace detail

}  // namespace tw
