"""Loading and running built kernels: the C ABI, host memory and threads, array interop."""
