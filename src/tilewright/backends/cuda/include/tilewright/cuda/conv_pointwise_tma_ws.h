// Convolutions of one pixel's window by GEMM's tma_ws kernels: the device's half is GEMM's.
#pragma once
#include <tilewright/cuda/gemm.h>
#ifdef __CUDACC__
#include <tilewright/cuda/gemm_tma_ws.h>
#endif
