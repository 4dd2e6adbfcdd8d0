"""Every command for the op, in processes of their own: none of them has a word of its code for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.shell import Shell, shell_in

LAYER = ("--batch", "2", "--heads-q", "4", "--heads-kv", "2", "--seqlen-q", "17", "--seqlen-k", "33", "--head-dim",
         "16", "--causal", "bottom_right")  # fmt: skip


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return shell_in(tmp_path)


def test_specs_generate_and_wrap(shell: Shell, tmp_path: Path) -> None:
    axes = ("--family", "grad", "--datatype", "bf16", "--heads", "128", "--features", "causal+dbias+bias")
    listed = shell("specs", "attention_backward", *axes, "--target", "x86_64_v4_bf16", "--pool", "tests").stdout
    assert "attention_backward_grad_bf16_h128x128_window_bias_fp32_dbias_tiled_64x192_64x6_4_" in listed
    shell("generate", "attention_backward", *axes, "--target", "x86_64_v3", "--pool", "tests", "--output-dir", "made")
    manifest = json.loads((tmp_path / "made" / "manifest.json").read_text())
    assert {one["schedule"]["pipeline"] for one in (each["spec"] for each in manifest["kernels"])} >= {"tiled"}
    shell("wrap", "--kernel-dir", "made", "--output-dir", "lib", "--generate-ninja")
    sums = ("--family", "grad", "--features", "accum_dq", "--target", "x86_64_v3")
    assert "cpu-accumulate" in shell("specs", "attention_backward", *sums, "--why-not", status=1).stdout
    assert "family-name" in shell("specs", "attention_backward", "--family", "sideways", status=1).stderr


def test_pools_of_ck_tiles_profiles(shell: Shell, tmp_path: Path) -> None:
    axes = ("--heads", "64", "--features", "packed+accum_all", "--target", "gfx942")
    shell("generate", "attention_backward", *axes, "--pool", "400", "--output-dir", "made")
    manifest = json.loads((tmp_path / "made" / "manifest.json").read_text())
    made = {
        each["spec"]["signature"]["family"] + " " + each["spec"]["schedule"]["pipeline"] for each in manifest["kernels"]
    }
    assert made == {"dot dot_do_o", "grad kr_ktr_vr_iglp"}
    shell("wrap", "--kernel-dir", "made", "--output-dir", "lib", "--generate-ninja")
    bias = ("--family", "grad", "--features", "bias+accum_dq")
    empty = shell("specs", "attention_backward", "--target", "gfx942", "--pool", "2", *bias, status=1).stderr
    assert "pool-empty" in empty
    assert "flash (receipt 2) is for a bias of no or alibi" in empty
    other = shell("specs", "attention_backward", "--target", "sm_90a", "--pool", "flash_bwd", status=1).stderr
    assert "pool-family" in other


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942", "gfx1100"])
def test_every_stage_of_a_gpus_plan_is_generated_and_explained(shell: Shell, tmp_path: Path, target: str) -> None:
    half = ("--datatype", "bf16", "--target", target)
    plan = json.loads(shell("explain", "attention_backward", *LAYER, *half, "--json").stdout)
    kernels = [stage["chosen"]["kernel"] for stage in plan["stages"]]
    assert [name.split("_")[2] for name in kernels] == ["dot", "grad", "convert"][: len(kernels)]
    for name in kernels:
        assert "Written by tilewright" in shell("inspect", name, "--source", "--target", target).stdout


@pytest.mark.usefixtures("needs_compiler")
def test_run_explain_bench_and_inspect(shell: Shell) -> None:
    report: Any = json.loads(shell("run", "attention_backward", *LAYER, "--dlse", "--verify", "--json").stdout)
    assert report["ok"] is True
    assert 0 < report["error_over_bound"] <= 1
    said = shell("explain", "attention_backward", *LAYER, "--dlse").stdout
    assert "dot_fp32_h32x32_dlse" in said
    assert "grad_fp32_h32x32_window" in said
    whole = json.loads(shell("explain", "attention_backward", *LAYER, "--json").stdout)
    assert "strides" not in whole["replay"]
    assert json.loads(shell(*whole["replay"].split()[1:], "--json").stdout) == whole
    alone = json.loads(shell("run", "attention_backward", *LAYER, "--family", "dot", "--verify", "--json").stdout)
    assert alone["ok"] is True
    for stage in ("dot", "grad", "convert --accumulate dq"):
        report = json.loads(shell("run", "attention_backward", *LAYER, "--family", *stage.split(), "--json").stdout)
        assert ("window" in report["problem"]) == (stage == "grad"), "a stage has what it reads"
    assert json.loads(shell("bench", "attention_backward", *LAYER, "--json").stdout)
    wrong = shell("run", "attention_backward", *LAYER, "--heads-kv", "3", status=1).stderr
    assert "heads-divide" in wrong
    assert "Traceback" not in wrong


def test_problems_and_instances(shell: Shell) -> None:
    listed = shell("problems", "ls", "attention_backward").stdout
    for word in ("training", "finetune", "encoder", "packed", "holdout"):
        assert word in listed
    shown = json.loads(shell("problems", "show", "attention_backward", "training").stdout)
    assert {"batch": 16, "heads_q": 12, "seqlen_q": 1024, "head_dim": 64}.items() <= shown[0].items()
    found = shell("instances", "attention_backward", "--target", "x86_64_v3").stdout
    assert "attention_backward_grad_bf16_" in found
    assert "attention_backward_dot_fp32_" in found
    for target, pipelines in (("sm_90a", ("ws_", "mma_", "rows")), ("gfx942", ("kr_ktr_vr_", "tiled_", "rows"))):
        found = shell("instances", "attention_backward", "--target", target).stdout
        assert all(f"_{pipeline}" in found for pipeline in pipelines), "what plans take is in sweeps"
        assert "_convert_bf16_h64x64_accum_all_" in found
