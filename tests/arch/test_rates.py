"""Constants of estimates: as they were fitted on one arch, and scaled to every other by what its entry says."""

from __future__ import annotations

import ast
import copy
import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tilewright
from tilewright.arch import all_archs, arch, fitted, parse_archs
from tilewright.arch.rates import (
    ComputeUnits,
    Cycles,
    Launch,
    Memory,
    Units,
    UnitWgmma,
    scaled,
)
from tilewright.backends.base import op_kernels
from tilewright.backends.cpu.conv.rates import Constants as CpuConvConstants
from tilewright.backends.cuda.conv import rates as conv_rates
from tilewright.backends.cuda.gemm import rates as gemm_rates
from tilewright.errors import InternalError

NVIDIA = [name for name, entry in all_archs().items() if entry.family == "nvidia"]


class Few(NamedTuple):
    units: ComputeUnits
    start: Launch
    barrier: Cycles
    memory: Memory
    macs: UnitWgmma
    threads: Units
    pixels: tuple[Cycles, ...]
    factor: float


VALUES = {
    "start": 4e-6,
    "barrier": 1e-7,
    "memory": 3e12,
    "macs": 2e12,
    "threads": 1e4,
    "pixels": [1.0, 2.0],
    "factor": 7,
}


def _rates(**changed: Any) -> Any:
    return replace(arch("sm_90a").rates, **changed)  # type: ignore[type-var]


def test_constants_on_the_arch_they_were_fitted_on_are_the_numbers_of_the_table() -> None:
    text = resources.files("tilewright.arch").joinpath("fits.json").read_text(encoding="utf-8")
    table = json.loads(text)["fits"]["sm_90a"]["conv"]
    constants = conv_rates.constants("sm_90a")
    assert table == {
        name: list(v) if isinstance(v, tuple) else v for name, v in constants._asdict().items() if name in table
    }
    assert constants.units == 132


def test_a_cpu_that_starts_two_multiply_adds_in_a_cycle_has_rates_of_its_own() -> None:
    def constants(name: str) -> CpuConvConstants:
        return fitted("cpu_conv", CpuConvConstants, name)

    dual = constants("x86_64_v4_bf16")
    assert dual.multiply_dual == 0.5 * dual.multiply
    for name in ("x86_64_v3", "x86_64_v4", "x86_64_v4_vnni"):  # of these levels all CPUs count alike
        other = constants(name)
        assert (other.multiply_dual, other.single_dual) == (other.multiply, other.single)


def test_constants_scale_with_the_rates_they_depend_on() -> None:
    hopper = arch("sm_90a")
    other = replace(
        hopper,
        name="sm_half",
        compute_units=66,
        rates=_rates(launch=8e-6, clock=0.99e9, memory=2.4e12, wgmma={"fp16": 9.89e14}),
    )
    constants = scaled(Few, VALUES, hopper, other)
    assert constants.pixels == pytest.approx((2.0, 4.0))
    assert constants._replace(pixels=()) == (66, 8e-6, 2e-7, 1.5e12, 4e12, 5e3, (), 7.0)


def test_without_warpgroup_instructions_those_of_a_warp_count() -> None:
    hopper = arch("sm_90a")
    mma = dict(hopper.rates.mma) if hopper.rates else {}
    constants = scaled(Few, VALUES, hopper, replace(hopper, name="sm_other", rates=_rates(wgmma=None)))
    assert constants.macs == pytest.approx(2e12 * mma["fp16"] / 9.89e14)


@pytest.mark.parametrize("name", NVIDIA)
def test_every_nvidia_arch_has_all_constants(name: str) -> None:
    constants: Any
    for constants in (conv_rates.constants(name), fitted("conv_gather", conv_rates.GatherConstants, name)):
        assert constants.units == arch(name).compute_units
        assert all(value > 0 for value in constants if not isinstance(value, tuple))


@pytest.mark.parametrize("name", NVIDIA)
def test_constants_of_gemm_are_scaled_inside_too(name: str) -> None:
    constants, hopper = gemm_rates.constants(name), gemm_rates.constants("sm_90a")
    clock = arch(name).rates.clock / arch("sm_90a").rates.clock  # type: ignore[union-attr]
    assert constants.plain.issue == pytest.approx(hopper.plain.issue * clock)
    assert constants.soft == hopper.soft, "what is no property of a device stays"


def test_a_slower_device_takes_longer() -> None:
    ampere, hopper = conv_rates.constants("sm_80"), conv_rates.constants("sm_90a")
    assert ampere.memory < hopper.memory
    assert ampere.band_macs < hopper.band_macs
    assert ampere.band_tile > hopper.band_tile


def test_a_fit_that_is_not_what_the_estimate_asks_for_is_an_error() -> None:
    with pytest.raises(InternalError, match="differ in barrier, swing"):
        scaled(Few, {**{k: v for k, v in VALUES.items() if k != "barrier"}, "swing": 1}, arch("sm_90a"), arch("sm_80"))
    with pytest.raises(InternalError, match="no arch has a fit of 'nothing'"):
        fitted("nothing", Few, "sm_90a")


def test_an_arch_without_rates_is_told_to_have_some() -> None:
    with pytest.raises(InternalError) as caught:
        scaled(Few, VALUES, arch("sm_90a"), replace(arch("sm_80"), rates=None))
    assert "sm_80 has no rates" in str(caught.value)
    assert "`rates`" in caught.value.remedy


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("memory", "fast", "rates.memory: 'fast' should be a valid number"),
        ("memory", -1.0, "-1.0 is not a positive number"),
        ("mma", 3.0, "rates.mma: 3.0 should be an object"),
        ("memry", 3.0, "did you mean 'memory'"),
    ],
)
def test_mistakes_in_rates_are_named(field: str, value: object, expected: str) -> None:
    text = resources.files("tilewright.arch").joinpath("specs.json").read_text(encoding="utf-8")
    table = copy.deepcopy(json.loads(text))
    table["archs"]["sm_80"]["rates"][field] = value
    with pytest.raises(InternalError) as caught:
        parse_archs(table)
    assert "sm_80" in str(caught.value)
    assert expected in str(caught.value)


def test_no_estimate_of_a_backend_has_numbers_of_its_own() -> None:
    """What costs are counted in stands in the arch table: a file of rates declares names, and what each scales with."""
    files = sorted((Path(tilewright.__file__).parent / "backends").glob("*/*/rates.py"))
    assert len(files) == 12, "one for each op on each backend that has kernels of it"
    assert _numbers("MEMORY = 3.0e12\nSHARE = {'mem': 0.4}\nUNITS = 132") == [3.0e12, 132, 0.4]
    found = {str(path): _numbers(path.read_text(encoding="utf-8")) for path in files}
    assert not {path: numbers for path, numbers in found.items() if numbers}


def _numbers(text: str) -> list[float]:
    """Numbers in code but 0 and 1, and how much a cache keeps."""
    tree = ast.parse(text)
    kept = {one.value for one in ast.walk(tree) if isinstance(one, ast.keyword) and one.arg == "maxsize"}
    nodes = (one for one in ast.walk(tree) if isinstance(one, ast.Constant) and one not in kept)
    return [one.value for one in nodes if isinstance(one.value, (int, float)) and one.value not in (0, 1)]


@pytest.mark.parametrize("op", ["gemm", "conv", "attention"])
def test_costs_on_amd_follow_the_rates_of_the_arch(op: str) -> None:
    """Memory half as fast is half as fast in costs; an arch without rates counts with those of the fit."""
    native: Any = op_kernels("hip", op).native  # type: ignore[attr-defined]
    usual, other, bare = (arch(name) for name in ("gfx942", "gfx90a", "gfx1250"))
    assert usual.rates is not None
    assert other.rates is not None
    assert bare.rates is None
    name = "conv_copied" if op == "conv" else "memory"
    ratio = other.rates.memory / usual.rates.memory
    assert native.rates(other)[name] == pytest.approx(native.rates(usual)[name] * ratio)
    assert native.rates(bare)[name] == native.rates(usual)[name]


def test_constants_may_have_the_names_they_had() -> None:
    class Renamed(NamedTuple):
        sync: float
        staging: float
        memory: float

    here = arch("sm_90a")
    assert scaled(Renamed, {"meet": 1.0, "sheet": 2.0, "memory": 3.0}, here, here) == (1.0, 2.0, 3.0)
    with pytest.raises(InternalError, match="meat"):
        scaled(Renamed, {"meat": 1.0, "sheet": 2.0, "memory": 3.0}, here, here)
