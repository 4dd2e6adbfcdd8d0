"""Schedules under the names that fields, values and pipelines had: what is stored still means the same kernel, and
whoever types an old name is warned."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tilewright import ops
from tilewright.backends.cuda.attention.ws import WsSchedule
from tilewright.backends.cuda.conv.halo import HaloSchedule
from tilewright.backends.cuda.conv.width_folded import WidthFoldedSchedule
from tilewright.backends.cuda.gemm.skinny import SkinnySchedule
from tilewright.backends.cuda.gemm.tma_ws import TmaWsSchedule
from tilewright.build.named import pool_specs
from tilewright.cli.main import build_app
from tilewright.codegen.filter import Filter
from tilewright.errors import RequestError, TilewrightError
from tilewright.ops.base import KernelSpec, plain
from tilewright.ops.features import kernel_columns, values
from tilewright.ops.fields import flat_names, old_names, old_words
from tilewright.renames import new_values, stored_names, stored_values

# Names and specs as an older version wrote them.
OLD: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "golden" / "kernels_of_0_1.json").read_text(encoding="utf-8")
)
OPS = ("attention", "attention_backward", "conv", "gemm")
KINDS = [kind for name in OPS for kind in ops.op(name).schedules]


@pytest.mark.parametrize("name", OLD)
def test_a_stored_spec_is_the_kernel_it_was(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # files are read silently
        spec = ops.op(OLD[name]["op"]).spec_from_dict(OLD[name])
    assert spec.digest.startswith(name[-8:])
    assert spec.to_dict() == OLD[name], "and is stored as it was"


@pytest.mark.parametrize("name", OLD)
def test_a_spec_may_be_written_in_new_words(name: str) -> None:
    spec = ops.op(OLD[name]["op"]).spec_from_dict(OLD[name])
    schedule = {one.name: getattr(spec.schedule, one.name) for one in dataclasses.fields(spec.schedule)}
    written = {**OLD[name], "schedule": json.loads(json.dumps(schedule))}
    assert ops.op(spec.op).spec_from_dict(written) == spec


@pytest.mark.parametrize("name", OLD)
def test_what_is_shown_has_the_names_of_today_and_is_read_back(name: str) -> None:
    op = ops.op(OLD[name]["op"])
    spec = op.spec_from_dict(OLD[name])
    written = json.loads(json.dumps(spec.shown()))
    assert op.spec_from_dict(written) == spec
    assert written["schedule"].keys() == {one.name for one in dataclasses.fields(spec.schedule)}
    assert written["schedule"]["pipeline"] == spec.schedule.pipeline


def test_the_kernels_there_are_have_all_renamed_pipelines() -> None:
    renamed = {old for kind in KINDS for old in new_values(kind).get("pipeline", {})}
    assert renamed <= {one["schedule"]["pipeline"] for one in OLD.values()}


@pytest.mark.parametrize(("was", "now"), [("_band_", "_halo_"), ("_sums_dq_ws_", "_accum_dq_ws_")])
def test_a_name_of_an_older_version_finds_its_kernel(was: str, now: str) -> None:
    old = next(name for name in OLD if was in name)
    (spec,) = pool_specs(old)
    assert spec == ops.op(spec.op).spec_from_dict(OLD[old])
    assert now in spec.name


@pytest.mark.parametrize("kind", [one for one in KINDS if stored_names(one) or stored_values(one)])
def test_old_and_new_names_do_not_meet(kind: Any) -> None:
    fields = {one.name for one in dataclasses.fields(kind)}
    assert stored_names(kind).keys() <= fields
    assert fields.isdisjoint(stored_names(kind).values())
    for field, words in new_values(kind).items():
        allowed = kind.pipelines if field == "pipeline" else kind.choices[field]
        assert set(words.values()) <= set(allowed)
        assert words.keys().isdisjoint(allowed)


@pytest.mark.parametrize("name", OPS)
def test_an_old_value_is_no_value_of_today(name: str) -> None:
    """So that a filter may say either."""
    op = ops.op(name)
    today = {word for kind in op.schedules for words in kind.choices.values() for word in words}
    today |= {word for kind in op.schedules for word in kind.pipelines}
    assert today.isdisjoint(old_words(op))


def test_old_names_in_python_warn() -> None:
    new = TmaWsSchedule((128, 128, 64), 4, swap_ab=True)
    with pytest.warns(DeprecationWarning, match="TmaWsSchedule: turned is now called swap_ab"):
        assert TmaWsSchedule((128, 128, 64), 4, turned=True) == new  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="tile_scheduler 'tiles' is now called 'data_parallel'"):
        assert TmaWsSchedule((128, 128, 64), 4, swap_ab=True, tile_scheduler="tiles") == new
    with pytest.warns(DeprecationWarning, match="dealing"):
        assert new.dealing == "data_parallel"  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="'rows' is now called 'm'"):
        assert SkinnySchedule((8, 16, 512), "rows") == SkinnySchedule((8, 16, 512), "m")
    with pytest.warns(DeprecationWarning, match="'shares' is now called 'decode_stream_k'"):
        assert WsSchedule("shares", 64, 1, 2).pipeline == "decode_stream_k"
    with pytest.warns(DeprecationWarning, match="band"):
        assert dataclasses.replace(HaloSchedule((128, 64, 64), 3, 320, 9), band=336).halo_rows == 336  # type: ignore[call-arg]


def test_a_class_inherits_what_its_base_renamed() -> None:
    new = WidthFoldedSchedule("width_folded", (128, 64, 64), 4, tile_scheduler="split_k")
    with pytest.warns(DeprecationWarning, match="WidthFoldedSchedule: dealing is now called tile_scheduler"):
        assert WidthFoldedSchedule("width_folded", (128, 64, 64), 4, dealing="split_k") == new  # type: ignore[call-arg]
    assert plain(new)["dealing"] == "split_k"
    assert plain(new)["pipeline"] == "folded"


def gemm_spec(**fields: Any) -> KernelSpec:
    signature = next(iter(ops.op("gemm").proposals("tiny", "sm_90a"))).signature
    return KernelSpec("gemm", signature, TmaWsSchedule((128, 128, 64), 4, **fields), "sm_90a")


def test_models_know_fields_by_their_stored_names() -> None:
    """A model that shipped before a rename says of a kernel what it said."""
    columns = kernel_columns((TmaWsSchedule,))
    assert {"turned", "dealing"} < set(columns)
    assert not {"swap_ab", "tile_scheduler"} & set(columns)
    row = dict(zip(columns, values(gemm_spec(swap_ab=True), columns), strict=True))
    assert (row["turned"], row["dealing"], row["tile_m"]) == (True, "tiles", 128)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("c.turned", "c.swap_ab"),
        ("c.dealing == 'tiles'", "c.tile_scheduler == 'data_parallel'"),
        ("c.tile_scheduler not in ('tiles', 'none')", "c.tile_scheduler not in ('data_parallel', 'none')"),
    ],
)
def test_filters(old: str, new: str) -> None:
    specs = [gemm_spec(swap_ab=True), gemm_spec(), gemm_spec(tile_scheduler="split_k")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = [Filter(new)(spec) for spec in specs]
    with pytest.warns(DeprecationWarning, match="the filter: .* is now called"):
        assert [Filter(old)(spec) for spec in specs] == expected
    assert len(set(expected)) == 2


def test_configurations() -> None:
    op = ops.op("gemm")
    new = {"pipeline": "tma_ws", "tile_m": 128, "tile_n": 128, "tile_k": 64, "stages": 4, "tile_scheduler": ["split_k"]}
    old = {**{name: value for name, value in new.items() if name != "tile_scheduler"}, "dealing": ["split_k", "tiles"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (spec,) = set(op.configured(new, "sm_90a", datatypes=("bf16",)))
    with pytest.warns(DeprecationWarning, match="a gemm configuration: dealing is now called tile_scheduler"):
        both = set(op.configured(old, "sm_90a", datatypes=("bf16",)))
    assert spec in both
    assert {one.schedule.tile_scheduler for one in both} == {"split_k", "data_parallel"}
    with (
        pytest.warns(DeprecationWarning, match="dealing"),
        pytest.raises(TilewrightError, match="given under its old name too, dealing"),
    ):
        op.configured({**new, "dealing": "split_k"}, "sm_90a")
    with (
        pytest.warns(DeprecationWarning, match="dealing"),
        pytest.raises(TilewrightError, match="given under its old name too, dealing"),
    ):
        op.configured({"dealing": "split_k", **new}, "sm_90a")


def test_old_flat_names_are_those_of_elements_too() -> None:
    for name in OPS:
        op = ops.op(name)
        known = {flat for kind in op.schedules for flat in flat_names(kind)}
        assert set(old_names(op).values()) <= known


def test_a_name_that_never_was_is_an_error() -> None:
    data = json.loads(json.dumps(next(iter(OLD.values()))))
    data["schedule"]["sliding"] = 3
    with pytest.raises(RequestError, match="has no field 'sliding'"):
        ops.op(data["op"]).spec_from_dict(data)


def test_the_command_line_warns() -> None:
    words = ["specs", "gemm", "--arch", "sm_90a", "--pool", "default", "--datatype", "bf16", "--json"]
    new = CliRunner().invoke(build_app(), [*words, "--filter", "c.swap_ab"])
    old = CliRunner().invoke(build_app(), [*words, "--filter", "c.turned"])
    assert new.exit_code == old.exit_code == 0, new.output + old.output
    assert json.loads(old.stdout) == json.loads(new.stdout)
    assert "c.turned is now called c.swap_ab" in " ".join(old.stderr.split())
    assert "now called" not in new.stderr
