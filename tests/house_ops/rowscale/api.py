"""What users find as `tilewright.rowscale`."""

from __future__ import annotations

from typing import Any

from tilewright.api import call


def rowscale(
    x: Any,
    scale: Any,
    *,
    alpha: float = 1.0,
    activation: str = "PassThrough",
    out: Any = None,
    target: str | None = None,
) -> Any:
    """y[i, j] = activation(alpha * x[i, j] * scale[i]).

    `x` is a matrix of fp32 or bf16 with contiguous rows, `scale` as many fp32 numbers as it has rows.  `out` may be `x`.
    """
    return call("rowscale", (x, scale, out), (alpha,), (activation,), target)
