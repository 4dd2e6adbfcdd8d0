"""Tilewright: generate, build, select and run tile kernels for GEMM, convolution and attention.

The public API is the names below and what ops bring (found by the entry point group `tilewright.api`): `gemm`,
`matmul`, `pack`, `conv`, `conv_backward_data`, `conv_backward_weight`, `attention`, `attention_backward`, `append_kv`
and the types that describe them.  All are imported on first use, so that `import tilewright` costs almost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # For editors and type checkers, which see no entry points; at run time `__getattr__` finds each of these on first
    # use.  A test holds the two lists together.
    from tilewright import errors, events, settings
    from tilewright.api import explain, to_device
    from tilewright.api.attention import append_kv, attention
    from tilewright.api.attention_backward import attention_backward
    from tilewright.api.bundles import use_bundle
    from tilewright.api.conv import conv, conv_backward_data, conv_backward_weight
    from tilewright.api.gemm import gated_gemm, gemm, matmul, pack
    from tilewright.api.selecting import use_heuristic, use_locks
    from tilewright.dispatch.registry import Registry
    from tilewright.dispatch.selection import Explanation, Selection
    from tilewright.errors import TilewrightError
    from tilewright.ops.attention import AttentionProblem, AttentionSignature
    from tilewright.ops.attention_backward import AttentionBackwardProblem, AttentionBackwardSignature
    from tilewright.ops.base import KernelSpec
    from tilewright.ops.conv import ConvProblem, ConvSignature
    from tilewright.ops.gemm import GemmProblem, GemmSchedule, GemmSignature
    from tilewright.runtime.bindings.gemm.packed import PackedB
    from tilewright.runtime.loader import Kernel, load_library
    from tilewright.runtime.recording import record
    from tilewright.tune.prepare import Prepared, prepare
    from tilewright.tune.ranges import Ranges

    __all__ = [
        "AttentionBackwardProblem", "AttentionBackwardSignature", "AttentionProblem", "AttentionSignature",
        "ConvProblem", "ConvSignature", "Explanation", "GemmProblem",
        "GemmSchedule", "GemmSignature", "Kernel", "KernelSpec", "PackedB", "Prepared", "Ranges", "Registry",
        "Selection", "TilewrightError", "append_kv", "attention", "attention_backward", "conv", "conv_backward_data",
        "conv_backward_weight", "errors", "events", "explain", "gated_gemm", "gemm", "load_library", "matmul", "pack",
        "prepare", "record", "settings", "to_device",
        "use_bundle", "use_heuristic", "use_locks",
    ]  # fmt: skip

__version__ = "0.1.0"

_GROUP = "tilewright.api"
_HOMES = {
    "Explanation": "tilewright.dispatch.selection",
    "Kernel": "tilewright.runtime.loader",
    "KernelSpec": "tilewright.ops.base",
    "Prepared": "tilewright.tune.prepare",
    "Ranges": "tilewright.tune.ranges",
    "Registry": "tilewright.dispatch.registry",
    "Selection": "tilewright.dispatch.selection",
    "TilewrightError": "tilewright.errors",
    "errors": "",
    "events": "",
    "explain": "tilewright.api",
    "load_library": "tilewright.runtime.loader",
    "prepare": "tilewright.tune.prepare",
    "record": "tilewright.runtime.recording",
    "settings": "",
    "to_device": "tilewright.api",
    "use_bundle": "tilewright.api.bundles",
    "use_heuristic": "tilewright.api.selecting",
    "use_locks": "tilewright.api.selecting",
}


def _of_ops() -> Any:
    from importlib import import_module

    return import_module("tilewright.plugins")


def _public() -> list[str]:
    return sorted({*_HOMES, *_of_ops().names(_GROUP), "__version__"})


def _load(name: str) -> Any:
    import os
    from importlib import import_module

    if name == "__all__":
        return _public()
    if name in _HOMES:
        home = _HOMES[name]
        value = getattr(import_module(home), name) if home else import_module(f"tilewright.{name}")
    else:
        # A submodule is not asked for here: whoever imports it finds it.
        path = os.path.join(os.path.dirname(__file__), name)  # noqa: PTH118, PTH120
        own = name.startswith("_") or os.path.isdir(path) or os.path.isfile(f"{path}.py")  # noqa: PTH112, PTH113
        if own or name not in _of_ops().names(_GROUP):
            stale = "" if _of_ops().names("tilewright.ops") else ": no op is found; install tilewright again, with pip"
            raise AttributeError(f"module 'tilewright' has no attribute {name!r}{stale}")
        value = _of_ops().load(_GROUP, name, "a name of the API")
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # a checker that sees it takes every misspelled name for Any
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted({*globals(), *_public()} - {"Any", "TYPE_CHECKING", "annotations"})
