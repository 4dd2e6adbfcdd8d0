"""Named generators of GEMM specs.  A pool proposes; legality disposes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

from tilewright.arch import arch as arch_by_name
from tilewright.errors import UnknownNameError, nearest
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import legality
from tilewright.ops.gemm.problem import accumulator, default_output
from tilewright.ops.gemm.spec import GemmSchedule, GemmSignature, epilogue_d_counts, normal_epilogue

POOL_NAMES = ("tiny", "tests", "default", "full", "profiler")


def signatures(
    datatypes: Sequence[str],
    layouts: Sequence[str],
    variants: Sequence[str],
    epilogues: Sequence[str] = (),
    outputs: Sequence[str] = (),
    num_d: Sequence[int] = (),
) -> Iterator[GemmSignature]:
    """Every signature of the given axes; a datatype may name both inputs as `a:b`."""
    for datatype, layout, variant in product(datatypes, layouts, variants):
        a, _, b = datatype.partition(":")
        b = b or a
        names = [normal_epilogue(one) for one in epilogues]
        if not names:
            names = ["MultiDAdd", "MultiDMultiply"] if variant == "multi_d" else ["PassThrough"]
        for epilogue, output in product(names, outputs or (default_output(a, b),)):
            for count in num_d or epilogue_d_counts(epilogue):
                yield GemmSignature(variant, a, b, accumulator(a), output, output, layout, epilogue, count)


def proposals(
    pool: str,
    arch: str,
    *,
    datatypes: Sequence[str] = ("fp32",),
    layouts: Sequence[str] = ("rrr",),
    variants: Sequence[str] = ("standard",),
    epilogues: Sequence[str] = (),
    outputs: Sequence[str] = (),
    num_d: Sequence[int] = (),
) -> Iterator[KernelSpec]:
    """What a pool proposes for an arch, before legality."""
    if pool not in POOL_NAMES:
        raise UnknownNameError(
            f"{pool!r} is not a pool", rule="pool-name", value=pool, remedy=nearest(pool, list(POOL_NAMES))
        )
    facts = arch_by_name(arch)
    family = legality.FAMILIES[facts.family]
    for signature in signatures(datatypes, layouts, variants, epilogues, outputs, num_d):
        for schedule in family.schedules(pool, signature, facts):
            yield KernelSpec("gemm", signature, schedule, arch)


def generic_spec(signature: GemmSignature, arch: str) -> KernelSpec:
    family = legality.FAMILIES[arch_by_name(arch).family]
    schedule: GemmSchedule = family.generic_schedule(signature)
    return KernelSpec("gemm", signature, schedule, arch)


@lru_cache(maxsize=4096)
def candidates(signature: GemmSignature, arch: str) -> tuple[KernelSpec, ...]:
    """The default kernels for a signature, all legal."""
    facts = arch_by_name(arch)
    family = legality.FAMILIES[facts.family]
    specs = (KernelSpec("gemm", signature, one, arch) for one in family.schedules("default", signature, facts))
    return tuple(spec for spec in specs if not legality.check(spec))
