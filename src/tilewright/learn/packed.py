"""Results in one small file, as training data ships: JSON, compressed; what repeats is written once.

    {"format": 1, "op": ..., "about": {...}, "kernels": [spec, ...], "devices": [...], "methods": [...],
     "versions": [...], "groups": [{"problem": {...}, "device": 0, "threads": 0, "method": 0, "versions": 0,
     "times": [[kernel, microseconds], ...]}, ...]}

Only times are kept: what failed taught nothing.  The same results are the same file.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tilewright import jsontext, ops
from tilewright.codegen.folder import write_if_changed
from tilewright.dispatch.results import OK, KernelRow, Result, canonical
from tilewright.errors import RequestError, TilewrightError

FORMAT = 1
ENDING = ".json.gz"
MOST_BYTES = 256 << 20  # of the text


class _Table:
    """Values, each once, by number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: Any) -> int:
        text = canonical(value)
        if text not in self._numbers:
            self._numbers[text] = len(self.values)
            self.values.append(json.loads(text))
        return self._numbers[text]


def write(path: Path, op: str, results: Iterable[Result], about: Mapping[str, Any] | None = None) -> int:
    """How many times were written."""
    kernels, devices, methods, versions = _Table(), _Table(), _Table(), _Table()
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    count = 0
    for result in results:
        if result.op != op or result.status != OK or not result.seconds:
            continue
        place = (
            devices.number(result.device),
            result.threads,
            methods.number(result.method),
            versions.number(result.versions),
        )
        group = groups.setdefault(
            (canonical(result.problem), *place),
            dict(
                zip(("device", "threads", "method", "versions"), place, strict=True), problem=result.problem, times=[]
            ),
        )
        group["times"].append([kernels.number(result.kernel.spec), round(result.seconds * 1e6, 4)])
        count += 1
    whole = {
        "format": FORMAT, "op": op, "about": dict(about or {}), "kernels": kernels.values, "devices": devices.values,
        "methods": methods.values, "versions": versions.values, "groups": list(groups.values()),
    }  # fmt: skip
    write_if_changed(path, gzip.compress(canonical(whole).encode(), 9, mtime=0))
    return count


def read(path: Path) -> list[Result]:
    """The results of a file; one that is none of ours is an error that says so."""
    try:
        text = _unpacked(jsontext.read(path))
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"its format is {data.get('format') if isinstance(data, dict) else None!r}, not {FORMAT}")
        return list(_results(data))
    except OSError as error:
        raise _bad(path, error.strerror or str(error)) from None
    except (ValueError, LookupError, TypeError, EOFError, zlib.error, RecursionError) as error:
        raise _bad(path, f"it lacks {error}" if isinstance(error, KeyError) else str(error)) from None


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    text = unpacker.decompress(data, MOST_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
    if not unpacker.eof:
        raise ValueError("it is cut short")
    return text


def _results(data: Mapping[str, Any]) -> Iterable[Result]:
    op = ops.op(str(data["op"]))
    kernels = [_kernel(op, dict(spec)) for spec in data["kernels"]]
    for group in data["groups"]:
        device, method, versions = (
            dict(data[table][int(group[word])])
            for table, word in (("devices", "device"), ("methods", "method"), ("versions", "versions"))
        )
        for number, micro in group["times"]:
            seconds = float(micro) / 1e6
            if not 0 < seconds < float("inf"):
                raise ValueError(f"a time of {micro!r} us")
            yield Result(
                op.name, dict(group["problem"]), device, int(group["threads"]), kernels[int(number)], OK, seconds,
                method=method, versions=versions,
            )  # fmt: skip


def _kernel(op: ops.Op, spec: dict[str, Any]) -> KernelRow:
    try:
        kernel_spec = op.spec_from_dict(spec)
    except TilewrightError:  # of another version: whoever reads it says so
        return KernelRow("", "", str(spec.get("arch", "")), spec)
    return KernelRow(kernel_spec.digest, kernel_spec.name, kernel_spec.arch, spec)


def _bad(path: Path, why: str) -> RequestError:
    return RequestError(
        f"{path} holds no results that can be read: {why}",
        rule="results-file",
        value=str(path),
        remedy="give a file that `tilewright learn pack` wrote",
    )
