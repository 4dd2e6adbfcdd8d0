"""First calls in processes of their own, the store filled: what each part takes, on the clock and of processors.

The parts: `interpreter` (from its start to the first line), `library` (the import of NumPy or PyTorch), `context`
(CUDA's own, begun by PyTorch; 0 on the CPU), and what is ours: `import` (`import tilewright`) and `call`, the first
call, which imports all the rest; its result is waited for.  `ours` is those two together, beside what a program waits
for anyhow.

Python's bytecode is there, as it is for an installed package: it lies in a folder of its own, filled by a first process
that is not counted, whatever PYTHONDONTWRITEBYTECODE says.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from tilewright import settings

PARTS = ("interpreter", "library", "context", "import", "call")
_CODE = """
import time
marks = [(float({start!r}), 0.0)]
def mark():
    marks.append((time.clock_gettime(time.CLOCK_MONOTONIC), time.process_time()))
mark()
import {library}
mark()
{context}
mark()
operands = {operands}
{wait}
skipped = time.clock_gettime(time.CLOCK_MONOTONIC) - marks[-1][0], time.process_time() - marks[-1][1]
import tilewright as tw
mark()
tw.{op}(*operands, **{keywords!r})
{wait}
mark()
parts = [[now - then for now, then in zip(this, last)] for last, this in zip(marks, marks[1:])]
parts[3] = [part - skip for part, skip in zip(parts[3], skipped)]
print(*(1e3 * part[0] for part in parts), *(1e3 * part[1] for part in parts))
"""
_OPERANDS = {
    "cpu": "[numpy.ones(shape, numpy.float32) for shape in {shapes!r}]",
    "cuda": "[torch.ones(shape, dtype=torch.bfloat16, device='cuda') for shape in {shapes!r}]",
}


def _environment(bytecode: str) -> dict[str, str]:
    environment = {**settings.environment(), "TILEWRIGHT_MISSING": "best_built", "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _run(op: str, shapes: Sequence[Sequence[int]], keywords: dict[str, Any], device: str, bytecode: str) -> list[float]:
    on_gpu = device == "cuda"
    code = _CODE.format(
        start=str(time.clock_gettime(time.CLOCK_MONOTONIC)),
        library="torch" if on_gpu else "numpy",
        context="torch.zeros(1, device='cuda'); torch.cuda.synchronize()" if on_gpu else "",
        operands=_OPERANDS[device].format(shapes=[tuple(shape) for shape in shapes]),
        op=op,
        keywords=keywords,
        wait="torch.cuda.synchronize()" if on_gpu else "",
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=_environment(bytecode), capture_output=True, text=True, check=True
    )
    return [float(word) for word in done.stdout.split()]


def measure(
    op: str, shapes: Sequence[Sequence[int]], keywords: dict[str, Any], device: str, rounds: int
) -> dict[str, Any]:
    """Least and median of each part in milliseconds; `cpu` is what processors spent on it."""
    with tempfile.TemporaryDirectory() as bytecode:
        rows = [_run(op, shapes, keywords, device, bytecode) for _ in range(rounds + 1)][1:]
    parts: dict[str, Any] = {"rounds": rounds, "load": os.getloadavg()[0]}
    for at, name in enumerate(PARTS):
        parts[f"{name}_ms"] = _figures([row[at] for row in rows])
        parts[f"{name}_cpu_ms"] = _figures([row[len(PARTS) + at] for row in rows])
    parts["ours_ms"] = _figures([row[3] + row[4] for row in rows])
    parts["ours_cpu_ms"] = _figures([row[len(PARTS) + 3] + row[len(PARTS) + 4] for row in rows])
    return parts


def _figures(milliseconds: list[float]) -> dict[str, float]:
    return {"least": min(milliseconds), "median": statistics.median(milliseconds)}


def told(parts: dict[str, Any]) -> str:
    """One line: each part on the clock, least and median, and of processors."""
    words = [
        f"{name} {parts[f'{name}_ms']['least']:.1f} ({parts[f'{name}_ms']['median']:.1f}; "
        f"processors {parts[f'{name}_cpu_ms']['least']:.1f})"
        for name in (*PARTS, "ours")
    ]
    return f"cold process, ms, least (median): {', '.join(words)}"
