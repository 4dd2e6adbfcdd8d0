"""What a model of GEMM kernels sees beyond the kernel's own fields.

Three parts: of the problem, of the kernel alone (worked out once a kernel), and of both (for all kernels of a problem
at once, since every selection does this).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.arch import arch as arch_by_name
from tilewright.dataclass import NamedTuple
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.legality import SPACES
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.spec import GemmSignature

PROBLEM = (
    "log2_m", "log2_n", "log2_k", "log2_batch", "log2_flops", "log2_intensity", "log2_bytes_a", "log2_bytes_b",
    "log2_bytes_c", "size_a", "size_b", "size_c", "a_by_rows", "b_by_rows", "aligned_a", "aligned_b", "aligned_c",
    "num_d", "activation", "beta", "preshuffled",
)  # fmt: skip
KERNEL = (
    "block_m", "block_n", "block_k", "cluster_blocks_m", "cluster_blocks_n", "held", "splits", "streams", "shares_k",
    "register_m", "register_n", "ring_bytes", "way_out",
)  # fmt: skip
# As they are, without logarithms: trees ask which side of a threshold a number is on, whatever its scale.
INTERACTION = (
    "tiles", "steps", "parts", "busiest", "machine_fill", "fetched", "fetched_over_bytes", "memory_over_work",
    "in_flight", "rounds", "last_round", "full_m", "full_n", "full_register_m", "full_register_n", "tiles_m", "tiles_n",
    "flow_over_work", "through_a_sheet", "copied_first",
)  # fmt: skip

# What activations cost beside a product: nothing, a comparison, transcendental functions.
_CHEAP = ("PassThrough", "MultiDAdd", "MultiDMultiply", "Relu")

Array = np.ndarray[Any, Any]


def _log2(value: float) -> float:
    return math.log2(max(1.0, value))


def _aligned(stride: int, size: int) -> int:
    """The power of two that divides a row's bytes, up to 128, as its logarithm."""
    step = stride * size
    return min(7, (step & -step).bit_length() - 1) if step else 7


def problem_features(p: GemmProblem) -> Sequence[float]:
    a, b, c = (DTYPES[dtype].bytes for dtype in (p.dtype_a, p.dtype_b, p.dtype_c))
    return (
        _log2(p.m), _log2(p.n), _log2(p.k), _log2(p.batch), _log2(p.flops), _log2(p.flops / max(1, p.bytes)),
        _log2(p.m * p.k * a), _log2(p.k * p.n * b), _log2(p.m * p.n * c), a, b, c,
        p.layout[0] == "r", p.layout[1] == "r", _aligned(p.a_stride, a), _aligned(p.b_stride, b),
        _aligned(p.c_stride, c), p.num_d, activation(p.epilogue), p.beta, p.preshuffled,
    )  # fmt: skip


def activation(epilogue: str) -> int:
    """How much an epilogue computes: 0 nothing to speak of, 1 transcendental functions."""
    return int(epilogue not in _CHEAP)


# What people are shown of words that stand in models (`signature_words`).
SHOWN_WORDS = {
    "activations of kind 0": "epilogues without exp or tanh",
    "activations of kind 1": "epilogues with exp or tanh (gelu, silu, sigmoid, tanh)",
}


def signature_words(signature: GemmSignature) -> tuple[str, ...]:
    """What of a signature a model must have seen; the same in another combination is nothing new to it."""
    return (
        f"{signature.dtype_a} x {signature.dtype_b}", f"results in {signature.dtype_c}", f"layout {signature.layout}",
        "a packed B" if signature.variant == "preshuffle" else "a plain B", f"{signature.num_d} D tensors",
        f"activations of kind {activation(signature.epilogue)}", *(("two B",) if signature.dual else ()),
    )  # fmt: skip


class Residency(NamedTuple):
    """How the work of a kernel is spread over its blocks; the design space of a backend knows (`residency`)."""

    cluster_m: int = 1  # blocks that load operands for each other, along m and n; all of them start at once
    cluster_n: int = 1
    held: int = 1  # blocks that one of the device's units holds at once
    shares_k: int = 1  # blocks that share the k of a tile
    ring_bytes: int = 0  # of the buffers that operands pass through
    splits: bool = False  # k is split where tiles are few
    streams: bool = False  # all blocks get equal shares of k
    store: int = (
        0  # results are stored from a buffer: 0 asynchronously, 2 not; 1: straight from registers where they can
    )


def kernel_features(spec: KernelSpec) -> Sequence[float]:
    schedule = spec.schedule
    m, n, k = schedule.tile
    residency: Callable[[KernelSpec], Residency] | None = getattr(
        SPACES.get(arch_by_name(spec.arch).family), "residency", None
    )
    r = residency(spec) if residency else Residency()
    return (
        m, n, k, r.cluster_m, r.cluster_n, r.held, r.splits, r.streams, r.shares_k * getattr(schedule, "split_k", 1),
        schedule.warp_tile[0], schedule.warp_tile[1], r.ring_bytes, float(r.store),
    )  # fmt: skip


def kernel_terms(kernels: Mapping[str, Array], units: int) -> Mapping[str, Any]:
    """What interactions need of the kernels alone."""
    block_m, block_n, block_k, over_m, over_n = (
        kernels[name] for name in ("block_m", "block_n", "block_k", "cluster_blocks_m", "cluster_blocks_n")
    )
    blocks = over_m * over_n * kernels["shares_k"]
    # Groups of blocks that run at a time.  More than two blocks that start at once do not fit all units: so many do
    # where the models were trained, and they learn the rest.
    room = np.maximum(1.0, np.floor(units * np.where(blocks > 2, 10 / 11, 1.0) / blocks) * kernels["held"])
    volume = block_m * block_n * block_k
    splits, streams = kernels["splits"] > 0, kernels["streams"] > 0
    return {
        "spans": np.stack([block_m * over_m, block_n * over_n, kernels["register_m"], kernels["register_n"]]),
        "room": room,
        "volume": volume,
        "fetched": (block_m * over_m + block_n * over_n) * block_k,
        "flow": (block_m + block_n) * block_k / volume,
        "flying": room * blocks * kernels["ring_bytes"],
        "rings": (kernels["ring_bytes"] > 0).astype(np.float64),
        "split": splits if splits.any() else None,
        "streamed": streams if streams.any() else None,
    }


def interactions(p: GemmProblem, kernels: Mapping[str, Any], units: int) -> Array:
    room, split, streamed = kernels["room"], kernels["split"], kernels["streamed"]
    out: Array = np.empty((len(INTERACTION), len(room)))
    m, n, k, batch = max(1, p.m), max(1, p.n), max(1, p.k), max(1, p.batch)
    sizes = np.array([[m], [n], [m], [n]], np.float64)
    cells = np.ceil(sizes / kernels["spans"])
    tiles = np.multiply(cells[0], cells[1] if batch == 1 else cells[1] * batch, out=out[0])
    all_steps = np.ceil(k / kernels["block_k"])
    parts = out[2] = _parts(tiles, all_steps, room, kernels)
    waves = tiles / room if split is None else tiles * np.where(split, parts, 1.0) / room
    rounds = np.ceil(waves)
    if streamed is not None:
        rounds = np.where(streamed, np.maximum(waves, 1 / all_steps), rounds)
    deep = np.multiply(np.ceil(all_steps / parts), rounds, out=out[1])
    work = np.multiply(deep, kernels["volume"], out=out[3])  # of the busiest block
    moved = max(1, p.bytes)
    np.divide(float(m * n * k * batch) / units, work, out=out[4])
    fetched = np.multiply(tiles * all_steps, kernels["fetched"], out=out[5])
    np.multiply(fetched, DTYPES[p.dtype_a].bytes / moved, out=out[6])
    np.divide(moved / units, work, out=out[7])
    np.multiply(np.minimum(waves, 1.0), kernels["flying"], out=out[8])
    np.minimum(waves, 64.0, out=out[9])
    np.divide(waves, rounds, out=out[10])
    np.divide(sizes, cells * kernels["spans"], out=out[11:15])
    np.minimum(cells[:2], 64.0, out=out[15:17])
    out[17] = kernels["flow"]
    # Results of small tiles are stored from registers where their rows begin at whole words, else through a buffer.
    out[18] = kernels["way_out"] > (1.0 if p.c_stride % 2 == 0 else 0.0)
    np.multiply(kernels["rings"], _copied_first(p), out=out[19])
    return out


def _copied_first(p: GemmProblem) -> float:
    """How many of A and B are not aligned to 16 bytes, and are copied before asynchronous loads can read them."""
    a, b = DTYPES[p.dtype_a].bytes, DTYPES[p.dtype_b].bytes
    return float((p.a_stride * a % 16 > 0) + (p.b_stride * b % 16 > 0))


def _parts(tiles: Array, steps: Array, room: Array, kernels: Mapping[str, Any]) -> Array:
    """Into how many parts the k of a tile is cut: as split-K kernels decide, or as the kernel says."""
    shares: Array = kernels["shares_k"]
    if kernels["split"] is not None:
        wanted = np.maximum(1.0, np.floor(np.minimum(room / tiles, steps / 4)))
        shares = np.where(kernels["split"], np.ceil(steps / np.ceil(steps / wanted)), 1.0) * shares
    parts: Array = np.maximum(1.0, np.minimum(steps, shares))
    return parts
