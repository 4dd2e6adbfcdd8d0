"""Named generators of attention specs: which signatures an axis means, and the pools of the arch families.

Most pools are derived (`ops.derived_pools`).  A family may have some of its own beside the usual ones, with signatures
of their own (`legality.py` says how).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.dtypes import dtype
from tilewright.ops.attention import legality
from tilewright.ops.attention.spec import (
    FAMILIES,
    INPUTS,
    LOOKUPS,
    OP,
    OUTPUTS,
    PAGES,
    ROTARIES,
    SCALES,
    SWITCHES,
    AttentionSignature,
    default_output,
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
from tilewright.ops.base import Axis, KernelSpec
from tilewright.ops.derived_pools import derived_pools
from tilewright.ops.encodings import element_type, element_types
from tilewright.ops.pooling import demand_known

POOLS = derived_pools(OP, legality.SPACES, legality.check)

FEATURES = Features(
    {
        **common_features(SWITCHES),
        **{f"pages_{pages}_{how}": {"pages": pages, "page_lookup": how} for pages in PAGES[1:] for how in LOOKUPS[1:]},
        **{f"scales_{scales}": {"scales": scales} for scales in SCALES[1:]},
        **{f"rotary_{rotary}": {"rotary": rotary} for rotary in ROTARIES[1:]},
    },
    {"causal": "window", "varlen": "packed", "return_lse": "lse", "paged": "pages_strided_table", "none": "plain"},
    OUTPUTS,
    normalized,
)


AXES = (
    Axis("families", "--family", "Family of kernels: forward, split, combine or append.", normal=normal_family),
    Axis("datatypes", "--datatype", "Element type of q, k and v; q:kv where they differ.", normal=element_types),
    Axis("heads", "--heads", "Elements of a head the kernel holds: 128, or 192x128.", normal=normal_heads),
    Axis(
        "features",
        "--features",
        "Features of the kernel, joined by +: window+lse, varlen+bias, ...",
        normal=FEATURES.normal,
    ),
    Axis("outputs", "--output", "Element type of the result.", normal=element_type),
    Axis("auxiliary", "--aux-datatype", "Element type of a bias or of rotary tables.", normal=element_type),
)


def _types(name: str) -> tuple[str, str]:
    q, _, kv = name.partition(":")
    return q, kv or q


def signatures(
    families: Sequence[str],
    datatypes: Sequence[str],
    heads: Sequence[str],
    features: Sequence[str],
    outputs: Sequence[str] = (),
    auxiliary: Sequence[str] = (),
) -> Iterator[AttentionSignature]:
    """Every signature of the given axes, each once."""
    return distinct(
        normalized(
            AttentionSignature(
                family, *_types(types), output, *dims(size), dtype_aux=aux or "fp32", **FEATURES.fields_of(words)
            )
        )
        for family, types, size, words, aux in product(families, datatypes, heads, features, auxiliary or ("",))
        for output in outputs or (default_output(_types(types)[0]),)
    )


def signatures_of(text: str) -> Iterator[AttentionSignature]:
    """What `proposals` can be asked for, legal or not, with whose label the text begins: the label read back."""
    for family, q, kv, output in product(FAMILIES, INPUTS, INPUTS, OUTPUTS):
        some = normalized(AttentionSignature(family, q, kv, output))
        if text.startswith(some.label().rpartition("_h")[0]):
            yield from FEATURES.signatures_of(text, partial(_with_heads, some))


def _with_heads(signature: AttentionSignature, head_dim: int, head_dim_v: int) -> AttentionSignature:
    return normalized(replace(signature, head_dim=head_dim, head_dim_v=head_dim_v))


def axes_of(signature: AttentionSignature) -> dict[str, tuple[Any, ...]]:
    """The axes under which pools propose exactly this signature."""
    s = signature
    return {
        "families": (s.family,),
        "datatypes": (s.dtype_q if s.dtype_kv == s.dtype_q else f"{s.dtype_q}:{s.dtype_kv}",),
        "heads": (f"{s.head_dim}x{s.head_dim_v}",),
        "features": (FEATURES.words_of(s),),
        "outputs": (s.dtype_out,),
        "auxiliary": (s.dtype_aux,),
    }


def proposals(
    pool: str,
    arch: str,
    *,
    families: Sequence[str] = (),
    datatypes: Sequence[str] = (),
    heads: Sequence[str] = (),
    features: Sequence[str] = (),
    outputs: Sequence[str] = (),
    auxiliary: Sequence[str] = (),
) -> Iterator[KernelSpec]:
    """What a pool proposes for an arch, before legality.

    With nothing given: forward, heads of 128, plain and causal, of the type the arch's family usually computes with; or
    what the pool is for, where it has signatures of its own.  Names are checked here, before the first proposal.
    """
    family = legality.SPACES.get(arch_by_name(arch).family)
    own: Callable[[str, Arch], Iterator[AttentionSignature]] | None = getattr(family, "pool_signatures", None)
    of_profile = own is not None and pool in getattr(family, "POOLS", ())
    if own is not None and of_profile and not any((families, datatypes, heads, features)):
        return POOLS.proposals(pool, arch, own(pool, arch_by_name(arch)))
    families = [normal_family(family) for family in families] or ["forward"]
    heads = [normal_heads(size) for size in heads] or ["128x128"]
    features = [FEATURES.normal(feature) for feature in features]
    named = {"families": families, "datatypes": datatypes, "heads": heads, "features": features}
    datatypes = datatypes or (getattr(family, "USUAL", "fp32"),)
    features = features or ["plain", "window"]
    demand_known("family-name", "family of attention", families, FAMILIES)
    FEATURES.demand_known(heads, features)
    for name in (*outputs, *auxiliary, *(element for both in datatypes for element in _types(both))):
        dtype(name)
    chosen = signatures(families, datatypes, heads, features, outputs, auxiliary)
    if of_profile:
        if not auxiliary:  # those of a library have a bias and tables of the type of q
            chosen = distinct(normalized(replace(signature, dtype_aux=signature.dtype_q)) for signature in chosen)
        facts = arch_by_name(arch)
        open_axes = own_of_axes(family, pool, facts, axes_of, named)
        chosen = of_own_pool(family, pool, facts, chosen, open_axes if not (outputs or auxiliary) else tuple)
    return POOLS.proposals(pool, arch, chosen)
