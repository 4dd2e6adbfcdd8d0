"""Specs in, verified libraries out: ask the store, compile what is missing, publish each as it is ready.

A kernel is compiled by one process at a time (others wait and take the result); a kill loses what
was in flight and nothing else; one kernel that fails does not keep the others from being built.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright import events, settings
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Rendering, Source, Toolchain, WithCxxLibrary, backend
from tilewright.build import bundled, upkeep, without_compiler
from tilewright.build.diagnose import Outcome, compile_failure, says_why, stops_all
from tilewright.build.headers import header_digests
from tilewright.build.jobs import JobLimit, job_limit
from tilewright.build.key import KeyInputs, key_inputs
from tilewright.build.locks import FileLock
from tilewright.build.ninja_run import Compile, run_many, run_one
from tilewright.build.prepare import prepare
from tilewright.build.store import Entry, Store, store_error
from tilewright.errors import CompileError, InspectionError, NoKernelError, StoreError, TilewrightError, ToolchainError
from tilewright.ops import op
from tilewright.ops.base import KernelSpec, demand_legal

# How long to trust that another process is at work on a key before building it a second time.
PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.02

OnEvent = Callable[[events.Event], None]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A built library in the store, verified when it was handed out."""

    key: str  # empty of one that a bundle brought
    path: Path  # of the library
    manifest: Mapping[str, Any]
    spec: KernelSpec | None = None  # None for a support library


@dataclass(frozen=True, slots=True)
class _Request:
    """One library that is wanted: what to compile, how, and its key."""

    name: str
    source: Source
    arch: str
    toolchain: Toolchain
    inputs: KeyInputs
    key: str
    spec: KernelSpec | None
    op: str = ""  # whose kernel it is, and headers it includes; empty for a support library

    @property
    def digest(self) -> str:
        return self.key if self.spec is None else self.spec.digest

    def artifact(self, entry: Entry) -> Artifact:
        return Artifact(entry.key, entry.library, entry.manifest, self.spec)


class Builder:
    """Builds into one store; without arguments, the store of the settings in force."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = Store() if store is None else store

    # -- what callers use ------------------------------------------------------------------------

    def key_of(self, spec: KernelSpec) -> KeyInputs:
        """The key of a spec on this machine, with the inputs it is made of."""
        return self._request(spec).inputs

    def find(self, spec: KernelSpec) -> Artifact | None:
        """The built kernel if the store has it; never compiles."""
        try:
            request = self._request(spec)
        except ToolchainError as error:
            return self._without_compiler(error, backend(arch_by_name(spec.arch).backend).render(spec), spec)
        entry = self.store.lookup(request.key)
        return None if entry is None else request.artifact(entry)

    def build_one(self, spec: KernelSpec, *, on_event: OnEvent | None = None) -> Artifact:
        return self.build_many([spec], max_workers=1, on_event=on_event)[spec.digest]

    def build_many(
        self, specs: Iterable[KernelSpec], *, max_workers: int | None = None, on_event: OnEvent | None = None
    ) -> dict[str, Artifact]:
        """Build every spec; the answer is by `spec.digest`.  All that compile are built before an error is raised."""
        unique = {spec.digest: spec for spec in specs}
        requests: dict[str, _Request] = {}
        done: dict[str, Artifact] = {}
        for digest, spec in unique.items():
            try:
                requests[digest] = self._request(spec)
            except ToolchainError as error:
                done[digest] = self._demand_without_compiler(error, spec, on_event)
        built = self._build(list(requests.values()), max_workers, on_event) if requests else {}
        return {**done, **{digest: built[request.key] for digest, request in requests.items()}}

    def build_source(
        self, source: Source, arch: str, *, extra_key: str = "", op: str = "", on_event: OnEvent | None = None
    ) -> Artifact:
        """Build a support library (no spec) through the same store; `extra_key` tells apart what the text does not.

        `op` names the op whose headers it includes, beyond those of the backend.
        """
        bundled_path = bundled.support(source, arch, extra_key, op)
        if bundled_path is not None:
            return Artifact("", bundled_path, {})
        try:
            toolchain = backend(arch_by_name(arch).backend).toolchain()
            if source.cxx_library and isinstance(toolchain, WithCxxLibrary):
                toolchain = toolchain.with_cxx_library()
        except ToolchainError as error:
            artifact = self._without_compiler(error, source, arch=arch, extra=extra_key, op=op)
            if artifact is None:
                raise _frozen([Path(source.file_name).stem], arch) from error
            return artifact
        inputs = key_inputs(source, arch, toolchain, extra=extra_key, op=op)
        request = _Request(Path(source.file_name).stem, source, arch, toolchain, inputs, inputs.key, None, op)
        return self._build([request], 1, on_event)[request.key]

    # -- how -------------------------------------------------------------------------------------

    def _without_compiler(
        self, error: ToolchainError, source: Source, spec: KernelSpec | None = None, *, arch: str = "",
        extra: str = "", op: str = "",
    ) -> Artifact | None:  # fmt: skip
        """What a process finds where no compiler is: an entry of the same source, whoever compiled it.

        Where there is none, a process that is not frozen lacks a compiler, and that is the error.  So is one that was
        named and is not there, or is broken.
        """
        frozen, none_here = settings.current().frozen, error.rule.startswith("no-") and not error.value
        if not frozen and not none_here:
            raise error
        entry = without_compiler.stored(self.store, source, spec.arch if spec is not None else arch, spec, extra, op)
        if entry is None and not frozen:
            raise _not_bundled(error, spec) from None
        return None if entry is None else Artifact(entry.key, entry.library, entry.manifest, spec)

    def _demand_without_compiler(self, error: ToolchainError, spec: KernelSpec, on_event: OnEvent | None) -> Artifact:
        artifact = self._without_compiler(error, backend(arch_by_name(spec.arch).backend).render(spec), spec)
        if artifact is None:
            raise _frozen([spec.name], spec.digest) from error
        _Run(self.store, None, on_event).tell(events.KernelBuilt(spec.name, spec.digest, 0.0, True))
        return artifact

    def _request(self, spec: KernelSpec) -> _Request:
        owner = backend(arch_by_name(spec.arch).backend)
        toolchain = owner.toolchain()
        source = toolchain.source(spec) if isinstance(toolchain, Rendering) else owner.render(spec)
        inputs = key_inputs(source, spec.arch, toolchain, spec=spec)
        return _Request(spec.name, source, spec.arch, toolchain, inputs, inputs.key, spec, spec.op)

    def _build(
        self, requests: Sequence[_Request], max_workers: int | None, on_event: OnEvent | None
    ) -> dict[str, Artifact]:
        run = _Run(self.store, max_workers, on_event)
        missing = run.take_stored(requests)
        if missing:
            if settings.current().frozen:
                raise _frozen([request.name for request in missing], missing[0].key)
            for request in missing:
                if request.spec is not None:
                    demand_legal(op(request.spec.op), request.spec)
            run.build(missing)
        return run.done


def _bundles() -> str:
    return ", ".join(str(bundle.path) for bundle in bundled.in_force())


def _not_bundled(error: ToolchainError, spec: KernelSpec | None) -> ToolchainError:
    """The lack of a compiler, as it is to be told where bundles should have made up for it."""
    bundles = _bundles()
    if spec is None or not bundles:
        return error
    return ToolchainError(
        f"{error.message}; {spec.name} has to be compiled, as it is not in the bundle {bundles}",
        rule=error.rule,
        value=error.value,
        remedy=f"record the problem and make the bundle with it (`tilewright record`, `tilewright bundle build`), or "
        f"{error.remedy}",
    )


def _frozen(missing: Sequence[str], value: str) -> NoKernelError:
    names = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    waits = settings.current().missing == "compile"
    serve = ", or let the best kernel that is built serve (missing='best_built')" if waits else ""
    return NoKernelError(
        f"{len(missing)} kernel(s) are not built, and the setting frozen forbids compiling: {names}",
        rule="frozen",
        value=value,
        remedy="build them beforehand without TILEWRIGHT_FROZEN (`tw.prepare`, `tilewright prepare`)"
        + serve
        + (f", or make the bundle {bundles} with this problem too" if (bundles := _bundles()) else "")
        + "; `tilewright cache why NAME` tells what differs",
    )


class _Run:
    """One call of a builder: what is done, what failed, and who must hear of it."""

    def __init__(self, store: Store, max_workers: int | None, on_event: OnEvent | None) -> None:
        self.store = store
        self.max_workers = max_workers
        self.on_event = on_event
        self.done: dict[str, Artifact] = {}
        self.failures: dict[str, TilewrightError] = {}
        self.damaged: set[str] = set()
        self.added_bytes = 0

    def tell(self, event: events.Event) -> None:
        events.emit(event)
        if self.on_event is not None:
            self.on_event(event)

    def take_stored(self, requests: Sequence[_Request]) -> list[_Request]:
        """Note what the store has; the rest is the answer.  A damaged entry counts as missing."""
        missing = {request.key: request for request in requests if not self._take(request)}
        limit = self._limit(list(missing.values()))
        if events.active() or self.on_event is not None:
            total = len({request.key for request in requests})
            self.tell(events.BuildPlanned(total, len(self.done), limit.jobs, limit.reason))
            for request in requests:
                if request.key in self.done:
                    self.tell(events.KernelBuilt(request.name, request.digest, 0.0, True))
        return list(missing.values())

    def _take(self, request: _Request) -> bool:
        try:
            entry = self.store.lookup(request.key)
        except StoreError as error:
            if error.rule != "store-corrupt" or settings.current().frozen:
                raise
            self.damaged.add(request.key)
            return False
        if entry is not None:
            self.done[request.key] = request.artifact(entry)
        return entry is not None

    def _limit(self, missing: Sequence[_Request]) -> JobLimit:
        if not missing:
            return JobLimit(0, "nothing to build")
        memory = max(request.toolchain.memory_per_job(request.spec) for request in missing)
        return job_limit(len(missing), memory, setting=settings.current().jobs, max_workers=self.max_workers)

    def build(self, missing: Sequence[_Request]) -> None:
        """Build what nobody else is building, wait for the rest, and raise the first failure at the end."""
        self.store.prepare()
        waiting = {request.key: request for request in missing}
        patience_ends = time.monotonic() + PATIENCE_SECONDS
        while waiting:
            with ExitStack() as held:
                mine: dict[str, FileLock] = {}
                for key in list(waiting):
                    lock = self.store.lock(key)
                    if not self._acquire(lock) and time.monotonic() < patience_ends:
                        continue
                    held.callback(lock.release)
                    mine[key] = lock
                ours = [waiting.pop(key) for key in mine]
                # Whoever held the lock before us may have published.
                todo = [our for our in ours if not self._taken_late(our)]
                if todo:
                    self._compile(todo, mine)
                    patience_ends = time.monotonic() + PATIENCE_SECONDS
            waiting = {key: request for key, request in waiting.items() if not self._taken_late(request)}
            if waiting and not ours:
                time.sleep(_POLL_SECONDS)
        # What is built stays built where trimming fails (someone else's entries): `cache gc` tells why.
        with suppress(StoreError):
            upkeep.after_build(self.store, settings.current().cache_max_bytes, self.done.keys(), self.added_bytes)
        if self.failures:
            raise self._first_failure(missing)

    def _acquire(self, lock: FileLock) -> bool:
        try:
            return lock.acquire()
        except OSError as error:
            raise store_error(error, self.store.root, "locking a kernel") from error

    def _taken_late(self, request: _Request) -> bool:
        if not self._take(request):
            return False
        self.tell(events.KernelBuilt(request.name, request.digest, 0.0, True))
        return True

    def _compile(self, todo: Sequence[_Request], locks: Mapping[str, FileLock]) -> None:
        for request in todo:
            if request.key in self.damaged:
                self.store.discard(request.key)
        with self.store.workspace() as work:
            prepare([(request.toolchain, request.arch, request.op) for request in todo], self.store, work)
            try:
                plan = [(request, self._plan(request, work, index)) for index, request in enumerate(todo)]
            except OSError as error:
                raise store_error(error, self.store.root, "writing sources") from error
            # Closed here and now: an error must stop the compilers before their folder goes.
            with closing(self._outcomes(plan, work)) as outcomes:
                for request, compiled, outcome in outcomes:
                    if len(todo) > 1 and outcome.code and not says_why(outcome):
                        # Its log is empty or cut, as on a full disk: asked alone, through a pipe, it tells why.
                        outcome = run_one(compiled, work, request.toolchain.environment(work))
                    if outcome.code == 0 and compiled.output.is_file():
                        self._publish_if_current(request, compiled, outcome, work)
                    else:
                        self._fail(request, compiled, outcome)
                    locks[request.key].release()

    def _plan(self, request: _Request, work: Path, index: int) -> Compile:
        folder = work / f"k{index}"
        folder.mkdir()
        source = folder / request.source.file_name
        source.write_text(request.source.text, encoding="utf-8")
        output = folder / f"kernel{request.toolchain.library_suffix}"
        return Compile(tuple(request.toolchain.command(source, output, request.arch, request.op)), source, output)

    def _outcomes(
        self, plan: Sequence[tuple[_Request, Compile]], work: Path
    ) -> Generator[tuple[_Request, Compile, Outcome], None, None]:
        environment = dict[str, str]()
        for request, _ in plan:
            environment.update(request.toolchain.environment(work))
        try:
            if len(plan) == 1:
                yield (*plan[0], run_one(plan[0][1], work, environment))
                return
            jobs = self._limit([request for request, _ in plan]).jobs
            with closing(run_many([compile_ for _, compile_ in plan], work, environment, jobs)) as outcomes:
                for index, outcome in outcomes:
                    yield (*plan[index], outcome)
        except OSError as error:
            raise store_error(error, self.store.root, "running the compilers") from error

    def _publish_if_current(self, request: _Request, compiled: Compile, outcome: Outcome, work: Path) -> None:
        now = header_digests(request.source.text, request.toolchain.include_dirs(request.op))
        before = request.inputs.values["headers"]
        if now == before:
            self._publish_as_promised(request, compiled, outcome, work)
            return
        # The compiler may have read either text: publishing would put a wrong library under this key.
        changed = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
        error = CompileError(
            f"{', '.join(changed)} changed while {request.name} was compiled, so the result was thrown away",
            rule="headers-changed",
            value=request.name,
            remedy="build again",
        )
        self._refuse(request, error)

    def _refuse(self, request: _Request, error: TilewrightError) -> None:
        self.failures[request.key] = error
        self.tell(events.BuildFailed(request.name, error.message, ""))

    def _publish_as_promised(self, request: _Request, compiled: Compile, outcome: Outcome, work: Path) -> None:
        from tilewright.build.promises import demand_kept  # which loads what reads code: calls do without it

        try:
            promises = demand_kept(request.spec, compiled.output)
        except InspectionError as error:
            self._refuse(request, error)
        else:
            self._publish(request, compiled, outcome, work, promises)

    def _publish(self, request: _Request, compiled: Compile, outcome: Outcome, work: Path, promises: str) -> None:
        texts = {request.source.file_name: request.source.text}
        if outcome.log.strip():
            texts["compiler.log"] = outcome.log.replace(str(work), ".")  # its warnings
        identity = request.toolchain.identity
        facts = {
            "name": request.name,
            "spec": None if request.spec is None else request.spec.to_dict(),
            "inputs": request.inputs.values,
            "compiler": identity.version,
            "seconds": round(outcome.seconds, 4),
            "promises": promises,
            "built_at": round(time.time(), 3),
        }
        entry = self.store.publish(request.key, work, compiled.output, texts, facts)
        shutil.rmtree(compiled.output.parent, ignore_errors=True)  # a long build needs its disk space once
        self.added_bytes += sum(int(file["bytes"]) for file in entry.manifest["files"].values())
        self.done[request.key] = request.artifact(entry)
        self.tell(events.KernelBuilt(request.name, request.digest, outcome.seconds, False))

    def _fail(self, request: _Request, compiled: Compile, outcome: Outcome) -> None:
        # The work folder vanishes; the reproduction uses a copy of the source beside the log.
        source = self.store.save_log(request.key, Path(request.source.file_name).suffix, request.source.text)
        again = shlex.join(
            request.toolchain.command(
                source or compiled.source, self.store.logs / f"{request.key}.so", request.arch, request.op
            )
        )
        log = self.store.save_log(request.key, ".log", f"$ {again}\n{outcome.log}")
        error = compile_failure(
            request.name, compiled.argv, outcome, log_path=log, reproduce=again, store=self.store.root
        )
        self.failures[request.key] = error
        self.tell(events.BuildFailed(request.name, error.message, str(log or "")))

    def _first_failure(self, order: Sequence[_Request]) -> TilewrightError:
        # In the order they were asked for: which one ended first is chance.  A full disk or a compiler that is gone
        # comes before what kernels did themselves: all of them may have failed by it.
        failed = [self.failures[request.key] for request in order if request.key in self.failures]
        first = next((failure for failure in failed if stops_all(failure)), failed[0])
        if len(self.failures) > 1:
            first.message += f" (and {len(self.failures) - 1} more kernel(s) failed; {len(self.done)} are built)"
        return first


def build_many(
    specs: Iterable[KernelSpec], *, max_workers: int | None = None, on_event: OnEvent | None = None
) -> dict[str, Artifact]:
    """Build specs into the store of the settings in force; see `Builder.build_many`."""
    return Builder().build_many(specs, max_workers=max_workers, on_event=on_event)


def build_one(spec: KernelSpec, *, on_event: OnEvent | None = None) -> Artifact:
    return Builder().build_one(spec, on_event=on_event)


def build_source(source: Source, arch: str, *, extra_key: str = "", op: str = "") -> Artifact:
    return Builder().build_source(source, arch, extra_key=extra_key, op=op)


def find(spec: KernelSpec) -> Artifact | None:
    """The built kernel if the store has it; never compiles."""
    return Builder().find(spec)
