"""Results for a report: drawn by a seed, with an oracle of plain loops beside them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright import ops
from tilewright.dispatch.results import FAILURES, OK, Choice, KernelRow, Result, Results, canonical, digest_of
from tilewright.ops.base import plain
from tilewright.ops.gemm import GemmProblem

SEED = 1915
MACHINE = {"kind": "host", "model": "a CPU of the tests", "cores": 2, "fingerprint": "f00d"}
# What would do harm if any of it were taken for markup, a URL or the end of the data.
HOSTILE = (
    "</script><script>window.harm = 1</script>",
    "<img src=x onerror='window.harm = 1'>",
    "--><svg/onload=window.harm=1>",
    "\"'`${window.harm = 1}\\u003cb\u2028\u202e\ud800&lt;i&gt;",
)

SIZES = [(m, n, k) for m in (1, 8, 96, 640) for n in (64, 512) for k in (64, 300, 1024)]


def kernels() -> list[KernelRow]:
    """Kernels of this version, and one whose name means harm and whose spec nobody can read."""
    op = ops.op("gemm")
    signature = op.signature_of(problem(SIZES[0]))
    found = [KernelRow(one.digest, one.name, one.arch, one.to_dict())
             for arch, count in (("x86_64_v3", 5), ("generic", 1))
             for one in op.candidates(signature, arch)[:count]]  # fmt: skip
    odd = {"arch": "x86_64_v3", "odd": True}
    return [*found, KernelRow(digest_of(canonical(odd)), HOSTILE[0], "x86_64_v3", odd)]


def problem(sizes: tuple[int, int, int]) -> GemmProblem:
    return GemmProblem(m=sizes[0], n=sizes[1], k=sizes[2], dtype_a="fp32", dtype_b="fp32", dtype_c="fp32")


def results(seed: int = SEED) -> list[Result]:
    draw = random.Random(seed)
    hostile = list(HOSTILE)
    found = []
    for sizes in SIZES:
        one = problem(sizes)
        for kernel in kernels():
            shared: dict[str, Any] = {"method": {"rounds": 5}, "versions": {"tilewright": "x"}, "date": 1.7e9}
            if draw.random() < 0.12:
                status = "crashed" if hostile else draw.choice(FAILURES)
                reason = hostile.pop() if hostile else f"it was {status}"
                found.append(Result("gemm", plain(one), MACHINE, 2, kernel, status, reason=reason, **shared))
                continue
            seconds = one.flops / 1e10 * draw.uniform(1, 3) + 1e-6
            found.append(Result("gemm", plain(one), MACHINE, 2, kernel, OK, seconds, 0.01, 0.5, 9, 0.0, **shared))
    return found


def other_op() -> list[Result]:
    """Of an op that is not installed here, with fields of its own."""
    found = []
    for size in (1, 2, 3):
        for kernel in (KernelRow("k1", "sums_a", "none", {}), KernelRow("k2", "sums_b", "none", {})):
            fields = {"length": size, "mode": HOSTILE[1], "nested": {"x": [1, None]}}
            found.append(Result("sums", fields, {"model": HOSTILE[2], "fingerprint": "x"}, 0, kernel, OK, size * 1e-6))
    return found


def store(folder: Path, more: Sequence[Result] = ()) -> Path:
    path = folder / "made.db"
    made = results()
    first = next(one for one in made if one.status == OK)
    choice = Choice("gemm", first.problem, MACHINE, 2, "x86_64_v3", first.kernel.digest, 1.7e9)
    with_store = Results(path)
    with_store.put([*made, *more], [choice])
    with_store.close()
    return path


def fastest(given: Sequence[Result]) -> dict[str, Result]:
    """The fastest right row of each problem."""
    best: dict[str, Result] = {}
    for one in given:
        key = repr(sorted(one.problem.items(), key=lambda pair: pair[0]))
        if one.status == OK and (key not in best or (one.seconds or 0) < (best[key].seconds or 0)):
            best[key] = one
    return best


def wins(given: Sequence[Result]) -> dict[str, int]:
    found = dict.fromkeys((one.kernel.name for one in given), 0)
    for one in fastest(given).values():
        found[one.kernel.name] += 1
    return found
