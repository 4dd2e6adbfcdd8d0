"""Plans of calls in a folder, for C++ programs that load a model with our ops and have no Python.

    with tilewright.torch.plans("folder"):
        model(x)                                 # exported, compiled or eager: every size that will be needed

The folder holds the library that serves the ops, the libraries of the kernels, and the plans.  A program loads it by
`dlopen("folder/libtilewright_torch.so")` and `tw_torch_load("folder")`, before it loads the model.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tilewright.arch import arch
from tilewright.dataclass import NamedTuple
from tilewright.errors import MachineError, ProblemError, counted
from tilewright.runtime import abi, host, torch_ops
from tilewright.runtime.devices import HOST, device
from tilewright.runtime.loader import Kernel
from tilewright.runtime.plans import Plan
from tilewright.runtime.torch_ops import Described, Library
from tilewright.torch import library as registered
from tilewright.torch import native
from tilewright.torch.required import torch

if TYPE_CHECKING:
    from tilewright.runtime.gpu import Gpu

_MAGIC = b"twplans1"
TEAM, OPS, PLANS = "libtilewright_team.so", "libtilewright_torch.so", "plans.bin"


class _Call(NamedTuple):
    op: str
    key: bytes
    plan: Plan
    described: Described


class Plans:
    """What is written: `calls` by op and key, and `left_out`, ops of calls that only Python can make."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, bytes], _Call] = {}
        self.left_out: list[str] = []

    def note(self, op: str, key: bytes, plan: Plan | None, described: Described | None) -> None:
        if plan is None or described is None or not key:
            self.left_out.append(op)
        else:
            self.calls[op, key] = _Call(op, key, plan, described)

    def __len__(self) -> int:
        return len(self.calls)


@contextmanager
def plans(folder: Path | str) -> Iterator[Plans]:
    """Write the plans of all calls of `torch.ops.tilewright.*` in the body, on CPU or CUDA tensors, into a folder.

    The body runs in inference mode, as the program will.
    """
    served = native.library()
    if served is None:
        raise MachineError(
            f"plans are for the C++ library of the ops, and this process has none: {native.registration()}",
            rule="torch-library",
            value=native.registration(),
            remedy="install a C++ compiler (g++ or clang++)",
        )
    noted = Plans()
    with torch.inference_mode(), served.recorded(noted.note):  # where autograd begins, some ops are Python's
        yield noted
    _demand_calls(noted)
    _write(Path(folder), served, list(noted.calls.values()))


def _demand_calls(noted: Plans) -> None:
    if noted.left_out:
        raise ProblemError(
            f"{counted(len(noted.left_out), 'call')} cannot be made without Python: "
            f"{', '.join(sorted(set(noted.left_out)))}",
            rule="torch-plans",
            value=noted.left_out[0],
            remedy="give tensors that kernels read in place (contiguous rows or columns), without checked tables, "
            "recording and padded copies; `tilewright.explain` shows which kernel a problem has",
        )
    if not noted.calls:
        raise ProblemError(
            "no call of torch.ops.tilewright was made in the body",
            rule="torch-plans",
            value=0,
            remedy="run the model there once for every size that the program will need",
        )


# -- the file ----------------------------------------------------------------------------------------------------------


def _number(value: int) -> bytes:
    return struct.pack("=q", value)


def _text(value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _number(len(data)) + data


def _structs(address: int | None, count: int, size: int) -> bytes:
    return _number(count) + (ctypes.string_at(address, count * size) if address and count else b"")


class _Libraries:
    """The libraries of kernels, each once, by their place in the folder."""

    def __init__(self) -> None:
        self.paths: list[Path] = []

    def place_of(self, kernel: Kernel) -> int:
        path = kernel.library_path
        if not path.is_file():
            raise MachineError(
                f"the library of {kernel.name} is no file of its own ({path})",
                rule="torch-plans",
                value=str(path),
                remedy="write the folder in a process that takes its kernels from the store, not from a bundle",
            )
        if path not in self.paths:
            self.paths.append(path)
        return self.paths.index(path)

    def name(self, place: int) -> str:
        return f"kernels_{place}.so"


def _index_of(kernel: Kernel) -> int:
    """Which kernel of its library it is."""
    table = kernel._library.tw_kernels
    table.restype, table.argtypes = ctypes.POINTER(abi.KernelEntry), (ctypes.POINTER(ctypes.c_int64),)
    count = ctypes.c_int64(0)
    entries = table(ctypes.byref(count))
    launch = ctypes.cast(kernel.launch, ctypes.c_void_p).value
    return next(index for index in range(count.value) if entries[index].launch == launch)


def _team_of(handle: int) -> tuple[int, int]:
    return next((key for key, known in host._teams.items() if known == handle), (0, 0))


def _plan(call: _Call, ops: list[str], libraries: _Libraries) -> bytes:
    native_plan, sizes = call.described.plan, torch_ops.SIZES
    parts = [_number(ops.index(call.op)), _text(call.key), *map(_number, _team_of(call.plan.team))]
    parts += [
        _number(value)
        for value in (
            native_plan.scratch_bytes, native_plan.clear_bytes, native_plan.between, native_plan.written,
            native_plan.device_type, native_plan.device_index, call.plan.place is not HOST,
        )
    ]  # fmt: skip
    parts += [
        _structs(native_plan.span, native_plan.slots, sizes.span),
        _structs(native_plan.argument, native_plan.slots, 8),
        _structs(native_plan.scalar, native_plan.scalars, 8),
        _structs(native_plan.made, native_plan.mades, sizes.result),
        _structs(native_plan.stage, native_plan.stages, sizes.stage),
    ]
    for stage, native_stage in zip(call.plan.stages, call.described.stages(), strict=True):
        parts += [_number(libraries.place_of(stage.kernel)), _number(_index_of(stage.kernel))]
        parts += [
            _structs(native_stage.args, native_stage.bytes, 1),
            _structs(native_stage.pointer, native_stage.pointers, sizes.pointer),
            _structs(native_stage.scalar, native_stage.scalars, sizes.scalar),
        ]
    return b"".join(parts)


def _flags(calls: list[_Call]) -> str:
    """What a CPU must have, by the names Linux has for it."""
    archs = {stage.kernel.spec.arch for call in calls if call.plan.place is HOST for stage in call.plan.stages}
    return " ".join(sorted({flag for name in archs for flag in arch(name).requires}))


def _gpu_of(calls: list[_Call]) -> tuple[int, int]:
    """Architecture (90 is 9.0) and multiprocessors of the one kind of GPU that calls were made on; zeros: of none."""
    places = {call.plan.place for call in calls if call.plan.place is not HOST}
    facts = [cast("Gpu", device(place)).facts for place in places]
    kinds = {(int(fact.arch.removeprefix("sm_")), fact.compute_units) for fact in facts}
    if len(kinds) > 1:
        raise ProblemError(
            f"calls were made on GPUs of {len(kinds)} kinds: {', '.join(sorted({fact.name for fact in facts}))}",
            rule="torch-plans",
            value=len(kinds),
            remedy="write one folder for each kind",
        )
    return kinds.pop() if kinds else (0, 0)


def _ops_of(served: Library) -> dict[str, Any]:
    """The ops that the library serves, with their schemas."""
    return {name: registered.op(name)._schema for name in registered.SCHEMAS if name in served.names()}


def _write(folder: Path, served: Library, calls: list[_Call]) -> None:
    ops, libraries = _ops_of(served), _Libraries()
    bodies = [_plan(call, list(ops), libraries) for call in calls]
    parts = [_MAGIC, _number(torch_ops.VERSION), _text(_flags(calls)), *map(_number, _gpu_of(calls))]
    parts.append(_number(len(libraries.paths)))
    parts += [_text(libraries.name(place)) for place in range(len(libraries.paths))]
    parts.append(_number(len(ops)))
    for name, schema in ops.items():
        parts += [_text(name), _text(registered.SCHEMAS[name]), _text(native.kinds(schema) or "")]
        parts.append(_number(len(schema.returns)))
        parts.append(_number(any(argument.is_write for argument in schema.arguments)))
    parts += [_number(len(bodies)), *bodies]
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(served.path, folder / OPS)
    shutil.copyfile(host.build_team_library(), folder / TEAM)
    for place, path in enumerate(libraries.paths):
        shutil.copyfile(path, folder / libraries.name(place))
    (folder / PLANS).write_bytes(b"".join(parts))
