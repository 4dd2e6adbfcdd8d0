// The glue to CK Tile of late 2025, for attention.  The numbers in its assertions are constants, but a check that may fail
// calls a function, and a call reserves scratch memory: they are left out.
#pragma once
#if defined(__HIP_DEVICE_COMPILE__)
#ifndef NDEBUG
#define NDEBUG
#endif
#include <cassert>
#endif
#include <tilewright/hip/attention/ck_tile/device.h>
