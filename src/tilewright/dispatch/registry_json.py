"""A registry as JSON, and back: every kernel's spec, library and the numbers that the selection library takes of it.

The C++ front end (`cpp/`) reads it and asks the same selection libraries with the same numbers, so that both choose
alike.  Numbers that many kernels share (facts and rates of an arch) are written once, under `selection`.

    {"format": "tilewright-registry", "version": 1, "target": "x86_64_v3",
     "kernels": [{"digest", "name", "op", "spec", "library": file or null, "fallback": bool,
                  "selection": {"set", "family", "schedule": {field: number}, "arch", "rates"} or null,
                  "copies": the numbers that padded copies are made by (`Op.copied_grains`), or null where it takes
                            none}],
     "selection": {set: {"library": file or null, "problem": [names], "arch": {arch: {name: number}},
                         "rates": {arch: {name: number}}}},
     "registry_sha256": of the text as it is written, without these digits: whoever reads it sees what was changed,
     "choices", "models": what `exported_choices` and `exported_models` take along, where there is something,
     "compute_units": of a GPU, where there are models}

`fallback`: the kernel was not registered, and serves what none of its signature does.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright import jsontext, ops
from tilewright.arch import all_archs
from tilewright.backends.native import NativeKernels
from tilewright.build import Builder, build_many
from tilewright.dispatch import exported_choices, exported_models
from tilewright.dispatch.kernels import adopt
from tilewright.errors import FileError, InternalError, LoadError, TilewrightError
from tilewright.native.judge import native_kernels
from tilewright.native.library import library
from tilewright.ops.base import KernelSpec
from tilewright.runtime.loader import load_library

if TYPE_CHECKING:
    from tilewright.dispatch.registry import Registry

    Kind = TypeVar("Kind", bound=Registry)

FORMAT, VERSION = "tilewright-registry", 1
DIGEST = "registry_sha256"
FILE, KERNELS, SELECT = "registry.json", "kernels", "select"  # of a folder that `export` writes


def fallbacks(specs: Iterable[KernelSpec], target: str) -> tuple[KernelSpec, ...]:
    """The kernels that serve what none of these does, one a signature; those that are among these are left out."""
    known = {spec.digest: spec for spec in specs}
    missing: dict[str, KernelSpec] = {}
    for op_name, signature in dict.fromkeys((spec.op, spec.signature) for spec in known.values()):
        op = ops.op(op_name)
        fallback = op.fallback_spec(signature, target)
        if fallback.digest not in known and not op.check(fallback):
            missing[fallback.digest] = fallback
    return tuple(missing.values())


def to_dict(
    specs: Iterable[KernelSpec],
    target: str,
    libraries: Mapping[str, str] | None = None,
    choices: list[dict[str, Any]] | None = None,
    models: list[dict[str, Any]] | None = None,
    alone: Iterable[KernelSpec] = (),
) -> dict[str, Any]:
    """Registered specs and their fallback kernels; `libraries` are files by digest, or by a set's name.

    `alone`: fallback kernels besides, of signatures that nothing else is registered of.
    """
    registered = tuple(specs)
    serve_rest = dict.fromkeys((*fallbacks(registered, target), *alone))
    sets: dict[str, dict[str, Any]] = {}
    entries = []
    for fallback, several in ((False, registered), (True, serve_rest)):
        for spec in several:
            file = _library_of(spec) if libraries is None else libraries.get(spec.digest)
            entries.append(
                {
                    "digest": spec.digest, "name": spec.name, "op": spec.op, "spec": spec.to_dict(), "library": file,
                    "fallback": fallback, "selection": _selection(spec, sets, libraries), "copies": _copies(spec),
                }
            )  # fmt: skip
    whole = {"format": FORMAT, "version": VERSION, "target": target, "kernels": entries, "selection": sets}
    if choices:
        whole["choices"] = choices
    if models:
        whole["models"] = models
        units = all_archs()[target].compute_units if all_archs()[target].backend != "cpu" else 0
        whole |= {"compute_units": units} if units else {}
    return whole


def _copies(spec: KernelSpec) -> list[int] | None:
    """What padded copies are like, as C++ makes them.  None where it makes none."""
    grains = ops.op(spec.op).copied_grains(spec)
    return None if grains is None else list(grains)


def _library_of(spec: KernelSpec) -> str | None:
    """Where its library is; None where it is not built."""
    try:
        artifact = Builder().find(spec)
    except TilewrightError:  # of a toolchain that is not here
        return None
    return None if artifact is None else str(artifact.path)


def _selection(
    spec: KernelSpec, sets: dict[str, dict[str, Any]], libraries: Mapping[str, str] | None
) -> dict[str, Any] | None:
    """What the selection library takes of a kernel; None where it has no such family.  `sets` gets what is shared."""
    kernels = native_kernels((spec,))
    described = None if kernels is None else kernels.schedule(spec)
    if kernels is None or described is None:
        return None
    shared = sets.get(kernels.set_name)
    if shared is None:
        file = selection_library(kernels) if libraries is None else libraries.get(kernels.set_name)
        shared = sets[kernels.set_name] = {
            "library": file, "problem": list(kernels.problem_names), "arch": {}, "rates": {}
        }  # fmt: skip
    if spec.arch not in shared["arch"]:
        arch = all_archs()[spec.arch]
        shared["arch"][spec.arch] = {name: int(value) for name, value in kernels.arch(arch).items()}
        shared["rates"][spec.arch] = {name: _finite(name, value) for name, value in kernels.rates(arch).items()}
    fields = {name: int(value) for name, value in described.fields.items()}
    return {
        "set": kernels.set_name, "family": described.family, "schedule": fields, "arch": spec.arch, "rates": spec.arch
    }  # fmt: skip


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise InternalError(f"the rate {name} is {value}, which JSON cannot say", rule="registry-json", value=name)
    return float(value)


def selection_library(kernels: NativeKernels) -> str | None:
    """The file of a set's selection library, built now if need be; None where it cannot be had."""
    native = library(kernels)
    return None if native is None else native.path


def written(data: Mapping[str, Any]) -> str:
    """As text with its digest: numbers go to selection unchecked, and one that was changed could end a process."""
    text = json.dumps({**data, DIGEST: ""}, sort_keys=True, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return text.replace(f'"{DIGEST}": ""', f'"{DIGEST}": "{digest}"', 1)


def to_json(specs: Iterable[KernelSpec], target: str) -> str:
    return written(to_dict(specs, target))


def export(
    specs: Iterable[KernelSpec],
    target: str,
    folder: Path | str,
    lock: Path | str | None = None,
    measured: bool = False,
    models: bool = True,
) -> Path:
    """A folder that C++ runs from: registry.json, the libraries of all kernels (built now) and of selection."""
    goal = Path(folder)
    registered = tuple(specs)
    every = (*registered, *fallbacks(registered, target))
    built = build_many(every)
    files: dict[str, str] = {}
    for name in (KERNELS, SELECT):
        (goal / name).mkdir(parents=True, exist_ok=True)
    for spec in every:
        files[spec.digest] = f"{KERNELS}/{spec.digest}.so"
        shutil.copyfile(built[spec.digest].path, goal / files[spec.digest])
        kernels = native_kernels((spec,))
        if kernels is None or kernels.set_name in files:
            continue
        chosen_by = selection_library(kernels)
        if chosen_by is not None:
            files[kernels.set_name] = f"{SELECT}/{kernels.set_name}.so"
            shutil.copyfile(chosen_by, goal / files[kernels.set_name])
    rows = exported_choices.choices(registered, target, lock, measured)
    learned = exported_models.models(registered, target) if models else exported_models.Exported()
    for name, data in learned.files.items():
        (goal / name).parent.mkdir(parents=True, exist_ok=True)
        (goal / name).write_bytes(data)
    (goal / FILE).write_text(written(to_dict(registered, target, files, rows, learned.rows)), encoding="utf-8")
    return goal / FILE


def specs_of(data: Any) -> tuple[str, tuple[KernelSpec, ...], tuple[str, ...]]:
    """The target, the registered specs and the libraries that a registry's JSON names."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise FileError("this is no registry's JSON", rule="registry-json", value=type(data).__name__,
                        remedy="give what `Registry.to_json()` wrote")  # fmt: skip
    if data.get("version") != VERSION:
        raise FileError(
            f"a registry's JSON of version {data.get('version')!r}, and this package reads {VERSION}",
            rule="registry-json-version", value=data.get("version"), remedy="write it again with this package",
        )  # fmt: skip
    target, entries = data.get("target"), data.get("kernels")
    if not isinstance(target, str) or not isinstance(entries, list):
        raise FileError("a registry's JSON without a target or kernels", rule="registry-json", value=sorted(data),
                        remedy="write it again with `Registry.to_json()`")  # fmt: skip
    specs, files = [], []
    for entry in entries:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("spec"), Mapping):
            raise FileError("a kernel of a registry's JSON has no spec", rule="registry-json", value=entry,
                            remedy="write it again with `Registry.to_json()`")  # fmt: skip
        spec = ops.op(str(entry.get("op"))).spec_from_dict(dict(entry["spec"]))
        if spec.digest != entry.get("digest"):
            raise LoadError(
                f"{entry.get('name')} has the digest {spec.digest[:8]}, and its entry says otherwise",
                rule="registry-digest", value=entry.get("digest"), remedy="write the registry's JSON again",
            )  # fmt: skip
        if not entry.get("fallback"):
            specs.append(spec)
        if entry.get("library"):
            files.append(str(entry["library"]))
    return target, tuple(specs), tuple(files)


def read(kind: type[Kind], text: str | bytes, folder: Path) -> Kind:
    """A registry back; libraries that are where it says are taken as they are."""
    try:
        data = jsontext.loads(text)
    except ValueError as error:
        raise FileError(f"a registry's JSON cannot be read: {error}", rule="registry-json", value=str(error),
                        remedy="give what `Registry.to_json()` wrote") from error  # fmt: skip
    target, specs, files = specs_of(data)
    registry = kind(target, specs)
    for file in files:
        if (folder / file).is_file() and registry.arch.backend == "cpu":
            adopt(load_library(folder / file))
    return registry
