"""Our kernels inside of what `torch.compile` makes: a pass over its graphs that takes ours where they are faster.

    torch.compile(model, options=tilewright.torch.inductor.options())       measured while compiling, faster ones taken
    torch.compile(model, options=tilewright.torch.inductor.options(decide="always"))   whatever our kernels serve

The pass (`post_grad_custom_pre_pass`) sees the functional graph that Inductor is about to lower: mm, addmm, bmm,
convolutions and SDPA's kernels, in forward and backward graphs alike.  What our selection chooses for the sizes of a
node is timed beside PyTorch's own on tensors of these sizes and strides, which no cache of a GPU holds, once for each
kind of node in a process.
Decisions are logged (`logging.getLogger("tilewright.torch.inductor")`, level INFO) and kept (`decisions()`).
Sizes that change are judged by those that a graph was compiled with; a graph from PyTorch's cache keeps its decisions.
"""

from __future__ import annotations

import logging
import operator
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import tilewright
from tilewright.errors import RequestError, TilewrightError, shown
from tilewright.torch import library
from tilewright.torch.required import torch

from torch._inductor.custom_graph_pass import CustomGraphPass  # isort: skip  after PyTorch is known to be there

__all__ = ["Decision", "GraphPass", "decisions", "enabled", "options"]

LOGGER = logging.getLogger("tilewright.torch.inductor")
DECIDE = ("measure", "always")
MARGIN = 0.03  # of PyTorch's time that ours must save: less is noise, and another op in the graph is a risk
ROUNDS, CALLS = 7, 10
COLD_BYTES = 192 << 20  # more than any second-level cache of a GPU holds
_HIDDEN_CYCLES = 2_000_000  # a millisecond or so: the host queues the calls meanwhile
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_aten = torch.ops.aten


@dataclass(frozen=True)
class Decision:
    """What became of a node of a graph, and why; seconds where both were timed."""

    op: str
    operands: tuple[str, ...]  # dtypes, sizes and strides
    taken: bool
    why: str
    ours: float | None = None
    theirs: float | None = None

    def __str__(self) -> str:
        times = f", {self.ours * 1e6:.1f} us beside {self.theirs * 1e6:.1f}" if self.ours and self.theirs else ""
        return f"{self.op}({', '.join(self.operands)}): {'ours' if self.taken else 'PyTorch'}, {self.why}{times}"


_DECISIONS: list[Decision] = []
_MEASURED: dict[Any, tuple[float, float]] = {}


def decisions() -> list[Decision]:
    """What was decided in this process, in the order it was."""
    return list(_DECISIONS)


# -- nodes as calls of ours --------------------------------------------------------------------------------------------


@dataclass
class _Rewrite:
    """A node as calls of ours.  `build(call, *tensors)` makes the result, where `call(op, *args, **kwargs)` adds a node
    or runs an op."""

    tensors: list[Any]  # nodes that are read
    build: Callable[..., Any]
    first_of: bool = False  # the node has several results, of which this is the first and only one read


def _plain_mm(node: Any) -> _Rewrite | str:
    return _Rewrite(list(node.args[:2]), lambda call, a, b: call(library.op("gemm"), a, b))


def _addmm(node: Any) -> _Rewrite | str:
    if node.kwargs.get("beta", 1) != 1:
        return "beta is not 1"
    alpha = float(node.kwargs.get("alpha", 1))
    bias, a, b = node.args[:3]
    return _Rewrite(
        [bias, a, b],
        lambda call, bias, a, b: call(library.op("gemm"), a, b, None, bias, alpha=alpha, epilogue="MultiDAdd"),
    )


def _convolution(node: Any) -> _Rewrite | str:
    x, w, bias, stride, padding, dilation, transposed, _, groups = node.args
    if transposed:
        return "a transposed convolution"
    ours = {"stride": list(stride), "padding": list(padding), "dilation": list(dilation), "groups": groups,
            "layout": "nchw"}  # fmt: skip
    tensors = [x, w] if bias is None else [x, w, bias]
    return _Rewrite(tensors, lambda call, *operands: call(library.op("conv"), *operands, **ours))


def _attended(heads_first: bool, call: Callable[..., Any], q: Any, k: Any, v: Any, *rest: Any, **ours: Any) -> Any:
    """Attention whose result lies as that of PyTorch's kernel: heads before rows in memory, or rows before heads."""
    if heads_first:
        return call(library.op("attention"), q, k, v, *rest, layout="bhsd", **ours)
    transposed = [call(_aten.permute.default, tensor, [0, 2, 1, 3]) for tensor in (q, k, v)]
    attended = call(library.op("attention"), *transposed, *rest, layout="bshd", **ours)
    return call(_aten.permute.default, attended, [0, 2, 1, 3])


def _sdpa(node: Any) -> _Rewrite | str:
    """`_scaled_dot_product_*attention*`: q, k and v, then what each has its own place for."""
    names = [argument.name for argument in node.target._schema.arguments]
    arguments = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    if arguments.get("dropout_p", 0.0):
        return "dropout"
    users = list(node.users)
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in users) or not users:
        return "more than the result is read: a gradient is recorded"
    bias = arguments.get("attn_mask", arguments.get("attn_bias"))
    ours = {"causal": "top_left" if arguments.get("is_causal") else "", "scale": arguments.get("scale")}
    tensors = [arguments["query"], arguments["key"], arguments["value"]]
    if bias is not None and bias.meta["val"].dtype == torch.bool:
        return "a boolean mask"
    given_too = [] if bias is None else [bias]
    heads_first = bool(node.meta["val"][0].is_contiguous())

    def build(call: Callable[..., Any], q: Any, k: Any, v: Any, *biases: Any) -> Any:
        return _attended(heads_first, call, q, k, v, *((None, *biases) if biases else ()), **ours)

    return _Rewrite([*tensors, *given_too], build, first_of=True)


_REWRITES: dict[Any, Callable[[Any], _Rewrite | str]] = {
    _aten.mm.default: _plain_mm,
    _aten.bmm.default: _plain_mm,
    _aten.addmm.default: _addmm,
    _aten.convolution.default: _convolution,
    **{
        getattr(_aten, name).default: _sdpa
        for name in (
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_fused_attention_overrideable",
        )
        if hasattr(_aten, name)
    },
}


# -- what is known of a node -------------------------------------------------------------------------------------------


def _number(size: Any) -> int | None:
    """A size, or the one that a graph was compiled with; None where nobody knows."""
    if isinstance(size, int):
        return size
    hint = getattr(getattr(size, "node", None), "hint", None)
    return int(hint) if isinstance(hint, int) else None


def _facts(value: Any) -> tuple[Any, tuple[int | None, ...], tuple[int | None, ...], Any]:
    return value.dtype, tuple(map(_number, value.shape)), tuple(map(_number, value.stride())), value.device


def _text(value: Any) -> str:
    dtype, shape, strides, _ = _facts(value)
    return f"{str(dtype).removeprefix('torch.')} {'x'.join(map(str, shape))} strides {'x'.join(map(str, strides))}"


def _why_not(values: list[Any]) -> str:
    if any(not isinstance(value, torch.Tensor) for value in values):
        return "an operand is no tensor"
    if any(value.dtype not in _FLOATS or value.dtype != values[0].dtype for value in values):
        return "operands are not all of float32, float16 or bfloat16"
    if any(value.device.type not in ("cpu", "cuda") or value.device != values[0].device for value in values):
        return "operands are not all on the CPU, or on one CUDA device"
    if any(None in part for value in values for part in _facts(value)[1:3]):
        return "a size is not known"
    return "" if all(value.numel() for value in values) else "an operand is empty"


def _made_up(value: Any) -> Any:
    """A tensor of random numbers that lies as one of the graph does."""
    dtype, shape, strides, device = _facts(value)
    reach = 1 + sum(((size or 1) - 1) * (step or 0) for size, step in zip(shape, strides, strict=True))
    return torch.randn(reach, device=device).to(dtype).as_strided(shape, strides)


def copies_needed(tensors: list[Any]) -> int:
    """How many sets of such operands calls must take in turn so that a GPU's cache holds none of them any more when it
    comes again: in a model, weights are read once a step.  (In a cache they would make a kernel look twice as fast.)"""
    if tensors[0].device.type != "cuda":
        return 1
    held = int(sum(tensor.untyped_storage().nbytes() for tensor in tensors))
    return min(CALLS, 1 + COLD_BYTES // max(held, 1))


def _seconds(calls: list[Callable[[], Any]], device: Any) -> list[float]:
    """Of a call of each, the median over interleaved rounds; on a GPU what the device takes, not the host."""
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        for _ in range(CALLS if device.type == "cuda" else 3):
            call()
    for _ in range(ROUNDS):
        for index, call in enumerate(calls):
            taken[index].append(_on_gpu(call) if device.type == "cuda" else _on_cpu(call))
    return [statistics.median(times) for times in taken]


def _on_gpu(call: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_HIDDEN_CYCLES)
    start.record()
    for _ in range(CALLS):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / CALLS


def _on_cpu(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


# -- the pass ----------------------------------------------------------------------------------------------------------


class GraphPass(CustomGraphPass):  # type: ignore[misc]
    """Replaces nodes of a graph by calls of ours, where that is decided for them."""

    def __init__(self, decide: str = "measure") -> None:
        if decide not in DECIDE:
            raise RequestError(
                f"decide is {shown(decide)}",
                rule="inductor-decide",
                value=shown(decide),
                remedy=f"use one of {', '.join(DECIDE)}",
            )
        self.decide = decide

    def uuid(self) -> Any:
        """What PyTorch's cache of compiled graphs must know us by."""
        return f"tilewright {tilewright.__version__} {self.decide}"

    def __call__(self, graph: Any) -> None:
        for node in list(graph.nodes):
            if node.op == "call_function" and node.target in _REWRITES:
                decision = self._rewritten(graph, node)
                _DECISIONS.append(decision)
                LOGGER.info("%s", decision)
        graph.eliminate_dead_code()

    def _rewritten(self, graph: Any, node: Any) -> Decision:
        name = node.target._schema.name.removeprefix("aten::")
        rewrite = _REWRITES[node.target](node)
        if isinstance(rewrite, str):
            return Decision(name, (), False, rewrite)
        values = [tensor.meta.get("val") if hasattr(tensor, "meta") else tensor for tensor in rewrite.tensors]
        why = _why_not(values)
        if why:
            return Decision(name, (), False, why)
        texts = tuple(map(_text, values))
        try:
            result = rewrite.build(_evaluated, *values)
        except (TilewrightError, RuntimeError, ValueError) as error:
            return Decision(name, texts, False, f"our op refuses it: {error}"[:200])
        if _facts(result) != _facts(_result(node, rewrite)):
            return Decision(name, texts, False, "the result would have other strides")
        decision = self._decided(name, texts, node, rewrite, values)
        if decision.taken:
            _replace(graph, node, rewrite)
        return decision

    def _decided(self, name: str, texts: tuple[str, ...], node: Any, rewrite: _Rewrite, values: list[Any]) -> Decision:
        if self.decide == "always":
            return Decision(name, texts, True, "always asked for")
        rest = [argument for argument in (*node.args, *node.kwargs.items()) if not hasattr(argument, "meta")]
        key = name, tuple(map(_facts, values)), repr(rest)
        try:
            if key not in _MEASURED:
                _MEASURED[key] = _measured(node, rewrite, values)
        except TilewrightError as error:
            return Decision(name, texts, False, f"our call refuses it: {error}"[:200])
        ours, theirs = _MEASURED[key]
        taken = ours < (1 - MARGIN) * theirs
        return Decision(name, texts, taken, "measured faster" if taken else "measured no faster", ours, theirs)


def _evaluated(target: Any, *args: Any, **kwargs: Any) -> Any:
    return target(*args, **kwargs)


def _result(node: Any, rewrite: _Rewrite) -> Any:
    value = node.meta["val"]
    return value[0] if rewrite.first_of else value


def _measured(node: Any, rewrite: _Rewrite, values: list[Any]) -> tuple[float, float]:
    """Seconds of ours and of PyTorch's, on tensors made up for it."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch.no_grad():
        first = [_made_up(value) for value in values]
        sets = [first, *([_made_up(value) for value in values] for _ in range(copies_needed(first) - 1))]
        own, other = cycle(sets), cycle([_arguments(node, rewrite, real) for real in sets])

        def theirs() -> Any:
            args, kwargs = next(other)
            return node.target(*args, **kwargs)

        by_ours, by_theirs = _seconds([lambda: rewrite.build(_evaluated, *next(own)), theirs], first[0].device)
    return by_ours, by_theirs


def _arguments(node: Any, rewrite: _Rewrite, real: list[Any]) -> tuple[Any, Any]:
    """Those of a node, with real tensors in place of other nodes."""
    by_node = dict(zip(rewrite.tensors, real, strict=True))

    def real_value(argument: Any) -> Any:
        return by_node.get(argument, argument) if isinstance(argument, torch.fx.Node) else argument

    return torch.fx.map_arg(node.args, real_value), torch.fx.map_arg(node.kwargs, real_value)


def _replace(graph: Any, node: Any, rewrite: _Rewrite) -> None:
    def call(target: Any, *args: Any, **kwargs: Any) -> Any:
        new_node = graph.call_function(target, args, kwargs)
        read = torch.fx.map_arg((args, kwargs), lambda operand: operand.meta["val"])
        new_node.meta["val"] = target(*read[0], **read[1])
        return new_node

    with graph.inserting_before(node):
        new_node = rewrite.build(call, *rewrite.tensors)
    if not rewrite.first_of:
        node.replace_all_uses_with(new_node)
        graph.erase_node(node)
        return
    for user in list(node.users):
        user.replace_all_uses_with(new_node)
        graph.erase_node(user)
    graph.erase_node(node)


# -- how it is asked for -----------------------------------------------------------------------------------------------


def options(decide: str = "measure", **more: Any) -> dict[str, Any]:
    """`options=` of `torch.compile` with our pass; `more` are other options of Inductor's."""
    return {**more, "post_grad_custom_pre_pass": GraphPass(decide)}


@contextmanager
def enabled(decide: str = "measure") -> Iterator[GraphPass]:
    """Our pass in every graph that Inductor compiles inside of this."""
    from torch._inductor import config

    graph_pass = GraphPass(decide)
    with config.patch(post_grad_custom_pre_pass=graph_pass):
        yield graph_pass
