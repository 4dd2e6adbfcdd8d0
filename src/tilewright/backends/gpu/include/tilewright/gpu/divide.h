// Division by a number the host knows: a multiplication and a shift on the device.
#pragma once
#include <stdint.h>
#include <tilewright/gpu/device.h>

namespace tw {

struct Divider {
  uint32_t by, times, shift;

#ifdef TW_ON_GPU
  // Of 0 to 2^31 - 1.
  TW_GPU int quotient(int x) const { return int((uint64_t(uint32_t(x)) * times) >> shift); }
#endif
};

// By 1 to 2^31 - 1.  times is 2^shift / by rounded up, too large by less than 2^-31 of itself.
inline Divider divider(int64_t by) {
  Divider made{uint32_t(by), 0, 31};
  while (int64_t(1) << (made.shift - 31) < by) ++made.shift;
  const uint64_t whole = uint64_t(1) << made.shift;
  made.times = uint32_t((whole + uint64_t(by) - 1) / uint64_t(by));
  return made;
}

}  // namespace tw
