"""Why a kernel is built again: its key inputs beside those of the nearest stored entry."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright import jsontext
from tilewright.build.builder import Builder
from tilewright.build.named import means, pool_specs
from tilewright.build.store import Store
from tilewright.dataclass import dataclass
from tilewright.errors import RequestError, TilewrightError, UnknownNameError
from tilewright.ops import op, op_names
from tilewright.ops.base import KernelSpec

_ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Difference:
    """One input of the key: what the stored entry had and what it would be now."""

    what: str
    stored: str
    now: str


@dataclass(frozen=True, slots=True)
class KeyComparison:
    """A kernel's key beside that of the nearest stored entry."""

    name: str
    key: str
    stored: bool  # the key is in the store: nothing would be compiled
    nearest_key: str  # empty when the store has nothing to compare with
    nearest_name: str
    differences: tuple[Difference, ...]


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str | tuple[str, ...]]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        yield name, tuple(str(item) for item in value)
    else:
        yield name, str(value)


def differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Field by field what differs between two sets of inputs (or specs)."""
    before, after = dict(_flat(stored)), dict(_flat(now))
    changed: list[Difference] = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if old == new:
            continue
        if isinstance(old, tuple) and isinstance(new, tuple):
            # Of a list of flags only what came and went is worth reading.
            gone = tuple(item for item in old if item not in new)
            come = tuple(item for item in new if item not in old)
            old, new = (gone, come) if gone or come else (old, new)
        changed.append(Difference(name, _words(old), _words(new)))
    return changed


def _words(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else " ".join(value) or "nothing"


def _compare(manifest: Mapping[str, Any], inputs: Mapping[str, Any], spec: KernelSpec) -> list[Difference]:
    changed = differences(manifest["inputs"], inputs)
    if manifest["inputs"].get("spec") == spec.digest:
        return changed
    # A digest says nothing to a reader: name the fields instead.  The source differs because they do.
    fields = differences(manifest.get("spec") or {}, spec.to_dict())
    named = [Difference(f"spec.{field.what}", field.stored, field.now) for field in fields]
    return named + [difference for difference in changed if difference.what not in ("spec", "source", "arch")]


def explain(builder: Builder, spec: KernelSpec) -> KeyComparison:
    """Compare the key of a spec with the nearest stored entry: the same spec first, then the fewest differences."""
    inputs = builder.key_of(spec)
    key = inputs.key
    best: tuple[tuple[bool, int, float], dict[str, Any], list[Difference]] | None = None
    for manifest in builder.store.manifests():
        if not manifest.get("spec"):
            continue  # a support library is no neighbour of a kernel
        changed = _compare(manifest, inputs.values, spec)
        same = manifest["inputs"].get("spec") == spec.digest
        rank = (not same, len(changed), -float(manifest.get("built_at", 0)))
        if best is None or rank < best[0]:
            best = (rank, manifest, changed)
    if best is None:
        return KeyComparison(spec.name, key, False, "", "", ())
    _, manifest, changed = best
    stored = manifest["key"] == key
    return KeyComparison(spec.name, key, stored, str(manifest["key"]), str(manifest.get("name", "")), tuple(changed))


def _spec_of(data: Any) -> KernelSpec:
    if isinstance(data, dict) and isinstance(data.get("spec"), dict):
        data = data["spec"]
    if not isinstance(data, dict) or "op" not in data:
        raise RequestError(
            "the file holds no kernel spec",
            rule="spec-file",
            remedy="give one spec of `tilewright specs --json`, or a manifest.json",
        )
    return op(str(data["op"])).spec_from_dict(data)


def find_spec(store: Store, word: str, target: str = "") -> KernelSpec:
    """The spec a person means: a JSON file, a stored kernel, or a kernel of a pool or set, by name or digest."""
    if word.endswith(".json"):
        try:
            return _spec_of(jsontext.loads(jsontext.read(Path(word), regular=False)))
        except (OSError, ValueError) as error:
            raise RequestError(
                f"{word} cannot be read as JSON: {error}", rule="spec-file", value=word, remedy="give a readable file"
            ) from None
    specs: dict[str, KernelSpec] = {}
    names: list[str] = []
    unread: RequestError | None = None  # a stored kernel that is meant, and cannot be used here
    for manifest in store.manifests():
        if not manifest.get("spec"):
            continue
        name = str(manifest.get("name", ""))
        names.append(name)
        if means(word, name, str(manifest["inputs"].get("spec", "")), str(manifest["key"])):
            try:
                spec = _spec_of(manifest)
            except TilewrightError as error:
                unread = unread or _unread(name, manifest, error)
                continue
            specs[spec.digest] = spec
    if not specs:
        for spec in pool_specs(word, target):
            specs[spec.digest] = spec
            if word in (spec.name, spec.digest):
                break
    if len(specs) > 1:
        some = ", ".join(sorted(spec.name for spec in specs.values())[:4])
        raise RequestError(
            f"{word!r} means {len(specs)} kernels: {some}",
            rule="kernel-ambiguous",
            value=word,
            remedy="give more of it",
        )
    if not specs and unread is not None:
        raise unread
    if not specs:
        raise UnknownNameError(
            f"{word!r} is no stored kernel and no kernel of a pool",
            rule="kernel-name",
            value=word,
            remedy="give a spec as a JSON file (`tilewright specs --json`), or a name that `tilewright specs` prints"
            + _alike(word, names),
        )
    return next(iter(specs.values()))


def _unread(name: str, manifest: Mapping[str, Any], error: TilewrightError) -> RequestError:
    """A stored kernel whose spec cannot be read: its op is not installed, or has other fields by now."""
    its_op = str(manifest["spec"].get("op", "")) if isinstance(manifest["spec"], Mapping) else ""
    if its_op and its_op not in op_names():
        return UnknownNameError(
            f"{name} is a stored kernel of the op {its_op!r}, which is not installed",
            rule="op-name",
            value=its_op,
            remedy="install the package that brings the op",
        )
    return RequestError(
        f"{name} is a stored kernel of another version: {error.message}",
        rule="kernel-version",
        value=name,
        remedy="name a kernel that `tilewright specs` prints",
    )


def _alike(word: str, names: Sequence[str]) -> str:
    """The stored names nearest to a word, of the same op where it begins with one."""
    mine = {name for name in names if any(word.startswith(f"{op}_") and name.startswith(f"{op}_") for op in op_names())}
    close = difflib.get_close_matches(word, sorted(mine or set(names)), n=3, cutoff=0.4)
    return f"; stored and near it: {', '.join(close)}" if close else ""
