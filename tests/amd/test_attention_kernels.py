"""CK Tile's attention through the whole path: built, inspected and loaded.  What it computes is shown by
tests/amd_emulated.

One instance takes some twenty seconds of a core, so there are few: one that multiplies, the two that only move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests import amd_toolchain
from tilewright.arch import arch
from tilewright.backends.hip.attention.ck_tile import schedules as amd_schedules
from tilewright.build import build_many
from tilewright.build.builder import Artifact
from tilewright.build.inspected import inspect_spec
from tilewright.ops.attention import AttentionSignature
from tilewright.ops.attention.spec import normalized
from tilewright.ops.base import KernelSpec

pytestmark = pytest.mark.amd

PLAIN = AttentionSignature("forward", "bf16", "bf16", "bf16", head_dim=64, head_dim_v=64)
SIGNATURES = (
    replace(PLAIN, mask="window", return_lse=True, varlen=True, dropout=True),
    normalized(replace(PLAIN, family="combine", return_lse=True)),
    normalized(replace(PLAIN, family="append", rotary="half", dtype_aux="bf16", pages="strided", page_lookup="table")),
)


def first(signature: AttentionSignature) -> KernelSpec:
    return KernelSpec("attention", signature, next(amd_schedules.default(signature, arch("gfx942"))), "gfx942")


SPECS = [first(one) for one in SIGNATURES]


@pytest.fixture(scope="module")
def built() -> Mapping[str, Artifact]:
    with amd_toolchain.in_force():
        return build_many(SPECS)


@pytest.mark.parametrize("spec", SPECS, ids=lambda one: str(one.signature.family))
def test_kernels_build_and_keep_nothing_in_memory(spec: KernelSpec, built: Mapping[str, Artifact]) -> None:
    one = built[spec.digest]
    multiplies = spec.signature.family == "forward"  # others only move and add: they promise no matrix instruction
    assert one.manifest["promises"] == ("kept" if multiplies else "nothing promised")
    with amd_toolchain.in_force():
        found = inspect_spec(spec)
    resources = [one.resources for one in found.functions if one.resources is not None]
    assert resources
    assert not any(one.scratch_bytes or one.vgpr_spills or one.sgpr_spills for one in resources), resources
