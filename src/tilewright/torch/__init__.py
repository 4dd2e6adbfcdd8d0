"""Tilewright as a part of PyTorch: ops, gradients, modules.

Importing this module defines `torch.ops.tilewright.*`.  Plain calls (`tilewright.gemm` and its like) import it when a
tensor that requires grad, or PyTorch's compiler, makes them need it.  docs/pytorch.md is the guide.
"""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.torch import nn
from tilewright.torch.functional import (
    append_kv,
    attention,
    attention_backward,
    conv,
    conv_backward_data,
    conv_backward_weight,
    gated_gemm,
    gemm,
    matmul,
)
from tilewright.torch.mlp import fuse_mlps
from tilewright.torch.native import registration
from tilewright.torch.replace import replace_modules
from tilewright.torch.required import PyTorchError
from tilewright.torch.sdpa import scaled_dot_product_attention
from tilewright.torch.stored_plans import plans

__all__ = [
    "PyTorchError", "append_kv", "attention", "attention_backward", "conv", "conv_backward_data",
    "conv_backward_weight", "fuse_mlps", "gated_gemm", "gemm", "matmul", "nn", "plans", "registration",
    "replace_modules", "scaled_dot_product_attention",
]  # fmt: skip

# Parts that import much of PyTorch or nothing of it, and are asked for by few: imported when named.
_ON_REQUEST = ("huggingface", "inductor")


def __getattr__(name: str) -> Any:
    if name not in _ON_REQUEST:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_REQUEST})
