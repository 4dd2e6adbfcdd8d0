// What every rowscale kernel refuses, with a sentence; the same on every target.
#pragma once
#include <rowscale/args.h>
#include <tilewright/abi.h>

namespace tw {

// `grain`: what the columns must be a multiple of.
inline int rowscale_check(const void *args, int64_t grain, char *why, size_t bytes) {
  int code = TW_OK;
  const char *sentence = "";
  auto is = [&](int broken, const char *text) { code = broken, sentence = text; };
  auto *x = static_cast<const tw_rowscale_args *>(args);
  if (!x) is(TW_BAD_ARGS, "args is null");
  else if (x->rows < 0 || x->columns < 0) is(TW_BAD_ARGS, "a size is negative");
  else if (x->x_stride < x->columns || x->y_stride < x->columns) is(TW_BAD_ARGS, "a stride is shorter than its row");
  else if (x->columns % grain) is(TW_DIVISIBILITY, "the columns are no whole turns and the kernel has no edge code");
  size_t i = 0;
  for (; bytes && i + 1 < bytes && sentence[i]; ++i) why[i] = sentence[i];
  if (bytes) why[i] = 0;
  return code;
}

}  // namespace tw
