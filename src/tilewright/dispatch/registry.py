"""The registry: the kernels at hand, and the choice among them.

Dispatch is total: every legal problem gets a kernel.  The tiers, best first:

    measured  a record of this problem on this machine names the kernel
    rule      the backend's estimate orders the kernels that serve the problem
    padded    operands are copied into zero-padded, aligned buffers: what is missing is edge code or alignment
    generic   the floor kernel of the signature

Strict mode refuses the last two.  A registry without specs draws its candidates from the op and
compiles on first use; one with specs uses those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any

from tilewright import arch as arch_facts
from tilewright import events, ops, settings
from tilewright.arch import Arch
from tilewright.backends.base import backend, backend_names
from tilewright.dispatch import kernels as loaded
from tilewright.dispatch import records as measured
from tilewright.dispatch.records import Record, records
from tilewright.dispatch.selection import Candidate, Explanation, Selection
from tilewright.errors import DeviceError, NoKernelError, ProblemError, RequestError
from tilewright.ops.base import KernelSpec, Op, demand_legal
from tilewright.runtime.bindings import binding
from tilewright.runtime.host import thread_count
from tilewright.runtime.loader import Kernel, load_library

Where = Callable[[KernelSpec], str]

# Choices kept; a program whose sizes never repeat must not fill memory with them.
MOST_REMEMBERED = 4096


def resolve_target(target: str | None) -> Arch:
    """An arch by name; a backend's name means the best arch of it this machine runs; None the best host arch."""
    name = target or settings.current().target
    if not name:
        return arch_facts.best_host_arch()
    if name in backend_names() and name not in arch_facts.all_archs():
        here = backend(name).available_archs()
        if not here:
            raise DeviceError(
                f"no arch of {name!r} runs on this machine: {backend(name).why_unavailable()}",
                rule="target-unavailable",
                value=name,
                remedy="name an arch to build for it without running, or see `tilewright doctor`",
            )
        return arch_facts.arch(here[0])
    return arch_facts.arch(name)


class Registry:
    """Kernels by signature; threads may share one."""

    def __init__(self, target: str | None = None, specs: Iterable[KernelSpec] = ()) -> None:
        self.arch = resolve_target(target)
        self._backend = backend(self.arch.backend)
        self._runs = frozenset((self.arch.name, *self.arch.includes))
        self._lock = threading.RLock()
        self._specs: dict[str, KernelSpec] = {}
        self._by_signature: dict[Any, tuple[KernelSpec, ...]] = {}
        self._selections: dict[Any, Selection] = {}
        self._plans: dict[settings.Settings, dict[Any, Any]] = {}
        # The settings last seen, the epoch of the records and the plans under them, read and replaced as one.
        self._active: tuple[settings.Settings | None, int, dict[Any, Any]] = (None, -1, {})
        self._seen: tuple[Any, int] = (None, -1)  # the records in force when choices were made, and their epoch
        self.add(specs)

    # -- what is in it -----------------------------------------------------------------------------

    @property
    def target(self) -> str:
        return self.arch.name

    @property
    def kind(self) -> str:
        """The kind of device the target is: the name of its backend."""
        return self.arch.backend

    def add(self, specs: KernelSpec | Iterable[KernelSpec]) -> Registry:
        """Register specs; an illegal one, or one of an arch the target cannot run, is an error."""
        given = [specs] if isinstance(specs, KernelSpec) else list(specs)
        for spec in given:
            demand_legal(ops.op(spec.op), spec)
            if spec.arch not in self._runs:
                raise RequestError(
                    f"{spec.name} is for {spec.arch}, which {self.arch.name} does not run",
                    rule="spec-arch",
                    value=spec.arch,
                    remedy=f"use Registry({spec.arch!r}), or specs of {', '.join(sorted(self._runs))}",
                )
        with self._lock:
            for spec in given:
                if spec.digest in self._specs:
                    continue
                self._specs[spec.digest] = spec
                key = (spec.op, spec.signature)
                self._by_signature[key] = (*self._by_signature.get(key, ()), spec)
            self._forget()
        return self

    def add_pool(self, op: str, pool: str = "default", **axes: Any) -> Registry:
        """Register every legal spec a pool proposes for the target; none at all is an error that says why."""
        from tilewright.codegen import collect, demand_some

        found = collect(op, self.arch.name, pool=pool, axes=axes)
        demand_some(found)
        return self.add(found.specs)

    def add_library(self, path: Path | str) -> Registry:
        """Register the kernels of a library that someone built (see `tilewright wrap`): they run as they are.

        Kernels of archs the target does not run are left out; a library with no others is an error.
        """
        found = load_library(path)
        mine = [one for one in found if one.spec.arch in self._runs]
        if not mine:
            archs = ", ".join(sorted({one.spec.arch for one in found}))
            raise RequestError(
                f"{path} holds kernels of {archs} only, and {self.arch.name} runs none of them",
                rule="spec-arch",
                value=archs,
                remedy=f"use a Registry of {archs}, or build kernels of {', '.join(sorted(self._runs))}",
            )
        loaded.adopt(mine)
        return self.add(one.spec for one in mine)

    def specs(self) -> tuple[KernelSpec, ...]:
        return tuple(self._specs.values())

    def __len__(self) -> int:
        return len(self._specs)

    def build(
        self, max_workers: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> dict[str, Any]:
        """Build every registered spec in parallel; artifacts by digest.  `progress(done, total)` hears of each."""
        specs = self.specs()
        done: set[str] = set()

        def heard(event: events.Event) -> None:
            if isinstance(event, events.KernelBuilt) and progress is not None:
                done.add(event.digest)
                progress(len(done), len(specs))

        return dict(loaded.build(specs, max_workers=max_workers, on_event=heard))

    def kernels(self) -> list[Kernel]:
        """Every registered kernel, built and loaded."""
        self.demand_runnable()
        return loaded.kernels(self.specs())

    def kernel(self, spec: KernelSpec) -> Kernel:
        """One kernel, built now if the store does not have it."""
        self.demand_runnable(spec.arch)
        return loaded.kernel(spec)

    def demand_runnable(self, arch: str | None = None) -> None:
        """Raise where this machine cannot run kernels of an arch (the target, if not given)."""
        name = arch or self.arch.name
        here = self._backend.available_archs()
        if name not in here:
            why = self._backend.why_unavailable() or f"it runs {', '.join(here)}"
            raise DeviceError(
                f"kernels of {name} do not run on this machine ({why})",
                rule="arch-not-runnable",
                value=name,
                remedy="they can be generated and built here, and run on a machine that has the arch"
                + (f"; to run here use target {here[0]!r}" if here else ""),
            )

    # -- choosing ----------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._selections = {}
        self._plans = {}
        self._active = (None, -1, {})

    def _candidates(self, op: Op, signature: Any) -> tuple[tuple[KernelSpec, ...], bool]:
        """The kernels to choose from, and whether they were registered (or are drawn from the op)."""
        if self._specs:
            return self._by_signature.get((op.name, signature), ()), True
        return tuple(op.candidates(signature, self.arch.name)), False

    def candidates(self, problem: Any) -> tuple[KernelSpec, ...]:
        """The kernels of the problem's signature, whether or not they serve its sizes."""
        op = ops.op(problem.op)
        self._demand_legal_problem(op, problem)
        return self._candidates(op, op.signature_of(problem))[0]

    def _demand_legal_problem(self, op: Op, problem: Any) -> None:
        broken = op.problem_violations(problem, self.arch.name)
        if broken:
            raise ProblemError(
                f"{problem.describe()}: " + "; ".join(one.message for one in broken),
                rule=broken[0].rule,
                value=problem,
                remedy=broken[0].remedy,
            )

    def select(
        self,
        problem: Any,
        *,
        threads: int | None = None,
        strict: bool | None = None,
        where: Where | None = None,
    ) -> Selection:
        """The kernel for a problem.  `where` gives a reason to leave a kernel out, or an empty string."""
        now = settings.current()
        count = threads or thread_count()
        strict = now.strict if strict is None else strict
        self._follow_records(now)
        key = (problem, count, strict, now.measure, now.frozen)
        if where is None:
            known = self._selections.get(key)
            if known is not None:
                return known
        chosen = self._choose(problem, count, strict, now.measure, where)
        if where is None:
            if len(self._selections) >= MOST_REMEMBERED:
                self._selections.clear()
            self._selections[key] = chosen
        if events.active():
            events.emit(events.Selected(problem.describe(), chosen.name, chosen.tier, chosen.reason))
        return chosen

    def _follow_records(self, now: settings.Settings) -> None:
        """A new measurement makes remembered choices stale."""
        if not now.measure:
            return
        table = records()
        table.refresh()
        seen = (table, measured.epoch)
        if seen != self._seen:
            with self._lock:
                if self._seen[0] is not None:
                    self._forget()
                self._seen = seen

    def _choose(self, problem: Any, threads: int, strict: bool, measure: bool, where: Where | None) -> Selection:
        op = ops.op(problem.op)
        self._demand_legal_problem(op, problem)
        signature = op.signature_of(problem)
        candidates, registered = self._candidates(op, signature)
        if where is not None:
            candidates = tuple(spec for spec in candidates if not where(spec))
        if measure and not records().empty:
            chosen, _ = self._measured(op, problem, threads, candidates, registered, where)
            if chosen is not None:
                return chosen
        estimate = self._backend.estimate
        best, best_seconds, count = None, 0.0, 0
        for spec in candidates:
            if op.supports(spec, problem):
                continue
            count += 1
            seconds = estimate(spec, problem, threads)
            if best is None or seconds < best_seconds:
                best, best_seconds = spec, seconds
        if best is not None:
            reason = f"lowest estimate of {count} kernel(s) that serve the problem" if count > 1 else "the only kernel"
            return Selection(best, "rule", reason, best_seconds)
        return self._fall(op, problem, signature, threads, strict, candidates, where)

    def _measured(
        self,
        op: Op,
        problem: Any,
        threads: int,
        candidates: tuple[KernelSpec, ...],
        registered: bool,
        where: Where | None,
    ) -> tuple[Selection | None, list[str]]:
        """The kernel a record names, and why each record of the problem that does not decide says nothing."""
        asked = op.measured_as(problem)
        unused = records().unused(op.name, asked, self.arch.name, threads)
        record = records().lookup(op.name, asked, self.arch.name, threads)
        if record is None:
            return None, unused
        name = record.winner.name
        spec = self._spec_of(op, record, candidates, registered)
        if spec is None:
            why = f"the winner of its measurement, {name}, " + (
                "was not registered" if registered else "was written by another version, or is not legal any more"
            )
            return None, [why, *unused]
        reasons = [str(one) for one in op.supports(spec, problem)]
        if where is not None and where(spec):
            reasons.append(where(spec))
        if reasons:
            return None, [f"the winner of its measurement, {name}, refuses: {'; '.join(reasons)}", *unused]
        reason = f"fastest of {len(record.timings)} measured on this machine"
        return Selection(spec, "measured", reason, record.winner.seconds), unused

    @staticmethod
    def _spec_of(op: Op, record: Record, candidates: tuple[KernelSpec, ...], registered: bool) -> KernelSpec | None:
        for spec in candidates:
            if spec.digest == record.choice:
                return spec
        if registered:
            return None  # the winner is not among the kernels this registry was given
        try:
            spec = op.spec_from_dict(dict(record.winner.spec))
        except RequestError:
            return None  # written before a field changed
        return spec if spec.digest == record.choice and not op.check(spec) else None

    def _fall(
        self,
        op: Op,
        problem: Any,
        signature: Any,
        threads: int,
        strict: bool,
        candidates: tuple[KernelSpec, ...],
        where: Where | None,
    ) -> Selection:
        """The last two tiers, or in strict mode the error that lists why."""
        if strict:
            raise self._refusal(op, problem, candidates, "strict mode refuses the padded and generic tiers")
        copied = self._copied(op, problem, candidates, threads)
        if copied is not None:
            return copied
        floor = op.generic_spec(signature, self.arch.name)
        if not op.check(floor) and (where is None or not where(floor)):
            if not op.supports(floor, problem):
                reason = "no registered kernel serves it" if self._specs else "no candidate serves it"
                return Selection(floor, "generic", reason, self._backend.estimate(floor, problem, threads))
            copied = self._copied(op, problem, (floor,), threads)
            if copied is not None:
                return copied
        raise self._refusal(op, problem, candidates, "there is no generic kernel for this signature")

    def _copied(self, op: Op, problem: Any, specs: tuple[KernelSpec, ...], threads: int) -> Selection | None:
        """The fastest kernel that serves the problem in padded copies."""
        padded = [(spec, larger) for spec in specs if (larger := op.padded(spec, problem)) is not None]
        if not padded:
            return None
        timed = [(self._backend.estimate(spec, larger, threads), spec, larger) for spec, larger in padded]
        seconds, spec, larger = min(timed, key=lambda one: one[0])
        return Selection(spec, "padded", f"no kernel takes it as it is; run as {larger.describe()}", seconds, larger)

    def _refusal(self, op: Op, problem: Any, candidates: tuple[KernelSpec, ...], why: str) -> NoKernelError:
        reasons = [f"{spec.name}: {'; '.join(str(one) for one in op.supports(spec, problem))}" for spec in candidates]
        listing = "".join(f"\n  {one}" for one in reasons[:8])
        if len(reasons) > 8:
            listing += f"\n  and {len(reasons) - 8} more"
        return NoKernelError(
            f"no kernel for {problem.describe()}: {why}; "
            + (f"{len(reasons)} kernel(s) of its signature refuse:{listing}" if reasons else "none has its signature"),
            rule="no-kernel",
            value=tuple(reasons),
            remedy="register a kernel with edge code for it (Registry.add_pool), or allow fallbacks (strict=False)",
        )

    def explain(
        self, problem: Any, *, threads: int | None = None, strict: bool | None = None, where: Where | None = None
    ) -> Explanation:
        """Every candidate with its reasons, and what decided; nothing is compiled."""
        now = settings.current()
        count = threads or thread_count()
        strict = now.strict if strict is None else strict
        op = ops.op(problem.op)
        self._demand_legal_problem(op, problem)
        signature = op.signature_of(problem)
        candidates, registered = self._candidates(op, signature)
        chosen: Selection | None = None
        try:
            chosen = self.select(problem, threads=count, strict=strict, where=where)
            decided = f"{chosen.tier}: {chosen.reason}"
        except NoKernelError as error:
            decided = f"refused: {error.message.partition(':')[2].strip().splitlines()[0]}"
        record = records().lookup(op.name, op.measured_as(problem), self.arch.name, count) if now.measure else None
        times = {one.digest: one.seconds for one in record.timings} if record is not None else {}
        unused = [] if now.measure else ["measurements are not looked at: the setting `measure` is off"]
        if now.measure and not records().empty:
            fitting = candidates if where is None else tuple(spec for spec in candidates if not where(spec))
            unused = self._measured(op, problem, count, fitting, registered, where)[1]
        notes = [self._note(op, spec, problem, count, chosen, times, where) for spec in candidates]
        if chosen is not None and all(spec.digest != chosen.spec.digest for spec in candidates):
            notes.append(self._note(op, chosen.spec, problem, count, chosen, times, None))
        if registered:
            source = f"{len(candidates)} of {len(self._specs)} registered kernels have the signature"
        else:
            source = f"{len(candidates)} default candidates of the op, compiled on first use"
        return Explanation(
            problem,
            self.arch.name,
            count,
            strict,
            source,
            tuple(notes),
            chosen,
            decided,
            tuple(op.words(problem)),
            tuple(unused),
        )

    def _note(
        self,
        op: Op,
        spec: KernelSpec,
        problem: Any,
        threads: int,
        chosen: Selection | None,
        times: dict[str, float],
        where: Where | None,
    ) -> Candidate:
        reasons = [str(one) for one in op.supports(spec, problem)]
        if where is not None and where(spec):
            reasons.append(where(spec))
        seconds = None if reasons else self._backend.estimate(spec, problem, threads)
        measured = times.get(spec.digest)
        verdict = "refused" if reasons else "slower"
        if chosen is not None and spec.digest == chosen.spec.digest:
            verdict = "chosen"
        elif seconds is not None and chosen is not None:
            if chosen.tier == "measured" and measured is None:
                reasons.append("never measured on this problem; the record names another")
            elif chosen.tier == "measured" and measured is not None:
                reasons.append(f"measured {measured / chosen.seconds:.2f} times the winner's time")
            elif seconds == chosen.seconds:
                reasons.append("the same estimate; the one registered first wins")
            else:
                reasons.append(f"estimated {seconds / max(chosen.seconds, 1e-12):.2f} times the winner's time")
        return Candidate(spec.name, spec.digest, verdict, tuple(reasons), seconds, measured, loaded.is_loaded(spec))

    # -- running -----------------------------------------------------------------------------------

    def plans(self) -> MutableMapping[Any, Any]:
        """Plans by call key, valid for the settings in force."""
        now = settings.current()
        seen, epoch, plans = self._active
        if seen is now and epoch == measured.epoch:
            return plans
        self._follow_records(now)
        with self._lock:
            if len(self._plans) > 64:  # settings made anew for each call must not pile up
                self._plans.clear()
            plans = self._plans.setdefault(now, {})
            self._active = (now, measured.epoch, plans)
        return plans

    def plan(self, op: str, request: Any, where: Where | None = None) -> Any:
        """Choose, build and prepare a kernel for a request of the op's binding."""
        chosen = self.select(request.problem, where=where)
        self.demand_runnable(chosen.spec.arch)
        prepared = binding(op).prepare(loaded.kernel(chosen.spec), request, thread_count(), chosen.padded)
        prepared.selection = chosen
        return prepared

    def run(self, op: str, *operands: Any, **keywords: Any) -> Any:
        """Run an op on arrays: `registry.run("gemm", a, b)`."""
        return binding(op).run(self, *operands, **keywords)

    def measure(self, problem: Any, candidates: Iterable[KernelSpec] | None = None, **options: Any) -> Record:
        """Check and time kernels for a problem and remember the winner; see `dispatch.measure.measure`."""
        from tilewright.dispatch.measure import measure

        return measure(self, problem, candidates, **options)


_defaults: dict[str, Registry] = {}
_defaults_lock = threading.Lock()


def default_registry(target: str | None = None) -> Registry:
    """The registry behind `tilewright.gemm`: one a target, with the op's default candidates."""
    name = target or settings.current().target
    found = _defaults.get(name)
    if found is None:
        made = Registry(name)
        with _defaults_lock:
            found = _defaults.setdefault(name, made)
    return found
