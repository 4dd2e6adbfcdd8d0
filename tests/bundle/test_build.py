"""Making bundles: what is in them, the same bytes twice, what is refused, what a budget costs."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw
from tests.backends.cpu.gemm import catalog
from tests.built import why_not_compiled
from tests.bundle.conftest import PROBLEMS, TARGETS
from tilewright import settings
from tilewright.build.bundle_file import BundleFile
from tilewright.bundle import plan
from tilewright.bundle.build import Made, Wish, build
from tilewright.dispatch import locks
from tilewright.dispatch.registry import Registry
from tilewright.errors import FileError, NoKernelError, RequestError, ToolchainError
from tilewright.ops import op


def test_every_problem_is_covered_on_every_target(made: Made) -> None:
    count = sum(map(len, PROBLEMS.values()))
    assert made.problems == count * len(TARGETS)
    assert not made.uncovered
    assert made.worst <= 0.03
    assert set(made.kernels) == set(TARGETS)
    told = str(made)
    assert all(target in told for target in TARGETS)
    assert "kB" in told or "MB" in told


def test_the_archive_is_one_that_others_read(made: Made) -> None:
    with zipfile.ZipFile(made.path) as archive:
        assert archive.testzip() is None
        entries = archive.infolist()
        manifest = json.loads(archive.read("manifest.json"))
    assert [one.filename for one in entries] == sorted(one.filename for one in entries)
    assert {one.compress_type for one in entries} == {zipfile.ZIP_STORED}
    assert {one.date_time for one in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert manifest["format"] == "tilewright-bundle"
    assert set(manifest["files"]) == {one.filename for one in entries} - {"manifest.json"}
    assert {"gemm", "conv", "attention"} == {kernel["op"] for kernel in manifest["targets"]["generic"]["kernels"]}
    assert manifest["selection"]
    assert {row["name"] for row in manifest["support"]} >= {
        "tilewright_fast_path",
        "tilewright_torch_ops",
        "tilewright_trees",
    }


def test_the_same_inputs_are_the_same_bytes(made: Made, wish: Wish, tmp_path: Path) -> None:
    again = build(tmp_path / "other.twb", wish, jobs=1)
    assert again.path.read_bytes() == made.path.read_bytes()


def test_the_order_of_targets_is_no_input(made: Made, wish: Wish, tmp_path: Path) -> None:
    again = build(tmp_path / "other.twb", replace(wish, targets=[*reversed(TARGETS), *TARGETS]), jobs=1)
    assert again.path.read_bytes() == made.path.read_bytes()


@pytest.mark.proof
def test_another_store_compiles_the_same_bytes(problems: Path, tmp_path: Path, made: Made) -> None:
    rows = tmp_path / "one.json"
    rows.write_text(json.dumps({"gemm": PROBLEMS["gemm"][:1]}), encoding="utf-8")
    wish = Wish(("generic",), [("", str(rows))], threads=(2,))
    first = build(tmp_path / "first.twb", wish, jobs=2)
    with settings.override(cache_dir=tmp_path / "store"):
        second = build(tmp_path / "second.twb", wish, jobs=2)
    assert first.path.read_bytes() == second.path.read_bytes()


def test_a_recording_is_taken(tmp_path: Path, made: Made) -> None:
    import numpy as np

    path = tmp_path / "recorded.json"
    with tw.record(path):
        tw.gemm(np.ones((64, 256), np.float32), np.ones((128, 256), np.float32).T, target="generic")
    found = build(tmp_path / "r.twb", Wish(("generic",), [("", str(path))], threads=(2,)), jobs=2)
    assert found.problems == 1
    assert not found.uncovered


def test_a_pool_is_taken_without_problems(tmp_path: Path, made: Made) -> None:
    wish = Wish(("generic",), pools=[("gemm", "tests")], expression="c.arch == 'generic'", limit=2)
    found = build(tmp_path / "pool.twb", wish, jobs=2)
    with BundleFile(found.path) as bundle:
        roles = [kernel["role"] for kernel in bundle.manifest["targets"]["generic"]["kernels"]]
    assert roles.count("pool") == 2


def test_no_fallback_kernels_where_none_are_wanted(tmp_path: Path, wish: Wish, made: Made) -> None:
    found = build(tmp_path / "lean.twb", replace(wish, fallback=False), jobs=2)
    assert sum(found.kernels.values()) < sum(made.kernels.values())
    assert not found.uncovered


def test_a_budget_that_cannot_be_met_says_how_much_it_takes(tmp_path: Path, wish: Wish, made: Made) -> None:
    with pytest.raises(RequestError, match="more than") as caught:
        build(tmp_path / "small.twb", replace(wish, max_bytes=1000), jobs=2)
    assert caught.value.rule == "bundle-size"
    assert "--max-size" in caught.value.remedy
    assert not list(tmp_path.iterdir())


def test_a_budget_costs_loss_before_problems(tmp_path: Path, made: Made) -> None:
    sizes = [{"m": m, "n": 96, "k": 64, "layout": "rcr"} for m in (1, 2, 4, 8, 16, 64, 256, 512)]
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps({"gemm": sizes}), encoding="utf-8")
    wish = Wish(("generic",), [("", str(rows))], threads=(1,))
    best = build(tmp_path / "best.twb", replace(wish, loss=0.0), jobs=2)
    assert best.worst == 0
    if best.kernels["generic"] < 3:
        pytest.skip("one kernel is the best of all sizes here: there is nothing to give up")
    least = build(tmp_path / "least.twb", replace(wish, loss=9.0), jobs=2)
    assert least.bytes < best.bytes
    fitted = build(tmp_path / "fitted.twb", replace(wish, max_bytes=least.bytes), jobs=2)
    assert fitted.bytes <= least.bytes
    assert not fitted.uncovered
    assert 0 < fitted.worst <= fitted.loss


@pytest.mark.parametrize(
    ("wish", "rule"),
    [
        (Wish((), [("gemm", "llm-decode")]), "bundle-targets"),
        (Wish(("generic",)), "bundle-what"),
        (Wish(("x86_64_v9",), [("gemm", "llm-decode")]), "arch-name"),
        (Wish(("generic",), [("gemm", "llm-decode")], expression="c.no_such > 1"), "bundle-filter"),
        (Wish(("generic",), [("gemm", "llm-decode")], limit=3), "bundle-filter"),
        (Wish(("generic",), [("", "no-such-set")]), "prepare-what"),
        (Wish(("generic",), [("", "no-such-file.json")]), "problems-file"),
    ],
)  # fmt: skip
def test_what_is_refused(wish: Wish, rule: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        build(tmp_path / "none.twb", wish)
    assert caught.value.rule == rule
    assert caught.value.remedy
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [({"gem": [{"m": 8, "n": 8, "k": 8}]}, "'gem', which is no op"), ([{"m": 8, "n": 8, "k": 8}], "of which op")],
)
def test_a_file_without_the_name_of_an_op(content: object, message: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(RequestError, match=message) as caught:
        build(tmp_path / "none.twb", Wish(("generic",), [("", str(rows))]))
    assert "gemm" in caught.value.remedy or "--problems OP=" in caught.value.remedy


def test_a_mistake_in_a_file_is_told_by_its_place(tmp_path: Path) -> None:
    rows = tmp_path / "wrong.json"
    rows.write_text(json.dumps({"gemm": [{"m": 8, "n": 8, "k": 8}, {"m": 8, "nn": 8, "k": 8}]}), encoding="utf-8")
    with pytest.raises(RequestError, match=r"gemm\[1\]"):
        build(tmp_path / "none.twb", Wish(("generic",), [("", str(rows))]))


def test_a_problem_that_a_target_cannot_serve_is_missing_and_says_why(tmp_path: Path, made: Made) -> None:
    rows = tmp_path / "rows.json"
    heads = {"batch": 1, "heads_q": 2, "heads_kv": 2, "seqlen_q": 16, "seqlen_k": 16, "head_dim": 1000}
    rows.write_text(json.dumps({"gemm": PROBLEMS["gemm"][:1], "attention": [heads]}), encoding="utf-8")
    wish = Wish(("generic",), [("", str(rows))], threads=(2,))
    found = build(tmp_path / "some.twb", wish, jobs=2)
    assert [row["op"] for row in found.uncovered] == ["attention"]
    assert "head_dim is 1000" in found.uncovered[0]["why"]
    assert "not covered" in str(found)
    with pytest.raises(NoKernelError) as caught:
        build(tmp_path / "strict.twb", replace(wish, strict=True), jobs=2)
    assert caught.value.rule == "bundle-uncovered"
    assert not (tmp_path / "strict.twb").exists()


def test_a_missing_compiler_is_one_error_for_all_targets(
    tmp_path: Path, wish: Wish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    lacking = [target for target in ("gfx942", "sm_90a") if why_not_compiled(target)]
    if not lacking:
        pytest.skip("this machine has the compilers of all targets")
    with pytest.raises(ToolchainError) as caught:
        build(tmp_path / "none.twb", replace(wish, targets=("gfx942", "sm_90a")))
    assert caught.value.rule == "bundle-compiler"
    assert all(target in caught.value.message for target in lacking)
    assert "--targets" in caught.value.remedy
    assert not list(tmp_path.iterdir())


def test_what_was_there_stays_where_a_build_fails(bundle: Path, wish: Wish) -> None:
    before = bundle.read_bytes()
    with pytest.raises(RequestError):
        build(bundle, replace(wish, max_bytes=10))
    assert bundle.read_bytes() == before
    assert [one.name for one in bundle.parent.iterdir()] == [bundle.name]


def test_a_folder_in_the_way_is_told_before_anything_is_compiled(tmp_path: Path, wish: Wish) -> None:
    with pytest.raises(RequestError, match="is a folder"):
        build(tmp_path, wish)


def test_a_lock_file_comes_along(tmp_path: Path, made: Made, problems: Path) -> None:
    problem = tw.GemmProblem(m=64, n=128, k=256, layout="rcr")
    registry = Registry("generic")
    other = next(spec for spec in registry.candidates(problem)[::-1] if not op("gemm").supports(spec, problem))
    path = tmp_path / "lock.json"
    locks.write(path, [locks.pin(op("gemm"), "generic", problem, other)])
    found = build(tmp_path / "locked.twb", Wish(("generic",), [("", str(problems))], threads=(2,), lock=path), jobs=2)
    with tw.use_bundle(found.path):
        chosen = tw.explain(problem, target="generic").selection
    assert chosen is not None
    assert chosen.tier == "locked"
    assert [one.spec.digest for one in chosen.stages] == [other.digest]


def test_what_is_served_in_padded_copies_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned, not compiled: a kernel without edge code takes no odd products as they are."""
    whole = catalog.spec("packed", "x86_64_v3", pad=(False, False, False))
    monkeypatch.setattr(plan, "Registry", lambda target, specs=(whole,): Registry(target, specs))
    found = plan.plan("x86_64_v3", [tw.GemmProblem(m=7, n=5, k=3)])
    (row,) = plan.coverage(found, found.chosen(0.03, fallback=True))
    assert row["tier"] == "padded"
    assert "run as" in row["why"]
    assert not plan.covered(row)


def test_coverage_says_where_a_target_has_nothing_but_the_fallback_kernel() -> None:
    """Planned, not compiled: fp32 attention of NVIDIA GPUs beside what has kernels there."""
    loops, other = tw.AttentionProblem(1, 4, 64, 64, 64), tw.AttentionProblem(1, 4, 64, 64, 64, dtype_q="bf16")
    found = plan.plan("sm_90a", [loops, other])
    by_text = {row["text"]: row for row in plan.coverage(found, found.chosen(0.03, fallback=True))}
    row = by_text[loops.describe()]
    assert row["tier"] == "fallback"
    assert row["why"] == "the op has no other kernel for forward_fp32_h64x64 on sm_90a"
    assert not plan.covered(row)
    assert plan.covered(by_text[other.describe()])


def test_coverage_says_where_only_the_kernels_of_the_bundle_refuse() -> None:
    rows_of_64 = tw.AttentionProblem(2, 9, 27, 109, 32, heads_kv=3)  # more than one that decodes takes
    attention, found = op("attention"), plan.plan("generic", [rows_of_64], threads=(2,))
    signature = attention.signature_of(rows_of_64)
    decode = next(spec for spec in attention.candidates(signature, "generic") if "decode" in spec.name)
    last = attention.fallback_spec(signature, "generic")
    found.specs.update({spec.digest: spec for spec in (decode, last)})
    (row,) = plan.coverage(found, {decode.digest: plan.CHOICE, last.digest: plan.FALLBACK})
    assert (row["tier"], row["why"]) == ("fallback", "no kernel of the bundle serves it as it is")


def test_a_kernel_that_only_the_last_tier_takes_stays_one(made: Made) -> None:
    problem, gemm = tw.GemmProblem(m=7, n=5, k=3), op("gemm")
    spec = gemm.fallback_spec(gemm.signature_of(problem), "generic")
    served_by_it = plan.Plan("generic", Registry("generic"), times={(1, problem): {spec.digest: 1.0}})
    served_by_it.specs[spec.digest] = spec
    assert served_by_it.chosen(0.03, fallback=False) == {spec.digest: "fallback"}


def test_cpp_is_told_of_kernels_that_only_the_last_tier_takes(tmp_path: Path) -> None:
    """Nothing but the fallback kernel appends on a CPU: the registry that C++ reads has it too."""
    problem = tw.AttentionProblem(
        batch=2, heads_q=2, heads_kv=2, seqlen_q=2, seqlen_k=64, head_dim=32, family="append", seqlens_k=True
    )
    made = build(tmp_path / "append.twb", Wish(["generic"], [problem]), jobs=1)
    with zipfile.ZipFile(made.path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        registry = json.loads(archive.read("registry/generic.json"))
        files = set(archive.namelist())
    kernels = {kernel["digest"]: kernel for kernel in registry["kernels"]}
    assert set(kernels) == {kernel["digest"] for kernel in manifest["targets"]["generic"]["kernels"]}
    assert all(kernel["fallback"] and kernel["library"] in files for kernel in kernels.values())
    assert {shared["library"] for shared in registry["selection"].values()} <= files


@pytest.mark.tools
def test_a_gpu_target_needs_no_gpu(tmp_path: Path) -> None:
    why = why_not_compiled("sm_90a")
    if why:
        pytest.skip(why)
    rows = tmp_path / "rows.json"
    one = {"m": 64, "n": 128, "k": 256, "datatype": "fp16", "layout": "rcr"}
    rows.write_text(json.dumps({"gemm": [one]}), encoding="utf-8")
    try:
        found = build(tmp_path / "gpu.twb", Wish(("sm_90a",), [("", str(rows))]), jobs=2)
    except FileError as error:
        pytest.fail(str(error))
    assert not found.uncovered
    with BundleFile(found.path) as bundle:
        bundle.check()
        assert bundle.manifest["targets"]["sm_90a"]["backend"] == "cuda"


def test_a_reason_of_several_stages_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = plan.plan("generic", [tw.AttentionProblem(1, 2, 16, 64, 32, num_splits=2)], threads=(2,))
    missing = {"digest": "", "kernel": "", "tier": "", "loss": None, "why": "there is none"}
    monkeypatch.setattr(plan, "_stage", lambda *_: missing)
    (row,) = plan.coverage(asked, {})
    assert len(row["stages"]) == 2
    assert row["why"] == "there is none"
