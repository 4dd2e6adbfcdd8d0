"""ck_tile: instances of CK Tile's templates, which multiply with matrix instructions on CDNA.

Which of them are legal ck_tile_rules.py says; here is what a packed B adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.backends.hip.ck_tile import chosen
from tilewright.backends.hip.ck_tile_pipelines import PIPELINES, number_of
from tilewright.backends.hip.ck_tile_rules import MAX_SPLIT_K, ck_tile_rules, instance_rules, is_whole
from tilewright.backends.hip.gemm.ck_tile import proposals
from tilewright.backends.hip.gemm.ck_tile.schedule import CkTileSchedule
from tilewright.backends.hip.gemm.ck_tile.templates import gemm_profile, template_words
from tilewright.backends.hip.gemm.code_models import issue
from tilewright.backends.hip.gemm.shared import HipGemmFamily, tile_numbers
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.copies import CopiedSizes, whole_rows
from tilewright.ops.gemm.schedule import Shape
from tilewright.ops.gemm.spec import GemmSignature
from tilewright.ops.rules import LegalByKey

__all__ = ["FAMILY", "CkTileSchedule"]

# Peak resident size of one compile of a CK Tile GEMM with all its tails, rounded up.
COMPILE_MEMORY = 1 << 30
# The matrix instructions of an arch by its feature.
_MATRIX = {"mfma": ("v_mfma_", "v_smfmac_"), "wmma": ("v_wmma_", "v_swmmac_")}


def _packed(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    if (signature.variant == "preshuffle") != shape.pipeline_of(schedule).packed_b:
        yield Violation(
            "amd-preshuffle",
            f"variant {signature.variant} with pipeline {schedule.pipeline}",
            "variant and pipeline preshuffle go together",
        )
    if schedule.split_k > 1 and signature.variant == "preshuffle":
        yield Violation(
            "amd-split-k",
            f"split_k {schedule.split_k} with a packed B, which has no offset for parts",
            "use another variant, or split_k 1",
        )


def _preshuffle(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    if not shape.pipeline_of(schedule).packed_b or not is_whole(schedule):
        return
    size = shape.bytes_of(signature.dtype_a)
    m, _, k = schedule.tile
    waves = shape.threads(schedule) // shape.WAVE
    if signature.layout != "rcr":
        yield Violation("amd-preshuffle", f"layout {signature.layout} with a preshuffled B", "use rcr")
    if schedule.store != "cshuffle":
        yield Violation("amd-preshuffle", f"the {schedule.store} store with a preshuffled B", "use cshuffle")
    if schedule.warp_tile[1] not in (16, 32):
        yield Violation(
            "amd-preshuffle",
            f"warp_tile_n {schedule.warp_tile[1]} has no packed order",
            "use a 16- or 32-wide warp tile",
        )
    if schedule.pad[2]:
        yield Violation("amd-preshuffle", "a packed B ends with k: there is no edge code along k", "use pad_k false")
    share = schedule.warp_tile[0] * schedule.warp_tile[2] * size * shape.repeat(schedule)[0] // shape.WAVE
    if share % shape.NATIVE_BYTES:
        yield Violation(
            "amd-preshuffle", f"a lane's share of A is {share} bytes, not a multiple of 16", "use a larger tile_m"
        )
    across = k * size // shape.NATIVE_BYTES
    if across < 1 or shape.WAVE % across:
        yield Violation(
            "amd-preshuffle", f"a row of A takes {across} lanes, which does not divide 64", "use a smaller tile_k"
        )
        return
    if m % (shape.WAVE // across * waves):
        yield Violation(
            "amd-preshuffle",
            f"tile_m {m} is not a multiple of the {shape.WAVE // across * waves} rows of A the lanes load at once",
            "use a larger tile_m or fewer waves",
        )
    loads = m * k // shape.threads(schedule) // (shape.NATIVE_BYTES // size)
    reads = shape.repeat(schedule)[0] * (k // schedule.warp_tile[2])
    if schedule.warp_tile[1] == 16 and reads < loads:
        yield Violation(
            "amd-preshuffle",
            f"{loads} loads of A but {reads} reads from LDS: the schedule of 16-wide warp tiles needs as many reads",
            "use more waves along n",
        )


_SHAPED = attrgetter("pipeline", "tile", "warp_tile", "warp_grid", "store", "persistent", "store_width")


def _read_by_rules(schedule: CkTileSchedule) -> tuple[Any, ...]:
    """A schedule without what no rule tells apart: schedulers that the pipeline has, edge code (but along k of a packed
    B), and how many parts of k there are."""
    pipeline, parts = PIPELINES.get(schedule.pipeline), schedule.split_k
    if pipeline is None:
        return (schedule,)
    other = "" if schedule.scheduler in pipeline.schedulers else schedule.scheduler
    edge = pipeline.packed_b and schedule.pad[2]
    return _SHAPED(schedule), other, edge, 2 if 1 < parts <= MAX_SPLIT_K else parts


class CkTile(HipGemmFamily):
    name = "ck_tile"
    schedules = (CkTileSchedule,)
    template = ("tilewright.backends.hip.gemm.ck_tile", "ck_tile.hpp.jinja")

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
        return proposals.proposals(pool, signature, arch)

    def violations(self, signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
        yield from ck_tile_rules(signature, arch)
        if "wmma" in arch.features or not arch.warp_tiles:
            return  # where CK Tile has nothing there is one reason, and no schedule fixes it
        yield from _packed(signature, schedule, arch)
        yield from instance_rules(signature, schedule, arch)
        yield from _preshuffle(signature, schedule, arch)

    def legal_schedules(self, signature: GemmSignature, arch: Arch) -> Callable[[CkTileSchedule], bool]:
        return LegalByKey(_read_by_rules, self.violations).schedules(signature, arch)

    def grains(self, schedule: CkTileSchedule) -> Shape:
        m, n, k = schedule.tile
        whole = m, n, k * schedule.split_k * shape.pipeline_of(schedule).loop_step
        m, n, k = (1 if edge else step for edge, step in zip(schedule.pad, whole, strict=True))
        return m, n, k

    def copied_sizes(self, schedule: CkTileSchedule, signature: GemmSignature) -> CopiedSizes:
        """Whole accesses, and a k of as many turns of the loop as the pipeline needs (`shape.loops`)."""
        step, loops = schedule.tile[2] * schedule.split_k, shape.least_loops(schedule)
        widths = shape.width_a(signature, schedule), shape.width_b(signature, schedule), 1
        return CopiedSizes(whole_rows(signature.layout, widths), short_k=step * (loops - 1) + 1, least_k=step * loops)

    def pack_format(self, schedule: CkTileSchedule) -> tuple[object, ...]:
        """A packed B is panels of warp_tile_n columns, each in the order the lanes load warp_tile_k of it."""
        return schedule.warp_tile[1:]

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CkTileSchedule = spec.schedule
        grains = dict(zip(("grain_m", "grain_n", "grain_k"), self.grains(h), strict=True))
        return {
            **tile_numbers(h.tile), **grains, "pipeline": number_of(h.pipeline), "warp_tile_n": h.warp_tile[1],
            "split_k": h.split_k, "threads": shape.threads(h), "width_a": shape.width_a(spec.signature, h),
            "width_b": shape.width_b(spec.signature, h), "issue": issue(spec),
        }  # fmt: skip

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        words = template_words(spec)
        return {**super().context(spec), **words, "shared": False, "includes": words["pipeline"]["includes"]}

    def shared_context(self, spec: KernelSpec) -> Mapping[str, Any]:
        """Of the text that is precompiled: the includes of every pipeline, and a kernel that exports nothing."""
        every = (header for each in gemm_profile(chosen()).pipelines.values() for header in each["includes"])
        # An example must not meet the kernel of the same spec.
        shared = {"shared": True, "includes": list(dict.fromkeys(every)), "space": "tw_shared"}
        return {**super().context(spec), **template_words(spec), **shared}

    def promises(self, spec: KernelSpec) -> Promises:
        """Matrix instructions where the arch has them."""
        features = arch_by_name(spec.arch).features
        return Promises(tuple(name for feature, names in _MATRIX.items() if feature in features for name in names))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


FAMILY = CkTile()
