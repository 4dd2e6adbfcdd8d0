"""What a selection says, and its long form: every candidate with its reasons."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import field
from typing import Any

from tilewright.dataclass import NamedTuple, dataclass
from tilewright.errors import RequestError
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime import untracked

TIERS = ("locked", "measured", "model", "heuristic", "built", "padded", "fallback")


@dataclass(frozen=True, slots=True)
class Selection:
    """The kernel selected for a problem, the tier that selected it, and the reason."""

    spec: KernelSpec
    tier: str  # one of TIERS
    reason: str
    seconds: float  # measured, predicted or estimated
    padded: Any = None  # the problem that is run instead, in zero-padded copies
    by: str = ""  # the name of the op's rule, or of the user's heuristic, that chose, where one did
    wanted: KernelSpec | None = None  # the one that would have been chosen, and is not built (the setting `missing`)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def stages(self) -> tuple[Selection, ...]:
        return (self,)

    def to_dict(self) -> dict[str, Any]:
        seconds = self.seconds if math.isfinite(self.seconds) else None  # JSON has no infinity
        data = {"kernel": self.name, "digest": self.spec.digest, "tier": self.tier, "seconds": seconds}
        return data if self.wanted is None else {**data, "wanted": self.wanted.name}


untracked.made_of(Selection)


class Chosen(NamedTuple):
    """What was found of the kernels that serve a problem: their places among the candidates, and times."""

    served: int  # how many do
    best: int  # by the estimate where no model decided; -1 where no kernel serves the problem
    seconds: float
    second: int = -1  # the model's next best; -1 where it gives no other a hope
    second_seconds: float = 0.0
    predicted: bool = False  # by the model
    rival: int = -1  # the model's own choice, where the best is newer than it


@dataclass(frozen=True, slots=True)
class StagedSelection:
    """The kernels of a problem with several stages, each selected separately."""

    stages: tuple[Selection, ...]

    @property
    def spec(self) -> KernelSpec:
        raise self._several("spec")

    @property
    def padded(self) -> Any:
        raise self._several("padded")

    def _several(self, name: str) -> RequestError:
        return RequestError(
            f"the problem runs as {len(self.stages)} kernels ({self.name}), and {name} is of one",
            rule="several-kernels",
            value=len(self.stages),
            remedy=f"use [one.{name} for one in selection.stages]",
        )

    @property
    def name(self) -> str:
        return " + ".join(stage.name for stage in self.stages)

    @property
    def tier(self) -> str:
        """The farthest any of them had to fall."""
        return max((stage.tier for stage in self.stages), key=TIERS.index)

    @property
    def reason(self) -> str:
        return f"{len(self.stages)} stages: " + "; ".join(stage.reason for stage in self.stages)

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    def to_dict(self) -> dict[str, Any]:
        seconds = self.seconds if math.isfinite(self.seconds) else None
        whole = {"kernel": self.name, "tier": self.tier, "seconds": seconds}
        return {**whole, "stages": [stage.to_dict() for stage in self.stages]}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kernel that selection considered."""

    name: str
    digest: str
    verdict: str  # "chosen", "slower", "tied" (by the noise), "refused", "unpinned" (by the lock file in force),
    # "unbuilt" (it would be faster, and the setting `missing` does not wait for a compiler)
    reasons: tuple[str, ...]
    estimated_seconds: float | None
    measured_seconds: float | None
    built: bool
    predicted_seconds: float | None = None  # by the model that was asked
    rules: tuple[str, ...] = ()  # by which it was refused


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
    if chosen.wanted is not None and (digest == chosen.wanted.digest or seconds < chosen.seconds):
        choice = "it would be chosen" if digest == chosen.wanted.digest else "it would be faster"
        return "unbuilt", f"{choice}, and is not built: the setting `missing` does not wait for a compiler"
    unpinned = chosen.tier == "locked" and digest not in known.pinned
    verdict = "unpinned" if unpinned else "slower"
    if seconds == math.inf:
        return verdict, "its estimate is no finite number: any other is preferred"
    if chosen.by:
        return verdict, f"the rule {chosen.by} puts it behind"
    if chosen.tier == "measured" and measured is None:
        return verdict, "never measured on this problem; the record names another"
    if chosen.tier == "measured" and measured is not None:
        ratio = f"measured {measured / chosen.seconds:.2f} times the winner's time"
        return (verdict, ratio) if measured >= chosen.seconds else ("tied", f"{ratio}, a lead within the noise")
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
    """The selected kernel, the reason, and every candidate; `print` shows a summary, `full` and `to_dict` all."""

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
    models: tuple[str, ...] = ()  # what is odd about the models at hand: damaged ones, and those before one that ships
    split_plan: str = ""  # in which stages, of several that would do, and why

    @property
    def way(self) -> str:
        """The old name of `split_plan`."""
        from tilewright.renames import warn_renamed

        warn_renamed("Explanation", "way", "split_plan")
        return self.split_plan

    @property
    def on_host(self) -> bool:
        """Whether threads have a say: a GPU's kernels take none."""
        from tilewright.arch import all_archs
        from tilewright.runtime.devices import HOST

        known = all_archs().get(self.target)
        return known is None or known.backend == HOST.kind

    @property
    def replay(self) -> str:
        """A command that explains the same choice again."""
        words = ["tilewright", "explain", self.problem.op, *self.arguments]
        words += ["--target", self.target]
        if self.on_host:
            words += ["--threads", str(self.threads)]
        import shlex

        return shlex.join(words + (["--strict"] if self.strict else []))

    def to_dict(self) -> dict[str, Any]:
        chosen = self.selection
        return {
            "problem": plain(self.problem),
            "target": self.target,
            "threads": self.threads,
            "strict": self.strict,
            "source": self.source,
            "candidates": [plain(candidate) for candidate in self.candidates],
            "chosen": None if chosen is None else chosen.to_dict(),
            "decided": self.decided,
            "unused_records": list(self.unused_records),
            "model": self.model,
            "models": list(self.models),
            # `way` is its old name.
            **(dict.fromkeys(("split_plan", "way"), self.split_plan) if self.split_plan else {}),
            "replay": self.replay,
            **({"stages": [stage.to_dict() for stage in self.stages]} if self.stages else {}),
        }

    def __str__(self) -> str:
        """The answer, in at most 25 lines; `full` has every candidate."""
        from tilewright.dispatch import explain_text  # which knows this module

        return explain_text.short(self)

    def full(self) -> str:
        """The answer, then every candidate with its reasons."""
        from tilewright.dispatch import explain_text

        return explain_text.whole(self)
