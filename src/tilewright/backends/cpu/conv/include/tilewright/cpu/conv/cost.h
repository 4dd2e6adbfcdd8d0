// What the kernels of convolutions on a CPU share: how many cores take part, and what every call costs.
//
// Costs are cycles of the busiest thread: vector multiply-adds with their rounding up to whole register blocks, words
// packed, pointers computed, accumulators stored between blocks of k, and what waking a team costs.  The constants were fitted to
// single-thread runs on an AVX-512 server core that starts one such multiply-add a cycle; only their proportions matter.
#pragma once
#include <tilewright/cpu/conv/limits.h>
#include <tilewright/select/threads.h>

namespace tw {
namespace selection {
namespace cpu_conv {

// Cycles; `memory`: bytes a cycle that one core gets from memory; `single`: how much longer a multiply-add takes in a
// register block of one vector; `multiply`: a multiply-add where accumulators stay in registers; `_dual`: the same of a host
// that starts two multiply-adds in a cycle.
#define TW_SELECT_CPU_CONV_RATES(X) \
  X(cycles_per_second) X(call) X(wake) X(memory) X(single) X(multiply) X(single_dual) X(multiply_dual)
TW_SELECT_STRUCT(Rates, real, TW_SELECT_CPU_CONV_RATES)

#define TW_SELECT_CPU_CONV_ARCH(X) X(vector_bytes)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_CPU_CONV_ARCH)

using Query = ConvQuery<Rates, Arch>;
inline int64_t width(const Query &x) { return x.arch.vector_bytes / 4; }

constexpr double kTranspose = 0.5, kCopy = 0.3;  // a weight packed across its lines, or along them; a word copied
constexpr double kBlock = 60.0;                  // a call of a register block
constexpr double kSave = 2.0;                    // a vector of accumulators stored and loaded
constexpr double kTransposed = 0.55;             // an element whose channels lie apart
constexpr int64_t kFarResults = 4 << 20;         // bytes of results that leave every cache
constexpr int64_t kFew = 16;                     // channels below which a row of the window is one
constexpr int64_t kTogether = 48;                // channels of groups that are done together

inline double real(Wide x) { return double(x); }

inline Wide multiply_adds(const Conv &c) {
  return Wide(c.p.batch) * c.out.product() * c.p.filters * c.group_channels * c.taps;
}

inline int64_t team(const Query &x) {
  const Wide wanted = multiply_adds(x.c) / Wide(kSmallestShare) + 1;
  return larger(1, wanted < x.host.threads ? int64_t(wanted) : x.host.threads);
}

// Channels of a group summed over, channels that come out, and positions of the result that count.
struct Gathered {
  int64_t depth, columns, positions;
};
inline Gathered gathered(const Conv &c) {
  const int64_t positions = c.p.batch * c.out.product();
  if (back(c)) return {c.group_filters, c.group_channels, positions};  // its classes have as many taps as outputs
  return {c.group_channels, c.group_filters, positions};
}

// Cycles of a multiply-add: where accumulators stay in registers, and of a register block of so many columns.
inline double multiply_add(const Query &x) { return x.host.dual_fma ? x.rate.multiply_dual : x.rate.multiply; }
inline double multiply_add(const Query &x, int64_t columns) {
  const double single = x.host.dual_fma ? x.rate.single_dual : x.rate.single;
  return multiply_add(x) * (columns == width(x) ? single : 1.0);
}

// What is written, in pixels, and what is read.
inline const Sizes &made(const Query &x) { return back(x.c) ? x.c.size : x.c.out; }
inline const Sizes &read(const Query &x) { return back(x.c) ? x.c.out : x.c.size; }
inline double read_elements(const Query &x) { return x.c.p.variant == forward ? x.c.x_elements() : x.c.y_elements(); }
inline Wide classes(const Query &x) {
  return back(x.c) ? Wide(x.c.stride[0]) * x.c.stride[1] * x.c.stride[2] : Wide(1);
}
inline bool far_results(const Query &x) {
  return 4 * (back(x.c) ? x.c.x_elements() : x.c.y_elements()) >= double(kFarResults);
}

// The part of an axis' taps that meet a pixel: what meets padding is not multiplied.
inline double met(const Conv &c, int axis) {
  const int64_t size = c.size[axis], stride = c.stride[axis], out = c.out[axis];
  int64_t count = 0;
  for (int64_t tap = 0; tap < c.window[axis]; ++tap) {
    const int64_t first = tap * c.dilation[axis] - c.before[axis];  // the pixel of output 0
    const int64_t begin = larger(0, -floor_div(first, stride));
    count += larger(0, smaller(out - 1, floor_div(size - 1 - first, stride)) - begin + 1);
  }
  return double(count) / real(Wide(out) * c.window[axis]);
}

// Elements that a kernel transposes because their channels lie apart (conv/channels_last.h).
inline double transposed(const Query &x) {
  const ConvProblem &p = x.c.p;
  return (p.x_channel != 1 ? x.c.x_elements() : 0.0) + (p.w_channel != 1 ? x.c.w_elements() : 0.0) +
         (p.y_channel != 1 ? x.c.y_elements() : 0.0);
}

// A call whose busiest thread of so many computes for so long, and that transposes so many elements.
inline double seconds_of(const Query &x, int64_t team, double cycles, double transposed) {
  cycles += 0.6 * x.c.moved / (x.rate.memory * double(team));  // part of it hides behind the products
  cycles += kTransposed * transposed / double(team);
  return (x.rate.call + (team > 1 ? x.rate.wake : 0.0) + cycles) / x.rate.cycles_per_second;
}

}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
