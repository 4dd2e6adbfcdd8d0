"""The kernels and sizes of the GPU suite, operands with guard bands, and how one result is judged.

Nothing here needs a GPU by itself: tests/test_gpu_suite.py shows on the CPU that the judge finds what is wrong.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.backends.cuda.gemm import names as make
from tests.backends.cuda.gemm.names import NvidiaSchedule
from tests.gpu.reference import TYPES, Expected, expected, outside
from tests.gpu.torch_here import torch
from tilewright import ops
from tilewright.arch import arch as facts
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.dtypes import DTYPES
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.pools import signatures
from tilewright.ops.gemm.spec import GemmSignature
from tilewright.ops.numerics import NARROW_BITS

GEMM = ops.op("gemm")
GUARD = 4096  # bytes of poison on either side of every operand
POISON = 0xFF  # NaN in every float type
REPEATS = 3

Size = tuple[int, int, int]

# Along m, n, k: whole tiles, one off either way, less than one instruction, primes, long k, many tiles.
SIZES: tuple[Size, ...] = (
    (1, 1, 1),
    (64, 64, 64),
    (129, 257, 72),
    (16, 528, 1032),
    (333, 777, 555),
    (1, 16, 16),
    (127, 131, 137),
    (128, 256, 64),
    (7, 13, 1),
    (304, 520, 712),
    (3, 32, 61),
    (64, 64, 8192),
    (31, 1, 64),
    (256, 96, 8),
    (1000, 1000, 1000),
    (2, 3, 5),
    (2048, 1536, 128),
    (8, 4104, 264),
    (4104, 8, 264),
    (63, 65, 2047),
    (5, 7, 0),
)
SEVERAL_TILES: tuple[Size, ...] = (
    (1000, 1032, 520),
    (2056, 520, 1032),
    (16, 4104, 520),
    (4104, 16, 520),
    (4104, 8, 520),
    (1, 2112, 7168),
    (520, 264, 136),  # the only one that kernels of small products take
)


def sizes(start: int, step: int) -> tuple[Size, ...]:
    """Every so many of the sizes; those that kernels for few rows and few columns take are always among them."""
    return tuple(dict.fromkeys((*SIZES[start % step :: step], (16, 528, 1032), (4104, 8, 264))))


@dataclass(frozen=True)
class Case:
    """One test: kernels of a signature on sizes.  `specs` and `problems` need no GPU."""

    name: str
    signature: GemmSignature
    choose: Callable[[GemmSignature, str], list[KernelSpec]]
    sizes: Sequence[Size] = SIZES
    more: dict[str, Any] = field(default_factory=dict)  # of the problem: beta, batch, ...

    def specs(self, arch: str) -> list[KernelSpec]:
        return self.choose(self.signature, arch)

    def problems(self, spec: KernelSpec) -> Iterator[GemmProblem]:
        """Each size that the kernel takes, with gaps between rows, without, and at odd addresses."""
        for index, size in enumerate(self.sizes):
            for way in ("gaps", "dense", "odd") if index % 2 == 0 else ("gaps", "odd"):
                asked = problem(self.signature, size, way, **self.more)
                if not GEMM.supports(spec, asked):
                    yield asked


def signature(
    datatype: str, output: str, layout: str = "rcr", epilogue: str = "", count: int = 0, packed: bool = False
) -> GemmSignature:
    variant = "preshuffle" if packed else "multi_d" if epilogue else "standard"
    return next(iter(signatures([datatype], [layout], [variant], [epilogue] if epilogue else (), [output], [count])))


def problem(of: GemmSignature, size: Size, way: str = "dense", **more: Any) -> GemmProblem:
    """gaps: rows are whole 16-byte pieces apart and further than they must be; odd: neither rows nor addresses are."""
    m, n, k = size
    lengths = {"a": k if of.layout[0] == "r" else m, "b": n if of.layout[1] == "r" else k, "c": n}
    strides: dict[str, Any] = {}
    if way != "dense":
        for name, length in lengths.items():
            whole = 16 // DTYPES[getattr(of, f"dtype_{name}")].bytes
            strides[f"{name}_stride"] = (-(-length // whole) + 1) * whole if way == "gaps" else length + 3
    made = GemmProblem(
        m, n, k, of.dtype_a, of.dtype_b, of.dtype_c, of.dtype_d, of.layout, epilogue=of.epilogue, num_d=of.num_d,
        aligned=way != "odd", **strides, **more,
    )  # fmt: skip
    # Dense matrices of a batch follow each other, so all but the first may start at odd places.
    lines = {"a": m + k - lengths["a"], "b": n + k - lengths["b"], "c": m}
    apart = (lines[x] * getattr(made, f"{x}_stride") * DTYPES[getattr(of, f"dtype_{x}")].bytes for x in lengths)
    return replace(made, aligned=False) if made.batch > 1 and any(one % 16 for one in apart) else made


# -- which kernels ---------------------------------------------------------------------------------------------------


def everything(of: GemmSignature, arch: str) -> list[KernelSpec]:
    """The pool that has one of everything the headers can do, and corners of the axes beyond it."""
    return _legal(of, arch, [*make.schedules("tests", of, facts(arch)), *_corners(of, arch)])


def _corners(of: GemmSignature, arch: str) -> Iterator[NvidiaSchedule]:
    if "wgmma" in facts(arch).features:
        yield make.tma_ws(of, 128, 256, 4, (2, 1))
        yield make.tma_ws(of, 128, 96, 5, (1, 1), make.WAYS["cooperative_stream_k"])
        yield make.tma_ws(of, 128, 24, 8, (1, 1), make.WAYS["cooperative"], "direct")
        yield make.tma_ws(of, 64, 8, 8, (1, 1), make.WAYS["pingpong"], "direct")
        yield make.tma_ws(of, 128, 128, 4, (1, 4), make.WAYS["pingpong"])
        yield make.tma_ws(of, 128, 128, 4, (4, 1), make.WAYS["cooperative"])
        yield make.tma_ws(of, 64, 128, 5, (2, 2), make.WAYS["pingpong_stream_k"])
        for way in make.WAYS.values():
            yield make.tma_ws(of, 128, 128, 4, (2 if way.tile_scheduler == "cluster_k" else 1, 1), way)


def _legal(of: GemmSignature, arch: str, schedules: Sequence[NvidiaSchedule]) -> list[KernelSpec]:
    specs = {one.digest: one for one in (KernelSpec("gemm", of, schedule, arch) for schedule in schedules)}
    return [one for one in specs.values() if not GEMM.check(one)]


def some(turn: int) -> Callable[[GemmSignature, str], list[KernelSpec]]:
    """One kernel of each pipeline and store of the same pool, another one each turn."""

    def choose(of: GemmSignature, arch: str) -> list[KernelSpec]:
        kinds: dict[tuple[str, str], list[KernelSpec]] = {}
        for one in _legal(of, arch, list(make.schedules("tests", of, facts(arch)))):
            kinds.setdefault((one.schedule.pipeline, getattr(one.schedule, "store", "")), []).append(one)
        return [specs[turn % len(specs)] for specs in kinds.values()]

    return choose


def candidates(of: GemmSignature, arch: str) -> list[KernelSpec]:
    """What selection can choose."""
    return list(GEMM.candidates(of, arch))


def multistage_candidates(of: GemmSignature, arch: str) -> list[KernelSpec]:
    return [one for one in candidates(of, arch) if one.schedule.pipeline == "multistage"]


# -- operands --------------------------------------------------------------------------------------------------------


@dataclass
class Matrix:
    """Lines in poisoned memory: `data` is what belongs to the operand, everything else must stay as it is."""

    memory: Any  # uint8
    start: int
    batch: int
    lines: int
    length: int
    stride: int
    dtype: str

    @property
    def address(self) -> int:
        return int(self.memory.data_ptr()) + self.start

    def _lines(self) -> Any:
        size = DTYPES[self.dtype].bytes
        body = self.memory[self.start : self.start + self.batch * self.lines * self.stride * size]
        return body.reshape(self.batch, self.lines, self.stride * size)

    @property
    def data(self) -> Any:
        """A copy of the elements: (batch, lines, length)."""
        inner = self._lines()[:, :, : self.length * DTYPES[self.dtype].bytes].contiguous()
        return inner.view(TYPES[self.dtype]).reshape(self.batch, self.lines, self.length)

    def put(self, values: Any) -> None:
        flat = values.to(TYPES[self.dtype]).contiguous().view(torch.uint8)
        width = self.length * DTYPES[self.dtype].bytes
        self._lines()[:, :, :width] = flat.reshape(self.batch, self.lines, width)

    def poison(self) -> None:
        self.memory.fill_(POISON)

    def touched_outside(self) -> Any:
        """Whether a byte that is no element lost its poison (a tensor, so that one look serves for all)."""
        body = self.batch * self.lines * self.stride * DTYPES[self.dtype].bytes
        gaps = self._lines()[:, :, self.length * DTYPES[self.dtype].bytes :]
        around = self.memory[: self.start], self.memory[self.start + body :]
        return torch.stack([(one != POISON).any() for one in (*around, gaps)]).any()


def matrix(p: GemmProblem, dtype: str, shape: tuple[int, int, int], stride: int, device: str) -> Matrix:
    """Memory for (batch, lines, length); at an address that is no multiple of 16 where the problem is not aligned."""
    size = DTYPES[dtype].bytes
    start = GUARD + (0 if p.aligned else size)
    batch, lines, length = shape
    memory = torch.full((start + batch * lines * stride * size + GUARD,), POISON, dtype=torch.uint8, device=device)
    return Matrix(memory, start, batch, lines, length, stride, dtype)


def _random(dtype: str, shape: tuple[int, ...], device: str, k: int) -> Any:
    """Fresh values; of fp8 whole numbers of which no sum of k products loses anything (`ops.gemm.reference`)."""
    if dtype.startswith("fp8") and k <= 1 << NARROW_BITS:
        high = min(7, math.isqrt((1 << NARROW_BITS) // max(1, k)))
        return torch.randint(-high, high + 1, shape, device=device, dtype=torch.int32)
    if DTYPES[dtype].kind == "int":
        high = 127 if dtype == "int8" else 1000
        return torch.randint(-high, high + 1, shape, device=device, dtype=torch.int32)
    return torch.randn(shape, device=device)


@dataclass
class Operands:
    """Fresh random operands of a problem."""

    a: Matrix
    b: Matrix
    c: Matrix
    ds: list[Matrix]
    e: Matrix
    alpha: float
    beta: float
    k: int

    @classmethod
    def of(cls, p: GemmProblem, device: str) -> Operands:
        def filled(dtype: str, shape: tuple[int, int, int], stride: int) -> Matrix:
            made = matrix(p, dtype, shape, stride, device)
            made.put(_random(dtype, shape, device, p.k))
            return made

        shape_a = (p.m, p.k) if p.layout[0] == "r" else (p.k, p.m)
        shape_b = (p.k, p.n) if p.layout[1] == "r" else (p.n, p.k)
        whole = DTYPES[p.dtype_a].kind == "int"
        return cls(
            filled(p.dtype_a, (1 if p.broadcast_a else p.batch, *shape_a), p.a_stride),
            filled(p.dtype_b, (1 if p.broadcast_b else p.batch, *shape_b), p.b_stride),
            filled(p.dtype_c, (p.batch, p.m, p.n), p.c_stride),
            [filled(p.dtype_d, (p.batch, p.m, p.n), p.n) for _ in range(p.num_d)],
            matrix(p, p.dtype_c, (p.batch, p.m, p.n), p.c_stride, device),
            1.0 if whole else 1.25,
            0.0 if not p.beta else 1.0 if whole else -0.75,
            p.k,
        )

    def refill(self) -> None:
        """Other values in the same places, and poison in E again."""
        for one in (self.a, self.b):
            one.put(_random(one.dtype, (one.batch, one.lines, one.length), str(one.memory.device), self.k))
        self.e.poison()

    def expected(self, p: GemmProblem, narrow_sums: bool) -> Expected:
        a = self.a.data if p.layout[0] == "r" else self.a.data.transpose(1, 2)
        b = self.b.data if p.layout[1] == "r" else self.b.data.transpose(1, 2)
        ds = [one.data for one in self.ds]
        return expected(p, a, b, self.c.data, ds, self.alpha, self.beta, narrow_sums)

    def __iter__(self) -> Iterator[Matrix]:
        return iter((self.a, self.b, self.c, *self.ds))


def launcher(spec: KernelSpec, p: GemmProblem) -> Callable[[Operands], None]:
    """The kernel on operands on the GPU, in the current stream."""
    from tilewright.dispatch import kernels
    from tilewright.runtime.bindings.gemm.dense import dense
    from tilewright.runtime.bindings.gemm.operands import D0, OUT, UP, A, B, C
    from tilewright.runtime.devices import Place
    from tilewright.runtime.plans import Plan

    kernel, request = kernels.kernel(spec), replace(dense(p), place=Place("cuda", 0))
    plan, template = Plan(request, [kernel], (), 1), request.stages[0].args
    packed = None
    if p.preshuffled:
        packed = torch.full((max(1, kernel.packed_bytes(template)),), POISON, dtype=torch.uint8, device="cuda")

    def run(on: Operands) -> None:
        ds, b = [one.address for one in on.ds], on.b.address
        if packed is not None:  # B may change from run to run
            _pack(kernel, template, b, packed)
            b = packed.data_ptr()
        at = {A: on.a.address, B: b, C: on.c.address, OUT: on.e.address, **dict(enumerate(ds, D0))}
        plan.run([at.get(slot, 0) for slot in range(UP + 1)], (on.alpha, on.beta))

    return run


def _pack(kernel: Any, template: Any, b: int, packed: Any) -> None:
    """B into its packed form, in the current stream."""
    args = type(template).from_buffer_copy(template)
    args.b = b
    status = kernel.pack(ctypes.addressof(args), packed.data_ptr(), torch.cuda.current_stream().cuda_stream)
    if status:
        raise kernel.failed(status)


def judge(p: GemmProblem, run: Callable[[Operands], None], narrow_sums: bool = False, device: str = "cuda") -> str:
    """Run on fresh random data into poisoned memory, several times; what is wrong, or an empty string."""
    operands = Operands.of(p, device)
    e, first, differs = operands.e, None, torch.zeros((), dtype=torch.bool, device=device)
    for _ in range(REPEATS):
        e.poison()
        run(operands)
        if first is None:
            first = e.memory.clone()
        else:
            differs |= (first != e.memory).any()
    wrong = outside(p, e.data, operands.expected(p, narrow_sums)).sum()
    # One transfer for everything there is to know.
    spilled = e.touched_outside()
    count, moved, spill = torch.stack([wrong, differs.long(), spilled.long()]).tolist()
    found = []
    if count:
        found.append(f"{count} of {p.batch * p.m * p.n} elements are wrong")
    if moved:
        found.append("two runs differ")
    if spill:
        found.append("something was written beside the elements of E")
    return f"{p.describe()} strides {p.a_stride}, {p.b_stride}, {p.c_stride}: {', '.join(found)}" if found else ""


def narrow_sums(spec: KernelSpec) -> bool:
    """Whether the tensor cores add fp8 products here."""
    return bool(spec.signature.dtype_a.startswith("fp8") and not isinstance(spec.schedule, GpuLoopsSchedule))


def wrong(case: Case, specs: Sequence[KernelSpec]) -> list[str]:
    """Everything wrong with these kernels of a case; a kernel that took no size is wrong too."""
    found = []
    if not specs:
        return [f"no kernel of {case.signature.label()} is legal"]
    for spec in specs:
        problems = list(case.problems(spec))
        if not problems:
            found.append(f"{spec.name} serves none of the sizes")
        for p in problems:
            try:
                text = judge(p, launcher(spec, p), narrow_sums(spec))
            except TilewrightError as error:
                text = f"{p.describe()}: {type(error).__name__}: {error.message}"
            if text:
                found.append(f"{spec.name} on {text}")
    return found
