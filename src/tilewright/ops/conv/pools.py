"""Named generators of convolution specs: which signatures an axis means, and the pools of the arch families.

Most pools are derived (`ops.derived_pools`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.dtypes import dtype
from tilewright.ops.base import Axis, KernelSpec
from tilewright.ops.conv import legality
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
from tilewright.ops.derived_pools import derived_pools
from tilewright.ops.encodings import element_type
from tilewright.ops.fused import EPILOGUES, epilogue_d_counts, normal_epilogue
from tilewright.ops.pooling import demand_known

POOLS = derived_pools(OP, legality.SPACES, legality.check)

AXES = (
    Axis(
        "variants",
        "--variant",
        "Direction: forward, backward_data (dgrad) or backward_weight (wgrad).",
        normal=normal_variant,
    ),
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
        for signature in signatures((variant,), (rank,), (datatype,), EPILOGUES, tuple(outputs)):
            if text.startswith(signature.label()):
                yield signature


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
    variants = [normal_variant(variant) for variant in variants] or ["forward"]
    datatypes = datatypes or (getattr(legality.SPACES.get(arch_by_name(arch).family), "USUAL", "fp32"),)
    demand_known("variant-name", "variant", variants, VARIANTS)
    for name in (*outputs, *datatypes):
        dtype(name)
    ranks = dict.fromkeys(2 if rank == 1 else rank for rank in spatial or (2,))
    names = [normal_epilogue(epilogue) for epilogue in epilogues] or (["MultiDAdd"] if any(num_d) else [])
    return POOLS.proposals(pool, arch, signatures(variants, tuple(ranks), datatypes, names, outputs, num_d))
