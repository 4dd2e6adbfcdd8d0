"""Named generators of GEMM specs: which signatures an axis means, and the pools of the arch families."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.dtypes import DTYPES, dtype
from tilewright.ops.base import Axis, KernelSpec
from tilewright.ops.encodings import element_type, element_types
from tilewright.ops.fused import EPILOGUES, GATES, epilogue_d_counts, normal_epilogue
from tilewright.ops.gemm import legality
from tilewright.ops.gemm.layouts import normal_layout
from tilewright.ops.gemm.problem import accumulator, default_output
from tilewright.ops.gemm.spec import LAYOUTS, VARIANTS, GemmSignature
from tilewright.ops.pooling import Pools, demand_known

POOLS = Pools("gemm", legality.SPACES, legality.check)

AXES = (
    Axis("datatypes", "--datatype", "Input dtype, or a:b for two; fp8 and bf8 as the arch encodes them.",
         normal=element_types),
    Axis("layouts", "--layout", "Layout of A, B and C such as rcr; in rcrr D is as C.", normal=normal_layout),
    Axis("variants", "--variant", "Variant of kernels: standard, preshuffle or multi_d."),
    Axis("epilogues", "--epilogue", "Fused epilogues.", normal=lambda name, _: normal_epilogue(name)),
    Axis("outputs", "--output", "Dtype of the result E.", normal=element_type),
    Axis("num_d", "--num-d", "Numbers of D tensors.", kind=int),
)  # fmt: skip


# What multi_d means where nobody names epilogues: D tensors added and multiplied, and activations, with D tensors or
# without.
FUSED = ("MultiDAdd", "MultiDMultiply", "Relu", "Gelu", "FastGelu")


def signatures(
    datatypes: Sequence[str],
    layouts: Sequence[str],
    variants: Sequence[str],
    epilogues: Sequence[str] = (),
    outputs: Sequence[str] = (),
    num_d: Sequence[int] = (),
) -> Iterator[GemmSignature]:
    """Every signature of the given axes; a datatype may name both inputs as `a:b`."""
    names = [normal_epilogue(epilogue) for epilogue in epilogues]
    for datatype, layout, variant in product(datatypes, layouts, variants):
        a, _, b = datatype.partition(":")
        b = b or a
        fused = names or (list(FUSED) if variant == "multi_d" else ["PassThrough"])
        for epilogue, output in product(fused, outputs or (default_output(a, b),)):
            for count in num_d or epilogue_d_counts(epilogue):
                yield GemmSignature(variant, a, b, accumulator(a), output, output, layout, epilogue, count)


def signatures_of(text: str) -> Iterator[GemmSignature]:
    """What `proposals` can be asked for, legal or not, with whose label the text begins."""
    for a, b, output, layout in product(DTYPES, DTYPES, DTYPES, LAYOUTS):
        plain = GemmSignature("standard", a, b, accumulator(a), output, output, layout)
        if not text.startswith(plain.label()):
            continue
        for epilogue in (*EPILOGUES, *GATES):
            for count in epilogue_d_counts(epilogue):
                for variant in ("standard" if epilogue == "PassThrough" else "multi_d", "preshuffle"):
                    signature = replace(plain, variant=variant, epilogue=epilogue, num_d=count)
                    if text.startswith(signature.label()):
                        yield signature


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
    datatypes: Sequence[str] = (),
    layouts: Sequence[str] = (),
    variants: Sequence[str] = (),
    epilogues: Sequence[str] = (),
    outputs: Sequence[str] = (),
    num_d: Sequence[int] = (),
) -> Iterator[KernelSpec]:
    """What a pool proposes for an arch, before legality.

    With no variants given, fused work means multi_d and its absence standard; datatype and layout
    are then what the arch's family usually computes with.  Names are checked here, before the
    first proposal, so that a typing mistake is one error and not many rejections.
    """
    usual = getattr(legality.SPACES.get(arch_by_name(arch).family), "USUAL", ("fp32", "rrr"))
    datatypes, layouts = datatypes or usual[:1], layouts or usual[1:]
    demand_known("layout-name", "layout", layouts, LAYOUTS)
    demand_known("variant-name", "variant", variants, VARIANTS)
    for name in (*outputs, *(part for datatype in datatypes for part in datatype.split(":"))):
        dtype(name)
    variants = variants or (("multi_d",) if epilogues or any(num_d) else ("standard",))
    names = [normal_epilogue(epilogue) for epilogue in epilogues]
    return POOLS.proposals(pool, arch, signatures(datatypes, layouts, variants, names, outputs, num_d))
