"""Named generators of convolution specs: which signatures an axis means, and the pools of the arch families.

Every pool is a rule.  A family says what `default`, `full` and `profiler` have; the others follow:

    default      without the floor, where another kernel is legal: it would serve what the others do better in copies
    full-tests   a fifth of what is legal of `full`, evenly from each kind of kernel, at least one of each
    tiny         the first of each pipeline of `full-tests`
    tests        `default` and `tiny`

The kind of a kernel is its pipeline with every switch and word of its schedule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import product
from types import ModuleType
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.dtypes import dtype
from tilewright.ops.base import Axis, KernelSpec, Violation
from tilewright.ops.conv import legality
from tilewright.ops.conv.schedule import ConvSchedule
from tilewright.ops.conv.spec import (
    DIMENSIONS,
    FLOAT_OUTPUTS,
    INPUTS,
    INT_OUTPUTS,
    OP,
    VARIANTS,
    ConvSignature,
    accumulator,
    default_output,
    normal_variant,
)
from tilewright.ops.encodings import element_type
from tilewright.ops.fused import EPILOGUES, epilogue_d_counts, normal_epilogue
from tilewright.ops.pooling import Pools, demand_known

NAMES = ("tiny", "tests", "default", "full-tests", "full", "profiler")
SHARE = 5  # one in so many of `full` is in `full-tests`


def kind(schedule: ConvSchedule) -> tuple[Any, ...]:
    """What kernels must differ in to be of different kinds: words and switches, not numbers."""
    values = ((one.name, getattr(schedule, one.name)) for one in dataclasses.fields(schedule))  # type: ignore[arg-type]
    return tuple((name, value) for name, value in values if isinstance(value, (str, bool)))


class Family:
    """A family's module with the pools that are rules over its own."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._legal = lru_cache(maxsize=64)(self._find_legal)

    def signature_rules(self, signature: ConvSignature, arch: Arch) -> Iterator[Violation]:
        found: Iterator[Violation] = self._module.signature_rules(signature, arch)
        return found

    def generic_schedule(self, signature: ConvSignature, arch: Arch) -> ConvSchedule:
        found: ConvSchedule = self._module.generic_schedule(signature, arch)
        return found

    def schedules(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[ConvSchedule]:
        if pool in ("full-tests", "tiny"):
            yield from self._few(pool, signature, arch)
        elif pool in ("default", "tests"):
            default = self._default(signature, arch)
            yield from default
            if pool == "tests":
                yield from (one for one in self._few("tiny", signature, arch) if one not in default)
        else:
            yield from self._module.schedules(pool, signature, arch)

    def _default(self, signature: ConvSignature, arch: Arch) -> list[ConvSchedule]:
        floor = self.generic_schedule(signature, arch)
        every = list(dict.fromkeys(self._module.schedules("default", signature, arch)))
        fast = [one for one in every if one != floor]
        return fast if any(map(partial(_is_legal, signature, arch.name), fast)) else every

    def _find_legal(self, signature: ConvSignature, arch: str) -> tuple[ConvSchedule, ...]:
        proposed = dict.fromkeys(self._module.schedules("full", signature, arch_by_name(arch)))
        return tuple(filter(partial(_is_legal, signature, arch), proposed))

    def _few(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[ConvSchedule]:
        kinds: dict[Any, list[ConvSchedule]] = {}
        for one in self._legal(signature, arch.name):
            kinds.setdefault(kind(one), []).append(one)
        chosen = [one for each in kinds.values() for one in each[::SHARE]]
        if pool == "tiny":
            chosen = list({one.pipeline: one for one in reversed(chosen)}.values())[::-1]
        yield from chosen or [self.generic_schedule(signature, arch)]  # where none is legal, the floor's rules say why


def _is_legal(signature: ConvSignature, arch: str, schedule: ConvSchedule) -> bool:
    return not legality.check(KernelSpec(OP, signature, schedule, arch))


POOLS = Pools(OP, {name: Family(module) for name, module in legality.FAMILIES.items()}, legality.check, names=NAMES)

AXES = (
    Axis("variants", "--variant", "forward, backward_data or backward_weight.", normal=normal_variant),
    Axis("spatial", "--ndim-spatial", "Spatial dimensions: 2 or 3; 1 runs as 2.", kind=int),
    Axis("datatypes", "--datatype", "Element type of the operands: fp32, fp16, bf16 or int8.", normal=element_type),
    Axis("epilogues", "--epilogue", "Fused epilogues.", normal=lambda name, _: normal_epilogue(name)),
    Axis("outputs", "--output", "Element type of the result.", normal=element_type),
    Axis("num_d", "--num-d", "Numbers of D tensors.", kind=int),
)


def signatures(
    variants: Sequence[str],
    spatial: Sequence[int],
    datatypes: Sequence[str],
    epilogues: Sequence[str] = (),
    outputs: Sequence[str] = (),
    num_d: Sequence[int] = (),
) -> Iterator[ConvSignature]:
    """Every signature of the given axes."""
    for variant, rank, datatype, epilogue in product(variants, spatial, datatypes, epilogues or ("PassThrough",)):
        for output in outputs or (default_output(datatype),):
            for count in num_d or epilogue_d_counts(epilogue):
                yield ConvSignature(variant, rank, datatype, accumulator(datatype), output, output, epilogue, count)


def signatures_of(text: str) -> Iterator[ConvSignature]:
    """What `proposals` can be asked for, legal or not, with whose label the text begins."""
    for variant, rank, datatype in product(VARIANTS, DIMENSIONS, INPUTS):
        if not text.startswith(f"{variant}_{rank}d_{datatype}"):
            continue
        outputs = dict.fromkeys((*FLOAT_OUTPUTS, *INT_OUTPUTS))
        for one in signatures((variant,), (rank,), (datatype,), EPILOGUES, tuple(outputs)):
            if text.startswith(one.label()):
                yield one


def axes_of(signature: ConvSignature) -> dict[str, tuple[Any, ...]]:
    """The axes under which pools propose exactly this signature."""
    s = signature
    return {
        "variants": (s.variant,),
        "spatial": (s.spatial,),
        "datatypes": (s.dtype,),
        "epilogues": (s.epilogue,),
        "outputs": (s.dtype_out,),
        "num_d": (s.num_d,),
    }


def proposals(
    pool: str,
    arch: str,
    *,
    variants: Sequence[str] = (),
    spatial: Sequence[int] = (),
    datatypes: Sequence[str] = (),
    epilogues: Sequence[str] = (),
    outputs: Sequence[str] = (),
    num_d: Sequence[int] = (),
) -> Iterator[KernelSpec]:
    """What a pool proposes for an arch, before legality.

    With nothing given: forward, 2D, of the type the arch's family usually computes with.  D tensors without an epilogue
    are added.  Names are checked here, before the first proposal.
    """
    variants = [normal_variant(one) for one in variants] or ["forward"]
    datatypes = datatypes or (getattr(legality.FAMILIES.get(arch_by_name(arch).family), "USUAL", "fp32"),)
    demand_known("variant-name", "variant", variants, VARIANTS)
    for name in (*outputs, *datatypes):
        dtype(name)
    ranks = dict.fromkeys(2 if one == 1 else one for one in spatial or (2,))
    names = [normal_epilogue(one) for one in epilogues] or (["MultiDAdd"] if any(num_d) else [])
    return POOLS.proposals(pool, arch, signatures(variants, tuple(ranks), datatypes, names, outputs, num_d))
