// As launch.h, for attention: kernels of one function.
#pragma once
#include <tilewright/emulated/launch_multistage.h>

#include <tilewright/cuda/attention/attention.h>
#include <tilewright/cuda/attention/combine/kernel.h>
#include <tilewright/cuda/attention/fp8/kernel.h>
#include <tilewright/cuda/attention/combine/host.h>
#include <tilewright/cuda/attention/fp8/host.h>
#include <tilewright/cuda/attention/loops/host.h>
#include <tilewright/cuda/attention/mma/host.h>
#include <tilewright/cuda/attention/stream_k/host.h>
#include <tilewright/cuda/attention/ws/host.h>
#include <tilewright/cuda/attention/loops/kernel.h>
#include <tilewright/cuda/attention/mma/kernel.h>
#include <tilewright/cuda/attention/ws/kernel.h>
