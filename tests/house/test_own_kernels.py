"""Configurations and nearest neighbours of an op the package does not know."""

from __future__ import annotations

import json

from tests.house.conftest import Shell
from tilewright import ops
from tilewright.codegen import collect
from tilewright.ops.base import KernelSpec
from tilewright.ops.neighbours import neighbours


def test_a_configuration_names_its_fields() -> None:
    found = collect("rowscale", "x86_64_v3", config={"pipeline": "vector", "unroll": [1, 2, 3], "rows": 4})
    assert [one.schedule.unroll for one in found.specs] == [1, 2]
    assert [one.spec.schedule.unroll for one in found.rejected] == [3]


def test_an_illegal_kernel_has_neighbours() -> None:
    from rowscale.spec import VectorSchedule

    op = ops.op("rowscale")
    asked = next(one for one in op.proposals("full", "x86_64_v3") if isinstance(one.schedule, VectorSchedule))
    wrong = KernelSpec(asked.op, asked.signature, VectorSchedule(unroll=3, rows=4), asked.arch)
    assert [str(one) for one in neighbours(op, wrong)][:2] == ["unroll 3 -> 4", "unroll 3 -> 2"]


def test_the_command_line_corrects_it(shell: Shell) -> None:
    words = ("specs", "rowscale", "--target", "x86_64_v3", "--tile-config-json")
    text = json.dumps({"pipeline": "vector", "unroll": 3, "rows": 4})
    assert "the nearest legal kernels: unroll 3 -> 4; or unroll 3 -> 2" in shell(*words, text, status=1).stderr
    assert "unroll 3 -> 4" in shell(*words, text, "--correct").stderr
