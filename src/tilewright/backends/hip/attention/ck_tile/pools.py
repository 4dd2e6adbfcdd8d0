"""Pools by the names of the profiles of CK Tile's dispatcher: what it enumerates for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.hip.attention.ck_tile import features, fitted, legality, profiles
from tilewright.backends.hip.attention.ck_tile.instance import Instance
from tilewright.backends.hip.attention.ck_tile.schedules import CkTileAttentionSchedule, computed, moving, route
from tilewright.backends.hip.attention.ck_tile.tiles import HEAD_SIZES
from tilewright.errors import RequestError
from tilewright.ops.attention.spec import AttentionSignature, normalized
from tilewright.ops.attention_terms import head_class
from tilewright.ops.base import Violation

_HALVES = ("fp16", "bf16")


def profile_schedules(pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[CkTileAttentionSchedule]:
    chosen = profiles.profile(pool)
    if _allows(chosen, computed(signature, arch.name)):
        yield from enumerated(signature, arch, chosen.receipt)


def enumerated(signature: AttentionSignature, arch: Arch, receipt: int) -> Iterator[CkTileAttentionSchedule]:
    """What the dispatcher enumerates for what a signature computes: its tiles with its pipelines and paddings."""
    where, inst = route(signature), computed(signature, arch.name)
    like = fitted.read(legality.alike(inst))  # what blocks do not depend on is left out: signatures share them
    for pipeline, pads in features.choices(inst, receipt):
        if where in ("combine", "append"):
            yield from (replace(each, pad=pads) for each in moving(signature, where))
        else:
            yield from fitted.blocks(like, pipeline, pads)


def has_kernel(pool: str, signature: AttentionSignature, arch: Arch) -> bool:
    """Whether a pool by a profile's name holds a kernel of CK Tile for a signature."""
    if any(violation.rule == "amd-attention-arch" for violation in legality.ck_tile_rules(signature, arch)):
        return False
    return any(map(legality.VERDICTS.schedules(signature, arch), profile_schedules(pool, signature, arch)))


def _allows(chosen: profiles.Profile, inst: Instance) -> bool:
    """Whether a profile has a kernel.  Its heads of 48 elements are in our kernels of 64."""
    return chosen.allows(inst) or (
        inst.hdim_q == inst.hdim_v == 64 and chosen.allows(replace(inst, hdim_q=48, hdim_v=48))
    )


def profile_violations(pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
    chosen = profiles.profile(pool)
    inst = computed(signature, arch.name)
    if not _allows(chosen, inst):
        yield profiles.violation("amd-attention-profile", chosen, signature.label(), inst)


def pool_signatures(pool: str, arch: Arch) -> Iterator[AttentionSignature]:
    """What the dispatcher enumerates: element types of the arch, their head sizes, and features of each family.

    Element types that these headers have nothing for are among them: rules say why there is no kernel.  Archs that it
    does not know have fp16 and bf16, in kernels of our own.  None at all is an error that says why.
    """
    chosen = profiles.profile(pool)
    seen: set[AttentionSignature] = set()
    kinds = (arch.ck_tile_of("attention") or {}).get("dtypes", _HALVES)
    for kind in kinds:
        types = _types(kind, arch)
        sizes = dict.fromkeys((head_class(qk), head_class(v)) for qk, v in HEAD_SIZES.get(kind, ()))
        scales = ("none",) if kind in _HALVES or kind == "fp32" else ("none", "tensor")
        for (qk, v), has, scale in product(sizes if types else (), _feature_sets(), scales):
            signature = normalized(AttentionSignature(**types, head_dim=qk, head_dim_v=v, scales=scale, **has))
            if signature not in seen and _allows(chosen, computed(signature, arch.name)):
                seen.add(signature)
                yield signature
    if not seen:
        usual = computed(AttentionSignature("forward", "fp16", "fp16", "fp16"), arch.name)
        empty = profiles.violation("pool-empty", chosen, f"the pool {pool} has no kernel on {arch.name}", usual)
        raise RequestError(
            f"{empty.message}, and the dispatcher's kernels for {arch.name} are of {', '.join(kinds)}",
            rule="pool-empty", value=pool, remedy=empty.remedy,
        )  # fmt: skip


def _types(kind: str, arch: Arch) -> dict[str, Any]:
    """The element types of a word of the dispatcher; none where results would be fp8, which no call has."""
    if kind in (*_HALVES, "fp32"):
        return {"dtype_q": kind, "dtype_kv": kind, "dtype_out": kind, "dtype_aux": kind}
    out = kind.removeprefix("fp8")
    if out not in (*_HALVES, "fp32"):
        return {}
    narrow = "fp8_e4m3fnuz" if "fp8-fnuz" in arch.features else "fp8_e4m3"
    return {"dtype_q": narrow, "dtype_kv": narrow, "dtype_out": out}


def _feature_sets() -> Iterator[dict[str, Any]]:
    for mask, packed, lse in product(("none", "window"), (False, True), (False, True)):
        plain: dict[str, Any] = {"family": "forward", "mask": mask, "varlen": packed, "return_lse": lse}
        yield from ({**plain, "bias": bias} for bias in ("none", "alibi"))
        yield {**plain, "softcap": True}
        if not packed:
            yield {**plain, "bias": "tensor"}
        yield {**plain, "pages": "strided", "page_lookup": "table"}
        if packed:
            yield {**plain, "pages": "strided", "page_lookup": "indices"}
        yield {**plain, "family": "split"}
        yield {**plain, "family": "split", "pages": "strided", "page_lookup": "table"}
        yield {**plain, "family": "combine"}
    for rotary, pages in product(("none", "interleaved", "half"), ("none", "strided")):
        yield {
            "family": "append",
            "rotary": rotary,
            "pages": pages,
            "page_lookup": "none" if pages == "none" else "table",
        }
