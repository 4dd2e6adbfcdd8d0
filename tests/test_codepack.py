"""Bytecode in one file: modules come from it as from Python's own, and never older than their source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright import codepack

# Imports some modules of a package through its pack, packs what it loaded, and says what came from where.
_CODE = """
import json, sys
sys.path.insert(0, {place!r})
import plant
from tilewright import codepack
pack = codepack.Pack("plant", plant.__spec__.origin)
sys.meta_path.insert(2, pack)
import plant.leaf, plant.inner.twig
pack.save()
names = ("plant.leaf", "plant.inner", "plant.inner.twig")
modules = {{name: sys.modules[name] for name in names}}
print(json.dumps({{name: [module.VALUE, type(module.__spec__.loader).__module__, module.__file__, module.__cached__,
      getattr(module, "__path__", None)] for name, module in modules.items()}}))
"""


@pytest.fixture
def plant(tmp_path: Path) -> Path:
    """A package of three modules."""
    folder = tmp_path / "sources" / "plant"
    (folder / "inner").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "leaf": "VALUE = 1",
        "inner/__init__": "VALUE = 2",
        "inner/twig": "VALUE = 3",
    }.items():
        (folder / f"{name}.py").write_text(f"{text}\n", encoding="utf-8")
    return folder


def imported(plant: Path, **more: str) -> dict[str, Any]:
    """What a process of its own has of each module: value, whose loader, file, bytecode, folder."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(plant.parents[1] / "bytecode"), **more}
    if "PYTHONDONTWRITEBYTECODE" not in more:
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = _CODE.format(place=str(plant.parent))
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


def packed(answer: dict[str, Any]) -> list[str]:
    return [name for name, row in answer.items() if row[1] == codepack.__name__]


def pack_of(plant: Path) -> Path:
    (file,) = (plant.parents[1] / "bytecode").rglob("plant.codepack")
    return file


def test_the_second_process_reads_the_pack_of_the_first(plant: Path) -> None:
    first, second = imported(plant), imported(plant)
    assert packed(first) == []
    assert packed(second) == ["plant.leaf", "plant.inner", "plant.inner.twig"]
    for name, row in first.items():  # as Python's own finder makes modules
        assert [*row[:1], *row[2:]] == [*second[name][:1], *second[name][2:]]


def test_a_source_that_changed_is_read_again_and_packed_anew(plant: Path) -> None:
    imported(plant)
    (plant / "leaf.py").write_text("VALUE = 77\n", encoding="utf-8")
    changed, after = imported(plant), imported(plant)
    assert changed["plant.leaf"][0] == after["plant.leaf"][0] == 77
    assert packed(changed) == ["plant.inner", "plant.inner.twig"]
    assert "plant.leaf" in packed(after)


def test_a_source_that_is_gone_is_gone(plant: Path) -> None:
    imported(plant)
    (plant / "inner" / "twig.py").unlink()
    with pytest.raises(subprocess.CalledProcessError) as caught:
        imported(plant)
    assert "No module named 'plant.inner.twig'" in caught.value.stderr


@pytest.mark.parametrize("damage", ["", "x", "short", "index", "code"])
def test_a_damaged_pack_is_as_good_as_none(plant: Path, damage: str) -> None:
    imported(plant)
    file = pack_of(plant)
    data = bytearray(file.read_bytes())
    if damage in ("", "x"):
        data = bytearray(damage.encode())
    elif damage == "short":
        del data[len(data) // 2 :]
    elif damage == "index":
        data[40:60] = b"\xff" * 20
    else:
        data[-60:] = b"\xff" * 60
    file.write_bytes(data)
    assert [row[0] for row in imported(plant).values()] == [1, 2, 3]


def test_another_copy_of_the_package_does_not_read_it(plant: Path) -> None:
    imported(plant)
    pack = codepack.Pack("plant", "")
    pack._rows = {"plant.leaf": (str(plant / "leaf.py"), "", 0, 0, 0, 0)}
    assert pack.find_spec("plant.leaf", ["/elsewhere/plant"]) is None
    assert pack.find_spec("plant.other", [str(plant)]) is None


def test_where_no_bytecode_is_to_be_written_there_is_no_pack(plant: Path) -> None:
    imported(plant, PYTHONDONTWRITEBYTECODE="1")
    assert not list(plant.parents[1].rglob("*.codepack"))
    assert not list(plant.parents[1].rglob("*.part"))
