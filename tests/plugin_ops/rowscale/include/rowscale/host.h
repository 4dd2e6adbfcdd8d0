// What the host's half of a rowscale kernel is on every target: the rules it refuses by, and what a launch is told.
#pragma once
#include <rowscale/args.h>
#include <tilewright/say.h>

namespace tw {

// The first rule that is broken; `grain` is what the columns must be a multiple of.
inline Answer rowscale_broken(const tw_rowscale_args *x, int64_t grain) {
  if (!x) return {TW_BAD_ARGS, "args is null"};
  if (x->rows < 0 || x->columns < 0) return {TW_BAD_ARGS, "a size is negative"};
  if (x->x_stride < x->columns || x->y_stride < x->columns) return {TW_BAD_ARGS, "a stride is shorter than its row"};
  if (x->columns % grain) return {TW_DIVISIBILITY, "the columns are no multiple of the unrolled ones: no edge code"};
  return {};
}
inline int rowscale_check(const void *args, int64_t grain, char *why, size_t bytes) {
  return say(rowscale_broken(static_cast<const tw_rowscale_args *>(args), grain), why, bytes);
}

}  // namespace tw
