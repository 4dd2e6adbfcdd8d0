"""Problem sets: shipped, drawn, read from files; the holdout stays apart from all others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import ops
from tilewright.errors import RequestError, TilewrightError
from tilewright.ops.base import plain
from tilewright.ops.engine import engine
from tilewright.tune import problem_sets

GEMM = ops.op("gemm")
TRAINING = [key for key, one in engine(GEMM).problem_sets.items() if not one.holdout]


@pytest.mark.parametrize(
    ("values", "rule", "words"),
    [
        ({"m": 1}, "option-missing", "a gemm problem needs n, k"),
        (3, "option-value", "values of a gemm problem are 3"),
    ],
)
def test_values_that_make_no_problem_are_one_error(values: Any, rule: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        GEMM.problem(values)
    assert (caught.value.rule, caught.value.message) == (rule, words)
    assert caught.value.remedy


@pytest.mark.parametrize("key", problem_sets.keys(GEMM))
def test_a_shipped_set_holds_legal_problems_each_once(key: str) -> None:
    found = problem_sets.problems(GEMM, key, "cpu", {"datatype": "bf16"})
    assert len(found) == len(engine(GEMM).problem_sets[key]) >= 10
    assert {one.dtype_a for one in found} == {"bf16"}
    assert all(not GEMM.problem_violations(one, "x86_64_v3") for one in found)


def test_the_holdout_is_three_hundred_and_validation_is_small() -> None:
    assert len(problem_sets.held_out(GEMM)) == 300
    assert 10 <= len(engine(GEMM).problem_sets["validation"]) <= 20


@pytest.mark.parametrize("key", TRAINING)
def test_no_training_set_holds_a_held_out_problem_or_its_neighbour(key: str) -> None:
    held = problem_sets.held_out(GEMM)
    for one in problem_sets.problems(GEMM, key, "cpu"):
        for other in held:  # written out: the rule must not be judged by itself
            ratios = [max(a, b) / min(a, b) for a, b in ((one.m, other.m), (one.n, other.n), (one.k, other.k))]
            assert max(ratios) > 1.08, (one, other)
    assert not problem_sets.leaking(GEMM, problem_sets.problems(GEMM, key, "cpu"))


def test_a_leak_is_seen_in_any_type_and_layout() -> None:
    held = engine(GEMM).problem_sets["holdout"].values[17]
    sizes = {name: held[name] for name in "mnk"}
    same = GEMM.problem({**sizes, "datatype": "int8", "layout": "ccr"})
    larger = GEMM.problem({**sizes, "m": round(held["m"] * 1.05)})
    apart = GEMM.problem({**sizes, "m": held["m"] * 50_000_000})
    assert problem_sets.leaking(GEMM, [same, larger, apart]) == [same, larger]


@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from(["cpu", "cuda", "hip"]))
def test_random_problems_are_the_same_for_a_seed_and_legal(seed: int, count: int, device: str) -> None:
    word = f"random:{seed}:{count}"
    found = problem_sets.values(GEMM, word, device)
    assert len(found) == count
    assert found == problem_sets.values(GEMM, word, device)
    assert found != problem_sets.values(GEMM, f"random:{seed + 1}:{count}", device)
    for one in found:
        assert min(one["m"], one["n"], one["k"]) >= 1
        GEMM.problem(one)


def test_every_family_is_drawn_and_named() -> None:
    for device in ("cpu", "cuda"):
        found = {engine(GEMM).family(one) for one in problem_sets.problems(GEMM, "random:3:120", device)}
        assert {"large", "decode", "mid", "tall", "small", "odd"} <= found


WORDS = ["llm-decod", "random", "random:1", "random:-1:5", "random:1:2:3", "random:x:5", "random:1:9999999999", ""]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_means_nothing_is_one_clear_error(word: str) -> None:
    with pytest.raises(RequestError) as caught:
        problem_sets.problems(GEMM, word, "cpu")
    assert caught.value.rule == "problem-set"
    assert caught.value.remedy


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".csv":
        names = list(rows[0])
        lines = [",".join(names), *(",".join(str(one.get(name, "")) for name in names) for one in rows)]
        path.write_text("\n".join(lines) + "\n")
    else:
        arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("ending", ["json", "csv", "parquet"])
def test_files_of_every_kind_hold_the_same_problems(tmp_path: Path, ending: str) -> None:
    rows = [
        {"m": 3, "n": 5, "k": 7, "layout": "rcr", "preshuffle": False, "alpha": 0.5},
        {"m": 1, "n": 2, "k": 3, "layout": "rrr", "preshuffle": True, "alpha": 2.0},
    ]
    file = write(tmp_path / f"shapes.{ending}", rows)
    found = problem_sets.problems(GEMM, str(file), "cpu", {"datatype": "bf16", "layout": "ccr"})
    assert [(one.m, one.layout, one.dtype_a, one.preshuffled) for one in found] == [
        (3, "rcr", "bf16", False),
        (1, "rrr", "bf16", True),
    ]


def test_problems_by_their_fields_come_back_from_what_was_written(tmp_path: Path) -> None:
    found = problem_sets.problems(GEMM, "validation", "cpu", {"datatype": "fp16"})
    file = tmp_path / "again.json"
    file.write_text(json.dumps([plain(one) for one in found]))
    assert problem_sets.problems(GEMM, str(file), "cpu") == found


BROKEN = {
    "nothing.json": None,
    "empty.csv": "",
    "only_names.csv": "m,n,k\n",
    "too_few.csv": "m,n,k\n1,2\n",
    "too_many.csv": "m,n,k\n1,2,3,4\n",
    "a_word.csv": "m,n,k\n1,2,many\n",
    "a_fraction.csv": "m,n,k\n1,2,3.5\n",
    "a_quote.csv": 'm,n,k\n"1,2,3\n',
    "odd_name.csv": "m,n,q\n1,2,3\n",
    "no_list.json": '{"m": 1}',
    "no_objects.json": "[1, 2]",
    "no_json.json": "[{",
    "text.json": '[{"m": "1", "n": 2, "k": 3.5}]',
    "binary.csv": "\udcff\udcfe",
    "broken.parquet": "PAR1 nothing of the kind PAR1",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    file = tmp_path / name
    if BROKEN[name] is not None:
        file.write_bytes(str(BROKEN[name]).encode("utf-8", "surrogateescape"))
    with pytest.raises(TilewrightError) as caught:
        problem_sets.problems(GEMM, str(file), "cpu")
    assert caught.value.remedy


def test_an_op_without_an_engine_part_takes_files(tmp_path: Path) -> None:
    from types import SimpleNamespace

    odd: Any = SimpleNamespace(name="odd", options=(), problem_from_dict=lambda data: tuple(sorted(data.items())))
    file = tmp_path / "x.json"
    file.write_text('[{"size": 3}]')
    assert problem_sets.problems(odd, str(file), "cpu") == [(("size", 3),)]
    with pytest.raises(RequestError):
        problem_sets.problems(odd, "random:1:2", "cpu")


# -- files, as people have them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.csv", "m,m,n,k\n1,2,3,4\n", "names 'm' twice"),
        ("p.csv", "m,n,k\nnan,2,3\n", "m is nan, not a whole number"),
        ("p.csv", "m,n,k\n1.5,2,3\n", "m is 1.5, not a whole number"),
        ("p.json", '[{"m": "64", "n": 1, "k": 1}]', "m is '64', not a whole number"),
        ("p.json", '[{"m": 1e400, "n": 1, "k": 1}]', "m is inf"),
    ],
)
def test_a_value_that_is_none_is_told(tmp_path: Path, name: str, text: str, said: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(RequestError) as caught:
        problem_sets.values(GEMM, str(file), "cpu")
    assert caught.value.rule == "problems-file"
    assert said in caught.value.message


def test_tables_with_gaps_have_whole_numbers_as_fractions(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_text("m,n,k,batch\n64.0,8,8,2.0\n1e3,8,8,\n")
    found = problem_sets.problems(GEMM, str(file), "cpu")
    assert [(one.m, one.batch) for one in found] == [(64, 2), (1000, 1)]


def test_what_a_set_leaves_out_is_for_others_to_say(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text('[{"m": 65}]')
    assert problem_sets.values(GEMM, str(file), "cpu") == [{"m": 65}]
    assert problem_sets.problems(GEMM, str(file), "cpu", {"n": 8, "k": 8}) == [GEMM.problem({"m": 65, "n": 8, "k": 8})]
    with pytest.raises(RequestError, match="a gemm problem needs n, k"):
        problem_sets.problems(GEMM, str(file), "cpu")
