"""The registry: what is chosen, why, and how far a choice may fall."""

from __future__ import annotations

import contextvars
import dataclasses
import json
import math
import shlex
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.backends.cpu.gemm import catalog
from tilewright import events, ops, settings
from tilewright.arch import all_archs, best_host_arch, runnable_host_archs
from tilewright.errors import DeviceError, IllegalSpecError, NoKernelError, RequestError, UnknownNameError
from tilewright.native import judge, library, one_kernel
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.reference import verify

GEMM = ops.op("gemm")
PROBLEM = tw.GemmProblem(m=64, n=64, k=64)


def packed(problem: tw.GemmProblem = PROBLEM) -> tuple[KernelSpec, ...]:
    """Two legal kernels of the packed pipeline, whatever the pools propose."""
    found = [
        spec
        for pool in ("tests", "full")
        for spec in GEMM.proposals(pool, best_host_arch().name, layouts=(problem.layout,))
        if spec.schedule.pipeline == "packed" and spec.signature == problem.signature and not GEMM.check(spec)
    ]
    return found[0], next(spec for spec in found if spec.schedule.warp_tile != found[0].schedule.warp_tile)


def without_edges(spec: KernelSpec) -> KernelSpec:
    return dataclasses.replace(spec, schedule=dataclasses.replace(spec.schedule, pad=(False, False, False)))


def test_an_empty_registry_chooses_among_the_ops_candidates() -> None:
    registry = tw.Registry()
    chosen = registry.select(PROBLEM)
    assert chosen.spec in GEMM.candidates(PROBLEM.signature, registry.target)
    assert chosen.tier == "heuristic"
    assert chosen.seconds > 0
    assert len(registry) == 0


@pytest.mark.parametrize("wrong", [3, "gemm_fp32_rrr", None])
def test_what_is_no_spec_is_one_error(wrong: Any) -> None:
    with pytest.raises(RequestError) as caught:
        tw.Registry().kernel(wrong)
    assert caught.value.rule == "spec-type"
    assert caught.value.remedy


def test_registered_kernels_are_the_only_candidates() -> None:
    first, second = packed()
    registry = tw.Registry(specs=[second])
    assert registry.select(PROBLEM).spec == second
    registry.add(first)
    registry.add([first, second])
    assert registry.specs() == (second, first)
    assert registry.select(PROBLEM).spec in (first, second)


@pytest.fixture
def _in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the selection library, as for kernels that it does not know: estimates come from the backend's Python."""
    monkeypatch.setattr("tilewright.dispatch.judged.judge", lambda *_: None)


@pytest.mark.usefixtures("_in_python")
def test_an_estimate_that_is_no_number_never_wins_over_one(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = packed()
    for odd in specs:
        registry = tw.Registry(specs=specs)

        def estimate(spec: KernelSpec, problem: Any, threads: int, odd: KernelSpec = odd) -> float:
            return math.nan if spec == odd else 1.0

        monkeypatch.setattr(registry._backend, "estimate", estimate)
        assert registry.select(PROBLEM).spec != odd
        told = next(one for one in registry.explain(PROBLEM).candidates if one.name == odd.name)
        assert told.estimated_seconds is None
        assert "no finite number" in " ".join(told.reasons)
    monkeypatch.setattr(registry._backend, "estimate", lambda spec, problem, threads: math.nan)
    text = json.dumps(tw.Registry(specs=specs).explain(PROBLEM).to_dict(), allow_nan=False)
    assert json.loads(text)["chosen"]["seconds"] is None


@pytest.mark.usefixtures("_in_python")
def test_the_lowest_estimate_wins_and_the_first_of_equals(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = packed()
    for wanted in (first, second):
        registry = tw.Registry(specs=[first, second])

        def estimate(spec: KernelSpec, problem: Any, threads: int, wanted: KernelSpec = wanted) -> float:
            return 1.0 if spec == wanted else 2.0

        monkeypatch.setattr(registry._backend, "estimate", estimate)
        assert registry.select(PROBLEM).spec == wanted
    monkeypatch.setattr(registry._backend, "estimate", lambda spec, problem, threads: 1.0)
    assert tw.Registry(specs=[second, first]).select(PROBLEM).spec == second


def test_kernels_of_an_included_arch_may_be_registered() -> None:
    spec = GEMM.fallback_spec(PROBLEM.signature, "generic")
    registry = tw.Registry(specs=[spec])
    assert registry.select(PROBLEM).spec == spec
    a = np.ones((64, 64), np.float32)
    np.testing.assert_array_equal(registry.run("gemm", a, a), 64)


def test_kernels_of_a_foreign_arch_are_refused() -> None:
    foreign = GEMM.fallback_spec(PROBLEM.signature, "x86_64_v3")
    with pytest.raises(RequestError) as caught:
        tw.Registry("generic", specs=[foreign])
    assert caught.value.rule == "spec-arch"


def test_illegal_specs_are_refused_with_every_rule() -> None:
    first, _ = packed()
    broken = dataclasses.replace(first, schedule=dataclasses.replace(first.schedule, tile=(7, 7, 7), unroll=99))
    with pytest.raises(IllegalSpecError, match="tile-multiple"):
        tw.Registry(specs=[broken])


@pytest.mark.parametrize("target", ["cpu", "", None])
def test_the_default_target_is_the_best_of_this_machine(target: str | None) -> None:
    assert tw.Registry(target).target == best_host_arch().name


def test_the_target_is_a_setting_too() -> None:
    with settings.override(target="generic"):
        assert tw.Registry().target == "generic"


def test_an_unknown_target_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'generic'"):
        tw.Registry("genric")


def test_a_pool_adds_its_legal_specs() -> None:
    registry = tw.Registry().add_pool("gemm", "tests", layouts=("rcr",))
    assert len(registry) > 0
    assert all(spec.signature.layout == "rcr" and not GEMM.check(spec) for spec in registry.specs())


def test_a_pool_without_a_legal_spec_is_an_error_that_says_why() -> None:
    with pytest.raises(RequestError, match="no matrix instruction for fp32") as caught:
        tw.Registry("gfx1100").add_pool("gemm", datatypes=("fp32",), layouts=("rcr",), variants=("preshuffle",))
    assert caught.value.rule == "no-specs"
    assert "give b unpacked" in caught.value.remedy


def test_an_axis_that_is_none_is_named() -> None:
    with pytest.raises(RequestError, match="no axis 'datatype'") as caught:
        tw.Registry().add_pool("gemm", datatype="fp16")
    assert "datatypes" in caught.value.remedy


SIZES = [(33, 50, 7), (1, 1, 1), (9, 49, 3), (71, 97, 65)]


@pytest.mark.parametrize("layout", ["rrr", "rcr", "crr", "ccr"])
def test_kernels_without_edge_code_run_in_padded_copies(layout: str) -> None:
    registry = tw.Registry(specs=[without_edges(packed(dataclasses.replace(PROBLEM, layout=layout))[0])])
    rng = np.random.default_rng(0)
    for m, n, k in SIZES if layout == "rrr" else SIZES[:1]:
        problem = tw.GemmProblem(m=m, n=n, k=k, layout=layout, beta=True)
        assert registry.select(problem).tier == "padded"
        a = rng.standard_normal((2, m, k) if layout[0] == "r" else (2, k, m), np.float32)
        a = a if layout[0] == "r" else a.swapaxes(1, 2)
        b = rng.standard_normal((k, n) if layout[1] == "r" else (n, k), np.float32)
        b = b if layout[1] == "r" else b.T
        c, out = rng.standard_normal((2, m, n), np.float32), np.full((2, m, n + 3), np.nan, np.float32)
        registry.run("gemm", a, b, c, beta=0.5, out=out[:, :, :n])
        check = verify(problem, {"a": a, "b": b, "c": c, "ds": (), "alpha": 1, "beta": 0.5}, out[:, :, :n])
        assert check.ok, check.detail
        assert np.isnan(out[:, :, n:]).all()


def test_padded_runs_take_d_tensors_and_column_major_results() -> None:
    spec = packed()[0]
    signature = dataclasses.replace(spec.signature, variant="multi_d", epilogue="Sigmoid", num_d=2)
    registry = tw.Registry(specs=[without_edges(dataclasses.replace(spec, signature=signature))])
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((19, 21), np.float32), rng.standard_normal((21, 31), np.float32)
    ds = (rng.standard_normal((19, 31), np.float32), rng.standard_normal(31, np.float32))
    problem = tw.GemmProblem(m=19, n=31, k=21, epilogue="Sigmoid", num_d=2)
    with events.recorded() as heard:
        e = registry.run("gemm", a, b, ds=ds, epilogue="sigmoid")
    assert [one.tier for one in heard if isinstance(one, events.Selected)] == ["padded"]
    assert verify(problem, {"a": a, "b": b, "c": None, "ds": ds, "alpha": 1, "beta": 0}, e).ok


def test_a_size_that_fits_needs_no_padding() -> None:
    spec = without_edges(packed()[0])
    m, n, k = spec.schedule.warp_tile
    assert tw.Registry(specs=[spec]).select(tw.GemmProblem(m=3 * m, n=2 * n, k=5 * k)).tier == "heuristic"


def test_without_a_kernel_of_the_signature_the_generic_one_serves() -> None:
    registry = tw.Registry(specs=[packed()[0]])
    problem = tw.GemmProblem(m=5, n=6, k=7, layout="crr")
    chosen = registry.select(problem)
    assert (chosen.tier, chosen.spec) == ("fallback", GEMM.fallback_spec(problem.signature, registry.target))
    a, b = np.ones((7, 5), np.float32).T, np.ones((7, 6), np.float32)
    np.testing.assert_array_equal(registry.run("gemm", a, b), 7)


def test_strict_mode_refuses_padded_and_generic_with_reasons() -> None:
    spec = without_edges(packed()[0])
    registry = tw.Registry(specs=[spec])
    odd = tw.GemmProblem(m=5, n=6, k=7)
    with pytest.raises(NoKernelError, match="no edge code along m") as caught:
        registry.select(odd, strict=True)
    assert spec.name in str(caught.value)
    with settings.override(strict=True), pytest.raises(NoKernelError, match="none has its signature"):
        registry.select(tw.GemmProblem(m=5, n=6, k=7, dtype_a="int8"))
    with settings.override(strict=True), pytest.raises(NoKernelError):
        registry.run("gemm", np.ones((5, 7), np.float32), np.ones((7, 6), np.float32))
    assert registry.select(odd).tier == "padded"


def lacking_arch() -> str:
    runnable = {one.name for one in runnable_host_archs()}
    names = [name for name, one in all_archs().items() if one.family == "cpu" and name not in runnable]
    if not names:
        pytest.skip("this machine runs every CPU arch")
    return names[0]


def test_a_target_this_machine_lacks_builds_and_selects_but_does_not_run() -> None:
    name = lacking_arch()
    registry = tw.Registry(name, specs=[GEMM.fallback_spec(PROBLEM.signature, name)])
    assert registry.select(PROBLEM).spec.arch == name
    (artifact,) = registry.build().values()
    assert artifact.path.is_file()
    a = np.ones((64, 64), np.float32)
    for attempt in (lambda: registry.run("gemm", a, a), registry.kernels, lambda: registry.measure(PROBLEM)):
        with pytest.raises(DeviceError) as caught:
            attempt()
        assert caught.value.rule == "arch-not-runnable"
        assert best_host_arch().name in caught.value.remedy


def test_build_reports_progress_and_is_found_again() -> None:
    specs = [
        GEMM.fallback_spec(dataclasses.replace(PROBLEM, layout=one).signature, "generic") for one in ("rrr", "rcr")
    ]
    registry = tw.Registry(specs=specs)
    for _ in range(2):
        seen: list[tuple[int, int]] = []
        built = registry.build(max_workers=2, progress=lambda done, total: seen.append((done, total)))  # noqa: B023
        assert set(built) == {spec.digest for spec in specs}
        assert seen == [(1, 2), (2, 2)]
    assert [kernel.spec for kernel in registry.kernels()] == specs


def test_frozen_never_compiles(tmp_path: Path) -> None:
    registry = tw.Registry("generic")
    a = np.ones((4, 4), np.float32)
    with settings.override(frozen=True, cache_dir=tmp_path, threads=1), pytest.raises(NoKernelError) as caught:
        registry.run("gemm", a, a)
    assert caught.value.rule == "frozen"


def run_in_threads(count: int, body: Any) -> list[BaseException]:
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def guarded(index: int) -> None:
        try:
            barrier.wait(30)
            body(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(guarded, index)) for index in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return errors


@pytest.mark.usefixtures("needs_compiler")
def test_threads_share_a_registry_and_each_kernel_is_compiled_once(tmp_path: Path) -> None:
    registry = tw.Registry("generic", specs=[GEMM.fallback_spec(PROBLEM.signature, "generic")])
    rng = np.random.default_rng(0)
    shapes = [(m, n, k) for m in (1, 5, 8) for n in (3, 9) for k in (2, 17)]
    inputs = [(rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)) for m, n, k in shapes]

    def body(index: int) -> None:
        for turn in range(60):
            a, b = inputs[(index * 7 + turn) % len(inputs)]
            alpha = float(index + 1)
            e = registry.run("gemm", a, b, alpha=alpha)
            np.testing.assert_allclose(e, alpha * (a @ b), rtol=1e-4, atol=1e-4)

    with settings.override(cache_dir=tmp_path, threads=2), events.recorded() as heard:
        errors = run_in_threads(12, body)
    assert errors == []
    compiled = [one.name for one in heard if isinstance(one, events.KernelBuilt) and not one.cached]
    kernels = [name for name in compiled if name.startswith("gemm")]
    assert len(kernels) == 1
    assert len([one for one in heard if isinstance(one, events.KernelLoaded)]) == 1


@pytest.mark.usefixtures("needs_compiler")
def test_threads_may_call_one_plan_with_c_and_out() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((40, 64), np.float32), rng.standard_normal((64, 48), np.float32)
    expected = a @ b

    def body(index: int) -> None:
        out = np.empty((40, 48), np.float32)
        c = np.full((40, 48), index, np.float32)
        for _ in range(50):
            out.fill(np.nan)
            tw.gemm(a, b, c, beta=1, out=out)
            np.testing.assert_allclose(out, expected + index, rtol=1e-4, atol=1e-4)

    assert run_in_threads(8, body) == []


def test_a_failed_build_is_tried_again(tmp_path: Path) -> None:
    registry = tw.Registry("generic")
    a = np.ones((2, 2), np.float32)
    with settings.override(cache_dir=tmp_path, threads=1):
        with settings.override(frozen=True), pytest.raises(NoKernelError):
            registry.run("gemm", a, a)
        np.testing.assert_array_equal(registry.run("gemm", a, a), 2)


def test_without_a_selection_library_the_checks_of_kernels_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gemv kernel refuses a product of many rows and columns only when it is asked: the fallback serves it."""
    monkeypatch.setattr(judge, "library", lambda kernels: None)
    one_kernel._known.cache_clear()
    gemv = catalog.spec("gemv", catalog.best())
    registry = tw.Registry(specs=[gemv])
    a, b = np.full((9, 3), 2, np.float32), np.ones((3, 9), np.float32)
    with events.recorded() as heard:
        np.testing.assert_array_equal(registry.run("gemm", a, b), 6)
    assert [event.tier for event in heard if isinstance(event, events.Selected)] == ["heuristic", "fallback"]
    np.testing.assert_array_equal(registry.run("gemm", a[:1], b), 6)  # which it takes


def test_adding_a_kernel_makes_old_choices_stale() -> None:
    first, second = packed()
    registry = tw.Registry(specs=[GEMM.fallback_spec(PROBLEM.signature, "generic")])
    a = np.ones((64, 64), np.float32)
    registry.run("gemm", a, a)
    registry.add([first, second])
    with events.recorded() as heard:
        registry.run("gemm", a, a)
    assert [one.kernel for one in heard if isinstance(one, events.Selected)] == [registry.select(PROBLEM).name]
    assert registry.select(PROBLEM).spec in (first, second)


def explained(registry: tw.Registry, problem: tw.GemmProblem, **options: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(registry.explain(problem, **options).to_dict()))
    return data


def verdicts(data: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["verdict"] for one in data["candidates"]}


def test_explain_lists_each_candidate_with_its_reason() -> None:
    first, second = packed()
    edgeless = without_edges(first)
    registry = tw.Registry(specs=[edgeless, second])
    data = explained(registry, tw.GemmProblem(m=5, n=7, k=9))
    assert verdicts(data) == {edgeless.name: "refused", second.name: "chosen"}
    refused = next(one for one in data["candidates"] if one["verdict"] == "refused")
    assert "no edge code along m" in refused["reasons"][0]
    assert data["chosen"]["tier"] == "heuristic"
    text = str(registry.explain(tw.GemmProblem(m=5, n=7, k=9)))
    assert second.name in text
    assert "no edge code along m" in text


def test_explain_shows_the_fallback_and_strict_refusal() -> None:
    registry = tw.Registry(specs=[packed()[0]])
    problem = tw.GemmProblem(m=5, n=7, k=9, layout="ccr")
    data = explained(registry, problem)
    assert data["chosen"]["tier"] == "fallback"
    assert list(verdicts(data).values()) == ["chosen"]
    strict = explained(registry, problem, strict=True)
    assert strict["chosen"] is None
    assert "strict" in strict["decided"]
    assert strict["replay"].endswith("--strict")


REPLAYED: Sequence[tw.GemmProblem] = (
    PROBLEM,
    tw.GemmProblem(m=5, n=7, k=9, dtype_a="bf16", dtype_c="fp32", layout="rcr", batch=3, broadcast_b=True),
    tw.GemmProblem(m=5, n=7, k=9, epilogue="Relu", num_d=2, beta=True, a_stride=20),
    tw.GemmProblem(m=5, n=7, k=9, dtype_a="fp16", dtype_b="bf16", preshuffled=True),
)


@pytest.mark.parametrize("problem", REPLAYED, ids=lambda one: one.describe())
def test_the_replay_line_explains_the_same_choice(problem: tw.GemmProblem) -> None:
    from typer.testing import CliRunner

    from tilewright.cli.main import build_app

    explanation = tw.explain(problem)
    words = shlex.split(explanation.replay)
    assert words[0] == "tilewright"
    done = CliRunner().invoke(build_app(), [*words[1:], "--json"])
    assert done.exit_code == 0, done.output
    again = json.loads(done.stdout)
    assert again["problem"] == json.loads(json.dumps(explanation.to_dict()))["problem"]
    assert again["chosen"] == json.loads(json.dumps(explanation.to_dict()))["chosen"]
    assert again["replay"] == explanation.replay


ONLY_LOOPS = (
    (tw.GemmProblem(m=64, n=64, k=64, dtype_a="fp32", layout="rcr"), "gfx1201"),
    (tw.AttentionProblem(batch=1, heads_q=2, seqlen_q=64, seqlen_k=64, head_dim=64), "gfx1201"),
    (tw.AttentionBackwardProblem(batch=1, heads_q=2, seqlen_q=64, seqlen_k=64, head_dim=64), "gfx1201"),
)


@pytest.mark.parametrize(("problem", "target"), ONLY_LOOPS, ids=lambda each: getattr(each, "op", each))
def test_the_only_kernel_of_an_op_is_of_the_last_tier_where_it_is_the_fallback(problem: Any, target: str) -> None:
    registry = tw.Registry(target=target)
    chosen = registry.select(problem)
    assert "loops" in chosen.name
    assert chosen.tier == "fallback"
    assert "no other kernel" in chosen.reason
    with pytest.raises(NoKernelError, match="only the fallback kernel") as caught:
        registry.select(problem, strict=True)
    assert caught.value.remedy
    explanation = registry.explain(problem, strict=True)
    assert explanation.selection is None
    # who registered it by hand asked for it
    mine = tw.Registry(target=target, specs=[stage.spec for stage in chosen.stages])
    assert mine.select(problem, strict=True).tier == "heuristic"


def test_strict_mode_takes_loops_that_only_combine_parts() -> None:
    problem = tw.AttentionProblem(batch=1, heads_q=8, seqlen_q=1, seqlen_k=32768, head_dim=128, dtype_q="bf16")
    stages = tw.Registry(target="gfx1201").select(problem, strict=True).stages
    assert [stage.tier for stage in stages] == ["heuristic"] * 2
    assert "combine" in stages[1].name
    assert "loops" in stages[1].name


def test_a_cache_that_cannot_be_is_named_in_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("a file")
    monkeypatch.setattr(library, "_loaded", {})
    one_kernel._known.cache_clear()  # what asked about these kernels before has the library still
    with settings.override(cache_dir=file):
        chosen = tw.Registry("generic").select(tw.GemmProblem(m=64, n=64, k=64))
    assert f"{file} is not a folder" in chosen.reason
