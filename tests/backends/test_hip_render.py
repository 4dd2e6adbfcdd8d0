"""What the HIP backend emits, to the byte, and that a profile names everything legality lets pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends.hip.gemm import names as amd
from tilewright.backends.base import backend
from tilewright.backends.hip import profiles
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.backends.hip.gemm.ck_tile.templates import gemm_profile
from tilewright.codegen import collect, generate
from tilewright.dtypes import DTYPES
from tilewright.errors import UnknownNameError
from tilewright.ops import KernelSpec, op
from tilewright.ops.gemm import GemmSignature

EDGES_MN = (True, True, False)
SPECS = {
    "hip_gemm_fp16_compv3": KernelSpec(
        "gemm",
        GemmSignature("standard", "fp16", "fp16", "fp32", "fp16", "fp16", "rcr"),
        CkTileSchedule("compv3", (128, 128, 64), (32, 32, 16), (2, 2, 1), "intrawave", "cshuffle"),
        "gfx942",
    ),
    "hip_gemm_fp8_compv4": KernelSpec(
        "gemm",
        GemmSignature("standard", "fp8_e4m3", "fp8_e5m2", "fp32", "fp32", "fp32", "rcr"),
        CkTileSchedule("compv4", (128, 128, 128), (32, 32, 64), (2, 2, 1), "intrawave", "direct"),
        "gfx950",
    ),
    "hip_gemm_bf16_split_k": KernelSpec(
        "gemm",
        GemmSignature("standard", "bf16", "bf16", "fp32", "bf16", "bf16", "crr"),
        CkTileSchedule("mem", (64, 64, 64), (16, 16, 32), (2, 2, 1), "interwave", "cshuffle", split_k=4),
        "gfx90a",
    ),
    "hip_gemm_fp16_multi_d": KernelSpec(
        "gemm",
        GemmSignature("multi_d", "fp16", "fp16", "fp32", "fp16", "fp16", "rrr", "FastGelu", 2),
        CkTileSchedule("compv3", (256, 128, 32), (32, 32, 16), (2, 2, 1), "intrawave", "cshuffle", persistent=True),
        "gfx942",
    ),
    "hip_gemm_int8_preshuffle": KernelSpec(
        "gemm",
        GemmSignature("preshuffle", "int8", "int8", "int32", "int32", "int32", "rcr"),
        CkTileSchedule("preshuffle", (128, 128, 128), (16, 16, 32), (1, 4, 1), "default", "cshuffle", EDGES_MN),
        "gfx942",
    ),
    "hip_gemm_fp16_compv5": KernelSpec(
        "gemm",
        GemmSignature("standard", "fp16", "fp16", "fp32", "fp16", "fp16", "rcr"),
        CkTileSchedule("compv5", (64, 64, 32), (32, 32, 16), (1, 1, 2), "intrawave", "cshuffle", (False, False, False)),
        "gfx942",
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_emitted_source_is_the_golden_one(name: str, golden: Callable[[str, str], None]) -> None:
    spec = SPECS[name]
    assert op("gemm").check(spec) == []
    source = backend("hip").render(spec)
    assert source.file_name == f"{spec.name}.hpp"
    assert source.language == "hip"
    golden(f"{name}.hpp", source.text)


@pytest.mark.parametrize("name", SPECS)
def test_an_instance_file_is_short_and_carries_its_spec(name: str) -> None:
    text = backend("hip").render(SPECS[name]).text
    assert SPECS[name].to_json() in text
    assert len(text.splitlines()) < 60


def test_two_kernels_share_no_name_outside_their_namespaces() -> None:
    texts = [backend("hip").render(spec).text for spec in SPECS.values()]
    spaces = {line for text in texts for line in text.splitlines() if line.startswith("namespace ")}
    assert len(spaces) == len(SPECS)


def test_the_profile_names_all_that_is_legal() -> None:
    names = gemm_profile()
    # No matrix instruction of these GPUs takes tf32 from CK Tile; what only tables hold is never multiplied.
    multiplied = {name for name, one in DTYPES.items() if one.kind != "table"}
    assert set(profiles.profile().types) == multiplied - {"tf32"}
    assert set(names.pipelines) == set(amd.PIPELINES)
    assert set(names.stores) == set(amd.STORES)
    glue = Path(profiles.__file__).parent.parent / "include" / names.glue
    assert glue.is_file()
    store = glue.with_name("store.h").read_text(encoding="utf-8")
    assert all(f"template <class Config> struct {one} {{" in store for one in names.stores.values())


def test_an_unknown_profile_is_an_error() -> None:
    with pytest.raises(UnknownNameError, match="'late-2031' is no profile"):
        profiles.profile("late-2031")


def test_a_preselected_set_becomes_one_header_a_kernel_and_a_manifest(tmp_path: Path) -> None:
    specs = collect("gemm", "gfx942", preselected="fp16_rcr_essential").specs
    report = generate(specs, tmp_path)
    assert sorted(report.written) == sorted(f"{spec.name}.hpp" for spec in specs)
    assert {path.name for path in tmp_path.iterdir()} == {*report.written, "manifest.json"}
    assert generate(specs, tmp_path).written == ()
