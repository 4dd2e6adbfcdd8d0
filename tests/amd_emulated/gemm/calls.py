"""A drawn GEMM in memory: operands, arguments, and what must come out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tests.amd_emulated import oracle
from tests.amd_emulated.fenced import Memory
from tests.amd_emulated.gemm.drawing import Drawn, Lay, lay
from tests.amd_emulated.number_formats import FORMATS, Array, Format, draw
from tests.amd_emulated.proving import Call
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.ops.base import KernelSpec
from tilewright.runtime.bindings.gemm.args import GemmArgs


def _flip(bits: Array, of: Format) -> Array:
    """The negated numbers; there is one zero where there is no negative one."""
    keeps = (bits & (of.sign - 1)) == 0
    return np.where(keeps, bits, bits ^ of.sign).astype(of.word)


def _memory(how: Lay) -> Memory:
    return Memory(how.dtype, (how.batch, how.lines, how.length), (how.apart, how.line, how.column), how.off)


def prepare(spec: KernelSpec, one: Drawn) -> Call:
    s, rng = spec.signature, np.random.default_rng(one.seed)
    laid = lay(spec, one)
    memory = {name: _memory(how) for name, how in laid.items()}
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
    args = _filled(one, memory, laid)

    def packed(address: int) -> None:
        args.b, args.b_stride = address, 0

    multiplies = not isinstance(spec.schedule, GpuLoopsSchedule) and one.k > 0
    return Call(args, memory, ("e",), partial(_expected, spec, one, bits), multiplies, packed)


def _filled(one: Drawn, memory: Mapping[str, Memory], laid: Mapping[str, Lay]) -> GemmArgs:
    args = GemmArgs()
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
    return args


def _expected(spec: KernelSpec, one: Drawn, bits: Mapping[str, Array]) -> dict[str, oracle.Expected]:
    s = spec.signature
    sums = oracle.product(bits["a"], FORMATS[s.dtype_a], bits["b"], FORMATS[s.dtype_b])
    after = oracle.After(
        FORMATS[s.dtype_c],
        FORMATS[s.dtype_d],
        bits.get("c"),
        [bits[f"d{index}"] for index in range(len(one.d_kinds))],
        one.alpha,
        one.beta,
        s.epilogue,
    )
    return {"e": oracle.expected(sums, after)}
