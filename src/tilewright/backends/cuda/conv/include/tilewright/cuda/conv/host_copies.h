// What the host's half of a pipeline says to be run in copies (conv/padded/host.h), and what several of them need.
#pragma once
#include <tilewright/conv_args.h>
#include <tilewright/say.h>
#include <stdint.h>

namespace tw::cuda {

// Of a pipeline's operands.
struct CopyNeeds {
  bool whole_groups = false;  // groups of one channel and one filter, whole 16 bytes of them
  bool any_filters = false;   // w may lie anywhere, if channels are side by side and taps even; groups are joined
  bool any_pixels = false;    // x may, and w where its taps are even: channels apart, too
};

// Whether pixels lie at equal distances; a stride along one pixel says nothing.
inline bool even_pixels(const int64_t *strides, const int64_t *sizes, int64_t images) {
  const int64_t step = strides[3];
  return (sizes[1] == 1 || strides[2] == step * sizes[2]) &&
         (sizes[0] == 1 || strides[1] == step * sizes[2] * sizes[1]) &&
         (images == 1 || strides[0] == step * sizes[2] * sizes[1] * sizes[0]);
}

// Of D tensors, which selection does not know: theirs are the pixels of y.
template <class Config> Answer broken_ds(const tw_conv_args &x) {
  for (int i = 0; i < Config::num_d && x.batch; ++i)
    if (!even_pixels(x.d_strides[i], x.out, x.batch) || (x.d_strides[i][4] & ~int64_t(1)))
      return {TW_LIMIT, "the pixels of a D do not lie at equal distances"};
  return {};
}

}  // namespace tw::cuda
