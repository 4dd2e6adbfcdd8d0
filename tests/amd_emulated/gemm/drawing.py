"""Kernels and problems drawn by seed: from the pools as users have them, with sizes and numbers they would not try.

Entry `index` of a seed is the same whatever the count: its generator is seeded by both.  What a rule refuses is drawn
again, and counted by its rule.

Kernels: the arch whose turn it is (`random_run.in_turn`), the pool evenly among default, full
and profiler, then input types, layout, variant, fused work and output evenly or as the weights below say, and of what
the pool proposes for them a pipeline, then a schedule evenly.  The plain loops, which serve what nothing else does, are
kept one time in five.

Problems: up to three tiles each way, any number of turns of the k loop that chooses other code, sizes that are
multiples of anything from 1 to the tile; gaps between lines and matrices, batches, one matrix for a whole batch,
D tensors of every shape, addresses off the allocator's alignment, alpha, beta and C, numbers of every kind.  The
op's `supports` says which of them the kernel serves; some of the others are kept, to be refused by the kernel too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tests.amd_emulated.number_formats import FORMATS, KINDS, LARGEST, ONE_HOT, ORDINARY, SMALL, WHOLE, ZEROS
from tests.amd_emulated.proving import SIGNATURE_TRIES, Entry, by_pipeline, drawn_entry, modelled
from tests.backends.hip.gemm import names as amd
from tilewright.arch import all_archs
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.fused import EPILOGUES, epilogue_d_counts
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.spec import MAX_D

POOLS = ("default", "full", "profiler")
LAYOUTS = ("rcr", "rrr", "crr", "ccr")
VARIANTS = ("standard",) * 7 + ("multi_d",) * 4 + ("preshuffle",)
INPUTS = tuple(one for one in FORMATS if one != "int32")
OUTPUTS = {"float": ("fp16", "bf16", "fp32"), "int": ("int32", "int32", "int8", "fp32")}
D_KINDS = ("full", "full", "row", "column", "one")
LOOPS = 0.2  # of the plain loops that are drawn
MOST_WORK = 1 << 25  # multiplications of one problem: a few seconds of emulation
EXECUTED, REFUSED = 6, 4  # problems of a kernel
TRIES = 60


@dataclass(frozen=True, slots=True)
class Drawn:
    """A problem: everything about one call, as plain values."""

    m: int
    n: int
    k: int
    batch: int = 1
    broadcast_a: bool = False
    broadcast_b: bool = False
    gaps: dict[str, int] = field(default_factory=dict)  # a, b, c, d, e: elements between lines
    batch_gap: int = 0  # elements between matrices
    off: dict[str, int] = field(default_factory=dict)  # elements off an aligned address
    d_kinds: tuple[str, ...] = ()  # full, row (of n), column (of m), one
    alpha: float = 1.0
    beta: float = 0.0
    in_place: bool = False  # E is C
    broadcast_c: bool = False
    values: dict[str, str] = field(default_factory=dict)  # kinds of numbers by operand
    cancels: bool = False  # products come in pairs that cancel each other
    seed: int = 0

    def label(self) -> str:
        words = [f"{self.m}x{self.n}x{self.k}"]
        words += [f"batch {self.batch}"] if self.batch > 1 else []
        words += [f"alpha {self.alpha:g}"] if self.alpha != 1 else []
        words += [f"beta {self.beta:g}"] if self.beta else []
        return " ".join(words)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def from_dict(data: dict[str, Any]) -> Drawn:
    return Drawn(**{**data, "d_kinds": tuple(data["d_kinds"])})


def draw(seed: int, index: int) -> Entry:
    return drawn_entry(f"kernel {seed} {index}", index, _kernel, _problems)


# -- kernels -----------------------------------------------------------------------------------------------------------


def _kernel(rng: random.Random, rules: Counter[str]) -> tuple[str, KernelSpec]:
    gemm = op("gemm")
    while True:
        arch, pool = rng.choice(modelled()), rng.choice(POOLS)
        axes = draw_axes(rng)
        every = by_pipeline(gemm.proposals(pool, arch, **axes), rules)
        if not every:
            continue
        proposed = every[rng.choice(list(every))]
        for _ in range(SIGNATURE_TRIES):
            spec = rng.choice(proposed)
            if spec.signature.num_d and rng.random() < 0.3:  # D tensors of another type than the result
                spec = replace(spec, signature=replace(spec.signature, dtype_d="fp32"))
            broken = [one.rule for one in gemm.check(spec)]
            if not broken and isinstance(spec.schedule, GpuLoopsSchedule) and rng.random() > LOOPS:
                break
            if not broken:
                return pool, spec
            rules[broken[0]] += 1
            if any(amd.signature_rules(spec.signature, all_archs()[arch])):
                break


def draw_axes(rng: random.Random) -> dict[str, Any]:
    """What the kernel computes; of an arch that lacks a type a rule says so."""
    a = rng.choice(INPUTS)
    b = a
    if a.startswith("fp8") and rng.random() < 0.25:
        b = rng.choice([one for one in INPUTS if one.startswith("fp8")])
    variant = rng.choice(VARIANTS)
    axes: dict[str, Any] = {
        "datatypes": (a if a == b else f"{a}:{b}",),
        "layouts": ("rcr" if variant == "preshuffle" else rng.choice(LAYOUTS),),
        "variants": (variant,),
        "outputs": (rng.choice(OUTPUTS["int" if a == "int8" else "float"]),),
    }
    if variant == "multi_d":
        epilogue = rng.choice(EPILOGUES[1:])
        axes.update(epilogues=(epilogue,), num_d=(rng.choice(epilogue_d_counts(epilogue, MAX_D)),))
    return axes


# -- problems ----------------------------------------------------------------------------------------------------------


def _problems(rng: random.Random, spec: KernelSpec) -> tuple[list[Drawn], list[Drawn]]:
    gemm = op("gemm")
    served: list[Drawn] = []
    refused: list[Drawn] = []
    for one in attempts(rng, spec):
        if gemm.supports(spec, product_problem(spec, one)):
            refused.append(one)
        else:
            served.append(one)
        if len(served) == EXECUTED:
            break
    if not served:
        served.append(plain(spec))
    return served, rng.sample(refused, min(REFUSED, len(refused)))


def attempts(rng: random.Random, spec: KernelSpec) -> Iterator[Drawn]:
    yield plain(spec, rng.randrange(1 << 31))
    for _ in range(TRIES):
        one = _drawn(rng, spec)
        if one.m * one.n * one.k * one.batch <= MOST_WORK:
            yield one


def plain(spec: KernelSpec, seed: int = 0) -> Drawn:
    """One tile, the shortest k that every kernel of its kind serves."""
    s, h = spec.signature, spec.schedule
    m, n, k = h.tile
    kinds = dict.fromkeys("abcd", ORDINARY)
    return Drawn(m, n, 2 * k * getattr(h, "split_k", 1), d_kinds=("full",) * s.num_d, values=kinds, seed=seed)


def _drawn(rng: random.Random, spec: KernelSpec) -> Drawn:
    s, h = spec.signature, spec.schedule
    fine = rng.choice((1, 2, 4, 8, 8, 16, 16, 32))  # most accesses are 8 or 16 elements wide
    stages = shape.prefetch_stages(s, h) if isinstance(h, CkTileSchedule) else 1
    m, n = (_size(rng, side, rng.choice((1, 1, 1, 2, 3)), fine) for side in h.tile[:2])
    k = _size(rng, h.tile[2] * getattr(h, "split_k", 1), rng.randint(1, 2 * stages + 3), fine)
    k = 0 if rng.random() < 0.02 else k
    batch = rng.choice((1, 1, 1, 2, 3))
    gap = rng.choice((0, 0, fine, 3 * fine, 16))
    cancels = rng.random() < 0.1 and not FORMATS[s.dtype_a].is_int
    return Drawn(
        m,
        n,
        k,
        batch,
        broadcast_a=batch > 1 and rng.random() < 0.2,
        broadcast_b=batch > 1 and rng.random() < 0.2,
        gaps={one: rng.choice((0, gap)) for one in "abcde"},
        batch_gap=rng.choice((0, 0, gap)),
        off={one: rng.choice((1, 2, 8)) for one in "abcde"} if rng.random() < 0.1 else {},
        d_kinds=tuple(rng.choice(D_KINDS) for _ in range(s.num_d)),
        values=_values(rng, spec, cancels),
        cancels=cancels,
        seed=rng.randrange(1 << 31),
        **_factors(rng, spec),
    )


def _size(rng: random.Random, step: int, count: int, fine: int) -> int:
    """`count` steps, a bit more or less of them, or next to nothing, in multiples of `fine`."""
    way = rng.random()
    if way < 0.35:
        return step * count
    if way < 0.85:
        rest = rng.randint(1, max(1, step // fine)) * fine
        return max(fine, step * (count - 1) + min(rest, step))
    return fine * rng.randint(1, 3)


def _values(rng: random.Random, spec: KernelSpec, cancels: bool) -> dict[str, str]:
    if cancels:
        return {"a": ORDINARY, "b": ORDINARY, "c": rng.choice(KINDS), "d": rng.choice(KINDS)}
    if rng.random() < 0.3:  # every element exact
        return {"a": rng.choice((WHOLE, ONE_HOT)), "b": WHOLE, "c": WHOLE, "d": WHOLE}
    found = {one: rng.choice((ORDINARY, ORDINARY, *KINDS)) for one in "abcd"}
    s = spec.signature
    widest = any(FORMATS[one].exponent == 8 for one in (s.dtype_a, s.dtype_b))
    for one, other in (("a", "b"), ("b", "a")):  # two of the largest, or one of fp32's size, leave fp32: all open
        if found[one] == LARGEST and (widest or found[other] == LARGEST):
            found[other] = rng.choice((SMALL, ZEROS, ONE_HOT))
    if s.epilogue == "MultiDMultiply" and found["d"] == LARGEST:
        found["d"] = ORDINARY
    return found


def _factors(rng: random.Random, spec: KernelSpec) -> dict[str, Any]:
    """alpha, beta and C."""
    whole = FORMATS[spec.signature.dtype_c].is_int
    found: dict[str, Any] = {}
    if rng.random() < 0.4:
        found["alpha"] = rng.choice((2.0, -1.0, 0.0, 3.0) if whole else (2.0, -1.0, 0.0, 0.37, 1e-3))
    if rng.random() < 0.4:
        found["beta"] = rng.choice((1.0, -1.0, 2.0) if whole else (1.0, -0.5, 1.7))
        found["in_place"] = rng.random() < 0.3
        found["broadcast_c"] = not found["in_place"] and rng.random() < 0.2
    return found


# -- what the product is told ------------------------------------------------------------------------------------------


def product_problem(spec: KernelSpec, one: Drawn) -> GemmProblem:
    """The call as the product's dispatcher would describe it."""
    s = spec.signature
    laid = lay(spec, one)
    many = one.batch > 1
    aligned = all(
        not laid[name].off % 16 and not (many and laid[name].apart * laid[name].bytes % 16) for name in ("a", "b", "e")
    )
    return GemmProblem(
        m=one.m,
        n=one.n,
        k=one.k,
        dtype_a=s.dtype_a,
        dtype_b=s.dtype_b,
        dtype_c=s.dtype_c,
        dtype_d=s.dtype_d,
        layout=s.layout,
        batch=one.batch,
        epilogue=s.epilogue,
        num_d=s.num_d,
        beta=one.beta != 0,
        preshuffled=s.variant == "preshuffle",
        a_stride=laid["a"].line,
        b_stride=laid["b"].line,
        c_stride=laid["e"].line,
        broadcast_a=one.broadcast_a,
        broadcast_b=one.broadcast_b,
        aligned=aligned,
    )


@dataclass(frozen=True, slots=True)
class Lay:
    """How an operand lies in memory, in elements; `off` is in bytes from an aligned address."""

    batch: int
    lines: int
    length: int
    line: int  # from line to line, 0 where one line serves all
    apart: int  # from matrix to matrix, 0 where one serves all
    column: int
    bytes: int
    off: int
    dtype: str


def lay(spec: KernelSpec, one: Drawn) -> dict[str, Lay]:
    s = spec.signature
    found: dict[str, Lay] = {}

    def put(name: str, dtype: str, lines: int, length: int, shared: bool = False) -> None:
        size, group = FORMATS[dtype].bytes, name[0]
        line = length + one.gaps.get(group, 0)
        apart = 0 if shared or one.batch == 1 else lines * line + one.batch_gap
        batch = 1 if shared else one.batch
        found[name] = Lay(batch, lines, length, line, apart, 1, size, one.off.get(group, 0) * size, dtype)

    put("a", s.dtype_a, *((one.m, one.k) if s.layout[0] == "r" else (one.k, one.m)), one.broadcast_a)
    put("b", s.dtype_b, *((one.k, one.n) if s.layout[1] == "r" else (one.n, one.k)), one.broadcast_b)
    put("e", s.dtype_c, one.m, one.n)
    if one.beta:
        put("c", s.dtype_c, one.m, one.n, one.broadcast_c)
        if one.in_place:
            found["c"] = found["e"]
    for index, kind in enumerate(one.d_kinds):
        name, size = f"d{index}", FORMATS[s.dtype_d].bytes
        if kind == "full":
            put(name, s.dtype_d, one.m, one.n)
        else:
            lines, length = {"row": (1, one.n), "column": (one.m, 1), "one": (1, 1)}[kind]
            shared = one.batch == 1 or kind == "row"  # a bias for all matrices of the batch
            apart = 0 if shared else lines * length + one.batch_gap
            off = one.off.get("d", 0) * size
            line, column = int(lines > 1), int(length > 1)
            found[name] = Lay(1 if shared else one.batch, lines, length, line, apart, column, size, off, s.dtype_d)
    return found
