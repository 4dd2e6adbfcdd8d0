"""A plan: kernels, one set of shapes and strides; a run only fills in addresses and scalars.

A plan is whole when it is made and never changes, so any number of threads may run it at once.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilewright import settings
from tilewright.backends.base import demand_runnable
from tilewright.dataclass import NamedTuple
from tilewright.errors import ProblemError
from tilewright.lru import LruCache
from tilewright.runtime import abi, host, staging
from tilewright.runtime.bindings import binding
from tilewright.runtime.devices import HOST, Device, Place, device
from tilewright.runtime.loader import Kernel
from tilewright.runtime.requests import BETWEEN, Request, Result, StageRequest

if TYPE_CHECKING:
    from tilewright.runtime.fast_path import Prepared
    from tilewright.runtime.recording import Counter

# Plans kept for a set of settings; a program whose sizes never repeat must not fill memory with them.
MOST_PLANS = 8192
LOOKED_AT = 128  # of them, to find some that can go


class Stage(NamedTuple):
    """One kernel of a plan."""

    kernel: Kernel
    request: StageRequest
    scratch: int  # bytes of workspace the kernel wants, its zeros included

    def filled(self, pointers: Sequence[int], scalars: Sequence[float]) -> Any:
        """The arguments of a launch."""
        args = copy_args(self.request.args)
        for pointer, address in zip(self.request.pointers, pointers, strict=True):
            _put_address(args, pointer.offset, address & _WORD)  # what has no elements may begin anywhere
        for scalar in self.request.scalars:
            _put_number(args, scalar.offset, scalars[scalar.index])
        return args


_WORD = (1 << 64) - 1
_put_address, _put_number = struct.Struct("=Q").pack_into, struct.Struct("=d").pack_into


def copy_args(args: ctypes.Structure) -> Any:
    return type(args).from_buffer_copy(args)


def _prepared(kernel: Kernel, request: StageRequest, whole: Request, threads: int) -> Stage:
    """The kernel's own check and the workspace it wants.

    Both may look at whether pointers are there and how they are aligned, never at what they point to.
    """
    args = type(request.args).from_buffer_copy(request.args)
    plain = whole.place is HOST or not whole.spans
    copied = staging.copied_pointers(request) if request.copies else ()
    for index, pointer in enumerate(request.pointers):
        shown = plain or pointer.slot == BETWEEN or index in copied
        _put_address(args, pointer.offset, host.ALIGNMENT if shown else whole.spans[pointer.slot].probe)
    for scalar in request.scalars:
        _put_number(args, scalar.offset, scalar.probe)
    return Stage(kernel, request, kernel.demanded_workspace(args, threads))


# The settings last seen, and the archs whose kernels were found to run at a place under them: a machine keeps its
# devices, and settings may take some away.  Read and replaced as one.
_fits: tuple[settings.Settings | None, set[tuple[str, Place]]] = (None, set())


def demand_fits(arch: str, place: Place, now: settings.Settings | None = None) -> None:
    """Raise where this machine does not run kernels of an arch, or not at a place; `now` are the settings in force, if
    at hand."""
    global _fits
    seen, known = _fits
    if now is None:
        now = settings.current()
    if seen is now and (arch, place) in known:
        return
    demand_runnable(arch)
    device(place).demand_arch(arch)
    if seen is not now:
        known = set()
        _fits = (now, known)
    known.add((arch, place))


class Plan:
    """Kernels one after another on one stream, with a workspace they share.

    `selections` is what was said when each kernel was chosen; empty where nobody chose.
    """

    request: Request
    place: Place
    results: tuple[Result, ...]
    threads: int
    selections: tuple[Any, ...]
    stages: tuple[Stage, ...]
    team: int  # the stream of kernels of the host
    clear_bytes: int
    between_at: int
    scratch_bytes: int
    _copies_at: int
    _device: Device

    __slots__ = ("_copies_at", "_device", "between_at", "clear_bytes", "place", "request", "results", "scratch_bytes",
                 "selections", "stages", "team", "threads")  # fmt: skip

    def __init__(
        self,
        request: Request,
        kernels: Sequence[Kernel],
        selections: Sequence[Any],
        threads: int,
        fits: bool = False,
    ) -> None:
        """`fits`: the caller has asked whether this machine runs these kernels at the request's place."""
        place = request.place
        there = device(place)
        stages, own, clear, copies = [], 0, 0, 0
        for kernel, stage in zip(kernels, request.stages, strict=True):
            if not fits:
                demand_fits(kernel.spec.arch, place)
            if stage.copies:
                stage, nbytes = staging.lay_out(stage)
                copies = max(copies, nbytes)
            prepared = _prepared(kernel, stage, request, threads)
            stages.append(prepared)
            own, clear = max(own, prepared.scratch - kernel.clear_bytes), max(clear, kernel.clear_bytes)
        # The workspace: what kernels use, one after another; results between them; copies of operands.
        between = request.between_bytes
        between_at = staging.up(own) if own else 0
        copies_at = between_at + (staging.up(between) if between else 0)
        hold = object.__setattr__
        hold(self, "request", request)
        hold(self, "place", place)
        hold(self, "results", request.results)
        hold(self, "threads", threads)
        hold(self, "selections", tuple(selections))
        hold(self, "stages", tuple(stages))
        hold(self, "team", host.team(threads) if place is HOST else 0)
        hold(self, "clear_bytes", clear)
        hold(self, "between_at", between_at)
        hold(self, "scratch_bytes", copies_at + copies if copies or between else own)
        hold(self, "_copies_at", copies_at)
        hold(self, "_device", there)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a plan never changes, and {name} was to be set: any number of threads may run it")

    @property
    def in_copies(self) -> bool:
        return any(stage.request.copies for stage in self.stages)

    def run(self, addresses: Sequence[int], scalars: Sequence[float]) -> None:
        """Launch everything; `addresses` has one a slot, 0 where there is none."""
        with self._device.scratch(self.scratch_bytes, self.clear_bytes) as (base, stream):
            for stage in self.stages:
                self._launch(stage, addresses, scalars, base, self.team if self.place is HOST else stream)

    def _launch(self, stage: Stage, addresses: Sequence[int], scalars: Sequence[float], base: int, stream: int) -> None:
        there, request = self._device, stage.request
        workspace = base - stage.kernel.clear_bytes if stage.scratch else None
        copies = staging.copied_pointers(request)
        for turn in _turns(request.loop):
            sources = [
                staging.source_of(pointer, addresses, base + self.between_at, turn) for pointer in request.pointers
            ]
            pointers = list(sources)
            for index, copy in copies.items():
                pointers[index] = base + self._copies_at + copy.at
                if copy.read:
                    staging.carry_in(there, copy, pointers[index], sources[index])
            args = stage.filled(pointers, scalars)
            status = stage.kernel.launch(ctypes.addressof(args), workspace, stream)
            if status:
                raise self._error(stage, status, args)
            for index, copy in copies.items():
                if copy.written:
                    staging.carry_out(there, copy, pointers[index], sources[index])

    def failed(self, stage: int, status: int, addresses: Sequence[int], scalars: Sequence[float]) -> Exception:
        """The error of a launch that C made without us."""
        failed_stage = self.stages[stage]
        turn = [0] * len(failed_stage.request.loop)
        pointers = [staging.source_of(pointer, addresses, 0, turn) for pointer in failed_stage.request.pointers]
        return self._error(failed_stage, status, failed_stage.filled(pointers, scalars))

    def _error(self, stage: Stage, status: int, args: ctypes.Structure) -> Exception:
        """Of a launch that answered other than 0."""
        if status & 0xFF != abi.DATA:
            return self._device.launch_error(stage.kernel, status, ctypes.addressof(args))
        slots, offset = binding(self.request.op).slots, status >> 8
        names = (slots[at.slot].name for at in stage.request.pointers if at.offset == offset and at.slot != BETWEEN)
        return self.out_of_range(next(names, "an operand"))

    def out_of_range(self, wrong: str) -> ProblemError:
        """The error for a table that holds what it may not; `wrong` names it, and the entry if it is known."""
        op = binding(self.request.op)
        name, _, rest = wrong.partition("[")
        holds = next((slot.holds for slot in op.slots if slot.name == name), "")
        return ProblemError(
            f"{name} holds a number that is out of range for {op.describe(self.request.stages)}"
            + (f": {wrong}" if rest else ""),
            rule="operand-values",
            value=name,
            remedy=f"{name} may hold {holds or 'what the op says of it'}"
            + ("" if rest or self.place is HOST else "; with the setting check_tables the error names the entry"),
        )


def _turns(loop: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, loop))


class Planned(NamedTuple):
    """A plan for calls of one kind, and what counts them where they are recorded."""

    plan: Plan
    counter: Counter | None


class Plans:
    """What is remembered of calls under one set of settings: plans by the facts of views, and calls C makes alone.

    Of either at most MOST_PLANS; those least recently used are forgotten.  `fast` is C's: a dictionary by the options
    that are neither names nor numbers, of dictionaries by the bytes C reads of a call.  C notes in each prepared call
    when it was made last, so that a cached call costs nothing more.
    """

    __slots__ = ("_fast_count", "_lock", "fast", "known")

    def __init__(self) -> None:
        self.known: LruCache[Any, Planned] = LruCache(lambda: MOST_PLANS)
        self.fast: dict[Any, dict[bytes, Prepared]] = {}
        self._fast_count = 0
        self._lock = threading.RLock()  # a garbage collection inside of it may call us again

    def __len__(self) -> int:
        return len(self.known)

    def remember_fast(self, key: tuple[Any, bytes], call: Prepared) -> None:
        strange, facts = key
        with self._lock:
            try:
                alike = self.fast.setdefault(strange, {})
            except TypeError:  # an option that cannot be looked up
                return
            self._fast_count += facts not in alike
            alike[facts] = call
            if self._fast_count > MOST_PLANS:
                self._forget_fast()

    def without(self, stale: Callable[[Plan], bool]) -> Plans:
        """The same less some plans.  This one stays as it is: a call in progress may put a stale plan into it,
        and then nobody looks there any more."""
        kept = Plans()
        for key, planned in self.known.items():
            if not stale(planned.plan):
                kept.known.put(key, planned)
        with self._lock:
            calls = [(strange, list(alike.items())) for strange, alike in self.fast.items()]
        for strange, alike in calls:
            for facts, call in alike:
                if not stale(call.plan):
                    kept.remember_fast((strange, facts), call)
        return kept

    def _forget_fast(self) -> None:
        """Of those remembered longest, the least recently used; the others count as new.

        A call waits for it: a look at all of thousands, and freeing a quarter of them, took ten milliseconds, a look at
        a thousand two.  So it is done often and a little at a time.
        """
        calls = ((call.used, strange, facts) for strange, alike in self.fast.items() for facts, call in alike.items())
        looked_at = sorted(itertools.islice(calls, LOOKED_AT), key=lambda call: call[0])
        drop = max(1, MOST_PLANS // 512)
        for index, (_, strange, facts) in enumerate(looked_at):
            alike = self.fast[strange]
            call = alike.pop(facts)
            if index >= drop:
                alike[facts] = call
                continue
            self._fast_count -= 1
            if not alike:
                del self.fast[strange]
