// As launch.h, for kernels of one function.
#pragma once
#include <tilewright/emulated/launch.h>

#undef TW_IMAGE
#define TW_IMAGE(Symbol) \
  TW_EMULATED_FUNCTION(Symbol) \
  static const void *tw_image_##Symbol() { return reinterpret_cast<const void *>(&tw_emulated_##Symbol); }
