"""What measuring is expected to take before any of it was done."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.tune.failing import FailingBuilder
from tilewright import ops, settings
from tilewright.build import Builder
from tilewright.dispatch.results import Results
from tilewright.errors import CompileError
from tilewright.runtime.timing import Method
from tilewright.tune import price
from tilewright.tune.sweep import Options, Progress, Sweep, of_list

GEMM = ops.op("gemm")
TARGET = "generic"
SMALL, LARGE = (GEMM.problem({"m": size, "n": size, "k": size}) for size in (16, 512))


def kernels(count: int = 3) -> list[Any]:
    found = GEMM.candidates(GEMM.signature_of(SMALL), TARGET)
    return [one for one in found if not GEMM.supports(one, SMALL) and not GEMM.supports(one, LARGE)][:count]


def test_compilers_take_what_they_took_before_or_what_is_stated(tmp_path: Path, needs_compiler: None) -> None:
    every = kernels(2)
    with settings.override(cache_dir=tmp_path):
        one, two = price.Prices("gemm", TARGET, 1, jobs=1), price.Prices("gemm", TARGET, 1, jobs=2)
        assert one.builds(every) == [price.BUILD * (1 + at) for at in range(len(every))]
        assert two.builds(every) == [price.BUILD] * len(every)
        Builder().build_one(every[0])
        took = next(float(each["seconds"]) for each in Builder().store.manifests() if each["spec"] is not None)
        assert one.builds(every[:1]) == [0.0], "it is there now"
        assert one.builds(every) == [0.0, *[took] * (len(every) - 1)]


def test_a_kernel_takes_its_estimate_as_often_as_the_protocol_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    prices, spec = price.Prices("gemm", TARGET, 1), kernels(1)[0]
    few, many = (prices.row(spec, SMALL, Method(rounds=rounds, sample_seconds=0.01)) for rounds in (2, 10))
    assert many - few == pytest.approx(8 * 0.01), "one that is sooner done than a sample is repeated"
    assert prices.problem(LARGE) > prices.problem(SMALL)

    class Silent:
        def estimate(self, *_: Any) -> float:
            return float("inf")

    monkeypatch.setattr(price, "backend", lambda _: Silent())
    assert 0 < prices.row(spec, SMALL, Method()) < 1


def test_the_time_left_at_the_first_row_counts_what_the_others_are(tmp_path: Path) -> None:
    """A first problem that is sooner done than the second says little of it."""
    sweep = Sweep(GEMM, TARGET, Results(tmp_path / "r.db"), Options(method=Method(rounds=3, sample_seconds=1e-3)))
    progress = Progress(0)
    each = sweep._priced(sweep.plan([SMALL, LARGE], of_list(GEMM, kernels())), progress)
    assert progress.seconds_left is None
    assert each[LARGE] > 3 * each[SMALL]
    count = len(kernels())
    progress.done, progress.expected_done = 1, progress.expected_done + each[SMALL]
    progress.started = time.monotonic() - price.START - each[SMALL]
    left = (count - 1) * each[SMALL] + count * each[LARGE]
    assert progress.seconds_left == pytest.approx(left, rel=0.05), "it went as expected"
    progress.started -= 10 * (price.TRUST + progress.expected_done)
    assert progress.seconds_left == pytest.approx(11 * left, rel=0.05), "and eleven times as slow"


def test_the_time_left_counts_the_waits_for_a_quiet_machine() -> None:
    """Kernels of no time, and five seconds of waiting for each problem: the rest waits as long."""
    progress = Progress(60, done=12, expected=1e-3, expected_done=1e-4, waited=60.0)
    progress.started = time.monotonic() - 60.5
    assert progress.seconds_left == pytest.approx(48 * 5.0, rel=0.01)


def test_a_kernel_that_cannot_be_looked_for_is_one_to_build(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(FailingBuilder):
        def find(self, spec: Any) -> Any:
            raise CompileError("no", rule="r", value="", remedy="")

    monkeypatch.setattr(price, "Builder", Broken)
    assert price.Prices("gemm", "no-such-arch", 1, jobs=1).builds(kernels(1)) == [price.BUILD]
