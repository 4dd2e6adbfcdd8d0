"""File locks that save work between processes.

The kernel frees them when their owner dies.  They only save double work: everything in the store is
right without them, so a file system that has none is no error.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # no such locks on this platform
    fcntl = None

_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTSUP}
_TAKEN = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


class FileLock:
    """An exclusive lock on a file that exists only while someone wants it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self.genuine = fcntl is not None  # False where the file system or platform has no locks

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> bool:
        """Take the lock if it is free; where locks do not work, everybody gets it."""
        while True:
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
            try:
                got = self._lock(descriptor)
                # The last owner may have removed the file between our open and our lock: then we
                # hold a lock nobody else sees.
                current = got and self._is_current(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            if current:
                self._descriptor = descriptor
                return True
            os.close(descriptor)
            if not got:
                return False

    def _lock(self, descriptor: int) -> bool:
        if fcntl is None:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            if error.errno not in _UNSUPPORTED:
                raise
            self.genuine = False
        return True

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(self.path.stat(), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        try:
            # Removed while still held: who opens it now either fails to lock or sees it is gone.
            self.path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
