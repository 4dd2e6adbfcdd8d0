"""Layouts as people write them."""

from __future__ import annotations

from tilewright.arch import Arch
from tilewright.errors import RequestError
from tilewright.ops.gemm.spec import LAYOUTS


def normal_layout(text: str, arch: Arch) -> str:
    """A layout of four letters names that of D too, which is C's."""
    if len(text) != 4 or text[:3] not in LAYOUTS or text[3] not in "rc":
        return text
    if text[3] != text[2]:
        raise RequestError(
            f"layout {text} has D column-major: D tensors have the layout of C",
            rule="layout-d",
            value=text,
            remedy=f"use {text[:3]}{text[2]} (or {text[:3]}, which is the same)",
        )
    return text[:3]
