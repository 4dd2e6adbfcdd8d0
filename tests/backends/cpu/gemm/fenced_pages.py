"""Run kernels on operands that end (or begin) at a page nobody may touch; ends with 0 if none was touched.

A program of its own, for a kernel that reads one byte too far ends the process.  Loads written in
assembly are seen here, which sanitizers do not instrument.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

from tests.backends.cpu.gemm import catalog
from tests.backends.cpu.gemm.harness import Array, prove
from tests.backends.cpu.gemm.shapes import calls
from tilewright.dispatch.kernels import kernels as loaded
from tilewright.ops.base import KernelSpec

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


class Pages:
    """Allocate between two forbidden pages, against the last or the first of them."""

    def __init__(self, at_end: bool) -> None:
        self.at_end = at_end

    def __call__(self, size: int, itemsize: int) -> tuple[Array, int]:
        room = max(1, -(-size // PAGE)) * PAGE
        region = mmap.mmap(-1, room + 2 * PAGE)
        whole = np.frombuffer(region, np.uint8)
        start = int(whole.ctypes.data)
        for page in (start, start + PAGE + room):
            if _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        return whole[PAGE : PAGE + room], room - size if self.at_end else 0


def overrun() -> None:
    """What the fence is for: reads one byte behind it."""
    memory, offset = Pages(at_end=True)(5, 1)
    print(ctypes.string_at(int(memory.ctypes.data) + offset, 6))


def every() -> list[KernelSpec]:
    return [*catalog.core().values(), *catalog.covering()[::2]]


def main(names: list[str]) -> None:
    if names == ["overrun"]:
        overrun()
    specs = [catalog.core()[name] for name in names] or every()
    count = 0
    here = [spec for spec in dict.fromkeys(specs) if spec.arch in catalog.runnable()]
    for spec, kernel in zip(here, loaded(here), strict=True):
        for at_end in (True, False):
            for call in calls(spec, seed=40):
                print(spec.name, at_end, call, file=sys.stderr)  # the last line tells which call ended the process
                prove(kernel, call, allocate=Pages(at_end))
                count += 1
    print(f"{count} calls stayed inside their operands")


if __name__ == "__main__":
    main(sys.argv[1:])
