"""The op of two stages through the Python API: a table, optional operands, two results, a workspace between."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import events, ops, settings
from tilewright.errors import ProblemError, TilewrightError
from tilewright.runtime import calls, fast_path
from tilewright.runtime.bindings import binding

Array = np.ndarray[Any, Any]
DTYPES: dict[str, Any] = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def random(shape: tuple[int, ...], dtype: str = "fp32", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(DTYPES[dtype])


def wanted(
    x: Array,
    lengths: Array,
    weight: Array | None = None,
    shift: Array | None = None,
    scale: float = 1.0,
    dilation: tuple[int, ...] = (),
) -> tuple[Array, Array]:
    """As a person would write it: entry by entry, in float64."""
    steps = dilation or (1,) * (x.ndim - 2)
    means, peaks = [], []
    for entry, length in zip(x.astype(np.float64), lengths, strict=True):
        v = scale * entry[(slice(0, int(length), steps[0]), *(slice(None, None, one) for one in steps[1:]))]
        v = v * (1.0 if weight is None else weight) + (0.0 if shift is None else shift)
        v = v.reshape(-1, x.shape[-1])
        means.append(v.mean(0) if len(v) else np.zeros(x.shape[-1]))
        peaks.append(v.max(0, initial=-np.inf))
    shape = (len(x), x.shape[-1])
    return np.array(means).reshape(shape), np.array(peaks).reshape(shape)


def near(results: Any, x: Array, *operands: Any, **more: Any) -> bool:
    (mean, peak), (want_mean, want_peak) = results, wanted(x, *operands, **more)
    assert mean.dtype == np.float32
    assert peak.dtype == x.dtype
    room = 1e-5 if x.dtype == np.float32 else 1e-2
    # Two infinities are the same number: their difference is none.
    same = np.asarray(peak).astype(np.float64) == want_peak
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(np.asarray(peak).astype(np.float64) - want_peak))
    return bool(
        np.allclose(mean, want_mean, rtol=1e-5, atol=1e-5) and np.all(off <= room * (1 + np.abs(want_peak).clip(0, 99)))
    )


@pytest.fixture(params=[1, 2], ids=["1 thread", "2 threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    with settings.override(threads=request.param):
        yield request.param


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "dilation"),
    [
        ((3, 10, 5), ()),
        ((2, 600, 17), (1,)),
        ((4, 9, 8, 33), (2, 3)),
        ((2, 12, 13, 11, 40), (1, 2, 1)),
        ((2, 5, 64, 64, 3), ()),
    ],
    ids=str,
)
def test_calls_are_right(dtype: str, shape: tuple[int, ...], dilation: tuple[int, ...], threads: int) -> None:
    x, weight, shift = random(shape, dtype), random(shape[-1:], seed=1), random(shape[-1:], seed=2)
    lengths = np.linspace(0, shape[1], shape[0]).astype(np.int32)  # from none to all
    for fused in ({}, {"weight": weight}, {"shift": shift}, {"weight": weight, "shift": shift}):
        results = tw.regionstats(x, lengths, scale=0.5, dilation=dilation, **fused)
        assert near(results, x, lengths, scale=0.5, dilation=dilation, **fused)


@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (2, 4, 0), (2, 4, 0, 5), (1, 1, 1)], ids=str)
def test_empty_sizes(shape: tuple[int, ...]) -> None:
    x, lengths = random(shape), np.full(shape[0], shape[1], np.int32)
    mean, peak = tw.regionstats(x, lengths)
    assert mean.shape == peak.shape == (shape[0], shape[-1])
    if 0 in shape:
        assert (mean == 0).all()
        assert (peak == -np.inf).all()
    else:
        assert mean[0, 0] == peak[0, 0] == x[0, 0, 0]


def test_an_entry_without_positions_has_mean_0_and_peak_minus_infinity() -> None:
    mean, peak = tw.regionstats(random((2, 3, 4), "fp16"), np.array([0, 3], np.int32), shift=random((4,)))
    assert (mean[0] == 0).all()
    assert (peak[0] == -np.inf).all()
    assert np.isfinite(peak[1]).all()


def test_nan_is_nan_in_both_results_and_only_where_it_counts() -> None:
    x, lengths = random((2, 300, 3)), np.array([300, 10], np.int32)
    x[0, 299, 1] = x[1, 10, 2] = np.nan
    mean, peak = tw.regionstats(x, lengths)
    assert np.isnan(mean).tolist() == np.isnan(peak).tolist() == [[False, True, False], [False] * 3]


@pytest.mark.parametrize("lengths", [[3, 9], [-1, 2], [2**31 - 1, 0]])
def test_lengths_out_of_range_are_one_clear_error(lengths: list[int]) -> None:
    """Data, so it is known when the kernel runs: on the long way and on the short one, and nothing is written."""
    x, good = random((2, 8, 5)), np.array([8, 0], np.int32)
    out = (np.full((2, 5), 7, np.float32), np.full((2, 5), 7, np.float32))
    for _ in range(2):
        with pytest.raises(ProblemError, match="lengths") as error:
            tw.regionstats(x, np.array(lengths, np.int32), out=out)
        assert error.value.remedy
        assert all((one == 7).all() for one in out)
        tw.regionstats(x, good)
        tw.regionstats(x, good, out=(out[0].copy(), out[1].copy()))


def test_results_may_be_given_one_or_both() -> None:
    x, lengths = random((3, 20, 6), "bf16"), np.array([20, 1, 13], np.int32)
    memory = np.full((3, 10), np.nan, np.float32)
    peak = np.zeros((3, 6), ml_dtypes.bfloat16)
    for _ in range(2):
        found = tw.regionstats(x, lengths, out=(memory[:, 2:8], None))
        assert found[0].base is memory
        assert near(found, x, lengths)
        assert np.isnan(memory[:, :2]).all()
        assert np.isnan(memory[:, 8:]).all()
        found = tw.regionstats(x, lengths, out=(None, peak))
        assert found[1] is peak
        assert near(found, x, lengths)
        mean = np.empty((3, 6), np.float32)
        assert tw.regionstats(x, lengths, out=(mean, peak)) == (mean, peak)
        assert near((mean, peak), x, lengths)


def test_strides_of_every_dimension() -> None:
    memory, lengths = random((6, 14, 5, 9, 20)), np.array([3, 7, 0], np.int32)
    x = memory[::2, ::2, 1:4, ::-1, 4:15]
    assert near(tw.regionstats(x, lengths, dilation=(2, 1, 3)), x, lengths, dilation=(2, 1, 3))


@pytest.mark.usefixtures("needs_compiler")
def test_the_second_call_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both stages, the workspace between them and both results: C alone, with new data and new lengths."""
    assert fast_path.library() is not None
    shape, lengths = (3, 700, 19), np.array([700, 5, 0], np.int32)
    weight = random((19,))
    tw.regionstats(random(shape), lengths, weight=weight)
    tw.regionstats(random(shape), lengths)

    def long_way(*_arguments: Any) -> Any:
        raise AssertionError("the long way")

    monkeypatch.setattr(calls.Caller, "run_slow", long_way)
    for seed in (5, 6):
        x, limits = random(shape, seed=seed), np.array([seed, 700, 256], np.int32)
        assert near(tw.regionstats(x, limits, weight=weight, scale=2), x, limits, weight=weight, scale=2)
        assert near(tw.regionstats(x, limits), x, limits)
    with pytest.raises(AssertionError, match="the long way"):
        tw.regionstats(random(shape), lengths, shift=weight)


def test_any_number_of_threads_share_a_plan() -> None:
    """What the stages hand on belongs to the calling thread."""
    shape = (2, 900, 13)

    def calls_of(seed: int) -> bool:
        x, lengths = random(shape, seed=seed), np.array([900 - seed, seed], np.int32)
        return all(near(tw.regionstats(x, lengths), x, lengths) for _ in range(10))

    assert calls_of(0)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(calls_of, range(1, 9)))


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, lengths = torch.randn(3, 12, 5, 7).to(torch.bfloat16), torch.tensor([12, 0, 5], dtype=torch.int32)
    weight = torch.randn(7)
    for _ in range(2):
        mean, peak = tw.regionstats(x, lengths, weight=weight)
        assert (mean.dtype, peak.dtype) == (torch.float32, torch.bfloat16)
        arrays = x.float().numpy().astype(ml_dtypes.bfloat16), lengths.numpy()
        both = mean.numpy(), peak.float().numpy().astype(ml_dtypes.bfloat16)
        assert near(both, *arrays, weight=weight.numpy())
    out = torch.empty(3, 7)
    assert tw.regionstats(x, lengths, weight=weight, out=(out, None))[0] is out
    assert torch.equal(out, mean)


def test_the_stages_are_chosen_measured_explained_and_checked_apart(tmp_path: Any) -> None:
    op = ops.op("regionstats")
    whole = op.problem({"n": 2, "spatial": "40x16", "channels": 24, "datatype": "fp16", "weight": True})
    with settings.override(cache_dir=tmp_path, threads=1), events.recorded() as heard:
        registry = tw.Registry().add_pool("regionstats", datatypes=("fp16",), fused=("weight",))
        stages = op.stages(whole, registry.target)
        before = registry.select(whole)
        assert [one.spec.signature.stage for one in before.stages] == ["partial", "combine"]
        assert [one.tier for one in before.stages] == ["heuristic", "heuristic"]

        combine = registry.measure(stages[1], rounds=2)
        assert [one.tier for one in registry.select(whole).stages] == ["heuristic", "measured"]
        records = registry.measure(whole, rounds=2)
        assert [one.problem["stage"] for one in records] == ["partial", "combine"]
        assert {one.digest for one in combine.timings} == {one.digest for one in records[1].timings}
        assert all(timing.error <= 1 for one in records for timing in one.timings)

        after = registry.select(whole)
        assert [one.tier for one in after.stages] == ["measured", "measured"]
        assert [one.spec.digest for one in after.stages] == [one.choice for one in records]
        text = registry.explain(whole).full()
        assert text.count("measured") >= 2
        for one in (*after.stages, *before.stages):
            assert one.name in text
        replay = registry.explain(whole).replay
        assert "tilewright explain regionstats --n 2 --spatial 40x16 --channels 24 --datatype fp16 --weight" in replay

        x, weight = random((2, 40, 16, 24), "fp16"), random((24,))
        lengths = np.array([40, 11], np.int32)
        assert near(registry.run("regionstats", x, lengths, weight=weight), x, lengths, weight=weight)
    assert any(isinstance(one, events.Selected) and "combine" in one.kernel for one in heard)
    assert any(isinstance(one, events.Measured) and "partial" in one.kernel for one in heard)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kernel_of_each_stage_is_right_on_samples(dtype: str, threads: int) -> None:
    from tilewright.dispatch.problem_run import run_problem

    op, registry = ops.op("regionstats"), tw.Registry()
    whole = op.problem(
        {"n": 3, "spatial": "31x18", "channels": 21, "dilation": "1x1", "datatype": dtype, "shift": True}
    )
    assert whole.chunks == 2
    for stage in op.stages(whole, registry.target):
        signature = op.signature_of(stage)
        for spec in (*op.candidates(signature, registry.target), op.fallback_spec(signature, registry.target)):
            report = run_problem(registry, stage, repeat=1, seed=3, verify=True, spec=spec)
            assert report["ok"], (spec.name, report)
            together = run_problem(registry, whole, repeat=1, seed=4, verify=True, spec=spec)
            assert together["ok"], (spec.name, together)


def test_a_wrong_result_is_found() -> None:
    """Of either result, in the whole and in each stage."""
    from tilewright.dispatch.problem_run import run_problem  # noqa: F401  (the same checks)
    from tilewright.runtime import samples
    from tilewright.runtime.devices import device_of

    op, registry, bound = ops.op("regionstats"), tw.Registry(), binding("regionstats")
    whole = op.problem({"n": 2, "spatial": "700", "channels": 5})
    for stage in op.stages(whole, registry.target):
        sample = bound.sample(stage, 1)
        assert not bound.check(stage, sample).ok, "poison is no result"
        kernel = registry.kernel(registry.select(stage).spec)
        samples.runner(bound, kernel, stage, sample, device_of(registry.target), 1)()
        assert bound.check(stage, sample).ok
        written = [
            one for slot, one in zip(bound.slots, sample.operands, strict=True) if slot.written and one is not None
        ]
        assert len(written) == 2
        for one in written:
            kept = one.flat[0]
            one.flat[0] += 0.01
            assert not bound.check(stage, sample).ok
            one.flat[0] = kept
        assert bound.check(stage, sample).ok


def test_what_no_kernel_serves_has_a_floor_in_each_stage() -> None:
    registry = tw.Registry().add_pool("regionstats", stages=("combine",))
    whole = ops.op("regionstats").problem({"n": 2, "spatial": "9", "channels": 3})
    chosen = registry.select(whole)
    assert [one.spec.schedule.pipeline for one in chosen.stages] == ["loops", "vector"]
    x, lengths = random((2, 9, 3)), np.array([9, 4], np.int32)
    assert near(registry.run("regionstats", x, lengths), x, lengths)
    assert chosen.stages[1].tier == "heuristic"
    assert chosen.tier == chosen.stages[0].tier != "heuristic"


def test_the_structs_are_those_of_the_header(tmp_path: Any) -> None:
    """Every size and offset, by the compiler that builds the kernels."""
    import subprocess

    import regionstats.args as mirror
    from rowscale.binding import RowscaleArgs

    from tilewright.backends.base import backend

    structs = {
        "tw_rowscale_args": RowscaleArgs,
        "tw_regionstats_region": mirror.Region,
        "tw_regionstats_partial_args": mirror.PartialArgs,
        "tw_regionstats_combine_args": mirror.CombineArgs,
    }
    lines = ["#include <stdio.h>", "#include <stddef.h>", "#include <rowscale/args.h>", "#include <regionstats/args.h>"]
    lines.append("int main() {")
    expected = []
    for name, cls in structs.items():
        lines.append(f'  printf("%zu\\n", sizeof({name}));')
        expected.append(ctypes.sizeof(cls))
        for field, *_ in cls._fields_:
            lines.append(f'  printf("%zu\\n", offsetof({name}, {field}));')
            expected.append(getattr(cls, field).offset)
    source = tmp_path / "layout.cpp"
    source.write_text("\n".join([*lines, "}"]))
    cpu = backend("cpu")
    places = [f"-I{one}" for op in ("rowscale", "regionstats") for one in cpu.kernels(op).include_dirs()]
    program = tmp_path / "layout"
    subprocess.run([*cpu.toolchain().driver, *places, str(source), "-o", str(program)], check=True)
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    assert [int(one) for one in said.split()] == expected


@pytest.mark.parametrize(
    ("give", "rule"),
    [
        (lambda x, n: tw.regionstats(x[0, 0], n), "regionstats-rank"),
        (lambda x, n: tw.regionstats(None, n), "array-type"),
        (lambda x, n: tw.regionstats(x, n[:-1]), "regionstats-lengths"),
        (lambda x, n: tw.regionstats(x, n.astype(np.float32)), "regionstats-lengths"),
        (lambda x, n: tw.regionstats(x, np.repeat(n, 2)[::2]), "regionstats-strides"),
        (lambda x, n: tw.regionstats(x, n, weight=random((3,))), "regionstats-weight"),
        (lambda x, n: tw.regionstats(x, n, shift=random((6,), "fp16")), "regionstats-shift"),
        (lambda x, n: tw.regionstats(x, n, dilation=(2,)), "dilation-rank"),
        (lambda x, n: tw.regionstats(x, n, dilation=(0, 1)), "dilation"),
        (lambda x, n: tw.regionstats(x, n, dilation=(1.5, 1)), "regionstats-dilation"),
        (lambda x, n: tw.regionstats(x[..., ::2], n), "regionstats-strides"),
        (lambda x, n: tw.regionstats(x, n, out=np.empty(3)), "regionstats-out"),
        (lambda x, n: tw.regionstats(x, n, out=(np.empty((2, 6), np.float16), None)), "regionstats-out"),
        (lambda x, n: tw.regionstats(x, n, scale=None), "scalar"),
        (lambda x, n: tw.regionstats(x.astype(np.int8), n), "dtype-name"),
    ],
)
def test_mistakes_are_one_clear_error(give: Any, rule: str) -> None:
    with pytest.raises(TilewrightError) as error:
        give(random((2, 5, 4, 6)), np.array([5, 2], np.int32))
    assert error.value.rule == rule
    assert error.value.remedy


def test_results_must_not_meet() -> None:
    x, lengths, memory = random((2, 5, 6)), np.array([5, 2], np.int32), np.empty((2, 12), np.float32)
    with pytest.raises(ProblemError, match="shares memory"):
        tw.regionstats(x, lengths, out=(memory[:, :6], memory[:, 3:9]))
    found = tw.regionstats(x, lengths, out=(memory[:, :6], memory[:, 6:]))
    assert near(found, x, lengths)


def test_a_kernel_of_one_stage_is_not_the_op() -> None:
    registry, op = tw.Registry(), ops.op("regionstats")
    spec = next(one for one in op.proposals("default", registry.target) if not op.check(one))
    with pytest.raises(ProblemError, match="2 kernels"):
        registry.kernel(spec)(random((2, 5, 6)), np.array([5, 2], np.int32))


def test_problems_of_stages_differ_in_their_records_alone() -> None:
    op = ops.op("regionstats")
    whole = op.problem({"n": 2, "spatial": "9", "channels": 3})
    partial, combine = op.stages(whole, "generic")
    assert replace(partial, stage="") == replace(combine, stage="") == whole
    assert partial.describe() != combine.describe() != whole.describe()
