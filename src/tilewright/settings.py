"""Every option, typed, in one place.  Nothing else in the package reads the environment.

An option is set in code for a scope (`with settings.override(threads=1): ...`), in code for the
process (`settings.configure(threads=1)`), or by the environment (`TILEWRIGHT_THREADS=1`), in that
order of precedence.  An empty text always means the default.
"""

from __future__ import annotations

import dataclasses
import operator
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tilewright import notices
from tilewright.dataclass import dataclass
from tilewright.errors import MachineError, RequestError, UnknownNameError, nearest

PREFIX = "TILEWRIGHT_"
CUDA_COMPILERS = ("auto", "nvcc", "nvrtc")
THREAD_POOLS = ("auto", "own", "openmp")
MISSING = ("compile", "best_built", "background")  # the last: best_built, and the better kernel is built meanwhile
_CHOICES = {"cuda_compiler": CUDA_COMPILERS, "missing": MISSING, "thread_pool": THREAD_POOLS}
MAX_THREADS = 1024  # of a team: backends/cpu/host/team.cpp


def _default_cache_dir() -> Path:
    """Where this system keeps caches: XDG_CACHE_HOME or ~/.cache on Linux, ~/Library/Caches on a Mac."""
    if sys.platform == "linux" and "ANDROID_DATA" not in os.environ:
        # What platformdirs would say, whose import costs a cold process more than all other settings.
        folder = os.environ.get("XDG_CACHE_HOME", "").strip()
        if not folder.startswith("/"):  # the XDG specification wants relative values ignored
            folder = os.path.expanduser("~/.cache")  # noqa: PTH111  Path's own raises without a home
        place = Path(folder, "tilewright")
    else:
        import platformdirs  # here: `import tilewright` does not pay for it

        place = Path(platformdirs.user_cache_path("tilewright", appauthor=False))
    if not place.is_absolute():  # a user without a home folder: `~` stays as it is
        raise MachineError(
            f"this user has no cache folder ({place} is not an absolute path)",
            rule="cache-folder",
            value=str(place),
            remedy=f"set {PREFIX}CACHE_DIR to a folder for kernels, or HOME or XDG_CACHE_HOME to an absolute path",
        )
    return place


def _builds(default: str = "") -> Any:
    """A field that changes what is built: kernels that a process has loaded are known by it."""
    return dataclasses.field(default=default, metadata={"builds": True})


@dataclass(frozen=True, slots=True)
class Settings:
    """All options with their defaults; the comment says what each one decides.

    What changes the kernel that is built from a spec is declared with `_builds`.
    """

    cache_dir: Path = dataclasses.field(  # folder of the kernel store and of measurement records
        default_factory=_default_cache_dir, metadata={"builds": True}
    )
    cache_max_bytes: int = 4 << 30  # maximum size of the kernel store in bytes; least recently used kernels are removed
    threads: int = 0  # threads of a CPU kernel; 0 means OMP_NUM_THREADS, else all cores of this process
    thread_pool: str = "auto"  # own, openmp (PyTorch's threads), or auto: OpenMP's if loaded, unless they come late
    jobs: int = 0  # parallel compile jobs; 0 means by cores and free memory
    target: str = ""  # arch or backend; empty means the best arch of this machine
    arch_files: str = ""  # JSON files with more archs, separated as in PATH; empty means none
    host_level: str = ""  # limit this machine to this CPU arch, for tests; empty means no limit
    strict: bool = False  # refuse problems that only the tiers padded and fallback serve
    frozen: bool = False  # never compile: a kernel that is not in the store is an error
    missing: str = "compile"  # if a kernel is not built: compile, best_built (use the best that is) or background
    cxx: str = _builds()  # C++ compiler of CPU kernels; empty means search
    cxxflags: str = _builds()  # more compiler flags of CPU kernels; part of every cache key
    hip_library: str = ""  # path of the HIP runtime (libamdhip64); empty means search
    objdump: str = ""  # disassembler for `inspect`; empty means the toolchain's, else the system's
    hipcc: str = _builds()  # HIP compiler; empty means search
    rocm_path: str = _builds()  # folder of a ROCm installation or of an installed toolchain; empty means search
    cuda_compiler: str = _builds("auto")  # nvcc, nvrtc, or auto: nvcc if there is one, else NVRTC
    nvcc: str = _builds()  # CUDA compiler; empty means search
    nvrtc: str = _builds()  # path of NVRTC (libnvrtc); empty means search
    cuda_library: str = ""  # path of the CUDA driver (libcuda); empty means search
    ck_tile: str = _builds()  # folder with the headers ck_tile/; empty means those of the compiler
    ck_tile_profile: str = _builds()  # profile (version) of CK Tile that sources use; empty means that of `ck_tile`
    check_tables: bool = False  # validate index arrays on a device (lengths, pages); synchronizes each call
    measure: bool = True  # use recorded measurements when selecting
    models: bool = True  # use learned models when selecting
    rule: str = ""  # name of a selection rule of the op, used instead of these; empty means none
    lock: str = ""  # path of a lock file (`tilewright lock`); empty means none
    record: str = ""  # path of a .json file that counts the problems of all calls; empty means none
    events: str = ""  # path of a JSONL file that receives every event; empty means none


_FIELDS = {field.name: field for field in dataclasses.fields(Settings)}
_BUILDS = tuple(name for name, field in _FIELDS.items() if field.metadata.get("builds"))
_builds_of = operator.attrgetter(*_BUILDS)
_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_KINDS = {"bool": "true or false", "int": "a whole number", "str": "text", "Path": "a path"}
_REMEDIES = {
    "bool": "give True or False; in the environment 1 or 0",
    "int": "give a whole number; 0 means the automatic choice",
    "str": "give text without a NUL character",
    "Path": "give the path of a folder; empty means this system's folder for caches",
}


def _refused(name: str, value: object, *, variable: str = "", why: str = "") -> RequestError:
    """The one error of a value an option cannot have; a variable is called by its own name."""
    kind = str(_FIELDS[name].type)
    remedy = "give a number of bytes" if name == "cache_max_bytes" else _REMEDIES[kind]
    if name in _CHOICES:
        remedy = f"give {' or '.join(_CHOICES[name])}"
    return RequestError(
        f"{variable or f'the option {name}'} is {value!r}, but must be {why or _KINDS[kind]}",
        rule="setting-value",
        value=value,
        remedy=remedy + (", or unset the variable" if variable else ""),
    )


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # a NumPy integer is one too
    except TypeError:
        return None


def _converted(name: str, value: Any) -> Any:
    """A value given in code in the form the option has; None where it is of another kind."""
    kind = _FIELDS[name].type
    if kind == "bool":
        return value if isinstance(value, bool) else None
    if kind == "int":
        return _whole(value)
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or "\0" in text:
        return None
    return Path(text) if kind == "Path" else text


def _parsed(name: str, text: str) -> Any:
    """A variable's text in the form the option has; None where it cannot be read so."""
    kind = _FIELDS[name].type
    if kind == "bool":
        return _BOOLEANS.get(text.strip().lower())
    if kind == "int":
        return int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text, re.ASCII) else None
    return _converted(name, text)


def _check(values: Settings, names: Mapping[str, str]) -> Settings:
    """What holds of the values whoever gave them; `names` are the variables that did."""

    def demand(holds: bool, name: str, why: str) -> None:
        if not holds:
            raise _refused(name, getattr(values, name), variable=names.get(name, ""), why=why)

    for name in ("threads", "jobs", "cache_max_bytes"):
        demand(getattr(values, name) >= 0, name, "0 or more")
    demand(values.threads <= MAX_THREADS, "threads", f"at most {MAX_THREADS}")
    for name, words in _CHOICES.items():
        demand(getattr(values, name) in words, name, f"one of {', '.join(words)}")
    place = Path(os.path.expanduser(values.cache_dir))  # noqa: PTH111  Path's own raises where ~someone is not known
    demand(not str(place).startswith("~"), "cache_dir", "a path whose ~ is known here")
    return values if place == values.cache_dir else dataclasses.replace(values, cache_dir=place)


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Defaults overlaid with TILEWRIGHT_* variables; an unknown variable is an error, not a typo kept."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for key, text in environ.items():
        if not key.startswith(PREFIX):
            continue
        name = key[len(PREFIX) :].lower()
        if name not in _FIELDS:
            raise UnknownNameError(
                f"the environment sets {key}, which is not an option",
                rule="setting-name",
                value=key,
                remedy=nearest(name, sorted(_FIELDS)),
            )
        if not text.strip():
            continue  # empty means the default: never the current folder, never a compiler without a name
        value = _parsed(name, text)
        if value is None:
            raise _refused(name, text, variable=key)
        values[name], names[name] = value, key
    return _check(Settings(**values), names)


def openmp_threads() -> int:
    """The number of threads OMP_NUM_THREADS asks for; 0 where it says none.  Of a list (4,2) the first counts."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isascii() and first.isdigit() and len(first) <= 9 else 0


_process: Settings | None = None
SCOPED: ContextVar[Settings | None] = ContextVar("tilewright_settings", default=None)


def current() -> Settings:
    """The settings in force here."""
    global _process
    scoped = SCOPED.get()
    if scoped is not None:
        return scoped
    if _process is None:
        _process = from_environment()
    return _process


def builds() -> tuple[Any, ...]:
    """The values in force of all options that change what is built; hashable."""
    values: tuple[Any, ...] = _builds_of(current())
    return values


def _default_of(name: str) -> Any:
    """What an empty text means, where an option may be text; None where it may not."""
    field = _FIELDS[name]
    return _default_cache_dir() if field.type == "Path" else field.default if field.type == "str" else None


def _with(base: Settings, changes: Mapping[str, Any]) -> Settings:
    values: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in _FIELDS:
            raise UnknownNameError(
                f"{name!r} is not an option", rule="setting-name", value=name, remedy=nearest(name, sorted(_FIELDS))
            )
        converted = _default_of(name) if isinstance(value, str) and not value.strip() else _converted(name, value)
        if converted is None:
            raise _refused(name, value)
        values[name] = converted
    return _check(dataclasses.replace(base, **values), {})


def configure(**changes: Any) -> Settings:
    """Change options for the whole process."""
    global _process
    _process = _with(_process if _process is not None else from_environment(), changes)
    notices.notify(notices.changed)
    return _process


@contextmanager
def override(**changes: Any) -> Iterator[Settings]:
    """Change options for the body of a `with` statement (and the tasks started in it)."""
    notices.notify(notices.scoped)
    token = SCOPED.set(_with(current(), changes))
    try:
        yield current()
    finally:
        SCOPED.reset(token)


@contextmanager
def use(values: Settings) -> Iterator[None]:
    """The settings of another process for the body of a `with` statement: it does as the one that asked."""
    notices.notify(notices.scoped)
    token = SCOPED.set(values)
    try:
        yield
    finally:
        SCOPED.reset(token)


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


def child_path() -> str:
    """Where processes we start look for programs."""
    return os.environ.get("PATH", os.defpath)


def environment() -> dict[str, str]:
    """The environment of a process of ours that is to run under the settings in force."""
    variables = {name: value for name, value in os.environ.items() if name.removeprefix(PREFIX).lower() not in _FIELDS}
    now = current()
    for name, field in _FIELDS.items():
        value = getattr(now, name)
        if value != field.default:  # the cache folder has none: it is always said
            variables[PREFIX + name.upper()] = str(int(value)) if isinstance(value, bool) else str(value)
    return variables
