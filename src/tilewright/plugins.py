"""What is found by entry point: ops, their bindings, backends and the kernels backends have for ops.

    tilewright.ops            X = the op: specs, legality, pools, problems        (ops.base.Op)
    tilewright.bindings       X = how arrays become calls of it                   (runtime.bindings.Binding)
    tilewright.backends       B = a backend                                       (backends.base.Backend)
    tilewright.kernels.B      X = all that backend B knows of the op              (backends.base.OpKernels)
    tilewright.engine         X = problem sets and the like for the tile engine   (ops.engine.Engine)
    tilewright.api            N = a function that users find as tilewright.N
    tilewright.bundles        N = a module whose folder holds a bundle of kernels         (build.bundled)

So an op may live in another package, and nothing here names one.  Nothing is loaded before it is asked for: another
plug-in that is broken or slow to import does not matter.  What is wrong with a package that is not ours is an error of
this machine, which names the package; it is never called a bug of ours.

Where several packages publish one name in a group, ours counts, else the first by the package's name; an event says so.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any

from tilewright.entry_points import EntryPoint, published
from tilewright.errors import InternalError, PluginError, TilewrightError, UnknownNameError, nearest

_OURS = "tilewright"
_GROUPS = "tilewright."  # with what every group begins
REMEDY = "install the package again or remove it; if it is as its authors made it, tell them"


def is_ours(module: str) -> bool:
    """Whether a module, by its name, is of this package."""
    return module.partition(".")[0] == _OURS


def _package(point: EntryPoint) -> str:
    """What pip calls the package that brings it; where that is not known, its module."""
    return point.package or point.module.partition(".")[0]


@lru_cache(maxsize=1)
def _installed() -> dict[str, list[EntryPoint]]:
    """What all packages publish for us, by group: reading their files, once, is most of what asking costs."""
    by_group: dict[str, list[EntryPoint]] = {}
    for point in published(_GROUPS):
        by_group.setdefault(point.group, []).append(point)
    return by_group


@lru_cache(maxsize=64)
def _points(group: str) -> dict[str, EntryPoint]:
    by_name: dict[str, list[EntryPoint]] = {}
    for point in sorted(_installed().get(group, ()), key=lambda entry: entry.name):
        by_name.setdefault(point.name, []).append(point)
    return {name: points[0] if len(points) == 1 else _chosen(group, points) for name, points in by_name.items()}


def _chosen(group: str, points: list[EntryPoint]) -> EntryPoint:
    from tilewright import events

    first, *others = sorted(points, key=lambda point: (not is_ours(point.module), _package(point).casefold()))
    if events.active():
        left = ", ".join(_package(other) for other in others)
        text = f"{first.name!r} of {group} is published by {_package(first)}, which counts, and by {left}"
        events.emit(events.Warned("plugin-twice", text))
    return first


def names(group: str) -> list[str]:
    """What is installed under a group, none of it loaded."""
    return list(_points(group))


def package_of(group: str, name: str) -> str:
    """The package that brings what is installed under a name."""
    return _package(_points(group)[name])


def module_of(group: str, name: str) -> str:
    """The module that an entry point names, which is not imported."""
    return _points(group)[name].module


def forget() -> None:
    """Look again: for a program that changes what is on its path after it first asked."""
    _installed.cache_clear()
    _points.cache_clear()
    load.cache_clear()


@lru_cache(maxsize=256)
def load(group: str, name: str, what: str, contract: type | None = None) -> Any:
    """The object under a name; `what` says in the error what it should have been, `contract` which members it has."""
    point = _points(group).get(name)
    if point is None:
        rule = f"{what.rpartition(' ')[2]}-name"
        raise UnknownNameError(f"{name!r} is not {what}", rule=rule, value=name, remedy=nearest(name, names(group)))
    try:
        with _without_collector():
            loaded = point.load()
    except (Exception, SystemExit) as error:
        if is_ours(point.module) and not isinstance(error, (ImportError, AttributeError)):
            raise  # whatever it is, it is not that something is missing here
        raise _broken(point, what, f"cannot be loaded: {error_text(error)}") from error
    wrong = _misfit(loaded, contract) if contract is not None else ""
    if wrong:
        raise _broken(point, what, wrong)
    return loaded


@contextmanager
def _without_collector() -> Iterator[None]:
    """Nothing of modules that are loaded is garbage, and to look for some takes a tenth of a first call.

    Not afterwards either: they are put where objects are that have lived long, which the collector does by freezing all
    that there is and giving it back.  A program that froze objects itself keeps them frozen.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _broken(point: EntryPoint, what: str, wrong: str) -> PluginError:
    return PluginError(
        f"{what} {point.name!r} of the package {_package(point)} (installed as {point.value}) {wrong}",
        rule="plugin",
        value=point.value,
        package=_package(point),
        remedy=REMEDY,
    )


def _misfit(loaded: Any, contract: type) -> str:
    """What an object lacks of a protocol; empty where nothing."""
    if isinstance(loaded, type):
        return f"is the class {loaded.__name__}, where an object of it is meant"
    lacks, odd = [], []
    for name, is_method in members(contract):
        if isinstance(getattr(type(loaded), name, None), cached_property):
            continue  # what is worked out when it is first asked for is not asked for here
        try:
            member = getattr(loaded, name)
        except Exception:  # also what a property of theirs raises
            lacks.append(name)
            continue
        if is_method and not callable(member):
            odd.append(name)
    wrong = [f"lacks {', '.join(lacks)}"] if lacks else []
    wrong += [f"has no function as {', '.join(odd)}"] if odd else []
    return f"{' and '.join(wrong)}, which {contract.__module__}.{contract.__name__} asks for" if wrong else ""


def members(contract: type) -> Iterator[tuple[str, bool]]:
    """The public members of a protocol, each with whether it is a method."""
    kinds: dict[str, bool] = {}
    for cls in reversed(contract.__mro__):
        if cls.__module__ not in ("typing", "builtins"):
            kinds.update(dict.fromkeys(vars(cls).get("__annotations__", {}), False))
            kinds.update({name: callable(member) for name, member in vars(cls).items()})
    return ((name, is_method) for name, is_method in kinds.items() if not name.startswith("_"))


# -- whose fault ---------------------------------------------------------------------------------------


def error_text(error: BaseException) -> str:
    """An exception of anybody's as a short text: its kind and its first words."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = "which cannot be printed"
    return f"{type(error).__name__}: {text:.300}".removesuffix(": ")


def fault(module: str, message: str, **fields: Any) -> TilewrightError:
    """The error for what is wrong in a module's package: that package's, or a bug of ours where it is ours."""
    if is_ours(module):
        return InternalError(message, **fields)
    top = module.partition(".")[0]
    package = _packages().get(top, top)
    return PluginError(f"{message} (of the package {package})", package=package, **fields)


def _packages() -> dict[str, str]:
    """Every package that is not ours and brings something, by the name of its module."""
    points = published(_GROUPS)
    return {point.module.partition(".")[0]: _package(point) for point in points if not is_ours(point.module)}


def plugin_error(error: BaseException) -> PluginError | None:
    """The error to raise instead of one that nobody expected, where code of a plug-in raised it; else None.

    What the code of either side calls (the standard library, NumPy) counts as that side.
    """
    packages = _packages()
    modules = []
    trace = error.__traceback__
    while trace is not None:
        modules.append(str(trace.tb_frame.f_globals.get("__name__", "")))
        trace = trace.tb_next
    for module in reversed(modules):
        if is_ours(module):
            return None
        package = packages.get(module.partition(".")[0])
        if package is not None:
            return PluginError(
                f"the package {package} failed, in {module}: {error_text(error)}",
                rule="plugin",
                value=module,
                package=package,
                remedy=f"{REMEDY}; --debug, or the exception this came from, shows where",
            )
    return None
