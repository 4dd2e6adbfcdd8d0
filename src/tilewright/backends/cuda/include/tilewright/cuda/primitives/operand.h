// Shared-memory matrix descriptors of wgmma: where an operand lies.
#pragma once
#include <tilewright/cuda/primitives/device.h>

namespace tw {

// Where an operand lies in shared memory, 128-byte swizzled: rows of 128 bytes, eight rows to an
// atom of 1024.  k-contiguous: `stride` is from atom to atom along m or n.  m- or n-contiguous:
// `stride` is from atom to atom along k, `leading` from one 64-element column to the next.
TW_GPU uint64_t operand(const void *p, uint32_t stride = 1024, uint32_t leading = 16) {
  uint64_t address = (shared_address(p) & 0x3ffff) >> 4;
  return address | uint64_t(leading >> 4) << 16 | uint64_t(stride >> 4) << 32 | uint64_t(1) << 62;
}

// The same without a swizzle, m- or n-contiguous: matrices of eight rows along k, 16 bytes each, one behind the other.
// `lines` is from matrix to matrix along m or n, `deep` along k; it may begin at any 16 bytes.
TW_GPU uint64_t plain_operand(const void *p, uint32_t lines, uint32_t deep) {
  uint64_t address = (shared_address(p) & 0x3ffff) >> 4;
  return address | uint64_t(deep >> 4) << 16 | uint64_t(lines >> 4) << 32;
}

// The same so many times 16 bytes further on.  Addresses have 14 bits of the low word: nothing is carried out of it.
TW_GPU uint64_t further(uint64_t at, uint32_t by) { return (at >> 32) << 32 | (uint32_t(at) + by); }

}  // namespace tw
