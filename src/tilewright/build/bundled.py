"""The bundles in force: read-only stores that are asked before the store itself.

A program names one (`tilewright.use_bundle`), or an installed package brings it (entry point group
`tilewright.bundles`).  A kernel counts if the bundle was made for this kind of host and this ABI and has the very spec
that is asked for, which its library must say too.  A library without a spec (selection, threads, the fast path) counts
if it was compiled from the same source and headers that this version would compile.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import events, lazy, ops, plugins
from tilewright.arch import all_archs, runnable_host_archs
from tilewright.backends.base import Source, source_dirs
from tilewright.build.key import canonical, source_inputs
from tilewright.digests import sha256
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec
from tilewright.runtime import abi

if TYPE_CHECKING:
    from tilewright.build import bundle_file
    from tilewright.runtime import memory_library
else:
    bundle_file = lazy.module("tilewright.build.bundle_file")
    memory_library = lazy.module("tilewright.runtime.memory_library")

GROUP = "tilewright.bundles"
FALLBACK = "fallback"  # the role of a kernel that only the last tier takes

ABI = (abi.ABI_VERSION, 0)


class Bundle:
    """A bundle that this machine can load kernels from."""

    def __init__(self, path: Path | str) -> None:
        self.file = bundle_file.BundleFile(path)
        manifest = self.file.manifest
        major, host = manifest["abi"][0], manifest.get("host", "")
        if major != ABI[0]:
            raise self.file.error(
                f"its kernels have ABI version {major}, and this Tilewright speaks {ABI[0]}",
                "bundle-abi",
                "make it anew with this version, or use the one that made it",
            )
        if host and host != platform.machine():
            raise self.file.error(
                f"it was made for hosts of {host}, and this one is {platform.machine()}",
                "bundle-host",
                f"make it on a machine of {platform.machine()}",
            )
        self.libraries: dict[str, Mapping[str, Any]] = {}
        for target, part in manifest["targets"].items():
            if target in all_archs():  # what a newer version knows is no business of this one
                self.libraries.update({kernel["digest"]: kernel for kernel in part["kernels"]})
        self._lock = threading.Lock()
        self._support_paths: dict[str, str] = {}
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._candidates: dict[tuple[str, str], dict[Any, tuple[KernelSpec, ...]]] = {}

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(self.file.manifest["targets"])

    def library(self, digest: str) -> bytes | None:
        """The library of a kernel; None where the bundle has none of the digest."""
        facts = self.libraries.get(digest)
        return None if facts is None else self.file.read(facts["file"])

    @cached_property
    def _support(self) -> dict[str, Mapping[str, Any]]:
        rows = [*self.file.manifest["selection"].values(), *self.file.manifest.get("support", [])]
        return {str(row.get("inputs", "")): row for row in rows}

    def support(self, inputs: str) -> str | None:
        """The path of a library without a spec, by what it was compiled from."""
        row = self._support.get(inputs)
        if row is None or row.get("arch", "") not in {arch.name for arch in runnable_host_archs()}:
            return None
        with self._lock:
            known = self._support_paths.get(inputs)
            if known is None:
                known = memory_library.kept(self.file.read(row["file"]), row["file"])
                self._support_paths[inputs] = known
        return known

    def candidates(self, op: str, target: str, signature: Any) -> tuple[KernelSpec, ...]:
        """The kernels of a signature to choose from; the fallback kernel is none of them."""
        key = (op, target)
        known = self._candidates.get(key)
        if known is None:
            known = self._candidates.setdefault(key, self._read_candidates(op, target))
        return known.get(signature, ())

    def _read_candidates(self, op: str, target: str) -> dict[Any, tuple[KernelSpec, ...]]:
        by_signature: dict[Any, list[KernelSpec]] = {}
        for spec in self.specs(target, op):
            if self.libraries[spec.digest].get("role") != FALLBACK:
                by_signature.setdefault(spec.signature, []).append(spec)
        return {signature: tuple(specs) for signature, specs in by_signature.items()}

    def _listed(self, name: str) -> list[dict[str, Any]]:
        """The kernels that a registry of the bundle lists, read once for all ops."""
        rows = self._rows.get(name)
        if rows is None:
            listed = self.file.json(name)
            rows = listed.get("kernels") if isinstance(listed, dict) else None
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise self.file.error(f"{name} lists no kernels", "bundle-content")
            self._rows[name] = rows
        return rows

    def specs(self, target: str, op: str = "") -> Iterator[KernelSpec]:
        """The kernels of a target that this version knows; others were made by another version, which is reported."""
        part = self.file.manifest["targets"].get(target)
        if part is None or target not in all_archs():
            return
        for row in self._listed(str(part["registry"])):
            if (op and row.get("op") != op) or row.get("library") is None:
                continue
            try:
                owner = ops.op(str(row.get("op")))
                spec = owner.spec_from_dict(row["spec"])
                why = "" if spec.digest == row.get("digest") and not owner.check(spec) else "it is not legal here"
            except (TilewrightError, KeyError, TypeError, ValueError) as error:
                why = str(error).partition("\n")[0]
            if why or spec.digest not in self.libraries:
                text = f"{row.get('name')!s:.200} of {self.path} is not used: {why or 'it has no library'}"
                events.emit(events.Warned("bundle-kernel", text))
                continue
            yield spec


_lock = threading.RLock()
_named: list[Bundle] = []  # the one named last comes first
_installed: list[Bundle] | None = None
_in_force: tuple[Bundle, ...] | None = None
generation = 0  # another number whenever other bundles are in force


def in_force() -> tuple[Bundle, ...]:
    """Those named by the program, the last one first, then those of installed packages by their names."""
    global _in_force
    bundles = _in_force
    if bundles is None:
        with _lock:
            bundles = _in_force = (*_named, *installed())
    return bundles


def installed() -> list[Bundle]:
    """Of installed packages; one that cannot be used is reported and left out, for nobody requested it here."""
    global _installed
    if _installed is None:
        bundles = []
        for name in plugins.names(GROUP):
            try:
                bundles.append(Bundle(installed_path(name)))
            except TilewrightError as error:
                events.emit(events.Warned("bundle", f"the installed bundle {name} is not used: {error.message}"))
        _installed = bundles
    return _installed


def installed_path(name: str) -> Path:
    """The path of an entry point's bundle: in the folder of the module it names, which is not executed."""
    module = plugins.module_of(GROUP, name)
    from importlib.util import find_spec

    located = find_spec(module) if module.isidentifier() else None
    places = [Path(place) for place in located.submodule_search_locations or ()] if located is not None else []
    files = sorted(file for place in places for file in place.glob(f"*{bundle_file.ENDING}"))
    if len(files) != 1:
        raise bundle_file.bundle_error(
            name, f"the package {module} holds {len(files)} of them", "bundle-package", "install it again"
        )
    return files[0]


def use(path: Path | str) -> Bundle:
    """Put a bundle in force, before all others."""
    global _in_force, generation
    bundle = Bundle(path)
    with _lock:
        _named.insert(0, bundle)
        _in_force, generation = None, generation + 1
    return bundle


def drop(bundle: Bundle) -> None:
    """Put a bundle out of force; its loaded kernels stay valid for who holds them."""
    global _in_force, generation
    with _lock:
        if bundle in _named:
            _named.remove(bundle)
        _in_force, generation = None, generation + 1


def forget_installed() -> None:
    """Look again at what is installed, for tests."""
    global _installed, _in_force, generation
    with _lock:
        _installed, _in_force, generation = None, None, generation + 1


# -- questions -------------------------------------------------------------------------------------------------------


def holds(digest: str) -> bool:
    """Whether a kernel is in a bundle."""
    return any(digest in bundle.libraries for bundle in in_force())


def library(spec: KernelSpec) -> tuple[bytes, str] | None:
    """The library of a kernel with the words for where it is from; None where no bundle has it."""
    for bundle in in_force():
        data = bundle.library(spec.digest)
        if data is not None:
            return data, f"{bundle.path}/{bundle.libraries[spec.digest]['file']}"
    return None


def candidates(op: str, target: str, signature: Any) -> tuple[KernelSpec, ...]:
    """The kernels to choose from; of the first bundle that has some."""
    bundles = in_force()
    if not bundles:
        return ()
    return next((specs for bundle in bundles if (specs := bundle.candidates(op, target, signature))), ())


def served_target(arch: str) -> str:
    """The best arch among one and those whose kernels it runs too that a bundle has; itself where none has any."""
    facts = all_archs().get(arch)
    if facts is None:
        return arch
    having = {target for bundle in in_force() for target in bundle.targets}
    return next((name for name in (arch, *facts.includes) if name in having), arch)


def support_inputs(source: Source, arch: str, extra: str = "", op: str = "") -> str:
    """What a library without a spec is known by: what it is compiled from, whatever compiles it and for which arch."""
    places = source_dirs(arch, (op,) if op else ())
    inputs = {**source_inputs(source, arch, places, extra=extra), "arch": ""}
    return sha256(canonical(inputs).encode()).hexdigest()


def support(source: Source, arch: str, extra: str = "", op: str = "") -> Path | None:
    """The path of a library that was compiled from this; None where no bundle has it."""
    if not in_force():
        return None
    inputs = support_inputs(source, arch, extra, op)
    return next((Path(path) for bundle in in_force() if (path := bundle.support(inputs)) is not None), None)
