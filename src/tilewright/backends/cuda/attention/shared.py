"""What attention pipelines of NVIDIA GPUs have alike: what wgmma and the copy engine ask, and what threads hold."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import Violation

INPUTS = ("bf16", "fp16")
FEATURE_REGISTERS = 16


def engine_rules(
    pipeline: str, signature: AttentionSignature, arch: Arch, inputs: tuple[str, ...], otherwise: str
) -> Iterator[Violation]:
    """`otherwise` is the pipeline that takes what this one does not."""
    s = signature
    if not {"wgmma", "tma"} <= arch.features:
        message = f"{pipeline} needs wgmma and TMA, which {arch.name} has not"
        yield Violation("nv-arch", message, f"use target sm_90a, or {otherwise}")
    if s.dtype_q not in inputs or s.dtype_kv != s.dtype_q:
        message = f"{pipeline} of {s.dtype_q} queries and {s.dtype_kv} keys"
        yield Violation("nv-inputs", message, f"use {' or '.join(inputs)} for both, or {otherwise}")
    if s.pages == "vectorised":
        message = "the copy engine reads rows, not vectors of slots"
        yield Violation("nv-pages", message, f"use strided pages, or {otherwise}")


def feature_registers(signature: AttentionSignature) -> int:
    """What a thread holds beside the plain: for what is done to scores before the softmax, and for dropout after it."""
    changed = signature.softcap or signature.bias != "none" or signature.masked
    return FEATURE_REGISTERS * (changed + signature.dropout)


def register_rule(taken: int, allowed: int, remedy: str) -> Iterator[Violation]:
    if taken > allowed:
        message = f"results, scores and weights take {taken} of {allowed} registers"
        yield Violation("nv-registers", message, remedy)


def shared_rule(taken: int, available: int) -> Iterator[Violation]:
    if taken > available:
        message = f"rows and stages take {taken} of {available} bytes of shared memory"
        yield Violation("nv-shared-memory", message, "use fewer stages or a smaller tile_n")
