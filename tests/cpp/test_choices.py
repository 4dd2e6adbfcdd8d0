"""Pins of a lock file and measurements go along to C++: the same kernel, by the same tier, as in Python."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.cpp import programs
from tests.cpp.test_devices import LIBRARIES, stub
from tests.cpp.test_same_choice import apart, line, particular, problem, stages_of
from tilewright import ops, settings
from tilewright.arch.host import l2_bytes
from tilewright.backends.cuda import driver as cuda_driver
from tilewright.backends.driver import driver_line
from tilewright.backends.hip import driver as hip_driver
from tilewright.dispatch import exported_choices, locks, registry_json
from tilewright.dispatch import records as records_module
from tilewright.dispatch.records import Record, Timing, records
from tilewright.errors import NoKernelError
from tilewright.native.judge import native_kernels
from tilewright.ops.base import plain

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

THREADS = 3
TARGET = "generic"


def chosen(folder: Path, data: dict[str, Any], problems: list[Any]) -> list[list[str]]:
    """What C++ says: digest, tier and seconds."""
    (folder / "registry.json").write_text(registry_json.written(data))
    chooser = programs.program(programs.CPP / "tests" / "choose.cpp", folder / "choose")
    words = (str(chooser), str(folder / "registry.json"), str(THREADS), str(l2_bytes()))
    return [row.split() for row in programs.call(*words, input="\n".join(map(line, problems)) + "\n").splitlines()]


def problems() -> list[Any]:
    return [
        tw.GemmProblem(m=33, n=65, k=70, layout="rcr"),
        tw.ConvProblem(2, 8, 16, (14, 14), (3, 3)),
        tw.AttentionProblem(1, 4, 40, 50, 64),
    ]


def others(problem: Any) -> tuple[Any, Any]:
    """The same problem with gaps between rows, which shares its choice, and another size, which does not."""
    if problem.op == "gemm":
        return replace(problem, a_stride=80, c_stride=72), replace(problem, m=34, a_stride=0, b_stride=0, c_stride=0)
    if problem.op == "conv":
        wider = (14 * 14 * 9, 14 * 9, 9, 1)
        return replace(problem, x_strides=wider), tw.ConvProblem(3, 8, 16, (14, 14), (3, 3))
    return replace(problem, q_strides=(40 * 300, 300, 64)), tw.AttentionProblem(1, 4, 41, 50, 64)


def registry_data(registry: tw.Registry, rows: list[dict[str, Any]]) -> dict[str, Any]:
    libraries = {}
    for spec in registry.specs():
        kernels = native_kernels((spec,))
        assert kernels is not None
        library = registry_json.selection_library(kernels)
        if library is None:
            pytest.skip("the selection library cannot be had here")
        libraries[kernels.set_name] = library
    return registry_json.to_dict(registry.specs(), registry.target, libraries, rows)


def slowest(registry: tw.Registry, problem: Any) -> Any:
    """A kernel that serves a problem and that estimates would not take."""
    times = registry.times(problem, THREADS)
    return max(times, key=lambda pair: (pair[1], pair[0].digest))[0]


def test_pins_of_a_lock_file(tmp_path: Path) -> None:
    registry = programs.registry_of(TARGET, problems())
    specs = [slowest(registry, problem) for problem in problems()]
    both = zip(problems(), specs, strict=True)
    pins = [locks.pin(ops.op(one.op), TARGET, one, spec, alone=True) for one, spec in both]
    locks.write(tmp_path / "lock.json", pins)
    rows = exported_choices.choices(registry.specs(), TARGET, tmp_path / "lock.json")
    assert len(rows) == 3
    asked = [each for problem in problems() for each in (problem, *others(problem))]
    answers = chosen(tmp_path, registry_data(registry, rows), asked)
    with settings.override(lock=str(tmp_path / "lock.json"), measure=False, models=False):
        for at, problem in enumerate(problems()):
            mine = registry.select_stage(problem, threads=THREADS)
            exact, with_gaps, other = answers[3 * at : 3 * at + 3]
            assert [mine.spec.digest, mine.tier] == exact[:2] == with_gaps[:2] == [specs[at].digest, "locked"]
            assert float(exact[2]) == mine.seconds
            assert other[1] == "heuristic"


def test_pins_speak_for_their_families(tmp_path: Path) -> None:
    registry = programs.registry_of(TARGET, problems())
    pins = [locks.pin(ops.op(one.op), TARGET, one, slowest(registry, one)) for one in problems()]
    locks.write(tmp_path / "lock.json", pins)
    rows = exported_choices.choices(registry.specs(), TARGET, tmp_path / "lock.json")
    draw = random.Random(25)
    drawn = [problem(draw, op, TARGET) for op in ("gemm", "conv", "attention") for _ in range(40)]
    drawn += [other for each in problems() for other in others(each)]
    known = {ops.op(each.op).signature_of(each) for each in problems()}
    whole = [each for each in drawn if len(stages_of(each, TARGET)) == 1]
    asked = [each for each in whole if ops.op(each.op).signature_of(stages_of(each, TARGET)[0]) in known]
    answers = chosen(tmp_path, registry_data(registry, rows), asked)
    tiers = Counter[str]()
    with settings.override(lock=str(tmp_path / "lock.json"), measure=False, models=False):
        for each, answer in zip(asked, answers, strict=True):
            mine = registry.select_stage(stages_of(each, TARGET)[0], threads=THREADS)
            assert [mine.spec.digest, mine.tier] == answer[:2], each
            tiers[mine.tier] += 1
    assert tiers["locked"] > 3


def _loose_convolutions() -> list[Any]:
    """What kernels of dense memory take in copies only, or, channels first, not at all."""
    conv = tw.ConvProblem(2, 64, 64, (14, 14), (3, 3), dtype="bf16")
    loose: dict[str, Any] = {f"{name}_strides": apart(conv, name) for name in "xwy"}
    other = tw.ConvProblem(2, 64, 64, (15, 14), (3, 3), dtype="bf16", aligned=False)
    first = replace(conv, x_strides=(64 * 196, 14, 1, 196))
    unaligned = replace(conv, aligned=False)
    return [replace(conv, **loose), replace(unaligned, **loose), unaligned, other, first]


def _odd_products() -> list[Any]:
    return [tw.GemmProblem(m=m, n=90, k=k, layout="rcr") for m in (50, 91, 95, 97) for k in (96, 50)]


def in_python(registry: tw.Registry, problem: Any) -> tuple[str, str, float, bool]:
    """Digest, tier, seconds, and whether it is pinned and in copies."""
    try:
        mine = registry.select_stage(problem, threads=THREADS)
    except NoKernelError as error:
        return "refused", str(error.rule), 0.0, False
    return mine.spec.digest, mine.tier, mine.seconds, mine.tier == "locked" and mine.padded is not None


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("target", ["x86_64_v3", "sm_80", "sm_90a", "gfx942"])
def test_pins_in_copies(target: str, alone: bool, tmp_path: Path) -> None:
    """What is pinned is kept in padded copies where the kernel does not take the operands as they lie."""
    whole: Any = tw.GemmProblem(m=96, n=96, k=96, layout="rcr")
    asked = _odd_products()
    if target == "x86_64_v3":
        registry = whole_tiles(target, whole)
    else:
        whole, asked = tw.ConvProblem(2, 64, 64, (14, 14), (3, 3), dtype="bf16"), _loose_convolutions()
        registry = particular(target, [whole])
    op = ops.op(whole.op)
    specs = [spec for spec in registry.specs() if op.supports(spec, asked[0])]
    both = ((whole, specs[0]), (asked[0], specs[-1]))
    locks.write(tmp_path / "lock.json", [locks.pin(op, target, one, spec, alone=alone) for one, spec in both])
    rows = exported_choices.choices(registry.specs(), target, tmp_path / "lock.json")
    answers = chosen(tmp_path, registry_data(registry, rows), [whole, *asked])
    with settings.override(lock=str(tmp_path / "lock.json"), measure=False, models=False):
        wanted = [in_python(registry, each) for each in (whole, *asked)]
    assert [(digest, tier, float(seconds)) for digest, tier, seconds in answers] == [each[:3] for each in wanted]
    assert any(pinned for *_, pinned in wanted)


def whole_tiles(target: str, problem: Any) -> tw.Registry:
    """Kernels of GEMM without edge code."""
    known = programs.registry_of(target, [problem], "tiny")
    plain_tiles = (replace(spec.schedule, pad=(False, False, False)) for spec in known.specs())
    return tw.Registry(
        target, [replace(spec, schedule=tile) for spec, tile in zip(known.specs(), plain_tiles, strict=True)]
    )


def test_measurements_of_this_machine(tmp_path: Path) -> None:
    registry = programs.registry_of(TARGET, problems())
    with settings.override(cache_dir=tmp_path / "store", models=False, measure=True):
        for problem in problems():
            spec = slowest(registry, problem)
            timing = Timing(spec.digest, spec.name, spec.to_dict(), 1.25e-5, 0.0, 0.1)
            form = plain(ops.op(problem.op).measured_as(problem))
            records().put(Record(problem.op, form, THREADS, TARGET, spec.digest, (timing,), {}, {}))
        rows = exported_choices.choices(registry.specs(), TARGET, measured=True)
        expected = [registry.select_stage(problem, threads=THREADS) for problem in problems()]
    assert [row["tier"] for row in rows] == ["measured"] * 3
    assert [one.tier for one in expected] == ["measured"] * 3
    data = registry_data(registry, rows)
    answers = chosen(tmp_path, data, problems())
    assert [(row[0], row[1], float(row[2])) for row in answers] == [
        (one.spec.digest, "measured", 1.25e-5) for one in expected
    ]
    # On another machine they say nothing.
    elsewhere = json.loads(json.dumps(data).replace(json.dumps(rows[0]["machine"]["model"]), '"another CPU"'))
    assert [row[1] for row in chosen(tmp_path, elsewhere, problems())] == ["heuristic"] * 3


@pytest.mark.parametrize(("backend", "target"), [("cuda", "sm_90a"), ("hip", "gfx942")])
def test_measurements_of_a_gpu(backend: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name the driver's version too, which C++ asks the driver for: here a stub of it."""
    stub(backend, tmp_path / LIBRARIES[backend])
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    version, module = {"cuda": ("CUDA 12.8", cuda_driver), "hip": ("HIP 6.4.43484", hip_driver)}[backend]
    identity = {"model": {"cuda": "a stub of CUDA", "hip": "a stub of HIP"}[backend], "arch": target,
                "compute_units": {"cuda": 132, "hip": 304}[backend], "memory_bytes": 1 << 20,
                "driver": driver_line(version, module.MODULE_FILE)}  # fmt: skip
    monkeypatch.setattr(records_module, "_identity", lambda _: identity)
    large = tw.GemmProblem(m=512, n=512, k=512, dtype_a="fp16", dtype_b="fp16", layout="rcr")
    registry = programs.registry_of(target, [large])
    spec = slowest(registry, large)
    timing = Timing(spec.digest, spec.name, spec.to_dict(), 1.25e-5, 0.0, 0.1)
    with settings.override(cache_dir=tmp_path / "store", models=False, measure=True):
        form = plain(ops.op("gemm").measured_as(large))
        records().put(Record("gemm", form, 0, target, spec.digest, (timing,), {}, {}))
        rows = exported_choices.choices(registry.specs(), target, measured=True)
        mine = registry.select_stage(large, threads=THREADS)
    assert (mine.tier, mine.spec.digest) == ("measured", spec.digest)
    data = registry_data(registry, rows)
    digest, tier, seconds = chosen(tmp_path, data, [large])[0]
    assert (digest, tier, float(seconds)) == (spec.digest, "measured", 1.25e-5)
    rows[0]["machine"]["driver"] = "another"
    assert chosen(tmp_path, registry_data(registry, rows), [large])[0][1] == "heuristic"


def test_a_pin_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    target = "x86_64_v3"  # of whose kernels some are for a few rows; nothing is run
    large = tw.GemmProblem(m=500, n=65, k=70, layout="rcr")
    registry = programs.registry_of(target, [large])
    refusing = [spec for spec in registry.candidates(large, serving=False) if ops.op("gemm").supports(spec, large)]
    assert refusing
    pin = locks.pin(ops.op("gemm"), target, large, refusing[0])
    locks.write(tmp_path / "lock.json", [pin])
    rows = exported_choices.choices(registry.specs(), target, tmp_path / "lock.json")
    data = registry_data(registry, rows)
    assert chosen(tmp_path, data, [large])[0][1] == "lock-stale"
    pinned = settings.override(lock=str(tmp_path / "lock.json"), measure=False, models=False)
    with pinned, pytest.raises(NoKernelError) as refused:
        registry.select_stage(large, threads=THREADS)
    assert refused.value.rule == "lock-stale"
