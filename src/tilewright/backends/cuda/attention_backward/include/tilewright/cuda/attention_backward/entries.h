// One entry of the matrix of scores, on NVIDIA GPUs.
#pragma once
#include <tilewright/gpu/device.h>
#ifdef TW_ON_GPU
#include <tilewright/cuda/primitives/fast_math.h>
#endif
#include <tilewright/gpu/attention_backward_entries.h>
