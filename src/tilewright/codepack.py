"""The bytecode of the modules that a first call imports, in one file beside that of each.

A first call imports more than a hundred small modules.  To find each, open its bytecode and read it takes Python longer
than to run most of them.  So a process that is done packs the bytecode of our modules it had loaded into one file, in
the folder where Python keeps that of the package itself (`__pycache__`, or under PYTHONPYCACHEPREFIX), and processes
after it read from there.  What a pack holds of a module counts as Python's own bytecode does: only of this version of
Python, and while the source has the time and size that it was made of.  Anything else is imported as ever.  Where
bytecode is not to be written (PYTHONDONTWRITEBYTECODE), or cannot be, no pack is.
"""

from __future__ import annotations

import atexit
import marshal
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source
from types import CodeType, ModuleType
from typing import Any, BinaryIO

_HEAD = b"tilewright codepack 1\n" + MAGIC_NUMBER
_SIZE = 8  # bytes of the length of the index, behind the head
_MOST_BYTES = 32 << 20
_PYC = 16  # bytes of the head of Python's own files

# Of a module: its source, where Python keeps its bytecode, time (ns) and size of the source; and where behind the index
# its bytecode begins, and how long that is.
_Head = tuple[str, str, int, int]
_Row = tuple[str, str, int, int, int, int]


class _Loader(SourceFileLoader):
    """Python's own, but for where bytecode comes from."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code: CodeType | None = code

    def get_code(self, fullname: str) -> CodeType | None:
        code, self._code = self._code, None  # once: whoever reloads a module has changed it
        return super().get_code(fullname) if code is None else code


class Pack:
    """One file of bytecode, and Python's way to it: a finder of `sys.meta_path`."""

    def __init__(self, package: str, source: str) -> None:
        """Of a package whose `__init__.py` is `source`."""
        self._prefix = f"{package}."
        self.path = os.path.join(os.path.dirname(cache_from_source(source)), f"{package}.codepack")  # noqa: PTH118, PTH120
        self._rows: dict[str, _Row] = {}
        self._first = 0  # where bytecode begins in the file
        self._file: BinaryIO | None = None
        self._open()

    def _open(self) -> None:
        """Read the index; nothing of a file that is not ours, or is damaged."""
        try:
            self._file = open(self.path, "rb", buffering=0)  # noqa: PTH123, SIM115  read from as modules are imported
            head = self._file.read(len(_HEAD) + _SIZE)
            if head.startswith(_HEAD):
                length = int.from_bytes(head[len(_HEAD) :], "little")
                rows = marshal.loads(self._file.read(min(length, _MOST_BYTES)))
                self._rows, self._first = (rows, len(head) + length) if isinstance(rows, dict) else ({}, 0)
        except (OSError, ValueError, EOFError, TypeError):
            self._rows = {}

    def _bytecode(self, row: _Row) -> bytes:
        assert self._file is not None
        return os.pread(self._file.fileno(), row[5], self._first + row[4])

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As finders of `sys.meta_path` are asked."""
        row = self._rows.get(name)
        if row is None:
            return None
        source, kept, written, size = row[:4]
        folder, _, file = source.rpartition(os.sep)
        is_package = file == "__init__.py"
        if path is None or (folder.rpartition(os.sep)[0] if is_package else folder) not in path:
            return None  # of another copy of the package
        try:
            status = os.stat(source)  # noqa: PTH116
            if (status.st_mtime_ns, status.st_size) != (written, size):
                return None
            code = marshal.loads(self._bytecode(row))
        except (OSError, ValueError, EOFError, TypeError):
            return None
        if not isinstance(code, CodeType):
            return None
        spec = ModuleSpec(name, _Loader(name, source, code), origin=source, is_package=is_package)
        spec.has_location, spec.cached = True, kept
        if is_package:
            spec.submodule_search_locations = [folder]
        return spec

    def save(self) -> None:
        """Pack what this process has loaded of the package and is not packed yet, beside what is."""
        if sys.dont_write_bytecode:
            return
        loaded = {name for name in list(sys.modules) if name.startswith(self._prefix)}
        rows = {name: row for name, row in self._rows.items() if name not in loaded or self._is_current(name)}
        new = {name: packed for name in loaded - rows.keys() if (packed := _packed(sys.modules[name])) is not None}
        if not new:
            return
        heads = {**{name: row[:4] for name, row in rows.items()}, **{name: head for name, (head, _) in new.items()}}
        with suppress(OSError):  # a folder that cannot be written holds no bytecode of Python's either
            parts = {name: self._bytecode(row) for name, row in rows.items()}
            self._write(heads, parts | {name: code for name, (_, code) in new.items()})

    def _is_current(self, name: str) -> bool:
        """Whether a module that was loaded came from here."""
        spec = getattr(sys.modules.get(name), "__spec__", None)
        return isinstance(getattr(spec, "loader", None), _Loader)

    def _write(self, heads: dict[str, _Head], parts: dict[str, bytes]) -> None:
        rows: dict[str, _Row] = {}
        at = 0
        for name in sorted(heads):
            rows[name] = (*heads[name], at, len(parts[name]))
            at += len(parts[name])
        index = marshal.dumps(rows)
        data = b"".join([_HEAD, len(index).to_bytes(_SIZE, "little"), index, *(parts[name] for name in sorted(heads))])
        if len(data) > _MOST_BYTES:
            return
        part = f"{self.path}.{os.getpid()}.part"
        try:
            with open(part, "xb") as file:  # noqa: PTH123
                file.write(data)
            os.replace(part, self.path)  # noqa: PTH105
        finally:
            with suppress(OSError):
                os.unlink(part)  # noqa: PTH108


def _packed(module: Any) -> tuple[_Head, bytes] | None:
    """The source of a module with its time and size, and the bytecode that Python keeps of it; None where it has none
    that is of this source."""
    spec: ModuleSpec | None = getattr(module, "__spec__", None)
    if spec is None or type(spec.loader) is not SourceFileLoader or not spec.cached or not spec.origin:
        return None
    try:
        status = os.stat(spec.origin)  # noqa: PTH116
        with open(spec.cached, "rb") as file:  # noqa: PTH123
            data = file.read()
    except OSError:
        return None
    stamp = [int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF]
    head = MAGIC_NUMBER + bytes(4) + b"".join(number.to_bytes(4, "little") for number in stamp)
    if data[:_PYC] != head:  # of an older source, or kept by its hash
        return None
    return (os.path.abspath(spec.origin), spec.cached, status.st_mtime_ns, status.st_size), data[_PYC:]  # noqa: PTH100


_installed: list[Pack] = []


def install() -> None:
    """Have the modules of the package come from its pack; those of a package that does not lie in a plain folder, or
    that somebody else's finder brings, do not."""
    import tilewright

    spec = tilewright.__spec__
    if _installed or spec is None or type(spec.loader) is not SourceFileLoader or PathFinder not in sys.meta_path:
        return
    pack = Pack(tilewright.__name__, str(spec.origin))
    _installed.append(pack)
    sys.meta_path.insert(sys.meta_path.index(PathFinder), pack)
    atexit.register(pack.save)
