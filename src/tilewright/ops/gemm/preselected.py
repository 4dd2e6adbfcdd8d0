"""Preselected GEMM sets: small named lists of kernels for a purpose, each for one arch family.

A set fixes datatype, layout and family and says which schedules it takes for each of its
signatures: written out where a target's tiles are fixed, taken from the family's proposals where
they follow from the arch's vectors (the CPU).  Legality is asked as for any pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tilewright.arch import Arch
from tilewright.dataclass import dataclass
from tilewright.ops.encodings import element_type
from tilewright.ops.gemm.problem import accumulator, default_output
from tilewright.ops.gemm.schedule import GemmSchedule
from tilewright.ops.gemm.spec import GemmSignature

Schedules = Callable[[GemmSignature, Arch], Iterable[GemmSchedule]]


@dataclass(frozen=True, slots=True)
class Part:
    """One signature of a set, beyond the set's datatype and layout."""

    variant: str = "standard"
    epilogue: str = "PassThrough"
    num_d: int = 0
    output: str = ""  # empty: what the datatype gives by default


@dataclass(frozen=True, slots=True)
class PreselectedSet:
    """A named list of kernels; `parts` times `schedules`."""

    name: str
    family: str
    datatype: str
    layout: str
    purpose: str
    parts: tuple[Part, ...]
    schedules: Schedules

    def signatures(self, arch: Arch) -> Iterator[GemmSignature]:
        datatype = element_type(self.datatype, arch)
        for part in self.parts:
            output = part.output or default_output(datatype, datatype)
            yield GemmSignature(
                variant=part.variant,
                dtype_a=datatype,
                dtype_b=datatype,
                dtype_acc=accumulator(datatype),
                dtype_c=output,
                dtype_d=output,
                layout=self.layout,
                epilogue=part.epilogue,
                num_d=part.num_d,
            )
