"""The arch table: `specs.json` read once, every field checked, every mistake named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from importlib import resources
from typing import Any

from tilewright.errors import InternalError, UnknownNameError, nearest

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


_KINDS: dict[str, type] = {
    "name": str, "family": str, "backend": str, "description": str, "includes": list, "features": list,
    "compile_flags": list, "requires": list, "machines": list, "vector_bytes": int, "vector_registers": int,
    "accumulator_registers": int, "scalar_registers": int, "last_cache_bytes": int, "simds": int,
    "warps_per_simd": int, "simd_registers": int, "register_granule": int,
    "warp_size": int, "scratch_bytes": int, "compute_units": int, "max_threads": int, "warp_grids": list,
    "warp_tiles": dict,
}  # fmt: skip


def _bad(where: str, message: str) -> InternalError:
    return InternalError(f"arch table, {where}: {message}", rule="arch-schema", remedy="mend arch/specs.json")


def _shapes(where: str, value: list[Any]) -> tuple[Shape, ...]:
    for one in value:
        if not (isinstance(one, list) and len(one) == 3 and all(isinstance(x, int) and x > 0 for x in one)):
            raise _bad(where, f"{one!r} is not three positive integers")
    return tuple((one[0], one[1], one[2]) for one in value)


def _converted(where: str, key: str, value: Any) -> Any:
    """A field's JSON value in the form the dataclass holds it."""
    if key == "features":
        return frozenset(value)
    if key == "warp_grids":
        return _shapes(where, value)
    if key == "warp_tiles":
        return {dtype: _shapes(f"{where}.{dtype}", shapes) for dtype, shapes in value.items()}
    return tuple(value) if isinstance(value, list) else value


def parse_archs(data: Mapping[str, Any]) -> dict[str, Arch]:
    """Read the whole table; the first mistake is an error that names arch and field."""
    if data.get("schema") != 1:
        raise _bad("schema", f"version {data.get('schema')!r} is not 1")
    table: dict[str, Arch] = {}
    required = {one.name for one in fields(Arch) if one.default is MISSING} - {"name"}
    for name, entry in data["archs"].items():
        missing = sorted(required - entry.keys())
        if missing:
            raise _bad(name, f"field {missing[0]!r} is missing")
        values: dict[str, Any] = {"name": name}
        for key, value in entry.items():
            kind = _KINDS.get(key)
            if kind is None or key == "name":
                raise _bad(name, f"unknown field {key!r}; {nearest(key, sorted(_KINDS))}")
            if not isinstance(value, kind) or isinstance(value, bool):
                raise _bad(name, f"field {key!r} must be {kind.__name__}, not {type(value).__name__}")
            values[key] = _converted(f"{name}.{key}", key, value)
        table[name] = Arch(**values)
    for one in table.values():
        for other in one.includes:
            if other not in table:
                raise _bad(one.name, f"includes unknown arch {other!r}")
    return table


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
            f"{name!r} is not a known arch", rule="arch-name", value=name, remedy=nearest(name, list(all_archs()))
        ) from None
