"""The CPU backend: our own C++ tile headers, the host's compiler, the host's threads."""

from tilewright.backends.cpu.backend import CpuBackend

__all__ = ["CpuBackend"]
