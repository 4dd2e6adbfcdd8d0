"""Pipelines that came with CK Tile's headers of late 2025: built with those, and found through them alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import amd_toolchain, late_headers
from tilewright import settings
from tilewright.arch import arch
from tilewright.backends.hip.attention import KERNELS
from tilewright.build import build_many
from tilewright.build.inspected import inspect_spec
from tilewright.errors import ToolchainError
from tilewright.ops import op
from tilewright.ops.attention import AttentionSignature
from tilewright.ops.base import KernelSpec

pytestmark = pytest.mark.amd

SIGNATURE = AttentionSignature("forward", "bf16", "bf16", "bf16", mask="window", return_lse=True, varlen=True)


@pytest.fixture
def late() -> Iterator[None]:
    if reason := late_headers.why_none():
        pytest.skip(reason)
    with amd_toolchain.in_force(), settings.override(ck_tile=str(late_headers.USUAL)):
        yield


def of_v3() -> KernelSpec:
    proposed = KERNELS.schedules("default", SIGNATURE, arch("gfx950"))
    return KernelSpec("attention", SIGNATURE, next(one for one in proposed if one.pipeline == "v3"), "gfx950")


@pytest.mark.usefixtures("late")
def test_v3_builds_with_its_headers_waits_for_all_it_reads_and_keeps_nothing_in_memory() -> None:
    spec = of_v3()
    assert not op("attention").check(spec)
    built = build_many([spec])[spec.digest]
    assert built.manifest["promises"] == "kept"
    found = inspect_spec(spec)
    resources = [one.resources for one in found.functions if one.resources is not None]
    assert resources
    assert not any(one.scratch_bytes or one.vgpr_spills or one.sgpr_spills for one in resources), resources


@pytest.mark.usefixtures("late")
def test_with_these_headers_other_pipelines_are_refused_before_a_compiler_is_asked() -> None:
    proposed = list(KERNELS.schedules("default", SIGNATURE, arch("gfx950")))
    older = [KernelSpec("attention", SIGNATURE, one, "gfx950") for one in proposed if one.pipeline == "qr_async"]
    assert older
    for spec in older:
        assert "amd-attention-headers" in [one.rule for one in op("attention").check(spec)]
    with pytest.raises(ToolchainError, match="late-2025"):
        build_many(older[:1])
