// As launch.h, for attention's gradients; TW_BACKWARD_BESIDE(Symbol) names the functions a kernel has beside its own.
#pragma once
#include <tilewright/emulated/launch.h>

#define TW_BACKWARD_CACHED (64 << 10)  // so that the few heads of small problems are several chunks
#include <tilewright/cuda/attention_backward/attention_backward.h>
#include <tilewright/cuda/attention_backward/loops/kernel.h>
#include <tilewright/cuda/attention_backward/mma/kernel.h>
#include <tilewright/cuda/attention_backward/rows/kernel.h>
#include <tilewright/cuda/attention_backward/ws/kernel.h>
#include <tilewright/cuda/attention_backward/ws/wide/kernel.h>
#include <tilewright/cuda/attention_backward/loops/host.h>
#include <tilewright/cuda/attention_backward/mma/host.h>
#include <tilewright/cuda/attention_backward/rows/host.h>
#include <tilewright/cuda/attention_backward/ws/host.h>
#include <tilewright/cuda/attention_backward/ws/wide/host.h>

#undef TW_IMAGE
#define TW_IMAGE(Symbol) \
  TW_EMULATED_FUNCTION(Symbol) \
  TW_BACKWARD_BESIDE(Symbol) \
  static const void *tw_image_##Symbol() { return reinterpret_cast<const void *>(&tw_emulated_##Symbol); }
