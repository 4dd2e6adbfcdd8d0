// Convolutions of one pixel's window by GEMM's multistage kernels: the device's half is GEMM's.
#pragma once
#include <tilewright/cuda/gemm/gemm.h>
#ifdef __CUDACC__
#include <tilewright/cuda/gemm/multistage/kernel.h>
#endif
