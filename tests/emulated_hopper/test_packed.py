"""B packed beforehand: the packing kernel, and tma_ws reading what it made, on the emulated Hopper GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.backends.cpu.gemm.fenced_pages import Pages
from tests.backends.cpu.gemm.harness import Call, heap
from tests.emulated_hopper.emulator import EAGER, LATE, Emulator, aligned, judge
from tests.emulated_hopper.test_tma_ws import problem, tma_ws, wrong
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.legality import pack_format
from tilewright.ops.gemm.pools import signatures
from tilewright.ops.gemm.spec import GemmSignature

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]


def packed(
    datatype: str = "bf16", layout: str = "rcr", output: str = "bf16", epilogue: str = "PassThrough", count: int = 0
) -> GemmSignature:
    return next(iter(signatures([datatype], [layout], ["preshuffle"], [epilogue], [output], [count])))


def asked(one: GemmSignature, m: int, n: int, k: int, **more: object) -> GemmProblem:
    return problem(one, m, n, k, preshuffled=True, **more)


def edges(one: GemmSignature) -> tuple[Call, ...]:
    return tuple(
        Call(asked(one, m, n, k), alpha=alpha)
        for m, n, k, alpha in ((8, 8, 8, 1.0), (300, 264, 200, 0.5), (129, 136, 1000, 1.0), (264, 520, 64, -2.0))
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
@pytest.mark.parametrize(
    ("m", "n", "cluster", "scheduler"),
    [
        (128, 64, (1, 1), "cooperative"),
        (64, 96, (2, 1), "pingpong_stream_k"),
        (128, 128, (2, 2), "cooperative_split_k"),
    ],
)
def test_every_layout_and_cluster(
    emulator: Emulator, m: int, n: int, cluster: tuple[int, int], scheduler: str, layout: str
) -> None:
    one = packed(layout=layout)
    m = max(m, 128) if layout[0] == "c" and cluster[1] > 1 else m
    assert wrong(emulator, tma_ws(one, m, n, 3, cluster, scheduler), *edges(one)) == []


@pytest.mark.parametrize(
    ("m", "n", "cluster", "scheduler"),
    [
        (8, 64, (1, 1), "pingpong_swap_ab_split_k"),
        (16, 128, (1, 2), "cooperative_swap_ab"),
        (32, 128, (2, 1), "cooperative_swap_ab"),
    ],
)
def test_turned(emulator: Emulator, m: int, n: int, cluster: tuple[int, int], scheduler: str) -> None:
    one = packed(layout="rrr")
    calls = [Call(asked(one, m, n, k)) for m, n, k in ((1, 200, 300), (7, 130, 1040), (25, 300, 136))]
    assert wrong(emulator, tma_ws(one, m, n, 3, cluster, scheduler), *calls) == []


@pytest.mark.parametrize(("datatype", "output"), [("fp8_e4m3", "bf16"), ("int8", "int32"), ("tf32", "fp32")])
@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr"])
def test_other_inputs(emulator: Emulator, datatype: str, output: str, layout: str) -> None:
    """Bytes can be packed from any layout, though wgmma reads them along k only; such an A is turned first."""
    one = packed(datatype, layout, output)
    calls = [Call(asked(one, m, n, k)) for m, n, k in ((16, 16, 16), (200, 144, 400))]
    assert wrong(emulator, tma_ws(one, 128, 64, 3, (1, 1)), *calls) == []


def test_batches_and_fused_work(emulator: Emulator) -> None:
    one = packed(epilogue="Gelu", count=1)
    calls = [
        Call(asked(one, 136, 72, 136, batch=3), gap=24, d_kinds=("row",)),
        Call(asked(one, 72, 136, 200, batch=2, broadcast_b=True, beta=True), beta=0.5, d_kinds=("full",)),
        Call(asked(one, 72, 136, 200, batch=2, broadcast_a=True), d_kinds=("column",)),
    ]
    assert wrong(emulator, tma_ws(one, 128, 64, 3, (1, 1), "cooperative", "direct"), *calls) == []


@pytest.mark.parametrize("layout", ["rcr", "rrr"])
def test_any_place_stride_and_size(emulator: Emulator, layout: str) -> None:
    """What is packed may be as odd as it likes; A is copied where it is."""
    one = packed(layout=layout)
    kernel = emulator.kernel(tma_ws(one, 128, 64, 3, (1, 1), "cooperative", "direct"))
    for m, n, k in ((1, 1, 1), (67, 65, 63), (129, 257, 71), (33, 120, 65)):
        odd = GemmProblem(m, n, k, "bf16", "bf16", "bf16", layout=layout, preshuffled=True)
        assert judge(kernel, Call(odd, seed=m), allocate=heap) == ""
        assert judge(kernel, Call(replace(odd, b_stride=odd.b_stride + 3), seed=m), allocate=heap) == ""


@pytest.mark.parametrize("at_end", [True, False])
def test_nothing_is_read_outside(emulator: Emulator, at_end: bool) -> None:
    """A, B, its packed form, C, D and E lie against pages nobody may touch."""
    one = packed(layout="rrr", epilogue="Relu", count=1)
    kernel = emulator.kernel(tma_ws(one, 128, 64, 3, (1, 1), "cooperative", "direct"))
    for m, n, k in ((67, 65, 63), (129, 257, 71), (33, 120, 64)):
        asked = GemmProblem(
            m, n, k, "bf16", "bf16", "bf16", layout="rrr", preshuffled=True, epilogue="Relu", num_d=1, beta=True
        )
        assert judge(kernel, Call(asked, beta=1.0, d_kinds=("full",)), allocate=Pages(at_end)) == ""


@pytest.mark.sampled(1)
def test_every_kernel_reads_the_same_bytes() -> None:
    one = packed()
    small, large = tma_ws(one, 128, 64, 3, (1, 1)), tma_ws(one, 128, 256, 4, (2, 1))
    assert pack_format(small) == pack_format(large)
    assert pack_format(small) != pack_format(tma_ws(packed("fp8_e4m3"), 128, 64, 3, (1, 1)))


def test_the_form_is_the_one_the_header_says(emulator: Emulator) -> None:
    """Atoms of eight columns by 128 bytes of k, swizzled, zeros beyond B; B as NumPy would reorder it."""
    import ctypes

    from tilewright.runtime.bindings.gemm.args import GemmArgs

    for datatype in ("bf16", "int8"):
        one = packed(datatype, output="bf16" if datatype == "bf16" else "int32")
        kernel = emulator.kernel(tma_ws(one, 128, 64, 3, (1, 1)))
        size, n, k = DTYPES[datatype].bytes, 21, 100
        across = 128 // size
        b = np.random.default_rng(1).integers(1, 100, (n, k)).astype(f"u{size}")
        args = GemmArgs(m=1, n=n, k=k, batch=1, b=int(b.ctypes.data), b_stride=k)
        blocks = -(-k // across)
        assert kernel.packed_bytes(args) == 24 * blocks * 128
        memory, at = aligned(24 * blocks * 128, 1)
        assert kernel.pack is not None
        assert kernel.pack(ctypes.addressof(args), int(memory.ctypes.data) + at, None) == 0
        found = memory[at : at + 24 * blocks * 128].view(f"u{size}").reshape(blocks, 24, 8, 16 // size)
        wanted = np.zeros((24, blocks * across), b.dtype)
        wanted[:n, :k] = b
        pieces = wanted.reshape(24, blocks, 8, 16 // size).transpose(1, 0, 2, 3)
        for line in range(24):
            for piece in range(8):
                assert np.array_equal(found[:, line, piece ^ line % 8], pieces[:, line, piece])


@pytest.mark.parametrize(
    ("header", "before", "after"),
    [
        ("cuda/copies/pack.h", "^ (line % Pack::atom)", ""),
        ("cuda/copies/pack.h", "line < x.lines && k < x.k ?", "line < x.lines ?"),
        ("cuda/gemm/tma_ws/producer.h", "bytes -= (whole - lines) * 128;", ""),
        ("cuda/gemm/tma_ws/producer.h", "t.packed + step * x.packed_block, done, b", "t.packed, done, b"),
        ("cuda/gemm/tma_ws/host.h", "t.packed_lines = int(form.padded)", "t.packed_lines = int(form.padded) - 8"),
        ("cuda/gemm/tma_ws/host.h", "t.packed_lines = int(form.padded),", "t.packed_lines = int(form.padded) + 8,"),
    ],
)
def test_mistakes_show(emulator: Emulator, header: str, before: str, after: str) -> None:
    def edit(text: str) -> str:
        assert before in text, f"{before!r} is not in {header} any more"
        return text.replace(before, after)

    one = packed()
    kernel = emulator.kernel(tma_ws(one, 128, 64, 3, (1, 1)), edit, before, header)
    call = Call(asked(one, 136, 264, 200))
    assert any(judge(kernel, call, mode, allocate=Pages(at_end=True)) for mode in (LATE, EAGER))
