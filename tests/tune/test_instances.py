"""Trait configs: what they mean, and what is wrong with one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tilewright import jsontext, ops
from tilewright.arch import all_archs
from tilewright.build.inspected import meant
from tilewright.build.store import Store
from tilewright.build.why import find_spec
from tilewright.cli.main import build_app
from tilewright.errors import FileError, RequestError
from tilewright.ops.fields import flat
from tilewright.tune import instances

GEMM = ops.op("gemm")
TARGET = "x86_64_v3"
PACKED = {"data_type": {"values": ["fp32"]}, "layout": {"values": ["rrr"]}, "pipeline": {"values": ["packed"]}}


def expand(target: str = TARGET, pool: str = "default", **traits: Any) -> Any:
    return instances.expand(GEMM, {"pool": pool, "trait_config": {**PACKED, **traits}}, target)


def shell(*words: str, status: int = 0) -> Result:
    done = CliRunner().invoke(build_app(), ["instances", "gemm", *words])
    assert done.exit_code == status, done.output
    return done


def test_words_select_and_numbers_vary_the_kernels_of_a_pool() -> None:
    pool = [one for one in GEMM.proposals("default", TARGET) if flat(one)["pipeline"] == "packed"]
    assert set(expand().specs) == set(pool)
    found = expand(tile_k={"values": [192, 256]}, prefetch={"min": 0, "max": 8, "step": 8})
    asked = {(192, 0), (192, 8), (256, 0), (256, 8)}
    assert {(flat(one)["tile_k"], flat(one)["prefetch"]) for one in found.specs} == asked
    # What nobody names is as the pool has it.
    kept = ("tile_m", "tile_n", "unroll", "split_k")
    rest = {tuple(flat(one)[name] for name in kept) for one in pool}
    assert {tuple(flat(one)[name] for name in kept) for one in found.specs} == rest
    assert len(found.specs) == len(set(found.specs)) == len(rest) * len(asked)
    assert all(not GEMM.check(one) for one in found.specs)


def test_what_is_not_legal_is_refused_with_its_rule() -> None:
    found = expand(unroll={"values": [1, 1000]})
    assert {flat(one)["unroll"] for one in found.specs} == {1}
    assert {flat(one.spec)["unroll"] for one in found.rejected} == {1000}


def test_axes_make_signatures() -> None:
    config = {"variant": "multi_d", "trait_config": {**PACKED, "data_type": ["bf16", "fp16"], "epilogue": ["Relu"]}}
    found = instances.expand(GEMM, config, TARGET)
    signatures = {(one.signature.dtype_a, one.signature.epilogue, one.signature.variant) for one in found.specs}
    assert signatures == {("bf16", "Relu", "multi_d"), ("fp16", "Relu", "multi_d")}


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"trait_config": {"tile_n_": [64]}}, "'tile_n'"),
        ({"trait_config": {"data_typ": ["fp32"]}}, "'datatype'"),
        ({"trait_configs": {}, "trait_config": {}}, "'trait_config'"),
        ({"trait_config": {"pipeline": ["paked"]}}, "'packed'"),
        ({"trait_config": {"data_type": ["fp31"]}}, "'fp32'"),
        ({"trait_config": {}, "pool": "defalt"}, "'default'"),
        ({"trait_config": {}, "variant": "standrd"}, "standard"),
        ({"trait_config": {"pipeline": ["direct"], "prefetc": [1]}}, "'prefetch'"),
        ({"trait_config": {**PACKED, "unroll": [True]}}, "true, and must be a whole number"),
        ({"trait_config": {**PACKED, "unroll": {"min": 4}}}, "unroll"),
        ({"trait_config": {"data_type": ["fp32"], "datatypes": ["bf16"]}}, "twice"),
        ({"trait_config": 7}, "trait_config"),
        ({"trait_config": {**PACKED, "tile_k": {"min": 1, "max": 1000}, "tile_n": {"min": 1, "max": 1000}}}, "1000000"),
    ],
    ids=lambda one: json.dumps(one)[:50] if isinstance(one, dict) else "",
)  # fmt: skip
def test_an_unknown_name_or_value_names_the_nearest(config: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as caught:
        instances.expand(GEMM, config, TARGET)
    assert text in str(caught.value)
    assert caught.value.remedy


def test_a_number_where_none_varies_is_told_to_be_left_out() -> None:
    """A config for CK Tile's kernels on a GPU that has plain ones only."""
    config = {"trait_config": {"data_type": {"values": ["fp32"]}, "tile_k": {"values": [32, 64]}}}
    with pytest.raises(RequestError, match="no kernel of the pool is made from tile_k") as caught:
        instances.expand(GEMM, config, "gfx1201")
    assert "leave tile_k out" in caught.value.remedy


@pytest.mark.parametrize("target", sorted(all_archs()))
def test_the_shipped_configurations_mean_kernels(target: str) -> None:
    data = instances.load(GEMM, "", target)
    found = instances.expand(GEMM, data, target)
    asked = instances.read(GEMM, data)
    assert len(found.specs) > 10
    for name, values in asked.fields.items():
        assert {flat(one)[name] for one in found.specs} <= set(values)


def test_the_ancestor_s_configurations_are_read_too() -> None:
    theirs = {"tile_config": {"tile_m": [128, 256], "tile_n": [128]}, "trait_config": {"pipeline": ["compv4"]}}
    assert {flat(one)["tile_m"] for one in instances.expand(GEMM, theirs, "gfx942").specs} == {128, 256}
    flat_lists = {"tile_m": [128, 256], "tile_n": [128], "pipeline": ["compv3"], "tile_k": [32]}
    assert {flat(one)["tile_m"] for one in instances.expand(GEMM, flat_lists, "gfx942").specs} == {128, 256}


def test_the_command_counts_lists_and_exports(tmp_path: Path) -> None:
    config, out = tmp_path / "c.json", tmp_path / "o.json"
    config.write_text(json.dumps({"trait_config": {**PACKED, "tile_k": [192, 256]}}))
    words = (str(config), "--target", TARGET)
    names = shell(*words, "--list").stdout.split()
    assert shell(*words, "--count-only").stdout.strip() == str(len(names))
    for _ in range(2):  # its own file is written again
        shell(*words, "--export-json", str(out))
    rows = json.loads(out.read_text())["instances"]
    assert [one["name"] for one in rows] == names
    assert all(GEMM.spec_from_dict(one["spec"]).digest == one["digest"] for one in rows)
    fewer = shell(*words, "--filter", "c.tile_k == 192", "--list").stdout.split()
    assert 0 < len(fewer) < len(names)
    out.write_text("mine")
    assert "[foreign-file]" in shell(*words, "--export-json", str(out), status=1).stderr
    assert out.read_text() == "mine"
    assert "[config-file]" in shell(str(tmp_path / "absent.json"), status=1).stderr
    config.write_text("[1")
    assert "[config-file]" in shell(*words, status=1).stderr
    assert "[no-specs]" in shell("--target", TARGET, "--filter", "c.tile_k == 1", "--count-only", status=1).stderr


def test_sweeps_take_the_kernels_of_a_configuration_with_a_problem_s_signature() -> None:
    specs_of = instances.of_config(GEMM, TARGET, {"trait_config": {"pipeline": ["packed"], "tile_k": [192]}})
    for datatype in ("fp32", "bf16"):
        problem = GEMM.problem({"m": 8, "n": 8, "k": 8, "datatype": datatype, "layout": "rcr"})
        found = specs_of(problem)
        assert {(flat(one)["tile_k"], one.signature) for one in found} == {(192, GEMM.signature_of(problem))}
    only = instances.of_config(GEMM, TARGET, {"trait_config": {"data_type": ["fp32"]}})
    assert not only(GEMM.problem({"m": 8, "n": 8, "k": 8, "datatype": "bf16"}))


# -- mistakes, and worse -----------------------------------------------------------------------------------------------

HUGE = {"min": 1, "max": 900_000}


@pytest.mark.parametrize(
    ("trait", "text"),
    [
        ("128", '"128", and must be a whole number'),
        (["128"], "such as 128 without quotes"),
        ([True], "true, and must be a whole number"),
        ([math.nan], "nan, and must be a whole number"),
        ([math.inf], "inf, and must"),
        ([None], "None, and must"),
        ([[1]], "must be a whole number"),
        ([], "which means nothing"),
        ({"values": []}, "which means nothing"),
        ({"values": 7}, "give a value, a list of them"),
        ({"min": 1, "max": 10**12}, "more than 1000000 values"),
        ({"min": math.nan, "max": 3}, "a range is of whole numbers"),
        ({"min": 8, "max": 1}, "the largest is below the least"),
        ({"min": 1, "max": 8, "step": 0}, "the step is below 1"),
        ({"min": 1, "max": 8, "stp": 2}, "there is no 'stp' in that"),
        ({"min": 1, "max": 2, "exclude": [1, 2]}, "which excludes all"),
    ],
)
def test_a_value_that_cannot_be_meant_is_told_as_it_was_written(trait: Any, text: str) -> None:
    with pytest.raises(RequestError) as caught:
        expand(tile_m=trait)
    assert caught.value.rule == "config-value"
    assert text in str(caught.value)
    assert "tile_m" in caught.value.message


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"trait_config": {"data_type": 64}}, "'64' is not an element type"),
        ({"trait_config": {"data_type": {"min": 1, "max": 2}}}, "'1' is not an element type"),
        ({"trait_config": {"data_type": [None]}}, "data_type of the configuration is None, and must be a text"),
        ({"trait_config": {}, "layout": True}, "layout of the configuration is true, and must be a text"),
        ({"trait_config": {"layouts": [{"a": 1}]}}, "layouts of the configuration is {'a': 1}"),
        ({"trait_config": {"outputs": [[]]}}, "outputs of the configuration is []"),
        ({"trait_config": {"num_d": ["1"]}}, "such as 1 without quotes"),
        ({"trait_config": {**PACKED, "unroll": [1, [2]]}}, "unroll of the configuration is [2], and must be a whole"),
        ({"trait_config": {**PACKED, "warp_tile": [[6, None, 1]]}}, "warp_tile of the configuration is [6, None, 1]"),
        ({"trait_config": {**PACKED, "warp_tile": [[6, 16]]}}, "must be a list of as many values"),
    ],
)
def test_a_value_of_another_kind_is_told_whatever_the_trait(config: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as caught:
        instances.expand(GEMM, config, TARGET)
    assert text in str(caught.value)


def test_a_number_may_stand_for_a_word_as_on_a_command_line() -> None:
    attention = ops.op("attention")
    found = instances.expand(attention, {"trait_config": {"heads": {"values": [64, 128]}, "data_type": "fp32"}}, TARGET)
    named = instances.expand(attention, {"trait_config": {"heads": ["64", "128"], "data_type": "fp32"}}, TARGET)
    assert found.specs
    assert found.specs == named.specs


def test_very_many_combinations_are_refused_before_they_are_made() -> None:
    with pytest.raises(RequestError) as caught:
        expand(tile_m=HUGE, tile_n=HUGE)
    assert caught.value.rule == "config-size"


PLAIN = {"pipeline": "packed", "tile_m": 72, "tile_n": 512, "tile_k": 256, "warp_tile": [[6, 16, 1]]}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"tile_m": "128"}, 'tile_m of the configuration is "128", and must be a whole number'),
        ({"tile_n": [512, 1.5]}, "tile_n of the configuration is 1.5"),
        ({"tile_k": True}, "tile_k of the configuration is true"),
        ({"trait_confg": {}}, "did you mean 'trait_config'"),
    ],
)
def test_lists_of_values_too_are_told_in_the_words_of_the_configuration(change: dict[str, Any], text: str) -> None:
    axes = {"datatypes": ("fp32",), "layouts": ("rrr",)}
    with pytest.raises(RequestError) as caught:
        instances.expand(GEMM, {**PLAIN, **change}, TARGET, axes=axes)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('x')",
        "c.__class__",
        "c.tile_m ** 9 ** 9",
        "[x for x in c]",
        "(" * 3000 + "1" + ")" * 3000,
    ],
)
def test_a_filter_runs_nothing(tmp_path: Path, expression: str) -> None:
    done = shell("cpu", "--target", TARGET, "--filter", expression, status=1)
    assert "error: [filter-" in done.stderr


def without_op(*words: str, status: int = 0) -> Result:
    done = CliRunner().invoke(build_app(), ["instances", *words])
    assert done.exit_code == status, done.output
    return done


def test_an_option_that_says_otherwise_than_the_config_is_not_ignored(tmp_path: Path) -> None:
    """`instances conv cpu --variant forward` listed kernels of backward_weight: the option was passed over."""
    file = tmp_path / "one.json"
    file.write_text(json.dumps({"pool": "default", "trait_config": PACKED}), encoding="utf-8")
    said = shell(str(file), "--datatype", "bf16", "--target", TARGET, status=1)
    assert "config-or-options" in said.output
    shell(str(file), "--datatype", "fp32", "--target", TARGET)


def test_a_file_may_stand_in_the_place_of_the_op(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    traits = {"trait_config": PACKED}
    file.write_text(json.dumps(traits))
    words = ("--target", TARGET, "--count-only")
    count = shell(str(file), *words).stdout
    assert without_op(str(file), *words).stdout == count
    assert without_op(*words, str(file)).stdout == count
    file.write_text(json.dumps({"op": "gemm", **traits}))
    assert without_op(str(file), *words).stdout == shell(str(file), *words).stdout == count
    file.write_text(json.dumps({"op": "gem", **traits}))
    assert "[op-name]" in without_op(str(file), *words, status=1).stderr
    assert "for another op than gemm" in shell(str(file), *words, status=1).stderr


def test_an_op_is_found_by_the_names_of_its_traits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        name, axes, schedules = "other", (), ()

    monkeypatch.setattr(instances, "op_names", lambda: ["gemm", "other"])
    monkeypatch.setattr(instances, "op_by_name", lambda name: GEMM if name == "gemm" else Other)
    file = tmp_path / "c.json"
    file.write_text('{"trait_config": {"tile_m": [64]}}')
    assert instances.op_of(str(file)) == "gemm"
    file.write_text('{"trait_config": {}}')
    with pytest.raises(RequestError) as caught:
        instances.op_of(str(file))
    assert caught.value.rule == "config-op"


def test_a_file_larger_than_ours_get_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a device that never ends: it is read no further than the limit, and no bug of ours."""
    monkeypatch.setattr(jsontext, "MOST_BYTES", 1 << 10)
    large = tmp_path / "large.json"
    large.write_text('{"instances": []' + " " * 2048 + "}")
    with pytest.raises(FileError) as met:
        instances.load(GEMM, str(large), TARGET)
    assert met.value.rule == "config-file"
    assert "larger than" in met.value.message
    before = large.read_bytes()
    assert "foreign-file" in shell("--target", TARGET, "--export-json", str(large), status=1).output
    assert large.read_bytes() == before


@pytest.mark.parametrize("read", [lambda word: find_spec(Store(), word), lambda word: meant(Store(), word)])
def test_a_kernel_s_file_is_read_no_further_than_ours_get(
    read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsontext, "MOST_BYTES", 1 << 10)
    large = tmp_path / "large.json"
    large.write_text(json.dumps(expand().specs[0].to_dict()) + " " * 2048)
    with pytest.raises(RequestError) as met:
        read(str(large))
    assert met.value.rule == "spec-file"
    assert "larger than" in met.value.message
