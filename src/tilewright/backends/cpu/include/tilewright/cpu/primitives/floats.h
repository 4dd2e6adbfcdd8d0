// Short rows of numbers in fp32, for plain loops that compilers make vectors of.
#pragma once
#include <tilewright/cpu/primitives/dot.h>

namespace tw {

// A short row of numbers as floats, filled up with zeros to whole groups that compilers add side by side.
template <int Size> struct Floats {
  static constexpr int group = 16, size = (Size + group - 1) / group * group;
  float at[size];

  static float dot(const Floats &a, const Floats &b) {
    float accum[group] = {};
    for (int d = 0; d < size; d += group)
      for (int t = 0; t < group; ++t) accum[t] += a.at[d + t] * b.at[d + t];
    for (int step = group / 2; step; step /= 2)
      for (int t = 0; t < step; ++t) accum[t] += accum[t + step];
    return accum[0];
  }
  // The same as tiles add scores up (dot.h).
  static float score(const Floats &a, const Floats &b) {
    float sum = 0.0f;
    for (int d = 0; d < size; d += score_run) {
      float run = 0.0f;
      for (int t = d; t < d + score_run; ++t)
        run = fuses ? __builtin_fmaf(a.at[t], b.at[t], run) : run + a.at[t] * b.at[t];  // a compiler may do otherwise
      sum += run;
    }
    return sum;
  }
};

}  // namespace tw
