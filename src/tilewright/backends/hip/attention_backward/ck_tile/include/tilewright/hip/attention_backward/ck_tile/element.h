// The C++ type of an element to the device, its size to the host: only the device's pass sees CK Tile.
#pragma once

#ifndef TW_ELEMENT
#if defined(__HIP_DEVICE_COMPILE__)
#define TW_ELEMENT(Type, bytes) Type
#else
#define TW_ELEMENT(Type, bytes) tw::hip::BackwardElement<bytes>
#endif
#endif

namespace tw::hip {

template <int bytes> struct BackwardElement {
  char at[bytes];
};

}  // namespace tw::hip
