"""A lock file pins problems to kernels: two machines, or two versions, then select the same ones.

`tilewright lock` writes it; the setting `lock` (TILEWRIGHT_LOCK) uses it before measurements, models and estimates.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device

given = options(__doc__, m=40, n=56, k=72)
problem = tw.GemmProblem(m=given.m, n=given.n, k=given.k)
registry = tw.Registry()
sizes = [word for name in ("m", "n", "k") for word in (f"--{name}", str(getattr(given, name)))]

with tempfile.TemporaryDirectory() as folder:
    lock = Path(folder) / "tilewright.lock"
    command = [sys.executable, "-m", "tilewright", "lock", "gemm", *sizes, "--file", str(lock)]
    subprocess.run([*command, "--target", registry.target], check=True, capture_output=True)
    pins = json.loads(lock.read_text(encoding="utf-8"))
    print(f"{len(pins['pins'])} pin, {len(pins['kernels'])} kernel: {next(iter(pins['kernels'].values()))['name']}")

    with tw.settings.override(lock=str(lock)):
        selection = registry.select(problem)
        print(f"tier {selection.tier}: {selection.reason}")
        rng = np.random.default_rng(8)
        a, b = normal(rng, given.m, given.k), normal(rng, given.k, given.n)
        check("the locked kernel", tw.gemm(*to_device(a, b)), a.astype(np.float64) @ b)
        if selection.tier != "locked" or selection.stages[0].spec.digest not in pins["kernels"]:
            sys.exit("the lock file was not used")

    # Frozen as well: a problem of no pinned family is refused, and nothing is compiled.
    with tw.settings.override(lock=str(lock), frozen=True):
        try:
            registry.select(tw.GemmProblem(m=1, n=4096, k=64, dtype_a="fp16"))
        except tw.errors.NoKernelError as error:
            print(f"frozen: [{error.rule}]")
        else:
            sys.exit("a problem that is not pinned was accepted")
