"""Libraries that are loaded from memory: nothing is written, so that a read-only machine can load what a bundle holds.

The system loader takes a path.  A file in memory (memfd_create) has one while it is open, /proc/self/fd/N; where the
system has none, or forbids to run code from there, a private temporary file replaces it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_numbers = itertools.count(1)


def path_of(descriptor: int) -> str:
    """A path of an open file that no other had: the loader takes a path that it knows for the library it loaded.

    The number of a file that was closed is used again; the steps back and forth before it distinguish the two.
    """
    steps = "".join("../fd/" if bit == "0" else "../../self/fd/" for bit in f"{next(_numbers):b}")
    return f"/proc/self/fd/{steps}{descriptor}"


def kept(data: bytes, name: str) -> str:
    """The path of a file in memory that stays; of the few libraries that are opened by path more than once."""
    descriptor = _in_memory(data, name)
    if descriptor is not None:
        return path_of(descriptor)
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="tilewright-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return _written(folder, data, name)


@contextmanager
def loadable(data: bytes, name: str) -> Iterator[str]:
    """A path to load a library by, within the block; what was loaded stays."""
    descriptor = _in_memory(data, name)
    if descriptor is not None:
        try:
            yield path_of(descriptor)
        finally:
            os.close(descriptor)
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        yield _written(folder, data, name)


def _written(folder: str, data: bytes, name: str) -> str:
    path = os.path.join(folder, os.path.basename(name))  # noqa: PTH118, PTH119
    with open(path, "xb") as file:  # noqa: PTH123
        file.write(data)
    return path


def _in_memory(data: bytes, name: str) -> int | None:
    """None where there is no such file, or none that a library can be loaded from."""
    global _works
    if not _works or not hasattr(os, "memfd_create"):
        return None
    try:
        descriptor = os.memfd_create(os.path.basename(name)[:200], os.MFD_CLOEXEC)  # noqa: PTH119
    except OSError:
        _works = False
        return None
    with suppress(OSError):
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        if _mappable(descriptor):
            return descriptor
    os.close(descriptor)
    _works = False
    return None


_works = True
_PROT_READ_EXEC, _MAP_PRIVATE = 1 | 4, 2


def _mappable(descriptor: int) -> bool:
    """Whether the system lets code of this file run, and has its path."""
    if not os.path.exists(f"/proc/self/fd/{descriptor}"):  # noqa: PTH110
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    place = libc.mmap(None, 1, _PROT_READ_EXEC, _MAP_PRIVATE, descriptor, 0)
    if place is None or place == ctypes.c_void_p(-1).value:
        return False
    libc.munmap(place, 1)
    return True
