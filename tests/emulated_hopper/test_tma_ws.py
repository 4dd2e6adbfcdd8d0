"""The real tma_ws pipeline on an emulated Hopper GPU: every scheduler, cluster, store and layout, and every edge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.backends.cpu.gemm.fenced_pages import Pages
from tests.backends.cpu.gemm.harness import Call
from tests.backends.cuda.gemm import names as make
from tests.emulated_hopper.emulator import CHANCE, EAGER, GEMM, LATE, Emulator, judge
from tests.emulated_hopper.test_multistage import odd_only
from tilewright.ops import KernelSpec
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.pools import signatures
from tilewright.ops.gemm.spec import GemmSignature

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

SCHEDULERS = ("cooperative", "pingpong", "cooperative_stream_k", "pingpong_stream_k")


def signature(
    datatype: str = "bf16", layout: str = "rcr", output: str = "bf16", epilogue: str = "", count: int = 0
) -> GemmSignature:
    variant = "multi_d" if epilogue else "standard"
    made = signatures([datatype], [layout], [variant], [epilogue] if epilogue else (), [output], [count])
    return next(iter(made))


def tma_ws(
    one: GemmSignature, m: int, n: int, stages: int, cluster: tuple[int, int], way: str = "cooperative", store: str = ""
) -> KernelSpec:
    return KernelSpec("gemm", one, make.tma_ws(one, m, n, stages, cluster, make.WAYS[way], store), "sm_90a")


def problem(one: GemmSignature, m: int, n: int, k: int, **more: object) -> GemmProblem:
    """With every leading stride a little longer than it must be, in steps TMA takes."""

    def stride(length: int) -> int:
        return -(-length // 16) * 16 + 16

    return GemmProblem(
        m, n, k, one.dtype_a, one.dtype_b, one.dtype_c, one.dtype_d, one.layout,
        epilogue=one.epilogue, num_d=one.num_d,
        a_stride=stride(k if one.layout[0] == "r" else m),
        b_stride=stride(n if one.layout[1] == "r" else k),
        c_stride=stride(n), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def wrong(emulator: Emulator, spec: KernelSpec, *calls: Call, multiprocessors: int = 4) -> list[str]:
    """What is wrong with the kernel: each call once with a landing of its own, and none may be refused."""
    kernel = emulator.kernel(spec)
    found = []
    for number, call in enumerate(calls):
        assert GEMM.supports(spec, call.problem) == [], (spec.name, call.problem)
        mode = (LATE, CHANCE, EAGER)[number % 3]
        text = judge(kernel, replace(call, seed=number), mode, number, multiprocessors)
        if text:
            found.append(f"{spec.name} {call.problem.describe()} mode {mode}: {text}")
    return found


def edges(one: GemmSignature) -> tuple[Call, ...]:
    """Less than a tile, several tiles with tails along each axis, long k for few tiles."""
    return tuple(
        Call(problem(one, m, n, k), alpha=alpha)
        for m, n, k, alpha in (
            (8, 8, 8, 1.0),
            (300, 264, 200, 0.5),
            (129, 136, 1000, 1.0),
            (264, 520, 64, -2.0),
        )
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_and_cluster(emulator: Emulator, scheduler: str, cluster: tuple[int, int]) -> None:
    one = signature()
    m = 64 if scheduler.startswith("pingpong") else 128
    store = "direct" if cluster in ((1, 2), (2, 1)) else "tma"
    assert wrong(emulator, tma_ws(one, m, 64, 3, cluster, scheduler, store), *edges(one)) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("place", [0, 1])
def test_an_operand_that_is_not_aligned_keeps_the_tma_store(emulator: Emulator, place: int) -> None:
    """It is copied before; only where the result lies matters to the store."""
    one = signature()
    spec = tma_ws(one, 128, 64, 3, (1, 1), store="tma")
    asked = problem(one, 136, 72, 80, unaligned="ab"[place])
    assert GEMM.supports(spec, asked) == []
    assert judge(emulator.kernel(spec), Call(asked), allocate=odd_only(place, 2)) == ""
    assert [why.rule for why in GEMM.supports(spec, replace(asked, unaligned="c"))] == ["nv-alignment"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["rrr", "crr", "ccr"])
@pytest.mark.parametrize("scheduler", ["cooperative", "pingpong_stream_k"])
def test_every_layout(emulator: Emulator, layout: str, scheduler: str) -> None:
    one = signature("fp16", layout, "fp16")
    spec = tma_ws(one, 128, 128, 2, (2, 1) if scheduler == "cooperative" else (1, 2), scheduler)
    assert wrong(emulator, spec, *edges(one)) == []


@pytest.mark.parametrize(
    ("m", "n", "stages", "cluster", "scheduler"),
    [
        (256, 128, 4, (1, 2), "cooperative"),  # two rows of wgmma a warpgroup
        (128, 256, 4, (2, 1), "cooperative"),
        (128, 176, 5, (2, 1), "cooperative"),  # results leave 16 columns at a time
        (64, 96, 8, (1, 1), "pingpong"),  # 32 at a time
        (64, 24, 8, (1, 1), "pingpong_stream_k"),  # and 8, by ordinary stores
        (192, 112, 5, (1, 1), "pingpong"),  # three rows of wgmma
        (144, 128, 4, (1, 2), "cooperative_swap_ab"),  # more columns than lines
        (192, 192, 3, (2, 1), "cooperative"),  # three warpgroups share the tile
        (256, 192, 3, (1, 2), "cooperative"),  # as many accumulators as registers have room for
        (128, 192, 4, (2, 1), "pingpong"),
        (48, 192, 4, (1, 1), "cooperative_swap_ab"),
    ],
)
def test_every_width_of_results(
    emulator: Emulator, m: int, n: int, stages: int, cluster: tuple[int, int], scheduler: str
) -> None:
    one = signature()
    assert wrong(emulator, tma_ws(one, m, n, stages, cluster, scheduler), *edges(one)) == []


@pytest.mark.parametrize(
    ("layout", "m", "n", "stages", "cluster", "scheduler"),
    [
        ("rrr", 128, 160, 4, (1, 2), "cooperative"),
        ("crr", 64, 48, 4, (1, 1), "pingpong_split_k"),
        ("rrr", 128, 16, 4, (1, 1), "pingpong"),
        ("crr", 256, 144, 3, (1, 2), "cooperative"),
        ("crr", 192, 176, 3, (1, 2), "cooperative"),
        ("crr", 16, 64, 4, (1, 1), "pingpong_swap_ab_split_k"),
        ("ccr", 80, 128, 4, (1, 1), "cooperative_swap_ab"),
    ],
)
def test_lines_that_are_fetched_further_than_the_tile(
    emulator: Emulator, layout: str, m: int, n: int, stages: int, cluster: tuple[int, int], scheduler: str
) -> None:
    """64 contiguous lines at a time, of which a tile may have fewer."""
    one = signature(layout=layout)
    assert wrong(emulator, tma_ws(one, m, n, stages, cluster, scheduler), *edges(one)) == []


@pytest.mark.parametrize(
    ("layout", "m", "n", "stages", "cluster", "scheduler"),
    [
        ("crr", 128, 96, 3, (2, 2), "cooperative"),
        ("rrr", 64, 24, 4, (4, 1), "pingpong"),
        ("ccr", 64, 32, 4, (1, 4), "pingpong"),
    ],
)
def test_parts_of_contiguous_lines_are_parts_of_k(
    emulator: Emulator, layout: str, m: int, n: int, stages: int, cluster: tuple[int, int], scheduler: str
) -> None:
    """Blocks of a cluster fetch some k of all lines for each other, however few lines a tile has."""
    one = signature(layout=layout)
    assert wrong(emulator, tma_ws(one, m, n, stages, cluster, scheduler), *edges(one)[1:3]) == []


def test_narrow_tiles_of_two_rows_of_wgmma(emulator: Emulator) -> None:
    """By ordinary stores: both rows of sums leave, not the first alone."""
    one = signature()
    assert wrong(emulator, tma_ws(one, 128, 32, 8, (1, 1), "pingpong", "direct"), *edges(one)) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("datatype", "output"), [("fp8_e4m3", "bf16"), ("fp8_e5m2", "fp32"), ("fp16", "fp32")])
def test_other_inputs_and_outputs(emulator: Emulator, datatype: str, output: str) -> None:
    one = signature(datatype, output=output)
    calls = [Call(problem(one, m, n, k)) for m, n, k in ((16, 16, 16), (200, 144, 400))]
    assert wrong(emulator, tma_ws(one, 128, 64, 3, (1, 1)), *calls) == []


@pytest.mark.parametrize(("scheduler", "cluster"), [("cooperative", (2, 1)), ("pingpong_swap_ab_split_k", (1, 1))])
def test_tf32(emulator: Emulator, scheduler: str, cluster: tuple[int, int]) -> None:
    """Rounded to 11 bits by TMA; wgmma itself would cut, which is outside the bound."""
    one = signature("tf32", output="fp32")
    calls = [Call(problem(one, m, n, k)) for m, n, k in ((16, 16, 16), (200, 144, 200), (40, 72, 1000))]
    assert wrong(emulator, tma_ws(one, 64 if "turned" in scheduler else 128, 64, 3, cluster, scheduler), *calls) == []


@pytest.mark.parametrize(
    ("datatype", "output", "layout", "scheduler", "cluster"),
    [
        ("tf32", "fp32", "crr", "cooperative", (2, 1)),
        ("tf32", "fp32", "rrr", "cooperative_split_k", (1, 1)),
        ("int8", "int32", "crr", "pingpong_swap_ab_split_k", (1, 1)),
        ("int8", "int32", "ccr", "pingpong", (1, 1)),
        ("fp8_e4m3", "bf16", "ccr", "pingpong", (1, 2)),
    ],
)
def test_operands_that_are_turned_first(
    emulator: Emulator, datatype: str, output: str, layout: str, scheduler: str, cluster: tuple[int, int]
) -> None:
    """wgmma reads one- and four-byte elements along k only; also batches, odd addresses, and pages nobody may touch."""
    one = signature(datatype, layout, output)
    spec = tma_ws(one, 64 if scheduler.startswith("pingpong") else 128, 64, 3, cluster, scheduler, "direct")
    calls = [Call(problem(one, m, n, k)) for m, n, k in ((16, 16, 16), (200, 144, 200), (72, 40, 333))]
    calls.append(Call(problem(one, 72, 136, 40, batch=2, broadcast_a=True)))
    assert wrong(emulator, spec, *calls) == []
    for at_end in (True, False):
        asked = GemmProblem(67, 133, 131, one.dtype_a, one.dtype_b, one.dtype_c, layout=layout, batch=2)
        assert judge(emulator.kernel(spec), Call(asked), allocate=Pages(at_end)) == ""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("output", "epilogue", "count", "scheduler"),
    [
        ("int32", "", 0, "cooperative"),
        ("int32", "", 0, "pingpong_stream_k"),
        ("int8", "Relu", 1, "cooperative_split_k"),
        ("fp32", "", 0, "pingpong_swap_ab_split_k"),
    ],
)
def test_whole_numbers(emulator: Emulator, output: str, epilogue: str, count: int, scheduler: str) -> None:
    """Sums of int8 are int32, exact to the last one also where parts of k are added up."""
    one = signature("int8", "rcr", output, epilogue, count)
    kinds = ("row",) * count
    # Large alphas would leave int8's range in every element.
    alpha = 0.001 if output == "int8" else 1.0
    calls = [
        Call(problem(one, m, n, k, beta=bool(beta)), alpha=alpha, beta=beta, d_kinds=kinds)
        for m, n, k, beta in ((16, 16, 16, 0.0), (200, 144, 400, 0.0), (60, 77, 2000, 2.0))
    ]
    m, n = (64, 64) if "turned" in scheduler else (128, 64)
    assert wrong(emulator, tma_ws(one, m, n, 3, (1, 1), scheduler), *calls) == []


@pytest.mark.parametrize("scheduler", ["cooperative", "pingpong_stream_k"])
def test_batches(emulator: Emulator, scheduler: str) -> None:
    one = signature()
    calls = [
        Call(problem(one, 136, 72, 136, batch=3), gap=24),
        Call(problem(one, 72, 136, 200, batch=2, broadcast_a=True)),
        Call(problem(one, 72, 136, 200, batch=2, broadcast_b=True), beta=0.5, broadcast_c=True),
    ]
    assert wrong(emulator, tma_ws(one, 128, 64, 3, (1, 1), scheduler), *calls) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("epilogue", "count", "output"), [("Gelu", 2, "bf16"), ("MultiDMultiply", 1, "fp32"), ("Relu", 0, "fp16")]
)
@pytest.mark.parametrize("scheduler", ["cooperative_stream_k", "pingpong"])
def test_epilogues(emulator: Emulator, epilogue: str, count: int, output: str, scheduler: str) -> None:
    one = signature("bf16" if output != "fp16" else "fp16", "rcr", output, epilogue, count)
    kinds = ("full", "row")[:count]
    calls = [
        Call(problem(one, 129, 135, 200, beta=True), alpha=0.5, beta=-1.0, d_kinds=kinds),
        Call(problem(one, 64, 264, 72), d_kinds=tuple(reversed(kinds))),
        Call(problem(one, 70, 70, 72, beta=True), beta=1.0, d_kinds=kinds, alias=True),
    ]
    assert wrong(emulator, tma_ws(one, 128, 64, 3, (1, 1), scheduler, "direct"), *calls) == []


@pytest.mark.parametrize("multiprocessors", [1, 3, 7])
def test_any_number_of_blocks(emulator: Emulator, multiprocessors: int) -> None:
    one = signature()
    for scheduler in SCHEDULERS:
        spec = tma_ws(one, 64 if "pingpong" in scheduler else 128, 64, 3, (1, 1), scheduler, "tma")
        assert wrong(emulator, spec, *edges(one)[1:3], multiprocessors=multiprocessors) == []


@pytest.mark.parametrize("at_end", [True, False])
def test_nothing_is_touched_outside(emulator: Emulator, at_end: bool) -> None:
    """Operands against pages nobody may touch, also those that are copied first."""
    one = signature(layout="rrr", epilogue="Gelu", count=2)
    spec = tma_ws(one, 128, 64, 3, (1, 1), "cooperative_split_k", "direct")
    for m, n, k in ((67, 65, 63), (129, 257, 71), (40, 120, 1000)):
        asked = GemmProblem(m, n, k, "bf16", "bf16", "bf16", layout="rrr", epilogue="Gelu", num_d=2, beta=True)
        call = Call(asked, beta=-1.0, d_kinds=("full", "row"))
        assert judge(emulator.kernel(spec), call, allocate=Pages(at_end)) == ""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("m", "n", "stages", "cluster", "scheduler", "output"),
    [
        (128, 64, 3, (2, 1), "cooperative_cluster_k", "bf16"),
        (128, 128, 4, (4, 1), "cooperative_cluster_k", "fp32"),
        (128, 176, 5, (1, 2), "cooperative_cluster_k", "bf16"),
        (256, 64, 3, (2, 2), "cooperative_cluster_k", "bf16"),
        (128, 64, 4, (3, 1), "cooperative_cluster_k", "bf16"),
        (48, 128, 4, (5, 1), "cooperative_swap_ab_cluster_k", "bf16"),
        (48, 128, 4, (2, 1), "cooperative_swap_ab_cluster_k", "bf16"),
        (24, 128, 4, (4, 1), "cooperative_swap_ab_cluster_k", "fp32"),
    ],
)
def test_a_cluster_shares_the_k_of_a_tile(
    emulator: Emulator, m: int, n: int, stages: int, cluster: tuple[int, int], scheduler: str, output: str
) -> None:
    one = signature(output=output, epilogue="Gelu", count=1)
    parts = cluster[0] * cluster[1]
    calls = [
        Call(problem(one, m, n, k, beta=beta), beta=float(beta), d_kinds=(kind,))
        for m, n, k, beta, kind in (
            (8, 8, 64 * parts, False, "row"),
            (300, 264, 64 * parts + 72, True, "full"),
            (129, 137, 1000, False, "column"),
        )
    ]
    assert wrong(emulator, tma_ws(one, m, n, stages, cluster, scheduler), *calls, multiprocessors=8) == []


def test_a_k_too_short_for_a_cluster_is_refused(emulator: Emulator) -> None:
    one = signature()
    spec = tma_ws(one, 128, 64, 3, (4, 1), "cooperative_cluster_k")
    asked = problem(one, 128, 64, 192)
    assert [broken.rule for broken in GEMM.supports(spec, asked)] == ["nv-cluster-k"]
    assert "too short" in judge(emulator.kernel(spec), Call(asked), multiprocessors=8)


def test_a_cluster_shares_whole_numbers_and_batches(emulator: Emulator) -> None:
    one = signature("int8", "rrr", "int32")
    spec = tma_ws(one, 128, 64, 3, (2, 1), "cooperative_cluster_k")
    calls = [Call(problem(one, 130, 70, 300, batch=3)), Call(problem(one, 60, 77, 2000, batch=2, broadcast_b=True))]
    assert wrong(emulator, spec, *calls) == []


def test_the_emulator_sees_mistakes_in_a_cluster_that_shares_k(emulator: Emulator) -> None:
    one = signature()
    spec = tma_ws(one, 128, 64, 3, (2, 1), "cooperative_cluster_k")
    call = Call(problem(one, 264, 264, 456))
    for number, (where, before, after) in enumerate(
        (
            ("gemm/tma_ws/cluster", "  cluster_sync();\n", "  named_barrier(4, threads);\n"),
            ("gemm/tma_ws/cluster", "  cluster_sync();\n", "  cluster_sync_relaxed();\n"),
            ("gemm/tma_ws/cluster", "named_barrier(4, threads);  // both", "// both"),
            ("gemm/tma_ws/kernel", "  if (S::Cluster > 1) cluster_sync_relaxed();  // nobody", "  // nobody"),
        )
    ):

        def edit(header: str, before: str = before, after: str = after) -> str:
            assert before in header, f"{before!r} is not in the header any more"
            return header.replace(before, after)

        kernel = emulator.kernel(spec, edit, f"cluster_k {number}", f"cuda/{where}.h")
        assert any(judge(kernel, call, mode, 1) for mode in (LATE, EAGER, CHANCE)), before


def test_many_orders_of_landing(emulator: Emulator) -> None:
    one = signature()
    for spec in (tma_ws(one, 64, 64, 3, (2, 2), "pingpong_stream_k"), tma_ws(one, 128, 64, 3, (2, 2), "cooperative")):
        kernel = emulator.kernel(spec)
        for seed in range(6):
            assert judge(kernel, Call(problem(one, 200, 200, 456)), CHANCE, seed, 9) == ""


MISTAKES = {
    "no wait for the copies": ("gemm/tma_ws/consumer", "shared.full[ring.stage].wait(ring.phase);", ""),
    "no wait for a free stage": (
        "gemm/tma_ws/producer",
        "shared.empty[ring.stage].wait(ring.phase ^ 1);\n      char",
        "char",
    ),
    "a stage given back too early": ("gemm/tma_ws/consumer", "wgmma_wait<1>();\n", ""),
    "sums used in flight": ("gemm/tma_ws/consumer", "wgmma_wait<0>();\n", ""),
    "no fence before wgmma": ("gemm/tma_ws/consumer", "wgmma_fence();\n", ""),
    "no fence before a store": ("gemm/tma_ws/epilogue_store", "fence_async_proxy();\n", ""),
    "no wait for a buffer": ("gemm/tma_ws/epilogue_store", "if (!boxes_come && me.thread == 0) {", "if (false) {"),
    "too many bytes announced": ("gemm/tma_ws/producer", "expect(t.bytes)", "expect(t.bytes + 16)"),
    "too few arrivals": ("gemm/tma_ws/kernel", "ClusterN - 1) * S::sharing);", "ClusterN - 1) * (S::sharing + 1));"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_emulator_sees_mistakes(emulator: Emulator, mistake: str) -> None:
    """Without these the other tests could not fail: each mistake must show in a wrong result or a report."""
    where, before, after = MISTAKES[mistake]
    one = signature()

    def edit(header: str) -> str:
        assert before in header, f"{before!r} is not in the header any more"
        return header.replace(before, after)

    kernel = emulator.kernel(tma_ws(one, 128, 64, 3, (1, 1), "cooperative", "tma"), edit, mistake, f"cuda/{where}.h")
    call = Call(problem(one, 264, 264, 456))
    assert any(judge(kernel, call, mode, 1) for mode in (LATE, EAGER, CHANCE))
    if mistake == "too many bytes announced":
        assert "16 bytes to come" in judge(kernel, call, LATE)
        assert "deadlock" in judge(kernel, call, LATE)


def test_rows_of_e_that_end_inside_a_piece(emulator: Emulator) -> None:
    """Hopper's stores write whole 16-byte pieces; without the rule about E's rows the emulator shows it."""
    one = signature()
    spec = tma_ws(one, 128, 64, 3, (1, 1), "cooperative", "tma")
    asked = problem(one, 129, 257, 72)
    assert [broken.rule for broken in GEMM.supports(spec, asked)] == ["nv-alignment"]
    assert "TW_ALIGNMENT" in judge(emulator.kernel(spec), Call(asked))
    without = emulator.kernel(
        spec, lambda text: text.replace(" || unaligned(p.n, p.size_c)", ""), "odd rows", "cuda/gemm/tma_ws/limits.h"
    )
    assert "wrote outside E" in judge(without, Call(asked))
    assert judge(without, Call(problem(one, 129, 264, 72))) == ""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("m", "n", "cluster", "way"),
    [
        (64, 32, (1, 1), "pingpong"),
        (128, 64, (1, 1), "cooperative"),
        (128, 176, (2, 1), "cooperative"),
        (256, 48, (1, 1), "cooperative_stream_k"),
    ],
)
def test_rows_of_e_that_begin_anywhere(emulator: Emulator, m: int, n: int, cluster: tuple[int, int], way: str) -> None:
    """Every other row begins between two words, and rows end anywhere."""
    one = signature()
    calls = tuple(
        Call(replace(problem(one, rows, columns, 72), c_stride=stride), alpha=0.5)
        for rows, columns, stride in ((130, 8, 11), (300, 177, 177), (7, 259, 262), (65, 33, 35))
    )
    assert wrong(emulator, tma_ws(one, m, n, 3, cluster, way, "direct"), *calls) == []
