"""The arch table: `specs.json` and files of one's own, read once, every field checked, every mistake named.

Every program reads the table before its first call, so one without a mistake is read by short code of ours: pydantic
takes 40 ms to import, the table 1 ms to read.  A mistake asks pydantic to say in words what is wrong and where.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilewright import packaged, plugins, settings
from tilewright.arch.rates import Constants, Rates, scaled
from tilewright.dataclass import NamedTuple, dataclass
from tilewright.errors import FileError, InternalError, TilewrightError, UnknownNameError, nearest, shown

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
    accumulator_registers: int = 0  # AGPRs: where accumulators of matrix instructions may be kept
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
    # What CK Tile's dispatcher has for it, by op: lists in its words, such as `dtypes` and `pipelines`.
    ck_tile: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None
    # What data sheets promise, by the model's name: `memory` bytes a second, and operations a second by element type.
    data_sheets: Mapping[str, Mapping[str, float]] | None = None
    most_compute_units: int = 0  # of any device of this arch; 0 says that all have `compute_units`
    rates: Rates | None = None  # of the device that `compute_units` are of
    capability: tuple[int, int] | None = None  # compute capability of the NVIDIA GPUs it is for

    def ck_tile_of(self, op: str) -> Mapping[str, tuple[str, ...]] | None:
        """What CK Tile's dispatcher has of an op for it; None where it has nothing."""
        return (self.ck_tile or {}).get(op)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a table is: mistakes in the package's are ours, those in a file of one's own are its author's."""

    name: str = "arch table"
    path: Path | None = None

    def bad(self, where: str, message: str, value: object = None) -> TilewrightError:
        kind = InternalError if self.path is None else FileError
        return kind(f"{self.name}, {where}: {message}", rule="arch-schema", value=value, remedy=self.remedy_place)

    @property
    def remedy_place(self) -> str:
        return "fix arch/specs.json" if self.path is None else f"fix {self.path} (docs/adding-an-arch.md)"


_SHIPPED = _Source()


def _of_kind(kind: type, value: Any) -> Any:
    if type(value) is not kind:  # True is no number here
        raise TypeError(f"{value!r} is not {kind.__name__}")
    return value


def _names(value: list[Any]) -> tuple[str, ...]:
    return tuple(_of_kind(str, name) for name in _of_kind(list, value))


def _sheets(value: Any) -> dict[str, dict[str, float]]:
    return {name: _each_positive(sheet, name) for name, sheet in value.items()}


def _positive(value: Any, name: str) -> float:
    """A number of JSON, 1792000000000 as well as 1.792e12."""
    if type(value) not in (int, float) or not 0 < value < float("inf"):  # True is no number here
        raise ValueError(f"{name}: {value!r} is not a positive number")
    return float(value)


def _each_positive(values: Any, name: str) -> dict[str, float]:
    return {key: _positive(each, f"{name}.{key}") for key, each in values.items()}


def _rates(value: Any) -> Rates:
    read: dict[str, Any] = {
        name: _each_positive(rate, name) if name in _BY_DTYPE else _positive(rate, name) for name, rate in value.items()
    }
    return Rates(**read)


def _pair(value: Any) -> tuple[int, int]:
    first, second = _of_kind(list, value)
    return _of_kind(int, first), _of_kind(int, second)


def _shapes(value: list[Any]) -> tuple[Shape, ...]:
    shapes = tuple((_of_kind(int, m), _of_kind(int, n), _of_kind(int, k)) for m, n, k in _of_kind(list, value))
    if any(min(shape) <= 0 for shape in shapes):
        raise ValueError(f"{value!r} are not all three positive integers")
    return shapes


_BY_DTYPE = ("mma", "wgmma")

# How the JSON value of a field becomes what the dataclass holds, by the field's annotation.
_READERS: dict[str, Callable[[Any], Any]] = {
    "str": lambda value: _of_kind(str, value),
    "int": lambda value: _of_kind(int, value),
    "tuple[str, ...]": _names,
    "frozenset[str]": lambda value: frozenset(_names(value)),
    "tuple[Shape, ...]": _shapes,
    "Mapping[str, Mapping[str, float]] | None": _sheets,
    "Rates | None": _rates,
    "tuple[int, int] | None": _pair,
    "Mapping[str, Mapping[str, tuple[str, ...]]] | None": lambda value: {
        op: {what: _names(names) for what, names in lists.items()} for op, lists in value.items()
    },
    "Mapping[str, tuple[Shape, ...]] | None": lambda value: {dtype: _shapes(shapes) for dtype, shapes in value.items()},
}
_FIELDS = {field.name: _READERS[str(field.type)] for field in fields(Arch)}
_COUNTS = tuple(field.name for field in fields(Arch) if str(field.type) == "int")
_SLIP = 0.8  # of difflib's ratio: `mmaa` is a slip of `mma`, `avx10` is none of `avx512`


def _read(key: str, value: Any) -> Any:
    """The value of a field; a mistake in it is named by the field."""
    reader = _FIELDS[key]
    try:
        return reader(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{key}: {error}") from None


def _explained(source: _Source, name: str, entry: Any, mistake: Exception) -> TilewrightError:
    """The mistake of one entry in words."""
    from tilewright.files import checked

    if isinstance(entry, dict) and "name" in entry:
        return source.bad(name, "unknown field 'name': the key is its name")
    try:
        whole = {**entry, "name": name} if isinstance(entry, dict) else entry
        checked(json.dumps(whole), Arch, source=f"{source.name}, {name}")
    except FileError as error:
        kind = InternalError if source.path is None else FileError
        return kind(
            error.message, rule="arch-schema", value=error.value, remedy=f"{source.remedy_place}: {error.remedy}"
        )
    return source.bad(name, str(mistake))


def parse_archs(
    data: Mapping[str, Any], source: _Source = _SHIPPED, known: Mapping[str, Arch] | None = None
) -> dict[str, Arch]:
    """Read a whole table; the first mistake is an error that names arch and field.  `known`: archs it may build on."""
    if not isinstance(data, Mapping) or data.get("schema") != 1:
        schema = data.get("schema") if isinstance(data, Mapping) else data
        raise source.bad("schema", f"version {schema!r} is not 1", schema)
    entries = data.get("archs", {})
    if not isinstance(entries, Mapping):
        raise source.bad("archs", "it is not an object of entries by name", entries)
    table: dict[str, Arch] = dict(known or {})
    for name, entry in entries.items():
        if name in table:
            raise source.bad(name, "this name is taken by another arch", name)
        table[name] = _entry(source, name, entry)
    for name in entries:
        _demand_whole(source, table[name], table)
    return table


def _entry(source: _Source, name: str, entry: Any) -> Arch:
    try:
        return Arch(name=name, **{key: _read(key, value) for key, value in entry.items()})
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise _explained(source, name, entry, error) from None


def _demand_whole(source: _Source, entry: Arch, table: Mapping[str, Arch]) -> None:
    for number in _COUNTS:
        if getattr(entry, number) < 0:
            raise source.bad(entry.name, f"{number}: {getattr(entry, number)} is negative", getattr(entry, number))
    lanes = entry.warp_size
    if lanes < 1 or lanes & (lanes - 1):
        raise source.bad(entry.name, f"warp_size: {lanes} is no power of two; a CPU has 1, GPUs have 32 or 64", lanes)
    if source.path is not None:
        _demand_known_words(source, entry)
    for other in entry.includes:
        if other not in table:
            raise source.bad(entry.name, f"includes unknown arch {other!r}", other)
        if why_not := _not_included(entry, table[other]):
            raise source.bad(entry.name, f"includes: kernels of {other!r} do not run here, {why_not}", other)
    if entry.capability and not (entry.rates and entry.compute_units and entry.scratch_bytes):
        message = "an NVIDIA arch needs compute_units, scratch_bytes and rates: estimates are made of them"
        raise source.bad(entry.name, message, entry.name)


def _not_included(entry: Arch, other: Arch) -> str:
    """Why kernels of another arch do not run on this one; empty if nothing speaks against it."""
    if (other.family, other.backend) != (entry.family, entry.backend):
        return f"it is of family {other.family!r} and backend {other.backend!r}"
    if other.scratch_bytes > entry.scratch_bytes:
        most, here = other.scratch_bytes, entry.scratch_bytes
        return f"they may take {most} bytes of shared memory (scratch_bytes), and this has {here}"
    if other.capability and "ptx" not in other.features:
        return "they have no PTX that the driver could compile (feature 'ptx')"
    if other.capability and entry.capability and other.capability > entry.capability:
        return f"its capability {list(other.capability)} is newer than {list(entry.capability)}"
    return ""


def _demand_known_words(source: _Source, entry: Arch) -> None:
    """A backend that is installed; of the package's own backends, their families and features.

    A feature that resembles none of ours may be one that a kernel family of another package asks for.
    """
    if entry.backend not in (backends := plugins.names("tilewright.backends")):
        raise source.bad(entry.name, f"backend {entry.backend!r} is not one of {', '.join(backends)}", entry.backend)
    ours = [each for each in _shipped_archs().values() if each.backend == entry.backend]
    families = sorted({each.family for each in ours})
    if ours and entry.family not in families:
        message = f"family {entry.family!r} is not one of backend {entry.backend!r}: {', '.join(families)}"
        raise source.bad(entry.name, message, entry.family)
    features = frozenset[str]().union(*(each.features for each in ours))
    for feature in sorted(entry.features - features):
        if near := _resembled(feature, features):
            message = f"features: {feature!r} is unknown, did you mean {near!r}? Known: {', '.join(sorted(features))}"
            raise source.bad(entry.name, message, feature)


def _resembled(word: str, known: frozenset[str]) -> str:
    """The known word that another is a slip of, or the beginning of; else empty."""
    import difflib

    begun = [each for each in sorted(known) if each.startswith(word.casefold())]
    return next(iter(difflib.get_close_matches(word.casefold(), sorted(known), n=1, cutoff=_SLIP) or begun), "")


class _Shipped(Mapping[str, Arch]):
    """The package's table, each entry read when it is asked for: a first call asks for two of a score.

    That it is whole (`parse_archs` demands it of others' files), tests see to.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self.entries = entries
        self._known: dict[str, Arch] = {}

    def __getitem__(self, name: str) -> Arch:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = _entry(_SHIPPED, name, self.entries[name])
        return known

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class _Tables(NamedTuple):
    archs: Mapping[str, Arch]
    fits: dict[str, dict[str, dict[str, Any]]]  # constants, by the arch they were fitted on and the estimate


def _packaged(name: str) -> Any:
    return json.loads(packaged.read_text("tilewright.arch", name))


@lru_cache(maxsize=1)
def _shipped_archs() -> _Shipped:
    return _Shipped(_packaged("specs.json")["archs"])


@lru_cache(maxsize=1)
def _shipped_fits() -> dict[str, dict[str, dict[str, Any]]]:
    return dict(_packaged("fits.json")["fits"])


@lru_cache(maxsize=16)
def _tables(files: str) -> _Tables:
    """What the package has and, behind it, what the files of the setting `arch_files` say."""
    archs: Mapping[str, Arch] = _shipped_archs()
    fits = _shipped_fits() if files else {}
    if files:
        from tilewright.files import read_json  # a file of one's own is rare
    for each in filter(None, files.split(os.pathsep)):
        path = Path(each).expanduser()
        data, source = read_json(path, what="an arch file"), _Source(str(path), path)
        archs = parse_archs(data, source, archs)
        fits = fits | _own_fits(data, source, archs)
    for name in archs.keys() - _shipped_archs().keys():
        if _named.setdefault(name, archs[name]) != archs[name]:
            raise _Source(files, Path(files)).bad(name, "this process has met another arch of this name", name)
    return _Tables(archs, fits)


_named: dict[str, Arch] = {}  # of one's own, by name: what was worked out for a name stays true


def _own_fits(data: Mapping[str, Any], source: _Source, archs: Mapping[str, Arch]) -> dict[str, Any]:
    fits = data.get("fits", {})
    for name in fits:
        if name not in data.get("archs", {}):
            raise source.bad("fits", f"{name!r} is no arch of this file", name)
    return dict(fits)


def _fits() -> dict[str, dict[str, dict[str, Any]]]:
    files = settings.current().arch_files
    return _tables(files).fits if files else _shipped_fits()


def fit_source(estimate: str, name: str) -> str:
    """The arch whose constants of an estimate an arch counts with: itself, or the first that has a fit."""
    fits = _fits()
    source = name if estimate in fits.get(name, {}) else next((each for each in fits if estimate in fits[each]), "")
    if not source:
        raise _SHIPPED.bad("fits", f"no arch has a fit of {estimate!r}", estimate)
    return source


def fitted(estimate: str, record: type[Constants], name: str) -> Constants:
    """The constants of an estimate for an arch: fitted on it, or scaled from the first arch that has a fit."""
    source = fit_source(estimate, name)
    return scaled(record, _fits()[source][estimate], arch(source), arch(name))


def all_archs() -> Mapping[str, Arch]:
    """Every arch by its name: the package's, and those of the files the setting `arch_files` names."""
    files = settings.current().arch_files
    return _tables(files).archs if files else _shipped_archs()


def archs_of(family: str) -> list[Arch]:
    """The archs of a family, in the order of the table; of the package's, no others are read."""
    table = all_archs()
    if isinstance(table, _Shipped):
        return [table[name] for name, entry in table.entries.items() if entry["family"] == family]
    return [arch for arch in table.values() if arch.family == family]


def families() -> dict[str, str]:
    """The backend of every family of archs, in the order of the table."""
    table = all_archs()
    if isinstance(table, _Shipped):
        return {entry["family"]: entry["backend"] for entry in table.entries.values()}
    return {arch.family: arch.backend for arch in table.values()}


def arch(name: str) -> Arch:
    """The arch called `name`; an unknown name is an error with the nearest known one."""
    try:
        return all_archs()[name]
    except KeyError:
        raise UnknownNameError(
            f"{shown(name)} is not a known arch", rule="arch-name", value=name, remedy=nearest(name, list(all_archs()))
        ) from None
