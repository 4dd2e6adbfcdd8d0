"""The models that ship: sound, small, made from data that ships, and blind to what is held out."""

from __future__ import annotations

import hashlib
import json
import types
from pathlib import Path

import pytest

from tilewright import Registry, events, ops, settings
from tilewright.dispatch import learned, model_files
from tilewright.dispatch import model as models
from tilewright.dispatch.model_archive import Archive
from tilewright.dispatch.results import Result
from tilewright.learn import packed
from tilewright.tune import problem_sets

# Of each op a problem that every model of it knows.
KNOWN = {
    "gemm": {"m": 512, "n": 512, "k": 512, "datatype": "bf16", "layout": "rcr"},
    "conv": {"batch": 2, "channels": 64, "filters": 64, "size": "28x28", "window": "3x3", "padding": "1x1"},
}
SHIPPED = Path(model_files.__file__).parent / "models"
SWEEPS = Path(__file__).parents[2] / "benchmarks" / "results" / "sweeps"
NAMES = sorted(one.name.removesuffix(model_files.ENDING) for one in SHIPPED.glob(f"*{model_files.ENDING}"))


def shipped(name: str) -> models.Model:
    path = SHIPPED / f"{name}{model_files.ENDING}"
    return model_files.read(path.read_bytes(), path.name)


def measured(name: str) -> list[Result]:
    """What a model was made from; the sweeps are in the source tree, not in the package."""
    if not SWEEPS.is_dir():
        pytest.skip("the sweeps are not here")
    card = shipped(name).card
    return [row for one in card.data["sources"] for row in packed.read(SWEEPS / one) if row.kernel.arch in card.targets]


def test_some_ship_and_all_are_found() -> None:
    assert "gemm-h200" in NAMES
    assert len(model_files._shipped()) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_found_by_its_op_and_target_alone(name: str) -> None:
    """Selection reads no others: a first call would wait for them, and for the kernels of every backend."""
    card = shipped(name).card
    assert name.startswith(f"{card.op}-")
    for target in card.targets:
        found = [one.name for one in model_files.at_hand_for(card.op, target)]
        assert name in found
        assert found == [
            one.name for one in model_files.at_hand() if one.card.op == card.op and target in one.card.targets
        ]


@pytest.mark.parametrize("known", [True, False])
def test_none_is_opened_for_a_device_that_none_knows(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first call would wait for a model that is silent."""
    card = shipped("gemm-zen4-avx512").card
    device = dict(card.devices[0]) if known else {**card.devices[0], "flags": "another"}
    opened: list[str] = []
    read = model_files.at_hand_for

    def noted(op: str, target: str) -> tuple[models.Model, ...]:
        opened.append(op)
        return read(op, target)

    monkeypatch.setattr(learned, "machine", lambda *_: device)
    monkeypatch.setattr(model_files, "at_hand_for", noted)
    learned._at_hand.cache_clear()  # another test may have asked for this device
    registry = Registry(card.targets[0])
    specs = registry.candidates(ops.op("gemm").problem_from_dict(dict(card.probes[0]["problem"])), serving=False)
    voices = learned.voices(registry.arch, 1, specs)
    assert bool(voices) == known
    assert opened == (["gemm"] if known else [])


@pytest.mark.parametrize("name", NAMES)
def test_fields_of_schedules_are_told_from_other_features_without_the_schedules(name: str) -> None:
    from tilewright.ops.features import kernel_columns

    one = shipped(name)
    fields = frozenset(kernel_columns(ops.op(one.card.op).schedules))
    assert one.frame._kernel == tuple(column for column in one.card.columns if column in fields)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_small_and_its_card_lies_beside_it(name: str) -> None:
    one = shipped(name)
    assert (SHIPPED / f"{name}{model_files.ENDING}").stat().st_size < 1_000_000
    card = json.loads((SHIPPED / f"{name}.card.json").read_text(encoding="utf-8"))
    assert card["data"] == one.card.data
    assert card["metrics"] == one.card.metrics
    assert {"mean", "p10", "worst", "families"} <= set(card["metrics"]["cross_validation"])
    assert {"mean", "p10", "worst"} <= set(card["metrics"]["unseen"]["model"]["all"])


@pytest.mark.parametrize("name", NAMES)
def test_the_list_of_targets_and_the_digest_are_those_of_the_file(name: str) -> None:
    """Neither is asked in a process that takes a model: this is where they are."""
    data = (SHIPPED / f"{name}{model_files.ENDING}").read_bytes()
    archive = Archive(data)
    head = json.loads(archive.read("card.json"))
    arrays = {array: model_files._array(archive.read(f"{array}.npy")) for array in model_files.ARRAYS}
    assert head["digest"] == model_files.digest_of(head["card"], arrays)
    card = head["card"]
    assert learned.shipped_index()[name] == {"targets": card["targets"], "devices": card["devices"]}
    assert set(learned.shipped_index()) == set(NAMES)


@pytest.mark.proof
@pytest.mark.parametrize("name", NAMES)
def test_each_was_made_from_the_sweeps_here_and_from_nothing_that_is_held_out(name: str) -> None:
    """The digest is of the rows training took; what is left of the sweeps without the held out has the same."""
    from tilewright.learn.data import collect

    rows = measured(name)
    op = ops.op(shipped(name).card.op)
    held = problem_sets.held_out(op)
    assert len(held) == 300
    fields = {json.dumps(dict(row.problem), sort_keys=True): row.problem for row in rows}
    problems = [op.problem_from_dict(dict(one)) for one in fields.values()]
    leaking = set(problem_sets.leaking(op, problems, held))
    data = collect(op, rows)
    used = {one.problem for one in data.groups}
    assert used
    assert not used & leaking
    card = shipped(name).card
    assert card.data["problems"] <= len(data.groups)
    assert card.data["rows"] <= data.rows
    # As many as then, but for rows of kernels that are gone since, which are counted by themselves.
    near, gone = "held out, or near a problem that is", data.left_out.get("a kernel of another version", 0)
    assert 0 <= card.data["left_out"].get(near, 0) - data.left_out.get(near, 0) <= gone


@pytest.mark.parametrize("name", NAMES)
def test_each_decides_on_its_device_and_nowhere_else(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = shipped(name)
    device = dict(one.card.devices[0])
    # Matrices of a GPU's kernels of convolution are bf16.
    more = {"datatype": "bf16"} if one.card.targets[0].startswith("sm_") else {}
    problem = ops.op(one.card.op).problem({**KNOWN[one.card.op], **more})
    with settings.override(cache_dir=tmp_path, models=True):
        for known, tier in ((device, "model"), ({**device, "model": "another"}, "heuristic"), ({}, "heuristic")):
            monkeypatch.setattr(learned, "machine", lambda *_, known=known: known)
            registry = Registry(one.card.targets[0])
            chosen = registry.select(problem, threads=2)
            assert chosen.tier == tier
            if tier == "heuristic":
                assert "; this device is " in registry.explain(problem, threads=2).model


class FakeFile:
    """The part of a bundle's file that models are read from."""

    path = "model.twb"

    def __init__(self, **files: bytes) -> None:
        self._data = {f"models/{name}.twmodel": data for name, data in files.items()}
        self.files = {file: {"sha256": hashlib.sha256(data).hexdigest()} for file, data in self._data.items()}
        self.manifest = {"models": [{"name": name, "file": f"models/{name}.twmodel"} for name in files]}
        self.reads: list[str] = []

    def read(self, file: str) -> bytes:
        self.reads.append(file)
        return self._data[file]


def test_a_bundle_that_holds_a_model_that_ships_has_that_very_model() -> None:
    """It is not checked again, which would load the kernels of every backend, and those of other ops are not read."""
    names = ["conv-zen4-avx512", "gemm-zen4-avx512"]
    data = {name: model_files._shipped_bytes(f"{name}.twmodel") for name in names}
    whole, changed = FakeFile(**data), FakeFile(**{names[1]: data[names[1]][:200]})
    bundles = (types.SimpleNamespace(file=whole, path="model.twb"),)
    assert model_files._read_bundled.__wrapped__(bundles, "gemm") == (model_files.shipped(names[1]),)
    assert model_files._read_bundled.__wrapped__(bundles, "") == tuple(map(model_files.shipped, names))
    assert whole.reads == []
    bundles = (types.SimpleNamespace(file=changed, path="model.twb"),)
    with events.recorded() as heard:
        assert model_files._read_bundled.__wrapped__(bundles, "gemm") == ()
    assert changed.reads
    assert any(isinstance(event, events.Warned) for event in heard)
