"""Which way calls of our ops take below PyTorch's dispatcher: C++ where its library can be had, else Python.

The library (`runtime.torch_ops`) makes calls that were made before, and asks the functions here for all others.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import events
from tilewright.errors import TilewrightError
from tilewright.runtime import torch_ops
from tilewright.runtime.torch_ops import Counts, Library, Served
from tilewright.torch.required import torch

_library: Library | None = None
_why_not = "tilewright.torch.library was not imported"


def library() -> Library | None:
    """Built and loaded at the first question; None where that fails, which is said once."""
    global _library, _why_not
    if _library is not None or not _why_not.startswith("tilewright.torch.library"):
        return _library
    try:
        _library = Library(torch_ops.build(), torch)
        _why_not = ""
        atexit.register(_library.close)
    except TimeoutError:  # an OSError too, but of who interrupts us, as the handler of a signal does
        raise
    except (TilewrightError, OSError, AttributeError) as error:
        _why_not = f"[{error.rule}] {error.message}" if isinstance(error, TilewrightError) else str(error)
        events.emit(events.Warned("torch-library", f"calls of torch.ops.tilewright take longer: {_why_not}"))
    return _library


def registration() -> str:
    """Who serves `torch.ops.tilewright.*` in this process: "c++", or "python" and why."""
    return "c++" if _library is not None else f"python: {_why_not}"


def counts() -> Counts:
    """How many calls of the ops were made without Python, how many by it, and how many are known."""
    return _library.counts() if _library is not None else Counts(0, 0, 0)


def kinds(schema: Any) -> str | None:
    """The letters of an op's arguments; None where the library does not know one."""
    if any(str(result.type) != "Tensor" for result in schema.returns):
        return None
    letters = [torch_ops.KINDS.get(str(argument.real_type)) for argument in schema.arguments]
    return None if None in letters else "".join(letter for letter in letters if letter)


def serve(name: str, overload: Any, keys: Sequence[str], run: Callable[..., Any]) -> bool:
    """Let the library serve an op at dispatch keys, with `run` for calls it does not know; False where it cannot."""
    letters, native = kinds(overload._schema), library()
    if native is None or letters is None:
        return False
    for key in keys:
        native.serve(key, letters, len(overload._schema.returns), _served(name, overload, run))
    return True


def serve_autograd(name: str, overload: Any, run: Callable[..., Any]) -> bool:
    """The same where autograd begins.  There a traced call has symbolic sizes, which the library would make numbers."""
    letters, native = kinds(overload._schema), library()
    symbolic = "SymInt" in str(overload._schema)
    if native is None or letters is None or symbolic or not native.serves_autograd:
        return False
    native.serve("Autograd", letters, len(overload._schema.returns), _served(name, overload, run, autograd=True))
    return True


class BelowAutograd:
    """An overload whose redispatch is a call: made where autograd's keys are excluded, it comes to what is below.

    The library does not get the dispatch keys of a call, which a redispatch takes.
    """

    def __init__(self, overload: Any) -> None:
        self._overload = overload

    def __getattr__(self, name: str) -> Any:
        return getattr(self._overload, name)

    def redispatch(self, _keys: Any, *operands: Any, **options: Any) -> Any:
        return self._overload(*operands, **options)


def _served(name: str, overload: Any, run: Callable[..., Any], *, autograd: bool = False) -> Served:
    arguments = overload._schema.arguments
    letters = [torch_ops.KINDS[str(argument.real_type)] for argument in arguments]
    names = tuple(argument.name for argument in arguments if argument.kwarg_only)
    tensors = tuple(at for at, letter in enumerate(letters) if letter in "tT")
    dtypes = tuple(at for at, letter in enumerate(letters) if letter == "D")
    writes = any(argument.is_write for argument in arguments)
    return Served(name, run, len(arguments) - len(names), names, tensors, dtypes, writes, autograd)
