// As launch.h, for attention: kernels of one function.
#pragma once
#include <tilewright/emulated/launch_multistage.h>

#include <tilewright/cuda/attention.h>
#include <tilewright/cuda/attention_combine.h>
#include <tilewright/cuda/attention_fp8.h>
#include <tilewright/cuda/attention_host_combine.h>
#include <tilewright/cuda/attention_host_fp8.h>
#include <tilewright/cuda/attention_host_loops.h>
#include <tilewright/cuda/attention_host_mma.h>
#include <tilewright/cuda/attention_host_shares.h>
#include <tilewright/cuda/attention_host_ws.h>
#include <tilewright/cuda/attention_loops.h>
#include <tilewright/cuda/attention_mma.h>
#include <tilewright/cuda/attention_ws.h>
