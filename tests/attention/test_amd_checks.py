"""The check that AMD attention kernels carry in C says what `supports` says: the host's half, compiled alone."""

from __future__ import annotations

import ctypes
import random
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from tests.runtime import hosted
from tilewright.arch import arch
from tilewright.backends.hip.attention import KERNELS as AMD
from tilewright.backends.hip.attention.ck_tile.schedules import CkTileAttentionSchedule
from tilewright.ops.attention import AttentionProblem, legality
from tilewright.ops.base import KernelSpec
from tilewright.runtime.bindings import binding
from tilewright.runtime.loader import Kernel

HALF: dict[str, Any] = {"dtype_q": "fp16", "dtype_aux": "fp16"}
# A problem for each of CK Tile's kernels; what is drawn stays of its signature.
PROBLEMS = {
    "forward": AttentionProblem(2, 4, 128, 128, 64, heads_kv=2, return_lse=True, **HALF),
    "window": AttentionProblem(2, 4, 128, 128, 64, heads_kv=2, window_left=40, window_right=0, **HALF),
    "alibi": AttentionProblem(2, 4, 128, 128, 64, bias="alibi", **HALF),
    "bias": AttentionProblem(2, 4, 128, 128, 64, bias="tensor", **HALF),
    "dropout": AttentionProblem(2, 4, 128, 128, 64, dropout=True, **HALF),
    "fp8": AttentionProblem(
        2, 4, 128, 128, 64, heads_kv=2, dtype_q="fp8_e4m3fnuz", dtype_out="bf16", q_scale="tensor", kv_scales="head"
    ),
    "varlen": AttentionProblem(2, 4, 128, 128, 64, heads_kv=2, varlen=True, **HALF),
    "paged": AttentionProblem(
        2, 4, 128, 128, 64, heads_kv=2, pages="strided", page_lookup="table", page_size=64, seqlens_k=True, **HALF
    ),
    "prefill": AttentionProblem(
        2, 4, 128, 128, 64, heads_kv=2, pages="strided", page_lookup="indices", page_size=1, varlen=True, **HALF
    ),
    "split": AttentionProblem(2, 4, 128, 128, 64, heads_kv=2, family="split", num_splits=4, **HALF),
    "combine": AttentionProblem(2, 4, 128, 0, 64, family="combine", num_splits=4, dtype_q="fp32", dtype_out="fp16"),
    "append": AttentionProblem(
        2, 4, 16, 128, 64, heads_kv=2, family="append", rotary="half", rotary_q=True, seqlens_k=True, **HALF
    ),
}
WHOLE = CkTileAttentionSchedule("qr", (128, 64, 32, 64, 32, 64), pad=(False, False, False, False))


def specs_of(name: str) -> list[KernelSpec]:
    signature = PROBLEMS[name].signature
    proposed = [*AMD.schedules("default", signature, arch("gfx942"))]
    if name in ("forward", "window", "bias"):
        proposed.append(WHOLE)
    found = [KernelSpec("attention", signature, one, "gfx942") for one in proposed if one.pipeline != "loops"]
    return [one for one in found if not legality.check(one)][:6]


@lru_cache(maxsize=1)
def everything() -> list[tuple[str, KernelSpec]]:
    return [(name, spec) for name in PROBLEMS for spec in specs_of(name)]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Kernel]]:
    made = hosted.hip_kernels([spec for _, spec in everything()], tmp_path_factory.mktemp("attention"))
    found: dict[str, list[Kernel]] = {}
    for (name, _), kernel in zip(everything(), made, strict=True):
        found.setdefault(name, []).append(kernel)
    return found


def drawn(start: AttentionProblem, dice: random.Random) -> AttentionProblem:
    """A neighbour of a problem that has its signature."""
    p = start
    change: dict[str, Any] = {
        "seqlen_q": dice.choice((0, 1, 8, 100, 128, 256)),
        "batch": dice.choice((1, 2, 3)),
        "head_dim": dice.choice((64, 64, 64, 40, 33)),
    }
    if p.family != "combine":
        change["seqlen_k"] = dice.choice((0, 1, 90, 128, 4096)) if p.family != "append" else dice.choice((128, 4096))
        change["head_dim_v"] = dice.choice((64, 64, 64, 40, 33))
    else:
        change["head_dim"] = change["head_dim_v"] = dice.choice((64, 64, 40, 33))
    if dice.random() < 0.2:
        change["seqlens_q"] = True
    if dice.random() < 0.2 and p.family in ("forward", "split"):
        change["seqlens_k"] = not p.seqlens_k
    if p.pages != "none":
        change["page_size"] = dice.choice((1, 16, 64, 96, 128))
    if p.bias == "alibi" and dice.random() < 0.3:
        change["seqlen_k"] = 70000
    if p.bias == "tensor":
        change["bias_shape"] = ()
    if p.family in ("split", "combine"):
        change["num_splits"] = dice.choice((1, 4, 9, 100))
    if p.rotary != "none":
        change["rotary_dim"] = dice.choice((16, 32, 24))
    if p.varlen:
        change |= {"total_q": 0, "total_k": 0}
    made = replace(p, **change, page_count=0, q_strides=(), k_strides=(), v_strides=(), o_strides=())
    return _strided(made, dice) if dice.random() < 0.4 else made


def _strided(p: AttentionProblem, dice: random.Random) -> AttentionProblem:
    """Rows and heads further apart than they must be, by whole loads or not."""
    name = dice.choice("qkvo")
    batch, row, head = getattr(p, f"{name}_strides")
    gap = dice.choice((8, 64, 3))
    if p.family == "combine" and name != "o":
        return p
    wide = row + gap
    rows = p.seqlen_q if name in "qo" else p.seqlen_k
    apart = batch and (p.page_size if p.pages != "none" and name in "kv" else max(1, rows)) * wide
    change: dict[str, Any] = {f"{name}_strides": (apart, wide, head), "aligned": dice.random() < 0.8}
    return replace(p, **change)


def arguments(p: AttentionProblem) -> Any:
    request = binding("attention").dense(p).stages[0]
    args = type(request.args).from_buffer_copy(request.args)
    start = ctypes.addressof(args)
    for one in request.pointers:  # nothing is read there
        ctypes.c_void_p.from_address(start + one.offset).value = 0x10000 if p.aligned else 0x10002
    for scalar in request.scalars:
        ctypes.c_double.from_address(start + scalar.offset).value = scalar.probe
    return args


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_check_in_c_agrees(name: str, kernels: dict[str, list[Kernel]]) -> None:
    dice = random.Random(f"attention checks {name}")
    answers = set()
    for _ in range(60):
        p = drawn(PROBLEMS[name], dice)
        if p.signature != PROBLEMS[name].signature or legality.problem_check(p, "gfx942"):
            continue
        args = arguments(p)
        for kernel in kernels[name]:
            reasons = legality.supports(kernel.spec, p)
            refusal = kernel.refusal(args)
            assert bool(reasons) == bool(refusal), (kernel.spec.name, p, list(map(str, reasons)), refusal)
            answers.add(bool(reasons))
    assert answers == {True, False}, "nothing drawn was served, or all of it"


def test_the_compiler_has_nothing_to_say(tmp_path: Any) -> None:
    assert not hosted.hip_library([spec for _, spec in everything()][:4], tmp_path).said


@pytest.mark.parametrize("fields", [{"varlen": True}, {"seqlens_k": True}, {}])
def test_a_refusal_names_lengths_where_those_are_the_reason(fields: dict[str, Any]) -> None:
    """512 keys are a multiple of 128: sequences of lengths of their own are what whole tiles do not have."""
    pages: dict[str, Any] = {"pages": "strided", "page_lookup": "table", "page_size": 128}
    keys = 512 if fields else 500
    problem = AttentionProblem(2, 8, 512, keys, 64, **HALF, **(pages if "seqlens_k" in fields else {}), **fields)
    schedule = replace(WHOLE, tile=(128, 128, 32, 64, 32, 64), pad=(True, False, False, False))
    spec = KernelSpec("attention", problem.signature, schedule, "gfx942")
    (broken, *_) = [one for one in legality.supports(spec, problem) if one.rule == "amd-keys"]
    assert ("500 keys are not a multiple of tile_n0 128" in broken.message) == (not fields)
    assert ("lengths of their own" in broken.message) == bool(fields)
