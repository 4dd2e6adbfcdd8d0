"""The report of ops the package knows nothing of: their fields, work and types are asked of them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import ops
from tilewright.dispatch.results import OK, KernelRow, Result
from tilewright.ops.base import plain
from tilewright.report import page
from tilewright.report.predict import predict
from tilewright.report.scopes import scopes
from tilewright.report.sources import Source


@pytest.mark.parametrize(
    ("op", "options", "dtype"),
    [
        ("rowscale", [{"rows": size, "columns": 8} for size in (1, 4, 9)], "fp32"),
        ("regionstats", [{"n": 2, "spatial": size, "channels": 3, "stage": "combine"} for size in ("4", "4x5")], None),
    ],
)
def test_an_op_without_an_engine_part_has_a_report(
    op: str, options: list[dict[str, object]], dtype: str | None
) -> None:
    house = ops.op(op)
    found = []
    for number, given in enumerate(options):
        problem = house.problem(given)
        spec = house.fallback_spec(house.signature_of(problem), "x86_64_v3")
        kernel = KernelRow(spec.digest, spec.name, spec.arch, spec.to_dict())
        found.append(Result(op, plain(problem), {"model": "x", "fingerprint": "f"}, 2, kernel, OK, 1e-6 * (number + 1)))
    (scope,) = scopes(Source(("x",), tuple(found)))
    data = page.scope_data(scope, page.Wanted())
    names = [one["name"] for one in data["problems"]["columns"]]
    assert set(names) == set(plain(scope.facts[0].problem))
    assert data["problems"]["family"]["words"] == ["all"]
    assert [one.flops for one in scope.facts] == [float(house.problem(given).flops) for given in options]
    assert dtype is None or {one["dtype"] for one in data["roofs"]} == {dtype}
    assert "estimate" in data["rows"]
    assert not np.isnan(predict(scope, ()).estimate).any()
    page.in_script(data)
