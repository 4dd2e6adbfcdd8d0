"""Named generators of GEMM specs.  A pool proposes; legality disposes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from types import ModuleType
from typing import Any

from tilewright.arch import Arch, all_archs
from tilewright.arch import arch as arch_by_name
from tilewright.dtypes import dtype
from tilewright.errors import RequestError, UnknownNameError, nearest
from tilewright.ops.base import Axis, KernelSpec
from tilewright.ops.gemm import legality
from tilewright.ops.gemm.problem import accumulator, default_output
from tilewright.ops.gemm.spec import (
    LAYOUTS,
    VARIANTS,
    GemmSchedule,
    GemmSignature,
    epilogue_d_counts,
    normal_epilogue,
)

POOL_NAMES = ("tiny", "tests", "default", "full", "profiler")

AXES = (
    Axis("datatypes", "--datatype", "Input dtype, or a:b for two."),
    Axis("layouts", "--layout", "Layout of A, B and C such as rcr."),
    Axis("variants", "--variant", "standard, preshuffle or multi_d."),
    Axis("epilogues", "--epilogue", "Fused epilogues."),
    Axis("outputs", "--output", "Dtype of the result E."),
    Axis("num_d", "--num-d", "Numbers of D tensors.", kind=int),
)


def _demand_known(rule: str, what: str, values: Sequence[str], known: Sequence[str]) -> None:
    for value in values:
        if value not in known:
            raise UnknownNameError(
                f"{value!r} is not a {what}", rule=rule, value=value, remedy=nearest(value, list(known))
            )


def family_of(arch: Arch) -> ModuleType:
    """The module with the schedules and rules of an arch's family."""
    family = legality.FAMILIES.get(arch.family)
    if family is None:
        served = [one.name for one in all_archs().values() if one.family in legality.FAMILIES]
        raise RequestError(
            f"gemm has no kernels for {arch.name}: nothing is written for the family {arch.family} yet",
            rule="family",
            value=arch.name,
            remedy=nearest(arch.name, served),
        )
    return family


def signatures(
    datatypes: Sequence[str],
    layouts: Sequence[str],
    variants: Sequence[str],
    epilogues: Sequence[str] = (),
    outputs: Sequence[str] = (),
    num_d: Sequence[int] = (),
) -> Iterator[GemmSignature]:
    """Every signature of the given axes; a datatype may name both inputs as `a:b`."""
    names = [normal_epilogue(one) for one in epilogues]
    for datatype, layout, variant in product(datatypes, layouts, variants):
        a, _, b = datatype.partition(":")
        b = b or a
        fused = names or (["MultiDAdd", "MultiDMultiply"] if variant == "multi_d" else ["PassThrough"])
        for epilogue, output in product(fused, outputs or (default_output(a, b),)):
            for count in num_d or epilogue_d_counts(epilogue):
                yield GemmSignature(variant, a, b, accumulator(a), output, output, layout, epilogue, count)


def axes_of(signature: GemmSignature) -> dict[str, tuple[Any, ...]]:
    """The axes under which pools propose exactly this signature."""
    s = signature
    return {
        "datatypes": (s.dtype_a if s.dtype_a == s.dtype_b else f"{s.dtype_a}:{s.dtype_b}",),
        "layouts": (s.layout,),
        "variants": (s.variant,),
        "epilogues": (s.epilogue,),
        "outputs": (s.dtype_c,),
        "num_d": (s.num_d,),
    }


def proposals(
    pool: str,
    arch: str,
    *,
    datatypes: Sequence[str] = ("fp32",),
    layouts: Sequence[str] = ("rrr",),
    variants: Sequence[str] = (),
    epilogues: Sequence[str] = (),
    outputs: Sequence[str] = (),
    num_d: Sequence[int] = (),
) -> Iterator[KernelSpec]:
    """What a pool proposes for an arch, before legality.

    With no variants given, fused work means multi_d and its absence standard.  Names are checked
    here, before the first proposal, so that a typing mistake is one error and not many rejections.
    """
    _demand_known("pool-name", "pool", [pool], POOL_NAMES)
    _demand_known("layout-name", "layout", layouts, LAYOUTS)
    _demand_known("variant-name", "variant", variants, VARIANTS)
    for name in (*outputs, *(part for one in datatypes for part in one.split(":"))):
        dtype(name)
    facts = arch_by_name(arch)
    family = family_of(facts)
    variants = variants or (("multi_d",) if epilogues or any(num_d) else ("standard",))
    wanted = signatures(datatypes, layouts, variants, [normal_epilogue(one) for one in epilogues], outputs, num_d)
    return (
        KernelSpec("gemm", signature, schedule, arch)
        for signature in wanted
        for schedule in family.schedules(pool, signature, facts)
    )


def generic_spec(signature: GemmSignature, arch: str) -> KernelSpec:
    facts = arch_by_name(arch)
    schedule: GemmSchedule = family_of(facts).generic_schedule(signature, facts)
    return KernelSpec("gemm", signature, schedule, arch)


@lru_cache(maxsize=4096)
def candidates(signature: GemmSignature, arch: str) -> tuple[KernelSpec, ...]:
    """The default kernels for a signature, all legal."""
    facts = arch_by_name(arch)
    proposed = family_of(facts).schedules("default", signature, facts)
    specs = (KernelSpec("gemm", signature, one, arch) for one in proposed)
    return tuple(spec for spec in specs if not legality.check(spec))
