// What convolutions in copies of their operands take.
#pragma once
#include <tilewright/cuda/conv/copies_limits.h>
#include <tilewright/cuda/conv/cost.h>

namespace tw {
namespace selection {
namespace cuda_conv {

// Copies, and the convolution of them: `inner` is its cost.
template <class Inner>
double seconds_in_copies(int64_t copies, const Needs &needs, const Query &x, const Inner &inner) {
  const Conv &c = x.c;
  const ConvProblem &p = c.p;
  const Rates &r = x.rate;
  if (p.batch == 0) return r.start;  // nothing to traverse: kernels for other shapes take it too
  if (copies == in_place) return inner(x);
  const Padded made = padded(needs, c);
  const double size = double(p.size), y = double(copied_y(made, c));
  const auto rate = [&](int64_t channel) { return channel != 1 ? r.transposed : r.memory; };
  double moved = 2.0 * size * double(copied_x(made, c)) / rate(p.x_channel);
  moved += 2.0 * size * double(copied_w(made, c)) / rate(p.w_channel) + 2.0 * size * y / rate(p.y_channel);
  if (made.y && p.full_d) moved += 2.0 * double(p.size_d) * double(p.full_d) * y / r.transposed;
  const Conv of_copies(made.larger);
  const double taken = inner(Query{of_copies, r, x.arch, x.host});
  return taken + r.add_start * double(int(made.x) + int(made.w) + int(made.y)) + moved;
}

}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
