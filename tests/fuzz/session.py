"""The fuzzer, a process of its own: `python -m tests.fuzz.session --seed 3 --examples 500`.

It may die of what it finds: the call it makes is written to a file before, for whoever started it.
`--replay "Example(...)"` makes the calls of one example again.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

import tilewright as tw
from tests.backends.cpu.gemm import catalog, test_pipelines
from tests.fuzz import attentions, calls, convolutions, memory, problems
from tests.fuzz.drawing import Kind, examples
from tests.fuzz.running import Runner, Wrong
from tests.proofs import spread
from tilewright import api
from tilewright.dispatch.registry import Registry
from tilewright.native.judge import judge
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.fused import GATES
from tilewright.runtime import fast_path, host
from tilewright.runtime.calls import Caller

ROUND = 250  # examples of one run of hypothesis, which is seeded anew


def specs(few: bool = False) -> tuple[KernelSpec, ...]:
    """Kernels that other tests build too, as far as this machine runs them, and some that calls come to from there.

    Few: those that `make test` builds anyway, where most kernels of the tests are left to the proofs.
    A B is packed by a kernel without an epilogue, and only kernels of its format read it: so all are of the floor's.
    """
    here = catalog.runnable()
    every = spread(test_pipelines.KERNELS, test_pipelines.QUICK) if few else catalog.of_all_tests()
    shared = [spec for spec in every if spec.arch in here]
    plain = [spec for spec in shared if spec.signature.variant != "preshuffle"]
    drawn = [catalog.spec("preshuffle", catalog.best(), types, layout, **more) for types, layout, more in PACKED]
    packed = [op("gemm").fallback_spec(one.signature, one.arch) for one in drawn]
    bare = [catalog.spec("loops", catalog.best(), ("fp32",) * 3, layout, **more) for layout, more in BARE]
    return tuple(dict.fromkeys([*plain, *packed, *bare]))


def registry_of(found: tuple[KernelSpec, ...]) -> Registry:
    """Those, and the floors that convolutions and attentions are drawn for."""
    registry = Registry(specs=(*found, *convolutions.specs(), *attentions.specs()))
    registry.build()
    return registry


_F32, _BF16, _INT8 = ("fp32",) * 3, ("bf16",) * 3, ("int8", "int8", "int32")
PACKED: tuple[tuple[Any, str, dict[str, Any]], ...] = (
    (_F32, "rrr", {}),
    (_F32, "rcr", {}),
    (_BF16, "rrr", {}),
    (_INT8, "rcr", {}),
    (_F32, "rrr", {"epilogue": "Gelu", "num_d": 1}),
    (_INT8, "rcr", {"epilogue": "MultiDAdd", "num_d": 2}),
)
BARE: tuple[tuple[str, dict[str, Any]], ...] = (
    *((layout, {}) for layout in ("rrr", "rcr", "crr", "ccr")),
    *((layout, {"epilogue": "MultiDAdd", "num_d": 1}) for layout in ("rcr", "crr", "ccr")),  # of a C that repeats
)


def kinds_of(found: tuple[KernelSpec, ...]) -> dict[Kind, KernelSpec]:
    """What is drawn, in an order that is the same everywhere: the simplest first.

    Not gated products, which are a call of their own (tests/api/test_gated_gemm.py): `gemm` has no word for them.
    """
    made: dict[Kind, KernelSpec] = {}
    for spec in found:
        s = spec.signature
        if s.epilogue in GATES:
            continue
        d = s.dtype_d if s.num_d else s.dtype_c
        made.setdefault(Kind(s.variant, s.dtype_a, s.dtype_b, s.dtype_c, d, s.layout, s.epilogue, s.num_d), spec)
    order = ("standard", "multi_d", "preshuffle")
    return dict(sorted(made.items(), key=lambda one: (order.index(one[0].variant), one[0])))


class LastWords:
    """The file that holds the example in the making."""

    def __init__(self, path: Path, patience: float) -> None:
        self._patience = patience
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def __call__(self, text: str) -> None:
        faulthandler.dump_traceback_later(self._patience, exit=True)  # what does not come back is a finding too
        data = text.encode("utf-8", "backslashreplace")
        os.pwrite(self._file, data, 0)
        os.ftruncate(self._file, len(data))


def start(told: LastWords, with_fast_path: bool, few: bool) -> tuple[Runner, list[Kind]]:
    """Build the kernels, and let the API use these."""
    found = specs(few)
    registry = registry_of(found)
    for name in ("gemm", "conv", "attention"):  # what selects is built before anything is frozen
        judge(tuple(spec for spec in registry.specs() if spec.op == name)[:1], (0,))
    api._registries[""] = api._registries[registry.target] = registry
    if not with_fast_path:
        fast_path.library = lambda: None
    host.team(2)
    fast_path.library()
    chosen = kinds_of(found)
    direct = [None if kind.variant == "preshuffle" else registry.kernel(spec) for kind, spec in chosen.items()]
    return Runner(registry, direct, told), list(chosen)


def count_long_ways(runner: Runner) -> None:
    """The others took the short one."""
    long_way = Caller.run_slow

    def counted(*given: Any, **more: Any) -> Any:
        runner.counts["slow paths"] += 1
        return long_way(*given, **more)

    Caller.run_slow = counted  # type: ignore[method-assign]


def _rounds(options: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """The seed and the number of examples of each round."""
    number, left = 0, options.examples
    end = time.monotonic() + options.seconds
    while (time.monotonic() < end) if options.seconds else left > 0:
        size = ROUND if options.seconds else min(ROUND, left)
        yield options.seed * 100_000 + number, size
        number, left = number + 1, left - size


class Findings:
    """What was found: the first ends the session, unless it keeps going; then the shortest of each sort is kept."""

    def __init__(self, keep_going: bool) -> None:
        self._keep_going = keep_going
        self.shortest: dict[str, tuple[str, str]] = {}

    def run(self, work: Callable[[Any], None], example: Any) -> None:
        try:
            work(example)
        except Wrong as wrong:
            if not self._keep_going:
                raise
            sort = re.sub(r"[-+.e0-9]*[0-9][-+.e0-9]*|0x[0-9a-f]+", "#", str(wrong).splitlines()[0])[:160]
            known = self.shortest.get(sort)
            if known is None or len(repr(example)) < len(known[1]):
                self.shortest[sort] = str(wrong), repr(example)

    def tell(self) -> None:
        for told, example in self.shortest.values():
            print(f"{told}\n  {example}\n", file=sys.stderr)


def fuzz(runner: Runner, kinds: list[Kind], options: argparse.Namespace, found: Findings) -> None:
    end = time.monotonic() + options.seconds
    for number, count in _rounds(options):
        plain = settings(
            max_examples=count, database=None, deadline=None, phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck), report_multiple_bugs=False, print_blob=False,
        )  # fmt: skip

        @seed(number)
        @plain
        @given(examples(kinds))
        def round_of_calls(example: Any) -> None:
            if not options.seconds or time.monotonic() < end:
                found.run(runner.run, example)

        @seed(number)
        @settings(plain, max_examples=max(1, count // 5))
        @given(problems.questions())
        def round_of_questions(question: Any) -> None:
            runner.told(repr(question))
            found.run(lambda one: problems.ask(runner.registry, one), question)
            runner.counts["questions"] += 1

        @seed(number)
        @settings(plain, max_examples=max(1, count // 3))
        @given(convolutions.convolutions())
        def round_of_convolutions(call: Any) -> None:
            if not options.seconds or time.monotonic() < end:
                found.run(lambda one: convolutions.run(runner, one), call)

        @seed(number)
        @settings(plain, max_examples=max(1, count // 3))
        @given(attentions.attentions())
        def round_of_attentions(call: Any) -> None:
            if not options.seconds or time.monotonic() < end:
                found.run(lambda one: attentions.run(runner, one), call)

        round_of_calls()
        round_of_questions()
        round_of_convolutions()
        round_of_attentions()


def replay(runner: Runner, text: str) -> None:
    runner.told(text)
    names = {**vars(memory), **vars(calls), **vars(problems), **vars(convolutions), **vars(attentions)}
    example = eval(text, {**names, "array": np.array})  # what this program printed before
    if isinstance(example, calls.Example):
        runner.run(example)
    elif isinstance(example, attentions.AttentionCall):
        attentions.run(runner, example)
    elif isinstance(example, convolutions.ConvCall):
        convolutions.run(runner, example)
    else:
        problems.ask(runner.registry, example)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--last", type=Path, default=Path("last-example.txt"))
    parser.add_argument("--patience", type=float, default=300, help="seconds for one example; some compile kernels")
    parser.add_argument("--without-fast-path", action="store_true", help="every call takes the slow path, in Python")
    parser.add_argument("--frozen", action="store_true", help="compile nothing but the kernels of the session")
    parser.add_argument("--few", action="store_true", help="of the kernels of the session only the quick tests' own")
    parser.add_argument("--keep-going", action="store_true", help="tell the shortest example of each sort in the end")
    parser.add_argument("--replay", default="")
    options = parser.parse_args()
    faulthandler.enable()
    runner, kinds = start(LastWords(options.last, options.patience), not options.without_fast_path, options.few)
    count_long_ways(runner)
    if options.frozen:
        tw.settings.configure(frozen=True)
    warnings.simplefilter("error")
    failed = False
    if options.replay:
        replay(runner, options.replay)
    else:
        found = Findings(options.keep_going)
        try:
            fuzz(runner, kinds, options, found)
        finally:
            found.tell()
        failed = bool(found.shortest)
    json.dump(runner.counts, sys.stdout)
    sys.exit(failed)


if __name__ == "__main__":
    main()
