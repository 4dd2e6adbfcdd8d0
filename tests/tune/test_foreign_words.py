"""Configurations, problems and tables in the words of CK Tile's tile engine."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tune.test_export import result
from tilewright import ops
from tilewright.errors import RequestError
from tilewright.ops.base import plain
from tilewright.ops.fields import flat
from tilewright.tune import export, instances, problem_sets

CONV, ATTENTION, GEMM = (ops.op(name) for name in ("conv", "attention", "gemm"))
TRAITS: dict[str, Any] = {
    "data_type": {"values": ["bf16"]},
    "pipeline": {"values": ["compv3", "compv4", "mem", "basic_v1", "compv6", "wavelet"]},
    "wave_mode": {"values": ["intrawave"]},
    "ndim_spatial": {"values": [2]},
    "num_groups_to_merge": {"values": [1]},
    "double_smem_buffer": {"values": [False, True]},
    "split_image": {"values": [False, True]},
    "explicit_gemm": {"values": [False]},
    "two_stage": {"values": [False]},
}


def expanded(arch: str = "gfx942", variant: str = "forward", **changes: Any) -> list[Any]:
    traits = {name: value for name, value in {**TRAITS, **changes}.items() if value is not None}
    return list(instances.expand(CONV, {"variant": variant, "trait_config": traits}, arch).specs)


def test_a_configuration_of_theirs_means_kernels_and_what_it_lacks_is_noted() -> None:
    specs = expanded()
    assert {spec.schedule.pipeline for spec in specs} == {"compv3", "compv4", "mem"}
    assert {spec.schedule.scheduler for spec in specs} == {"intrawave"}
    assert {spec.schedule.special for spec in specs} == {"any", "copied"}
    (note,) = instances.notes(CONV, {"variant": "forward", "trait_config": TRAITS})
    assert "basic_v1, compv6, wavelet" in note
    assert not instances.notes(CONV, instances.load(CONV, "hip", "gfx942"))


def test_their_switches_select() -> None:
    both = expanded()
    doubled = expanded(double_smem_buffer=[True])
    assert {spec.schedule.pipeline for spec in doubled} == {"compv4"}
    assert set(doubled) | set(expanded(double_smem_buffer=[False])) == set(both)
    stages = expanded(variant="bwd_weight", two_stage=[True])
    assert stages
    assert all(spec.schedule.split_k > 1 for spec in stages)
    assert {flat(spec)["two_stage"] for spec in expanded(variant="bwd_weight", two_stage=[False])} == {False}
    assert {spec.schedule.special for spec in expanded(explicit_gemm=[True])} == {"pointwise"}
    with pytest.raises(RequestError, match="no kernel of the pool has split_image true") as caught:
        expanded(split_image=[True])
    assert "split_image false" in caught.value.remedy


def test_a_switch_is_a_filter_too() -> None:
    with_switch = instances.expand(CONV, {"pool": "full", "variant": "forward", "trait_config": {}}, "gfx942",
                                   expression="c.double_smem_buffer")  # fmt: skip
    assert {spec.schedule.pipeline for spec in with_switch.specs} == {"compv4"}


@pytest.mark.parametrize("name", ["forward_bf16", "bwd_data", "bwd_weight"])
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_the_files_by_their_names_ship(name: str, arch: str) -> None:
    data = instances.load(CONV, name, arch)
    specs = instances.expand(CONV, data, arch).specs
    assert len(specs) > 500
    assert {spec.signature.dtype for spec in specs} == {"bf16"}
    assert not instances.notes(CONV, data)


def test_the_first_message_names_the_cause(tmp_path: Path) -> None:
    """A file whose op nobody names, with one unknown name: the op that knows the others says which."""
    file = tmp_path / "theirs.json"
    file.write_text(json.dumps({"variant": "forward", "trait_config": {**TRAITS, "wave_moda": ["intrawave"]}}))
    assert instances.op_of(str(file)) == "conv"
    with pytest.raises(RequestError, match="wave_moda"):
        instances.expand(CONV, instances.load(CONV, str(file), "gfx942"), "gfx942")


def test_a_name_twice_is_told() -> None:
    with pytest.raises(RequestError, match="scheduler twice"):
        expanded(scheduler=["intrawave"])


FMHA = {"data_type": {"values": ["fp16", "bf16"]}, "mask": {"values": ["no", "top_left"]}, "bias": {"values": ["no"]}}


def test_their_configurations_of_attention() -> None:
    specs = instances.expand(ATTENTION, {"variant": "fwd", "trait_config": FMHA}, "gfx942").specs
    assert {spec.signature.mask for spec in specs} == {"none", "window"}
    assert {spec.signature.dtype_q for spec in specs} == {"fp16", "bf16"}
    more = {**FMHA, "mode": ["group"], "lse": [True], "logits": [False], "block_per_cu": [-1]}
    config = {"variant": "fwd", "trait_config": more}
    specs = instances.expand(ATTENTION, config, "gfx942").specs
    assert specs
    assert all(spec.signature.varlen and spec.signature.return_lse for spec in specs)
    assert instances.notes(ATTENTION, config) == ["block_per_cu means nothing here, and is left out"]
    split = instances.expand(ATTENTION, {"variant": "splitkv", "trait_config": {"data_type": ["fp16"]}}, "gfx942")
    assert {spec.signature.family for spec in split.specs} == {"split"}
    for wrong in ({"variant": "sideways", "trait_config": FMHA}, {"trait_config": {**FMHA, "mask": ["diagonal"]}}):
        with pytest.raises(RequestError, match="of the configuration is"):
            instances.expand(ATTENTION, wrong, "gfx942")


# -- problems ----------------------------------------------------------------------------------------------


def rows(tmp_path: Path, op: Any, *problems: dict[str, Any]) -> list[Any]:
    file = tmp_path / "problems.json"
    file.write_text(json.dumps(list(problems)))
    return problem_sets.problems(op, str(file), "hip")


def test_problems_by_their_names(tmp_path: Path) -> None:
    flat_one = {"N": 2, "C": 32, "K": 64, "G": 2, "Hi": 14, "Wi": 15, "Y": 3, "X": 1, "stride_h": 2, "pad_h": 1}
    deep = {"N": 1, "C": 8, "K": 8, "G": 1, "Di": 4, "Hi": 9, "Wi": 9, "Z": 3, "Y": 3, "X": 3, "pad_d": 1,
            "direction": "bwd_weight", "split_k": 1}  # fmt: skip
    first, second = rows(tmp_path, CONV, flat_one, deep)
    assert (first.batch, first.channels, first.filters, first.groups) == (2, 32, 64, 2)
    assert (first.size, first.window, first.stride, first.before) == ((14, 15), (3, 1), (2, 1), (1, 0))
    assert (second.variant, second.size, second.window) == ("backward_weight", (4, 9, 9), (3, 3, 3))
    assert second.before == (1, 0, 0)
    (gemm,) = rows(tmp_path, GEMM, {"M": 3, "N": 4, "K": 5})
    assert (gemm.m, gemm.n, gemm.k) == (3, 4, 5)
    row = {"batch": 1, "nhead_q": 8, "nhead_k": 2, "seqlen_q": 16, "seqlen_k": 32, "hdim_q": 64, "hdim_v": 64,
           "dtype": "bf16", "mask": "top_left"}  # fmt: skip
    (attention,) = rows(tmp_path, ATTENTION, row)
    assert (attention.heads_q, attention.heads_kv, attention.head_dim, attention.dtype_q) == (8, 2, 64, "bf16")
    assert attention.window_right == 0
    with pytest.raises(RequestError, match="problem 1: a problem with Hi and Wi has no Y"):
        rows(tmp_path, CONV, {"N": 1, "C": 1, "K": 1, "Hi": 3, "Wi": 3})


def test_problems_by_their_numbers() -> None:
    (conv,) = problem_sets.problems(CONV, "1,64,32,1,8,8,3,3,2,2,1,1", "hip")
    assert (conv.size, conv.window, conv.stride, conv.before, conv.dilation) == ((8, 8), (3, 3), (2, 2), (1, 1), (1, 1))
    assert [one.m for one in problem_sets.problems(GEMM, "64,32,16;8,8,8", "cpu")] == [64, 8]
    square, other = problem_sets.problems(ATTENTION, "2,8,1024,128;1,8,2,1,77,64", "hip")
    assert (square.heads_kv, square.seqlen_k, other.heads_kv, other.seqlen_k) == (8, 1024, 2, 77)
    for op, word in ((CONV, "1,2,3"), (GEMM, "1,2"), (ATTENTION, "1,2,3,4,5")):
        with pytest.raises(RequestError, match="is no problem of"):
            problem_sets.problems(op, word, "hip")


# -- tables ------------------------------------------------------------------------------------------------


def test_a_table_as_they_write_it_has_failures_among_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    export.demand_ck(file)
    export.write_ck(file, [result(), result(4, "timeout", "it took too long")])
    first, second = csv.DictReader(file.open(encoding="utf-8"))
    assert list(first) == ["kernel", "problem_idx", "M", "N", "K", "latency_ms", "tflops", "non_zero"]
    assert (first["M"], first["N"], first["K"], first["non_zero"]) == ("3", "5", "7", "15")
    assert float(first["latency_ms"]) == pytest.approx(2e-3)
    assert (second["problem_idx"], second["latency_ms"], second["tflops"], second["non_zero"]) == (
        "1",
        "N/A",
        "N/A",
        "0",
    )
    export.demand_ck(file)  # its own file is written again
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    for name in ("other.csv", "r.parquet"):
        with pytest.raises(RequestError):
            export.demand_ck(tmp_path / name)


def test_the_columns_of_a_convolution_are_theirs(tmp_path: Path) -> None:
    problem = CONV.problem({"batch": 2, "channels": 4, "filters": 6, "size": "5x7", "window": "3x1", "padding": "1x0"})
    spec = CONV.fallback_spec(CONV.signature_of(problem), "generic")
    kernel = replace(result().kernel, digest=spec.digest, name=spec.name, spec=spec.to_dict())
    export.write_ck(tmp_path / "r.csv", [result(op="conv", problem=plain(problem), kernel=kernel)])
    (row,) = csv.DictReader((tmp_path / "r.csv").open(encoding="utf-8"))
    assert ",".join(row) == (
        "kernel,problem_idx,N,C,K,G,Di,Hi,Wi,Z,Y,X,stride_d,stride_h,stride_w,pad_d,pad_h,pad_w,"
        "dilation_d,dilation_h,dilation_w,latency_ms,tflops,non_zero"
    )
    sizes = {"N": 2, "C": 4, "K": 6, "Di": 1, "Hi": 5, "Wi": 7, "Z": 1, "Y": 3, "X": 1, "pad_h": 1, "pad_w": 0}
    assert {name: int(row[name]) for name in sizes} == sizes


def test_a_fresh_table_holds_the_last_results_only(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    export.add(file, [result(3)])
    export.add(file, [result(4)])
    assert len(export.read(file)) == 2
    export.add(file, [result(5)], fresh=True)
    assert [one.problem["m"] for one in export.read(file)] == [5]
