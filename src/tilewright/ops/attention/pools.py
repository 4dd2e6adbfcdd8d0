"""Named generators of attention specs: which signatures an axis means, and the pools of the arch families.

Most pools are derived (`ops.derived_pools`).  A family may have some of its own beside the usual ones, with signatures
of their own (`legality.py` says how).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
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
    settled,
)
from tilewright.ops.attention_terms import BIASES, HEADS, MASKS, head_class
from tilewright.ops.base import Axis, KernelSpec
from tilewright.ops.derived_pools import derived_pools
from tilewright.ops.encodings import element_type, element_types
from tilewright.ops.pooling import demand_known

POOLS = derived_pools(OP, legality.SPACES, legality.check)

# What a kernel has beyond the plain softmax, as one word each: `causal` is a window, and so on.
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    **{mask: {"mask": mask} for mask in MASKS[1:]},
    **{f"{bias}": {"bias": bias} for bias in BIASES[2:]},
    "bias": {"bias": "tensor"},
    **{word: {name: True} for word, name in SWITCHES.items()},
    **{f"pages_{pages}_{how}": {"pages": pages, "page_lookup": how} for pages in PAGES[1:] for how in LOOKUPS[1:]},
    **{f"scales_{scales}": {"scales": scales} for scales in SCALES[1:]},
    **{f"rotary_{rotary}": {"rotary": rotary} for rotary in ROTARIES[1:]},
}
_FEATURE_ALIASES = {
    "causal": "window",
    "varlen": "packed",
    "return_lse": "lse",
    "paged": "pages_strided_table",
    "none": "plain",
}


def normal_features(name: str, _arch: object = None) -> str:
    """Features joined by +, each under its proper name; what is not known is let be."""
    return "+".join(
        _FEATURE_ALIASES.get(feature, feature) for feature in str(name).lower().replace("-", "_").split("+")
    )


def normal_heads(name: str, _arch: object = None) -> str:
    """128 is 128x128; heads of no kernel are rounded up to some."""
    try:
        sizes = [head_class(int(size)) for size in str(name).lower().split("x")]
    except ValueError:
        return str(name)
    return f"{sizes[0]}x{sizes[-1]}"


AXES = (
    Axis("families", "--family", "Family of kernels: forward, split, combine or append.", normal=normal_family),
    Axis("datatypes", "--datatype", "Element type of q, k and v; q:kv where they differ.", normal=element_types),
    Axis("heads", "--heads", "Elements of a head the kernel holds: 128, or 192x128.", normal=normal_heads),
    Axis(
        "features",
        "--features",
        "Features of the kernel, joined by +: window+lse, varlen+bias, ...",
        normal=normal_features,
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
    seen: set[AttentionSignature] = set()
    for family, types, size, words, aux in product(families, datatypes, heads, features, auxiliary or ("",)):
        q, kv = _types(types)
        qk, v = (int(dim) for dim in size.split("x"))
        has = {name: value for word in words.split("+") for name, value in FEATURES[word].items()}
        for output in outputs or (default_output(q),):
            signature = settled(AttentionSignature(family, q, kv, output, qk, v, dtype_aux=aux or "fp32", **has))
            if signature not in seen:
                seen.add(signature)
                yield signature


def words_of(signature: AttentionSignature) -> str:
    """The word of the axis `features` that means exactly this signature's."""
    s = signature
    features = [feature for feature in (s.mask, "bias" if s.bias == "tensor" else s.bias) if feature != "none"]
    features += [word for word, name in SWITCHES.items() if getattr(s, name)]
    features += [f"pages_{s.pages}_{s.page_lookup}"] if s.pages != "none" else []
    features += [f"scales_{s.scales}"] if s.scales != "none" else []
    features += [f"rotary_{s.rotary}"] if s.rotary != "none" else []
    return "+".join(features) or "plain"


def signatures_of(text: str) -> Iterator[AttentionSignature]:
    """What `proposals` can be asked for, legal or not, with whose label the text begins: the label read back."""
    for family, q, kv, output in product(FAMILIES, INPUTS, INPUTS, OUTPUTS):
        some = settled(AttentionSignature(family, q, kv, output))
        if not text.startswith(some.label().rpartition("_h")[0]):
            continue
        for qk, v in product(HEADS, HEADS):
            plain = settled(replace(some, head_dim=qk, head_dim_v=v))
            if text.startswith(plain.label()):
                candidates = _with_features(plain, text[len(plain.label()) :])
                yield from (signature for signature in candidates if text.startswith(signature.label()))


def _with_features(plain: AttentionSignature, rest: str) -> Iterator[AttentionSignature]:
    """Signatures of the words that a label's rest may begin with."""
    variants = {settled(plain)}
    for word, has in FEATURES.items():
        types = OUTPUTS if word == "bias" or word.startswith("rotary") else ("",)
        for aux in types:
            label = f"_{word}_{aux}" if aux else f"_{word}"
            if label in rest:
                more = {**has, **({"dtype_aux": aux} if aux else {})}
                variants |= {settled(replace(signature, **more)) for signature in variants}
    yield from sorted(variants, key=lambda signature: signature.label())


def axes_of(signature: AttentionSignature) -> dict[str, tuple[Any, ...]]:
    """The axes under which pools propose exactly this signature."""
    s = signature
    return {
        "families": (s.family,),
        "datatypes": (s.dtype_q if s.dtype_kv == s.dtype_q else f"{s.dtype_q}:{s.dtype_kv}",),
        "heads": (f"{s.head_dim}x{s.head_dim_v}",),
        "features": (words_of(s),),
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
    if own is not None and pool in getattr(family, "POOLS", ()) and not any((families, datatypes, heads, features)):
        return POOLS.proposals(pool, arch, own(pool, arch_by_name(arch)))
    families = [normal_family(family) for family in families] or ["forward"]
    datatypes = datatypes or (getattr(family, "USUAL", "fp32"),)
    heads = [normal_heads(size) for size in heads] or ["128x128"]
    features = [normal_features(feature) for feature in features] or ["plain", "window"]
    demand_known("family-name", "family of attention", families, FAMILIES)
    demand_known(
        "feature-name", "feature", [word for feature in features for word in feature.split("+")], list(FEATURES)
    )
    known = [f"{qk}x{v}" for qk, v in product(HEADS, HEADS)]
    demand_known("kernel-heads", "size of heads that kernels are made for", heads, known)
    for name in (*outputs, *auxiliary, *(element for both in datatypes for element in _types(both))):
        dtype(name)
    return POOLS.proposals(pool, arch, signatures(families, datatypes, heads, features, outputs, auxiliary))
