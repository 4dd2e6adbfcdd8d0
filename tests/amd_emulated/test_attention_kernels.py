"""CK Tile's attention kernels executed in the emulator, every family of them, against the float64 reference.

Results go to build/amd_emulated_attention.json, and from there into the table of docs/reports/amd.md.  Seeds are
fresh each run unless CATALOG_SEED names one; a failure says which it was.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.amd_emulated.attention.catalog import Case, cases, drawn
from tests.amd_emulated.attention.drawing import Drawn
from tests.amd_emulated.workers import ROOT, Workers
from tilewright.build import Builder

SEED = int(os.environ.get("CATALOG_SEED") or random.SystemRandom().randrange(1 << 20))
DRAWN = 6  # problems beside those of the catalogue
LIMIT = 240.0  # seconds of one problem
Row = dict[str, Any]


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """What was executed; written as one file where something was."""
    found: list[Row] = []
    yield found
    if found:
        place = ROOT / "build" / "amd_emulated_attention.json"
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps({"seed": SEED, "seqlen_q": found}, indent=1) + "\n", encoding="utf-8")


@pytest.mark.parametrize("case", cases(), ids=lambda one: str(one.label))
def test_kernel(case: Case, workers: Workers, rows: list[Row]) -> None:
    spec = case.spec
    library = Builder().build_one(spec).path
    problems = [case.problem, *case.more, *drawn(case, SEED, DRAWN)]
    asked = [Drawn(one, seed=SEED + index) for index, one in enumerate(problems)]
    results = [workers.prove_drawn(spec, library, one, must_serve=True, limit=LIMIT) for one in asked]
    rows.append({"shows": case.shows, "arch": case.arch, "kernel": spec.name, "results": results})
    wrong = [f"{one['label']}: {one['detail']}" for one in results if one["verdict"] != "right"]
    assert not wrong, f"{spec.name}, seed {SEED}:\n" + "\n".join(wrong)
