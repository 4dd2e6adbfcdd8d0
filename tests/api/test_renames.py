"""Old public names: each still works, warns whoever used it, and is in no way part of what a new call pays."""

from __future__ import annotations

import ast
import dataclasses
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import tilewright as tw
from tilewright import ops
from tilewright.api import attention as api
from tilewright.arch import arch
from tilewright.cli.main import build_app
from tilewright.ops.attention import AttentionProblem, AttentionSignature
from tilewright.ops.base import OpDefaults, from_plain, plain, with_new_names
from tilewright.ops.pooling import fallback_schedule
from tilewright.renames import GONE_IN, call_renamed, renamed_fields, stored_names
from tilewright.runtime.bindings.attention import calls

INT32 = np.int32


def array(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


Q, K = array(2, 3, 2, 8), array(2, 3, 2, 8)
STARTS = np.array([0, 2, 3], INT32)
LENGTHS = np.array([2, 3], INT32)
# An old keyword and its value, with what else the call needs.
OLD: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("lengths_k", LENGTHS, {}),
    ("alibi", np.ones(2, np.float32), {}),
    ("dropout", 0.5, {"seed": 3}),
    ("splits", 2, {}),
)


@pytest.mark.parametrize(("name", "value", "more"), OLD, ids=[one[0] for one in OLD])
def test_an_old_keyword_is_the_new_one_with_a_warning(name: str, value: Any, more: dict[str, Any]) -> None:
    new = calls.RENAMED[name]
    want = tw.attention(Q, K, K, **{new: value}, **more)
    with pytest.warns(DeprecationWarning, match=f"{name} is now called {new}; .* gone in tilewright {GONE_IN}") as told:
        found = tw.attention(Q, K, K, **{name: value}, **more)
    assert {one.filename for one in told} == {__file__}, "the caller's line is shown, not ours"
    assert np.array_equal(found, want, equal_nan=True)


def test_old_keywords_of_packed_sequences_and_of_caches() -> None:
    of: dict[str, Any] = {"starts_q": STARTS, "starts_k": STARTS, "longest_q": 2, "longest_k": 2}
    new = {calls.RENAMED[name]: value for name, value in of.items()}
    want = tw.attention(Q[0], K[0], K[0], **new)
    with pytest.warns(DeprecationWarning, match="cu_seqlens_q"):
        assert np.array_equal(tw.attention(Q[0], K[0], K[0], **of), want)
    caches = [np.zeros((2, 8, 2, 8), np.float32) for _ in range(4)]
    tw.append_kv(caches[0], caches[1], K, K, cache_seqlens=LENGTHS, seqlens_new=LENGTHS)
    with pytest.warns(DeprecationWarning, match="lengths is now called cache_seqlens"):
        tw.append_kv(caches[2], caches[3], K, K, lengths=LENGTHS, lengths_new=LENGTHS)
    assert np.array_equal(caches[0], caches[2])


def test_sinks_of_both_kinds_in_one_argument() -> None:
    logits = np.ones(2, np.float32)
    want = tw.attention(Q, K, K, window=(0, 0), sink=logits, sink_tokens=1)
    with pytest.warns(DeprecationWarning, match="sink_tokens"):
        assert np.array_equal(tw.attention(Q, K, K, window=(0, 0), sink=(1, logits)), want)
    with pytest.raises(tw.TilewrightError, match="sink_tokens is given"):
        tw.attention(Q, K, K, window=(0, 0), sink=(1, logits), sink_tokens=1)


def test_a_name_that_never_was_is_pythons_own_error() -> None:
    with pytest.raises(TypeError, match=r"attention\(\) got an unexpected keyword argument 'sliding'"):
        tw.attention(Q, K, K, sliding=3)  # type: ignore[call-arg]
    with (
        pytest.warns(DeprecationWarning, match="splits"),
        pytest.raises(TypeError, match="'num_splits' under its old name too, splits") as caught,
    ):
        tw.attention(Q, K, K, splits=2, num_splits=3)
    assert isinstance(caught.value, tw.TilewrightError)
    assert (caught.value.rule, caught.value.remedy) == ("renamed", "give num_splits alone")


def test_type_checkers_know_the_old_keywords_there_are() -> None:
    """The typed dictionaries of `api.attention` and the tables of `calls` say the same."""
    tree = ast.parse(Path(api.__file__).read_text(encoding="utf-8"))
    typed = {
        one.name: [field.target.id for field in one.body if isinstance(field, ast.AnnAssign)]  # type: ignore[union-attr]
        for one in ast.walk(tree)
        if isinstance(one, ast.ClassDef) and one.name.startswith("_Old")
    }
    assert typed == {"_OldKeywords": [*calls.RENAMED], "_OldAppendKeywords": [*calls.APPEND_RENAMED]}


def test_appended_caches_and_queries_have_names() -> None:
    caches = [np.zeros((2, 8, 2, 8), np.float32) for _ in range(2)]
    rotary = np.ones((8, 4), np.float32), np.zeros((8, 4), np.float32), "half"
    made = tw.append_kv(caches[0], caches[1], K, K, cache_seqlens=LENGTHS)
    assert made._fields == ("cache_k", "cache_v")
    assert made.cache_k is caches[0]
    with_q = tw.append_kv(caches[0], caches[1], K, K, cache_seqlens=LENGTHS, rotary=rotary, q=Q)
    assert isinstance(with_q, api.AppendedKVAndQ)
    assert np.array_equal(with_q.q, Q), "cos is 1 and sin 0"


MASK = np.tril(np.ones((3, 3), bool))


@pytest.mark.parametrize("mask", [MASK, np.where(MASK, 0, -np.inf).astype(np.float32)], ids=["bool", "float"])
def test_attn_mask_is_a_mask_or_a_bias_by_its_type(mask: Any) -> None:
    assert np.allclose(tw.attention(Q, K, K, attn_mask=mask), tw.attention(Q, K, K, causal=True), atol=1e-6)
    other: dict[str, Any] = {
        "bias" if mask.dtype == bool else "mask": np.zeros((3, 3), np.float32 if mask.dtype == bool else bool)
    }
    tw.attention(Q, K, K, attn_mask=mask, **other)
    same: dict[str, Any] = {"mask" if mask.dtype == bool else "bias": mask}
    with pytest.raises(tw.TilewrightError, match="given too"):
        tw.attention(Q, K, K, attn_mask=mask, **same)


# -- dataclasses and their JSON ----------------------------------------------------------------------------------------

PROBLEM = AttentionProblem(2, 4, 5, 7, 16, 2, varlen=True, num_splits=3, return_lse=True)


@pytest.mark.parametrize("kind", [AttentionProblem, AttentionSignature])
def test_fields_under_their_old_names(kind: type[Any]) -> None:
    one = PROBLEM if kind is AttentionProblem else PROBLEM.signature
    assert stored_names(kind)
    for new, old in stored_names(kind).items():
        with pytest.warns(DeprecationWarning, match=f"{old} is now called {new}"):
            assert getattr(one, old) == getattr(one, new)
        value = getattr(one, new)
        with pytest.warns(DeprecationWarning, match=f"{old} is now called {new}"):
            assert dataclasses.replace(one, **{old: value}) == one
    with pytest.raises(TypeError, match="unexpected keyword argument 'sliding'"):
        kind(sliding=3)


def test_json_keeps_its_names_and_is_read_under_both() -> None:
    """What is stored, and every digest, is what it was; problems that people write may have either name."""
    written = plain(PROBLEM)
    assert {"rows", "keys", "head_qk", "packed", "splits"} < written.keys()
    assert not {"seqlen_q", "varlen"} & written.keys()
    fields = {one.name: getattr(PROBLEM, one.name) for one in dataclasses.fields(PROBLEM)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for data in (written, json.loads(json.dumps(written)), json.loads(json.dumps(fields))):
            assert from_plain(AttentionProblem, "a problem", data) == PROBLEM
    with pytest.raises(tw.TilewrightError, match="'seqlen_q' under two names"):
        from_plain(AttentionProblem, "a problem", {**written, "seqlen_q": 3})


def test_digests_of_kernels_are_what_they_were() -> None:
    """Of a spec by its JSON: a stored result, a lock file or a bundle of an older version still means this kernel."""
    op = ops.op("attention")
    spec = op.fallback_spec(PROBLEM.signature, "generic")
    assert spec.name == "attention_forward_fp32_h32x32_lse_packed_loops_generic_292eaad4"


# -- the mechanism by itself -------------------------------------------------------------------------------------------


def test_a_function_of_anybodys() -> None:
    def area(width: int, *, height: int = 1, **old: Any) -> Any:
        return call_renamed(area, {"tall": "height"}, locals()) if old else width * height

    assert area(3, height=2) == 6
    with pytest.warns(DeprecationWarning, match="area: tall is now called height"):
        assert area(3, tall=2) == 6


def test_a_dataclass_of_anybodys() -> None:
    @renamed_fields({"tall": "height"})
    @dataclasses.dataclass(frozen=True)
    class Box:
        width: int
        height: int = 1

    assert Box(3, 4) == Box(3, height=4)
    with pytest.warns(DeprecationWarning, match="Box: tall"):
        assert Box(3, tall=4).height == 4  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'deep'"):
        Box(3, deep=4)  # type: ignore[call-arg]


# -- the command line --------------------------------------------------------------------------------------------------


def shell(*words: str) -> Result:
    return CliRunner().invoke(build_app(), list(words))


def test_options_under_their_old_names_warn_and_are_in_no_help() -> None:
    words = ("explain", "attention", "--batch", "1", "--heads-q", "2", "--target", "generic", "--json")
    new = shell(*words, "--seqlen-q", "4", "--seqlen-k", "5", "--head-dim=8", "--varlen")
    old = shell(*words, "--rows", "4", "--keys", "5", "--head-qk=8", "--packed")
    assert new.exit_code == 0, new.stderr
    assert json.loads(old.stdout) == json.loads(new.stdout)
    assert "now called" not in new.stderr
    for flag, name in (("rows", "seqlen-q"), ("head-qk", "head-dim"), ("packed", "varlen")):
        assert f"--{flag} is now called --{name}" in " ".join(old.stderr.split())
    assert "--rows" not in shell("explain", "attention", "--help").stdout


@pytest.mark.parametrize("old", [("--rows", "5"), ("--rows=5",)])
def test_an_option_under_both_names_is_an_error(old: tuple[str, ...]) -> None:
    words = ("explain", "attention", "--batch", "1", "--heads-q", "2", "--target", "generic", "--seqlen-k", "5")
    done = shell(*words, "--head-dim", "8", "--seqlen-q", "4", *old)
    assert done.exit_code != 0
    assert "[renamed] --seqlen-q is given under its old name too, --rows" in f"{done.stderr}{done.exception}"


def test_values_of_options_under_their_old_names() -> None:
    op = ops.op("attention")
    values: Mapping[str, Any] = {"batch": 1, "heads_q": 2, "rows": 3, "keys": 4, "head_qk": 8, "causal": "top_left"}
    with pytest.warns(DeprecationWarning, match="rows is now called seqlen_q"):
        new = with_new_names(op, values)
    assert new == {"batch": 1, "heads_q": 2, "seqlen_q": 3, "seqlen_k": 4, "head_dim": 8, "causal": "top_left"}
    assert with_new_names(op, new) is new


def test_methods_of_ops_have_their_old_names_too() -> None:
    gemm = ops.op("gemm")
    problem: Any = gemm.problem({"m": 8, "n": 8, "k": 8})
    with pytest.warns(DeprecationWarning, match="generic_spec is now called fallback_spec"):
        spec = gemm.generic_spec(problem.signature, "generic")  # type: ignore[attr-defined]
    assert spec == gemm.fallback_spec(problem.signature, "generic")
    with pytest.warns(DeprecationWarning, match="ways is now called split_plans"):
        assert gemm.ways(problem, "generic") == gemm.split_plans(problem, "generic")  # type: ignore[attr-defined]


def test_an_op_of_others_may_define_them_by_their_old_names() -> None:
    with pytest.warns(DeprecationWarning, match="Older: generic_spec is now called fallback_spec") as told:

        class Older(OpDefaults):
            def generic_spec(self, signature: Any, arch: str) -> str:
                return f"{signature} on {arch}"

    assert {one.filename for one in told} == {__file__}
    older: Any = Older()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert older.fallback_spec("x", "generic") == "x on generic"


def test_design_spaces_of_others_may_have_a_generic_schedule() -> None:
    class Space:
        def generic_schedule(self, signature: Any, arch: Any) -> str:
            return f"{signature} {arch!r}"

    with pytest.warns(DeprecationWarning, match="Space: generic_schedule is now called fallback_schedule"):
        assert fallback_schedule(Space(), "of", arch("generic")).startswith("of Arch(name=")


def test_an_old_flag_of_bench_is_taken() -> None:
    done = CliRunner().invoke(build_app(), ["bench", "gemm", "--ways", "--m", "0"])
    assert "No such option" not in done.output
    assert "--ways" not in CliRunner().invoke(build_app(), ["bench", "gemm", "--help"]).output
