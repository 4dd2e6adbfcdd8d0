"""Every command for the op, in processes of their own: none of them has a word of its code for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.attention.drawing import ATTENTION
from tests.shell import Shell, shell_in
from tilewright.arch import best_host_arch
from tilewright.ops.attention import AttentionProblem

LAYER = ("--batch", "2", "--heads-q", "4", "--heads-kv", "2", "--seqlen-q", "17", "--seqlen-k", "33", "--head-dim",
         "16",
         "--causal", "bottom_right")  # fmt: skip


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return shell_in(tmp_path)


def test_specs_generate_and_wrap_for_every_backend(shell: Shell, tmp_path: Path) -> None:
    for target, datatype in (("gfx942", "fp16"), ("sm_90a", "bf16"), ("x86_64_v3", "fp32")):
        axes = (
            "--family",
            "forward",
            "--datatype",
            datatype,
            "--heads",
            "128",
            "--features",
            "causal",
            "--target",
            target,
        )
        listed = shell("specs", "attention", *axes, "--pool", "tests").stdout
        assert f"attention_forward_{datatype}_h128x128_window_" in listed
        shell("generate", "attention", *axes, "--pool", "tests", "--output-dir", target)
        manifest = json.loads((tmp_path / target / "manifest.json").read_text())
        assert len(manifest["kernels"]) == listed.count(f"attention_forward_{datatype}_")
    shell("wrap", "--kernel-dir", "x86_64_v3", "--output-dir", "lib", "--generate-ninja")
    refused = shell("specs", "attention", "--family", "sideways", status=1).stderr
    assert "family-name" in refused


@pytest.mark.usefixtures("needs_compiler")
def test_run_explain_and_bench(shell: Shell) -> None:
    signature = AttentionProblem(2, 4, 17, 33, 16, 2, window_right=0, align="bottom_right").signature
    floor = ("--kernel", ATTENTION.fallback_spec(signature, best_host_arch().name).name)
    report: Any = json.loads(shell("run", "attention", *LAYER, *floor, "--verify", "--json").stdout)
    assert report["ok"] is True
    assert 0 < report["error_over_bound"] <= 1
    assert "workspace 0 bytes" in shell("run", "attention", *LAYER, *floor).stdout
    said = shell("explain", "attention", *LAYER, "--num-splits", "4").stdout
    assert "split_fp32_h32x32_window" in said
    assert "combine_fp32_h32x32" in said
    whole = json.loads(shell("explain", "attention", *LAYER, "--num-splits", "4", "--json").stdout)
    assert "strides" not in whole["replay"]
    assert json.loads(shell(*whole["replay"].split()[1:], "--json").stdout) == whole
    timed = json.loads(shell("bench", "attention", *LAYER, *floor, "--json").stdout)
    assert timed
    wrong = shell("run", "attention", *LAYER, "--heads-kv", "3", status=1).stderr
    assert "heads-divide" in wrong
    assert "Traceback" not in wrong


@pytest.mark.usefixtures("needs_compiler")
def test_an_append_has_no_query_heads_to_speak_of(shell: Shell) -> None:
    new = (
        "--family",
        "append",
        "--batch",
        "2",
        "--heads-kv",
        "2",
        "--seqlen-q",
        "3",
        "--seqlen-k",
        "9",
        "--head-dim",
        "16",
    )
    report: Any = json.loads(shell("run", "attention", *new, "--verify", "--json").stdout)
    assert report["ok"] is True
    for given, flag in (
        (("--rotary-q", "--rotary", "half", "--rotary-dim", "8"), "--heads-q"),
        (("--heads-kv", "0"), "--heads-kv"),
    ):
        assert f"give {flag} N" in shell("run", "attention", *new, *given, status=1).stderr
    assert "give --heads-q N" in shell("run", "attention", *LAYER[:2], *LAYER[4:], status=1).stderr


def test_a_rule_that_has_nothing_to_say_is_told(shell: Shell) -> None:
    said = shell("explain", "attention", *LAYER, "--target", "x86_64_v3", "--rule", "first_fit").stdout
    assert "the rule first_fit has nothing to say of these kernels" in " ".join(said.split())


@pytest.mark.usefixtures("needs_compiler")
def test_pages_without_lengths_are_all_there(shell: Shell) -> None:
    """Where no table of lengths is asked for, every sequence has all of its pages."""
    problem = AttentionProblem(
        2, 4, 17, 33, 16, 2, window_right=0, align="bottom_right", pages="strided", page_lookup="table"
    )
    floor = ("--kernel", ATTENTION.fallback_spec(problem.signature, best_host_arch().name).name)
    report: Any = json.loads(
        shell("run", "attention", *LAYER, "--pages", "strided", *floor, "--verify", "--json").stdout
    )
    assert report["ok"] is True


def test_problems_and_instances(shell: Shell) -> None:
    listed = shell("problems", "ls", "attention").stdout
    for word in ("prefill", "decode_paged", "mla", "serving", "holdout"):
        assert word in listed
    shown = json.loads(shell("problems", "show", "attention", "mla").stdout)
    assert {"head_dim": 576, "head_dim_v": 512, "pages": "strided"}.items() <= shown[0].items()
    assert "attention_forward_bf16_" in shell("instances", "attention", "--target", "sm_90a").stdout
