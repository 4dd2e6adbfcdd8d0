"""PyTorch, where it is installed: the fuzzer does without, as tilewright does."""

from __future__ import annotations

import importlib.util
from typing import Any

torch: Any = None
if importlib.util.find_spec("torch") is not None:
    import torch  # type: ignore[no-redef]

LIBRARIES = ("numpy", "dlpack") if torch is None else ("numpy", "torch", "dlpack")
