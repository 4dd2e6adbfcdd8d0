"""One drawn problem on one kernel: operands in fenced memory, the library's own check and launch, the oracle.

Runs in the worker process.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.amd_emulated import oracle
from tests.amd_emulated.drawing import Drawn, Lay, lay
from tests.amd_emulated.number_formats import FORMATS, Array, Format, draw
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.schedule import CkTileSchedule
from tilewright.runtime.bindings.gemm.args import GemmArgs
from tilewright.runtime.loader import Kernel

FENCE, ALIGNED = 512, 256
RIGHT, WRONG, REFUSED = "right", "wrong", "refused"


@dataclass(slots=True)
class Outcome:
    label: str
    verdict: str
    detail: str = ""
    largest_error: float = 0.0
    of_bound: float = 0.0
    open: int = 0
    elements: int = 0
    seconds: float = 0.0
    launches: list[dict[str, Any]] = field(default_factory=list)


class Memory:
    """An operand in poisoned memory."""

    def __init__(self, how: Lay) -> None:
        self.how, size = how, how.bytes
        reach = 0
        if how.batch and how.lines and how.length:
            reach = (how.batch - 1) * how.apart + (how.lines - 1) * how.line + (how.length - 1) * how.column + 1
        self.bytes = np.full(reach * size + 2 * FENCE + ALIGNED + how.off, FORMATS[how.dtype].poison, np.uint8)
        start = FENCE + (-(int(self.bytes.ctypes.data) + FENCE)) % ALIGNED + how.off
        self.address = int(self.bytes.ctypes.data) + start
        strides = (how.apart * size, how.line * size, how.column * size)
        shape = (how.batch, how.lines, how.length)
        self.view = np.ndarray(shape, FORMATS[how.dtype].word, self.bytes.data, start if reach else 0, strides)
        self.before = self.bytes.copy()

    def put(self, bits: Array) -> None:
        self.view[...] = bits
        self.before = self.bytes.copy()

    def unchanged(self) -> bool:
        return bool(np.array_equal(self.bytes, self.before))

    def untouched_around(self) -> bool:
        """Whether all but the elements is as it was."""
        now = self.bytes.copy()
        held = self.view.copy()
        self.view[...] = 0
        blank = self.bytes.copy()
        self.bytes[...] = self.before
        self.view[...] = 0
        same = bool(np.array_equal(blank, self.bytes))
        self.bytes[...] = now
        assert np.array_equal(held, self.view)
        return same


@dataclass(slots=True)
class _Call:
    """Operands as matrices of bits, batch first, and the memory they lie in."""

    spec: KernelSpec
    one: Drawn
    bits: dict[str, Array]
    memory: dict[str, Memory]
    args: GemmArgs

    @property
    def inputs(self) -> list[str]:
        return [name for name in self.memory if name != "e" and not (name == "c" and self.one.in_place)]


def _flip(bits: Array, of: Format) -> Array:
    """The negated numbers; there is one zero where there is no negative one."""
    keeps = (bits & (of.sign - 1)) == 0
    return np.where(keeps, bits, bits ^ of.sign).astype(of.word)


def _prepare(spec: KernelSpec, one: Drawn) -> _Call:
    s, rng = spec.signature, np.random.default_rng(one.seed)
    laid = lay(spec, one)
    memory = {name: Memory(how) for name, how in laid.items()}
    if one.in_place and "c" in memory:
        memory["c"] = memory["e"]
    of_a, of_b = FORMATS[s.dtype_a], FORMATS[s.dtype_b]
    a = draw(rng, (laid["a"].batch, one.m, one.k), of_a, one.values["a"])
    b = draw(rng, (laid["b"].batch, one.k, one.n), of_b, one.values["b"])
    if one.cancels:
        pairs = one.k // 2 * 2
        a[..., 1:pairs:2] = _flip(a[..., 0:pairs:2], of_a)
        b[:, 1:pairs:2, :] = b[:, 0:pairs:2, :]
    bits = {"a": a, "b": b}
    memory["a"].put(a if s.layout[0] == "r" else a.swapaxes(1, 2))
    memory["b"].put(b if s.layout[1] == "r" else b.swapaxes(1, 2))
    for name, how in laid.items():
        if name == "c" or name.startswith("d"):
            bits[name] = draw(rng, (how.batch, how.lines, how.length), FORMATS[how.dtype], one.values[name[0]])
            memory[name].put(bits[name])
    call = _Call(spec, one, bits, memory, GemmArgs())
    _fill(call, laid)
    return call


def _fill(call: _Call, laid: dict[str, Lay]) -> None:
    args, one, memory = call.args, call.one, call.memory
    args.m, args.n, args.k, args.batch, args.alpha, args.beta = one.m, one.n, one.k, one.batch, one.alpha, one.beta
    for name in ("a", "b", "c", "e"):
        if name in memory:
            setattr(args, name, memory[name].address)
            setattr(args, f"{name}_stride", laid[name].line)
            setattr(args, f"{name}_batch_stride", laid[name].apart)
    for index in range(len(one.d_kinds)):
        how = laid[f"d{index}"]
        args.d[index], args.d_row_stride[index] = memory[f"d{index}"].address, how.line
        args.d_col_stride[index], args.d_batch_stride[index] = how.column, how.apart


def run(kernel: Kernel, one: Drawn, session: Any, must_serve: bool) -> Outcome:
    """Ask and launch the kernel; what it serves must be right, and it must serve what `supports` says it does."""
    started, first = time.perf_counter(), len(session.launches)
    call = _prepare(kernel.spec, one)
    outcome = Outcome(one.label(), WRONG, elements=int(call.memory["e"].view.size))
    refusal, detail = _launch(kernel, call, session)
    if refusal:
        outcome.verdict = WRONG if must_serve else REFUSED
        outcome.detail = f"`supports` says yes, the kernel no: {refusal}" if must_serve else refusal
    else:
        outcome.launches = session.launches[first:]
        _judge(call, outcome, detail)
    outcome.seconds = round(time.perf_counter() - started, 3)
    return outcome


def _judge(call: _Call, outcome: Outcome, detail: str) -> None:
    one, s = call.one, call.spec.signature
    changed = [name for name in call.inputs if not call.memory[name].unchanged()]
    matrix = sum(each["matrix_instructions"] for each in outcome.launches)
    if detail:
        outcome.detail = detail
    elif changed:
        outcome.detail = f"the kernel changed {', '.join(changed)}"
    elif not call.memory["e"].untouched_around():
        outcome.detail = "the kernel wrote outside E"
    elif not matrix and isinstance(call.spec.schedule, CkTileSchedule) and one.k:
        outcome.detail = "no matrix instruction was executed"
    else:
        terms = oracle.Terms(
            call.bits["a"],
            call.bits["b"],
            call.bits.get("c"),
            [call.bits[f"d{index}"] for index in range(len(one.d_kinds))],
            FORMATS[s.dtype_a],
            FORMATS[s.dtype_b],
            FORMATS[s.dtype_c],
            FORMATS[s.dtype_d],
            one.alpha,
            one.beta,
            s.epilogue,
        )
        found = oracle.judge(oracle.expected(terms), call.memory["e"].view)
        outcome.largest_error, outcome.of_bound, outcome.open = found.largest_error, found.of_bound, found.open
        outcome.detail = found.detail
    outcome.verdict = WRONG if outcome.detail else RIGHT


def _launch(kernel: Kernel, call: _Call, session: Any) -> tuple[str, str]:
    """Pack, check and launch as the runtime does; why it was refused, or what went wrong."""
    at, keep = ctypes.addressof(call.args), []
    if kernel.pack is not None:
        size = int(kernel.packed_bytes(call.args))
        packed = Memory(Lay(1, 1, size, size, 0, 1, 1, 0, "int8"))
        keep.append(packed)
        code = kernel.pack(at, packed.address, None)
        session.raise_failure()
        if code != 0:
            return f"packing answers {code}", ""
        if not packed.untouched_around():
            return "", "pack wrote past its buffer"
        call.args.b, call.args.b_stride = packed.address, 0
    refusal = kernel.refusal(call.args)
    if refusal:
        return str(refusal), ""
    size = int(kernel.workspace_bytes(call.args, 1))
    workspace = Memory(Lay(1, 1, size, size, 0, 1, 1, 0, "int8"))
    cleared = min(size, int(kernel.clear_bytes))
    workspace.view[..., :cleared] = 0
    status = kernel.launch(at, workspace.address, None)
    session.raise_failure()
    if status:
        return "", f"launch answered {status}"
    return "", "" if workspace.untouched_around() else "the kernel wrote outside its workspace"
