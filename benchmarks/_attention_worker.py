"""One library in a process of its own, for attention_cpu.py; see _cpu_worker.py.

python benchmarks/_attention_worker.py torch|tilewright     started by attention_cpu.py, not by hand
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Any

from _cpu_worker import Call, OwnSide, Peers, serve

from tilewright.ops.attention import AttentionProblem

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


class Tilewright(OwnSide):
    """Ours; and `copy`: memory copied by as many threads, which decoding is held against."""

    op = "attention"

    def __init__(self, threads: int, options: dict[str, Any]) -> None:
        super().__init__(threads, options)
        self._copy = _copying(threads)

    def problem_of(self, shape: dict[str, Any]) -> AttentionProblem:
        return problem_of(shape)

    def user_call(self, problem: AttentionProblem, sample: Any) -> Call:
        from tilewright.runtime.calls import NEVER, caller

        run = caller("attention").run
        return partial(run, self._registry, sample.operands, sample.scalars, sample.attributes, NEVER)

    def calls(self, shape: dict[str, Any], seed: int) -> dict[str, Call]:
        return {**super().calls(shape, seed), "copy": self._copy}


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


PEERS: Peers = {"torch": TorchPeer, "tilewright": Tilewright}

if __name__ == "__main__":
    serve(sys.argv[1], PEERS)
