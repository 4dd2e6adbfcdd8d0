"""Training data out of results: one row a kernel and problem, grouped by problem, with what is held out left out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.arch import arch as arch_by_name
from tilewright.arch.host import speaking_of
from tilewright.backends.base import backend
from tilewright.dispatch.results import OK, Result, canonical, problem_digest
from tilewright.errors import RequestError, TilewrightError
from tilewright.ops.base import KernelSpec, Op
from tilewright.ops.engine import engine
from tilewright.ops.features import Frame, kernel_columns, problem_words, vocabulary
from tilewright.tune.problem_sets import held_out, leaking

Array = np.ndarray[Any, Any]

LEAST_PROBLEMS = 20  # fewer teach nothing that can be judged
_SHORT = 8  # hex digits: of ten thousand problems, one in a hundred sweeps has two alike


@dataclass(frozen=True, slots=True)
class Group:
    """The right kernels of one problem on one device, with their times."""

    problem: Any
    threads: int
    specs: tuple[KernelSpec, ...]
    seconds: Array
    estimates: Array
    units: int
    device: str = ""  # its fingerprint
    fastest: float = 0.0  # seconds of one that was left out, where it is faster than these
    weight: float = 1.0  # in training: that of a measurement of kernels as they are now may be more

    @property
    def oracle(self) -> float:
        """Seconds of the fastest of all that were measured."""
        fastest = float(self.seconds.min())
        return min(fastest, self.fastest) if self.fastest else fastest

    @property
    def family(self) -> str:
        from tilewright import ops

        return engine(ops.op(self.problem.op)).family(self.problem)


@dataclass(frozen=True)
class Data:
    """What a model is trained or judged on."""

    op: Op
    groups: tuple[Group, ...]
    targets: tuple[str, ...]
    devices: tuple[dict[str, Any], ...]
    left_out: dict[str, int]  # reason to number of rows
    holdout: str = ""  # digest of the problems that were held out

    @property
    def rows(self) -> int:
        return sum(len(group.specs) for group in self.groups)

    @cached_property
    def digest(self) -> str:
        """Of all that matters of the rows, whatever their order."""
        lines = sorted(
            f"{canonical(_plain(group.problem))} {group.threads} {spec.digest} {seconds!r}"
            for group in self.groups
            for spec, seconds in zip(group.specs, group.seconds.tolist(), strict=True)
        )
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @cached_property
    def words(self) -> dict[str, list[str]]:
        """The words of these kernels, and those that problems may have."""
        specs = list({spec.digest: spec for group in self.groups for spec in group.specs}.values())
        problems = {name: list(words) for name, words in problem_words(engine(self.op)).items()}
        return problems | vocabulary(specs, self.schedule_fields)

    @cached_property
    def schedule_fields(self) -> tuple[str, ...]:
        """Of the kernels that were measured: families that are there and were not change nothing."""
        kinds = {type(spec.schedule) for group in self.groups for spec in group.specs}
        return kernel_columns(tuple(schedule for schedule in self.op.schedules if schedule in kinds))

    @cached_property
    def problems(self) -> Array:
        """The number of each group's problem: one measured with several numbers of threads, or on several devices, is
        several groups."""
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(group.problem, len(numbers)) for group in self.groups], np.int64)

    @cached_property
    def seen(self) -> tuple[str, ...]:
        """What each group's problem is known by, short: on cards, which say what a model was trained on."""
        return tuple(problem_digest(self.op.name, _plain(group.problem))[:_SHORT] for group in self.groups)

    def frame(self, *, estimated: bool = False) -> Frame:
        return Frame(engine(self.op), self.schedule_fields, self.words, estimated=estimated)


def _plain(problem: Any) -> Any:
    from tilewright.ops.base import plain

    return plain(problem)


def units_of(target: str, threads: int) -> int:
    """What the work is dealt to: threads of a CPU, multiprocessors of a GPU."""
    arch = arch_by_name(target)
    return threads or arch.compute_units or 1


def collect(
    op: Op,
    results: Iterable[Result],
    *,
    held: Sequence[Any] | None = None,
    keep: Callable[[Any], bool] | None = None,
) -> Data:
    """Groups of results; problems that are held out, or near one that is, are left out and counted.

    `keep` asks of a problem whether it is wanted; `held` names other problems than the op's own holdout, () none.  Of a
    kernel that was measured more than once on a problem the mean counts.
    """
    left_out: dict[str, int] = {}

    def leave(why: str, count: int = 1) -> None:
        left_out[why] = left_out.get(why, 0) + count

    measured: dict[tuple[str, str, int], list[tuple[Result, KernelSpec]]] = {}
    devices: dict[str, dict[str, Any]] = {}
    specs: dict[str, KernelSpec | None] = {}
    for result in results:
        if result.op != op.name:
            continue
        if result.status != OK or not result.seconds or result.seconds <= 0:
            leave(f"status {result.status}")
            continue
        text = result.kernel.digest or canonical(result.kernel.spec)
        if text not in specs:
            specs[text] = _spec(op, result)
        spec = specs[text]
        if spec is None:
            leave("a kernel of another version")
            continue
        fingerprint = str(result.device.get("fingerprint", ""))
        devices[fingerprint] = {name: value for name, value in result.device.items() if name != "fingerprint"}
        measured.setdefault((canonical(result.problem), fingerprint, result.threads), []).append((result, spec))
    kept = held_out(op) if held is None else held
    groups = []
    leaks: dict[str, bool] = {}
    known: dict[str, dict[str, Any]] = {}  # devices that something is learned from
    for (text, fingerprint, threads), rows in measured.items():
        problem = _problem(op, rows[0][0])
        if problem is None or (keep is not None and not keep(problem)):
            leave("not asked for" if problem is not None else "a problem of another version", len(rows))
            continue
        if text not in leaks:
            leaks[text] = bool(leaking(op, [problem], kept))
        if leaks[text]:
            leave("held out, or near a problem that is", len(rows))
            continue
        groups.append(_group(problem, threads, rows))
        known[fingerprint] = devices[fingerprint]
    targets = sorted({spec.arch for group in groups for spec in group.specs})
    return Data(op, tuple(groups), tuple(targets), tuple(known.values()), left_out, _digest_of(kept))


def _digest_of(problems: Sequence[Any]) -> str:
    texts = sorted(canonical(_plain(problem)) for problem in problems)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[: 2 * _SHORT]


def _spec(op: Op, result: Result) -> KernelSpec | None:
    try:
        return op.spec_from_dict(dict(result.kernel.spec))
    except TilewrightError:
        return None


def _problem(op: Op, result: Result) -> Any:
    try:
        return op.problem_from_dict(dict(result.problem))
    except TilewrightError:
        return None


def _group(problem: Any, threads: int, rows: Sequence[tuple[Result, KernelSpec]]) -> Group:
    times: dict[str, list[float]] = {}
    for result, spec in rows:
        times.setdefault(spec.digest, []).append(result.seconds or 0.0)
    specs = tuple({spec.digest: spec for _, spec in rows}.values())
    seconds = np.array([np.mean(times[spec.digest]) for spec in specs], np.float64)
    with speaking_of(rows[0][0].device):
        estimates = estimates_of(specs, problem, threads)
    device = str(rows[0][0].device.get("fingerprint", ""))
    return Group(problem, threads, specs, seconds, estimates, units_of(specs[0].arch, threads), device)


def estimates_of(specs: Sequence[KernelSpec], problem: Any, threads: int) -> Array:
    """What the backends' analytic estimates say."""
    return np.array(
        [backend(arch_by_name(spec.arch).backend).estimate(spec, problem, threads or 1) for spec in specs], np.float64
    )


def demand_enough(data: Data, least: int = LEAST_PROBLEMS) -> None:
    count = len(set(data.seen))
    if count < least:
        reasons = ", ".join(f"{count} {why}" for why, count in data.left_out.items())
        raise RequestError(
            f"there are {count} problems to learn from, and {least} are the least"
            + (f" (left out: {reasons})" if reasons else ""),
            rule="too-little-data",
            value=count,
            remedy="measure more: `tilewright bench OP --problems random:SEED:COUNT`",
        )


def near(data: Data, far: float) -> Data:
    """Without the kernels whose estimate is beyond a multiple of the lowest of their problem."""
    groups = []
    for group in data.groups:
        kept = np.flatnonzero(group.estimates <= far * group.estimates.min())
        groups.append(
            replace(group, specs=tuple(group.specs[at] for at in kept), seconds=group.seconds[kept],
                    estimates=group.estimates[kept], fastest=group.oracle)
        )  # fmt: skip
    return replace(data, groups=tuple(groups))


def matrix(data: Data, frame: Frame) -> tuple[Array, Array]:
    """Features, and the number of each row's group."""
    blocks = [frame.rows(group.specs, group.problem, group.units, group.estimates) for group in data.groups]
    return np.concatenate(blocks), np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])


def rough_of(data: Data) -> tuple[float, float, float]:
    """A start, a time a byte and a time an operation that come nearest to the fastest kernels' times."""
    times = np.array([group.oracle for group in data.groups])
    parts = np.array([(1.0, float(group.problem.bytes), float(group.problem.flops)) for group in data.groups])
    scale = parts.max(axis=0)
    weights = np.full(3, times.min() / 3)
    for _ in range(200):  # multiplicative steps: nothing becomes negative
        weighted = (parts / scale) / times[:, None]
        ratio = weighted @ weights
        weights = weights * (weighted.sum(axis=0) / (weighted * ratio[:, None]).sum(axis=0))
    start, byte, operation = (weights / scale).tolist()
    return max(start, 1e-9), byte, operation
