"""The check in C of attention kernels says what the rules in Python say, on problems drawn by seed."""

from __future__ import annotations

import ctypes
import random
from dataclasses import replace
from typing import Any

import pytest

from tests.emulated_hopper.attentions import ATTENTION, drawn
from tests.emulated_hopper.emulator import Emulator
from tests.emulated_hopper.test_attention import like
from tilewright.backends.cuda.attention import fp8 as nvidia_fp8
from tilewright.backends.cuda.attention import mla as nvidia_mla
from tilewright.backends.cuda.attention import mma as nvidia_mma
from tilewright.backends.cuda.attention.fp8 import Fp8Schedule
from tilewright.backends.cuda.attention.mla import MlaSchedule
from tilewright.backends.cuda.attention.mma import MmaSchedule
from tilewright.backends.cuda.attention.ws import WsSchedule, allowed_registers, shared_bytes
from tilewright.ops import KernelSpec
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention.problem_rules import problem_violations
from tilewright.runtime.bindings.attention import stages

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

SEED, COUNT = 77, 150


def odd(rng: random.Random, one: AttentionProblem) -> AttentionProblem:
    """Strides, heads and addresses that TMA may not like, and sizes beyond places of 31 bits."""
    more: dict[str, Any] = {"aligned": rng.random() < 0.9}
    name = rng.choice("qkvo")
    strides = list(getattr(one, f"{name}_strides"))
    strides[rng.randrange(3)] += rng.choice((0, 0, 4, 8))
    more[f"{name}_strides"] = tuple(strides)
    if rng.random() < 0.2:
        more[rng.choice(("seqlen_q", "seqlen_k", "batch"))] = rng.choice((1 << 30, (1 << 30) + 5, 1 << 27))
    if rng.random() < 0.2:
        more |= {"head_dim": 60, "head_dim_v": 59}
    return replace(one, **more)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("schedule", "first"),
    [
        (WsSchedule("ws", 64, 2, 2), like(64)),
        (WsSchedule("decode", 64, 1, 2), like(64, dtype_out="fp32")),
        (WsSchedule("ws", 64, 2, 2, tile_scheduler="dynamic"), like(64, varlen=True, window_right=0)),
        (WsSchedule("decode", 64, 1, 2), like(64, pages="strided", page_lookup="table", seqlens_k=True)),
        (Fp8Schedule(64, 2, 2), like(64, dtype_q="fp8_e4m3", dtype_out="bf16")),
        (MlaSchedule(32, 2), like(576, 512)),
        (MmaSchedule("mma", 32, 2, 1, 1, 2), like(64)),
    ],
)
def test_the_check_in_c_says_the_same(emulator: Emulator, schedule: Any, first: AttentionProblem) -> None:
    spec = KernelSpec("attention", first.signature, schedule, "sm_90a")
    kernel, rng, said = emulator.kernel(spec), random.Random(SEED), set()
    for _ in range(COUNT):
        one = odd(rng, drawn(rng, first))
        if problem_violations(one) or one.signature != first.signature:
            continue
        (stage,) = stages.alone(one).stages
        args: Any = stage.args
        for pointer in stage.pointers:
            place = 4096 if one.aligned else 4100
            ctypes.c_void_p.from_address(ctypes.addressof(args) + pointer.offset).value = place
        refused, rules = kernel.refusal(args), ATTENTION.supports(spec, one)
        assert bool(refused) == bool(rules), (one, refused, rules)
        said.add(bool(refused))
    assert said == {True, False}


@pytest.mark.parametrize("schedule", [WsSchedule("ws", 64, 2, 2), MmaSchedule("mma", 32, 2, 1, 1, 2)])
def test_packed_rows_are_refused_by_kernels_of_others(emulator: Emulator, schedule: Any) -> None:
    """They have no order of such items; signatures keep the two apart, and whoever calls a kernel by hand is told."""
    for first, said in ((like(64), "rows are packed and the kernel takes none"), (like(64, varlen=True), "")):
        one = drawn(random.Random(SEED), first)
        (stage,) = stages.alone(one).stages
        args: Any = stage.args
        for pointer in stage.pointers:
            ctypes.c_void_p.from_address(ctypes.addressof(args) + pointer.offset).value = 4096
        kernel = emulator.kernel(KernelSpec("attention", first.signature, schedule, "sm_90a"))
        assert not kernel.refusal(args)
        args.starts_q = args.starts_k = 4096
        assert said in str(kernel.refusal(args) or "")


def test_shared_memory_and_registers_are_what_the_header_says(emulator: Emulator) -> None:
    """The rules count as cuda/attention/ws/shape.h does: a launch asks for that much, and a warpgroup takes so many."""
    paged: dict[str, Any] = {"pages": "strided", "page_lookup": "table", "seqlens_k": True}
    for schedule, first in (
        (WsSchedule("ws", 176, 2, 2), like(128)),
        (WsSchedule("ws", 176, 2, 2), like(128, **paged)),
        (WsSchedule("ws", 64, 2, 3, q_stages=2), like(64)),
        (WsSchedule("ws", 64, 3, 3), like(64)),
        (WsSchedule("decode", 32, 1, 5), like(96)),
        (WsSchedule("decode", 64, 1, 2, 2), like(128, **paged)),
    ):
        spec = KernelSpec("attention", first.signature, schedule, "sm_90a")
        counted = {
            "shared_bytes": shared_bytes(spec.signature, schedule),
            "consumer_registers": allowed_registers(spec.signature, schedule),
        }
        said = "".join(f'static_assert({name} == {n}, "{name}");\n  ' for name, n in counted.items())
        kernel = emulator.kernel(
            spec,
            lambda text, said=said: text.replace("static_assert(W >= 1", f"{said}static_assert(W >= 1"),  # type: ignore[misc]
            "counted",
            "cuda/attention/ws/shape.h",
        )
        assert kernel.spec.digest == spec.digest


@pytest.mark.parametrize(
    ("schedule", "first", "header"),
    [
        (MmaSchedule("mma_decode", 64, 1, 4, 1, 3), like(96, 64), "cuda/attention/mma/shape.h"),
        (MmaSchedule("mma", 32, 2, 1, 2, 4), like(64, pages="vectorised", page_lookup="table", seqlens_k=True),
         "cuda/attention/mma/shape.h"),
        (Fp8Schedule(96, 2, 2), like(96, 64, dtype_q="fp8_e4m3", dtype_out="bf16"), "cuda/attention/fp8/shape.h"),
        (MlaSchedule(48, 2), like(576, 512), "cuda/attention/mla/shape.h"),
    ],
)  # fmt: skip
def test_shared_memory_of_the_others_is_what_their_headers_say(
    emulator: Emulator, schedule: Any, first: AttentionProblem, header: str
) -> None:
    spec = KernelSpec("attention", first.signature, schedule, "sm_90a")
    modules: dict[type, Any] = {MmaSchedule: nvidia_mma, Fp8Schedule: nvidia_fp8, MlaSchedule: nvidia_mla}
    expected = modules[type(schedule)].shared_bytes(spec.signature, schedule)

    def told(text: str) -> str:
        return text.replace(
            "  static_assert(BN %", f'  static_assert(shared_bytes == {expected}, "bytes");\n  static_assert(BN %'
        )

    assert emulator.kernel(spec, told, "bytes", header).spec.digest == spec.digest
