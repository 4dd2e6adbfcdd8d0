// The multistage pipeline on NVIDIA GPUs: cp.async, ldmatrix and mma.sync under gpu/gemm_multistage.h.
#pragma once
#include <tilewright/cuda/primitives/matrix.h>
#include <tilewright/gpu/gemm_multistage.h>
