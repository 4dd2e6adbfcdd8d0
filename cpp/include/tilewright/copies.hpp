// Copies of operands for kernels of CPUs that do not take them as they lie: dense, filled up with zeros.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace tw {
namespace detail {

// An operand, and the copy in which a kernel sees it.  Strides and sizes are in elements, of so many bytes.
struct Copied {
  int operand;  // as its problem numbers them
  void *at;     // where it lies
  bool written;
  int64_t bytes;
  std::vector<int64_t> shape, strides, padded;

  int64_t elements() const {
    int64_t count = 1;
    for (int64_t size : padded) count *= size;
    return count;
  }
  int64_t room() const { return (elements() * bytes + 63) / 64 * 64; }
  bool larger() const { return shape != padded; }
  // To the copy, or back from it.
  void carry_in(char *copy) const {
    if (larger()) std::memset(copy, 0, size_t(elements() * bytes));
    carry<true>(static_cast<char *>(at), copy, 0);
  }
  void carry_out(char *copy) const { carry<false>(static_cast<char *>(at), copy, 0); }

 private:
  template <bool in> void carry(char *mine, char *copy, size_t axis) const {
    int64_t step = bytes;
    for (size_t inner = axis + 1; inner < padded.size(); ++inner) step *= padded[inner];
    const int64_t count = shape[axis], stride = strides[axis] * bytes;
    if (axis + 1 < shape.size()) {
      for (int64_t i = 0; i < count; ++i) carry<in>(mine + i * stride, copy + i * step, axis + 1);
    } else if (stride == bytes) {
      std::memcpy(in ? copy : mine, in ? mine : copy, size_t(count * bytes));
    } else {
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(in ? copy + i * bytes : mine + i * stride, in ? mine + i * stride : copy + i * bytes,
                    size_t(bytes));
    }
  }
};

// Whether problems of a kind can be served in copies.
template <class Problem, class = void> struct HasCopies {
  static constexpr bool value = false;
};
template <class Problem> struct HasCopies<Problem, decltype(void(&Problem::in_copies))> {
  static constexpr bool value = true;
};

}  // namespace detail
}  // namespace tw
