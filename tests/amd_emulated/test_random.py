"""What the random proof rests on: formats, oracle, drawing and bookkeeping, tested by themselves."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.amd_emulated import oracle, random_report, random_run, report
from tests.amd_emulated.emulator import MODELLED
from tests.amd_emulated.gemm import drawing
from tests.amd_emulated.number_formats import FORMATS, KINDS, WHOLE, Array, decode, draw, encode_small
from tests.amd_emulated.proving import draw_only
from tilewright.ops import op

TYPES: dict[str, Any] = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "fp8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "fp8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "int8": np.int8,
}


@pytest.mark.parametrize("name", TYPES)
def test_every_pattern_is_the_number_its_format_says(name: str) -> None:
    of = FORMATS[name]
    bits = np.arange(1 << 8 * of.bytes, dtype=np.int64).astype(of.word)
    with np.errstate(all="ignore"):
        wanted = bits.view(TYPES[name]).astype(np.float64)
    assert np.array_equal(decode(bits, of), wanted, equal_nan=True)
    if not of.is_int:
        held = wanted[np.isfinite(wanted) & (wanted > 0)]
        assert of.largest == held.max()
        assert of.smallest == held.min()
        poison = np.full(of.bytes, of.poison, np.uint8).view(of.word)
        assert np.isnan(decode(poison, of)).all()


def test_single_precision_is_read() -> None:
    bits = np.random.default_rng(1).integers(0, 1 << 32, 20000, dtype=np.uint64).astype(np.uint32)
    with np.errstate(all="ignore"):
        wanted = bits.view(np.float32).astype(np.float64)
    assert np.array_equal(decode(bits, FORMATS["fp32"]), wanted, equal_nan=True)


@pytest.mark.parametrize("name", FORMATS)
def test_drawn_numbers_are_of_their_kind(name: str) -> None:
    of, rng = FORMATS[name], np.random.default_rng(2)
    whole = np.arange(-3, 4)
    assert np.array_equal(decode(encode_small(whole, of), of), whole)
    for kind in KINDS:
        values = decode(draw(rng, (20, 500), of, kind), of)
        assert values.shape == (20, 500)
        if kind == "one-hot":
            assert ((values == 1).sum(-1) == 1).all()
            assert ((values == 0).sum(-1) == 499).all()
        elif kind == "zeros":
            assert not values.any()
        elif kind == "special":
            assert of.is_int or np.isnan(values).any()
        elif kind == "largest":
            assert len(np.unique(np.abs(values))) <= 2
        elif kind == "subnormal" and not of.is_int:
            assert np.abs(values).max() < 2.0 ** (1 - of.bias)
        assert kind == "special" or np.isfinite(values).all()


def _single(values: Array) -> Array:
    return values.astype(np.float32).view(np.uint32)


def _factors(rng: np.random.Generator, kind: str) -> tuple[Array, Array]:
    a, b = (draw(rng, shape, FORMATS["fp16"], kind) for shape in ((2, 17, 50), (2, 50, 9)))
    return a, b


def _expected(a: Array, b: Array, **more: Any) -> oracle.Expected:
    half, single = FORMATS["fp16"], FORMATS["fp32"]
    return oracle.expected(oracle.product(a, half, b, half), oracle.After(single, single, **more))


def _by_hand(a: Array, b: Array) -> Array:
    """The sums in fp32, product for product."""
    left, right = (one.view(np.float16).astype(np.float32) for one in (a, b))
    total = np.zeros((2, 17, 9), np.float32)
    for k in range(50):
        total = total + left[:, :, k : k + 1] * right[:, k : k + 1, :]
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_the_oracle_takes_right_sums_and_no_others(kind: str) -> None:
    a, b = _factors(np.random.default_rng(3), kind)
    with np.errstate(all="ignore"):
        right = _by_hand(a, b)
    found = _expected(a, b)
    taken = oracle.judge(found, right.view(np.uint32))
    assert taken.ok, taken.detail
    wrong = right.copy()
    wrong[1, 3, 4] = 1.5 if np.isnan(right[1, 3, 4]) else right[1, 3, 4] * np.float32(1.001) + np.float32(1e-3)
    said = oracle.judge(found, wrong.view(np.uint32))
    assert not said.ok
    assert "(1, 3, 4)" in said.detail
    assert "1 of 306" in said.detail


def test_whole_numbers_leave_no_room_at_all() -> None:
    a, b = _factors(np.random.default_rng(4), WHOLE)
    right = _by_hand(a, b)
    off = np.nextafter(right, np.float32(np.inf))
    found = _expected(a, b)
    assert oracle.judge(found, right.view(np.uint32)).ok
    assert not oracle.judge(found, np.where(right > 8, off + off * 2.0**-22, right).view(np.uint32)).ok


def test_infinity_comes_where_rounding_ends_and_nowhere_else() -> None:
    half = FORMATS["fp16"]
    value = np.array([65504.0, 65519.0, 65521.0, 1e6, -1e6, np.inf, np.nan, 1.0])
    found = oracle.Expected(value, np.zeros(8), np.zeros(8, bool), half)
    with np.errstate(over="ignore"):
        rounded = value.astype(np.float16)
    assert oracle.judge(found, rounded.view(np.uint16)).ok
    for place, instead in ((3, 65504.0), (4, np.inf), (5, 65504.0), (6, 1.0), (7, np.nan), (0, np.inf)):
        other = rounded.copy()
        other[place] = instead
        assert not oracle.judge(found, other.view(np.uint16)).ok, (place, instead)


def test_fused_work_and_factors_are_in_the_oracle() -> None:
    rng, single = np.random.default_rng(5), FORMATS["fp32"]
    c, d = (draw(rng, shape, single, "ordinary") for shape in ((2, 17, 9), (1, 1, 9)))
    for epilogue in ("MultiDAdd", "MultiDMultiply", "Relu", "Gelu", "FastGelu", "Silu", "Sigmoid", "Tanh"):
        a, b = _factors(np.random.default_rng(6), "ordinary")
        found = _expected(a, b, c=c, ds=(d,), alpha=0.5, beta=-2.0, epilogue=epilogue)
        x = 0.5 * _by_hand(a, b).astype(np.float64) - 2.0 * c.view(np.float32).astype(np.float64)
        more = d.view(np.float32).astype(np.float64)
        x = x * more if epilogue == "MultiDMultiply" else x + more
        erf = np.vectorize(math.erf)
        value = {
            "Relu": np.maximum(x, 0),
            "Gelu": 0.5 * x * (1 + erf(x / np.sqrt(2))),
            "FastGelu": 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
            "Silu": x / (1 + np.exp(-x)),
            "Sigmoid": 1 / (1 + np.exp(-x)),
            "Tanh": np.tanh(x),
        }.get(epilogue, x)
        assert oracle.judge(found, _single(value)).ok, epilogue
        assert not oracle.judge(found, _single(value + 0.01)).ok, epilogue


@pytest.mark.parametrize("count", [4, pytest.param(12, marks=pytest.mark.proof)])
def test_draws_are_legal_served_and_the_same_again(count: int) -> None:
    gemm = op("gemm")
    pipelines, archs = set(), set()
    for index in range(count):
        entry = drawing.draw(11, index)
        if index < 1:
            again = drawing.draw(11, index)
            assert (entry.spec, entry.problems, entry.refused) == (again.spec, again.problems, again.refused)
        assert not gemm.check(entry.spec)
        assert entry.problems
        for one in entry.problems:
            assert not gemm.supports(entry.spec, drawing.product_problem(entry.spec, one)), one
            assert drawing.from_dict(one.to_dict()) == one
        for one in entry.refused:
            assert gemm.supports(entry.spec, drawing.product_problem(entry.spec, one)), one
        pipelines.add(entry.spec.schedule.pipeline)
        archs.add(entry.spec.arch)
    assert len(archs) >= min(3, count // 2)
    assert len(pipelines) >= min(3, count // 2)


def _row(index: int, verdict: str) -> dict[str, Any]:
    problem = {"label": "8x8x8", "verdict": verdict, "of_bound": 0.5, "elements": 64, "open": 1}
    return {"index": index, "digest": "x", "name": f"kernel{index}", "arch": "gfx942", "inputs": "fp16",
            "pipeline": "mem", "verdict": verdict, "detail": "element (0, 0)", "rules": {"amd-lds": 2},
            "problems": [problem]}  # fmt: skip


def test_a_seed_is_written_once_and_others_stay(tmp_path: Path) -> None:
    document = tmp_path / "amd.md"
    document.write_text(f"before\n{random_report.BEGIN}\n{random_report.END}\nafter\n", encoding="utf-8")
    for seed, verdict in ((3, "wrong"), (4, "right"), (3, "right")):
        facts = random_report.Facts(seed, 1, "clang", "emulator")
        random_report.write(document, facts, [_row(0, verdict)])
    text = document.read_text(encoding="utf-8")
    assert text.count("### Seed 3,") == 1
    assert text.count("### Seed 4,") == 1
    assert "kernel0" not in text, "only failures are named"
    assert "1 of 1 kernels right" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    random_report.write(document, random_report.Facts(5, 1, "clang", "emulator"), [_row(0, "wrong")])
    assert "- 0: `kernel0`: element (0, 0)" in document.read_text(encoding="utf-8")
    row = {**_row(0, "wrong"), "now_refused": "amd-lds"}
    random_report.write(document, random_report.Facts(6, 9, "clang", "emulator"), [row])
    assert "**unfinished**: 1 of 9" in document.read_text(encoding="utf-8")
    assert "element (0, 0) Now refused: amd-lds." in document.read_text(encoding="utf-8")


def test_rows_of_a_killed_run_are_read_again(tmp_path: Path) -> None:
    rows = random_run.Rows(tmp_path / "rows.jsonl")
    rows.put(_row(0, "right"))
    rows.put(_row(1, "wrong"))
    rows.put(_row(1, "right"))
    with rows.path.open("a") as file:
        file.write('{"index": 2, "ver')
    again = random_run.Rows(rows.path)
    assert {index: row["verdict"] for index, row in again.rows.items()} == {0: "right", 1: "right"}


def test_only_right_rows_of_the_same_kernel_stand(tmp_path: Path) -> None:
    rows = random_run.Rows(tmp_path / "rows.jsonl")
    for index, verdict in enumerate(("right", "wrong")):
        rows.put({**_row(index, verdict), "digest": "of this kernel"})
    assert rows.held(0, "of this kernel")
    assert rows.held(0, "of another") is None
    assert rows.held(1, "of this kernel") is None
    assert rows.held(2, "of this kernel") is None


def test_without_results_the_document_stays(tmp_path: Path) -> None:
    document = tmp_path / "amd.md"
    document.write_text(f"{report.BEGIN}\nold\n{report.END}\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="stays as it is"):
        report.write(tmp_path / "none.json", document)
    assert "old" in document.read_text(encoding="utf-8")


def test_what_is_missing_is_said() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TINYGRAD_CHECKOUT"}
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.amd_emulated.needs"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "TINYGRAD_CHECKOUT" in done.stderr
    assert "nothing was changed" in done.stderr


@pytest.mark.parametrize("output", ["int32", "int8", "fp32"])
def test_whole_numbers_are_exact_and_held_in_range(output: str) -> None:
    byte, of = FORMATS["int8"], FORMATS[output]
    rng = np.random.default_rng(7)
    a, b = (draw(rng, shape, byte, "ordinary") for shape in ((1, 20, 30), (1, 30, 10)))
    sums = a.astype(np.int8).astype(np.int64) @ b.astype(np.int8).astype(np.int64)
    held = np.clip(sums, -128, 127).astype(np.int8).view(np.uint8) if output == "int8" else (
        sums.astype(np.int32).view(np.uint32) if output == "int32" else _single(sums)
    )  # fmt: skip
    product = oracle.product(a, byte, b, byte)
    found = oracle.expected(product, oracle.After(of, of))
    assert oracle.judge(found, held).ok
    other = held.copy()
    other[0, 2, 3] ^= 1 << (0 if of.is_int else 4)
    assert not oracle.judge(found, other).ok
    parts = oracle.expected(product, oracle.After(of, of, alpha=0.25))
    if output == "int32":
        assert oracle.judge(parts, np.rint(sums / 4).astype(np.int32).view(np.uint32)).ok
        assert not oracle.judge(parts, np.floor(sums / 4).astype(np.int32).view(np.uint32)).ok


@pytest.mark.parametrize("name", ["conv", "attention_backward"])
def test_archs_take_turns(name: str) -> None:
    """A fifth of a seed's kernels for each, whatever the count; an index alone is what it was among the others."""
    drawn = [random_run.in_turn(name, 7, MODELLED, index) for index in range(5)]
    assert [entry.spec.arch for entry in drawn] == list(MODELLED)
    assert random_run.in_turn(name, 7, MODELLED, 3).spec == drawn[3].spec
    draw_only(())
