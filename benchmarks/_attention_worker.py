"""One library in a process of its own, for attention_cpu.py; see _gemm_worker.py.

python benchmarks/_attention_worker.py torch|tilewright     started by attention_cpu.py, not by hand
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Any

from _cpu_worker import Call, serve

from tilewright.ops.attention import AttentionProblem
from tilewright.runtime.bindings import binding
from tilewright.runtime.samples import poison_results, runner

COPY_BYTES = 256 << 20  # of the copy that memory is judged by: far beyond any cache


def strides(layout: str, heads: int, rows: int, size: int) -> tuple[int, int, int]:
    """Sequence, row, head."""
    return (heads * rows * size, size, rows * size) if layout == "bhsd" else (heads * rows * size, heads * size, size)


def problem_of(shape: dict[str, Any]) -> AttentionProblem:
    rows, keys, size, layout = shape["rows"], shape["keys"], shape["size"], shape["layout"]
    of_rows, of_keys = (strides(layout, shape[name], n, size) for name, n in (("heads", rows), ("heads_kv", keys)))
    return AttentionProblem(
        shape["batch"], shape["heads"], rows, keys, size, heads_kv=shape["heads_kv"], dtype_q=shape["dtype"],
        window_right=0 if shape["causal"] else -1, align=shape["causal"] or "top_left",
        q_strides=of_rows, k_strides=of_keys, v_strides=of_keys, o_strides=of_rows,
    )  # fmt: skip


class TorchPeer:
    """PyTorch's scaled_dot_product_attention: `gqa` shares keys by its own means, `repeated` has them repeated before
    the clock runs."""

    def __init__(self, threads: int, options: dict[str, Any]) -> None:
        self._torch: Any = import_module("torch")
        self._torch.set_num_threads(threads)
        self._torch.set_grad_enabled(False)

    def versions(self) -> dict[str, str]:
        return {"torch": self._torch.__version__}

    def calls(self, shape: dict[str, Any], seed: int) -> dict[str, Call]:
        torch = self._torch
        torch.manual_seed(seed)
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[shape["dtype"]]
        attend = torch.nn.functional.scaled_dot_product_attention
        group, heads_kv = shape["heads"] // shape["heads_kv"], shape["heads_kv"]

        def made(heads: int, rows: int) -> Any:
            sizes = (heads, rows) if shape["layout"] == "bhsd" else (rows, heads)
            one = torch.randn(shape["batch"], *sizes, shape["size"]).to(kind)
            return one if shape["layout"] == "bhsd" else one.transpose(1, 2)

        q, k, v = made(shape["heads"], shape["rows"]), made(heads_kv, shape["keys"]), made(heads_kv, shape["keys"])
        how: dict[str, Any] = {"is_causal": shape["causal"] == "top_left"}
        if shape["causal"] == "bottom_right":
            shift = shape["keys"] - shape["rows"]
            how = {"attn_mask": torch.ones(shape["rows"], shape["keys"], dtype=torch.bool).tril(shift)}
        if group == 1:
            return {"gqa": partial(attend, q, k, v, **how)}
        found: dict[str, Call] = {"gqa": partial(attend, q, k, v, enable_gqa=True, **how)}
        if shape["batch"] * heads_kv * shape["keys"] * shape["size"] * group <= 1 << 28:
            many = [one.repeat_interleave(group, dim=1) for one in (k, v)]
            found["repeated"] = partial(attend, q, *many, **how)
        return found


class Tilewright:
    """Ours, in two forms: `call` is the kernel with everything prepared, `attention` the call a user makes.

    And `copy`: memory copied by as many threads, which decoding is held against.
    """

    def __init__(self, threads: int, options: dict[str, Any]) -> None:
        import tilewright as tw

        self._tw, self._threads, self._mode = tw, threads, options["mode"]
        tw.settings.configure(threads=threads, cache_dir=options["store"], measure=self._mode == "measured")
        from tilewright.dispatch.registry import default_registry

        self._registry = default_registry()
        self._copy = _copying(threads)

    def versions(self) -> dict[str, str]:
        return {"tilewright": self._tw.__version__}

    def calls(self, shape: dict[str, Any], seed: int) -> dict[str, Call]:
        from tilewright.runtime import host
        from tilewright.runtime.calls import NEVER, caller

        problem, attention = problem_of(shape), binding("attention")
        if self._mode == "measured":
            self._registry.measure(problem)
        self.chosen = self._registry.select(problem)
        sample = attention.sample(problem, seed)
        kernel = self._registry.kernel(self.chosen.spec)
        found: dict[str, Call] = {
            "call": runner(attention, kernel, problem, sample, host.device(), self._threads),
            "attention": partial(
                caller("attention").run, self._registry, sample.operands, sample.scalars, sample.attributes, NEVER
            ),
        }
        for form, call in found.items():
            poison_results(attention, sample)
            call()
            check = attention.check(problem, sample)
            if not check.ok:
                raise ArithmeticError(f"{form} of {self.chosen.name}: {check.detail}")
        return {**found, "copy": self._copy}

    def about(self) -> dict[str, str]:
        return {"kernel": self.chosen.name, "tier": self.chosen.tier}


def _copying(threads: int) -> Call:
    """A copy of COPY_BYTES, a part of it by each thread."""
    numpy: Any = import_module("numpy")
    source, target = (numpy.ones(COPY_BYTES // 4, numpy.float32) for _ in range(2))
    parts = list(zip(numpy.array_split(target, threads), numpy.array_split(source, threads), strict=True))
    pool = ThreadPoolExecutor(threads)

    def copy() -> None:
        for one in [pool.submit(numpy.copyto, to, start) for to, start in parts]:
            one.result()

    return copy


PEERS: dict[str, Callable[[int, dict[str, Any]], Any]] = {"torch": TorchPeer, "tilewright": Tilewright}

if __name__ == "__main__":
    serve(sys.argv[1], PEERS)
