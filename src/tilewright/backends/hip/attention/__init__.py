"""All the HIP backend knows of attention: its kernel families, and what they share.

ck_tile  CK Tile's kernels where it has them.  Pools beside the usual ones go by the names of its dispatcher's profiles
tiled    our own, wherever there is a matrix instruction: any stride, size and feature
loops    the fallback, on every GPU: the loops that CUDA has too
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import resources
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.families import OpFamilies
from tilewright.backends.gpu.attention import KvSplits
from tilewright.backends.hip.attention.ck_tile import FAMILY as CK_TILE
from tilewright.backends.hip.attention.ck_tile import pools, select, versions
from tilewright.backends.hip.attention.ck_tile.legality import ck_tile_rules
from tilewright.backends.hip.attention.ck_tile.profiles import POOLS
from tilewright.backends.hip.attention.ck_tile.templates import example_kernel
from tilewright.backends.hip.attention.ck_tile.versions import attention_profile
from tilewright.backends.hip.attention.loops import FAMILY as LOOPS
from tilewright.backends.hip.attention.rates import arch_numbers, rates
from tilewright.backends.hip.attention.tiled import FAMILY as TILED
from tilewright.backends.hip.ck_tile import included
from tilewright.backends.hip.profiles import PACKAGE, Needs, has_part
from tilewright.backends.native import FamiliesNative
from tilewright.ops.attention.numbers import PROBLEM, problem_numbers
from tilewright.ops.attention.schedule import AttentionSchedule, LoopsSchedule
from tilewright.ops.attention.spec import AttentionSignature, signature_violations
from tilewright.ops.base import KernelSpec, Violation


class HipAttention(KvSplits, OpFamilies):
    backend, op = "hip", "attention"
    own = (CK_TILE, TILED, LOOPS)
    USUAL = "fp16"
    POOLS = POOLS
    SELECTION_RULES = select.RULES

    def signature_rules(self, signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
        """Why the arch has no kernel for a signature, whatever its schedule."""
        yield from signature_violations(signature)

    def fallback_schedule(self, signature: AttentionSignature, arch: Arch) -> AttentionSchedule:
        return LoopsSchedule()

    def pool_signatures(self, pool: str, arch: Arch) -> Iterator[AttentionSignature]:
        return pools.pool_signatures(pool, arch)

    def pool_rules(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
        """Why a pool of the dispatcher's profiles has nothing of a signature."""
        return pools.profile_violations(pool, signature, arch)

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(self, "tw::selection::Attention", PROBLEM, problem_numbers, arch_numbers, rates)

    def shared_example(self, arch: str) -> KernelSpec | None:
        spec = example_kernel(arch)
        if f"{spec.signature.family} {spec.schedule.pipeline}" not in versions.written(versions.current()):
            return None
        return spec if next(ck_tile_rules(spec.signature, arch_by_name(arch)), None) is None else None

    def shared_context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return CK_TILE.shared_context(spec)

    def header_needs(self, version: str) -> Needs | None:
        if not has_part(PACKAGE, f"attention.{version}.json"):
            return None
        part = attention_profile(version)
        kinds = {}
        for name, pipeline in part.pipelines.items():
            ours = [
                part.routes[name.split()[0]],
                *(each for each in pipeline["includes"] if each.startswith("tilewright/")),
            ]
            texts = [_header(each) for each in ours]
            theirs = [each for each in pipeline["includes"] if each not in ours]
            kinds[name] = (*theirs, *(each for text in texts for each in included(text.read_text(encoding="utf-8"))))
        return Needs(part.told_by, kinds)


def _header(path: str) -> Any:
    """A header of ours, by the path it is included by."""
    folder = resources.files("tilewright.backends.hip.attention.ck_tile").joinpath("include")
    return folder.joinpath(path)


KERNELS = HipAttention()
