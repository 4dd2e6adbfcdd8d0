"""The arch table: `specs.json` read once, every field checked, every mistake named.

Every program reads the table before its first call, so the way without a mistake is short and by hand: pydantic
takes 40 ms to import, the table 1 ms to read.  A mistake asks pydantic to say in words what is wrong and where.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from typing import Any

from tilewright.arch.rates import Constants, Rates, scaled
from tilewright.errors import FileError, InternalError, UnknownNameError, nearest, shown

Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Arch:
    """The facts of one target.  Fields with a default matter to some families only."""

    name: str
    family: str  # cpu, cdna, rdna, nvidia: which legality rules speak
    backend: str  # which backend folder renders, compiles and runs it
    description: str
    includes: tuple[str, ...]  # archs whose kernels run here too, best first
    features: frozenset[str]
    compile_flags: tuple[str, ...]
    requires: tuple[str, ...] = ()  # host CPU flags, as the operating system names them
    machines: tuple[str, ...] = ()  # CPU part of the compiler's target triple; empty means any machine
    vector_bytes: int = 0
    vector_registers: int = 0
    accumulator_registers: int = 0  # AGPRs: where the sums of matrix instructions may stay
    scalar_registers: int = 0
    warp_size: int = 1
    scratch_bytes: int = 0  # LDS or shared memory a block may use
    compute_units: int = 0
    max_threads: int = 0  # threads a block may have
    last_cache_bytes: int = 0  # the largest cache between a compute unit and memory
    simds: int = 0  # SIMD units a compute unit has
    warps_per_simd: int = 0  # warps a SIMD keeps at once, at most
    simd_registers: int = 0  # vector registers (AGPRs included) of a lane, shared by the warps of a SIMD
    register_granule: int = 0  # warps get vector registers in multiples of this
    warp_grids: tuple[Shape, ...] = ()
    warp_tiles: Mapping[str, tuple[Shape, ...]] | None = None  # by dtype key
    # What CK Tile's dispatcher has of attention for it: `dtypes` and `pipelines`, in its words.
    attention: Mapping[str, tuple[str, ...]] | None = None
    # What data sheets promise, by the model's name: `memory` bytes a second, and operations a second by element type.
    data_sheets: Mapping[str, Mapping[str, float]] | None = None
    most_compute_units: int = 0  # of any device of this arch; 0 says that all have `compute_units`
    rates: Rates | None = None  # of the device that `compute_units` are of


_MEND = "mend arch/specs.json"


def _bad(where: str, message: str) -> InternalError:
    return InternalError(f"arch table, {where}: {message}", rule="arch-schema", remedy=_MEND)


def _one(kind: type, value: Any) -> Any:
    if type(value) is not kind:  # True is no number here
        raise TypeError(f"{value!r} is not {kind.__name__}")
    return value


def _names(value: list[Any]) -> tuple[str, ...]:
    return tuple(_one(str, one) for one in _one(list, value))


def _sheets(value: Any) -> dict[str, dict[str, float]]:
    found = {name: {word: float(_one(float, one)) for word, one in sheet.items()} for name, sheet in value.items()}
    if any(one <= 0 for sheet in found.values() for one in sheet.values()):
        raise ValueError(f"{value!r} are not all positive")
    return found


def _positive(value: Any) -> float:
    number = float(_one(float, value))
    if not 0.0 < number < float("inf"):
        raise ValueError(f"{value!r} is not a positive number")
    return number


def _rates(value: Any) -> Rates:
    read: dict[str, Any] = {
        name: {dtype: _positive(each) for dtype, each in rate.items()} if name in _BY_DTYPE else _positive(rate)
        for name, rate in value.items()
    }
    return Rates(**read)


def _shapes(value: list[Any]) -> tuple[Shape, ...]:
    found = tuple((_one(int, m), _one(int, n), _one(int, k)) for m, n, k in _one(list, value))
    if any(min(shape) <= 0 for shape in found):
        raise ValueError(f"{value!r} are not all three positive integers")
    return found


_BY_DTYPE = ("mma", "wgmma")

# How the JSON value of a field becomes what the dataclass holds, by the field's annotation.
_READERS: dict[str, Callable[[Any], Any]] = {
    "str": lambda value: _one(str, value),
    "int": lambda value: _one(int, value),
    "tuple[str, ...]": _names,
    "frozenset[str]": lambda value: frozenset(_names(value)),
    "tuple[Shape, ...]": _shapes,
    "Mapping[str, Mapping[str, float]] | None": _sheets,
    "Rates | None": _rates,
    "Mapping[str, tuple[str, ...]] | None": lambda value: {what: _names(one) for what, one in value.items()},
    "Mapping[str, tuple[Shape, ...]] | None": lambda value: {dtype: _shapes(one) for dtype, one in value.items()},
}
_FIELDS = {one.name: _READERS[str(one.type)] for one in fields(Arch)}


def _explained(name: str, entry: Any, found: Exception) -> InternalError:
    """The mistake of one entry in words."""
    from tilewright.files import checked

    if isinstance(entry, dict) and "name" in entry:
        return _bad(name, "unknown field 'name': the key is its name")
    try:
        whole = {**entry, "name": name} if isinstance(entry, dict) else entry
        checked(json.dumps(whole), Arch, source=f"arch table, {name}")
    except FileError as error:
        return InternalError(error.message, rule="arch-schema", value=error.value, remedy=f"{_MEND}: {error.remedy}")
    return _bad(name, str(found))


def parse_archs(data: Mapping[str, Any]) -> dict[str, Arch]:
    """Read the whole table; the first mistake is an error that names arch and field."""
    if data.get("schema") != 1:
        raise _bad("schema", f"version {data.get('schema')!r} is not 1")
    table: dict[str, Arch] = {}
    for name, entry in data["archs"].items():
        try:
            table[name] = Arch(name=name, **{key: _FIELDS[key](value) for key, value in entry.items()})
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise _explained(name, entry, error) from None
    for one in table.values():
        for other in one.includes:
            if other not in table:
                raise _bad(one.name, f"includes unknown arch {other!r}")
    return table


@lru_cache(maxsize=1)
def _fits() -> dict[str, dict[str, dict[str, Any]]]:
    """Constants of estimates, by the arch they were fitted on and the name of the estimate."""
    data = json.loads(resources.files("tilewright.arch").joinpath("fits.json").read_text(encoding="utf-8"))
    if data.get("schema") != 1:
        raise _bad("fits", f"version {data.get('schema')!r} is not 1")
    return dict(data["fits"])


def fitted(estimate: str, record: type[Constants], name: str) -> Constants:
    """The constants of an estimate for an arch: fitted on it, or scaled from the first arch that has a fit."""
    fits = _fits()
    source = name if estimate in fits.get(name, {}) else next((each for each in fits if estimate in fits[each]), "")
    if not source:
        raise _bad("fits", f"no arch has a fit of {estimate!r}")
    return scaled(record, fits[source][estimate], arch(source), arch(name))


@lru_cache(maxsize=1)
def all_archs() -> dict[str, Arch]:
    text = resources.files("tilewright.arch").joinpath("specs.json").read_text(encoding="utf-8")
    return parse_archs(json.loads(text))


def arch(name: str) -> Arch:
    """The arch called `name`; an unknown name is an error with the nearest known one."""
    try:
        return all_archs()[name]
    except KeyError:
        raise UnknownNameError(
            f"{shown(name)} is not a known arch", rule="arch-name", value=name, remedy=nearest(name, list(all_archs()))
        ) from None
