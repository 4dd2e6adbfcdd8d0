"""How ops whose kernels are two headers, one for each half, name them to the template."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.dataclass import NamedTuple
from tilewright.ops.base import KernelSpec

COMPILE_MEMORY = 600 << 20

Fields = Mapping[str, object]  # of a Config, each as C++ writes it


class Pipeline(NamedTuple):
    device_header: str
    host_header: str
    device: str  # the macro that names its functions
    host: str  # the struct of the host's half
    fields: Callable[[KernelSpec], Fields]
    beside: tuple[str, ...] = ()  # what the names of its other functions end in


def flag(on: bool) -> str:
    return "true" if on else "false"
