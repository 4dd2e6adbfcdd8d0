"""What users find as `tilewright.rowscale`."""

from __future__ import annotations

from typing import Any

from tilewright.api import registry_for, target_of
from tilewright.runtime.calls import NEVER, caller


def rowscale(
    x: Any,
    scale: Any,
    *,
    alpha: float = 1.0,
    activation: str = "PassThrough",
    out: Any = None,
    copy: str = NEVER,
    target: str | None = None,
) -> Any:
    """y[i, j] = activation(alpha * x[i, j] * scale[i]).

    `x` is a matrix of fp32 or bf16 with contiguous rows, `scale` has an fp32 number for each.  `out` may be `x`.
    An operand that kernels cannot read in place is an error, or with `copy="allow"` copied first.
    """
    registry = registry_for(target_of(x, target))
    return caller("rowscale").run(registry, (x, scale, out), (alpha,), (activation,), copy)
