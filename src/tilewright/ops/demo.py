"""What `tilewright demo` shows of an op: an op may have an attribute `demo` of this kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from tilewright.dataclass import dataclass

# A call of another library that computes the same, of a problem and the kind of device; None where it has none.
PeerCall = Callable[[Any, str], Callable[[], object] | None]


@dataclass(frozen=True, slots=True)
class Demo:
    """Problems to run on the kernels a user would get, and what others make of them."""

    problems: Mapping[str, Mapping[str, Any]]  # a title for the table, and the values of the op's options
    peers: Mapping[str, PeerCall] = field(default_factory=dict)  # by the name of the library
    peer_notes: Mapping[str, str] = field(default_factory=dict)  # how a library that has no such call computes it


def torch_device(kind: str) -> str:
    """PyTorch's name of a kind of device: the name of a backend here."""
    return "cpu" if kind == "cpu" else "cuda"


def torch_call(call: Callable[[], object], kind: str) -> Callable[[], object]:
    """A call of PyTorch whose work is done when it returns, as ours is when it is timed."""
    if kind == "cpu":
        return call
    import torch

    def finished() -> object:
        result = call()
        torch.cuda.synchronize()
        return result

    return finished
