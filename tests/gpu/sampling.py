"""Which kernels a run of the GPU suite builds and asks: all, or as many as fit its time, drawn by a seed.

Compiling is most of the suite's time, so a budget counts kernels.  Whatever the seed, every pipeline of every op is
asked, and every test has a kernel.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.ops.base import KernelSpec


@dataclass(frozen=True)
class Sample:
    """The kernels of each test, by its id."""

    kernels: Mapping[str, Sequence[KernelSpec]]
    wanted: int  # kernels of all tests together
    seed: int

    @property
    def specs(self) -> list[KernelSpec]:
        return list({one.digest: one for some in self.kernels.values() for one in some}.values())

    @property
    def whole(self) -> bool:
        return len(self.specs) == self.wanted

    def __str__(self) -> str:
        """What is asked: how many kernels, and of which pipelines."""
        specs = self.specs
        drawn = "" if self.whole else f", drawn by seed {self.seed}"
        lines = [f"GPU suite: {len(specs)} of {self.wanted} kernels{drawn}"]
        counts = Counter((one.op, one.schedule.pipeline) for one in specs)
        for op in sorted({op for op, _ in counts}):
            named = ", ".join(f"{pipeline} {count}" for (of, pipeline), count in sorted(counts.items()) if of == op)
            lines.append(f"  {op}: {named}")
        return "\n".join(lines)


def draw(wanted: Mapping[str, Sequence[KernelSpec]], most: int, seed: int) -> Sample:
    """At most so many kernels (0: all) for tests that want these; more where pipelines and tests need them."""
    every = {spec.digest: spec for some in wanted.values() for spec in some}
    if not most or most >= len(every):
        return Sample(wanted, len(every), seed)
    rng = random.Random(f"GPU suite {seed}")
    chosen = set(_needed(wanted, rng))
    rest = sorted(every.keys() - chosen)
    chosen |= set(rng.sample(rest, max(0, min(len(rest), most - len(chosen)))))
    kept = {test: [spec for spec in some if spec.digest in chosen] for test, some in wanted.items()}
    return Sample(kept, len(every), seed)


def _needed(wanted: Mapping[str, Sequence[KernelSpec]], rng: random.Random) -> Iterator[str]:
    """A kernel for each pipeline of each op, and for each test that has none yet."""
    pipelines: dict[tuple[str, str], dict[str, None]] = {}
    for some in wanted.values():
        for spec in some:
            pipelines.setdefault((spec.op, spec.schedule.pipeline), {})[spec.digest] = None
    chosen = {rng.choice(list(digests)) for digests in pipelines.values()}
    for some in wanted.values():
        digests = [spec.digest for spec in some]
        if digests and chosen.isdisjoint(digests):
            chosen.add(rng.choice(digests))
    yield from chosen
