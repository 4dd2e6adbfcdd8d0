"""What `tilewright demo` shows of an op: an op may have an attribute `demo` of this kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Demo:
    """Kernels to declare and problems to run on them."""

    pools: tuple[tuple[str, Mapping[str, Any]], ...]  # a pool and the axes it is asked for
    problems: tuple[Mapping[str, Any], ...]  # each as values of the op's options
    rival: str = ""  # what the times are compared with, for a heading
    rival_call: Callable[[Any], Callable[[], object]] | None = None  # of a problem: the call to be timed
