"""Attention kernels compiled for an H200 without one: wgmma and TMA are there, and beside what they should be."""

from __future__ import annotations

import random
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.built import Built
from tests.emulated_hopper.test_attention import like
from tilewright import settings
from tilewright.arch import arch
from tilewright.backends.base import backend
from tilewright.backends.cuda import places
from tilewright.backends.cuda.attention import KERNELS
from tilewright.backends.cuda.attention.combine import CombineSchedule
from tilewright.backends.cuda.attention.ws import WsSchedule
from tilewright.backends.cuda.toolchain import find_toolchain
from tilewright.errors import ToolchainError
from tilewright.inspect import demand_promises
from tilewright.ops import KernelSpec, op
from tilewright.ops.attention import AttentionProblem

pytestmark = pytest.mark.tools  # a CUDA compiler

ATTENTION = op("attention")
# The tiles that hold the most registers, of each number of warpgroups.
CASES: dict[str, tuple[AttentionProblem, WsSchedule | CombineSchedule]] = {
    "three_warpgroups": (
        like(64, return_lse=False, window_right=0),
        WsSchedule("ws", 128, 3, 4, tile_scheduler="dynamic"),
    ),
    "wide": (like(128, return_lse=False), WsSchedule("ws", 176, 2, 2)),
    "streamed": (like(128, return_lse=False, window_right=0), WsSchedule("ws", 128, 2, 2, 1, "dynamic", 2)),
    "decode_pages": (
        like(128, family="split", num_splits=2, pages="strided", page_lookup="table", seqlens_k=True),
        WsSchedule("decode", 64, 1, 2, 2),
    ),
    "shares": (
        like(128, pages="strided", page_lookup="table", seqlens_k=True),
        WsSchedule("decode_stream_k", 64, 1, 2, 2),
    ),
    "combine": (like(128, family="combine", num_splits=2, dtype_out="bf16"), CombineSchedule(4)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_code_is_as_promised(built: Built, name: str) -> None:
    first, schedule = CASES[name]
    spec = KernelSpec("attention", first.signature, schedule, "sm_90a")
    assert ATTENTION.check(spec) == []
    found = demand_promises(backend("cuda").inspect(built.artifact(spec).path, spec))
    assert found.keeps_promises is not False
    (main,) = found.functions
    assert main.resources is not None
    assert main.instructions is not None
    assert main.resources.shared_bytes + main.resources.dynamic_shared_bytes <= arch("sm_90a").scratch_bytes


@pytest.mark.sampled(0)
def test_exponentials_run_beside_the_product_of_values(built: Built) -> None:
    """Between the wait for scores and that for values: a compiler that draws the second up makes the kernel slow."""
    if places.tool("nvdisasm") is None:
        pytest.skip("no nvdisasm, which writes the listing")
    first, schedule = CASES["wide"]
    spec = KernelSpec("attention", first.signature, schedule, "sm_90a")
    text = backend("cuda").listing(built.artifact(spec).path)
    loop = text[text.index("DEPBAR.LE gsb0, 0x1") :]
    beside = loop[: loop.index("DEPBAR.LE gsb0, 0x0")]
    assert isinstance(schedule, WsSchedule)
    assert beside.count("MUFU.EX2") >= schedule.tile_n // 2  # of each of two rows a fourth


@pytest.mark.sampled(0)
@pytest.mark.parametrize("name", ["three_warpgroups", "wide", "streamed"])
def test_products_do_not_wait_for_each_other(built: Built, name: str) -> None:
    """The compiler puts a wait behind each wgmma where it cannot follow who writes their registers (C7510 to C7520)."""
    if places.tool("nvdisasm") is None:
        pytest.skip("no nvdisasm, which writes the listing")
    first, schedule = CASES[name]
    text = backend("cuda").listing(built.artifact(KernelSpec("attention", first.signature, schedule, "sm_90a")).path)
    assert text.count("HGMMA") > 20
    # Of the first scores, of both products of a step, of the last values; a step between items stands apart.
    assert text.count("WARPGROUP.DEPBAR") == (6 if name == "streamed" else 4)


@pytest.mark.parametrize(
    ("rule", "schedule"),
    [
        ("nv-tile-n", WsSchedule("ws", 40, 2, 2)),
        ("nv-warpgroups", WsSchedule("ws", 64, 4, 2)),
        ("nv-registers", WsSchedule("ws", 256, 3, 2)),
        ("nv-q-stages", WsSchedule("ws", 64, 2, 2, q_stages=3)),
        ("nv-q-stages", WsSchedule("decode", 64, 1, 2, q_stages=2)),
        ("nv-stages", WsSchedule("ws", 16, 1, 17)),
        ("nv-shared-memory", WsSchedule("ws", 128, 2, 3, q_stages=2)),
    ],
)
def test_what_no_kernel_is_made_for(rule: str, schedule: WsSchedule) -> None:
    spec = KernelSpec("attention", like(128).signature, schedule, "sm_90a")
    assert rule in {one.rule for one in ATTENTION.check(spec)}


def test_the_compiler_reads_the_widths_of_wgmma_that_a_kernel_has() -> None:
    for name in ("wide", "three_warpgroups"):
        problem, schedule = CASES[name]
        assert isinstance(schedule, WsSchedule)
        text = backend("cuda").render(KernelSpec("attention", problem.signature, schedule, "sm_90a")).text
        widths = sorted({schedule.tile_n, problem.signature.head_dim_v})
        wanted = " || ".join(f"N == {width}" for width in widths)
        assert text.index(f"#define TW_WGMMA_USES(N) ({wanted})\n") < text.index("#include")


def test_pages_leave_fewer_registers() -> None:
    """The header gives the feeding warps more then: what fits without pages need not fit with them."""
    schedule = WsSchedule("ws", 208, 2, 1)
    rules = [
        {one.rule for one in ATTENTION.check(KernelSpec("attention", first.signature, schedule, "sm_90a"))}
        for first in (like(96), like(96, pages="strided", page_lookup="table", seqlens_k=True))
    ]
    assert rules == [set(), {"nv-registers"}]


@pytest.mark.parametrize("pool", ["default", "full"])
@pytest.mark.parametrize("head", [32, 64, 96, 128, 160, 192, 256])
def test_what_the_pools_propose_is_legal(pool: str, head: int) -> None:
    """No proposal is there only to be refused; features narrow what is proposed."""
    for first in (
        like(head),
        like(head, window_right=0, varlen=True),
        like(head, softcap=True, bias="alibi", dropout=True),
        like(head, family="split", num_splits=2),
    ):
        proposed = list(KERNELS.schedules(pool, first.signature, arch("sm_90a")))
        assert len(proposed) > 1
        for one in proposed:
            assert ATTENTION.check(KernelSpec("attention", first.signature, one, "sm_90a")) == [], (first, one)


def test_sequences_that_differ_are_given_to_wgmma() -> None:
    """Of mixed lengths the longest says little; where one estimate believes it and another does not, the slower kernel
    seems the faster."""
    draw = random.Random(1217)
    for _ in range(40):
        lengths = [int(2 ** draw.uniform(4, 14)) for _ in range(draw.randint(8, 64))]
        first = like(draw.choice((64, 96, 128, 192, 256)), return_lse=False, varlen=True)
        more: dict[str, Any] = {"window_right": 0, "align": draw.choice(("top_left", "bottom_right"))}
        problem = replace(
            first, batch=len(lengths), heads_q=8, heads_kv=draw.choice((2, 8)), seqlen_q=max(lengths),
            seqlen_k=max(lengths),
            total_q=sum(lengths), total_k=sum(lengths), q_strides=(), k_strides=(), v_strides=(), o_strides=(),
            **more if draw.random() < 0.5 else {},
        )  # fmt: skip
        specs = [one for one in ATTENTION.candidates(problem.signature, "sm_90a") if not ATTENTION.check(one)]
        best = min(specs, key=lambda one: backend("cuda").estimate(one, problem, 1))
        assert best.schedule.pipeline in ("ws", "decode"), (best.name, lengths)
        assert best.schedule.warpgroups > 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", ["streamed", "shares", "combine"])
def test_nvrtc_compiles_it_too(case: str, tmp_path: Path) -> None:
    """It knows no host: neither functions of the host in shared headers, nor what the C library says."""
    with settings.override(cuda_compiler="nvrtc"):
        try:
            tools = find_toolchain()
        except ToolchainError as error:
            pytest.skip(f"no NVRTC: {error.message}")
    first, schedule = CASES[case]
    spec = KernelSpec("attention", first.signature, schedule, "sm_90a")
    source = tmp_path / "kernel.cu"
    source.write_text(backend("cuda").render(spec).text, encoding="utf-8")
    done = subprocess.run(
        tools.command(source, tmp_path / "kernel.so", "sm_90a", spec.op), capture_output=True, text=True, check=False,
        env=settings.child_environment(tools.environment(tmp_path)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:2000]
