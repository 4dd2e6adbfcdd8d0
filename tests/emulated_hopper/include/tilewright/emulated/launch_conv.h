// As launch.h, for convolutions; TW_CONV_BESIDE(Symbol) names the functions a kernel has beside its own.
#pragma once
#include <tilewright/emulated/launch.h>

#include <tilewright/cuda/conv/conv.h>
#include <tilewright/cuda/conv/halo/kernel.h>
#include <tilewright/cuda/conv/halo_wgrad/kernel.h>
#include <tilewright/cuda/conv/depthwise/kernel.h>
#include <tilewright/cuda/conv/depthwise_mma/kernel.h>
#include <tilewright/cuda/conv/depthwise_tile/kernel.h>
#include <tilewright/cuda/conv/small_channel_wgrad/kernel.h>
#include <tilewright/cuda/conv/width_folded/kernel.h>
#include <tilewright/cuda/conv/halo/host.h>
#include <tilewright/cuda/conv/halo_wgrad/host.h>
#include <tilewright/cuda/conv/depthwise/host.h>
#include <tilewright/cuda/conv/depthwise_mma/host.h>
#include <tilewright/cuda/conv/depthwise_tile/host.h>
#include <tilewright/cuda/conv/small_channel_wgrad/host.h>
#include <tilewright/cuda/conv/width_folded/host.h>
#include <tilewright/cuda/conv/gather/host.h>
#include <tilewright/cuda/conv/gather/kernel.h>
#include <tilewright/cuda/conv/padded/host.h>
#include <tilewright/cuda/conv/padded/kernel.h>
#include <tilewright/cuda/conv/tma_ws/kernel.h>

#undef TW_IMAGE
#define TW_IMAGE(Symbol) \
  TW_EMULATED_FUNCTION(Symbol) \
  TW_CONV_BESIDE(Symbol) \
  static const void *tw_image_##Symbol() { return reinterpret_cast<const void *>(&tw_emulated_##Symbol); }
