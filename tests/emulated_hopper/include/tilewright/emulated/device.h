// The thin device layer of vendor-neutral GPU headers, emulated.  CUDA's own words come with it.
#pragma once
#include <tilewright/emulated/cuda_words.h>

#define TW_GPU inline
#define TW_SPIN() emulated::spin("a word that another block writes")

namespace tw {

TW_GPU float lane_xor(float x, int bits) {
  float y;
  emulated::warp_exchange(&x, sizeof x, int(threadIdx.x % 32) ^ bits, &y);
  return y;
}
TW_GPU uint32_t lane_at(uint32_t x, int lane) {
  uint32_t y;
  emulated::warp_exchange(&x, sizeof x, lane, &y);
  return y;
}
TW_GPU bool any_lane(bool x) {
  float y = x;
  for (int bits = 1; bits < 32; bits *= 2) y = fmaxf(y, lane_xor(y, bits));
  return y != 0;
}
TW_GPU float4 load_through(const float4 *p) { return __ldcg(p); }
TW_GPU unsigned look_at(unsigned *p) {
  emulated::spin("a look at a word");
  return *p;
}
TW_GPU unsigned glance_at(unsigned *p) { return look_at(p); }
TW_GPU void pass_on(unsigned *p) {
  __threadfence();
  atomicAdd(p, 1u);
}
TW_GPU void store_through(float4 *p, float4 x) { __stcg(p, x); }

}  // namespace tw
