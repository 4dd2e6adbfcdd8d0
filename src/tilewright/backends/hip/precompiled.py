"""One precompiled header an arch and op, which takes the parsing and much of the instantiating out of every compile.

It holds all of CK Tile's headers a kernel of the op may include, and one kernel as an example: what the compiler made
of the templates for that one, other kernels find ready.  Machine code is the same with and without it, byte for byte,
so the key of a kernel does not show which way it was compiled.  An op says what goes in (`SharesHeader`).

    <cache_dir>/precompiled/<key>/shared.hpp        the text; the compiler wants it where it was
    <cache_dir>/precompiled/<key>/shared.hpp.pch    what it was made into

The key is a hash over all that goes in: compiler, flags, arch, CK Tile's headers, ours, and the places of all of them.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tilewright import settings
from tilewright.backends.base import OpKernels, kernels_of, op_kernels
from tilewright.backends.instance import text_of
from tilewright.ops.base import KernelSpec

# Making it costs about as much as five kernels gain by it.  Small builds are added up: who builds kernel after kernel
# gains by it as much as who builds them at once.
WORTH_KERNELS = 6
WANTED = "wanted"  # a byte for each kernel that was compiled without it
UNUSED_SECONDS = 30 * 86400.0
_STAMP_SECONDS = 86400.0
_INCLUDE = re.compile(r"""^[ \t]*\#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]""", re.M)


@runtime_checkable
class SharesHeader(Protocol):
    """Kernels of an op for this backend that gain by a precompiled header."""

    def shared_example(self, arch: str) -> KernelSpec | None:
        """A legal kernel whose templates most others use; none where the arch has no such kernels."""

    def shared_context(self, spec: KernelSpec) -> Mapping[str, Any]:
        """What the op's template is filled with to give the header's text: the example, exporting nothing."""


def text(arch: str, op: str) -> str:
    """What is precompiled for an arch and op; empty where there is no such header."""
    known: OpKernels | None = op_kernels("hip", op) if op else None
    if not isinstance(known, SharesHeader):
        return ""
    spec = known.shared_example(arch)
    return text_of(spec, kernels_of("hip", spec).template, known.shared_context(spec)) if spec is not None else ""


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def _ours(text: str, places: Sequence[Path]) -> dict[Path, bytes]:
    """Our headers that a text includes, directly or not."""
    headers: dict[Path, bytes] = {}
    waiting = _INCLUDE.findall(text)
    while waiting:
        name = waiting.pop()
        path = next((place / name for place in places if (place / name).is_file()), None)
        if path is not None and path not in headers:
            headers[path] = path.read_bytes()
            waiting += _INCLUDE.findall(headers[path].decode("utf-8", errors="replace"))
    return headers


def header(driver: Sequence[str], words: Sequence[str], ours: Sequence[Path], identity: str, content: str) -> Path:
    """Where the header with this content is or would be; `ours` holds headers that `identity` does not cover."""
    key = hashlib.sha256("\n".join([identity, *driver, *words, *map(str, ours), content]).encode())
    # A compiler that was replaced without a new version would refuse the file.
    key.update(_stamp(Path(driver[0]).resolve()).encode())
    for path, data in sorted(_ours(content, ours).items()):
        key.update(f"{path} {hashlib.sha256(data).hexdigest()}\n".encode())
    root = settings.current().cache_dir.expanduser().absolute() / "precompiled"
    return root / key.hexdigest()[:32] / "shared.hpp"


def compiled(path: Path) -> Path:
    """What the compiler looks for beside a header."""
    return path.with_name(path.name + ".pch")


def ready(path: Path) -> bool:
    """Whether it is there; notes the use."""
    place = compiled(path)
    try:
        if time.time() - place.stat().st_mtime > _STAMP_SECONDS:
            os.utime(place)
    except FileNotFoundError:
        return False
    except OSError:
        return place.is_file()  # a cache of somebody else serves us, only it cannot note that
    return True


def wanted(path: Path, kernels: int) -> int:
    """How many kernels would have gained by it, these with them; in a cache that cannot be written only these."""
    note = path.with_name(WANTED)
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        with note.open("ab") as file:
            file.write(b"." * min(kernels, WORTH_KERNELS))
        return note.stat().st_size
    except OSError:
        return kernels


def write(path: Path, content: str) -> None:
    """The header itself; whoever else writes it writes the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    part.write_text(content, encoding="utf-8")
    part.replace(path)


def sweep(path: Path) -> None:
    """Remove those of other compilers and versions that nobody used for long."""
    with suppress(OSError):
        for folder in path.parent.parent.iterdir():
            newest = max((file.stat().st_mtime for file in folder.iterdir()), default=0.0)
            if folder != path.parent and time.time() - newest > UNUSED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
