// Copies of operands for kernels that cannot read their layout: dense, filled up with zeros.
#pragma once
#include <tilewright/device.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace tw {
namespace detail {

// An operand, and the copy in which a kernel sees it.  Strides and sizes are in elements, of so many bytes.
struct Copied {
  int operand;  // as its problem numbers them
  void *at;     // its address
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
  // The same on a device, queued on a stream: fills, copies of rows, doublings of what repeats.
  void carry_in(char *copy, const Device &device, void *stream) const {
    if (larger()) device.clear(copy, elements() * bytes, stream);
    if (!empty()) merged().queue<true>(static_cast<char *>(at), copy, 0, device, stream);
  }
  void carry_out(char *copy, const Device &device, void *stream) const {
    if (!empty()) merged().queue<false>(static_cast<char *>(at), copy, 0, device, stream);
  }

 private:
  bool empty() const { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }
  // With neighbouring axes that are one in the operand and in the copy as one: on a device each index costs a call.  What
  // repeats stays an axis of its own.
  Copied merged() const {
    Copied made{operand, at, written, bytes, {shape[0]}, {strides[0]}, {padded[0]}};
    for (size_t axis = 1; axis < shape.size(); ++axis) {
      const int64_t size = shape[axis], stride = strides[axis];
      if (size == 1 && padded[axis] == 1) continue;
      const bool follows = made.strides.back() == stride * size || made.shape.back() == 1;
      if (stride && size == padded[axis] && follows) {
        made.shape.back() *= size, made.padded.back() *= size, made.strides.back() = stride;
      } else {
        made.shape.push_back(size), made.strides.push_back(stride), made.padded.push_back(padded[axis]);
      }
    }
    return made;
  }
  // Bytes from one index of an axis of the copy to the next.
  int64_t step_of(size_t axis) const {
    int64_t step = bytes;
    for (size_t inner = axis + 1; inner < padded.size(); ++inner) step *= padded[inner];
    return step;
  }
  template <bool in> void queue(char *mine, char *copy, size_t axis, const Device &device, void *stream) const {
    const int64_t step = step_of(axis), stride = strides[axis] * bytes;
    const int64_t count = in && stride == 0 ? 1 : shape[axis];  // what repeats is copied once
    const bool last = axis + 1 == shape.size(), rows = axis + 2 == shape.size();
    const int64_t row = rows ? shape[axis + 1] * bytes : bytes;
    if (last || (rows && strides[axis + 1] == 1)) {
      if (count == 1 || stride >= row) {
        in ? device.copy_rows(copy, step, mine, stride, row, count, stream)
           : device.copy_rows(mine, stride, copy, step, row, count, stream);
      } else {  // rows that overlap, or negative strides
        for (int64_t i = 0; i < count; ++i)
          in ? device.copy(copy + i * step, mine + i * stride, row, stream)
             : device.copy(mine + i * stride, copy + i * step, row, stream);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) queue<in>(mine + i * stride, copy + i * step, axis + 1, device, stream);
    }
    for (int64_t done = count; done < shape[axis];) {
      const int64_t more = std::min(done, shape[axis] - done);
      device.copy(copy + done * step, copy, more * step, stream);
      done += more;
    }
  }
  template <bool in> void carry(char *mine, char *copy, size_t axis) const {
    const int64_t step = step_of(axis), count = shape[axis], stride = strides[axis] * bytes;
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
