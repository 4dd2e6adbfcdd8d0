"""Kernels by lists of values: what a schedule is called by filters names it in a configuration, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import islice
from typing import Any

import pytest

from tilewright.errors import RequestError
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.fields import flat_names
from tilewright.ops.sweep import swept


def by_elements(schedule: Any) -> dict[str, Any]:
    """A configuration of one schedule: fields of several values by their elements."""
    named = {name: place for name, place in flat_names(type(schedule)).items() if place[1] is not None}
    apart = {field for field, _ in named.values()}
    held = {one.name for one in fields(schedule)}
    found = {name: getattr(schedule, name) for name in held - apart}
    return found | {name: getattr(schedule, field)[at] for name, (field, at) in named.items() if field in held}


def kinds(name: str, arch: str) -> Iterator[KernelSpec]:
    """A kernel of every pipeline that the first kernels of the largest pool of tests have."""
    known = set()
    for spec in islice(op(name).proposals("tests", arch), 400):
        if spec.schedule.pipeline not in known:
            known.add(spec.schedule.pipeline)
            yield spec


@pytest.mark.parametrize("arch", ["x86_64_v3", "gfx942", "gfx1100", "sm_90a", "sm_80"])
@pytest.mark.parametrize("name", ["gemm", "conv", "attention"])
def test_a_schedule_is_named_by_the_elements_of_its_fields(name: str, arch: str) -> None:
    """Schedules of one op have tiles of other elements, on other targets and of other pipelines."""
    for spec in kinds(name, arch):
        found = {one.schedule for one in swept(op(name), by_elements(spec.schedule), arch, {})}
        assert found == {spec.schedule}, spec.name


@pytest.mark.parametrize(
    ("arch", "given", "missing"),
    [
        ("x86_64_v3", {"pipeline": "decode", "tile_n": 64}, "tile_m"),
        ("x86_64_v3", {"pipeline": "tiled", "tile_m": 64}, "tile_n"),
        ("gfx942", {"pipeline": "qr", "tile_m0": 64}, "tile_n0"),
    ],
)
def test_what_is_missing_is_an_element_of_that_pipeline(arch: str, given: dict[str, Any], missing: str) -> None:
    with pytest.raises(RequestError) as caught:
        list(swept(op("attention"), given, arch, {}))
    assert caught.value.rule == "config-name"
    assert caught.value.value == missing
