"""Tilewright: tile kernels declared, generated, built, picked and run from Python.

The names below are the public API.  They are imported on first use, so that `import tilewright`
costs almost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright import errors, events, settings
    from tilewright.api import explain, gemm, pack, to_device
    from tilewright.dispatch.registry import Registry
    from tilewright.dispatch.selection import Explanation, Selection
    from tilewright.errors import TilewrightError
    from tilewright.ops.base import KernelSpec
    from tilewright.ops.gemm import GemmProblem, GemmSchedule, GemmSignature
    from tilewright.runtime.bindings.gemm.packed import PackedB
    from tilewright.runtime.loader import Kernel, load_library

__version__ = "0.1.0"

_HOMES = {
    "Explanation": "tilewright.dispatch.selection",
    "GemmProblem": "tilewright.ops.gemm",
    "GemmSchedule": "tilewright.ops.gemm",
    "GemmSignature": "tilewright.ops.gemm",
    "Kernel": "tilewright.runtime.loader",
    "KernelSpec": "tilewright.ops.base",
    "PackedB": "tilewright.runtime.bindings.gemm.packed",
    "Registry": "tilewright.dispatch.registry",
    "Selection": "tilewright.dispatch.selection",
    "TilewrightError": "tilewright.errors",
    "errors": "",
    "events": "",
    "explain": "tilewright.api",
    "gemm": "tilewright.api",
    "load_library": "tilewright.runtime.loader",
    "pack": "tilewright.api",
    "settings": "",
    "to_device": "tilewright.api",
}

__all__ = [
    "Explanation",
    "GemmProblem",
    "GemmSchedule",
    "GemmSignature",
    "Kernel",
    "KernelSpec",
    "PackedB",
    "Registry",
    "Selection",
    "TilewrightError",
    "__version__",
    "errors",
    "events",
    "explain",
    "gemm",
    "load_library",
    "pack",
    "settings",
    "to_device",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(home), name) if home else import_module(f"{__name__}.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
