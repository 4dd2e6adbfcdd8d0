"""One precompiled header an arch, which takes the parsing and much of the instantiating out of every compile.

It holds all of CK Tile's headers a kernel may include, and one kernel as an example: what the compiler made of the
templates for that one, other kernels find ready.  Machine code is the same with and without it, byte for byte, so
the key of a kernel does not tell which way it was compiled.

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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tilewright import settings
from tilewright.backends.hip import render
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.spec import GemmSchedule, GemmSignature

# Making it costs about as much as five kernels gain by it.
WORTH_KERNELS = 6
UNUSED_SECONDS = 30 * 86400.0
_STAMP_SECONDS = 86400.0
_INCLUDE = re.compile(r"^#include <(tilewright/[^>]+)>", re.M)


def example(arch: str) -> KernelSpec:
    """Legal on every arch CK Tile multiplies on; the templates under it are those most kernels use."""
    signature = GemmSignature(
        variant="standard", dtype_a="fp16", dtype_b="fp16", dtype_acc="fp32", dtype_c="fp16", dtype_d="fp16",
        layout="rcr", epilogue="PassThrough", num_d=0,
    )  # fmt: skip
    schedule = GemmSchedule(
        "compv3", (256, 128, 32), (32, 32, 16), (2, 2, 1),
        scheduler="intrawave", store="cshuffle", pad=(True, True, True),
    )  # fmt: skip
    return KernelSpec("gemm", signature, schedule, arch)


def _stamp(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns}"


def _ours(text: str, places: Sequence[Path]) -> dict[Path, bytes]:
    """Our headers that a text includes, directly or not."""
    found: dict[Path, bytes] = {}
    waiting = _INCLUDE.findall(text)
    while waiting:
        name = waiting.pop()
        path = next((one / name for one in places if (one / name).is_file()), None)
        if path is not None and path not in found:
            found[path] = path.read_bytes()
            waiting += _INCLUDE.findall(found[path].decode("utf-8", errors="replace"))
    return found


def header(driver: Sequence[str], words: Sequence[str], places: Sequence[Path], identity: str, arch: str) -> Path:
    """Where the header for these compiles is or would be; `places` are our include folders, then others'."""
    text = render.shared(example(arch))
    key = hashlib.sha256("\n".join([identity, *driver, *words, *map(str, places), text]).encode())
    # A compiler that was replaced without a new version would refuse the file.
    key.update(_stamp(Path(driver[0]).resolve()).encode())
    for path, content in sorted(_ours(text, places).items()):
        key.update(f"{path} {hashlib.sha256(content).hexdigest()}\n".encode())
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


def write(path: Path, arch: str) -> None:
    """The header itself; whoever else writes it writes the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    part.write_text(render.shared(example(arch)), encoding="utf-8")
    part.replace(path)


def sweep(path: Path) -> None:
    """Remove those of other compilers and versions that nobody used for long."""
    with suppress(OSError):
        for folder in path.parent.parent.iterdir():
            newest = max((one.stat().st_mtime for one in folder.iterdir()), default=0.0)
            if folder != path.parent and time.time() - newest > UNUSED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
