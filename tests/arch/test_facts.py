"""The arch table: what is shipped is sound, and every mistake in it is named."""

from __future__ import annotations

import copy
import dataclasses
import json
from importlib import resources
from typing import Any

import pytest

from tilewright import settings
from tilewright.arch import (
    all_archs,
    arch,
    archs_of,
    best_host_arch,
    families,
    host,
    host_facts,
    parse_archs,
    runnable_host_archs,
)
from tilewright.errors import InternalError, RequestError, UnknownNameError


@pytest.fixture
def table() -> dict[str, Any]:
    text = resources.files("tilewright.arch").joinpath("specs.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def broken(table: dict[str, Any], name: str, field: str, value: object) -> dict[str, Any]:
    changed = copy.deepcopy(table)
    changed["archs"][name][field] = value
    return changed


def test_the_shipped_table_is_what_the_loader_gives(table: dict[str, Any]) -> None:
    assert list(all_archs()) == list(table["archs"])
    for name, one in all_archs().items():
        assert one.name == name
        assert one.family
        assert one.backend
        assert one.description
    assert parse_archs(table) == dict(all_archs())  # which demands of each entry what it demands of others' files


def test_families_are_known_without_reading_every_arch() -> None:
    whole = all_archs().values()
    assert families() == {one.family: one.backend for one in whole}
    for family in families():
        assert archs_of(family) == [one for one in whole if one.family == family]


@pytest.mark.parametrize("name", [name for name, one in all_archs().items() if one.family == "cpu"])
def test_a_cpu_arch_runs_the_kernels_of_the_archs_it_includes(name: str) -> None:
    one = arch(name)
    for other in map(arch, one.includes):
        assert one.family == other.family
        assert one.features >= other.features
        assert set(one.requires) >= set(other.requires)
        assert set(other.includes) <= set(one.includes)
        assert one.vector_bytes >= other.vector_bytes


def test_an_unknown_arch_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as caught:
        arch("x86_64_v33")
    assert caught.value.rule == "arch-name"
    assert "did you mean 'x86_64_v3'" in caught.value.remedy


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("vector_bytes", "wide", "generic, vector_bytes: 'wide' should be a valid integer"),
        ("vector_bytes", True, "generic, vector_bytes: True should be a valid integer"),
        ("vector_bytes", 3.0, "generic, vector_bytes: 3.0 should be a valid integer"),
        ("description", None, "generic, description: None should be a valid string"),
        ("includes", "generic", "generic, includes: 'generic' should be a valid array"),
        ("includes", ["nowhere"], "unknown arch 'nowhere'"),
        ("features", ["fma", 3], "generic, features[1]: 3 should be a valid string"),
        ("vector_byte", 3, "did you mean 'vector_bytes'"),
        ("name", "x", "unknown field 'name'"),
        ("warp_grids", [[1, 2]], "generic, warp_grids[0][2]: it is missing"),
        ("warp_grids", [[1, 2, "3"]], "generic, warp_grids[0][2]: '3' should be a valid integer"),
        ("warp_tiles", {"fp16": [[0, 1, 1]]}, "not all three positive integers"),
        ("warp_tiles", {"fp16": [1]}, "generic, warp_tiles.fp16[0]: 1 should be a valid array"),
        ("warp_tiles", [[1, 1, 1]], "generic, warp_tiles: [[1, 1, 1]] should be an object"),
    ],
)
def test_each_mistake_in_the_table_is_named(table: dict[str, Any], field: str, value: object, expected: str) -> None:
    with pytest.raises(InternalError) as caught:
        parse_archs(broken(table, "generic", field, value))
    assert expected in str(caught.value)
    assert "generic" in str(caught.value)
    assert caught.value.rule == "arch-schema"


def test_a_missing_field_and_another_schema_are_named(table: dict[str, Any]) -> None:
    without = copy.deepcopy(table)
    del without["archs"]["generic"]["backend"]
    with pytest.raises(InternalError, match="generic, backend: it is missing"):
        parse_archs(without)
    with pytest.raises(InternalError, match="generic, the whole of it: 3 should be an object"):
        parse_archs({"schema": 1, "archs": {"generic": 3}})
    with pytest.raises(InternalError, match="version 2"):
        parse_archs({**table, "schema": 2})


def test_an_arch_is_added_with_data_alone(table: dict[str, Any]) -> None:
    table["archs"]["new_gpu"] = {
        "family": "cdna",
        "backend": "hip",
        "description": "a GPU of a test",
        "includes": [],
        "features": ["mfma"],
        "compile_flags": [],
        "warp_size": 64,
        "warp_grids": [[2, 2, 1]],
        "warp_tiles": {"fp16_fp16_fp32": [[32, 32, 8]]},
    }
    added = parse_archs(table)["new_gpu"]
    assert added.warp_grids == ((2, 2, 1),)
    assert added.warp_tiles == {"fp16_fp16_fp32": ((32, 32, 8),)}


def test_this_machine_runs_something_and_generic_last() -> None:
    names = [one.name for one in runnable_host_archs()]
    assert names[-1] == "generic"
    assert best_host_arch().name == names[0]
    for one in runnable_host_archs():
        assert set(one.requires) <= host_facts().flags
    assert host_facts().cores >= 1
    assert host_facts().l1_bytes <= host_facts().l2_bytes


def test_a_machine_can_be_taken_for_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU that has every level: a limit takes the levels above it away, and adds none where the CPU lacks it."""
    levels = [one for one in all_archs().values() if one.family == "cpu"]
    every = frozenset(flag for one in levels for flag in one.requires)

    def runs(flags: frozenset[str], limit: str) -> list[str]:
        monkeypatch.setattr(host, "host_facts", lambda: dataclasses.replace(host_facts(), flags=flags))
        host._runnable.cache_clear()
        with settings.override(host_level=limit):
            return [one.name for one in runnable_host_archs()]

    try:
        assert runs(every, "")[0] == "x86_64_v4_bf16"
        assert runs(every, "x86_64_v4") == ["x86_64_v4", "x86_64_v3", "generic"]
        assert runs(every, "generic") == ["generic"]
        assert runs(frozenset(arch("x86_64_v3").requires), "x86_64_v4_vnni") == ["x86_64_v3", "generic"]
        assert runs(frozenset(), "x86_64_v3") == ["generic"]
        with pytest.raises(RequestError, match="no level of a CPU") as caught:
            runs(every, "gfx942")
        assert "x86_64_v3" in caught.value.remedy
        with pytest.raises(UnknownNameError, match="x86_64_v33"):
            runs(every, "x86_64_v33")
    finally:
        host._runnable.cache_clear()


@pytest.mark.parametrize(
    ("arch_name", "model", "units", "hertz", "clock"),
    [
        ("gfx942", "MI300X", 304, 2.1e9, {"fp16": 2048, "bf16": 2048, "fp8_e4m3fnuz": 4096, "int8": 4096, "fp32": 256}),
        ("gfx942", "MI325X", 304, 2.1e9, {"fp16": 2048, "bf16": 2048, "fp8_e4m3fnuz": 4096, "int8": 4096, "fp32": 256}),
        ("gfx950", "MI350X", 256, 2.2e9, {"fp16": 4096, "bf16": 4096, "fp8_e4m3": 8192, "int8": 8192, "fp32": 256}),
        ("gfx950", "MI355X", 256, 2.4e9, {"fp16": 4096, "bf16": 4096, "fp8_e4m3": 8192, "int8": 8192, "fp32": 256}),
        ("sm_80", "A100-SXM4-80GB", 108, 1.41e9, {"fp16": 2048, "bf16": 2048, "int8": 4096, "tf32": 1024, "fp32": 128}),
        ("sm_90a", "NVIDIA H200", 132, 1.83e9, {"fp16": 4096, "bf16": 4096, "fp8_e4m3": 8192, "tf32": 2048}),
        ("sm_90a", "NVIDIA H200", 132, 1.98e9, {"fp32": 256}),
    ],
)
def test_peaks_of_data_sheets_are_what_units_and_clocks_give(
    arch_name: str, model: str, units: int, hertz: float, clock: dict[str, int]
) -> None:
    """Entered from documents that reports/notes/engine.md names; units, clocks, operations a clock are from others."""
    sheet = (all_archs()[arch_name].data_sheets or {})[model]
    for dtype, operations in clock.items():
        assert sheet[dtype] == pytest.approx(units * hertz * operations, rel=0.005)
