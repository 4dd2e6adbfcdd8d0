"""All the HIP backend knows of attention's gradients: its kernel families, and what they share.

ck_tile  grad: CK Tile's kernel of dq, dk and dv on gfx90a, gfx942 and gfx950
tiled    grad: our own, wherever there is a matrix instruction: any stride, size and feature
rows     dot and convert: 16 bytes a thread
ck_rows  dot and convert: CK Tile's dot_do_o and convert_dq, in pools beside `default`
loops    the fallback, on every GPU: the loops that CUDA has too

Pools beside the usual ones go by the names of CK Tile's profiles: what its generator of mid-2025 writes for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from importlib import resources

from tilewright.arch import Arch
from tilewright.backends.families import OpFamilies
from tilewright.backends.hip.attention_backward import ck_rows
from tilewright.backends.hip.attention_backward.ck_tile import DEVICE, backward_profile, dispatcher, legality
from tilewright.backends.hip.attention_backward.ck_tile import FAMILY as CK_TILE
from tilewright.backends.hip.attention_backward.ck_tile.receipts import POOLS
from tilewright.backends.hip.attention_backward.loops import FAMILY as LOOPS
from tilewright.backends.hip.attention_backward.rates import arch_numbers, rates
from tilewright.backends.hip.attention_backward.rows import FAMILY as ROWS
from tilewright.backends.hip.attention_backward.tiled import FAMILY as TILED
from tilewright.backends.hip.ck_tile import included
from tilewright.backends.hip.profiles import PACKAGE, Needs, has_part
from tilewright.backends.native import FamiliesNative
from tilewright.ops.attention_backward.family import AttentionBackwardSpace
from tilewright.ops.attention_backward.numbers import PROBLEM, problem_numbers
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.schedule import AttentionBackwardSchedule, LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature, signature_violations
from tilewright.ops.base import KernelSpec, Violation


class HipAttentionBackward(OpFamilies, AttentionBackwardSpace):
    backend, op = "hip", "attention_backward"
    own = (CK_TILE, TILED, ROWS, ck_rows.FAMILY, LOOPS)
    USUAL = "fp16"
    POOLS = POOLS

    def signature_rules(self, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Violation]:
        """Why the arch has no kernel for a signature, whatever its schedule."""
        yield from signature_violations(signature)

    def fallback_schedule(self, signature: AttentionBackwardSignature, arch: Arch) -> AttentionBackwardSchedule:
        return LoopsSchedule()

    def pool_signatures(self, pool: str, arch: Arch) -> Iterator[AttentionBackwardSignature]:
        return dispatcher.pool_signatures()

    def pool_rules(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Violation]:
        """Why a pool of CK Tile's profiles has nothing of a signature."""
        yield from legality.arch_rules(arch)
        yield from dispatcher.profile_violations(pool, signature, arch)
        ours = next(TILED.proposals(pool, signature, arch), None)
        if ours is None and next(iter(dispatcher.generated(signature)), None) is None:
            owner = CK_TILE if signature.family == "grad" else ck_rows.FAMILY
            yield from owner.signature_rules(signature, arch)

    def accumulates(self, problem: AttentionBackwardProblem, arch: Arch) -> tuple[str, ...]:
        """dq is added up where CK Tile has a kernel for the problem, dk and dv too where query heads share keys or
        sequences differ; else kernels write them themselves."""
        for sums in ("dq", "all"):
            stage = problem.stage("grad", sums)
            for schedule in CK_TILE.proposals("default", stage.signature, arch):
                spec = KernelSpec("attention_backward", stage.signature, schedule, arch.name)
                if next(iter(self.limits(spec, stage)), None) is None:
                    return (sums, "none")
        return ("none",)

    def header_needs(self, version: str) -> Needs | None:
        if not has_part(PACKAGE, f"attention_backward.{version}.json"):
            return None
        part = backward_profile(version)
        folder = resources.files("tilewright.backends.hip.attention_backward.ck_tile").joinpath("include")
        of_rows = resources.files("tilewright.backends.hip.attention_backward.ck_rows").joinpath("include")
        needed = tuple(included(of_rows.joinpath(ck_rows.DEVICE).read_text(encoding="utf-8")))
        kinds = {"dot dot_do_o": needed, "convert convert_dq": needed}
        for name, pipeline in part.pipelines.items():
            ours = (DEVICE, *(each for each in pipeline["includes"] if each.startswith("tilewright/")))
            texts = [folder.joinpath(each).read_text(encoding="utf-8") for each in ours]
            theirs = (each for each in pipeline["includes"] if each not in ours)
            kinds[f"grad {name}"] = (*theirs, *(each for text in texts for each in included(text)))
        return Needs(part.told_by, kinds)

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(
            self, "tw::selection::AttentionBackward", PROBLEM, problem_numbers, arch_numbers, rates
        )  # fmt: skip


KERNELS = HipAttentionBackward()
