"""What an arch does in a second, and how constants that were fitted on one arch are scaled to another.

Estimates are formulas with constants: bytes a second of memory that a kernel reaches, cycles of a barrier, and so on.
They are fitted by measurement, on some arch; the numbers are in the arch table (`fits.json`), never in code.  A
formula declares its constants as a NamedTuple whose annotations say what each depends on; `fitted` gives them for an
arch: as they were fitted there, or else those of the arch that has a fit, each times the ratio of the rates that it
depends on.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from tilewright.dataclass import dataclass
from tilewright.errors import InternalError

if TYPE_CHECKING:
    from tilewright.arch.facts import Arch

Constants = TypeVar("Constants")


@dataclass(frozen=True, slots=True)
class Rates:
    """Of the whole device, a second; data sheets' numbers without sparsity."""

    clock: float  # Hz, of compute units
    launch: float  # seconds: an empty kernel, seen from outside
    memory: float  # bytes
    cache: float  # bytes from the last cache to all compute units
    fma: float  # operations of fp32, two a multiply-add
    mma: Mapping[str, float]  # operations of matrix instructions of one warp (mma.sync), by element type
    wgmma: Mapping[str, float] | None = None  # operations of those of a warpgroup


@dataclass(frozen=True, slots=True)
class Scale:
    """What a constant is proportional to."""

    rate: Callable[[Arch, Rates], float]


def _unit(rate: Callable[[Rates], float]) -> Scale:
    return Scale(lambda arch, rates: rate(rates) / arch.compute_units)


def _matrix(rates: Rates, dtype: str, *, warpgroup: bool) -> float:
    """Operations of an element type; of one that the arch does not multiply, as of fp16."""
    table = rates.wgmma if warpgroup and rates.wgmma else rates.mma
    return table.get(dtype) or table["fp16"]


# Seconds.
Launch = Annotated[float, Scale(lambda arch, rates: rates.launch)]
Cycles = Annotated[float, Scale(lambda arch, rates: 1.0 / rates.clock)]
# Bytes, operations and instructions a second: of the device, and of one compute unit.
Memory = Annotated[float, Scale(lambda arch, rates: rates.memory)]
UnitMemory = Annotated[float, _unit(lambda rates: rates.memory)]
Cache = Annotated[float, Scale(lambda arch, rates: rates.cache)]
UnitCache = Annotated[float, _unit(lambda rates: rates.cache)]
UnitClock = Annotated[float, Scale(lambda arch, rates: rates.clock)]
Fma = Annotated[float, Scale(lambda arch, rates: rates.fma)]
UnitFma = Annotated[float, _unit(lambda rates: rates.fma)]
UnitMma = Annotated[float, _unit(lambda rates: _matrix(rates, "fp16", warpgroup=False))]
UnitMmaInt8 = Annotated[float, _unit(lambda rates: _matrix(rates, "int8", warpgroup=False))]
UnitMmaTf32 = Annotated[float, _unit(lambda rates: _matrix(rates, "tf32", warpgroup=False))]
UnitWgmma = Annotated[float, _unit(lambda rates: _matrix(rates, "fp16", warpgroup=True))]
UnitWgmmaFp8 = Annotated[float, _unit(lambda rates: _matrix(rates, "fp8_e4m3", warpgroup=True))]
# Multiply-adds of matrix instructions a clock, of one compute unit; and cycles of all of them a second.
UnitMmaCycle = Annotated[float, _unit(lambda rates: _matrix(rates, "fp16", warpgroup=False) / rates.clock)]
AllCycles = Annotated[float, Scale(lambda arch, rates: arch.compute_units * rates.clock)]
# A number that grows with the device, and how many compute units the arch itself has: no fit says that.
Units = Annotated[float, Scale(lambda arch, rates: arch.compute_units)]
ComputeUnits = Annotated[int, "compute_units"]


# What constants were called before, in files of users too.
_FORMER = {
    "staging": "sheet", "wide_staging": "wide_sheet", "swap_ab": "turned", "transposed": "turned",
    "fold_transposed": "fold_turned", "sync": "meet", "store_results": "leave", "store_least": "leave_least",
}  # fmt: skip


def scaled(record: type[Constants], values: Mapping[str, Any], fitted_on: Arch, arch: Arch) -> Constants:
    """A record of constants for `arch`, of the values that were fitted on another."""
    hints = typing.get_type_hints(record, include_extras=True)
    own = {name: arch.compute_units for name, hint in hints.items() if hint == ComputeUnits}
    hints = {name: hint for name, hint in hints.items() if name not in own}
    if set(hints) != set(values):
        former = {new: old for new, old in _FORMER.items() if new in hints and new not in values and old not in hints}
        values = {name: values[former.get(name, name)] for name in hints if former.get(name, name) in values} | {
            name: value for name, value in values.items() if name not in former.values()
        }
    if set(hints) != set(values):
        odd = ", ".join(sorted(set(hints) ^ set(values)))
        raise InternalError(
            f"the fit of {record.__module__} on {fitted_on.name} and what the estimate asks for differ in {odd}",
            rule="arch-fit",
            value=odd,
            remedy="give every constant of the record a value, and no other",
        )
    return record(**own, **{name: _scaled(values[name], hint, fitted_on, arch) for name, hint in hints.items()})


def _scaled(value: Any, hint: Any, fitted_on: Arch, arch: Arch) -> Any:
    if isinstance(value, Mapping):
        return scaled(hint, value, fitted_on, arch)
    if typing.get_origin(hint) is tuple:
        return tuple(_scaled(each, typing.get_args(hint)[0], fitted_on, arch) for each in value)
    laws = [each for each in typing.get_args(hint) if isinstance(each, Scale)]
    if not laws or arch.name == fitted_on.name:
        return float(value)
    return float(value) * (_rate(laws[0], arch) / _rate(laws[0], fitted_on))


def _rate(law: Scale, arch: Arch) -> float:
    if arch.rates is None or not arch.compute_units:
        raise InternalError(
            f"arch {arch.name} has no rates, and estimates of its kernels are made of them",
            rule="arch-rates",
            value=arch.name,
            remedy="give its entry in the arch table `rates` and `compute_units` (docs/adding-an-arch.md)",
        )
    return law.rate(arch, arch.rates)
