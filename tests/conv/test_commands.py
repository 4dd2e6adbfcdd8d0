"""Every command for the op, in processes of their own: none of them has a word of its code for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.shell import Shell, shell_in

LAYER = ("--batch", "2", "--channels", "8", "--filters", "16", "--size", "9x7", "--window", "3", "--padding", "1")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return shell_in(tmp_path)


def test_specs_generate_and_wrap_for_every_backend(shell: Shell, tmp_path: Path) -> None:
    for target, datatype in (("gfx942", "fp16"), ("sm_90a", "bf16"), ("x86_64_v3", "fp32")):
        axes = ("--variant", "forward", "--ndim-spatial", "2", "--datatype", datatype, "--target", target)
        listed = shell("specs", "conv", *axes, "--pool", "tests").stdout
        assert f"conv_forward_2d_{datatype}_" in listed
        shell("generate", "conv", *axes, "--pool", "tests", "--output-dir", target)
        manifest = json.loads((tmp_path / target / "manifest.json").read_text())
        assert len(manifest["kernels"]) == listed.count(f"conv_forward_2d_{datatype}_")
        shell("wrap", "--kernel-dir", target, "--output-dir", f"{target}-lib", "--generate-ninja")
    refused = shell("specs", "conv", "--variant", "sideways", status=1).stderr
    assert "variant-name" in refused


@pytest.mark.usefixtures("needs_compiler")
def test_run_explain_bench_and_records(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "store"))
    floor = ("--kernel", _floor())
    report: Any = json.loads(shell("run", "conv", *LAYER, *floor, "--verify", "--json").stdout)
    assert report["ok"] is True
    assert 0 < report["error_over_bound"] <= 1
    assert report["workspace_bytes"] == 0, "the floor needs none"
    said = shell("run", "conv", *LAYER, *floor).stdout
    assert "workspace 0 bytes" in said
    said = shell("explain", "conv", *LAYER, "--variant", "backward_data", "--layout", "nchw").stdout
    assert "backward_data_2d_fp32" in said
    assert "channels-first" in said
    wrong = shell("run", "conv", *LAYER, "--groups", "3", status=1).stderr
    assert "groups-divide" in wrong
    assert "Traceback" not in wrong


def _floor() -> str:
    """The name of the floor's kernel on this machine."""
    from tests.conv.conftest import CONV
    from tilewright.dispatch.registry import Registry
    from tilewright.ops.conv.problem import ConvProblem

    signature = ConvProblem(2, 8, 16, (9, 7), (3, 3)).signature
    return CONV.fallback_spec(signature, Registry().target).name


def test_problems_and_instances(shell: Shell) -> None:
    listed = shell("problems", "ls", "conv").stdout
    for word in ("forward_2d", "bwd_weight_3d_validation", "resnet50", "holdout"):
        assert word in listed
    shown = json.loads(shell("problems", "show", "conv", "resnet50").stdout)
    assert {"channels": 3, "size": "224x224", "window": "7x7"}.items() <= shown[0].items()
    kernels = shell("instances", "conv", "--target", "sm_90a").stdout
    assert "conv_backward_weight_3d_fp16_" in kernels
