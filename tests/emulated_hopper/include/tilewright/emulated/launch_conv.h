// As launch.h, for convolutions; TW_CONV_BESIDE(Symbol) names the functions a kernel has beside its own.
#pragma once
#include <tilewright/emulated/launch.h>

#include <tilewright/cuda/conv.h>
#include <tilewright/cuda/conv_band.h>
#include <tilewright/cuda/conv_band_weight.h>
#include <tilewright/cuda/conv_depthwise.h>
#include <tilewright/cuda/conv_depthwise_mma.h>
#include <tilewright/cuda/conv_depthwise_tile.h>
#include <tilewright/cuda/conv_first_weight.h>
#include <tilewright/cuda/conv_folded.h>
#include <tilewright/cuda/conv_host_band.h>
#include <tilewright/cuda/conv_host_band_weight.h>
#include <tilewright/cuda/conv_host_depthwise.h>
#include <tilewright/cuda/conv_host_depthwise_mma.h>
#include <tilewright/cuda/conv_host_depthwise_tile.h>
#include <tilewright/cuda/conv_host_first_weight.h>
#include <tilewright/cuda/conv_host_folded.h>
#include <tilewright/cuda/conv_host_gather.h>
#include <tilewright/cuda/conv_gather.h>
#include <tilewright/cuda/conv_host_padded.h>
#include <tilewright/cuda/conv_padded.h>
#include <tilewright/cuda/conv_tma_ws.h>

#undef TW_IMAGE
#define TW_IMAGE(Symbol) \
  TW_EMULATED_FUNCTION(Symbol) \
  TW_CONV_BESIDE(Symbol) \
  static const void *tw_image_##Symbol() { return reinterpret_cast<const void *>(&tw_emulated_##Symbol); }
