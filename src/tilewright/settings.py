"""Every option, typed, in one place.  Nothing else in the package reads the environment.

An option is set in code for a scope (`with settings.override(threads=1): ...`), in code for the
process (`settings.configure(threads=1)`), or by the environment (`TILEWRIGHT_THREADS=1`), in that
order of precedence.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import RequestError, UnknownNameError, nearest

PREFIX = "TILEWRIGHT_"
CUDA_COMPILERS = ("auto", "nvcc", "nvrtc")


@dataclass(frozen=True, slots=True)
class Settings:
    """All options with their defaults; the comment says what each one decides."""

    cache_dir: Path = Path("~/.cache/tilewright")  # the kernel store and the measurement records
    cache_max_bytes: int = 4 << 30  # the store is trimmed to this size, oldest use first
    threads: int = 0  # threads a host kernel uses; 0 means every core this process may use
    jobs: int = 0  # compilers at once; 0 means by cores and free memory
    target: str = ""  # arch name; empty means the best this machine has
    host_level: str = ""  # CPU arch this machine is taken to have at best; empty means what its CPU says
    strict: bool = False  # refuse fallback tiers (padded, generic) instead of running them
    frozen: bool = False  # never compile: a kernel that is not built is an error
    cxx: str = ""  # C++ compiler for host kernels; empty means search
    cxxflags: str = ""  # extra flags for host kernels, part of every cache key
    hip_library: str = ""  # the HIP runtime (libamdhip64); empty means search
    objdump: str = ""  # disassembler that `inspect` asks; empty means the toolchain's, then the system's
    hipcc: str = ""  # HIP compiler; empty means search
    rocm_path: str = ""  # folder of a ROCm installation or of an installed toolchain; empty means search
    cuda_compiler: str = "auto"  # nvcc, nvrtc, or auto: nvcc where there is one, else NVRTC
    nvcc: str = ""  # CUDA compiler; empty means search
    nvrtc: str = ""  # the library NVRTC (libnvrtc); empty means search
    cuda_library: str = ""  # the CUDA driver (libcuda); empty means search
    ck_tile: str = ""  # folder that holds the headers ck_tile/; empty means the ones beside the compiler
    measure: bool = True  # use recorded measurements when selecting
    events: str = ""  # path of a JSONL file that receives every event; empty means none


def _parse(field: dataclasses.Field[Any], text: str) -> Any:
    kind: type[Any] = type(field.default)
    try:
        if kind is bool:
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}[
                text.strip().lower()
            ]
        if kind is int:
            return int(text)
        return Path(text) if isinstance(field.default, Path) else text
    except (KeyError, ValueError):
        raise RequestError(
            f"{PREFIX}{field.name.upper()}={text!r} is not a valid {kind.__name__}",
            rule="setting-value",
            value=text,
            remedy=f"give a {kind.__name__} such as {field.default!r}, or unset the variable",
        ) from None


def _check(values: Settings) -> Settings:
    for name in ("threads", "jobs", "cache_max_bytes"):
        if getattr(values, name) < 0:
            raise RequestError(
                f"{name} is {getattr(values, name)}, but must not be negative",
                rule="setting-value",
                value=getattr(values, name),
                remedy="use 0 for the automatic choice" if name != "cache_max_bytes" else "give a number of bytes",
            )
    if values.cuda_compiler not in CUDA_COMPILERS:
        raise RequestError(
            f"cuda_compiler is {values.cuda_compiler!r}",
            rule="setting-value",
            value=values.cuda_compiler,
            remedy=f"use one of {', '.join(CUDA_COMPILERS)}",
        )
    return dataclasses.replace(values, cache_dir=values.cache_dir.expanduser())


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Defaults overlaid with TILEWRIGHT_* variables; an unknown variable is an error, not a typo kept."""
    environ = os.environ if environ is None else environ
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    given: dict[str, Any] = {}
    for key, text in environ.items():
        if not key.startswith(PREFIX):
            continue
        name = key[len(PREFIX) :].lower()
        if name not in fields:
            raise UnknownNameError(
                f"the environment sets {key}, which is not an option",
                rule="setting-name",
                value=key,
                remedy=nearest(name, sorted(fields)),
            )
        given[name] = _parse(fields[name], text)
    return _check(dataclasses.replace(Settings(), **given))


_process: Settings | None = None
_scoped: ContextVar[Settings | None] = ContextVar("tilewright_settings", default=None)


def current() -> Settings:
    """The settings in force here."""
    global _process
    scoped = _scoped.get()
    if scoped is not None:
        return scoped
    if _process is None:
        _process = from_environment()
    return _process


def _with(base: Settings, changes: dict[str, Any]) -> Settings:
    known = {field.name for field in dataclasses.fields(Settings)}
    for name in changes:
        if name not in known:
            raise UnknownNameError(
                f"{name!r} is not an option", rule="setting-name", value=name, remedy=nearest(name, sorted(known))
            )
    if "cache_dir" in changes:
        changes = {**changes, "cache_dir": Path(changes["cache_dir"])}
    return _check(dataclasses.replace(base, **changes))


def configure(**changes: Any) -> Settings:
    """Change options for the whole process."""
    global _process
    _process = _with(_process if _process is not None else from_environment(), changes)
    return _process


@contextmanager
def override(**changes: Any) -> Iterator[Settings]:
    """Change options for the body of a `with` statement (and the tasks started in it)."""
    token = _scoped.set(_with(current(), changes))
    try:
        yield current()
    finally:
        _scoped.reset(token)


# Variables that would quietly change what a compiler does; none of them is part of a cache key.
_NOT_INHERITED = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES",
    "CCC_OVERRIDE_OPTIONS", "HIPCC_COMPILE_FLAGS_APPEND", "HIPCC_LINK_FLAGS_APPEND", "HIP_PLATFORM",
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN",
)  # fmt: skip


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process we start: messages in English, nothing that changes the code it makes."""
    environ = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
    environ.update({"LC_ALL": "C", "LANGUAGE": "C", **(extra or {})})
    return environ
