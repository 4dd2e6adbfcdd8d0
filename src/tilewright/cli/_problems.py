"""Problems as people give them: options of a command, or a JSON file with a list of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli._ops import flag_of
from tilewright.errors import MachineError, ProblemError, RequestError, UnknownNameError, an, nearest

if TYPE_CHECKING:
    from tilewright.arch import Arch
    from tilewright.dispatch.registry import Registry
    from tilewright.ops.base import KernelSpec, Op, Option


@dataclass(frozen=True, slots=True)
class Query:
    """A problem and the scalars of its call."""

    problem: Any
    scalars: Mapping[str, Any] = field(default_factory=dict)


def problem_of(op: Op, values: Mapping[str, Any], arch: Arch) -> Query:
    """The problem that values of the op's options describe; those that are None were not given.

    Some mean what they do on an arch only: fp8 has an encoding there.
    """
    from tilewright.ops.base import REQUIRED

    normal = {option.name: option.normal for option in op.options if option.normal is not None}
    normalized = {
        name: normal[name](value, arch) if name in normal and value else value
        for name, value in values.items()
        if value is not None
    }
    missing = [flag_of(option) for option in op.options if option.default is REQUIRED and option.name not in normalized]
    if missing:
        raise RequestError(
            f"{an(op.name)} problem needs {', '.join(missing)}",
            rule="option-missing",
            value=missing[0],
            remedy=f"give {' '.join(f'{flag} N' for flag in missing)}; `--help` says what they mean",
        )
    scalars = {option.name: normalized.get(option.name, option.default) for option in op.options if option.scalar}
    return Query(op.problem(normalized), scalars)


def _example(op: Op) -> dict[str, int | str]:
    """A small problem: the options up to the last that nobody may leave out."""
    from tilewright.ops.base import REQUIRED

    last = max((place for place, option in enumerate(op.options) if option.default is REQUIRED), default=0)
    return {option.name: 8 if option.kind is int else "8" for option in op.options[: last + 1]}


def read_problems(op: Op, path: Path, arch: Arch) -> list[Query]:
    """The problems of a JSON file: a list of objects, by the names of options or by the fields of a problem."""
    from tilewright import jsontext
    from tilewright.tune import problem_sets

    remedy = f"give a list such as [{json.dumps(_example(op))}]"
    try:
        data = problem_sets.listed(jsontext.loads(jsontext.read(path, regular=False)), op)
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read: {error.strerror}", rule="problems-file", value=str(path), remedy=remedy
        ) from None
    except ValueError as error:
        raise RequestError(
            f"{path} is no JSON of problems: {error}", rule="problems-file", value=str(path), remedy=remedy
        ) from None
    if data == []:
        raise RequestError(f"{path} holds no problems", rule="problems-file", value=str(path), remedy=remedy)
    if not isinstance(data, list):
        raise RequestError(f"{path} holds no list of problems", rule="problems-file", value=str(path), remedy=remedy)
    problems = []
    for index, entry in enumerate(data):
        try:
            problems.append(_read_problem(op, entry, arch))
        except RequestError as error:
            error.message = f"{path}, problem {index + 1}: {error.message}"
            raise
    return problems


def _read_problem(op: Op, data: Any, arch: Arch) -> Query:
    from tilewright.ops.base import with_new_names

    if not isinstance(data, dict):
        raise ProblemError(
            f"{data!r:.60} is no object", rule="problems-file", value=data, remedy='write {"name": value, ...}'
        )
    options = {option.name: option for option in op.options}
    data = with_new_names(op, data)
    if any(name not in options for name in data):
        return Query(_by_fields(op, data, list(options)))
    return problem_of(op, {name: _typed(options[name], value) for name, value in data.items()}, arch)


def _by_fields(op: Op, data: Mapping[str, Any], options: list[str]) -> Any:
    try:
        return op.problem_from_dict(data)
    except RequestError as error:
        odd = next(name for name in data if name not in options)
        error.remedy = f"{error.remedy}; or by the options of the command line: {nearest(str(odd), options)}"
        raise


def _typed(option: Option, value: Any) -> Any:
    """A value of a file as its option takes it: whole numbers stay whole, a switch is true or false."""
    if option.kind is str and type(value) is int:
        value = str(value)  # as on a command line
    fits = type(value) is option.kind or (option.kind is float and type(value) is int)
    if not fits:
        raise ProblemError(
            f"{option.name} is {value!r:.60}, not {_KINDS.get(option.kind, option.kind.__name__)}",
            rule="option-value",
            value=value,
            remedy=option.help,
        )
    return float(value) if option.kind is float else value


_KINDS: dict[type, str] = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


@contextmanager
def registry_for(
    target: str, threads: int, strict: bool = False, *, to_run: bool = True, lock: Path | None = None,
    frozen: bool = False, rule: str = "",
) -> Iterator[Registry]:  # fmt: skip
    """The registry of a target under the settings the options ask for."""
    from tilewright import settings
    from tilewright.backends.base import resolve_target
    from tilewright.dispatch.registry import default_registry

    changes: dict[str, Any] = {"threads": threads} if threads else {}
    changes |= {name: True for name, wanted in (("strict", strict), ("frozen", frozen)) if wanted}
    changes |= {"lock": str(lock)} if lock is not None else {}
    changes |= {"rule": rule} if rule else {}
    with settings.override(**changes):
        yield default_registry(resolve_target(target or None, to_run=to_run).name)


def demand_memory(problem: Any) -> None:
    """Say at once what would end as a crash, or a killed process: the operands alone do not fit."""
    from tilewright.build.jobs import available_memory

    free = available_memory()
    if free is not None and problem.bytes > free:
        raise MachineError(
            f"{problem.describe()} has {problem.bytes / 2**30:.1f} GiB of operands, {free / 2**30:.1f} GiB are free",
            rule="memory",
            value=problem.bytes,
            remedy="take a smaller problem, or a machine with more memory",
        )


# -- which kernels of a problem ------------------------------------------------------------------------


def named_kernel(registry: Registry, problem: Any, word: str) -> tuple[Registry, KernelSpec]:
    """The kernel that a name or the beginning of a digest means, if it is one for a stage of the problem.

    A name says its arch itself: the answer's registry is the one that runs the kernel.
    """
    from tilewright import ops
    from tilewright.backends.base import demand_runnable
    from tilewright.dispatch.registry import default_registry

    op = ops.op(problem.op)
    stages = registry.stages(problem)
    known = [spec for stage in stages for spec in registry.candidates(stage)]
    near = [spec for spec in known if word == spec.name or (len(word) >= 6 and spec.digest.startswith(word))]
    spec = near[0] if len(near) == 1 else kernel_of(word, registry.target)
    if spec not in known and spec.arch != registry.target:
        demand_runnable(spec.arch)
        registry = default_registry(spec.arch)
        stages = registry.stages(problem)
        known = [each for stage in stages for each in registry.candidates(stage)]
    if spec.op != problem.op or spec.signature not in [op.signature_of(stage) for stage in stages]:
        raise RequestError(
            f"{spec.name} does not compute {problem.describe()}: its signature is another",
            rule="kernel-signature",
            value=spec.name,
            remedy=f"its kernels: {', '.join(spec.name for spec in known[:3])} ...",
        )
    return registry, spec


def kernel_of(word: str, target: str) -> KernelSpec:
    """A kernel of the target, else of any arch."""
    from tilewright.build import Store
    from tilewright.build.why import find_spec

    try:
        return find_spec(Store(), word, target)
    except UnknownNameError as error:
        if error.rule != "kernel-name":
            raise
    return find_spec(Store(), word)


def passing(specs: list[KernelSpec], expression: str, problem: Any) -> list[KernelSpec]:
    """The specs that pass a filter; none at all is taken for a mistake."""
    from tilewright.codegen import Filter

    passes = Filter(expression)
    passed = [spec for spec in specs if passes(spec)]
    if not passed:
        raise RequestError(
            f"of the kernels that serve {problem.describe()} ({len(specs)}) none passes the filter",
            rule="no-specs",
            value=expression,
            remedy="widen the filter; `tilewright explain ... --all` says why a kernel refuses the problem, "
            "`tilewright specs ... --why-not` why it does not exist",
        )
    return passed


def table_of(values: dict[str, Any]) -> Path | None:
    """The table that --output names where the op has an option of that name: its values never end so."""
    from tilewright.tune.export import FORMATS

    value = values.get("output")
    if not isinstance(value, str) or Path(value).suffix not in FORMATS:
        return None
    values["output"] = None
    return Path(value)
