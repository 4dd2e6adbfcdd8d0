"""Measurements on devices: right before fast, and believed only on the device they were made on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.runtime import fakes
from tests.runtime.fakes import FakeHip, kernel_text
from tilewright import events, ops
from tilewright.backends import driver as device_driver
from tilewright.backends.hip import driver as hip_driver
from tilewright.dispatch import records as module
from tilewright.dispatch.records import Record, Records, machine
from tilewright.errors import InternalError
from tilewright.ops.base import KernelSpec
from tilewright.runtime import cuda, hip
from tilewright.settings import current

PROBLEM = fakes.problem(64, 64, 64)
GEMM = ops.op("gemm")


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    """Records of their own, kernels from the shared store."""
    table = Records(tmp_path)
    monkeypatch.setitem(module._known, current().cache_dir, table)
    return table


def two() -> list[KernelSpec]:
    served = [one for one in GEMM.candidates(PROBLEM.signature, "gfx942") if not GEMM.supports(one, PROBLEM)]
    return served[:2]


@pytest.fixture
def registry(fake_hip: FakeHip, library_of: Callable[[str], Path]) -> tw.Registry:
    made = tw.Registry("gfx942")
    for spec in two():
        made.add_library(library_of(kernel_text(spec)))
    return made


def test_a_record_says_which_device_it_was_made_on(registry: tw.Registry, apart: Records) -> None:
    record = registry.measure(PROBLEM, rounds=2)
    kept = {"model", "arch", "compute_units", "memory_bytes", "driver", "fingerprint"}
    assert kept <= record.machine.keys()
    assert (record.machine["model"], record.machine["compute_units"]) == ("Fake Instinct", 304)
    assert record.machine["driver"].startswith("HIP 7.0.12345")
    assert Records(apart.path.parent).all()[0].machine == dict(record.machine)
    assert registry.select(PROBLEM).tier == "measured"
    assert registry.explain(PROBLEM).unused_records == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "Other Instinct"}, "model Fake Instinct there, Other Instinct here"),
        ({"units": 228}, "compute_units 304 there, 228 here"),
        ({"version": 70100000}, "driver HIP 7.0.12345"),
    ],
    ids=["model", "units", "driver"],
)
def test_a_record_of_another_gpu_is_not_used_and_explain_says_why(
    fake_hip: FakeHip, registry: tw.Registry, apart: Records, change: dict[str, Any], words: str
) -> None:
    record = registry.measure(PROBLEM, rounds=1)
    fake_hip.model(**change)
    hip_driver.forget()
    fresh = tw.Registry("gfx942", registry.specs())
    assert fresh.select(PROBLEM).tier == "heuristic"
    (why,) = fresh.explain(PROBLEM).unused_records
    assert words in why
    assert record.winner.name in why
    assert why in str(fresh.explain(PROBLEM))
    fresh.measure(PROBLEM, rounds=1)  # both are kept, each for its own device
    assert len(apart.all()) == 2
    assert tw.Registry("gfx942", registry.specs()).select(PROBLEM).tier == "measured"


def test_without_a_device_no_record_counts(fake_hip: FakeHip, registry: tw.Registry, apart: Records) -> None:
    registry.measure(PROBLEM, rounds=1)
    fake_hip.has(0)
    hip_driver.forget()
    assert machine("gfx942") == {}
    fresh = tw.Registry("gfx942", registry.specs())
    assert fresh.select(PROBLEM).tier == "heuristic"
    (why,) = fresh.explain(PROBLEM).unused_records
    assert "no device of gfx942" in why


def test_threads_of_the_host_do_not_matter_to_a_device(registry: tw.Registry, apart: Records) -> None:
    registry.measure(PROBLEM, rounds=1)
    assert {registry.select(PROBLEM, threads=count).tier for count in (1, 2, 7)} == {"measured"}
    registry.measure(PROBLEM, rounds=1)
    assert len(apart.all()) == 1


def test_a_winner_that_cannot_serve_the_strides_says_so(registry: tw.Registry, apart: Records) -> None:
    record = registry.measure(PROBLEM, rounds=1)
    odd = fakes.problem(64, 64, 64, a_stride=65)
    assert registry.select(odd).tier != "measured"
    (why,) = registry.explain(odd).unused_records
    assert record.winner.name in why
    assert "refuses" in why


def test_a_wrong_kernel_is_never_timed_on_a_device(
    fake_hip: FakeHip, library_of: Callable[[str], Path], apart: Records
) -> None:
    right, wrong = two()
    text = kernel_text(wrong).replace("sum *= args.alpha;", "sum = (sum + 1) * args.alpha;")
    assert text != kernel_text(wrong)
    registry = tw.Registry("gfx942")
    registry.add_library(library_of(kernel_text(right))).add_library(library_of(text))
    with events.recorded() as heard:
        record = registry.measure(PROBLEM, rounds=1)
    assert [one.digest for one in record.timings] == [right.digest]
    (warned,) = [one for one in heard if isinstance(one, events.Warned)]
    assert (warned.rule, wrong.name in warned.message) == ("wrong-result", True)
    alone = tw.Registry("gfx942", [wrong])
    with pytest.raises(InternalError) as caught:
        alone.measure(PROBLEM, rounds=1)
    assert caught.value.rule == "wrong-result"


def test_cuda_devices_say_their_driver(fake_cuda: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.backends.cuda import driver as cuda_driver

    monkeypatch.setattr(cuda_driver, "MODULE_FILE", tmp_path / "version")
    (tmp_path / "version").write_text("NVRM version:  Module  580.65.06  Release\nGCC version: 12\n")
    assert cuda.device().identity["driver"] == "CUDA 13.0; NVRM version: Module 580.65.06 Release"
    first = machine("sm_90a")
    (tmp_path / "version").write_text("NVRM version:  Module  590.00.01  Release\n")
    cuda_driver.forget()
    assert machine("sm_90a")["fingerprint"] != first["fingerprint"]
    assert machine()["fingerprint"] == machine("generic")["fingerprint"]
    assert device_driver.driver_line("HIP 7", tmp_path / "none") == "HIP 7"


def test_a_record_without_a_device_of_its_own_is_not_taken_for_ours(registry: tw.Registry, apart: Records) -> None:
    """As written before records knew devices: the host's fingerprint for a kernel of a device."""
    record = registry.measure(PROBLEM, rounds=1, save=False)
    apart.put(Record(**{name: getattr(record, name) for name in ("op", "problem", "threads", "target", "choice",
                     "timings", "method", "versions")}, machine=machine()))  # fmt: skip
    assert registry.select(PROBLEM).tier == "heuristic"
    (why,) = registry.explain(PROBLEM).unused_records
    assert "another device" in why
    assert hip.device().name in why
