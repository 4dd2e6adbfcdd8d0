"""The real multistage pipeline on an emulated GPU: every dtype, layout, alignment, edge, epilogue and split of k."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.backends.cpu.gemm.fenced_pages import Pages
from tests.backends.cpu.gemm.harness import FENCE, Allocate, Array, Call
from tests.backends.cuda.gemm.names import WIDE, multistage
from tests.emulated_hopper.emulator import CHANCE, EAGER, GEMM, LATE, Emulator, aligned, judge
from tilewright.ops import KernelSpec
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.pools import signatures
from tilewright.ops.gemm.spec import LAYOUTS, GemmSignature

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

INPUTS = (
    ("bf16", "bf16"), ("fp16", "fp32"), ("int8", "int32"), ("fp8_e4m3", "bf16"), ("fp8_e4m3:fp8_e5m2", "fp32"),
    ("fp32", "fp32"), ("tf32", "fp32"),
)  # fmt: skip


def signature(
    datatype: str = "bf16", layout: str = "rcr", output: str = "bf16", epilogue: str = "", count: int = 0
) -> GemmSignature:
    variant = "multi_d" if epilogue else "standard"
    made = signatures([datatype], [layout], [variant], [epilogue] if epilogue else (), [output], [count])
    return next(iter(made))


def kernel(one: GemmSignature, m: int, n: int, vector: int = 16, arch: str = "sm_90a", **more: object) -> KernelSpec:
    how: dict[str, object] = {"k_bytes": 64, "warps": (2, 2), "stages": 3, "vector_bytes": vector, **more}
    return KernelSpec("gemm", one, multistage(one, m, n, **how), arch)  # type: ignore[arg-type]


def at(offset: int) -> Allocate:
    """Fenced memory that begins `offset` bytes behind a multiple of 16."""

    def allocate(size: int, itemsize: int) -> tuple[Array, int]:
        memory = np.empty(size + 2 * FENCE + 32, np.uint8)
        start = int(memory.ctypes.data) + FENCE
        return memory, -(-start // 16) * 16 + offset - int(memory.ctypes.data)

    return allocate


def odd_only(place: int, offset: int) -> Allocate:
    """The operand at a place (A, B, ...) begins `offset` bytes behind a multiple of 16; the others at one."""
    order = itertools.count()

    def allocate(size: int, itemsize: int) -> tuple[Array, int]:
        return at(offset)(size, itemsize) if next(order) == place else aligned(size, itemsize)

    return allocate


def problem(one: GemmSignature, m: int, n: int, k: int, grain: int = 1, **more: object) -> GemmProblem:
    """With leading strides that are multiples of `grain` elements, and no more than they must be."""

    def stride(length: int) -> int:
        return max(grain, -(-length // grain) * grain)

    return GemmProblem(
        m, n, k, one.dtype_a, one.dtype_b, one.dtype_c, one.dtype_d, one.layout,
        epilogue=one.epilogue, num_d=one.num_d,
        a_stride=stride(k if one.layout[0] == "r" else m),
        b_stride=stride(n if one.layout[1] == "r" else k), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def wrong(emulator: Emulator, spec: KernelSpec, *calls: Call, allocate: Allocate = aligned) -> list[str]:
    """What is wrong with the kernel: each call once with a landing of its own, and none may be refused."""
    built = emulator.kernel(spec)
    found = []
    for number, call in enumerate(calls):
        assert GEMM.supports(spec, call.problem) == [], (spec.name, call.problem)
        mode = (LATE, CHANCE, EAGER)[number % 3]
        text = judge(built, replace(call, seed=number), mode, number, allocate=allocate)
        if text:
            found.append(f"{spec.name} {call.problem.describe()} mode {mode}: {text}")
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("datatype", "output"), INPUTS)
def test_every_input_and_layout_aligned(emulator: Emulator, datatype: str, output: str, layout: str) -> None:
    one = signature(datatype, layout, output)
    calls = [Call(problem(one, *size, grain=16)) for size in ((64, 64, 128), (70, 77, 200), (3, 5, 7))]
    assert wrong(emulator, kernel(one, 64, 64), *calls) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("datatype", "output"), INPUTS)
def test_every_input_and_layout_at_any_alignment(emulator: Emulator, datatype: str, output: str, layout: str) -> None:
    one = signature(datatype, layout, output)
    size = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}.get(one.dtype_a, 1)
    spec = kernel(one, 64, 64, vector=0)
    sizes = ((67, 71, 133), (1, 1, 1), (65, 3, 77), (5, 66, 16))
    calls = [Call(problem(one, *each, aligned=False)) for each in sizes]
    assert wrong(emulator, spec, *calls, allocate=at(size)) == []
    assert wrong(emulator, spec, *calls[:2], allocate=at(16 - size)) == []


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("layout", ["rcr", "crr"])
@pytest.mark.parametrize(("datatype", "output"), [("bf16", "bf16"), ("int8", "int32")])
def test_nothing_is_read_outside_an_operand(
    emulator: Emulator, datatype: str, output: str, layout: str, at_end: bool
) -> None:
    """Operands that end (or begin) at a page nobody may touch."""
    one = signature(datatype, layout, output)
    calls = [Call(problem(one, *size, aligned=False)) for size in ((65, 67, 75), (1, 1, 1), (3, 70, 33))]
    assert wrong(emulator, kernel(one, 64, 64, vector=0), *calls, allocate=Pages(at_end)) == []


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_is_read_outside_plain_floats(emulator: Emulator, layout: str, at_end: bool) -> None:
    """Those along k come one by one, others in pieces: each kind of copy has edges of its own."""
    one = signature("fp32", layout, "fp32")
    for vector, grain, sizes in ((16, 4, ((68, 132, 76), (4, 4, 4))), (0, 1, ((65, 67, 75), (1, 1, 1)))):
        spec = kernel(one, 64, 64, vector, stages=2 + vector // 16)
        calls = [Call(problem(one, *size, grain=grain, aligned=vector != 0)) for size in sizes]
        assert wrong(emulator, spec, *calls, allocate=Pages(at_end)) == []


@pytest.mark.parametrize(
    ("m", "n", "warps", "vector", "k_bytes"),
    [(256, 128, (4, 2), 16, 64), (128, 64, (4, 1), 16, 32), (96, 32, (2, 1), 0, 64), (32, 128, (2, 4), 0, 32)],
)
def test_every_warp_grid_of_plain_floats(
    emulator: Emulator, m: int, n: int, warps: tuple[int, int], vector: int, k_bytes: int
) -> None:
    one = signature("fp32", "rcr" if k_bytes == 64 else "rrr", "fp32")
    spec = kernel(one, m, n, vector, warps=warps, k_bytes=k_bytes)
    assert wrong(emulator, spec, Call(problem(one, m + 4, n - 8, 72, grain=4))) == []


@pytest.mark.parametrize("vector", [4, 8])
@pytest.mark.parametrize(
    ("datatype", "output", "layout"), [("bf16", "bf16", "rcr"), ("int8", "int32", "crr"), ("fp32", "fp32", "rrr")]
)
def test_rows_aligned_to_less(emulator: Emulator, datatype: str, output: str, layout: str, vector: int) -> None:
    one = signature(datatype, layout, output)
    grain = vector // {"bf16": 2, "int8": 1, "fp32": 4}[datatype]
    calls = [Call(problem(one, *size, grain=grain)) for size in ((66, 70, 90), (9, 33, 60))]
    assert wrong(emulator, kernel(one, 64, 64, vector), *calls, allocate=at(vector)) == []


@pytest.mark.parametrize("layout", ["rcr", "crr", "ccr"])
@pytest.mark.parametrize("vector", [(1, 8), (8, 1), (4, 2)])
def test_each_operand_has_an_alignment_of_its_own(emulator: Emulator, layout: str, vector: tuple[int, int]) -> None:
    one = signature("bf16", layout)
    spec = kernel(one, 64, 32, k_bytes=128, stages=2)
    spec = replace(spec, schedule=replace(spec.schedule, vector=vector))
    calls = [Call(problem(one, *size, grain=8)) for size in ((70, 40, 130), (64, 32, 513), (5, 6, 7))]
    assert wrong(emulator, spec, *calls) == []


@pytest.mark.parametrize("vector", [16, 0])
@pytest.mark.parametrize("stages", [2, 4, 5])
@pytest.mark.parametrize("k_bytes", [64, 128])
def test_every_number_of_stages_and_steps(emulator: Emulator, vector: int, stages: int, k_bytes: int) -> None:
    one = signature()
    deep = k_bytes // 2
    calls = [Call(problem(one, 32, 32, k, grain=8)) for k in (deep, 2 * deep, 3 * deep + 1, 5 * deep, 9 * deep - 8)]
    spec = kernel(one, 32, 32, vector, k_bytes=k_bytes, stages=stages, warps=(2, 1))
    assert wrong(emulator, spec, *calls) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("place", "vector"), [(0, (1, 8)), (1, (8, 1))])
def test_one_operand_that_is_not_aligned(emulator: Emulator, place: int, vector: tuple[int, int]) -> None:
    """The other is copied 16 bytes at a time all the same, and selection knows it."""
    one = signature()
    spec = kernel(one, 64, 64)
    spec = replace(spec, schedule=replace(spec.schedule, vector=vector))
    asked = problem(one, 67, 72, 80, grain=8, unaligned="ab"[place])
    assert wrong(emulator, spec, Call(asked), allocate=odd_only(place, 2)) == []
    assert GEMM.supports(kernel(one, 64, 64), asked)
    assert GEMM.supports(spec, replace(asked, unaligned="ba"[place]))


@pytest.mark.parametrize("vector", [16, 0])
def test_no_k_at_all(emulator: Emulator, vector: int) -> None:
    for tile_scheduler in ("data_parallel", "split_k"):
        one = signature("bf16", "rcr", "fp32", "MultiDAdd", 1)
        calls = [Call(problem(one, 20, 33, 0, grain=8, beta=True), beta=2.0, d_kinds=("full",))]
        assert wrong(emulator, kernel(one, 32, 32, vector, tile_scheduler=tile_scheduler), *calls) == []


@pytest.mark.parametrize(
    ("m", "n", "warps"),
    [(128, 256, (2, 4)), (128, 128, (2, 2)), (64, 32, (2, 1)), (32, 128, (1, 4)), (96, 48, (2, 1)), (128, 64, (4, 1))],
)
def test_every_warp_grid(emulator: Emulator, m: int, n: int, warps: tuple[int, int]) -> None:
    one = signature()
    assert wrong(emulator, kernel(one, m, n, warps=warps), Call(problem(one, m + 3, n + 5, 72, grain=8))) == []
    spec = kernel(one, m, n, vector=0, warps=warps)
    assert wrong(emulator, spec, Call(problem(one, m - 1, n - 1, 71, aligned=False)), allocate=at(2)) == []


@pytest.mark.parametrize("vector", [16, 0])
def test_batches(emulator: Emulator, vector: int) -> None:
    one = signature("fp16", "crr", "fp16")
    grain, where = (8, aligned) if vector else (1, at(2))
    more = {"aligned": vector != 0}
    calls = [
        Call(problem(one, 40, 35, 50, grain, batch=3, **more), gap=grain * 3),
        Call(problem(one, 33, 36, 50, grain, batch=2, broadcast_a=True, **more)),
        Call(problem(one, 33, 36, 50, grain, batch=2, broadcast_b=True, **more), beta=0.5, broadcast_c=True),
    ]
    assert wrong(emulator, kernel(one, 32, 32, vector), *calls, allocate=where) == []


@pytest.mark.parametrize(
    ("datatype", "epilogue", "count", "output"),
    [
        ("bf16", "Gelu", 2, "bf16"), ("bf16", "MultiDMultiply", 1, "fp32"), ("fp16", "Relu", 0, "fp16"),
        ("int8", "MultiDAdd", 2, "int8"), ("fp32", "Silu", 1, "fp32"), ("fp16", "MultiDAdd", 4, "fp32"),
    ],
)  # fmt: skip
def test_epilogues(emulator: Emulator, datatype: str, epilogue: str, count: int, output: str) -> None:
    one = signature(datatype, "rcr", output, epilogue, count)
    kinds = ("full", "row", "column", "full")[:count]
    calls = [
        Call(problem(one, 37, 75, 60, beta=True, aligned=False), alpha=0.5, beta=-1.0, d_kinds=kinds),
        Call(problem(one, 64, 66, 72, aligned=False), d_kinds=tuple(reversed(kinds))),
        Call(problem(one, 70, 40, 33, beta=True, aligned=False), beta=1.0, d_kinds=kinds, alias=True),
    ]
    size = {"fp32": 4, "int8": 1}.get(datatype, 2)
    # E and the D tensors only keep to their own elements.
    step = max(size, {"fp32": 4, "int8": 1}.get(output, 2))
    assert wrong(emulator, kernel(one, 64, 64, vector=0), *calls, allocate=at(step)) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("datatype", "vector"), [("bf16", 16), ("bf16", 0), ("fp32", 16), ("fp8_e5m2", 0)])
@pytest.mark.parametrize("multiprocessors", [4, 7])
def test_split_k(emulator: Emulator, datatype: str, vector: int, multiprocessors: int) -> None:
    one = signature(datatype, "rcr", "fp32", "MultiDAdd", 1)
    built = emulator.kernel(kernel(one, 64, 64 if datatype == "fp32" else 32, vector, tile_scheduler="split_k"))
    for number, (m, n, k) in enumerate(((32, 32, 1000), (30, 61, 520), (200, 40, 100), (20, 20, 7))):
        call = Call(problem(one, m, n, k, grain=16), d_kinds=("row",), seed=number)
        text = judge(built, call, (LATE, CHANCE, EAGER)[number % 3], number, multiprocessors, allocate=aligned)
        assert text == "", (m, n, k)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("number", "tile"), list(enumerate(WIDE)))
def test_tf32_that_does_not_lie_along_k(
    emulator: Emulator, number: int, tile: tuple[int, int, int, tuple[int, int]]
) -> None:
    """Tiles from 16 rows on; two blocks share a multiprocessor, so that k is cut even where each has a tile."""
    m, n, k_bytes, warps = tile
    one = signature("tf32", ("rrr", "crr", "ccr")[number % 3], "fp32", "MultiDAdd", 1)
    built = emulator.kernel(kernel(one, m, n, k_bytes=k_bytes, warps=warps, stages=4, tile_scheduler="split_k"))
    for seed, size in enumerate(((4, 136, 1000), (m + 4, 4 * n - 8, 400), (m - 4, n, 36))):
        call = Call(problem(one, *size, grain=4), d_kinds=("row",), seed=seed)
        text = judge(built, call, (LATE, CHANCE, EAGER)[seed], number, 4 if seed < 2 else 1, allocate=aligned)
        assert text == "", size


@pytest.mark.parametrize(("m", "n", "warps"), [(64, 64, (2, 2)), (128, 64, (4, 1))])
@pytest.mark.parametrize("multiprocessors", [1, 3])
def test_stream_k_of_plain_floats(
    emulator: Emulator, m: int, n: int, warps: tuple[int, int], multiprocessors: int
) -> None:
    """Two blocks share each multiprocessor, and hand over what they have of a tile."""
    one = signature("fp32", "rrr", "fp32", "MultiDAdd", 1)
    built = emulator.kernel(kernel(one, m, n, tile_scheduler="stream_k", warps=warps))
    for number, size in enumerate(((64, 64, 1000), (130, 190, 200), (300, 200, 68), (20, 20, 8))):
        call = Call(problem(one, *size, grain=4, batch=1 + number % 2), d_kinds=("row",), seed=number)
        text = judge(built, call, (LATE, CHANCE, EAGER)[number % 3], number, multiprocessors, allocate=aligned)
        assert text == "", size


@pytest.mark.parametrize("datatype", ["fp8_e4m3", "fp8_e5m2"])
def test_fp8_is_widened_where_there_are_no_instructions_for_it(emulator: Emulator, datatype: str) -> None:
    one = signature(datatype, "rcr", "fp32")
    for vector in (16, 0):
        calls = [Call(problem(one, 40, 50, 130, grain=16)), Call(problem(one, 3, 4, 5, grain=16))]
        assert wrong(emulator, kernel(one, 32, 32, vector, "sm_80"), *calls) == []


_TURN = "wait_copies<S::Stages - 2>();\n    block_barrier();\n    a.next"
MISTAKES = {
    "no wait for the copies": (_TURN, "block_barrier();\n    a.next"),
    "no barrier between steps": (_TURN, "wait_copies<S::Stages - 2>();\n    a.next"),
    "one stage too few waited for": (_TURN, _TURN.replace("Stages - 2", "Stages - 1")),
    "no barrier around the sheet": ("if (i > 0) block_barrier();", ""),
    "sums over tiles that are still read": ("if constexpr (ahead) block_barrier();", ""),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("mistake", "vector"), [(one, vector) for one in MISTAKES for vector in (16, 0) if vector or "sums" not in one]
)
def test_the_emulator_sees_mistakes(emulator: Emulator, mistake: str, vector: int) -> None:
    """Without these the other tests could not fail: each mistake must show in a wrong result or a report."""
    before, after = MISTAKES[mistake]
    one = signature()

    def edit(header: str) -> str:
        assert before in header, f"{before!r} is not in the header any more"
        return header.replace(before, after)

    spec = kernel(one, 64, 64, vector)
    built = emulator.kernel(spec, edit, mistake, header="gpu/gemm_multistage.h")
    call = Call(problem(one, 130, 70, 190, grain=8))  # six steps of three stages: the last ends at the first's place
    assert any(judge(built, call, mode, 1) for mode in (LATE, EAGER, CHANCE))
