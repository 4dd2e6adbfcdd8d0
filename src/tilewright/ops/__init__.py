"""The ops: what can be computed.  An op knows arch facts, never a backend."""

from __future__ import annotations

from functools import lru_cache

from tilewright.errors import UnknownNameError, nearest
from tilewright.ops.base import KernelSpec, Op, Violation

__all__ = ["KernelSpec", "Op", "Violation", "all_ops", "op"]


@lru_cache(maxsize=1)
def all_ops() -> dict[str, Op]:
    from tilewright.ops.gemm import GEMM

    return {GEMM.name: GEMM}


def op(name: str) -> Op:
    """The op called `name`; an unknown name is an error with the nearest known one."""
    try:
        return all_ops()[name]
    except KeyError:
        raise UnknownNameError(
            f"{name!r} is not an op", rule="op-name", value=name, remedy=nearest(name, list(all_ops()))
        ) from None
