"""Two checkouts of Tilewright against each other: do they choose the same kernels?

    git worktree add /tmp/old COMMIT
    python benchmarks/tree_choices.py /tmp/old --random SEED [--count 5000]

Problems of all ops are drawn as the tests of the selection libraries draw them (tests/native/drawn_*.py: every dtype,
layout, stride and epilogue, and sizes from nothing to beyond every limit), half of them as `new_shapes.py` does, and
dealt to CPU, NVIDIA and AMD targets; learned models are asked as if on the device they know.  Of each choice the
kernel's digest, the tier, the seconds, the problem in copies, and what is said of it are compared, and of an error its
rule and text.  Nothing is compiled but the selection libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("x86_64_v4_bf16", "x86_64_v3", "sm_90a", "sm_90a", "sm_80", "gfx942", "gfx1100", "generic")
SHOWN = 5


def drawn(seed: int, count: int) -> list[tuple[str, Any]]:
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    import new_shapes

    from tests.native import drawn_attention, drawn_conv, drawn_gemm

    draws = {"gemm": drawn_gemm, "conv": drawn_conv, "attention": drawn_attention}
    r = random.Random(f"choices {seed}")
    found: list[tuple[str, Any]] = []
    while len(found) < count:
        op, target = r.choice(tuple(draws)), r.choice(TARGETS)
        if r.random() < 0.5:
            found.append((target, draws[op].problem(r, target)))
        else:
            target, dtype = r.choice((target, "sm_90a", "x86_64_v4_bf16")), r.choice(("fp32", "bf16"))
            found.append((target, new_shapes.stream(op, dtype, r.choice((512, 4096)), r.randrange(1 << 30), 1)[0]))
    return found


def choices(seed: int, count: int) -> list[list[Any]]:
    """What this process's tree chooses: a list of facts a problem."""
    problems = drawn(seed, count)
    import new_shapes

    from tilewright.dispatch.registry import Registry

    rows: dict[int, list[Any]] = {}
    for target in sorted(set(TARGETS)):
        registry = Registry(target)
        with new_shapes.as_trained_for(target):
            for at, (mine, problem) in enumerate(problems):
                if mine == target:
                    # Models know few numbers of threads.
                    rows[at] = [target, repr(problem), *facts(registry, problem, 1 + at % 16 if at % 4 == 0 else 2)]
    return [rows[at] for at in range(count)]


def facts(registry: Any, problem: Any, threads: int) -> list[Any]:
    from tilewright.errors import TilewrightError

    try:
        stages = registry.select(problem, threads=threads).stages
    except TilewrightError as error:
        return ["error", error.rule, str(error)]
    return ["choice", [[one.spec.digest, one.tier, one.reason, repr(one.seconds), repr(one.padded)] for one in stages]]


def of_tree(root: Path, seed: int, count: int, store: str) -> list[Any]:
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [str(root / "src"), *(one for one in others if one and Path(one).resolve() != ROOT / "src")]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TILEWRIGHT_CACHE_DIR": store}
    script = [sys.executable, __file__, "--worker", str(root), "--random", str(seed), "--count", str(count)]
    done = subprocess.run(script, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{root}:\n{done.stderr}")
    rows: list[Any] = json.loads(done.stdout)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?", help="the other checkout")
    parser.add_argument("--random", type=int, required=True, metavar="SEED")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        import tilewright

        if not Path(str(tilewright.__file__)).resolve().is_relative_to(given.worker.resolve()):
            raise SystemExit(f"{given.worker} was not what Python imported: {tilewright.__file__}")
        json.dump(choices(given.random, given.count), sys.stdout)
        return 0
    with tempfile.TemporaryDirectory() as store:
        old, new = (of_tree(root.resolve(), given.random, given.count, store) for root in (given.old, ROOT))
    different = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    tiers = Counter(one[1] for row in new if row[2] == "choice" for one in row[3])
    errors = sum(row[2] == "error" for row in new)
    told = f"{len(new)} problems, seed {given.random}: {len(different)} differ"
    print(f"{told}; stages by tier {dict(tiers)}; {errors} errors")
    for a, b in different[:SHOWN]:
        print(f"--- {a}\n+++ {b}")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
