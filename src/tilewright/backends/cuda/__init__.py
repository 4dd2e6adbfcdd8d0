"""NVIDIA GPUs through our own tile headers."""

from tilewright.backends.cuda.backend import CudaBackend

__all__ = ["CudaBackend"]
