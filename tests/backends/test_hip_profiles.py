"""Versions of the CK Tile headers: told by what is in them, and followed by what is written, built and said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.backends.test_hip_toolchain import make_headers, make_rocm
from tilewright import settings
from tilewright.backends.base import backend
from tilewright.backends.hip import ck_tile, doctor, profiles
from tilewright.backends.hip import gemm as hip_gemm
from tilewright.backends.hip import toolchain as hip
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.backends.hip.gemm.ck_tile.templates import gemm_profile
from tilewright.cli.main import build_app
from tilewright.codegen import generate
from tilewright.codegen.manifest import read_manifest
from tilewright.codegen.workers import emit_in_processes
from tilewright.codegen.wrap import wrap
from tilewright.errors import InternalError, ToolchainError, UnknownNameError
from tilewright.ops import KernelSpec
from tilewright.ops.gemm import GemmSignature

SPEC = KernelSpec(
    "gemm",
    GemmSignature("standard", "fp16", "fp16", "fp32", "fp16", "fp16", "rcr"),
    CkTileSchedule("compv3", (128, 128, 64), (32, 32, 16), (2, 2, 1)),
    "gfx942",
)
PACKED = replace(
    SPEC,
    signature=replace(SPEC.signature, variant="preshuffle"),
    schedule=replace(
        SPEC.schedule, pipeline="preshuffle", warp_grid=(1, 4, 1), scheduler="default", pad=(True, True, False)
    ),
)


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(hip, "USUAL", tmp_path / "opt")
    monkeypatch.setattr("shutil.which", lambda name, **_: name if Path(name).is_absolute() else None)
    hip.forget()
    with settings.override(cache_dir=tmp_path / "cache", hipcc="", rocm_path="", ck_tile="", ck_tile_profile=""):
        yield
    hip.forget()


def late(folder: Path) -> Path:
    """Headers of late 2025 as far as they are told by: the rest of the files are empty."""
    make_headers(folder)
    files = {
        "host/kernel_launch.hpp": "__launch_bounds__(Kernel::kBlockSize, MinBlockPerCu)",
        "ops/epilogue/cshuffle_epilogue.hpp": "template <index_t kM_, memory_operation_enum MemoryOperation_,\n"
        "index_t BlockedXDLN_PerWarp_ = 1> // of a warp\nstruct CShuffleEpilogueProblem {};",
        "ops/gemm/pipeline/gemm_pipeline_problem.hpp": "template <typename AsDataType_>\n"
        "struct UniversalGemmPipelineProblem;",
        "ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v6.hpp": "// came with the version",
    }
    for name, text in files.items():
        (folder / "ck_tile" / name).write_text(text)
    (folder / "ck_tile" / "ops" / "gemm" / "pipeline" / "wp_pipeline_agmem_bgmem_creg_v1.hpp").unlink()
    return folder


def test_every_profile_is_found_by_its_file_and_has_a_glue_header_an_op() -> None:
    found = profiles.all_profiles()
    assert [one.name for one in found] == ["late-2025", "mid-2025"]
    assert sorted(one.since for one in found) == [one.since for one in reversed(found)]
    include = Path(profiles.__file__).parent.parent / "include"
    for one in found:
        part = gemm_profile(one.name)
        assert (include / part.glue).is_file()
        assert set(one.types) <= set(found[-1].types)
        assert set(part.stores) == set(gemm_profile().stores)
        needs = hip_gemm.KERNELS.header_needs(one.name)
        assert needs is not None
        assert set(needs.kinds) == set(part.pipelines) <= set(gemm_profile().pipelines)
    assert hip_gemm.KERNELS.header_needs("spring-2031") is None


def test_profiles_are_read_from_any_folder_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version more is a file more."""
    package = tmp_path / "more_profiles"
    shutil.copytree(Path(profiles.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    data = json.loads((package / "late-2025.json").read_text())
    data |= {"name": "mid-2031", "since": "2031-07", "told_by": [["ck_tile/core.hpp", "telepathy", "telepathy"]]}
    (package / "mid-2031.json").write_text(json.dumps(data))
    monkeypatch.syspath_prepend(tmp_path)
    found = profiles.all_profiles("more_profiles")
    assert [one.name for one in found] == ["mid-2031", "late-2025", "mid-2025"]
    monkeypatch.setattr(ck_tile, "all_profiles", lambda: found)
    folder = late(tmp_path / "late")
    assert ck_tile.profile_of(folder) == "late-2025"
    (folder / "ck_tile" / "core.hpp").write_text("// telepathy")
    assert ck_tile.profile_of(folder) == "mid-2031"


def test_headers_are_told_apart_by_what_is_in_them(tmp_path: Path) -> None:
    assert ck_tile.profile_of(make_headers(tmp_path / "mid")) == "mid-2025"
    assert ck_tile.profile_of(late(tmp_path / "late")) == "late-2025"
    assert ck_tile.profile_of(make_headers(tmp_path / "none", newer=True)) == ""


def test_headers_that_fit_none_say_feature_by_feature_what_is_missing(tmp_path: Path) -> None:
    folder = late(tmp_path / "late")
    (folder / "ck_tile/host/kernel_launch.hpp").unlink()
    with pytest.raises(ToolchainError) as caught:
        ck_tile.read_headers(folder).require()
    said = caught.value.message
    assert caught.value.rule == "headers-version"
    assert "beside late-2025, the nearest: no ck_tile/host/kernel_launch.hpp (entry point" in said
    assert "they have ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v6.hpp, which came with late-2025" in said
    older = make_headers(tmp_path / "old", older=True)
    assert "none of the files that came with mid-2025" in ck_tile.fits(older)[-1].missing[0]
    with pytest.raises(ToolchainError, match="older than mid-2025"):
        ck_tile.read_headers(older).require()
    between = make_headers(tmp_path / "between", newer=True)
    assert "came with mid-2025, and nothing that came with late-2025" in ck_tile.read_headers(between).age


def findings_with(folder: Path, rocm: Path) -> dict[str, tuple[bool | None, str]]:
    with settings.override(rocm_path=str(rocm), ck_tile=str(folder)):
        return {one.what: (one.ok, one.text) for one in doctor.findings()}


def test_doctor_says_which_profile_fits_and_what_cannot_be_built(tmp_path: Path) -> None:
    rocm = make_rocm(tmp_path / "rocm")
    good = findings_with(make_headers(tmp_path / "mid"), rocm)
    assert good["CK Tile headers"] == (True, f"{tmp_path / 'mid'}; profile mid-2025")
    assert not [one for one in good if "kernels" in one]
    folder = late(tmp_path / "late")
    for gone in ("v4", "v5"):
        (folder / f"ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_{gone}.hpp").unlink()
    newer = findings_with(folder, rocm)
    assert newer["CK Tile headers"] == (True, f"{folder}; profile late-2025")
    assert newer["gemm kernels with preshuffle"][0] is False
    for gone in ("v4", "v5"):
        file = f"no ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_{gone}.hpp"
        assert file in newer[f"gemm kernels with comp{gone}"][1]
    assert "gemm kernels with compv3" not in newer
    hip.forget()
    (folder / "ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp").write_text("// another way")
    assert "UniversalGemmPipelineProblem of several As" in findings_with(folder, rocm)["gemm kernels"][1]
    bad = findings_with(make_headers(tmp_path / "none", newer=True), rocm)
    assert bad["CK Tile headers"][0] is False
    assert "kBlockSize_" in bad["CK Tile of mid-2025"][1]
    assert "BlockedXDLN_PerWarp_" in bad["CK Tile of late-2025"][1]


def test_sources_follow_settings_and_nothing_that_lies_around(tmp_path: Path) -> None:
    late(make_rocm(tmp_path / "opt" / "rocm") / "include")
    usual = backend("hip").render(SPEC)
    assert usual.headers == "mid-2025"
    assert "<tilewright/hip/glue_mid_2025.h>" in usual.text
    with settings.override(ck_tile_profile="late-2025"):
        other = backend("hip").render(SPEC)
    with settings.override(ck_tile=str(tmp_path / "opt" / "rocm" / "include")):
        assert backend("hip").render(SPEC) == other
    assert other.headers == "late-2025"
    assert other.text == usual.text.replace("glue_mid_2025", "glue_late_2025")
    with settings.override(ck_tile_profile="late-2031"), pytest.raises(UnknownNameError, match="no profile"):
        backend("hip").render(SPEC)


def test_what_a_profile_has_not_is_an_error_that_names_it() -> None:
    assert backend("hip").render(PACKED).headers == "mid-2025"
    with settings.override(ck_tile_profile="late-2025"), pytest.raises(ToolchainError, match="preshuffle") as caught:
        backend("hip").render(PACKED)
    assert caught.value.rule == "headers-lack"
    assert "mid-2025" in caught.value.remedy
    with pytest.raises(InternalError, match="though legality"):
        profiles.named({}, "pipeline", "compv9")


def test_a_build_writes_for_the_headers_it_finds(tmp_path: Path) -> None:
    late(make_rocm(tmp_path / "opt" / "rocm") / "include")
    tools = hip.find_toolchain()
    assert tools.source(SPEC).headers == "late-2025"
    with (
        settings.override(ck_tile_profile="mid-2025"),
        pytest.raises(ToolchainError, match="are of late-2025") as caught,
    ):
        tools.source(SPEC)
    assert caught.value.rule == "headers-version"
    hip.forget()
    shutil.rmtree(tmp_path / "opt" / "rocm" / "include")
    make_headers(tmp_path / "opt" / "rocm" / "include")
    assert hip.find_toolchain().source(SPEC).headers == "mid-2025"


def test_a_manifest_says_for_which_headers_sources_were_written(tmp_path: Path) -> None:
    with settings.override(ck_tile_profile="late-2025"):
        generate([SPEC], tmp_path / "late")
        (made,) = emit_in_processes([SPEC], tmp_path / "late", 1)
    generate([SPEC], tmp_path / "mid")
    entries = [next(iter(read_manifest(tmp_path / one).values())) for one in ("late", "mid")]
    assert [one["headers"] for one in entries] == ["late-2025", "mid-2025"]
    assert not made.written  # another process writes what this one did
    assert json.loads(made.entry)["headers"] == "late-2025"


def test_wrap_says_when_kernels_are_for_other_headers(tmp_path: Path) -> None:
    kernels = generate([SPEC], tmp_path / "kernels").folder
    assert "plain hipcc" in wrap(kernels, tmp_path / "none").notes[0]
    make_headers(make_rocm(tmp_path / "opt" / "rocm") / "include")
    hip.forget()
    assert wrap(kernels, tmp_path / "mid").notes == ()
    late(tmp_path / "opt" / "rocm" / "include")
    hip.forget()
    (note,) = wrap(kernels, tmp_path / "late").notes
    assert "written for headers of mid-2025, and those found here are of late-2025" in note


@pytest.mark.parametrize("name", ["rocm_path", "hipcc", "ck_tile"])
def test_wrap_with_a_setting_that_names_nothing_is_an_error(tmp_path: Path, name: str) -> None:
    make_headers(make_rocm(tmp_path / "opt" / "rocm") / "include")
    kernels = generate([SPEC], tmp_path / "kernels").folder
    with settings.override(**{name: str(tmp_path / "nowhere")}):
        hip.forget()
        words = ["wrap", "--kernel-dir", str(kernels), "--output-dir", str(tmp_path / "out"), "--generate-ninja"]
        done = CliRunner().invoke(build_app(), words)
        assert done.exit_code == 2
        assert "nowhere" in done.stderr
    assert not (tmp_path / "out").exists()
