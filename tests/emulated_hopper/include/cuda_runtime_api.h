// The one call of CUDA's runtime that a kernel's host half makes when nvcc builds both halves.
#pragma once
using cudaFunction_t = void *;
inline int cudaGetFuncBySymbol(cudaFunction_t *function, const void *symbol) {
  *function = const_cast<void *>(symbol);
  return 0;
}
