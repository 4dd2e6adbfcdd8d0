"""Workspaces beside PyTorch's allocator: graphs that replay at the same time, graphs that are dropped, side streams."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tilewright as tw
from tests.gpu.torch_here import torch
from tilewright.runtime import cuda

if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)

SPLITS = 8
REPLAYS, GRAPHS, STREAMS = 50, 12, 6


class Step:
    """Decoding with split keys, and a product of few rows and a long k: both need a workspace."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)

        def random(*shape: int) -> Any:
            return torch.randn(*shape, device="cuda", generator=generator).bfloat16()

        self.q, self.k, self.v = random(2, 1, 16, 128), random(2, 4096, 4, 128), random(2, 4096, 4, 128)
        self.weight = random(512, 2048)

    def __call__(self) -> Any:
        seen = tw.attention(self.q, self.k, self.v, num_splits=SPLITS)
        return tw.gemm(seen.reshape(2, 2048), self.weight.T)


def captured(step: Step) -> tuple[Any, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    Step(0)()
    torch.cuda.synchronize()


def test_graphs_that_replay_at_the_same_time_share_nothing() -> None:
    steps = [Step(seed) for seed in (1, 2, 3)]
    expected = [step() for step in steps]
    graphs = [captured(step) for step in steps]
    streams = [torch.cuda.Stream() for _ in steps]
    torch.cuda.synchronize()
    for _ in range(REPLAYS):
        for (_, result), stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                result.fill_(float("nan"))
        for (graph, _), stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
                graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(result, right) for (_, result), right in zip(graphs, expected, strict=True))


def test_dropped_graphs_give_their_memory_back() -> None:
    step = Step(4)
    expected = step()
    graph, result = captured(step)
    del graph, result
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before, (free, _) = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()
    for _ in range(GRAPHS):
        graph, result = captured(step)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, expected)
        del graph, result
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.mem_get_info()[0] >= free - (4 << 20)


def test_a_workspace_of_the_default_stream_is_in_pytorchs_statistics() -> None:
    device = cuda.device()
    step = Step(5)
    expected = step()
    device.drop_workspaces()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    assert torch.equal(step(), expected)
    workspace = device.workspaces[0]
    assert torch.cuda.memory_allocated() - before >= workspace.nbytes
    device.drop_workspaces()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before


def test_threads_on_streams_of_their_own() -> None:
    steps = [Step(10 + number) for number in range(STREAMS)]
    expected = [step() for step in steps]
    torch.cuda.synchronize()

    def run(number: int) -> bool:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            results = [steps[number]() for _ in range(REPLAYS)]
            stream.synchronize()
        return all(torch.equal(result, expected[number]) for result in results)

    with ThreadPoolExecutor(STREAMS) as threads:
        assert all(threads.map(run, range(STREAMS)))


def test_a_graph_and_eager_calls_of_the_stream_it_was_captured_on() -> None:
    """As serving frameworks do: warm up on a side stream, then capture on it; eager calls of that stream go on."""
    step, stream = Step(6), torch.cuda.Stream()
    expected = step()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        step()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            result = step()
    for _ in range(REPLAYS):
        with torch.cuda.stream(stream):
            beside = step()  # at the same time as the graph, which replays on the default stream
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(beside, expected)
    torch.cuda.synchronize()
    assert torch.equal(result, expected)
