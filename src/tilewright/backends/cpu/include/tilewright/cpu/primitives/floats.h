// Short rows of numbers in fp32, for plain loops that compilers make vectors of.
#pragma once
#include <tilewright/cpu/primitives/convert.h>

namespace tw {

// A short row of numbers as floats, filled up with zeros to whole groups that compilers add side by side.
template <int Size> struct Floats {
  static constexpr int group = 16, size = (Size + group - 1) / group * group;
  float at[size];

  static float dot(const Floats &a, const Floats &b) {
    float sums[group] = {};
    for (int d = 0; d < size; d += group)
      for (int t = 0; t < group; ++t) sums[t] += a.at[d + t] * b.at[d + t];
    for (int step = group / 2; step; step /= 2)
      for (int t = 0; t < step; ++t) sums[t] += sums[t + step];
    return sums[0];
  }
};

}  // namespace tw
