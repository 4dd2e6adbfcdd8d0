"""A GEMM problem as the selection library takes it, on every backend (`include/tilewright/select/gemm.h`)."""

from __future__ import annotations

from tilewright.dtypes import DTYPES
from tilewright.ops.gemm import features
from tilewright.ops.gemm.features import activation
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.native import NativeFeatures

PROBLEM = (
    "m", "n", "k", "batch", "a_stride", "b_stride", "c_stride", "num_d", "beta", "preshuffled", "broadcast_a",
    "broadcast_b", "aligned", "aligned_a", "aligned_b", "aligned_c", "type_a", "type_b", "size_a", "size_b", "size_c",
    "size_d", "a_rows", "b_rows", "plain", "activation", "dual",
)  # fmt: skip
_NAMED = ("fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int32")  # `Type` of gemm.h
_TYPES = {name: _NAMED.index(name) if name in _NAMED else len(_NAMED) for name in DTYPES}
_SIZES = {name: dtype.bytes for name, dtype in DTYPES.items()}


def problem_numbers(p: GemmProblem) -> tuple[int, ...]:
    a, b, layout, odd = p.dtype_a, p.dtype_b, p.layout, p.odd_operands
    return (
        p.m, p.n, p.k, p.batch, p.a_stride, p.b_stride, p.c_stride, p.num_d, p.beta, p.preshuffled, p.broadcast_a,
        p.broadcast_b, not odd, "a" not in odd, "b" not in odd, "c" not in odd, _TYPES[a], _TYPES[b], _SIZES[a],
        _SIZES[b], _SIZES[p.dtype_c], _SIZES[p.dtype_d],
        layout[0] == "r", layout[1] == "r", p.num_d == 0 and p.epilogue == "PassThrough", activation(p.epilogue),
        p.dual,
    )  # fmt: skip


FEATURES = NativeFeatures(
    (features.PROBLEM, features.INTERACTION),
    ("spans", "block_k", "shares_k", "room", "volume", "fetched", "flow", "flying", "rings", "way_out"),
    ("split", "streamed"),
)
FEATURES_HEADER = "tilewright/select/gemm_features.h"
