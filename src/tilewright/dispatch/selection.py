"""What a selection says, and its long form: every candidate with its reasons."""

from __future__ import annotations

import math
import shlex
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.ops.base import KernelSpec, plain

TIERS = ("locked", "measured", "model", "rule", "padded", "floor")


@dataclass(frozen=True, slots=True)
class Selection:
    """The kernel for a problem, how far the choice had to fall, and why."""

    spec: KernelSpec
    tier: str  # one of TIERS
    reason: str
    seconds: float  # measured, predicted or estimated
    padded: Any = None  # the problem that is run instead, in zero-padded copies
    by: str = ""  # the name of the op's rule that chose, where one did

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def stages(self) -> tuple[Selection, ...]:
        return (self,)

    def to_dict(self) -> dict[str, Any]:
        seconds = self.seconds if math.isfinite(self.seconds) else None  # JSON has no infinity
        return {"kernel": self.name, "digest": self.spec.digest, "tier": self.tier, "seconds": seconds}


@dataclass(frozen=True, slots=True)
class StagedSelection:
    """The kernels of a problem of several stages, each chosen apart."""

    stages: tuple[Selection, ...]

    @property
    def name(self) -> str:
        return " + ".join(one.name for one in self.stages)

    @property
    def tier(self) -> str:
        """The farthest any of them had to fall."""
        return max((one.tier for one in self.stages), key=TIERS.index)

    @property
    def reason(self) -> str:
        return f"{len(self.stages)} stages: " + "; ".join(one.reason for one in self.stages)

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.stages)

    def to_dict(self) -> dict[str, Any]:
        seconds = self.seconds if math.isfinite(self.seconds) else None
        whole = {"kernel": self.name, "tier": self.tier, "seconds": seconds}
        return {**whole, "stages": [one.to_dict() for one in self.stages]}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kernel that was looked at."""

    name: str
    digest: str
    verdict: str  # "chosen", "slower", "refused", "unpinned" (by the lock file in force)
    reasons: tuple[str, ...]
    estimated_seconds: float | None
    measured_seconds: float | None
    built: bool
    predicted_seconds: float | None = None  # by the model that was asked


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of kernels' times on a problem, by their digests."""

    measured: Mapping[str, float]
    predicted: Mapping[str, float]
    pinned: Container[str] = ()  # by the lock file in force: for the problem, or for its family


def behind(chosen: Selection, seconds: float, known: Known, digest: str, order: str) -> tuple[str, str]:
    """What is said of a kernel that serves the problem and was not chosen, by its estimate and what else is known.

    `order` is the one that decides between equal estimates.
    """
    measured, predicted = known.measured.get(digest), known.predicted.get(digest)
    unpinned = chosen.tier == "locked" and digest not in known.pinned
    verdict = "unpinned" if unpinned else "slower"
    if seconds == math.inf:
        return verdict, "its estimate is no finite number: any other is preferred"
    if chosen.by:
        return verdict, f"the rule {chosen.by} puts it behind"
    if chosen.tier == "measured" and measured is None:
        return verdict, "never measured on this problem; the record names another"
    if chosen.tier == "measured" and measured is not None:
        return verdict, f"measured {measured / chosen.seconds:.2f} times the winner's time"
    if chosen.tier == "model" and predicted is not None:
        return verdict, f"predicted {predicted / max(chosen.seconds, 1e-12):.2f} times the winner's time"
    estimated = f"estimated {seconds / max(chosen.seconds, 1e-12):.2f} times"
    if unpinned:
        return verdict, f"the lock file names another; {estimated} its time"
    if seconds == chosen.seconds:
        return verdict, f"the same estimate: the order decides, which is {order}"
    return verdict, f"{estimated} the winner's time"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Candidates, why each was dropped, and what decided; `print` it, or take `to_dict`."""

    problem: Any
    target: str
    threads: int
    strict: bool
    source: str  # where the candidates come from
    candidates: tuple[Candidate, ...]
    selection: Selection | StagedSelection | None  # None when strict mode refuses
    decided: str
    arguments: tuple[str, ...] = field(default=())
    unused_records: tuple[str, ...] = field(default=())  # measurements of the problem, and why they do not count
    stages: tuple[Explanation, ...] = field(default=())  # of a problem of several: each for itself
    model: str = ""  # why no learned model decided, where there is one
    way: str = ""  # in which stages, of several that would do, and why

    @property
    def replay(self) -> str:
        """A command that explains the same choice again."""
        words = ["tilewright", "explain", self.problem.op, *self.arguments]
        words += ["--target", self.target, "--threads", str(self.threads)]
        return shlex.join(words + (["--strict"] if self.strict else []))

    def to_dict(self) -> dict[str, Any]:
        chosen = self.selection
        return {
            "problem": plain(self.problem),
            "target": self.target,
            "threads": self.threads,
            "strict": self.strict,
            "source": self.source,
            "candidates": [plain(one) for one in self.candidates],
            "chosen": None if chosen is None else chosen.to_dict(),
            "decided": self.decided,
            "unused_records": list(self.unused_records),
            "model": self.model,
            **({"way": self.way} if self.way else {}),
            "replay": self.replay,
            **({"stages": [one.to_dict() for one in self.stages]} if self.stages else {}),
        }

    def __str__(self) -> str:
        head = [
            f"problem   {self.problem.describe()}",
            f"target    {self.target}, {self.threads} thread(s){', strict' if self.strict else ''}",
        ]
        if self.way:
            head.append(f"way       {self.way}")
        tail = [f"decided   {self.decided}", f"replay    {self.replay}"]
        lines = self._stage_lines() if self.stages else self._own_lines()
        return "\n".join([*head, *lines, *tail])

    def _stage_lines(self) -> list[str]:
        lines = []
        for number, one in enumerate(self.stages, 1):
            lines.append(f"stage {number}   {one.problem.describe()}")
            lines += [f"  {line}" for line in one._own_lines()]
        return lines

    def _own_lines(self) -> list[str]:
        lines = [f"kernels   {self.source}"]
        for one in self.candidates:
            times = [
                f"{label} {seconds * 1e6:.1f} us"
                for label, seconds in (
                    ("measured", one.measured_seconds),
                    ("predicted", one.predicted_seconds),
                    ("estimated", one.estimated_seconds),
                )
                if seconds is not None
            ]
            note = ", ".join([*times, *(["built"] if one.built else [])])
            lines.append(f"  {one.verdict:<8}  {one.name}" + (f"  ({note})" if note else ""))
            lines += [f"            {reason}" for reason in one.reasons]
        if self.selection is not None:
            lines.append(f"chosen    {self.selection.name}")
            lines.append(f"tier      {self.selection.tier}")
        lines += [f"model     {self.model}"] if self.model else []
        return lines + [f"records   {one}" for one in self.unused_records]
