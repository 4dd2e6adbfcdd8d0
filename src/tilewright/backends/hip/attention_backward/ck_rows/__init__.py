"""ck_rows: CK Tile's dot_do_o and convert_dq, over its headers of mid-2025.

A block of dot_do_o puts lse in powers of two beside what it computed.  Sums are scaled where they are converted, so
convert_dq runs a pipeline of ours; heads of keys whose sums are in parts are added up as CK Tile adds slices of dq.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.hip.attention_backward.ck_tile import dispatcher, legality
from tilewright.backends.hip.attention_backward.ck_tile.receipts import POOLS
from tilewright.backends.hip.attention_backward.ck_tile.tiles import ROWS, CkRowsSchedule
from tilewright.backends.hip.attention_backward.shared import HipAttentionBackwardFamily
from tilewright.backends.hip.ck_tile import chosen
from tilewright.backends.hip.profiles import named, profile
from tilewright.dtypes import dtype
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec, Violation

COMPILE_MEMORY = 2 << 30  # peak resident size of one compile, rounded up
DEVICE = "tilewright/hip/attention_backward/ck_rows/device.h"
THREADS = {"dot_do_o": ROWS, "convert_dq": 256}


class CkRows(HipAttentionBackwardFamily):
    name = "ck_rows"
    schedules = (CkRowsSchedule,)

    def host(self, spec: KernelSpec) -> str:
        return f"CkRows{spec.signature.family.capitalize()}"

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[CkRowsSchedule]:
        """Not in `default`: our own reads 16 bytes a lane of whole rows, where each lane of these reads a row."""
        if signature.family == "grad" or next(legality.arch_rules(arch), None) is not None:
            return
        if pool in POOLS:
            for schedule in dispatcher.profile_schedules(pool, signature, arch):
                if isinstance(schedule, CkRowsSchedule):
                    yield schedule
        elif pool in ("full", "profiler") and next(self.signature_rules(signature, arch), None) is None:
            pipeline, ordered = ("dot_do_o", (False,)) if signature.family == "dot" else ("convert_dq", (False, True))
            for rows, head, each in product((True, False), (False, True), ordered):
                yield CkRowsSchedule(pipeline, (rows, head), each)

    def signature_rules(self, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Violation]:
        if absent := list(legality.arch_rules(arch)):
            yield from absent
            return
        yield from legality.common_rules(signature)
        if signature.family == "convert" and signature.varlen:
            message = "packed rows: CK Tile's convert_dq leaves rows that no sequence has as they were"
            yield Violation("amd-backward-packed", message, "use rows")

    def violations(
        self, signature: AttentionBackwardSignature, schedule: CkRowsSchedule, arch: Arch
    ) -> Iterator[Violation]:
        s, h = signature, schedule
        yield from self.signature_rules(s, arch)
        if h.pipeline != ("dot_do_o" if s.family == "dot" else "convert_dq"):
            yield Violation(
                "amd-backward-family", f"{h.pipeline} does not compute {s.family}", "use the other pipeline"
            )
        elif h.deterministic and h.pipeline == "dot_do_o":
            yield Violation("amd-backward-deterministic", "dot_do_o adds up nothing that is in parts", "leave it out")

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CkRowsSchedule = spec.schedule
        return {
            "tile_head": spec.signature.head_dim_v, "pad_rows": int(h.pad[0]), "pad_head": int(h.pad[1]),
            "ordered": int(h.deterministic),
        }  # fmt: skip

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        version, s, h = chosen(), spec.signature, spec.schedule
        kind = {"type": named(profile(version).types, "type", s.dtype, version), "bytes": dtype(s.dtype).bytes}
        switches = {"pad_rows": h.pad[0], "pad_head": h.pad[1], "deterministic": h.deterministic}
        fields = {"threads": THREADS[h.pipeline], **{name: str(bool(on)).lower() for name, on in switches.items()}}
        return {**super().context(spec), "route": s.family, "includes": [DEVICE], "element": kind, "fields": fields}

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


FAMILY = CkRows()
