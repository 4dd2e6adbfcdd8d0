"""File locks that save work between processes: those of the library filelock, with two promises of the store's.

The operating system frees a lock when its owner dies; forked children do not hold their parent's.  Beyond that:
  - Locks only save double work.  Everything in the store is right without them, so where the file system has none,
    everybody gets the lock; a marker file instead, as libraries fall back to, would outlive who died.
  - A lock leaves no file behind: a store of ten thousand kernels has no folder of ten thousand locks.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import BaseFileLock

_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTSUP}


class FileLock:
    """An exclusive lock on a file that exists only while someone wants it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held = False
        self.genuine = True  # False where the file system or platform has no locks
        self._lock: BaseFileLock | None = None
        self._owner = 0

    def acquire(self) -> bool:
        """Take the lock if it is free; where locks do not work, everybody gets it."""
        import filelock  # here: a kernel that is in the store needs no lock

        if not self.path.parent.is_dir():  # the library would make it again: a work folder that was just swept
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path.parent))
        if not issubclass(filelock.FileLock, filelock.SoftFileLock):  # which is all some platforms have
            lock = filelock.FileLock(self.path, thread_local=False, fallback_to_soft=False)
            try:
                lock.acquire(blocking=False)
                self._lock = lock
            except filelock.Timeout:
                return False
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
        self.genuine = self._lock is not None
        self.held, self._owner = True, os.getpid()
        return True

    def release(self) -> None:
        if not self.held:
            return
        lock, self._lock, self.held = self._lock, None, False
        if self._owner != os.getpid():
            return  # a forked child: the lock is its parent's
        try:
            # Removed while still held: who opens it now either fails to lock or sees that it is gone.
            self.path.unlink(missing_ok=True)
        finally:
            if lock is not None:
                lock.release()
