"""Calls on tensors that PyTorch must see: differentiated, traced or transformed.  `tilewright.torch` makes those.

A call that C knows never comes here, and PyTorch is not imported: whoever gives a tensor has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.runtime import torch_arrays

# What makes the usual calls that record a gradient, by the name of the call, once `tilewright.torch` is imported: given
# all arguments of a call, its answer, or None where the call is another.
recorded: dict[str, Callable[..., Any]] = {}


def seen(name: str, *operands: Any, **options: Any) -> Any:
    """A call as PyTorch sees it."""
    from tilewright.torch import functional

    return getattr(functional, name)(*operands, **options)


def _stand_in(name: str) -> Callable[..., Any]:
    def traced(*operands: Any, **options: Any) -> Any:
        from tilewright.torch import functional

        return getattr(functional, name)(*operands, **options)

    return traced


def public(*functions: Callable[..., Any]) -> None:
    """Let PyTorch's compiler trace, in place of each function, what `tilewright.torch` has under its name.

    The compiler reads an attribute, which it gives functions it compiled before, so a call pays nothing.
    """
    for function in functions:
        setattr(function, "_torchdynamo_inline", _stand_in(function.__name__))  # noqa: B010  type checkers know none
    torch_arrays.run_as_they_are(*functions)


def unseen(*functions: Callable[..., Any]) -> None:
    """Of functions that PyTorch's compiler cannot trace: its graph ends before a call, which runs as it is."""
    for function in functions:
        setattr(function, "_torchdynamo_disable", True)  # noqa: B010
    torch_arrays.run_as_they_are(*functions)
