"""Compiled AMD kernels, executed: every pipeline, dtype, layout, store, fused operation and GPU of the catalog.

`make test-amd-emulated` runs these; without a toolchain or an emulator they are skipped, saying so.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.amd_emulated.catalog import Case, cases
from tests.amd_emulated.emulator import MODELLED
from tests.amd_emulated.proof import calls
from tests.amd_emulated.results import Results
from tests.amd_emulated.waits import touched_early
from tests.amd_emulated.workers import ROOT, Workers
from tests.backends.hip.gemm import names as amd
from tilewright.backends.base import backend
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.hip.ck_tile_shape import prefetch_stages
from tilewright.build import Builder
from tilewright.errors import TilewrightError
from tilewright.ops.gemm import legality


@pytest.mark.parametrize("case", cases(), ids=lambda one: one.label)
def test_the_kernel_computes_what_the_reference_does(case: Case, workers: Workers, results: Results) -> None:
    spec = case.spec
    record: dict[str, Any] = {
        "name": spec.name,
        "arch": spec.arch,
        "compiler": backend("hip").toolchain().identity.version,
    }
    started = time.perf_counter()
    try:
        artifact = Builder().build_one(spec)
    except TilewrightError as error:
        results.put(case.label, {**record, "compiled": False, "detail": str(error)[:500], "results": []})
        raise
    record["build_seconds"] = round(time.perf_counter() - started, 1)
    seed = secrets.randbelow(2**31)  # fresh numbers every run; a failure names its seed
    try:
        found = workers.prove(spec, artifact.path, calls(spec), seed)
    except AssertionError as error:
        results.put(case.label, {**record, "compiled": True, "detail": str(error), "results": [], "seed": seed})
        raise
    results.put(case.label, {**record, "compiled": True, "results": found["results"], "seed": seed})
    wrong = [f"{one['why']} ({one['sizes']}): {one['detail']}" for one in found["results"] if not one["ok"]]
    assert not wrong, f"{spec.name}, seed {seed}:\n" + "\n".join(wrong)
    assert found["results"], "nothing was executed"
    assert touched_early(spec, artifact.path) == ""


@pytest.mark.parametrize("label", ["MultiDAdd, one D", "direct MultiDAdd fp16", "split-K MultiDAdd bf16"])
def test_operands_of_the_store_may_span_more_than_4_gib(label: str, workers: Workers) -> None:
    spec = next(one.spec for one in cases() if one.label == label)
    library = Builder().build_one(spec).path
    request = {"spec": json.loads(spec.to_json()), "library": str(library), "seed": secrets.randbelow(2**31)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.amd_emulated.far"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=workers.environment(),
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), f"seed {request['seed']}: {done.stdout} {done.stderr[-2000:]}"


def test_the_catalog_holds_only_legal_kernels_and_misses_nothing() -> None:
    every = [one.spec for one in cases()]
    assert not [(one.name, broken) for one in every for broken in legality.check(one)]
    assert {one.arch for one in every} == set(MODELLED)
    loops = [one for one in every if isinstance(one.schedule, GpuLoopsSchedule)]
    assert {one.arch for one in loops} == set(MODELLED)
    assert {one.signature.layout for one in loops} == {"rcr", "rrr", "crr", "ccr"}
    held = [one for one in every if one not in loops]
    for pipeline in ("mem", "compv3", "compv4", "compv5", "preshuffle"):
        mine = [one for one in held if one.schedule.pipeline == pipeline]
        kinds = {one.signature.dtype_a.removesuffix("fnuz").removesuffix("_e4m3") for one in mine}
        assert kinds >= {"fp16", "bf16", "int8", "fp8", "fp32"}, pipeline
        if pipeline not in ("compv5", "preshuffle"):  # those two have one layout
            assert {one.signature.layout for one in mine} == {"rcr", "rrr", "crr", "ccr"}, pipeline
            assert {one.schedule.store for one in mine} == {"cshuffle", "direct"}, pipeline
    assert {one.arch for one in held if one.signature.dtype_a == "fp32"} == {"gfx90a", "gfx942", "gfx950"}
    epilogues = {one.signature.epilogue for one in held}
    assert epilogues == {
        "PassThrough", "MultiDAdd", "MultiDMultiply", "Relu", "Gelu", "FastGelu", "Silu", "Sigmoid", "Tanh"
    }  # fmt: skip
    assert {one.schedule.scheduler for one in held} == {"intrawave", "interwave", "default"}
    stages = {prefetch_stages(one.signature, one.schedule) for one in held if one.schedule.pipeline == "mem"}
    assert 8 in stages  # that kernel has every tail there is
    split = {one.signature.dtype_c for one in held if one.schedule.split_k > 1}
    assert split == {"fp16", "bf16", "int32", "fp32"}
    persistent = {one.schedule.pipeline for one in held if one.schedule.persistent}
    assert persistent == set(amd.PERSISTENT)
    mixed = {one.schedule.pipeline for one in held if one.signature.dtype_a != one.signature.dtype_b}
    assert mixed == {"compv4", "compv5", "preshuffle"}  # the others are refused
    assert len({case.label for case in cases()}) == len(every)
