"""The simulation behind docs/reports/scaling.md: what it must say of cases that can be worked out by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("simulate_scaling")


def run(model: Any, devices: int, **changes: Any) -> dict[str, Any]:
    known = model.Constants(**{
        "row_seconds": 1e-4, "row_bytes": 100.0, "pair_seconds": 1e-6, "pair_bytes": 10.0, "call_seconds": 2e-3,
        "call_latency": 0.0, "parcel_bytes": 1e3, **changes,
    })  # fmt: skip
    case = model.Case(devices, 100, 2_000, 1_000, 0.1, 1.0)
    found: dict[str, Any] = model.simulate(case, known, 6_000, 3)
    assert found == model.simulate(case, known, 6_000, 3), "a seed is a result"
    return found


def test_few_devices_are_busy_and_as_fast_as_they_can_be(model: Any) -> None:
    found = run(model, 4)
    assert found["devices_busy"] > 0.95
    assert found["rows_per_second"] == pytest.approx(4 / 0.1, rel=0.1)
    assert found["store_gigabytes"] == pytest.approx(200_000 * 100 / 1e9, abs=0.05)


def test_many_devices_wait_for_the_driver(model: Any) -> None:
    found = run(model, 2_000)
    assert found["driver_busy"] > 0.95
    assert found["rows_per_second"] == pytest.approx(20 / (2e-3 + 20 * 1e-4), rel=0.1)
    assert found["devices_busy"] < 0.5


def test_heavy_kernels_wait_for_the_link(model: Any) -> None:
    light, heavy = run(model, 50), run(model, 50, parcel_bytes=2e7)
    assert heavy["sending_hours"] == pytest.approx(2e7 * 100 * 50 / 1.25e9 / 3600, abs=0.01)
    assert heavy["hours"] > light["hours"]
    with pytest.raises(SystemExit, match="simulate more"):
        run(model, 50, parcel_bytes=1e9)
