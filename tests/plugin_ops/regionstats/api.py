"""What users find as `tilewright.regionstats`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regionstats.binding import BINDING
from tilewright.api import registry_for, target_of
from tilewright.runtime.calls import NEVER, caller


def regionstats(
    x: Any,
    lengths: Any,
    *,
    weight: Any = None,
    shift: Any = None,
    scale: float = 1.0,
    dilation: Sequence[int] = (),
    out: tuple[Any, Any] = (None, None),
    copy: str = NEVER,
    target: str | None = None,
) -> Any:
    """(mean, peak) of scale * x * weight + shift over the positions of each entry; see the package's first page.

    `x` is (n, 1 to 3 spatial sizes, channels) of fp32, fp16 or bf16, `lengths` n numbers of int32 that limit the first
    spatial index, `weight` and `shift` fp32 numbers for each channel.  `out` may hold either result or both.
    """
    operands, scalars, attributes = BINDING.bind(
        x, lengths, weight=weight, shift=shift, scale=scale, dilation=dilation, out=out
    )
    return caller("regionstats").run(registry_for(target_of(x, target)), operands, scalars, attributes, copy)
