"""PyTorch tensors: layouts from strides, views, batches, `out`, the current stream, graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tilewright as tw
from tests.gpu.cases import GEMM
from tests.gpu.reference import wide
from tests.gpu.torch_here import torch
from tilewright.ops.gemm import GemmProblem

SIZES = [(1, 512, 256), (16, 4096, 4096), (300, 500, 700), (1024, 1024, 1024), (1031, 129, 65), (1, 1, 1), (37, 1, 53)]
# whole tiles, k shared out, few rows, odd sizes
GRAPHED = [(512, 512, 512), (64, 2112, 7168), (4, 4096, 4096), (127, 131, 137)]
LAYOUTS = {(False, False): "rrr", (False, True): "rcr", (True, False): "crr", (True, True): "ccr"}

# What the tests below ask for, so that it is built with all the rest.  Others are built when they are met.
PROBLEMS = [
    *(GemmProblem(*size, "bf16", layout=layout) for size in SIZES for layout in LAYOUTS.values()),
    *(GemmProblem(*size, "bf16", layout="rcr") for size in GRAPHED),
    GemmProblem(2048, 2048, 2048, "bf16"),
    GemmProblem(200, 640, 320, "bf16", layout="rcr", epilogue="Relu", num_d=1),
    GemmProblem(128, 64, 256, "bf16"),
    GemmProblem(128, 64, 256, "bf16", aligned=False),
    GemmProblem(65, 72, 40, "bf16", batch=6),
    GemmProblem(65, 71, 43, "bf16", batch=6, aligned=False),
]


def random(*shape: int, dtype: Any = None) -> Any:
    return torch.randn(*shape, device="cuda").to(dtype or torch.bfloat16)


def close(result: Any, a: Any, b: Any) -> bool:
    exact, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    error = (result.double() - exact).abs()
    return bool((error <= exact.abs() * 2.0**-8 + scale * 1e-5).all())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("turned", LAYOUTS)
def test_layouts_come_from_strides(size: tuple[int, int, int], turned: tuple[bool, bool]) -> None:
    m, n, k = size
    a = random(k, m).T if turned[0] else random(m, k)
    b = random(n, k).T if turned[1] else random(k, n)
    result = tw.gemm(a, b)
    assert (tuple(result.shape), result.dtype, result.device) == ((m, n), a.dtype, a.device)
    assert close(result, a, b)


def test_a_column_major_result_is_written_in_place() -> None:
    a, b = random(128, 256), random(256, 64)
    memory = torch.full((64, 136), 7.0, device="cuda", dtype=torch.bfloat16)
    out = memory[:, :128].T
    assert tw.gemm(a, b, out=out) is out
    assert close(out, a, b)
    assert bool((memory[:, 128:] == 7).all())


def test_views_at_any_address_run_on_some_kernel() -> None:
    whole, b = random(128, 264), random(256, 64)
    for start in (0, 1, 8):
        a = whole[:, start : start + 256]
        assert close(tw.gemm(a, b), a, b)
    out = torch.full((128, 66), 7.0, device="cuda", dtype=torch.bfloat16)
    a = whole[:, :256]
    tw.gemm(a, b, out=out[:, 1:65])
    assert close(out[:, 1:65], a, b)
    assert bool((out[:, [0, 65]] == 7).all())


@pytest.mark.parametrize("size", [(65, 72, 40), (65, 71, 43), (1, 8, 16)])
def test_batches_with_strides_of_their_own(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = random(6, m, k), random(6, k, n)
    assert close(tw.gemm(a, b), a, b)
    every_other = random(12, m, k)[::2]
    assert close(tw.gemm(every_other, b), every_other, b)
    one = random(k, n)
    assert close(tw.gemm(a, one), a, one)
    repeated = one.expand(6, k, n)
    assert close(tw.gemm(a, repeated), a, repeated)
    memory = torch.full((6, m + 1, n), 7.0, device="cuda", dtype=torch.bfloat16)
    tw.gemm(a, b, out=memory[:, :m])
    assert close(memory[:, :m], a, b)
    assert bool((memory[:, m] == 7).all())


def test_nothing_is_a_size_too() -> None:
    assert tuple(tw.gemm(random(0, 64), random(64, 32)).shape) == (0, 32)
    assert tuple(tw.gemm(random(32, 64), random(64, 0)).shape) == (32, 0)
    assert bool((tw.gemm(random(32, 0), random(0, 16)) == 0).all())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float8_e4m3fn", "int8"])
def test_other_element_types(dtype: str) -> None:
    kind = getattr(torch, dtype)
    if dtype == "int8":
        a, b = (torch.randint(-9, 10, shape, device="cuda").to(kind) for shape in ((40, 64), (24, 64)))
        assert torch.equal(tw.gemm(a, b.T).double(), a.double() @ b.double().T)
        return
    a, b = random(40, 64, dtype=kind), random(24, 64, dtype=kind)
    result = tw.gemm(a, b.T)
    left, right = wide(a), wide(b).T
    exact, scale = left @ right, left.abs() @ right.abs()
    loses = 2.0**-11 if dtype.startswith("float8") else 1e-5
    assert bool(((result.double() - exact).abs() <= exact.abs() * 2.0**-10 + scale * loses).all())


def test_fused_work_on_tensors() -> None:
    a, b, bias = random(200, 320), random(640, 320), random(640)
    result = tw.gemm(a, b.T, ds=(bias,), epilogue="relu")
    expected = torch.relu(a.double() @ b.double().T + bias.double())
    assert bool(((result.double() - expected).abs() <= expected.abs() * 2.0**-7 + 1e-2).all())
    c = random(200, 640)
    before = c.double()
    tw.gemm(a, b.T, c, alpha=0.5, beta=2.0, out=c)  # in place
    wanted = 0.5 * (a.double() @ b.double().T) + 2.0 * before
    assert bool(((c.double() - wanted).abs() <= wanted.abs() * 2.0**-7 + 1e-2).all())


def test_a_packed_b(arch: str) -> None:
    asked = GemmProblem(64, 256, 128, "bf16", layout="rcr", preshuffled=True)
    refused = GEMM.problem_violations(asked, arch)
    if refused:
        pytest.skip(f"{arch} has no packed form: {refused[0].message}")
    a, b = random(64, 128), random(256, 128)
    packed = tw.pack(b.T, m=64, target=arch)
    assert close(tw.gemm(a, packed), a, b.T)
    b.fill_(0)  # the packed form is a copy
    assert bool((tw.gemm(a, packed) != 0).any())


# -- order -----------------------------------------------------------------------------------------------------------


def test_work_is_ordered_on_the_current_stream() -> None:
    a, b = random(2048, 2048), random(2048, 2048)
    expected = tw.gemm(a, b).clone()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        slow = a
        for _ in range(20):
            slow = slow * 1
        result = tw.gemm(slow, b)
        copy = result.clone()
    side.synchronize()
    assert torch.equal(copy, expected)


def test_two_streams_do_not_share_what_kernels_keep_between_blocks() -> None:
    """k shared out among blocks goes through a workspace: two such kernels at once must not meet there."""
    m, n, k = 64, 2112, 7168
    pairs = [(random(m, k), random(n, k)) for _ in range(2)]
    expected = [tw.gemm(a, b.T).clone() for a, b in pairs]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in pairs]
    results: list[list[Any]] = [[], []]
    for _ in range(20):
        for (a, b), stream, into in zip(pairs, streams, results, strict=True):
            with torch.cuda.stream(stream):
                into.append(tw.gemm(a, b.T))
    torch.cuda.synchronize()
    for want, found in zip(expected, results, strict=True):
        assert all(torch.equal(one, want) for one in found)


@pytest.mark.parametrize("size", GRAPHED)
def test_a_captured_graph_replays_with_new_values(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = random(m, k), random(n, k)
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    tw.gemm(a, b.T, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tw.gemm(a, b.T, out=out)
    for _ in range(3):
        a.copy_(random(m, k))
        b.copy_(random(n, k))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert close(out, a, b.T), size


def test_a_graph_may_make_its_result() -> None:
    """Without `out` PyTorch's allocator gives the memory, which graphs know; nothing of ours allocates."""
    a, b = random(512, 512), random(512, 512)
    tw.gemm(a, b.T)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        middle = tw.gemm(a, b.T)
        result = tw.gemm(middle, b.T)
    a.copy_(random(512, 512))
    graph.replay()
    torch.cuda.synchronize()
    assert close(middle, a, b.T)
    assert close(result, middle, b.T)


def test_graphs_and_plain_calls_take_turns() -> None:
    """A plain call between replays uses the same workspace; flags in it must be as the next kernel expects them."""
    m, n, k = 64, 2112, 7168
    a, b = random(m, k), random(n, k)
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    expected = tw.gemm(a, b.T).clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tw.gemm(a, b.T, out=out)
    for _ in range(5):
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(tw.gemm(a, b.T), expected)
        assert torch.equal(out, expected)


def test_the_names_of_problems_are_as_the_tests_need_them(arch: str) -> None:
    """PROBLEMS only saves time, so nothing else would notice that it holds what no kernel serves."""
    from tilewright.dispatch.registry import default_registry

    for one in PROBLEMS:
        assert default_registry(arch).select(replace(one)).spec.arch == arch
