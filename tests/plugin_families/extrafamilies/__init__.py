"""Two kernel families in a package of their own: one for convolution on the CPU, one for GEMM on NVIDIA GPUs."""
