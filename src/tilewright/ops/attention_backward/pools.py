"""Named generators of specs of attention's gradients: which signatures an axis means, and the pools of arch families.

Most pools are derived (`ops.derived_pools`).  A family may have some of its own beside the usual ones, with signatures
of their own (`legality.py` says how).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.dtypes import dtype
from tilewright.ops.attention_backward import legality
from tilewright.ops.attention_backward.plans import accumulates
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import (
    ACCUMULATES,
    FAMILIES,
    OP,
    SWITCHES,
    AttentionBackwardSignature,
    normal_family,
    normalized,
)
from tilewright.ops.attention_pools import (
    Features,
    common_features,
    dims,
    distinct,
    normal_heads,
    of_own_pool,
    own_of_axes,
)
from tilewright.ops.attention_terms import FLOATS
from tilewright.ops.base import Axis, KernelSpec
from tilewright.ops.derived_pools import derived_pools
from tilewright.ops.encodings import element_type
from tilewright.ops.pooling import demand_known

POOLS = derived_pools(OP, legality.SPACES, legality.check)

FEATURES = Features(
    {
        **common_features(SWITCHES),
        **{f"accum_{accumulate}": {"accumulate": accumulate} for accumulate in ACCUMULATES[1:]},
    },
    {
        "causal": "window",
        "varlen": "packed",
        "none": "plain",
        **{f"sums_{accumulate}": f"accum_{accumulate}" for accumulate in ACCUMULATES[1:]},
    },  # as they were called in 0.1
    FLOATS,
    normalized,
)

AXES = (
    Axis("families", "--family", "Family of kernels: dot, grad or convert.", normal=normal_family),
    Axis("datatypes", "--datatype", "Element type of q, k, v and their gradients.", normal=element_type),
    Axis("heads", "--heads", "Elements of a head the kernel holds: 128, or 192x128.", normal=normal_heads),
    Axis("features", "--features", "Features of the kernel, joined by +: window+dbias, ...", normal=FEATURES.normal),
    Axis("auxiliary", "--aux-datatype", "Element type of a bias.", normal=element_type),
)


def signatures(
    families: Sequence[str],
    datatypes: Sequence[str],
    heads: Sequence[str],
    features: Sequence[str],
    auxiliary: Sequence[str] = (),
) -> Iterator[AttentionBackwardSignature]:
    """Every signature of the given axes, each once."""
    return distinct(
        normalized(AttentionBackwardSignature(family, kind, *dims(size), dtype_aux=aux, **FEATURES.fields_of(words)))
        for family, kind, size, words, aux in product(families, datatypes, heads, features, auxiliary or ("fp32",))
    )


def signatures_of(text: str) -> Iterator[AttentionBackwardSignature]:
    """What `proposals` can be asked for, legal or not, with whose label the text begins: the label read back."""
    text = text.replace("_sums_", "_accum_")  # as names of kernels had it
    for family, kind in product(FAMILIES, FLOATS):
        if text.startswith(f"{family}_{kind}_h"):
            yield from FEATURES.signatures_of(text, partial(_plain, family, kind))


def _plain(family: str, kind: str, head_dim: int, head_dim_v: int) -> AttentionBackwardSignature:
    return normalized(AttentionBackwardSignature(family, kind, head_dim, head_dim_v))


def axes_of(signature: AttentionBackwardSignature) -> dict[str, tuple[Any, ...]]:
    """The axes under which pools propose exactly this signature."""
    s = signature
    return {
        "families": (s.family,),
        "datatypes": (s.dtype,),
        "heads": (f"{s.head_dim}x{s.head_dim_v}",),
        "features": (FEATURES.words_of(s),),
        "auxiliary": (s.dtype_aux,),
    }


def _usual_signatures(
    arch: str, families: Sequence[str], datatypes: Sequence[str], heads: Sequence[str], auxiliary: Sequence[str]
) -> Iterator[AttentionBackwardSignature]:
    """Plain and causal ones, with the accumulators that the arch's plans leave to `convert`: without these kernels a
    plan of a kernel set would have only fallback kernels."""
    for kind, size in product(datatypes, heads):
        sums = [f"accum_{each}" for each in _usual_sums(arch, kind, *dims(size)) if each != "none"]
        features = ["plain", "window", *sums, *(f"window+{each}" for each in sums)]
        yield from signatures(families or ("dot", "grad"), (kind,), (size,), features, auxiliary)
        if sums and not families:
            yield from signatures(("convert",), (kind,), (size,), sums, auxiliary)


def _usual_sums(arch: str, kind: str, head_dim: int, head_dim_v: int) -> list[str]:
    """What plans leave to `convert` where every query head has keys of its own, and where they share them."""
    if kind not in FLOATS:
        return []
    shared = (
        AttentionBackwardProblem(
            batch=1, heads_q=8, heads_kv=heads_kv, seqlen_q=1024, seqlen_k=1024, head_dim=head_dim,
            head_dim_v=head_dim_v, dtype=kind,
        )
        for heads_kv in (8, 2)
    )  # fmt: skip
    return list(dict.fromkeys(each for problem in shared for each in accumulates(problem, arch)))


def proposals(
    pool: str,
    arch: str,
    *,
    families: Sequence[str] = (),
    datatypes: Sequence[str] = (),
    heads: Sequence[str] = (),
    features: Sequence[str] = (),
    auxiliary: Sequence[str] = (),
) -> Iterator[KernelSpec]:
    """What a pool proposes for an arch, before legality.

    With nothing given: every stage of the arch's plans, heads of 128, plain and causal, of the type the arch's family
    usually computes with; or what the pool is for, where it has signatures of its own.  Names are checked here, before
    the first proposal.
    """
    family = legality.SPACES.get(arch_by_name(arch).family)
    own = pool in getattr(family, "POOLS", ())
    if own and not any((families, datatypes, heads, features, auxiliary)):
        facts = arch_by_name(arch)
        every = legality.SPACES[facts.family].pool_signatures(pool, facts)
        return POOLS.proposals(pool, arch, of_own_pool(family, pool, facts, every))
    families = [normal_family(family) for family in families]
    heads = [normal_heads(size) for size in heads] or ["128x128"]
    features = [FEATURES.normal(feature) for feature in features]
    named = {"families": families, "datatypes": datatypes, "heads": heads, "features": features}
    datatypes = datatypes or (getattr(family, "USUAL", "fp32"),)
    demand_known("family-name", "family of attention_backward", families, FAMILIES)
    FEATURES.demand_known(heads, features)
    for name in (*datatypes, *auxiliary):
        dtype(name)
    if own:
        families, features = families or ["dot", "grad"], features or ["plain", "window"]
        every, facts = signatures(families, datatypes, heads, features, auxiliary), arch_by_name(arch)
        open_axes = own_of_axes(family, pool, facts, axes_of, {**named, "auxiliary": auxiliary})
        return POOLS.proposals(pool, arch, of_own_pool(family, pool, facts, every, open_axes))
    if not features:
        usual = distinct(_usual_signatures(arch, families, datatypes, heads, auxiliary))
        return POOLS.proposals(pool, arch, usual)
    left = ["convert"] if any("accumulate" in FEATURES.fields_of(words) for words in features) else []
    chosen = signatures(families or ["dot", "grad", *left], datatypes, heads, features, auxiliary)
    return POOLS.proposals(pool, arch, chosen)
