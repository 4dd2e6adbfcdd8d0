"""The small op through the Python API: arrays, dispatch, records, events, and the short path in C."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import events, ops, settings
from tilewright.errors import NoKernelError, ProblemError, TilewrightError
from tilewright.runtime import calls, fast_path
from tilewright.runtime.bindings import binding

Array = np.ndarray[Any, Any]
DTYPES: dict[str, Any] = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16}


def random(shape: tuple[int, ...], dtype: str = "fp32", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(DTYPES[dtype])


def wanted(x: Array, scale: Array, alpha: float = 1.0, activation: str = "PassThrough") -> tuple[Array, float]:
    """Plain NumPy in float64, and how far a result may be off."""
    v = alpha * x.astype(np.float64) * scale.astype(np.float64)[:, None]
    y = {"PassThrough": v, "Relu": np.maximum(v, 0), "Silu": v / (1 + np.exp(-v))}[activation]
    return y, (1e-5 if x.dtype == np.float32 else 1e-2) * (1 + np.abs(y).max(initial=0))


def near(result: Any, x: Array, scale: Array, **more: Any) -> bool:
    value, bound = wanted(x, scale, **more)
    return result.shape == x.shape and bool(np.all(np.abs(np.asarray(result).astype(np.float64) - value) <= bound))


@pytest.fixture(params=[1, 2], ids=["1 thread", "2 threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    with settings.override(threads=request.param):
        yield request.param


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["PassThrough", "Relu", "Silu"])
def test_calls_are_right(dtype: str, activation: str, threads: int) -> None:
    for rows, columns in ((0, 3), (3, 0), (1, 1), (5, 37), (300, 129)):
        x, scale = random((rows, columns), dtype), random((rows,), seed=1)
        result = tw.rowscale(x, scale, alpha=0.5, activation=activation)
        assert result.dtype == x.dtype
        assert near(result, x, scale, alpha=0.5, activation=activation)


def test_any_leading_stride_and_results_in_place() -> None:
    memory, scale = random((9, 80)), random((27,), seed=1)[::3]
    x = memory[:, 3:70]
    out = np.full((9, 90), np.nan, np.float32)
    answer = tw.rowscale(x, scale, out=out[:, :67])
    assert answer.base is out
    assert near(out[:, :67], x, scale)
    assert np.isnan(out[:, 67:]).all()
    kept = x.copy()
    assert tw.rowscale(x, scale, out=x) is x
    assert near(x, kept, scale)


@pytest.mark.usefixtures("needs_compiler")
def test_the_second_call_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """C finds the call, makes the result and launches: Python's long way is not entered, with new data neither."""
    assert fast_path.library() is not None
    tw.rowscale(random((8, 50)), random((8,)))
    out = np.empty((8, 50), np.float32)
    tw.rowscale(random((8, 50)), random((8,)), out=out)

    def long_way(*_arguments: Any) -> Any:
        raise AssertionError("the long way")

    monkeypatch.setattr(calls.Caller, "run_slow", long_way)
    for seed in (5, 6):
        x, scale = random((8, 50), seed=seed), random((8,), seed=seed)
        assert near(tw.rowscale(x, scale, alpha=seed), x, scale, alpha=seed)
        assert tw.rowscale(x, scale, out=out) is out
        assert near(out, x, scale)
    with pytest.raises(AssertionError, match="the long way"):
        tw.rowscale(random((8, 51)), random((8,)))


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, scale = torch.randn(6, 40).to(torch.bfloat16), torch.randn(6)
    for _ in range(2):
        y = tw.rowscale(x, scale, activation="Relu")
        assert isinstance(y, torch.Tensor)
        assert y.dtype == torch.bfloat16
        want = torch.relu(x.double() * scale.double()[:, None])
        assert torch.allclose(y.double(), want, rtol=1e-2, atol=1e-2)
    out = torch.empty(6, 40, dtype=torch.bfloat16)
    assert tw.rowscale(x, scale, activation="Relu", out=out) is out
    assert torch.equal(out, y)


def test_a_kernel_without_edge_code_runs_in_copies() -> None:
    """Tier padded: rows become longer by zeros, in memory of the plan; the rest of `out` stays."""
    registry = tw.Registry()
    registry.add(
        one
        for one in ops.op("rowscale").proposals("full", registry.target)
        if one.schedule.label() == "vector_2x4_noedge"
    )
    assert len(registry) == 1
    op, x, scale = ops.op("rowscale"), random((7, 33)), random((7,), seed=2)
    problem = op.problem({"rows": 7, "columns": 33})
    chosen = registry.select(problem)
    assert chosen.tier == "padded"
    out = np.full((7, 40), np.nan, np.float32)
    for _ in range(2):
        registry.run("rowscale", x, scale, alpha=3.0, out=out[:, :33])
        assert near(out[:, :33], x, scale, alpha=3.0)
        assert np.isnan(out[:, 33:]).all()
    assert near(registry.run("rowscale", x, scale), x, scale)
    with settings.override(strict=True), pytest.raises(NoKernelError, match="edge code"):
        tw.Registry(specs=registry.specs()).run("rowscale", x, scale)
    whole = op.problem({"rows": 7, "columns": 64})
    assert registry.select(whole).tier == "heuristic"


def test_what_no_kernel_serves_has_a_floor() -> None:
    registry = tw.Registry()
    registry.add_pool("rowscale", datatypes=("fp32",))
    problem = ops.op("rowscale").problem({"rows": 3, "columns": 5, "datatype": "bf16"})
    chosen = registry.select(problem)
    assert chosen.spec.schedule.pipeline == "loops"
    assert chosen.tier not in ("measured", "heuristic", "padded")
    x, scale = random((3, 5), "bf16"), random((3,))
    assert near(registry.run("rowscale", x, scale), x, scale)


def test_a_pool_is_built_chosen_from_measured_and_remembered(tmp_path: Any) -> None:
    op = ops.op("rowscale")
    problem = op.problem({"rows": 64, "columns": 256})
    with settings.override(cache_dir=tmp_path, threads=1), events.recorded() as heard:
        registry = tw.Registry().add_pool("rowscale")
        assert len(registry) >= 3
        progress: list[tuple[int, int]] = []
        built = registry.build(progress=lambda done, total: progress.append((done, total)))
        assert set(built) == {one.digest for one in registry.specs()}
        assert progress[-1] == (len(registry), len(registry))
        assert registry.select(problem).tier == "heuristic"
        record = registry.measure(problem, rounds=2)
        assert {one.digest for one in record.timings} == set(built)
        assert all(one.error <= 1 for one in record.timings)
        chosen = registry.select(problem)
        assert (chosen.tier, chosen.spec.digest) == ("measured", record.choice)
        strided = replace(problem, x_stride=300)
        assert registry.select(strided).tier == "measured", "strides hardly matter to time"
        explanation = registry.explain(problem)
        assert chosen.name in str(explanation)
        assert "tilewright explain rowscale --rows 64 --columns 256" in explanation.replay
        x, scale = random((64, 256)), random((64,))
        assert near(registry.run("rowscale", x, scale), x, scale)
    kinds = {type(one) for one in heard}
    assert {events.KernelBuilt, events.KernelLoaded, events.Selected, events.Measured} <= kinds
    assert any(isinstance(one, events.Selected) and one.kernel.startswith("rowscale_") for one in heard)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kernel_is_right_on_samples(dtype: str, threads: int) -> None:
    """Float64 on random data with poisoned results: what `run --verify` and `bench` ask of a binding."""
    from tilewright.dispatch.problem_run import run_problem

    op, registry = ops.op("rowscale"), tw.Registry()
    for activation in ("PassThrough", "Silu"):
        values = {
            "rows": 21,
            "columns": 83,
            "datatype": dtype,
            "activation": activation,
            "x_stride": 90,
            "y_stride": 84,
        }
        problem = op.problem(values)
        floor = op.fallback_spec(op.signature_of(problem), registry.target)
        for spec in (*op.candidates(op.signature_of(problem), registry.target), floor):
            report = run_problem(registry, problem, repeat=1, seed=3, verify=True, spec=spec)
            assert report["ok"], (spec.name, report)


def test_a_wrong_result_is_found() -> None:
    """The check of samples can fail: poison, a value off, a row left out."""
    bound, problem = binding("rowscale"), ops.op("rowscale").problem({"rows": 4, "columns": 9})
    sample = bound.sample(problem)
    assert not bound.check(problem, sample).ok
    x, scale, out = sample.operands
    out[...] = x * scale[:, None]
    assert bound.check(problem, sample).ok
    out[2, 3] *= 1.001
    found = bound.check(problem, sample)
    assert not found.ok
    assert "(2, 3)" in found.detail


def test_a_kernel_called_by_itself() -> None:
    registry = tw.Registry()
    spec = next(iter(ops.op("rowscale").proposals("default", registry.target, activations=("Relu",))))
    x, scale = random((5, 20)), random((5,))
    kernel = registry.kernel(spec)
    for _ in range(2):
        assert near(kernel(x, scale, alpha=2.0), x, scale, alpha=2.0, activation="Relu")
    with pytest.raises(ProblemError, match="bf16"):
        kernel(x.astype(ml_dtypes.bfloat16), scale)


def test_the_c_check_agrees_with_the_op() -> None:
    from rowscale.binding import RowscaleArgs, stage

    op, registry = ops.op("rowscale"), tw.Registry()
    specs = [
        one
        for one in op.proposals("full", registry.target)
        if one.schedule.label() in ("vector_2x4_noedge", "vector_2x4")
    ]
    assert len(specs) == 2
    for spec in specs:
        kernel = registry.kernel(spec)
        for columns in (0, 1, 31, 32, 33, 64, 65, 128):
            problem = op.problem({"rows": 2, "columns": columns})
            assert bool(kernel.refusal(stage(problem).args)) == bool(op.supports(spec, problem)), (spec.name, columns)
        bad = stage(op.problem({"rows": 2, "columns": 32})).args
        assert isinstance(bad, RowscaleArgs)
        bad.x_stride = 5
        assert "TW_BAD_ARGS" in kernel.refusal(bad)
        assert ctypes.sizeof(bad) == 72


@pytest.mark.parametrize(
    ("give", "rule"),
    [
        (lambda x, s: tw.rowscale(x[0], s), "rowscale-rank"),
        (lambda x, s: tw.rowscale(x, s[:-1]), "rowscale-scale"),
        (lambda x, s: tw.rowscale(x, s.astype(np.float16)), "rowscale-scale"),
        (lambda x, s: tw.rowscale(x, s, out=np.empty((2, 2), np.float32)), "rowscale-out"),
        (lambda x, s: tw.rowscale(x, s, activation="Selu"), "activation-name"),
        (lambda x, s: tw.rowscale(x, s, alpha="two"), "scalar"),
        (lambda x, s: tw.rowscale(x[:, ::2], s), "rowscale-strides"),
        (lambda x, s: tw.rowscale(x, s, out=x[::-1]), "rowscale-strides"),
        (lambda x, s: tw.rowscale(x.astype(np.float16), s), "dtype-name"),
        (lambda x, s: tw.rowscale(x[:-1], s[:-1], out=x[1:]), "out-overlaps"),
        (lambda x, s: tw.rowscale([[1.0]], s), "array-type"),
    ],
)
def test_mistakes_are_one_clear_error(give: Any, rule: str) -> None:
    with pytest.raises(TilewrightError) as error:
        give(random((4, 6)), random((4,)))
    assert error.value.rule == rule
    assert error.value.remedy


def test_a_copy_where_it_is_allowed() -> None:
    x, scale = random((5, 12)), random((5,))
    y = tw.Registry().run("rowscale", x[:, ::2], scale, copy="allow")
    assert near(y, x[:, ::2], scale)


def test_users_allow_copies_in_the_function_itself() -> None:
    x, scale = random((5, 12)), random((5,))
    for _ in range(2):
        y = tw.rowscale(x[:, ::2], scale, copy="allow")
        assert near(y, x[:, ::2], scale)
    with pytest.raises(ProblemError, match="strides") as error:
        tw.rowscale(x[:, ::2], scale)
    assert 'copy="allow"' in str(error.value), "the remedy is one that the function takes"
    with pytest.raises(TilewrightError) as wrong:
        tw.rowscale(x, scale, copy="always")
    assert wrong.value.rule == "copy-name"
