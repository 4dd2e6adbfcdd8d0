"""What a machine of a cluster does for a sweep elsewhere: describes itself, builds kernels, measures them.

Nothing here knows how machines talk to each other: arguments and answers are plain data.  Kernels travel as parcels,
each the entry of a kernel store with its key, and are put into the store of the machine that needs them.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tilewright
from tilewright import events, ops, settings
from tilewright.arch import arch as arch_by_name
from tilewright.arch import best_host_arch
from tilewright.arch.host import host_facts
from tilewright.backends.base import backend
from tilewright.build import Builder, Store, upkeep
from tilewright.build.key import canonical
from tilewright.dispatch.measure import versions_on
from tilewright.dispatch.records import threads_of
from tilewright.errors import StoreError, TilewrightError, ToolchainError
from tilewright.ops.base import KernelSpec
from tilewright.runtime.devices import HOST, device_of, identified
from tilewright.runtime.timing import Method
from tilewright.tune.build_queue import build_here
from tilewright.tune.device_worker import Built, DeviceWorker, DeviceWorkerLost

Parcel = dict[str, Any]  # key, library, sha256, texts, facts


def tree() -> str:
    """What this installation's sources are known by: two of the same version may still differ."""
    root = Path(tilewright.__file__).parent
    text = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".h", ".cpp", ".jinja", ".json") and path.is_file():
            text.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return text.hexdigest()[:16]


def kin(target: str) -> tuple[str, str]:
    """What machines share whose kernels of a target are the same: system, CPU level, compiler, flags.

    Empty, with the reason, where kernels cannot be built at all.
    """
    owner = arch_by_name(target).backend
    try:
        toolchain = backend(owner).toolchain()
        compiler, flags = toolchain.identity, list(toolchain.flags(target))
    except ToolchainError as error:
        return "", error.message
    level = best_host_arch().name if owner == HOST.kind else ""
    parts = [system(), level, compiler.kind, compiler.version, compiler.digest, flags]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:16], ""


def system() -> str:
    """What a library of machine code needs to be loaded at all."""
    return " ".join((platform.machine(), *platform.libc_ver()))


def facts(target: str, threads: int) -> dict[str, Any]:
    """What this machine is to a sweep of a target; `threads` 0 means all its cores."""
    owner = arch_by_name(target).backend
    mine, why = kin(target)
    described: dict[str, Any] = {
        "kin": mine, "why_no_compiler": why, "system": system(), "tree": tree(), "cores": host_facts().cores,
        "why_no_device": "", "versions": versions_on(target),
    }  # fmt: skip
    if owner == HOST.kind:
        described |= _device(target, threads)
    return described


def _device(target: str, threads: int) -> dict[str, Any]:
    try:
        device = device_of(target)
    except TilewrightError as error:
        return {"why_no_device": error.message}
    most = min(host_facts().cores, settings.MAX_THREADS)
    return {
        "machine": identified(device.identity), "cache_bytes": device.cache_bytes, "device": device.name,
        "threads": threads_of(target, threads or most), "why_no_device": "",
    }  # fmt: skip


# -- building ----------------------------------------------------------------------------------------------


def build(op: str, specs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Kernels, one compiler at a time: parcels of those that are built, reasons of the others, and what was heard."""
    heard: list[Any] = []
    known = [ops.op(op).spec_from_dict(dict(spec)) for spec in specs]
    done = build_here(known, 1, lambda event: heard.append(event) if _counts(event) else None)
    store = Store()
    return {
        "built": {digest: parcel(store, built.library.parent.name) for digest, built in done.built.items()},
        "failed": dict(done.failed),
        "heard": heard,
    }


def _counts(event: events.Event) -> bool:
    return isinstance(event, (events.KernelBuilt, events.BuildFailed))


def parcel(store: Store, key: str) -> Parcel:
    """An entry of a store as plain data."""
    entry = store.verify(key)
    manifest = dict(entry.manifest)
    files, name = manifest.pop("files"), manifest.pop("library")
    texts = {file: (entry.folder / file).read_text(encoding="utf-8") for file in files if file != name}
    manifest.pop("key")
    library = entry.library.read_bytes()
    return {
        "key": key, "name": name, "library": library, "sha256": files[name]["sha256"], "texts": texts,
        "facts": manifest,
    }  # fmt: skip


def unpack(store: Store, packed: Parcel) -> Path:
    """The library of a parcel, in this machine's store; StoreError where it is not what was sent."""
    key = str(packed["key"])
    with suppress(StoreError):  # a damaged entry is replaced
        entry = store.lookup(key)
        if entry is not None:
            return entry.library
    inputs = packed["facts"].get("inputs")
    sound = hashlib.sha256(packed["library"]).hexdigest() == packed["sha256"]
    if not sound or hashlib.sha256(canonical(inputs).encode()).hexdigest() != key:
        raise StoreError(
            f"the kernel {key[:16]} arrived damaged",
            rule="parcel",
            value=key,
            remedy="give the command again; if it stays so, look at the network between the machines",
        )
    with store.workspace() as work:
        library = work / Path(packed["name"]).name
        library.write_bytes(packed["library"])
        entry = store.publish(key, work, library, packed["texts"], packed["facts"])
    with suppress(StoreError):
        upkeep.after_build(store, settings.current().cache_max_bytes, [key], len(packed["library"]))
    return entry.library


# -- measuring ---------------------------------------------------------------------------------------------


class HostedWorker:
    """A worker on this machine for a sweep elsewhere."""

    def __init__(self, target: str, threads: int, limit: float, patience: float) -> None:
        self._target, self._limit, self._patience, self._threads = target, limit, patience, threads
        self._kin, _ = kin(target)
        self._worker: DeviceWorker | None = None
        self._store = Store()
        self._libraries: dict[str, Path] = {}  # by digest

    def facts(self) -> dict[str, Any]:
        """What it measures on; it is looked at once more, since a device is this worker's alone from now on."""
        described = {**facts(self._target, self._threads), **_device(self._target, self._threads)}
        if not described["why_no_device"]:
            on_host = arch_by_name(self._target).backend == HOST.kind
            self._worker = DeviceWorker(
                self._target, described["threads"] or 1, limit=self._limit,
                patience=self._patience if on_host else None,
                fingerprint=described["machine"]["fingerprint"],
            )  # fmt: skip
        return described

    def measure(
        self, op: str, problem: Mapping[str, Any], method: Mapping[str, Any], kernels: Sequence[Mapping[str, Any]],
        *parcels: Parcel,
    ) -> dict[str, Any]:  # fmt: skip
        """Outcomes of kernels, each a spec with the kin and key it was built by; those that came are in parcels.

        `missing` names those this machine has not: the same request with their parcels is answered.
        """
        assert self._worker is not None, "facts are asked for first"
        mine = ops.op(op)
        arrived = {parcel["key"]: parcel for parcel in parcels}
        outcomes: list[dict[str, Any]] = []
        built: list[Built] = []
        missing: list[str] = []
        for kernel in kernels:
            spec = mine.spec_from_dict(kernel["spec"])
            try:
                library = self._library(spec, kernel, arrived)
            except StoreError as error:  # this machine's store, not the kernel
                return {"outcomes": outcomes, "lost": error.message}
            except TilewrightError as error:
                outcomes.append({"digest": spec.digest, "status": "build-failed", "reason": error.message})
                continue
            if library is None:
                missing.append(spec.digest)
            else:
                built.append(Built(spec, library))
        if missing:
            return {"missing": missing}
        try:
            for outcome in self._worker.measure(mine.problem_from_dict(problem), built, Method(**method)):
                outcomes.append(asdict(outcome))
        except DeviceWorkerLost as lost:
            return {"outcomes": outcomes, "lost": str(lost)}
        spent = dict(self._worker.spent)
        self._worker.spent.clear()
        return {"outcomes": outcomes, "spent": spent}

    def _library(self, spec: KernelSpec, sent: Mapping[str, Any], arrived: Mapping[str, Parcel]) -> Path | None:
        """Where the kernel is on this machine; None where it must be sent."""
        known = self._libraries.get(spec.digest)
        if known is not None and known.exists():
            return known
        library: Path | None
        if self._kin and sent["kin"] != self._kin:
            library = Builder().build_one(spec).path  # this machine's own: others' compilers are not like its
        elif sent["key"] in arrived:
            library = unpack(self._store, arrived[sent["key"]])
        else:
            entry = self._store.lookup(sent["key"])
            library = None if entry is None else entry.library
        if library is not None:
            self._libraries[spec.digest] = library
        return library

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
