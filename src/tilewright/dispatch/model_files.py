"""Models as files: read and written, those of a user's own, and those that ship.

A file is a zip of arrays of numbers and of a card in JSON.  Nothing of it is executed.  Its features are known by name:
their columns are put where this version has them, and a model is refused whose features are not the op's, in words that
say which.  One whose digest or arrays do not fit is an error that says so, too.
"""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright import events, jsontext, ops, packaged, settings
from tilewright.build import bundled
from tilewright.build.bundled import Bundle
from tilewright.dataclass import NamedTuple
from tilewright.digests import sha256
from tilewright.dispatch import looks
from tilewright.dispatch.learned import shipped_index, written_when
from tilewright.dispatch.model import MOST, Array, Card, Model, checked_number
from tilewright.dispatch.model_archive import Archive
from tilewright.errors import ModelError, TilewrightError
from tilewright.ops.base import Op, plain
from tilewright.ops.engine import engine
from tilewright.ops.features import ESTIMATE, UNITS, kernel_columns, problem_words
from tilewright.runtime.trees import NODE, Forest

if TYPE_CHECKING:
    import zipfile

FORMAT = 2
ENDING = ".twmodel"
MOST_BYTES = 16 << 20
ARRAYS = ("nodes", "roots", "depths", "low", "high")
# What reading a file that is none of ours, or was damaged, may end in.
_DAMAGE = (
    ValueError, LookupError, TypeError, AttributeError, EOFError, OverflowError, MemoryError, RuntimeError,
    zlib.error,
)  # fmt: skip


def digest_of(card: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    digest = sha256(json.dumps(card, sort_keys=True).encode())
    for name in ARRAYS:
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def write(path: Path, model: Model) -> None:
    """One file: a zip of arrays and the card."""
    from tilewright.codegen.folder import write_if_changed

    card = plain(model.card) | {"devices": [dict(device) for device in model.card.devices]}
    card |= {"probes": [dict(probe) for probe in model.card.probes]}
    card |= {"vocabulary": {name: list(words) for name, words in model.card.vocabulary.items()}}
    card = json.loads(json.dumps(card, sort_keys=True, default=dict))
    forest = model.forest
    arrays = {"nodes": forest.nodes, "roots": forest.roots, "depths": forest.depths, "low": model.low,
              "high": model.high}  # fmt: skip
    head = {"format": FORMAT, "digest": digest_of(card, arrays), "card": card}
    out = io.BytesIO()
    import zipfile  # those who only read do without it

    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        _add(archive, "card.json", json.dumps(head, indent=1, sort_keys=True).encode())
        for name in ARRAYS:
            data = io.BytesIO()
            np.lib.format.write_array(data, np.ascontiguousarray(arrays[name]), allow_pickle=False)
            _add(archive, f"{name}.npy", data.getvalue())
    write_if_changed(path, out.getvalue())
    looks.changed()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    import zipfile

    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same model is the same file
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def read(data: bytes, source: str, *, ours: bool = False) -> Model:
    """A model from the bytes of its file; anything that does not fit is a ModelError.

    Whether its features are the op's, and its digest that of its content, is not asked of `ours`, which ship with it
    and which a test asks: that would load the kernels of every backend.
    """
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
        archive = Archive(data)
        if any(size > MOST_BYTES for size in archive.sizes.values()):
            raise ValueError("it unpacks to more than a model holds")
        head = json.loads(archive.read("card.json"))
        arrays = {name: _array(archive.read(f"{name}.npy")) for name in ARRAYS}
        return _model(head, arrays, ours=ours)
    except TilewrightError:
        raise
    except _DAMAGE as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise _damaged(source, reason) from None


def read_file(path: Path) -> Model:
    """The same of a file; one that may never end (a pipe, a device) is not waited for."""
    try:
        data = jsontext.read(path)
    except ValueError as error:
        raise _damaged(str(path), str(error)) from None
    return read(data, str(path))


def _damaged(source: str, reason: str) -> ModelError:
    return ModelError(
        f"{source} is no model that can be used: {reason}",
        rule="model-file",
        value=source,
        remedy="train it again (`tilewright learn train`), or remove it",
    )


# NumPy reads a header as Python's source, a third of a millisecond each: those that we write are compared as texts.
_HEADS = {
    f"{{'descr': {np.lib.format.dtype_to_descr(kind)!r}, 'fortran_order': False, 'shape': (".encode(): kind
    for kind in (NODE, np.dtype(np.int32), np.dtype(np.float32), np.dtype(np.float64))
}


def _array(data: bytes) -> Array:
    first = 10 + int.from_bytes(data[8:10], "little")
    head = data[10:first]
    for begins, kind in _HEADS.items():
        count, _, blank = head.removeprefix(begins).partition(b",), }")
        if head.startswith(begins) and data[:8] == b"\x93NUMPY\x01\x00" and count.isdigit() and not blank.strip():
            return np.frombuffer(data, kind, int(count), first)
    array: Array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return array


def _rough(parts: Any) -> tuple[float, float, float]:
    start, byte, operation = (float(part) for part in parts)
    if not (0 < start < np.inf and 0 <= byte < np.inf and 0 <= operation < np.inf):
        raise ValueError("it holds times that are none")
    return start, byte, operation


def _card(data: Mapping[str, Any]) -> Card:
    """A card as read; what selection relies on is of its kind, whoever wrote the file."""
    if not all(isinstance(data[name], dict) for name in ("vocabulary", "data", "metrics", "versions")):
        raise ValueError("its card is none")
    return Card(
        **{
            **data,
            **{name: _words(data[name]) for name in ("targets", "signatures", "columns")},
            "op": _words([data["op"]])[0],
            "devices": _objects(data["devices"]),
            "rough": _rough(data["rough"]),
            "base": checked_number(data["base"], -MOST),
            "far": checked_number(data["far"], 1.0, 1e100),
            "sigma": checked_number(data["sigma"], 0.0),
            "probes": _objects(data.get("probes", [])),
            "trust": checked_number(data.get("trust", 0.0), 0.0, 1.0),
            "vocabulary": {name: _words(words) for name, words in data["vocabulary"].items()},
        }
    )


def _words(words: Any) -> tuple[str, ...]:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{words!r:.60} are no words")
    return tuple(words)


def _objects(objects: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
        raise ValueError(f"{objects!r:.60} are no descriptions")
    return tuple(objects)


def _model(head: Any, arrays: Mapping[str, Array], *, ours: bool) -> Model:
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError(f"its format is {head.get('format') if isinstance(head, dict) else head!r}, not {FORMAT}")
    data = head["card"]
    if not ours and head["digest"] != digest_of(data, arrays):
        raise ValueError("its digest is not that of its content: it was changed after it was written")
    card = _card(data)
    width = len(card.columns)
    forest = Forest(arrays["nodes"], arrays["roots"], arrays["depths"], card.base)
    wrong = forest.wrong(width)
    if wrong or arrays["low"].shape != (width,) or arrays["high"].shape != (width,):
        raise ValueError(wrong or "its ranges do not fit its features")
    if not ours:
        _demand_features(card, ops.op(card.op))
    model = in_order(card, forest, arrays["low"].astype(np.float64), arrays["high"].astype(np.float64))
    if card.trust and not model.frame.estimated:
        raise ValueError("it begins from an estimate that it does not know")
    _ = model.unsure  # a card that holds something else than scores is reported now
    return model


def _demand_features(card: Card, op: Op) -> None:
    """Features mean what an op says by their names: one that only the op or only the model has is an error."""
    part = engine(op)
    needed = {*part.problem_feature_names, *getattr(part, "kernel_feature_names", ()), *part.interaction_names, UNITS}
    known, words = {*needed, ESTIMATE, *kernel_columns(op.schedules)}, problem_words(part)
    numbers = {*needed, ESTIMATE} - set(words)
    odd = {
        "names twice": sorted({name for name in card.columns if card.columns.count(name) > 1}),
        f"has, and {op.name} has not,": sorted({*card.columns, *card.vocabulary} - known),
        "lacks": sorted(needed - set(card.columns)),
        "has numbers for the words of": sorted(set(words) - set(card.vocabulary)),
        "has words for the numbers of": sorted(numbers & set(card.vocabulary)),
    }
    differences = [f"it {how} {', '.join(names[:4])}{' ...' * (len(names) > 4)}" for how, names in odd.items() if names]
    if differences:
        raise ValueError(f"its features are not those of {op.name} in this version: {'; '.join(differences)}")


def in_order(card: Card, forest: Forest, low: Array, high: Array) -> Model:
    """A model with its columns where this version has them, whatever their order was."""
    columns = Model(card, forest, low, high).frame.columns
    if columns == card.columns:
        return Model(card, forest, low, high)
    place = {name: at for at, name in enumerate(columns)}
    nodes = forest.nodes.copy()
    nodes["feature"] = np.array([place[name] for name in card.columns], np.int32)[nodes["feature"]]
    was = [card.columns.index(name) for name in columns]
    return Model(replace(card, columns=columns), replace(forest, nodes=nodes), low[was], high[was])


# -- which are at hand -----------------------------------------------------------------------------------------


def folder() -> Path:
    """The folder of a user's own models, which take precedence over those that ship."""
    return settings.current().cache_dir / "models"


def shipped_names() -> list[str]:
    """Of the models that ship, in the order they are asked."""
    files = packaged.names("tilewright.dispatch", "models")
    return sorted(file.removesuffix(ENDING) for file in files if file.endswith(ENDING))


@lru_cache(maxsize=32)
def shipped(name: str) -> Model:
    """One of them; a LookupError where there is none of that name."""
    if name not in shipped_names():
        raise LookupError(name)
    file = f"{name}{ENDING}"
    model = read(_shipped_bytes(file), file, ours=True)
    model.name, model.ships = name, True
    return model


def _shipped_bytes(file: str) -> bytes:
    return packaged.read_bytes("tilewright.dispatch", f"models/{file}")


def _shipped_of(op: str, target: str) -> list[Model]:
    """Those of an op that know a target; the others are not read.  Their names begin with their op's."""
    mine = [name for name in shipped_names() if name.startswith(f"{op}-")]
    return [shipped(name) for name in mine if target in _shipped_targets(name)]


@lru_cache(maxsize=32)
def _shipped_targets(name: str) -> tuple[str, ...]:
    """By the list, or else the card alone, which is a small part of the file."""
    listed = shipped_index().get(name)
    if listed is not None:
        return tuple(listed["targets"])
    card = Archive(_shipped_bytes(f"{name}{ENDING}")).read("card.json")
    return tuple(json.loads(card)["card"]["targets"])


@lru_cache(maxsize=1)
def _shipped() -> tuple[Model, ...]:
    return tuple(map(shipped, shipped_names()))


class _Own(NamedTuple):
    """A user's models by the file they are in, and what is wrong with files that hold none."""

    models: Mapping[Path, Model]
    damaged: Mapping[Path, str]


@lru_cache(maxsize=8)
def _read_own(place: Path, stamp: tuple[tuple[str, int, int], ...]) -> _Own:
    models, damaged = {}, {}
    for name, _, _ in stamp:
        try:
            models[place / name] = read_file(place / name)
        except (TilewrightError, OSError) as error:  # of an op that is not installed, too
            events.emit(events.Warned("model-file", str(error)))
            damaged[place / name] = (
                error.message if isinstance(error, TilewrightError) else _unread(place / name, error)
            )
    return _Own(models, damaged)


def _own() -> _Own:
    place = folder()
    try:
        paths = sorted(place.glob(f"*{ENDING}"))
    except OSError:
        paths = []
    return _read_own(place, tuple((path.name, *written_when(path)) for path in paths))


def _unread(path: Path, error: OSError) -> str:
    """Why a model's file cannot be read, without the words of an operating system where there are better ones."""
    if path.is_dir():
        return f"{path} is a folder, not the file of a model"
    if path.is_symlink() and not path.exists():
        return f"{path} is a link to {os.readlink(path)}, which is not there"  # noqa: PTH115  as it is written
    return f"{path} cannot be read: {error.strerror or error}"


def at_hand() -> tuple[Model, ...]:
    """The user's models, then those of bundles, then those that ship."""
    return _each_once(*_own().models.values(), *_bundled(), *_shipped())


def _each_once(*models: Model) -> tuple[Model, ...]:
    return tuple({id(model): model for model in models}.values())


def _bundled(op: str = "") -> tuple[Model, ...]:
    return _read_bundled(bundled.in_force(), op)


@lru_cache(maxsize=32)
def _shipped_digest(name: str) -> str:
    return sha256(_shipped_bytes(f"{name}{ENDING}")).hexdigest() if name in shipped_names() else ""


@lru_cache(maxsize=32)
def _read_bundled(bundles: tuple[Bundle, ...], op: str) -> tuple[Model, ...]:
    """Of bundles in force; one that does not fit this version is reported, and the others are used.

    Most hold models that ship, which need not be checked again: that would load the kernels of every backend.  Of those
    only an op's are read, where one is named; their names begin with it.
    """
    models = []
    for bundle in bundles:
        for row in bundle.file.manifest.get("models", []):
            name = str(row.get("name", ""))
            if bundle.file.files[row["file"]]["sha256"] == _shipped_digest(name):
                models += [shipped(name)] if name.startswith(f"{op}-") or not op else []
                continue
            try:
                model = read(bundle.file.read(row["file"]), f"{bundle.path}/{row['file']}")
            except TilewrightError as error:
                events.emit(events.Warned("model-file", error.message))
                continue
            model.name = name
            models.append(model)
    return tuple(models)


def at_hand_for(op: str, target: str) -> tuple[Model, ...]:
    """Those of them that may have something to say of an op's kernels for a target."""
    own = (model for model in (*_own().models.values(), *_bundled(op)) if model.card.op == op)
    return _each_once(*own, *_shipped_of(op, target))


def files_for(op: str, target: str) -> dict[str, bytes]:
    """The files of the models of an op that know a target, by the names that messages use."""
    own = {path: model for path, model in _own().models.items() if model.card.op == op and target in model.card.targets}
    files = {path.name.removesuffix(ENDING): path.read_bytes() for path in own}
    for name in shipped_names():
        if name.startswith(f"{op}-") and target in _shipped_targets(name):
            files.setdefault(name, _shipped_bytes(f"{name}{ENDING}"))
    return files


def damaged() -> list[str]:
    """Files in the folder of a user's models that hold none, each with the reason: other models are asked instead."""
    return [f"{reason}; it is not used" for reason in _own().damaged.values()]


def shadowing(op: str = "", target: str = "") -> list[str]:
    """A user's models that are asked before one that ships, of an op and for a target where these are named."""
    remarks = []
    for path, model in _own().models.items():
        if op and model.card.op != op:
            continue
        mine = {target} & set(model.card.targets) if target else set(model.card.targets)
        hidden = [
            other.name for other in _shipped() if other.card.op == model.card.op and mine & set(other.card.targets)
        ]
        if hidden:
            remarks.append(f"{path} is used instead of {', '.join(hidden)}, which ships with this version")
    return remarks
