// Where shared memory begins that tiles of TMA and of wgmma may lie in.
#pragma once
#include <tilewright/cuda/primitives/device.h>

#ifdef TW_ON_GPU
namespace tw {

// At a multiple of 1024 bytes.
TW_GPU char *shared_tiles() {
  char *raw = dynamic_shared();
  return raw + (1024 - (shared_address(raw) & 1023)) % 1024;
}

}  // namespace tw
#endif
