"""Attention's gradients on AMD GPUs: which kernels are legal, what each serves, and how a problem is computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilewright.arch import all_archs, arch
from tilewright.backends.hip.attention_backward import KERNELS
from tilewright.backends.hip.attention_backward.ck_tile import FAMILY as CK_TILE
from tilewright.backends.hip.attention_backward.ck_tile.tiles import TILES
from tilewright.ops import op
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature, normalized
from tilewright.ops.base import KernelSpec

OP = op("attention_backward")
AMD = sorted(name for name, one in all_archs().items() if one.backend == "hip")
SIGNATURE = AttentionBackwardSignature("grad", "fp16", 64, 64, accumulate="dq")
# What CK Tile lacks, and by which rule.
LACKING: dict[str, dict[str, Any]] = {
    "amd-backward-dtype": {"dtype": "fp32"},
    "amd-backward-sums": {"accumulate": "none"},
    "amd-backward-mask": {"mask": "generic"},
    "amd-backward-masked": {"masked": True},
    "amd-backward-softcap": {"softcap": True},
    "amd-backward-bias": {"bias": "tensor", "dtype_aux": "fp32"},
    "amd-backward-dbias": {"bias": "tensor", "dtype_aux": "fp16", "dbias": True},
    "amd-backward-dalibi": {"bias": "alibi", "dalibi": True},
    "amd-backward-heads": {"head_dim": 512},
    "amd-backward-packed": {"varlen": True},
}


def first(signature: AttentionBackwardSignature = SIGNATURE, name: str = "gfx942") -> KernelSpec:
    return KernelSpec(OP.name, signature, next(CK_TILE.proposals("default", signature, arch(name))), name)


def problem(**change: Any) -> AttentionBackwardProblem:
    said: dict[str, Any] = {"dtype": "fp16", "heads_kv": 2, **change}
    return AttentionBackwardProblem(2, 2, 100, 90, said.pop("head_dim", 64), **said)


def refused(spec: KernelSpec, one: AttentionBackwardProblem) -> list[str]:
    return [each.rule for each in OP.supports(spec, one)]


@pytest.mark.parametrize("name", AMD)
def test_ck_tile_is_where_its_matrix_instructions_are(name: str) -> None:
    proposed = list(CK_TILE.proposals("default", SIGNATURE, arch(name)))
    assert bool(proposed) == (name in ("gfx90a", "gfx942", "gfx950"))
    assert all(OP.check(KernelSpec(OP.name, SIGNATURE, one, name)) == [] for one in proposed)


@pytest.mark.parametrize("rule", LACKING)
def test_what_ck_tile_lacks_is_said_by_name(rule: str) -> None:
    signature = normalized(replace(SIGNATURE, **LACKING[rule]))
    assert list(CK_TILE.proposals("default", signature, arch("gfx942"))) == []
    spec = replace(first(), signature=signature)
    assert rule in [one.rule for one in OP.check(spec)]


@pytest.mark.parametrize("size", TILES)
def test_pools_are_legal_and_different(size: int) -> None:
    signature = replace(SIGNATURE, dtype="bf16", head_dim=size, head_dim_v=size, accumulate="all")
    for pool in ("default", "full"):
        specs = [
            KernelSpec(OP.name, signature, one, "gfx942") for one in KERNELS.schedules(pool, signature, arch("gfx942"))
        ]
        assert len({one.digest for one in specs}) == len(specs) >= 2
        assert [one.name for one in specs if OP.check(one)] == []


def test_a_tile_of_ones_own_is_refused() -> None:
    spec = first()
    odd = replace(spec.schedule, tile=(64, *spec.schedule.tile[1:]))
    assert [one.rule for one in OP.check(replace(spec, schedule=odd))] == ["amd-backward-tile"]
    padded = replace(spec.schedule, pad=(True, True, True, True))
    assert [one.rule for one in OP.check(replace(spec, schedule=padded))] == ["amd-backward-edges"]
    bare = replace(spec.schedule, pad=(False, True, False, False))
    assert [one.rule for one in OP.check(replace(spec, schedule=bare))] == ["amd-backward-rows"]
    stored = replace(spec.schedule, store_randval=True)
    assert [one.rule for one in OP.check(replace(spec, schedule=stored))] == ["amd-backward-randval"]
    plain = replace(spec.schedule, pipeline="kr_ktr_vr")
    assert [one.rule for one in OP.check(replace(spec, schedule=plain))] == ["amd-backward-pipeline"]


def test_which_biases_are_read() -> None:
    """Those of q's type, of padded batches and heads of up to 64, by the pipeline that has a barrier before them."""
    biased = replace(SIGNATURE, bias="tensor", dtype_aux="fp16")
    spec = first(biased)
    assert OP.check(spec) == []
    assert {each.schedule.pipeline for each in OP.candidates(biased, "gfx942")} == {"kr_ktr_vr_iglp"}
    for schedule in (replace(spec.schedule, pipeline="kr_ktr_vr"), replace(spec.schedule, block_per_cu=2)):
        assert "amd-backward-bias" in [each.rule for each in OP.check(replace(spec, schedule=schedule))]
    for change in ({"head_dim": 256, "head_dim_v": 256}, {"varlen": True, "accumulate": "all"}):
        lacking: dict[str, Any] = dict(change)
        assert list(CK_TILE.proposals("default", replace(biased, **lacking), arch("gfx942"))) == []
    whole = problem(bias="tensor", dtype_aux="fp16")
    assert KERNELS.accumulates(whole, arch("gfx942"))[0] == "dq"
    along_rows = replace(whole, bias_shape=(1, 1, 100, 1))
    assert KERNELS.accumulates(along_rows, arch("gfx942")) == ("none",), "one that repeats along keys is left to tiled"


def test_heads_of_256_have_a_compute_unit_to_themselves() -> None:
    spec = first(replace(SIGNATURE, dtype="bf16", head_dim=256, head_dim_v=256, accumulate="all"))
    shared = replace(spec.schedule, block_per_cu=2)
    assert [each.rule for each in OP.check(replace(spec, schedule=shared))] == ["amd-backward-registers"]
    dropped = replace(spec, signature=replace(spec.signature, dropout=True))
    assert [each.rule for each in OP.check(dropped)] == ["amd-backward-registers"]


@pytest.mark.parametrize(
    ("size", "dropout", "pipeline", "fits"),
    [
        (32, False, "kr_ktr_vr_iglp", True),
        (32, True, "kr_ktr_vr_iglp", False),  # 188 to 272 bytes of scratch
        (64, False, "kr_ktr_vr", True),
        (64, False, "kr_ktr_vr_iglp", False),
        (64, True, "kr_ktr_vr", False),
        (128, False, "kr_ktr_vr_iglp", False),  # 528 bytes of scratch on gfx950
    ],
)
def test_two_blocks_share_registers(size: int, dropout: bool, pipeline: str, fits: bool) -> None:
    signature = replace(SIGNATURE, dtype="bf16", head_dim=size, head_dim_v=size, accumulate="all", dropout=dropout)
    alone = replace(first(signature), arch="gfx950")
    alone = replace(alone, schedule=replace(alone.schedule, pipeline=pipeline))
    assert OP.check(alone) == []
    broken = OP.check(replace(alone, schedule=replace(alone.schedule, block_per_cu=2)))
    assert [each.rule for each in broken] == ([] if fits else ["amd-backward-registers"])
    assert fits or "it has 256 with 2 blocks a compute unit" in broken[0].message


def test_what_a_kernel_refuses() -> None:
    spec = first()
    assert refused(spec, problem().stage("grad", "dq")) == []
    assert refused(spec, problem(deterministic=True).stage("grad", "dq")) == ["amd-backward-deterministic"]
    assert refused(spec, problem(heads_kv=1).stage("grad", "dq")) == ["amd-backward-heads"]
    assert refused(spec, problem(seqlens_k=True).stage("grad", "dq")) == ["amd-backward-lengths"]
    assert refused(spec, problem(head_dim=48).stage("grad", "dq")) == ["amd-heads"]
    assert refused(spec, replace(problem(), aligned=False).stage("grad", "dq")) == ["amd-alignment"]
    sums = first(replace(SIGNATURE, accumulate="all"))
    assert refused(sums, problem(heads_kv=1, seqlens_k=True).stage("grad", "all")) == []
    far = first(replace(SIGNATURE, bias="alibi"))
    assert refused(far, replace(problem(bias="alibi"), seqlen_q=60000, q_strides=(), do_strides=(), dq_strides=(),
                                o_strides=(), seqlen_k=6000, k_strides=(), v_strides=(), dk_strides=(),
                                dv_strides=()).stage("grad", "dq")) == ["amd-alibi"]  # fmt: skip


def test_ways_to_compute_a_problem() -> None:
    """Sums where CK Tile computes it: of dq, or of all where heads or lengths say so; else none."""
    mi300 = arch("gfx942")
    assert KERNELS.accumulates(problem(), mi300)[0] == "dq"
    assert KERNELS.accumulates(problem(deterministic=True), mi300)[0] == "dq"
    assert KERNELS.accumulates(problem(heads_kv=1), mi300)[0] == "all"
    assert KERNELS.accumulates(problem(varlen=True), mi300)[0] == "all"
    assert KERNELS.accumulates(problem(softcap=True), mi300) == ("none",)
    assert KERNELS.accumulates(problem(head_dim=48), mi300) == ("none",)
    assert KERNELS.accumulates(problem(head_dim=128), mi300) == ("none",)
    assert KERNELS.accumulates(problem(head_dim=128, dtype="bf16"), mi300)[0] == "all"
    assert KERNELS.accumulates(problem(dtype="fp32"), mi300) == ("none",)
    assert KERNELS.accumulates(problem(), arch("gfx1100")) == ("none",)
