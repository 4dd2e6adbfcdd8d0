"""What is fused with sums that leave by TMA, executed on the emulated Hopper GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.backends.cpu.gemm.harness import Call
from tests.emulated_hopper.emulator import CHANCE, EAGER, LATE, Emulator, judge
from tests.emulated_hopper.test_tma_ws import problem, signature, tma_ws, wrong

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

# Tile, cluster and scheduler; 64, 32 and 16 columns leave at a time, all buffers together or one after the other.
KERNELS = {
    "all buffers at once": (128, 64, 3, (1, 1), "cooperative"),
    "two buffers for four": (128, 256, 4, (2, 1), "cooperative"),
    "two rows of wgmma": (256, 96, 2, (1, 2), "cooperative"),
    "pingpong": (64, 128, 3, (1, 1), "pingpong"),
    "narrow pieces": (128, 176, 5, (1, 1), "cooperative"),
    "streamed": (128, 128, 3, (1, 1), "cooperative_stream_k"),
}


def fused(one: object, m: int, n: int, k: int, kinds: tuple[str, ...], **more: object) -> Call:
    """Rows of D lie whole 16-byte pieces apart unless told otherwise."""
    asked: dict[str, object] = {key: more.pop(key) for key in ("batch", "broadcast_a", "broadcast_b") if key in more}
    asked["beta"] = bool(more.get("beta"))
    more.setdefault("d_gap", 8 if kinds.count("full") or "column" not in kinds else 3)
    return Call(problem(one, m, n, k, **asked), d_kinds=kinds, **more)  # type: ignore[arg-type]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("epilogue", ["Gelu", "MultiDMultiply"])
def test_every_kind_of_tensor(emulator: Emulator, name: str, epilogue: str) -> None:
    """A box, a row, a column, a scalar, in both places; what TMA cannot read; a second whole matrix."""
    m, n, stages, cluster, way = KERNELS[name]
    one = signature("bf16", "rcr", "bf16", epilogue, 2)
    calls = [
        fused(one, 129, 136, 200, ("full", "row"), alpha=0.5),
        fused(one, 300, 264, 72, ("row", "column")),
        fused(one, 72, 520, 136, ("column", "full"), beta=-1.0),
        fused(one, 264, 72, 64, ("one", "row"), beta=2.0, alpha=-1.0),
        fused(one, 136, 272, 64, ("full", "full"), d_gap=2),
        fused(one, 136, 72, 72, ("full", "full"), beta=0.5, d_gap=3),
        fused(one, 200, 136, 64, ("row", "full"), beta=1.0, alias=True),
    ]
    assert wrong(emulator, tma_ws(one, m, n, stages, cluster, way, "tma"), *calls) == []


@pytest.mark.parametrize(("datatype", "output"), [("fp16", "fp16"), ("bf16", "bf16")])
def test_wide_biases_and_the_others_types(emulator: Emulator, datatype: str, output: str) -> None:
    one = replace(signature(datatype, "rcr", output, "Silu", 2), dtype_d="fp32")
    calls = [
        fused(one, 129, 136, 72, ("row", "column")),
        fused(one, 70, 264, 64, ("full", "row"), d_gap=4),
        fused(one, 70, 72, 64, ("full", "one"), d_gap=3, beta=1.0),
    ]
    assert wrong(emulator, tma_ws(one, 128, 128, 3, (1, 1), "cooperative", "tma"), *calls) == []


@pytest.mark.parametrize("scheduler", ["cooperative", "pingpong", "cooperative_stream_k", "cooperative_split_k"])
def test_batches_of_guests(emulator: Emulator, scheduler: str) -> None:
    one = signature("fp16", "rcr", "fp16", "MultiDAdd", 1)
    calls = [
        fused(one, 136, 72, 136, ("full",), batch=3, gap=24),
        fused(one, 136, 72, 136, ("full",), batch=3, gap=24, d_gap=5),
        fused(one, 72, 136, 200, ("column",), batch=2, broadcast_b=True, beta=0.5, broadcast_c=True),
        fused(one, 72, 136, 1000, ("row",), batch=2, beta=0.5),
    ]
    assert wrong(emulator, tma_ws(one, 128, 64, 3, (1, 1), scheduler, "tma"), *calls) == []


def test_plain_kernels_take_c(emulator: Emulator) -> None:
    one = signature()
    calls = [fused(one, 200, 264, 200, (), beta=beta, alias=alias) for beta, alias in ((1.0, False), (-0.5, True))]
    for way in ("cooperative", "pingpong"):
        assert wrong(emulator, tma_ws(one, 128, 128, 3, (1, 1), way, "tma"), *calls) == []


MISTAKES = {
    "no wait for a box": ("boxes[slot].wait(phases >> slot & 1);", ""),
    "a box into a buffer that is still read": ("tma_wait_read<0>();  // of what the buffers held before", ""),
    "the next box too early": ("tma_wait_read<0>();\n          fetch", "fetch"),
    "too few bytes announced": ("expect(S::batch * S::chunk)", "expect(S::batch * S::chunk - 16)"),
    "no fence before a store": ("fence_async_proxy();\n", ""),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_with_boxes_show(emulator: Emulator, mistake: str) -> None:
    before, after = MISTAKES[mistake]
    one = signature("bf16", "rcr", "bf16", "MultiDAdd", 1)

    def edit(header: str) -> str:
        assert before in header, f"{before!r} is not in the header any more"
        return header.replace(before, after)

    spec = tma_ws(one, 128, 256, 4, (1, 1), "cooperative", "tma")
    kernel = emulator.kernel(spec, edit, mistake, "cuda/gemm/tma_ws/epilogue_store.h")
    call = fused(one, 264, 520, 136, ("full",))
    assert any(judge(kernel, call, mode, 1, multiprocessors=1) for mode in (LATE, EAGER, CHANCE))


def test_slots_that_do_not_divide_a_tile(emulator: Emulator) -> None:
    """Eleven pieces through four buffers: the next tile begins with the buffer that was filled third to last."""
    one = signature()
    spec = tma_ws(one, 128, 176, 5, (1, 1), "cooperative", "tma")
    call = fused(one, 520, 360, 64, ())
    assert judge(emulator.kernel(spec), call, LATE, 1, multiprocessors=1) == ""

    def edit(header: str) -> str:
        return header.replace("if (first / S::batch < rest) tma_wait_read<left>();", "if (first < 0) {}")

    kernel = emulator.kernel(spec, edit, "the newest", "cuda/gemm/tma_ws/epilogue_store.h")
    assert judge(kernel, call, LATE, 1, multiprocessors=1)
