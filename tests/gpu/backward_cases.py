"""The cases of attention's gradients that are asked of a GPU: what signatures have, and the kernels of each."""

from __future__ import annotations

from dataclasses import dataclass

from tests.emulated_hopper.test_attention_backward import like
from tilewright import ops
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.base import KernelSpec

BACKWARD = ops.op("attention_backward")
ROWS = (1, 3, 64, 127, 128, 129, 300, 1000)
KEYS = (0, 1, 63, 128, 300, 777, 1024)


@dataclass(frozen=True)
class Case:
    name: str
    first: AttentionBackwardProblem

    def specs(self, arch: str) -> list[KernelSpec]:
        """The default kernels of the signature, and the floor."""
        legal = [one for one in BACKWARD.candidates(self.first.signature, arch) if not BACKWARD.check(one)]
        floor = BACKWARD.fallback_spec(self.first.signature, arch)
        return list({one.digest: one for one in (*legal, floor)}.values())


def cases() -> list[Case]:
    found: dict[str, AttentionBackwardProblem] = {}
    for head in (32, 64, 96, 128):
        found[f"h{head}"] = like(head)
        found[f"h{head}_causal"] = like(head, window_right=0)
    for head in (64, 128, 160, 256):
        found[f"mma_h{head}"] = like(head, accumulate="none", window_right=0)
    found |= {
        "h128x64": like(128, 64, window_right=0),
        "alibi": like(128, bias="alibi", window_right=0),
        "bias": like(64, bias="tensor", dtype_aux="bf16", mask_shape=(1, 1, 1, 1)),
        "dbias": like(128, bias="tensor", dbias=True, window_right=0),
        "dropout": like(128, dropout=True, window_right=0),
        "dropout_packed": like(96, dropout=True, varlen=True, accumulate="all", bias="alibi"),
        "wide_h256": like(256, window_right=0),
        "wide_h256_whole": like(256),
        "wide_latent": like(192, 128, window_right=0),
        "wide_h160": like(160, accumulate="all"),
        "wide_packed": like(192, varlen=True, bias="alibi", window_right=0),
        "shared": like(128, accumulate="all", window_right=0),
        "shared_h64": like(64, accumulate="all"),
        "shared_packed": like(128, varlen=True, accumulate="all", window_right=0),
        "shared_window": like(96, accumulate="all", window_left=100, window_right=0, dtype="fp16"),
        "fp16": like(128, dtype="fp16", window_right=0),
        "packed": like(128, varlen=True, window_right=0),
        "packed_h64": like(64, varlen=True),
        "window": like(128, window_left=100, window_right=0),
        "sinks": like(64, window_left=16, window_right=0, sink_tokens=4),
        "softcap": like(128, softcap=True, window_right=0),
        "mma_h192x128": like(192, 128, accumulate="none", window_right=0),
        "mma_packed": like(64, accumulate="none", varlen=True, window_right=0),
        "mma_alibi": like(128, accumulate="none", softcap=True, bias="alibi", dalibi=True, window_right=0),
        "mma_bias": like(64, accumulate="none", bias="tensor", mask_shape=(1, 1, 1, 1), dtype_aux="bf16", dbias=True),
        "mma_dropout": like(128, accumulate="none", dropout=True, window_right=0),
        "fp32": like(64, accumulate="none", dtype="fp32", window_right=0),
        "dot": like(128, family="dot", dlse=True, dsink=True),
        "dot_packed": like(64, family="dot", varlen=True),
        "convert": like(128, family="convert", accumulate="dq"),
        "convert_packed": like(64, family="convert", accumulate="all", varlen=True),
    }
    return [Case(*one) for one in found.items()]
