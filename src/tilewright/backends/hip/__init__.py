"""The HIP backend: CK Tile kernels for AMD GPUs, compiled by hipcc."""

from tilewright.backends.hip.backend import HipBackend

__all__ = ["HipBackend"]
