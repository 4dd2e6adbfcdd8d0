"""Two sweeps on one store at the same time: both end well, and no row of either is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tilewright.dispatch.results import OK, Results

CODE = """
import sys
from pathlib import Path
from tilewright import ops
from tilewright.dispatch.results import Results
from tilewright.runtime.timing import Method
from tilewright.tune.sweep import Options, Sweep, candidates
gemm = ops.op("gemm")
first, last = int(sys.argv[2]), int(sys.argv[3])
problems = [gemm.problem({"m": size, "n": 8, "k": 8}) for size in range(first, last)]
options = Options(Method(rounds=2, sample_seconds=1e-5, seed=7), patience=0.0)
one = Sweep(gemm, "generic", Results(Path(sys.argv[1])), options)
work = one.plan(problems, candidates(gemm, "generic"))
print(work.total, flush=True)
sys.stdin.readline()  # until both are here
one.run(work, on_row=lambda row, _: print(row.kernel.digest, row.problem["m"], flush=True))
"""


def test_two_sweeps_on_one_store_lose_nothing(tmp_path: Path) -> None:
    """Their problems overlap: what both measure is there once, what one measures is there."""
    path = tmp_path / "r.db"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CODE, str(path), str(first), str(last)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )
        for first, last in ((1, 14), (7, 20))
    ]  # fmt: skip
    planned = []
    for one in started:
        assert one.stdout is not None
        planned.append(int(one.stdout.readline()))
    told: list[set[tuple[str, int]]] = []
    for one in started:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in started:
        rows = one.communicate(timeout=600)[0].splitlines()
        told.append({(digest, int(size)) for digest, size in map(str.split, rows)})
    assert [one.returncode for one in started] == [0, 0]
    assert [len(rows) for rows in told] == planned
    assert min(planned) >= 13
    store = Results(path)
    kept = [(one.kernel.digest, one.problem["m"]) for one in store.all()]
    assert set(kept) == told[0] | told[1]
    assert len(kept) == len(set(kept))
    assert all(one.status == OK for one in store.all())
    assert store.check() == []
