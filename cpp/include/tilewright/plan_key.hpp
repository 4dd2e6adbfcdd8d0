// What a plan depends on, as numbers: problems with equal keys are the same problem.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tw {
namespace detail {

// Numbers in a row, without memory of their own to allocate: a lookup is a fraction of a microsecond.
class PlanKey {
 public:
  explicit PlanKey(int64_t op) { add(op); }

  PlanKey &add(int64_t number) {
    if (count_ < kMost) numbers_[count_] = number;
    ++count_;
    return *this;
  }
  template <class... More> PlanKey &add(int64_t first, More... more) { return add(first), add(int64_t(more)...); }
  // With the length first: (1, 2) and (3) are not (1) and (2, 3).
  PlanKey &add(const std::vector<int64_t> &numbers) {
    add(int64_t(numbers.size()));
    for (int64_t number : numbers) add(number);
    return *this;
  }
  PlanKey &add(const char *text) {  // a short word
    uint64_t packed = 0;
    size_t length = 0;
    for (; text[length]; ++length) packed = packed * 257 + static_cast<unsigned char>(text[length]);
    return add(int64_t(packed)), add(int64_t(length));
  }

  // A problem of more numbers than fit breaks a rule (too many dimensions); it equals nothing, not even itself.
  bool whole() const { return count_ <= kMost; }
  bool operator==(const PlanKey &other) const {
    if (count_ != other.count_ || !whole()) return false;
    for (size_t i = 0; i < count_; ++i)
      if (numbers_[i] != other.numbers_[i]) return false;
    return true;
  }
  struct Hash {
    size_t operator()(const PlanKey &key) const {
      uint64_t state = 0x9e3779b97f4a7c15u;
      for (size_t i = 0; i < key.count_ && i < kMost; ++i) {
        state = (state ^ static_cast<uint64_t>(key.numbers_[i])) * 0xff51afd7ed558ccdu;
        state ^= state >> 32;
      }
      return static_cast<size_t>(state);
    }
  };

 private:
  static constexpr size_t kMost = 96;
  size_t count_ = 0;
  int64_t numbers_[kMost];
};

}  // namespace detail
}  // namespace tw
