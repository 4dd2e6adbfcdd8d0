"""Attention's gradients on a GPU, on problems drawn by seed: every operand between fences of NaN.

    python -m tests.gpu.backward_proof --seed 5 --count 300             kernels of every case in turn
    python -m tests.gpu.backward_proof --seed 5 --count 60 --only shared    of cases whose name has this
    python -m tests.gpu.backward_proof --bits 1000                      the same bits in as many runs, beside other load
    python -m tests.gpu.backward_proof --fresh 1000                     operands that kernels right before calls wrote

A line a kernel, with how many problems it computed and the largest error beside its bound, or what was wrong.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np

from tests.emulated_hopper.backwards import drawn
from tests.gpu.backward_cases import BACKWARD, KEYS, ROWS, Case, cases
from tilewright.backends.cuda import driver
from tilewright.dispatch import kernels
from tilewright.dtypes import BY_NUMPY_NAME
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.attention_backward.problem_rules import problem_violations
from tilewright.ops.base import KernelSpec
from tilewright.runtime import samples
from tilewright.runtime.arrays import address_of
from tilewright.runtime.bindings import binding
from tilewright.runtime.device_arrays import DeviceArray
from tilewright.runtime.lines import extent
from tilewright.runtime.requests import Sample

FENCE = 1024  # bytes before and behind an operand
MOST = 1e8  # products of a problem: the reference is computed on the host
BOUND = binding("attention_backward")
Drawn = tuple[str, KernelSpec, AttentionBackwardProblem]


class Fences:
    """The operands of a sample in memory of the device, each between bytes that nobody may write, NaN to who reads."""

    def __init__(self, sample: Sample, device: Any) -> None:
        self.device = device
        self.spans: list[tuple[int, int]] = []  # of each operand in its memory
        self.sample = replace(
            sample, operands=tuple(None if operand is None else self._there(operand) for operand in sample.operands)
        )

    def _there(self, array: Any) -> DeviceArray:
        strides = tuple(stride // array.itemsize for stride in array.strides)
        low, high = extent(array.shape, strides, array.itemsize)
        size = high - low
        memory = self.device.allocate(size + 2 * FENCE)
        self.device.fill(memory.address, 0xFF, size + 2 * FENCE)
        self.device.write(memory.address + FENCE, address_of(array) + low, size)
        there = DeviceArray(self.device, memory, array.shape, strides, BY_NUMPY_NAME[array.dtype.name])
        there.address = memory.address + FENCE - low
        self.spans.append((memory.address, size))
        return there

    def broken(self) -> bool:
        around = np.empty(FENCE, np.uint8)
        for address, size in self.spans:
            for at in (address, address + FENCE + size):
                self.device.read(address_of(around), at, FENCE)
                if (around != 0xFF).any():
                    return True
        return False


def answer(kernel: Any, problem: AttentionBackwardProblem, seed: int, device: Any) -> tuple[str, float]:
    """What is wrong with a kernel's results, and the largest error beside its bound."""
    fences = Fences(BOUND.sample(problem, seed, False), device)
    samples.runner(BOUND, kernel, problem, fences.sample, device, 1)()
    device.synchronize()
    check = samples.check(BOUND, problem, fences.sample, (kernel.spec,))
    if fences.broken():
        return "wrote beside an operand", check.bound_ratio
    return ("" if check.ok else check.detail), check.bound_ratio


def problem_of(rng: random.Random, case: Case, spec: KernelSpec, most: float) -> AttentionBackwardProblem | None:
    """A problem that the kernel serves, some in a fixed order; none where luck brings none."""
    for _ in range(400):
        one = replace(drawn(rng, case.first, (ROWS, KEYS)), deterministic=rng.random() < 0.4)
        plain = not problem_violations(one) and one.signature == case.first.signature and one.flops < most
        if plain and not BACKWARD.supports(spec, one):
            return one
    return None


def draw(seed: int, count: int, arch: str, only: str = "") -> list[Drawn]:
    """Kernels of all cases in turn, each with a problem of its own."""
    rng, pairs = random.Random(seed), []
    for case in cases():
        if only in case.name:
            pairs += [(case, spec) for spec in case.specs(arch)]
    rng.shuffle(pairs)
    found: list[Drawn] = []
    for case, spec in islice(cycle(pairs), 3 * count):
        one = problem_of(rng, case, spec, MOST / 20 if spec.schedule.pipeline == "loops" else MOST)
        if one is not None:
            found.append((case.name, spec, one))
        if len(found) == count:
            break
    return found


def proven(problems: Sequence[Drawn], seed: int, device: Any) -> Iterator[tuple[Drawn, str, float]]:
    kernels.build(list({spec.digest: spec for _, spec, _ in problems}.values()))
    for number, one in enumerate(problems):
        yield one, *answer(kernels.kernel(one[1]), one[2], seed + number, device)


def same_bits(runs: int, seed: int) -> list[str]:
    """Deterministic calls beside other load on another stream: which did not have the bits of the first."""
    import torch

    import tilewright as tw

    rng, wrong = random.Random(seed), []
    torch.manual_seed(seed)
    load, noise = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda").bfloat16()
    # Heads, those of keys, rows, head, causal: blocks that share keys, ones that do not, more of them than processors;
    # groups whose rows no cache keeps.
    shapes = [(8, 1, 1000, 128, True), (4, 4, 777, 64, False), (16, 16, 1024, 128, True), (12, 4, 513, 96, True),
              (32, 4, 1024, 128, True)]  # fmt: skip
    for number, (heads, heads_kv, rows, head, causal) in enumerate(shapes):
        q, do = (torch.randn(2, rows, heads, head, device="cuda").bfloat16() for _ in range(2))
        k, v = (torch.randn(2, rows, heads_kv, head, device="cuda").bfloat16() for _ in range(2))
        asked: dict[str, Any] = {"causal": "bottom_right" if causal else False}
        out, lse = tw.attention(q, k, v, return_lse=True, **asked)
        first = tw.attention_backward(do, q, k, v, out, lse, deterministic=True, **asked)
        for run in range(runs // len(shapes)):
            if rng.random() < 0.7:
                with torch.cuda.stream(load):
                    for _ in range(rng.choice((1, 3))):
                        noise @ noise
            again = tw.attention_backward(do, q, k, v, out, lse, deterministic=True, **asked)
            if not all(torch.equal(one, other) for one, other in zip(first, again, strict=True)):
                wrong.append(f"shape {number}, run {run}")
        torch.cuda.synchronize()
    return wrong


def fresh_operands(runs: int, seed: int) -> list[str]:
    """Calls on operands that kernels right before them write, in turn from two sets: which have not their set's dk and
    dv to the bit, and its dq but for the order of its sums.  The kernels of a call come in early, and copy some
    operands before they wait for the kernel before them."""
    import torch

    import tilewright as tw

    torch.manual_seed(seed)
    wrong = []
    # Sequences, heads, those of keys, rows, head, packed: `dot` is short, or has fewer blocks than processors.
    shapes = [
        (2, 2, 2, 128, 64, False),
        (1, 4, 2, 512, 128, False),
        (8, 8, 8, 777, 96, False),
        (4, 4, 1, 300, 128, True),
    ]
    for number, (batch, heads, heads_kv, rows, head, packed) in enumerate(shapes):
        lead = (batch * rows,) if packed else (batch, rows)
        starts = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * rows
        lengths: dict[str, Any] = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": rows,
                                   "max_seqlen_k": rows} if packed else {}  # fmt: skip
        sets, expected = [], []
        for _ in range(2):
            q, do = (torch.randn(*lead, heads, head, device="cuda").bfloat16() for _ in range(2))
            k, v = (torch.randn(*lead, heads_kv, head, device="cuda").bfloat16() for _ in range(2))
            out, lse = tw.attention(q, k, v, return_lse=True, **lengths)
            sets.append((do, q, k, v, out, lse))
            expected.append(tw.attention_backward(*sets[-1], **lengths))
        operands = [torch.full_like(one, float("nan")) for one in sets[0]]
        results = [torch.empty_like(one) for one in expected[0]]
        for run in range(runs // len(shapes)):
            torch.cuda._sleep(200_000)  # so that all that follows is queued before it begins
            for operand, source in zip(operands, sets[run % 2], strict=True):
                operand.copy_(source)
            tw.attention_backward(*operands, dq=results[0], dk=results[1], dv=results[2], **lengths)
            dq, dk, dv = expected[run % 2]
            near = torch.allclose(results[0], dq, rtol=2**-7, atol=2**-7 * dq.abs().max().item())
            if not (near and torch.equal(results[1], dk) and torch.equal(results[2], dv)):
                wrong.append(f"shape {number}, run {run}")
    return wrong


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--only", default="", help="only cases whose name has this")
    parser.add_argument("--bits", type=int, default=0, help="runs that must have the same bits, instead of problems")
    parser.add_argument("--fresh", type=int, default=0, help="calls on operands written right before them")
    options = parser.parse_args()
    if why := driver.why_unavailable():
        raise SystemExit(f"no NVIDIA GPU: {why}")
    from tilewright.runtime import cuda

    began = time.perf_counter()
    if options.bits:
        wrong = same_bits(options.bits, options.seed)
        say(f"{options.bits} deterministic runs beside load: {'the same bits' if not wrong else wrong[:10]}")
        raise SystemExit(1 if wrong else 0)
    if options.fresh:
        wrong = fresh_operands(options.fresh, options.seed)
        say(f"{options.fresh} calls on operands written right before: {'right' if not wrong else wrong[:10]}")
        raise SystemExit(1 if wrong else 0)
    problems = draw(options.seed, options.count, driver.available_archs()[0], options.only)
    told: dict[str, list[tuple[str, float]]] = {}
    for (name, spec, one), text, ratio in proven(problems, options.seed, cuda.device()):
        told.setdefault(f"{name:20} {spec.name}", []).append((f"{text} | {one!r}" if text else "", ratio))
    bad = 0
    for kernel, answers in sorted(told.items()):
        wrongs = [text for text, _ in answers if text]
        bad += len(wrongs)
        most = max(ratio for _, ratio in answers)
        say(f"{'WRONG' if wrongs else 'right'} {len(answers):3} problems, {most:5.2f} of the bound: {kernel}")
        for text in wrongs[:3]:
            say(f"      {text}")
    seconds = time.perf_counter() - began
    counted = f"{len(problems)} problems of {len(told)} kernels, seed {options.seed}"
    say(f"{counted}: {bad} wrong, {seconds:.0f} s with building")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
