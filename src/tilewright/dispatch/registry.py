"""The registry: the kernels at hand, and the choice among them.

Dispatch is total: every legal problem gets a kernel.  The tiers, best first:

    locked     the lock file in force pins it (`dispatch.locks`)
    measured   a record of this problem on this machine names the kernel
    model      a learned model that knows the device, the kernels and such problems predicts it the fastest
    heuristic  the backend's estimate orders the kernels that serve the problem; or a function of the user
               (`dispatch.heuristics`) or a rule of the op that the user named, which then precede the two above
    padded     operands are copied into zero-padded, aligned buffers: what is missing is edge code or alignment
    fallback   the kernel that serves everything of the signature; also where the op has no other on the target

Strict mode refuses the last two.  A registry without specs draws its candidates from the op and
compiles on first use; one with specs uses those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import events, lazy, ops, settings
from tilewright.arch import all_archs
from tilewright.backends.base import backend, demand_runnable, resolve_target, target_name
from tilewright.build import bundled
from tilewright.dispatch import bundle_parts, heuristics, inputs, learned, missing
from tilewright.dispatch import kernels as loaded
from tilewright.dispatch import records as measured
from tilewright.dispatch.inputs import op_of, setting_words, thread_number
from tilewright.dispatch.judged import Judges, Kind, Kinds
from tilewright.dispatch.records import records
from tilewright.dispatch.rejected import AnotherChoice, Rejected
from tilewright.dispatch.selection import Explanation, Known, Selection, StagedSelection
from tilewright.dispatch.states import State, States
from tilewright.errors import NoKernelError, ProblemError, RequestError
from tilewright.lru import LruCache
from tilewright.ops.base import KernelSpec, Op, SelectionRule
from tilewright.runtime import calls, fast_path, untracked
from tilewright.runtime.bindings import binding
from tilewright.runtime.host import thread_count, threads_under
from tilewright.runtime.loader import Kernel, load_library
from tilewright.runtime.plans import Plan, Plans, demand_fits
from tilewright.runtime.requests import Request, StageRequest, Where

if TYPE_CHECKING:
    from tilewright.dispatch import notes, refused, selection_rules, split_plans, tiers, trials
else:
    notes, refused, selection_rules, split_plans, tiers, trials = lazy.modules(
        "tilewright.dispatch", "notes", "refused", "selection_rules", "split_plans", "tiers", "trials"
    )

# Choices kept; a program whose sizes never repeat must not fill memory with them.
MOST_REMEMBERED = 4096
MOST_SETTINGS = 64  # that plans are kept of: settings made anew for each call must not pile up


class Registry:
    """The kernels available on one target, and selection among them.  Safe to share between threads."""

    def __init__(
        self,
        target: str | None = None,
        specs: Iterable[KernelSpec] = (),
        heuristic: SelectionRule | None = None,
    ) -> None:
        """`heuristic` names, of the kernels that serve a problem, the one to take, or None (`dispatch.heuristics`)."""
        self.arch = resolve_target(target)
        self._backend = backend(self.arch.backend)
        self.follows_bundles = False  # whether it chooses among the kernels of bundles where these have some
        self._runs = frozenset((self.arch.name, *self.arch.includes))
        self._lock = threading.RLock()
        self._specs: dict[str, KernelSpec] = {}
        self._by_signature: dict[Any, tuple[KernelSpec, ...]] = {}
        self._selections: LruCache[Any, Selection] = LruCache(lambda: MOST_REMEMBERED)
        self._judges = Judges(self._backend)
        self._rejected = Rejected()
        self._kinds = Kinds()
        self._legal: Any = None  # the problem that last broke no rule: a selection asks more than once
        self._states = States(self._forget)
        self._heuristic = heuristics.checked(heuristic)
        heuristics.watch(self)
        self._plans: LruCache[settings.Settings, Plans] = LruCache(lambda: MOST_SETTINGS)
        # The settings last seen, the epoch of the records and the plans under them, read and replaced as one.
        self._active: tuple[settings.Settings | None, int, Plans] = (None, -1, Plans())
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
        with self._lock:
            for spec in inputs.legal_specs(specs, self.arch.name, self._runs):
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

        collection = collect(op, self.arch.name, pool=pool, axes=axes)
        demand_some(collection)
        return self.add(collection.specs)

    def add_library(self, path: Path | str) -> Registry:
        """Register the kernels of a library that someone built (see `tilewright wrap`): they run as they are.

        Kernels of archs the target does not run are left out; a library with no others is an error.
        """
        kernels = load_library(path)
        mine = [kernel for kernel in kernels if kernel.spec.arch in self._runs]
        if not mine:
            archs = ", ".join(sorted({kernel.spec.arch for kernel in kernels}))
            raise RequestError(
                f"{path} holds kernels of {archs} only, and {self.arch.name} runs none of them",
                rule="spec-arch",
                value=archs,
                remedy=f"use a Registry of {archs}, or build kernels of {', '.join(sorted(self._runs))}",
            )
        loaded.adopt(mine)
        return self.add(kernel.spec for kernel in mine)

    def to_json(self) -> str:
        """The registered kernels with what selection knows of them, for C++ and for `from_json`."""
        from tilewright.dispatch import registry_json

        return registry_json.to_json(self.specs(), self.target)

    @classmethod
    def from_json(cls, text: str | bytes, folder: Path | str = ".") -> Registry:
        """A registry that `to_json` or `export` wrote; files it names are relative to `folder`."""
        from tilewright.dispatch import registry_json

        return registry_json.read(cls, text, Path(folder))

    def export(
        self, folder: Path | str, lock: Path | str | None = None, measured: bool = False, models: bool = True
    ) -> Path:
        """Build all kernels into a folder that C++ runs from; pins, measurements made here and models go along."""
        from tilewright.dispatch import registry_json

        return registry_json.export(self.specs(), self.target, folder, lock, measured, models)

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
        demand_runnable(self.arch.name)
        return loaded.kernels(self.specs())

    def kernel(self, spec: KernelSpec) -> Kernel:
        """One kernel, built now if the store does not have it."""
        demand_runnable(inputs.demanded_spec(spec).arch)
        return loaded.kernel(spec)

    def kernel_for(self, problem: Any) -> Kernel:
        """The kernel of a problem of one stage."""
        return self.kernel(self.select_stage(problem).spec)

    # -- choosing ----------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._selections = LruCache(lambda: MOST_REMEMBERED)
        self._kinds = Kinds()
        self._plans = LruCache(lambda: MOST_SETTINGS)
        self._active = (None, -1, Plans())
        fast_path.forget()

    def _candidates(self, op: Op, signature: Any) -> tuple[tuple[KernelSpec, ...], bool]:
        """The kernels to choose from, and whether they were registered (or are drawn from the op)."""
        if self._specs:
            return self._by_signature.get((op.name, signature), ()), True
        if self.follows_bundles and (brought := bundled.candidates(op.name, self.arch.name, signature)):
            return brought, True
        return tuple(op.candidates(signature, self.arch.name)), False

    def candidates(self, problem: Any, *, serving: bool = True) -> tuple[KernelSpec, ...]:
        """The kernels of a stage's signature that serve it; with `serving` off those that refuse its sizes too."""
        op = op_of(problem)
        self._demand_legal_problem(op, problem)
        signature = op.signature_of(problem)
        specs, registered = self._candidates(op, signature)
        if not serving:
            return specs
        judge = self._judges.judge_for(op, signature, specs, registered)
        return tuple(spec for spec, _ in self._judges.served(op, problem, thread_count(), specs, judge))

    def _demand_legal_problem(self, op: Op, problem: Any) -> None:
        if problem is not self._legal:
            inputs.demand_legal_problem(op, problem, self.arch.name)
            self._legal = problem

    def stages(self, problem: Any) -> tuple[Any, ...]:
        """The problems of the kernels a problem needs on this target, one after another."""
        return self._stages(problem, thread_count())

    def _stages(self, problem: Any, count: int) -> tuple[Any, ...]:
        self._demand_legal_problem(op_of(problem), problem)
        return split_plans.stages_of(op_of(problem), problem, self.target, count, self._serves())

    def _split_plan(self, problem: Any, count: int) -> tuple[tuple[Any, ...], str]:
        self._demand_legal_problem(op_of(problem), problem)
        return split_plans.chosen(op_of(problem), problem, self.target, count, self._serves())

    def _serves(self) -> split_plans.Serves | None:
        """Whether a registered kernel serves a stage; None where any may be compiled."""
        return (lambda stage: bool(self.candidates(stage))) if self._specs else None

    def select(
        self,
        problem: Any,
        *,
        threads: int | None = None,
        strict: bool | None = None,
        where: Where | None = None,
    ) -> Selection | StagedSelection:
        """The kernel for a problem; a StagedSelection where several kernels are needed (both have `stages`).

        `where` gives a reason to leave a kernel out, or an empty string.
        """
        count = thread_number(threads)
        stages = self._stages(problem, count)
        chosen = tuple(self.select_stage(stage, threads=count, strict=strict, where=where) for stage in stages)
        return chosen[0] if len(chosen) == 1 else StagedSelection(chosen)

    def select_stage(
        self, problem: Any, *, threads: int | None = None, strict: bool | None = None, where: Where | None = None
    ) -> Selection:
        """The kernel of one stage."""
        now = settings.current()
        state = self._states.state(now, threads or threads_under(now), now.strict if strict is None else strict)
        if where is not None:
            return self._selected(ops.op(problem.op), problem, state, where)
        key = (problem, state)
        known = self._selections.get(key)
        if known is None:
            known = self._selected(ops.op(problem.op), problem, state, None)
            if self._selections.keep(key, known) > untracked.MANY:
                untracked.alone(key)
        return known

    def _selected(self, op: Op, problem: Any, state: State, where: Where | None) -> Selection:
        """The same in a state of settings and files, worked out anew: plans are kept, with what was chosen."""
        now = state.settings
        chosen = self._rejected.noted(self._choose(op, problem, state, where))
        if now.rule:
            chosen = selection_rules.with_note(chosen, now.rule)
        if now.missing != "compile":
            others = self._others(problem, state.threads, state.strict, self._rejected.where(where))
            chosen = missing.served(problem, chosen, others, self)
        if events.active(now):
            events.emit(events.Selected(problem.describe(), chosen.name, chosen.tier, chosen.reason))
        return chosen

    def _locked(self, now: settings.Settings, threads: int) -> Any:
        """The lock file of the settings, else that of a bundle, which leaves what it does not pin to others."""
        path = now.lock or (bundle_parts.lock() if self.follows_bundles and bundled.in_force() else "")
        if not path:
            return None
        from tilewright.dispatch import locks

        return locks.Locked(path, now.frozen and bool(now.lock), lambda spec, each: self._estimate(spec, each, threads))

    def _choose(self, op: Op, problem: Any, state: State, where: Where | None) -> Selection:
        if problem is not self._legal:  # as `_demand_legal_problem`, with fewer calls where nothing is wrong
            if op.problem_violations(problem, self.arch.name):
                self._demand_legal_problem(op, problem)
            self._legal = problem
        signature, kinds = op.signature_of(problem), self._kinds
        known = kinds.by_id.get((id(state), id(signature))) if where is None else None
        kind = known[2] if known is not None else kinds.equal(state, signature) if where is None else None
        if kind is None:
            decided = self._kind(op, problem, signature, state, where)
            if isinstance(decided, Selection):
                return decided
            kind = kinds.keep(state, signature, decided)
        best = self._judges.chosen(kind.asking, op, problem, self.arch, state.threads)
        if best is None:
            candidates = self._candidates(op, signature)[0]
            return self._fall(op, problem, signature, state.threads, state.strict, candidates, None)
        return refused.as_fallback(op, problem, best, state.strict) if kind.alone else best

    def _kind(self, op: Op, problem: Any, signature: Any, state: State, where: Where | None) -> Kind | Selection:
        """What decides about problems of a signature; or the choice, where it is not of a kind that many have."""
        now, threads = state.settings, state.threads
        lock = self._locked(now, threads)
        locked: Selection | None = None if lock is None else lock.selection(op, problem, self.arch.name, where)
        if locked is not None:
            return locked
        where = self._rejected.where(where)  # what is pinned is not replaced
        candidates, registered = self._candidates(op, signature)
        judge = self._judges.judge_for(op, signature, candidates, registered)
        if where is not None:
            judge, candidates = None, tuple(spec for spec in candidates if not where(spec))
        heuristic = self._heuristic or heuristics.current()
        if heuristic is not None or now.rule:
            served = self._judges.served(op, problem, threads, candidates, judge)
            by_user = heuristics.selection(heuristic, problem, served)
            by_user = by_user or selection_rules.selection(op, problem, served, now.rule)
            if by_user is not None:
                return by_user
        if state.measured:
            chosen, _ = tiers.by_record(op, problem, self.target, threads, candidates, registered, where)
            if chosen is not None:
                return chosen
        alone = len(candidates) == 1 and not self._specs
        if judge is not None and lock is None and heuristic is None and not now.rule and not state.measured:
            return Kind(self._judges.asking(judge, self.arch, state), alone)
        if judge is not None:
            asking = self._judges.asking(judge, self.arch, state)
            best = self._judges.chosen(asking, op, problem, self.arch, threads)
        else:
            best = self._judges.in_python(op, problem, threads, candidates, registered, self.arch)
        if best is not None and alone:
            best = refused.as_fallback(op, problem, best, state.strict)
        return best or self._fall(op, problem, signature, threads, state.strict, candidates, where)

    def times(self, problem: Any, threads: int, where: Where | None = None) -> list[tuple[KernelSpec, float]]:
        """All kernels that serve a stage as it is, with the times that selection compares them by."""
        op = ops.op(problem.op)
        candidates, registered = self._candidates(op, op.signature_of(problem))
        judge = self._judges.judge_for(op, op.signature_of(problem), candidates, registered)
        if where is not None:
            judge, candidates = None, tuple(spec for spec in candidates if not where(spec))
        return self._judges.times(judge, op, problem, threads, candidates, self.arch)

    def _others(self, problem: Any, threads: int, strict: bool, where: Where | None) -> missing.Others:
        def lesser(among: Callable[[KernelSpec], bool]) -> Selection | None:
            op = ops.op(problem.op)
            signature = op.signature_of(problem)
            some = [spec for spec in self._candidates(op, signature)[0] if not (where and where(spec)) and among(spec)]
            with suppress(NoKernelError):
                lesser_choice = self._fall(op, problem, signature, threads, strict, tuple(some), where)
                return lesser_choice if among(lesser_choice.spec) else None
            return None

        return missing.Others(lambda: self.times(problem, threads, where), lesser)

    def drop_plans_beside(self, digest: str) -> None:
        """A kernel is built: plans that had to do without it go."""

        def stale(plan: Plan) -> bool:
            return any(chosen.wanted is not None and chosen.wanted.digest == digest for chosen in plan.selections)

        with self._lock:
            kept: LruCache[settings.Settings, Plans] = LruCache(lambda: MOST_SETTINGS)
            for values, plans in self._plans.items():
                kept.put(values, plans.without(stale))
            self._plans, self._active = kept, (None, -1, Plans())
        fast_path.forget()

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
            raise refused.refusal(op, problem, candidates, refused.STRICT, strict)
        copied = tiers.in_copies(op, problem, candidates, threads, self._estimate)
        if copied is not None:
            return copied
        fallback = op.fallback_spec(signature, self.arch.name)
        if not op.check(fallback) and (where is None or not where(fallback)):
            if not op.supports(fallback, problem):
                reason = "no registered kernel serves it" if self._specs else "no candidate serves it"
                return Selection(fallback, "fallback", reason, self._estimate(fallback, problem, threads))
            copied = tiers.in_copies(op, problem, (fallback,), threads, self._estimate)
            if copied is not None:
                return copied
        raise refused.refusal(op, problem, candidates, "there is no fallback kernel for this signature", strict)

    def _estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return self._judges.estimate(spec, problem, threads)

    def explain(
        self, problem: Any, *, threads: int | None = None, strict: bool | None = None, where: Where | None = None
    ) -> Explanation:
        """Every candidate with its reasons, and what decided; nothing is compiled."""
        count = thread_number(threads)
        strict = inputs.strictness(settings.current().strict if strict is None else strict)
        stages, plan = self._split_plan(problem, count)
        parts = tuple(self._explain_stage(stage, count, strict, where) for stage in stages)
        words = (*op_of(problem).words(problem), *setting_words(settings.current()))
        if len(parts) == 1:
            return replace(parts[0], problem=problem, arguments=words, split_plan=plan)
        chosen = [part.selection for part in parts if isinstance(part.selection, Selection)]
        whole = StagedSelection(tuple(chosen)) if len(chosen) == len(parts) else None
        decided = f"{whole.tier}: {whole.reason}" if whole is not None else "refused: a stage has no kernel"
        each = f"{len(parts)} stages, each chosen apart"
        return Explanation(
            problem, self.target, count, strict, each, (), whole, decided, words, (), parts, split_plan=plan
        )

    def _explain_stage(self, problem: Any, count: int, strict: bool, where: Where | None) -> Explanation:
        now, op, where = settings.current(), ops.op(problem.op), self._rejected.where(where)
        self._demand_legal_problem(op, problem)
        signature = op.signature_of(problem)
        candidates, registered = self._candidates(op, signature)
        chosen: Selection | None = None
        try:
            chosen = self.select_stage(problem, threads=count, strict=strict, where=where)
            decided = f"{chosen.tier}: {chosen.reason}"
        except NoKernelError as error:
            # The problem is shown above; a lock file's refusal is shown whole.
            text = error.message.partition(":")[2].strip() if error.rule == "no-kernel" else error.message
            decided = f"refused: {text.splitlines()[0]}"
        record = records().lookup(op.name, op.measured_as(problem), self.arch.name, count) if now.measure else None
        times = {timing.digest: timing.seconds for timing in record.timings} if record is not None else {}
        unused = [] if now.measure else ["measurements are ignored: the setting `measure` is off"]
        fitting = candidates if where is None else tuple(spec for spec in candidates if not where(spec))
        if now.measure and not records().empty:
            unused = tiers.by_record(op, problem, self.target, count, fitting, registered, where)[1]
        served = self._judges.served(op, problem, count, fitting, None)
        verdict = self._judges.verdict(op, problem, count, served, self.arch)
        lock = self._locked(now, count)
        pinned = lock.digests(op, problem, self.arch.name) if lock is not None else frozenset[str]()
        known = Known(times, learned.predicted(served, verdict), pinned)
        order = "that of digests" if registered else "the op's"
        by = notes.Comparison(op, problem, chosen, known, order, lambda spec: self._estimate(spec, problem, count))
        listed = [notes.note(by, spec, where) for spec in candidates]
        if chosen is not None and all(spec.digest != chosen.spec.digest for spec in candidates):
            listed.append(notes.note(by, chosen.spec, None))
        source = notes.source(len(candidates), len(self._specs), registered)
        return Explanation(
            problem,
            self.arch.name,
            count,
            strict,
            source,
            tuple(listed),
            chosen,
            decided,
            tuple(op.words(problem)),
            tuple(unused),
            model="" if chosen and chosen.tier in ("locked", "measured", "model") else learned.silence(verdict),
            models=learned.remarks(op.name, self.arch.name),
        )

    # -- running -----------------------------------------------------------------------------------

    def plans(self) -> Plans:
        """What is remembered of calls, valid for the settings in force."""
        now = settings.current()
        seen, epoch, plans = self._active
        if seen is now and epoch == measured.epoch:
            return plans
        self._states.follow_records(now)
        with self._lock:
            plans = self._plans.get(now) or self._plans.put(now, Plans())
            self._active = (now, measured.epoch, plans)
        return plans

    def plan(self, request: Request, spec: KernelSpec | None = None) -> Plan:
        """Choose, build and load a kernel for each stage; `spec` is the one for stages of its signature.

        Without a selection library a few kernels are tried, and their own checks decide (`dispatch.trials`).
        """
        tried: trials.Trials | None = None
        while True:
            try:
                return self._plan(request, spec, tried)
            except AnotherChoice:
                self._forget()
            except (ProblemError, NoKernelError) as error:
                if tried is None and trials.refused_by_kernel(error) and spec is None:
                    tried = self._trials(request)
                if tried is None:
                    raise
                tried.after(error)

    def _trials(self, request: Request) -> trials.Trials | None:
        """None where a selection library knows the kernels of every stage."""
        op, problems = ops.op(request.op), [stage.problem for stage in request.stages]
        pools = [(signature, *self._candidates(op, signature)) for signature in map(op.signature_of, problems)]
        if all(self._judges.judge_for(op, *pool) is not None for pool in pools):
            return None
        return trials.Trials(op, self.arch.name, problems, [spec for _, specs, _ in pools for spec in specs])

    def _plan(self, request: Request, spec: KernelSpec | None, tried: trials.Trials | None) -> Plan:
        op = ops.op(request.op)
        if request.others is not None:
            request = split_plans.request_of(op, request, self.arch.name, self._serves())
        now = settings.current()
        state = self._states.state(now, threads_under(now), now.strict)
        stages: list[StageRequest] = []
        chosen: list[Selection] = []
        for stage in request.stages:
            problem = stage.problem
            where = stage.where if tried is None else tried.where(stage.where)
            if spec is not None and spec.signature == op.signature_of(problem):
                selection = self._as_requested(op, spec, stage)
            else:
                mine = op if problem.op == op.name else ops.op(problem.op)
                selection = self._selected(mine, problem, state, where)
            chosen.append(selection)
            stages.append(stage if selection.padded is None else binding(request.op).copies(stage, selection.padded))
        if spec is not None and all(selection.spec != spec for selection in chosen):
            raise refused.other_signature(spec, [op.signature_of(stage.problem) for stage in request.stages])
        for selection in chosen:
            demand_fits(selection.spec.arch, request.place, now)  # before anything is built for another machine
        if list(map(id, stages)) != list(map(id, request.stages)):  # some are in copies
            request = replace(request, stages=tuple(stages))
        kernels = self._rejected.load(chosen, final=spec is not None or state.strict)
        return Plan(request, kernels, chosen, state.threads, fits=True)

    def _as_requested(self, op: Op, spec: KernelSpec | None, stage: StageRequest) -> Selection:
        """A kernel someone named, in copies where it needs them."""
        assert spec is not None
        problem, seconds = stage.problem, self._estimate(spec, stage.problem, thread_count())
        refusals = op.supports(spec, problem)
        if not refusals:
            return Selection(spec, "heuristic", "requested by name", seconds)
        larger = op.padded(spec, problem)
        if larger is None:
            raise refused.refusal(op, problem, (spec,), "the requested kernel does not serve it")
        return Selection(spec, "padded", f"requested by name; run as {larger.describe()}", seconds, larger)

    def run(self, op: str, *operands: Any, **keywords: Any) -> Any:
        """Run an op on arrays, given as its function of the API takes them."""
        return calls.run(self, op, *operands, **keywords)

    def measure(self, problem: Any, candidates: Iterable[KernelSpec] | None = None, **options: Any) -> Any:
        """Check and time kernels for a problem and remember the winner; see `dispatch.measure.measure`.

        The record; a tuple of records where the problem has several stages, which are measured apart.
        """
        from tilewright.dispatch.measure import measure

        return measure(self, problem, candidates, **options)


_defaults: dict[str, Registry] = {}
_defaults_lock = threading.Lock()


def default_registry(target: str | None = None) -> Registry:
    """The registry behind the functions of the API: one a target, with the kernels of bundles and those of the ops.

    A target that is no arch by name (none, or a backend) is the best one that a bundle in force has kernels for.
    """
    name = target_name(target)
    registry = _defaults.get(name)
    if registry is None:
        new = Registry(name if name in all_archs() else bundled.served_target(resolve_target(name).name))
        new.follows_bundles = True
        with _defaults_lock:
            return _defaults.setdefault(name, new)
    return registry


def forget_defaults() -> None:
    """Other bundles are in force: default registries choose anew, and mean what they now mean."""
    with _defaults_lock:
        registries = list(_defaults.values())
        _defaults.clear()
    for registry in registries:  # calls may hold some of them
        registry._states.forget()
        registry._forget()
