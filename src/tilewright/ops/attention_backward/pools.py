"""Named generators of specs of attention's gradients: which signatures an axis means; the pools are derived ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.dtypes import dtype
from tilewright.ops.attention_backward import legality
from tilewright.ops.attention_backward.spec import (
    ACCUMULATES,
    FAMILIES,
    OP,
    SWITCHES,
    AttentionBackwardSignature,
    normal_family,
    settled,
)
from tilewright.ops.attention_terms import BIASES, FLOATS, HEADS, MASKS, head_class
from tilewright.ops.base import Axis, KernelSpec
from tilewright.ops.derived_pools import derived_pools
from tilewright.ops.encodings import element_type
from tilewright.ops.pooling import demand_known

POOLS = derived_pools(OP, legality.SPACES, legality.check)

# What a kernel has beyond the plain softmax, as one word each: `causal` is a window, and so on.
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    **{mask: {"mask": mask} for mask in MASKS[1:]},
    **{bias: {"bias": bias} for bias in BIASES[2:]},
    "bias": {"bias": "tensor"},
    **{word: {name: True} for word, name in SWITCHES.items()},
    **{f"sums_{accumulate}": {"accumulate": accumulate} for accumulate in ACCUMULATES[1:]},
}
_FEATURE_ALIASES = {"causal": "window", "varlen": "packed", "none": "plain"}


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
    Axis("families", "--family", "Family of kernels: dot, grad or convert.", normal=normal_family),
    Axis("datatypes", "--datatype", "Element type of q, k, v and their gradients.", normal=element_type),
    Axis("heads", "--heads", "Elements of a head the kernel holds: 128, or 192x128.", normal=normal_heads),
    Axis("features", "--features", "Features of the kernel, joined by +: window+dbias, ...", normal=normal_features),
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
    seen: set[AttentionBackwardSignature] = set()
    for family, kind, size, words, aux in product(families, datatypes, heads, features, auxiliary or ("fp32",)):
        qk, v = (int(dim) for dim in size.split("x"))
        has = {name: value for word in words.split("+") for name, value in FEATURES[word].items()}
        signature = settled(AttentionBackwardSignature(family, kind, qk, v, dtype_aux=aux, **has))
        if signature not in seen:
            seen.add(signature)
            yield signature


def words_of(signature: AttentionBackwardSignature) -> str:
    """The word of the axis `features` that means exactly this signature's."""
    s = signature
    features = [feature for feature in (s.mask, "bias" if s.bias == "tensor" else s.bias) if feature != "none"]
    features += [word for word, name in SWITCHES.items() if getattr(s, name)]
    features += [f"sums_{s.accumulate}"] if s.accumulate != "none" else []
    return "+".join(features) or "plain"


def signatures_of(text: str) -> Iterator[AttentionBackwardSignature]:
    """What `proposals` can be asked for, legal or not, with whose label the text begins: the label read back."""
    for family, kind in product(FAMILIES, FLOATS):
        if not text.startswith(f"{family}_{kind}_h"):
            continue
        for qk, v in product(HEADS, HEADS):
            plain = settled(AttentionBackwardSignature(family, kind, qk, v))
            if text.startswith(plain.label()):
                candidates = _with_features(plain, text[len(plain.label()) :])
                yield from (signature for signature in candidates if text.startswith(signature.label()))


def _with_features(plain: AttentionBackwardSignature, rest: str) -> Iterator[AttentionBackwardSignature]:
    """Signatures of the words that a label's rest may begin with."""
    variants = {plain}
    for word, has in FEATURES.items():
        for aux in FLOATS if word == "bias" else ("",):
            if (f"_{word}_{aux}" if aux else f"_{word}") in rest:
                more = {**has, **({"dtype_aux": aux} if aux else {})}
                variants |= {settled(replace(signature, **more)) for signature in variants}
    yield from sorted(variants, key=lambda signature: signature.label())


def axes_of(signature: AttentionBackwardSignature) -> dict[str, tuple[Any, ...]]:
    """The axes under which pools propose exactly this signature."""
    s = signature
    return {
        "families": (s.family,),
        "datatypes": (s.dtype,),
        "heads": (f"{s.head_dim}x{s.head_dim_v}",),
        "features": (words_of(s),),
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
    auxiliary: Sequence[str] = (),
) -> Iterator[KernelSpec]:
    """What a pool proposes for an arch, before legality.

    With nothing given: dot and grad, heads of 128, plain and causal, of the type the arch's family usually computes
    with.  Names are checked here, before the first proposal.
    """
    family = legality.SPACES.get(arch_by_name(arch).family)
    families = [normal_family(family) for family in families] or ["dot", "grad"]
    datatypes = datatypes or (getattr(family, "USUAL", "fp32"),)
    heads = [normal_heads(size) for size in heads] or ["128x128"]
    features = [normal_features(feature) for feature in features] or ["plain", "window"]
    demand_known("family-name", "family of attention_backward", families, FAMILIES)
    demand_known(
        "feature-name", "feature", [word for feature in features for word in feature.split("+")], list(FEATURES)
    )
    known = [f"{qk}x{v}" for qk, v in product(HEADS, HEADS)]
    demand_known("kernel-heads", "size of heads that kernels are made for", heads, known)
    for name in (*datatypes, *auxiliary):
        dtype(name)
    return POOLS.proposals(pool, arch, signatures(families, datatypes, heads, features, auxiliary))
