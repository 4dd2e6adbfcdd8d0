"""Kernel families from another package: one for convolution on the CPU, one for GEMM on NVIDIA GPUs, one on AMD GPUs.

Each command runs in a process of its own, with the package on its path as pip would have put it there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import tilewright
from tests.built import why_not_compiled
from tilewright.backends import common
from tilewright.errors import PluginError
from tilewright.ops.attention.family import AttentionFamily
from tilewright.ops.families import ScheduleDefaults, demand_own_pipelines, demand_schedules, demanded
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.family import GemmFamily

FAMILIES = Path(__file__).parent.parent / "plugin_families"
CONV = ("--batch", "2", "--channels", "8", "--filters", "16", "--size", "9x9", "--window", "3x3", "--datatype", "fp32")
GEMM = ("--m", "16", "--n", "24", "--k", "64", "--layout", "rcr", "--datatype", "bf16", "--target")


def shell(*words: str, program: tuple[str, ...] = ("-m", "tilewright"), path: Path = FAMILIES) -> str:
    source = Path(tilewright.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(path), str(source)))}
    command = [sys.executable, *program, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def asked(*words: str) -> Any:
    return json.loads(shell(*words, "--json"))


def kernel(op: str, part: str, *words: str) -> str:
    return next(line for line in shell("specs", op, "--pool", "default", *words).split() if part in line)


def test_without_the_package_nothing_knows_them() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "specs", "conv", "--pool", "default"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "filter_block" not in done.stdout


def test_a_family_of_the_cpu_is_proposed_run_and_verified() -> None:
    name = kernel("conv", "filter_block8", "--datatype", "fp32")
    report = asked("run", "conv", *CONV, "--kernel", name, "--verify")
    assert report["ok"], report
    assert report["kernel"] == name


def test_selection_and_explain_know_it() -> None:
    told = asked("explain", "conv", *CONV)
    mine = {one["name"]: one for one in told["candidates"] if "filter_block" in one["name"]}
    assert len(mine) == 2
    assert all(one["estimated_seconds"] for one in mine.values())
    told = asked("explain", "conv", *CONV[:4], "--filters", "6", *CONV[6:])
    reasons = [reason for one in told["candidates"] if "filter_block8" in one["name"] for reason in one["reasons"]]
    assert any("no multiple of 8" in reason for reason in reasons)


def test_its_specs_are_read_back_and_illegal_ones_refused() -> None:
    code = """
from dataclasses import replace
from tilewright import ops
conv = ops.op("conv")
spec = next(s for s in conv.proposals("default", "x86_64_v3", datatypes=("fp32",)) if "filter_block" in s.name)
assert conv.spec_from_dict(spec.to_dict()) == spec
assert not conv.check(spec)
odd = replace(spec, schedule=replace(spec.schedule, block=3))
print([one.rule for one in conv.check(odd)])
"""
    assert "filter-block-size" in shell(code, program=("-c",))


def test_its_kernel_is_called_by_itself() -> None:
    code = """
import numpy as np
import tilewright as tw
from tilewright import ops
registry = tw.Registry()
proposed = ops.op("conv").proposals("default", registry.target, datatypes=("fp32",))
kernel = registry.kernel(next(spec for spec in proposed if "block8" in spec.name))
rng = np.random.default_rng(7)
x = rng.standard_normal((2, 9, 9, 8), dtype=np.float32)
w = rng.standard_normal((16, 3, 3, 8), dtype=np.float32)
y = kernel(x, w)
windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(1, 2))
expected = np.einsum("nhwcij,kijc->nhwk", windows, w.astype(np.float64))
print(float(np.abs(y - expected).max()))
"""
    assert float(shell(code, program=("-c",))) < 1e-4


WRAPPED = """
from extrafamilies.filter_block import FilterBlock

class Wrapped(FilterBlock):
    template = ("wrapped", "wrapped.cpp.jinja")

FAMILY = Wrapped()
"""


def test_a_kernel_that_wants_contiguous_channels_is_wrapped_as_the_guide_says(tmp_path: Path) -> None:
    plain = (FAMILIES / "extrafamilies/templates/filter_block.cpp.jinja").read_text()
    wrapped = "tw::ConvChannelsLast<Config, tw::FilterBlock<Config>>"
    using = f"namespace {{ using Work = {wrapped}; }}\nTW_EXPORT_CONV(Config, Work,"
    template = plain.replace("TW_EXPORT_CONV(Config, tw::FilterBlock<Config>,", using)
    assert template != plain
    (tmp_path / "wrapped").mkdir()
    (tmp_path / "wrapped/__init__.py").write_text(WRAPPED)
    (tmp_path / "wrapped/wrapped.cpp.jinja").write_text("#include <tilewright/cpu/conv/channels_last.h>\n" + template)
    (tmp_path / "extrafamilies").symlink_to(FAMILIES / "extrafamilies")
    (tmp_path / "wrapped-1.0.dist-info").mkdir()
    (tmp_path / "wrapped-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: wrapped\nVersion: 1.0\n")
    entry = "[tilewright.families.cpu.conv]\nfilter_block = wrapped:FAMILY\n"
    (tmp_path / "wrapped-1.0.dist-info/entry_points.txt").write_text(entry)
    words = ("run", "conv", *CONV, "--layout", "nchw", "--filter", "c.pipeline == 'filter_block'", "--verify", "--json")
    report = json.loads(shell(*words, path=tmp_path))
    assert report["ok"], report
    assert "filter_block" in report["kernel"], report
    assert report["workspace_bytes"] > 0, "the operands were not transposed in the workspace"


def test_a_family_of_nvidia_gpus_is_proposed_and_compiled() -> None:
    told = asked("explain", "gemm", *GEMM, "sm_90a")
    assert any("warp_dot" in one["name"] for one in told["candidates"])
    why = why_not_compiled("sm_90a")
    if why:
        pytest.skip(why)
    words = ("--datatype", "bf16", "--layout", "rcr", "--pool", "default", "--filter", "c.pipeline == 'warp_dot'")
    assert "1" in shell("build", "gemm", "--target", "sm_90a", *words)


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_a_family_of_amd_gpus_is_proposed_for_waves_of_either_size(target: str) -> None:
    told = asked("explain", "gemm", *GEMM, target)
    assert any("wave_dot" in one["name"] for one in told["candidates"])


@pytest.mark.amd
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_a_family_of_amd_gpus_is_compiled(target: str) -> None:
    why = why_not_compiled(target)
    if why:
        pytest.skip(why)
    words = ("--datatype", "bf16", "--layout", "rcr", "--pool", "default", "--filter", "c.pipeline == 'wave_dot'")
    assert "1" in shell("build", "gemm", "--target", target, *words)


def test_build_files_include_their_headers(tmp_path: Path) -> None:
    words = ("--datatype", "fp32", "--pool", "default", "--filter", "c.pipeline == 'filter_block'")
    shell("generate", "conv", *words, "--output-dir", str(tmp_path / "kernels"))
    sources = list((tmp_path / "kernels").rglob("*filter_block*.cpp"))
    assert len(sources) == 2
    assert all("extrafamilies/filter_block.h" in path.read_text() for path in sources)


@dataclass(frozen=True)
class Bare:
    pipeline: str = field(default="bare", init=False)

    def label(self) -> str:
        return "bare"


@dataclass(frozen=True, slots=True)
class Plain(ScheduleDefaults):
    pipeline: str = field(default="plain", init=False)
    tile: tuple[int, int, int]

    pipelines: ClassVar[tuple[str, ...]] = ("plain",)
    warp_tile: ClassVar[tuple[int, int, int]] = (16, 8, 16)
    warp_grid: ClassVar[tuple[int, int, int]] = (1, 1, 1)

    def label(self) -> str:
        return "plain"


class Coarse(GemmFamily):
    """A kernel without edge code."""

    schedules: tuple[type[Any], ...] = (Plain,)

    def grains(self, schedule: Any) -> tuple[int, int, int]:
        return 16, 8, 16


def test_a_schedule_that_lacks_something_is_its_package_s_error() -> None:
    family = Coarse()
    demand_schedules(family)
    family.schedules = (Plain, Bare)
    with pytest.raises(
        PluginError, match="Bare lacks pipelines, choices, may_be_zero, tile, warp_tile, warp_grid"
    ) as told:
        demand_schedules(family)
    assert "adding-a-kernel-family.md" in told.value.remedy


class Attends(AttentionFamily):
    schedules: tuple[type[Any], ...] = (Plain,)


def test_a_schedule_of_attention_says_which_stages_it_serves() -> None:
    with pytest.raises(PluginError, match="Plain lacks serves"):
        demand_schedules(Attends())


def test_the_old_name_of_choices_warns() -> None:
    @dataclass(frozen=True)
    class Old(Plain):
        words: ClassVar[dict[str, tuple[str, ...]]] = {"order": ("rows", "columns")}

    family = Coarse()
    family.schedules = (Old,)
    with pytest.warns(DeprecationWarning, match="Old.words is now called choices"):
        demand_schedules(family)
    assert dict(Old.choices) == {"order": ("rows", "columns")}


def test_a_gemm_family_refuses_sizes_that_are_no_multiples_of_its_grains() -> None:
    spec: Any = SimpleNamespace(schedule=Plain((16, 8, 16)))
    refused = [one.rule for one in Coarse().limits(spec, GemmProblem(32, 9, 17, dtype_a="bf16"))]
    assert refused == ["grain-n", "grain-k"]
    assert not list(Coarse().limits(spec, GemmProblem(16, 8, 32, dtype_a="bf16")))


@pytest.mark.parametrize("grains", [(1, 2), (0, 0, 0), None, (1, 1, 2.0)])
def test_grains_that_are_none_are_their_package_s_error(grains: Any) -> None:
    class Odd(Coarse):
        def grains(self, schedule: Any) -> Any:
            return grains

    with pytest.raises(PluginError, match=r"Odd proposes .*: grains\(\) gives"):
        demanded(Odd(), Plain((16, 8, 16)))
    plain = Plain((16, 8, 16))
    assert demanded(Coarse(), plain) is plain


@pytest.mark.parametrize("label", ["with-dash", "../up", "", "a b", 3])
def test_a_label_is_the_rest_of_an_identifier(label: Any) -> None:
    class Odd(Plain):
        def label(self) -> Any:
            return label

    family = Coarse()
    family.schedules = (Odd,)
    with pytest.raises(PluginError, match="letters, digits and underscores only"):
        demanded(family, Odd((16, 8, 16)))


def test_a_family_proposes_its_own_schedules() -> None:
    with pytest.raises(PluginError, match="proposes the schedule int: it is no object of Plain"):
        demanded(Coarse(), 5)


def test_a_pipeline_is_of_one_family() -> None:
    class Other(Coarse):
        pass

    with pytest.raises(PluginError, match="has the pipeline 'plain', which the family Other of gemm on cpu has"):
        demand_own_pipelines(Coarse(), (Other(),), "gemm on cpu")
    demand_own_pipelines(Coarse(), (), "gemm on cpu")


def _estimated(seconds: Any) -> Any:
    class Priced(Coarse):
        def estimate(self, spec: Any, problem: Any, threads: int) -> Any:
            return seconds

    return Priced()


def estimated_by(family: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(common, "kernels_of", lambda name, spec: family)
    backend: Any = SimpleNamespace(name="cpu")
    spec: Any = SimpleNamespace(name="K")
    return common.CommonBackend.estimate(backend, spec, None, 1)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 0, "fast", None, 1j])
def test_an_estimate_that_is_no_time_is_its_package_s_error(seconds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PluginError, match=r"the estimate for K is .* not a positive number of seconds") as told:
        estimated_by(_estimated(seconds), monkeypatch)
    assert told.value.package == "tests"


@pytest.mark.parametrize("seconds", [1, 1e-6, np.float32(1e-6)])
def test_an_estimate_is_any_positive_number(seconds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimated_by(_estimated(seconds), monkeypatch) == seconds


def test_doctor_lists_families_and_those_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "broken_family-1.0.dist-info"
    path.mkdir()
    (path / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-family\nVersion: 1.0\n")
    (path / "entry_points.txt").write_text("[tilewright.families.cpu.attention]\nlost = nowhere_at_all:FAMILY\n")
    code = f"""
import json, sys
sys.path.insert(0, {str(tmp_path)!r})
from dataclasses import asdict
from tilewright.cli import _doctor
print(json.dumps([asdict(finding) for finding in _doctor._families()]))
"""
    found = {one["what"]: one for one in json.loads(shell(code, program=("-c",)))}
    assert found["filter_block"]["ok"]
    assert "kernels of conv for cpu (of the package extrafamilies)" in found["filter_block"]["text"]
    assert {"warp_dot", "wave_dot"} <= found.keys()
    lost = found["lost (attention on cpu)"]
    assert lost["ok"] is False
    assert "broken-family" in lost["text"]
