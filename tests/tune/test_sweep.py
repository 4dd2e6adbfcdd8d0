"""Sweeps: every kernel of every problem becomes a row, whatever it does to the process that runs it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tune.failing import FailingBuilder
from tilewright import ops
from tilewright.backends.base import backend
from tilewright.build import Builder
from tilewright.dispatch.records import machine
from tilewright.dispatch.results import OK, Result, Results
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime.timing import Method
from tilewright.tune.lane import Built, Lane
from tilewright.tune.sweep import Options, Sweep, of_list

GEMM = ops.op("gemm")
PROBLEM = GEMM.problem({"m": 24, "n": 16, "k": 8})
QUICK = Method(rounds=2, sample_seconds=1e-4, seed=7)
TARGET = "generic"


def specs(count: int = 3) -> list[KernelSpec]:
    found = [one for one in GEMM.candidates(GEMM.signature_of(PROBLEM), TARGET) if not GEMM.supports(one, PROBLEM)]
    generic = GEMM.generic_spec(GEMM.signature_of(PROBLEM), TARGET)
    return [*found, *([generic] if generic not in found else [])][:count]


def built(spec: KernelSpec, more: str = "") -> Built:
    """A kernel's library, with something more in it."""
    if not more:
        return Built(spec, Builder().build_one(spec).path)
    plain_source = backend("cpu").render(spec)
    source = replace(plain_source, text=f"#include <cstdlib>\n#include <unistd.h>\n{more}\n{plain_source.text}")
    return Built(spec, Builder().build_source(source, spec.arch, extra_key=more).path)


ON_LOAD = "__attribute__((constructor)) static void planted() {{ {0} }}"
CRASH, HANG, LATER = (ON_LOAD.format(one) for one in ("abort();", "for (;;) pause();", "ualarm(60000, 0);"))


def outcomes(kernels: list[Built], method: Method = QUICK, **options: Any) -> dict[str, Any]:
    with Lane(TARGET, 1, **options) as lane:
        found = list(lane.measure(PROBLEM, kernels, method))
    assert len({one.digest for one in found}) == len(found) == len(kernels), "each kernel once"
    return {one.digest: one for one in found}


@pytest.fixture(scope="module")
def three() -> list[KernelSpec]:
    found = specs()
    assert len(found) >= 2
    return found


@pytest.mark.parametrize(("planted", "status"), [(CRASH, "crashed"), (HANG, "timeout")], ids=["crash", "hang"])
def test_a_kernel_that_ends_the_worker_costs_only_itself(three: list[KernelSpec], planted: str, status: str) -> None:
    kernels = [built(three[0]), built(three[1], planted), *map(built, three[2:])]
    found = outcomes(kernels, limit=3.0)
    bad = found[three[1].digest]
    assert bad.status == status
    assert ("SIGABRT" if status == "crashed" else "within 3 s") in bad.reason
    assert {one.status for digest, one in found.items() if digest != three[1].digest} == {OK}


def test_what_ends_the_worker_while_all_are_timed_is_found_by_running_each_alone(three: list[KernelSpec]) -> None:
    kernels = [built(three[0]), built(three[1], LATER)]
    found = outcomes(kernels, Method(rounds=40, sample_seconds=0.05, seed=1))
    assert found[three[1].digest].status == "crashed"
    assert "SIGALRM" in found[three[1].digest].reason
    assert found[three[0].digest].status == OK
    assert found[three[0].digest].seconds > 0


def test_a_library_of_another_kernel_is_refused(three: list[KernelSpec]) -> None:
    found = outcomes([Built(three[0], built(three[1]).library), built(three[1])])
    assert found[three[0].digest].status == "refused"
    assert found[three[0].digest].reason
    assert found[three[1].digest].status == OK


# A launch that does nothing and says that all is well.
IDLE = """
#include <tilewright/export.h>
static int idle(const void *, void *, void *) { return 0; }
#undef TW_EXPORT_STRUCT
#define TW_EXPORT_STRUCT(Manifest, ...) \\
  TW_EXPORT_KERNEL(Manifest, (__VA_ARGS__::check), (__VA_ARGS__::workspace), idle, \\
                   (__VA_ARGS__::packed_bytes), (__VA_ARGS__::pack), (__VA_ARGS__::clear_bytes))
"""


def test_a_wrong_kernel_is_never_timed(three: list[KernelSpec]) -> None:
    found = outcomes([built(three[0], IDLE), built(three[1])])
    bad = found[three[0].digest]
    assert (bad.status, bad.seconds) == ("wrong", None)
    assert "elements are wrong" in bad.reason
    assert found[three[1].digest].status == OK


def sweep(store: Results, kernels: list[KernelSpec], problems: list[Any], **options: Any) -> list[Result]:
    rows: list[Result] = []
    one = Sweep(GEMM, TARGET, store, Options(method=QUICK, patience=0.0, **options))
    one.run(one.plan(problems, of_list(GEMM, kernels)), on_row=lambda row, _: rows.append(row))
    return rows


def test_a_sweep_goes_on_where_it_ended_and_costs_only_what_is_new(tmp_path: Path, three: list[KernelSpec]) -> None:
    store = Results(tmp_path / "r.db")
    other = GEMM.problem({"m": 7, "n": 5, "k": 3})
    first = sweep(store, three[:2], [PROBLEM])
    assert [one.status for one in first] == [OK, OK]
    assert all(one.error is not None and one.error <= 1 and (one.non_zero or 0) > 0 for one in first)
    assert sweep(store, three[:2], [PROBLEM]) == []
    again = sweep(store, three, [PROBLEM, other])
    assert len(again) == len(three) - 2 + len([one for one in three if not GEMM.supports(one, other)])
    assert store.count() == len(first) + len(again)
    best = store.best("gemm", plain(PROBLEM), machine(TARGET)["fingerprint"], first[0].threads)
    assert best is not None
    assert best.seconds == min(one.seconds for one in store.of_problem("gemm", plain(PROBLEM)) if one.seconds)


def test_another_protocol_is_measured_again(tmp_path: Path, three: list[KernelSpec]) -> None:
    store = Results(tmp_path / "r.db")
    sweep(store, three[:1], [PROBLEM])
    one = Sweep(GEMM, TARGET, store, Options(method=Method(rounds=3, sample_seconds=1e-4, seed=7), patience=0.0))
    assert one.plan([PROBLEM], of_list(GEMM, three[:1])).total == 1
    assert store.count() == 1


def test_a_kernel_that_cannot_be_built_is_a_row(
    tmp_path: Path, three: list[KernelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.tune import forge

    monkeypatch.setattr(forge, "Builder", FailingBuilder)
    rows = sweep(Results(tmp_path / "r.db"), three[:2], [PROBLEM])
    assert {one.kernel.digest: one.status for one in rows} == {three[0].digest: "build-failed", three[1].digest: OK}
    assert next(one.reason for one in rows if one.status != OK) == "no such instruction"


CODE = """
import sys
from pathlib import Path
from tilewright import ops
from tilewright.dispatch.results import Results
from tilewright.runtime.timing import Method
from tilewright.tune.sweep import Options, Sweep, candidates
gemm = ops.op("gemm")
problems = [gemm.problem({"m": size, "n": 8, "k": 8}) for size in range(1, 40)]
options = Options(Method(rounds=2, sample_seconds=1e-5, seed=7), patience=0.0)
one = Sweep(gemm, "generic", Results(Path(sys.argv[1])), options)
work = one.plan(problems, candidates(gemm, "generic"))
print("left", work.total, flush=True)
def told(row, progress):
    print(row.kernel.digest, row.problem["m"], flush=True)
one.run(work, on_row=told)
"""


def test_kills_at_random_moments_lose_no_finished_row(tmp_path: Path) -> None:
    store = tmp_path / "r.db"
    draw = random.Random(20261115)
    told: set[tuple[str, str]] = set()
    for turn in range(6):
        last = turn == 5
        child = subprocess.Popen(
            [sys.executable, "-c", CODE, str(store)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert child.stdout is not None
        head = child.stdout.readline()
        assert head.startswith("left "), head
        if not last:
            time.sleep(draw.uniform(0.0, 1.2))
            os.killpg(child.pid, signal.SIGKILL)
        rows = [line.split() for line in child.stdout.read().splitlines()]
        child.wait()
        told |= {(digest, size) for digest, size in (one for one in rows if len(one) == 2)}
        kept = {(one.kernel.digest, str(one.problem["m"])) for one in Results(store).all()}
        assert told <= kept, "a row that was told is in the store"
    assert len({size for _, size in kept}) == 39
    assert Results(store).check() == []
