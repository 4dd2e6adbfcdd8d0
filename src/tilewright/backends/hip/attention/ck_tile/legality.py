"""What is legal of CK Tile's attention: which signatures it has kernels for, and which heads, beside its own rules.

Rules of its dispatcher are in `rules.py`, of its headers in `headers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tilewright import settings
from tilewright.arch import Arch
from tilewright.backends.hip.attention.ck_tile import headers, later, rules, versions
from tilewright.backends.hip.attention.ck_tile.instance import Instance
from tilewright.backends.hip.attention.ck_tile.schedules import (
    CkTileAttentionSchedule,
    computed,
    instance,
    route,
    scheduled,
)
from tilewright.ops.attention.spec import FP8, AttentionSignature
from tilewright.ops.base import Violation
from tilewright.ops.rules import numbers_are_legal

_HALVES = ("fp16", "bf16")


def ck_tile_rules(signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
    """Why CK Tile has no kernel for a signature, whatever its schedule."""
    s = signature
    if "mfma" not in arch.features or not arch.accumulator_registers or arch.ck_tile_of("attention") is None:
        yield Violation(
            "amd-attention-arch",
            f"CK Tile's attention on {arch.name}: these headers multiply with the matrix instructions of gfx90a and up",
            "use loops, or gfx90a, gfx942 or gfx950",
        )
        return
    if s.family != "combine" and (s.dtype_kv != s.dtype_q):
        yield Violation("amd-attention-dtype", f"keys of {s.dtype_kv} with queries of {s.dtype_q}", "use one type")
    if s.family == "forward" and s.dtype_q in _HALVES and s.dtype_out != s.dtype_q:
        yield Violation("amd-attention-dtype", f"results of {s.dtype_out} of {s.dtype_q}", f"use {s.dtype_q}")
    narrow = "fp8_e4m3fnuz" if "fp8-fnuz" in arch.features else "fp8_e4m3"
    if s.dtype_q in FP8 and s.dtype_q != narrow:
        yield Violation("amd-attention-dtype", f"{s.dtype_q} on {arch.name}: it multiplies {narrow}", f"use {narrow}")
    if s.masked:
        yield Violation(
            "amd-attention-mask", "CK Tile knows no boolean mask", "give a bias that is minus infinity where it hides"
        )
    if (s.bias == "tensor" or s.rotary != "none") and s.dtype_aux != s.dtype_q:
        what = "a bias" if s.bias == "tensor" else "rotary tables"
        yield Violation("amd-attention-aux", f"{what} of {s.dtype_aux} with {s.dtype_q}", f"use {s.dtype_q}")
    if s.varlen and s.bias == "tensor":
        yield Violation(
            "amd-attention-packed-bias", "CK Tile lays the bias of packed rows by their packed places", "pad the rows"
        )
    if s.pages == "vectorised":
        yield Violation("amd-attention-pages", "vectorised pages: these headers know linear ones", "use linear pages")
    if s.family == "split" and s.page_lookup == "indices":
        yield Violation("amd-attention-pages", "split kernels find pages by a table", "give a block table")
    if s.family == "forward" and s.page_lookup == "indices" and not s.varlen:
        yield Violation("amd-attention-pages", "pages by indices go with packed rows", "pack the rows")


def violations(signature: AttentionSignature, schedule: CkTileAttentionSchedule, arch: Arch) -> Iterator[Violation]:
    broken = list(ck_tile_rules(signature, arch))
    yield from broken
    if any(violation.rule == "amd-attention-arch" for violation in broken):
        return
    yield from _of_instance(instance(signature, schedule, arch.name), arch)
    yield from _heads(signature, schedule)


def _of_instance(inst: Instance, arch: Arch) -> Iterator[Violation]:
    of_words = list(rules.violations(inst, arch))
    yield from of_words
    if not any(each.rule == "amd-attention-lengths" for each in of_words):
        yield from headers.violations(inst, arch)


def _is_legal(inst: Instance, arch: Arch) -> bool:
    """Whether `_of_instance` is empty; the rules of headers, which refuse most, come first."""
    if len(inst.tile) != TILE_NUMBERS or next(headers.violations(inst, arch), None) is not None:
        return False
    return next(rules.violations(inst, arch), None) is None


TILE_NUMBERS = 6
Known = dict[CkTileAttentionSchedule, bool]


class Verdicts:
    """Whether schedules are legal, remembered over signatures that no rule tells apart (`alike`).

    A test compares it with `violations`: a rule that reads more asks for a change of `alike`.
    """

    def __init__(self) -> None:
        # Of signatures that are alike, by their own rules of heads and by those of the instance; and of the version of
        # headers, for each has pipelines of its own.
        self._known: dict[tuple[Instance, bool, str], tuple[Known, Known]] = {}

    def schedules(self, signature: AttentionSignature, arch: Arch) -> Callable[[CkTileAttentionSchedule], bool]:
        """What says whether a schedule of a signature is legal."""
        inst, whole, of_instance = self._alike(signature, arch)
        in_force = settings.current()

        def is_legal(schedule: CkTileAttentionSchedule) -> bool:
            if settings.current() is not in_force:  # perhaps for headers of another version by now
                return self.schedules(signature, arch)(schedule)
            verdict = whole.get(schedule)
            if verdict is None:
                verdict = False
                if inst is not None and numbers_are_legal(schedule):
                    known = of_instance.get(schedule)
                    if known is None:
                        known = of_instance[schedule] = _is_legal(scheduled(inst, schedule), arch)
                    verdict = known and next(_heads(signature, schedule), None) is None
                whole[schedule] = verdict
            return verdict

        return is_legal

    def _alike(self, signature: AttentionSignature, arch: Arch) -> tuple[Instance | None, Known, Known]:
        if next(ck_tile_rules(signature, arch), None) is not None:
            return None, {}, {}
        inst = alike(computed(signature, arch.name))
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        version = versions.current()
        plain = self._known.setdefault((inst, False, version), ({}, {}))
        whole, _ = self._known.setdefault((inst, True, version), ({}, {})) if signature.varlen else plain
        return inst, whole, plain[1]


_MOST_KNOWN = 4096  # groups of signatures
_MOVING = ("batch_prefill", "fwd_appendkv", "fwd_splitkv_combine")  # families with rules of packed lengths
VERDICTS = Verdicts()


def alike(inst: Instance) -> Instance:
    """An instance without what no rule of instances reads: kernels that differ in nothing else are legal together."""
    plain = inst.bias == "no"
    return replace(
        inst,
        data_type="fp16" if inst.data_type == "bf16" else inst.data_type,
        lse=False,
        logits=inst.logits and (not plain or inst.arch == later.ARCH),
        mask="no" if plain else inst.mask,
        mode=inst.mode if inst.family in _MOVING else "batch",
        paged_kv=inst.paged_kv and inst.family != "fwd_splitkv",
    )


def _whole_heads(signature: AttentionSignature, schedule: CkTileAttentionSchedule) -> Iterator[Violation]:
    """Without edge code of heads (qr_async has none for K) a kernel serves heads as large as its tile alone, and its
    signature must let them be."""
    s, h, where = signature, schedule, route(signature)
    of_tile = (h.tile[2], h.tile[3]) if where == "append" else (h.tile[5], h.tile[3])
    for what, padded, tile, head in (
        ("q and k", h.pad[2] and h.pipeline != "qr_async", of_tile[0], s.head_dim),
        ("v", h.pad[3], of_tile[1], s.head_dim_v),
    ):
        if not padded and where != "combine" and tile > head:
            yield Violation(
                "amd-attention-whole-heads",
                f"no edge code of heads of {what}, and a tile of {tile} elements where heads have {head}",
                "pad the heads, or use a tile as large as they are",
            )


def _heads(signature: AttentionSignature, schedule: CkTileAttentionSchedule) -> Iterator[Violation]:
    where, h = route(signature), schedule
    yield from _whole_heads(signature, schedule)
    if where in ("combine", "append"):
        return
    if h.tile[3] < signature.head_dim_v:
        yield Violation(
            "amd-attention-n1", f"tile_n1 {h.tile[3]} under heads of {signature.head_dim_v}", "use a larger"
        )
    if h.pipeline == "qs" and signature.varlen:
        yield Violation(
            "amd-attention-qs-packed", "qs with packed keys: a sequence without keys would be walked", "use qr"
        )
    if signature.varlen and not (h.pad[0] and (h.pad[1] or where == "split")):
        yield Violation(
            "amd-attention-packed-pads", "packed rows without edge code of rows and keys", "pad rows and keys"
        )
    if where in ("split", "paged") and not h.pad[1]:
        yield Violation(
            "amd-attention-paged-pads",
            f"{where} without edge code of keys: parts and last pages end anywhere",
            "pad the keys",
        )
