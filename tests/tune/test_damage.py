"""Files that a disk or a hand has damaged, by seed: what is wrong with them is one clear error, never a surprise."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tune.test_export import result
from tilewright import ops
from tilewright.dispatch import locks, model_files
from tilewright.dispatch.records import Records
from tilewright.dispatch.results import Choice, Results, Unreadable
from tilewright.errors import TilewrightError
from tilewright.learn import packed
from tilewright.tune import export, problem_sets

GEMM = ops.op("gemm")
SHIPPED = Path(model_files.__file__).parent / "models"
SEED, TURNS = 20261115, 60


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Bits turned, bytes replaced, lost and added: one, or a few, or many."""
    made = bytearray(data)
    for _ in range(draw.choice((1, 1, 3, 20))):
        at = draw.randrange(len(made))
        kind = draw.randrange(4)
        if kind == 0:
            made[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            made[at] = draw.randrange(256)
        elif kind == 2:
            del made[at : at + draw.randrange(1, 50)]
        else:
            made[at:at] = draw.randbytes(draw.randrange(1, 9))
        made = made or bytearray(b"x")
    return bytes(made)


def some() -> list[Any]:
    return [result(3), result(4, noise=0.5), result(5, "crashed", "signal 11")]


def a_store(path: Path) -> None:
    store, one = Results(path), some()[0]
    store.put(some(), [Choice("gemm", one.problem, one.device, 2, "generic", one.kernel.digest, 7.5)])
    store.close()


def read_store(path: Path) -> None:
    store = Results(path)
    try:
        list(store.all())
        store.choices()
        store.check()
    finally:
        store.close()


def a_lock(path: Path) -> None:
    problem = GEMM.problem({"m": 64, "n": 64, "k": 64})
    spec = GEMM.candidates(GEMM.signature_of(problem), "generic")[0]
    locks.write(path, [locks.pin(GEMM, "generic", problem, spec)])


def table(path: Path) -> None:
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    export.write(path, some())


KINDS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "r.csv": (table, export.read),
    "r.parquet": (table, export.read),
    "p.parquet": (table, lambda path: problem_sets.read(GEMM, path)),
    "r.json.gz": (lambda path: packed.write(path, "gemm", some()), packed.read),
    "r.db": (a_store, read_store),
    "l.lock": (a_lock, locks.read),
    "m.twmodel": (
        lambda path: path.write_bytes((SHIPPED / "gemm-zen4-avx2.twmodel").read_bytes()),
        lambda path: model_files.read(path.read_bytes(), path.name),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_told_and_never_a_surprise(name: str, tmp_path: Path) -> None:
    make, read = KINDS[name]
    whole = tmp_path / name
    make(whole)
    data, draw, told = whole.read_bytes(), random.Random(f"{SEED} {name}"), 0
    for turn in range(TURNS):
        file = tmp_path / f"{turn}-{name}"
        file.write_bytes(damaged(data, draw))
        try:
            read(file)
        except (TilewrightError, Unreadable):
            told += 1
    assert told > TURNS // 3


def test_a_store_whose_tables_have_names_in_no_language_is_damaged(tmp_path: Path) -> None:
    """SQLite's words about such a file cannot be read themselves."""
    path = tmp_path / "r.db"
    a_store(path)
    data = path.read_bytes()
    assert data.count(b"CREATE TABLE kernels(") == 1
    path.write_bytes(data.replace(b"CREATE TABLE kernels(", b"CREATE \xd9\xd9\xd9\xd9\xd9 kernels("))
    with pytest.raises(Unreadable):
        read_store(path)
    records = Records(tmp_path, "r.db")
    with pytest.warns(RuntimeWarning, match="it is kept as"):
        assert records.take([replace(result(9), date=9.0)]) == 1
    assert [one.problem["m"] for one in records.results.all()] == [9]


def test_a_damaged_model_of_the_user_s_own_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray((SHIPPED / "gemm-zen4-avx2.twmodel").read_bytes())
    nodes = data.index(b"nodes.npy") + len(b"nodes.npy")
    data[nodes] = 0x07  # a kind of block that no unpacker knows
    (tmp_path / "mine.twmodel").write_bytes(bytes(data))
    monkeypatch.setattr(model_files, "folder", lambda: tmp_path)
    assert model_files.at_hand() == model_files._shipped()
