"""What the store lacks, compiled: one process at a time a kernel, each published as it is ready.

Loaded when something has to be compiled: a process whose kernels are stored does without all of this.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from tilewright import events, settings
from tilewright.build import upkeep
from tilewright.build.diagnose import Outcome, compile_failure, says_why, stops_all
from tilewright.build.headers import header_digests
from tilewright.build.locks import FileLock
from tilewright.build.ninja_run import Compile, run_many, run_one
from tilewright.build.prepare import gains, prepare
from tilewright.build.requests import Request, Run
from tilewright.build.store import store_error
from tilewright.errors import CompileError, InspectionError, StoreError, TilewrightError, counted

# How long to trust that another process is at work on a key before building it a second time.
PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.02


class CompileRun:
    """What one call of a builder compiles, and what of that failed."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.store = run.store
        self.failures: dict[str, TilewrightError] = {}
        self.added_bytes = 0

    def build(self, missing: Sequence[Request]) -> None:
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
        # What is built stays built where trimming fails (someone else's entries): `cache gc` says why.
        with suppress(StoreError):
            upkeep.after_build(self.store, settings.current().cache_max_bytes, self.run.done.keys(), self.added_bytes)
        if self.failures:
            raise self._first_failure(missing)

    def _acquire(self, lock: FileLock) -> bool:
        try:
            return lock.acquire()
        except OSError as error:
            raise store_error(error, self.store.root, "locking a kernel") from error

    def _taken_late(self, request: Request) -> bool:
        if not self.run.take(request):
            return False
        self.run.emit(events.KernelBuilt(request.name, request.digest, 0.0, True))
        return True

    def _compile(self, todo: Sequence[Request], locks: Mapping[str, FileLock]) -> None:
        for request in todo:
            if request.key in self.run.damaged:
                self.store.discard(request.key)
        with self.store.workspace() as work:
            gaining = [request for request in todo if gains(request.toolchain, request.source)]
            prepare([(request.toolchain, request.arch, request.op) for request in gaining], self.store, work)
            try:
                plan = [(request, self._plan(request, work, index)) for index, request in enumerate(todo)]
            except OSError as error:
                raise store_error(error, self.store.root, "writing sources") from error
            # Closed here and now: an error must stop the compilers before their folder goes.
            with closing(self._outcomes(plan, work)) as outcomes:
                for request, compiled, outcome in outcomes:
                    if len(todo) > 1 and outcome.code and not says_why(outcome):
                        # Its log is empty or cut, as on a full disk: run alone, through a pipe, it says why.
                        outcome = run_one(compiled, work, request.toolchain.environment(work))
                    if outcome.code == 0 and compiled.output.is_file():
                        self._publish_if_current(request, compiled, outcome, work)
                    else:
                        self._fail(request, compiled, outcome)
                    locks[request.key].release()

    def _plan(self, request: Request, work: Path, index: int) -> Compile:
        folder = work / f"k{index}"
        folder.mkdir()
        source = folder / request.source.file_name
        source.write_text(request.source.text, encoding="utf-8")
        output = folder / f"kernel{request.toolchain.library_suffix}"
        return Compile(tuple(request.toolchain.command(source, output, request.arch, request.op)), source, output)

    def _outcomes(
        self, plan: Sequence[tuple[Request, Compile]], work: Path
    ) -> Generator[tuple[Request, Compile, Outcome], None, None]:
        environment = dict[str, str]()
        for request, _ in plan:
            environment.update(request.toolchain.environment(work))
        try:
            if len(plan) == 1:
                yield (*plan[0], run_one(plan[0][1], work, environment))
                return
            jobs, _ = self.run.limit([request for request, _ in plan])
            with closing(run_many([compile_ for _, compile_ in plan], work, environment, jobs)) as outcomes:
                for index, outcome in outcomes:
                    yield (*plan[index], outcome)
        except OSError as error:
            raise store_error(error, self.store.root, "running the compilers") from error

    def _publish_if_current(self, request: Request, compiled: Compile, outcome: Outcome, work: Path) -> None:
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

    def _refuse(self, request: Request, error: TilewrightError) -> None:
        self.failures[request.key] = error
        self.run.emit(events.BuildFailed(request.name, error.message, ""))

    def _publish_as_promised(self, request: Request, compiled: Compile, outcome: Outcome, work: Path) -> None:
        from tilewright.build.promises import demand_kept, read_code  # which load what reads code: calls do without

        try:
            read: dict[str, Any] = {"promises": demand_kept(request.spec, compiled.output)}
            read |= read_code(request.spec, compiled.output)
        except InspectionError as error:
            error.digest = request.digest
            self._refuse(request, error)
            return
        self._publish(request, compiled, outcome, work, read)

    def _publish(
        self, request: Request, compiled: Compile, outcome: Outcome, work: Path, read: Mapping[str, Any]
    ) -> None:
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
            **read,
            "built_at": round(time.time(), 3),
        }
        entry = self.store.publish(request.key, work, compiled.output, texts, facts)
        shutil.rmtree(compiled.output.parent, ignore_errors=True)  # a long build needs its disk space once
        self.added_bytes += sum(int(file["bytes"]) for file in entry.manifest["files"].values())
        self.run.done[request.key] = request.artifact(entry)
        self.run.emit(events.KernelBuilt(request.name, request.digest, outcome.seconds, False))

    def _fail(self, request: Request, compiled: Compile, outcome: Outcome) -> None:
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
        self.run.emit(events.BuildFailed(request.name, error.message, str(log or "")))

    def _first_failure(self, order: Sequence[Request]) -> TilewrightError:
        # In the order they were asked for: which one ended first is chance.  A full disk or a compiler that is gone
        # comes before what kernels did themselves: all of them may have failed by it.
        failed = [self.failures[request.key] for request in order if request.key in self.failures]
        first = next((failure for failure in failed if stops_all(failure)), failed[0])
        if len(self.failures) > 1:
            others = counted(len(self.failures) - 1, "more kernel")
            first.message += f" (and {others} failed; {len(self.run.done)} are built)"
        return first
