"""What the ancestor's registry and tile engine do wrong around attention, each as a test that ours does not.

Its defects with numbers are in test_parity.py; that documents name what exists and examples run: tests/test_docs.py and
tests/test_examples.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.attention.drawing import ATTENTION
from tilewright.dispatch.registry import Registry
from tilewright.dispatch.results import OK, Result, Results
from tilewright.errors import TilewrightError
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime.timing import Method
from tilewright.tune import export, instances
from tilewright.tune.sweep import Options, Sweep, of_list

TARGET = "generic"
PROBLEM = AttentionProblem(2, 4, 3, 24, 16, 2)
QUICK = Method(rounds=2, sample_seconds=1e-4, seed=7)


def floor(one: AttentionProblem) -> KernelSpec:
    return ATTENTION.fallback_spec(one.signature, TARGET)


def floors(problems: list[AttentionProblem]) -> Any:
    return of_list(ATTENTION, dict.fromkeys(map(floor, problems)))


def in_time(work: Callable[[], None]) -> None:
    """Do it beside us: what waits for itself would else wait for ever."""
    wrong: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(300)
    assert not thread.is_alive(), "it waits for itself"
    if wrong:
        raise wrong[0]


def sweep(store: Results, problems: list[AttentionProblem], heard: Any = None) -> list[Result]:
    rows: list[Result] = []

    def on_row(row: Result, progress: Any) -> None:
        rows.append(row)
        if heard is not None:
            heard()

    one = Sweep(ATTENTION, TARGET, store, Options(method=QUICK, patience=0.0))
    one.run(one.plan(problems, floors(problems)), on_row=on_row)
    return rows


@pytest.mark.usefixtures("needs_compiler")
def test_whoever_hears_of_a_kernel_may_ask_the_registry() -> None:
    """Their registry exports itself while it holds its own lock, and waits for ever."""
    registry = Registry(TARGET, [floor(PROBLEM)])
    counts: list[int] = []

    def heard(done: int, total: int) -> None:
        registry.add(floor(replace(PROBLEM, softcap=True)))
        registry.explain(PROBLEM)
        counts.append(len([one.to_dict() for one in registry.specs()]))

    in_time(lambda: void(registry.build(progress=heard)))
    assert counts == [2]


def void(_: object) -> None:
    pass


@pytest.mark.usefixtures("needs_compiler")
def test_a_store_is_exported_while_rows_come(tmp_path: Path) -> None:
    store, table = Results(tmp_path / "r.db"), tmp_path / "r.csv"
    found: list[int] = []

    def heard() -> None:
        export.write(table, store.all())
        found.append(len(export.read(table)))

    in_time(lambda: void(sweep(store, [PROBLEM, replace(PROBLEM, window_right=0)], heard)))
    assert found == [1, 2]


@pytest.mark.usefixtures("needs_compiler")
def test_each_problem_of_a_sweep_has_its_own_reference_packed_ones_too(tmp_path: Path) -> None:
    """Theirs takes the first configuration's type and mask for all, and never measures packed sequences."""
    causal = AttentionProblem(2, 4, 9, 24, 16, 2, dtype_q="bf16", window_right=0, align="bottom_right")
    packed = AttentionProblem(3, 4, 9, 24, 16, 2, varlen=True, total_q=20, total_k=51)
    rows = sweep(Results(tmp_path / "r.db"), [PROBLEM, causal, packed])
    assert [(one.status, one.reason) for one in rows] == [(OK, "")] * 3
    assert {plain(one)["dtype_q"] for one in (PROBLEM, causal)} == {one.problem["dtype_q"] for one in rows}
    assert [one.problem["packed"] for one in rows].count(True) == 1
    assert all((one.non_zero or 0) > 0 and one.error is not None and one.error <= 1 for one in rows)


@pytest.mark.usefixtures("needs_compiler")
def test_a_sweep_takes_up_every_problem_that_differs_in_anything(tmp_path: Path) -> None:
    """The key by which theirs resumes knows neither the keys nor the heads: half of a sweep is taken for done."""
    store = Results(tmp_path / "r.db")
    assert len(sweep(store, [PROBLEM])) == 1
    bare = {f"{name}_strides": () for name in "qkvo"}
    changes: dict[str, Any] = {
        "batch": 3, "heads_q": 6, "heads_kv": 1, "seqlen_q": 4, "seqlen_k": 25, "head_dim": 8, "head_dim_v": 8,
        "dtype_q": "bf16",
        "dtype_out": "fp16", "window_left": 5, "window_right": 0, "bias": "alibi", "mask_shape": (1, 1, 3, 24),
        "softcap": True, "dropout": True, "return_lse": True, "sink": True, "seqlens_q": True, "seqlens_k": True,
    }  # fmt: skip
    assert changes.keys() < {one.name for one in fields(AttentionProblem)}
    others = []
    for name, value in changes.items():
        typed = {"dtype_q": {"dtype_kv": "", "dtype_out": ""}}.get(name, {})
        others.append(replace(PROBLEM, **{**bare, **typed, name: value}))
    assert len({PROBLEM, *others}) == 1 + len(changes)
    again = Sweep(ATTENTION, TARGET, store, Options(method=QUICK, patience=0.0))
    work = again.plan([PROBLEM, *others], floors([PROBLEM, *others]))
    assert work.known == 1
    assert not work.unserved
    assert [one.problem for one in work.items] == others


@pytest.mark.parametrize(
    "expression", ["__import__('os').system('x')", "c.__class__", "open('x')", "[x for x in (1, 2)]", "c.tile_m ** 99"]
)
def test_a_filter_of_kernels_is_read_and_never_run(expression: str) -> None:
    """Theirs goes to eval."""
    data = instances.load(ATTENTION, "", TARGET)
    with pytest.raises(TilewrightError) as caught:
        instances.expand(ATTENTION, data, TARGET, expression=expression)
    assert caught.value.rule.startswith("filter-")
