"""The op whose parts are modules by role: `legality`, `pools` and the reading of `options`.

Those that ship are of this kind.  A class names its modules and the dataclass of its problems, and adds what is its
own: stages, copies, what is measured alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol

from tilewright.errors import RequestError, an, shown
from tilewright.ops.base import REQUIRED, Axis, KernelSpec, OpDefaults, Option, SelectionRule, Violation, from_plain
from tilewright.ops.pooling import Pools
from tilewright.ops.spaces import Spaces


class LegalityModule(Protocol):
    @property
    def SPACES(self) -> Spaces: ...

    def spec_from_dict(self, data: Mapping[str, Any]) -> KernelSpec: ...

    def check(self, spec: KernelSpec) -> list[Violation]: ...

    def supports(self, spec: KernelSpec, problem: Any) -> list[Violation]: ...

    def problem_check(self, problem: Any, arch: str) -> list[Violation]: ...


class PoolsModule(Protocol):
    @property
    def POOLS(self) -> Pools: ...

    @property
    def AXES(self) -> tuple[Axis, ...]: ...

    def axes_of(self, signature: Any) -> dict[str, tuple[Any, ...]]: ...

    def signatures_of(self, text: str) -> Iterator[Any]: ...

    @property
    def proposals(self) -> Callable[..., Iterator[KernelSpec]]:
        """Of a pool and an arch; its keywords are the axes."""


class OptionsModule(Protocol):
    @property
    def OPTIONS(self) -> tuple[Option, ...]: ...

    def problem(self, values: Mapping[str, Any]) -> Any: ...

    def words(self, problem: Any) -> list[str]: ...


class ModularOp(OpDefaults):
    """`tilewright.ops.base.Op` by modules."""

    problem_class: ClassVar[type[Any]]

    def __init__(self, legality: LegalityModule, pools: PoolsModule, options: OptionsModule) -> None:
        self._legality, self._pools, self._options = legality, pools, options
        self.axes: tuple[Axis, ...] = pools.AXES

    @cached_property
    def options(self) -> tuple[Option, ...]:
        return self._options.OPTIONS

    @cached_property
    def pool_names(self) -> tuple[str, ...]:
        return self._pools.POOLS.names

    @cached_property
    def schedules(self) -> tuple[type[Any], ...]:
        return self._legality.SPACES.every_schedule()

    @cached_property
    def selection_rules(self) -> Mapping[str, SelectionRule]:
        """Those that design spaces have (`SELECTION_RULES`)."""
        spaces = self._legality.SPACES.values()
        return {name: rule for space in spaces for name, rule in getattr(space, "SELECTION_RULES", {}).items()}

    def spec_from_dict(self, data: dict[str, Any]) -> KernelSpec:
        return self._legality.spec_from_dict(data)

    def check(self, spec: KernelSpec) -> list[Violation]:
        return self._legality.check(spec)

    def is_legal(self, spec: KernelSpec) -> bool:
        """Whether `check` is empty; quicker where the module says how."""
        quick: Callable[[KernelSpec], bool] | None = getattr(self._legality, "is_legal", None)
        return quick(spec) if quick is not None else not self.check(spec)

    def legal_schedules(self, signature: Any, arch: str) -> Callable[[Any], bool]:
        """What says whether a schedule of a signature is legal."""
        quick: Callable[[Any, str], Callable[[Any], bool]] | None = getattr(self._legality, "legal_schedules", None)
        if quick is not None:
            return quick(signature, arch)
        return lambda schedule: not self.check(KernelSpec(self.name, signature, schedule, arch))

    def supports(self, spec: KernelSpec, problem: Any) -> list[Violation]:
        return self._legality.supports(spec, problem)

    def problem_violations(self, problem: Any, arch: str) -> list[Violation]:
        return self._legality.problem_check(problem, arch)

    def problem(self, values: Mapping[str, Any]) -> Any:
        _demand_options(self.name, self.options, values)
        return self._options.problem(values)

    def problem_from_dict(self, data: Mapping[str, Any]) -> Any:
        return from_plain(self.problem_class, f"{an(self.name)} problem", data)

    def words(self, problem: Any) -> list[str]:
        return self._options.words(problem)

    def axes_of(self, signature: Any) -> dict[str, tuple[Any, ...]]:
        return self._pools.axes_of(signature)

    def signatures_of(self, text: str) -> Iterator[Any]:
        return self._pools.signatures_of(text)

    def proposals(self, pool: str, arch: str, **axes: Any) -> Iterator[KernelSpec]:
        return self._pools.proposals(pool, arch, **axes)

    def fallback_spec(self, signature: Any, arch: str) -> KernelSpec:
        return self._pools.POOLS.fallback_spec(signature, arch)

    def candidates(self, signature: Any, arch: str) -> Sequence[KernelSpec]:
        return self._pools.POOLS.candidates(signature, arch)


def _demand_options(op: str, options: Sequence[Option], values: object) -> None:
    """Refuse what is no mapping of the op's options, or lacks one that has no default."""
    if not isinstance(values, Mapping):
        raise RequestError(
            f"values of {an(op)} problem are {shown(values)}",
            rule="option-value",
            value=shown(values),
            remedy=f"give a dictionary of {', '.join(option.name for option in options)}",
        )
    missing = [option.name for option in options if option.default is REQUIRED and option.name not in values]
    if missing:
        raise RequestError(
            f"{an(op)} problem needs {', '.join(missing)}",
            rule="option-missing",
            value=missing[0],
            remedy=f"say {' and '.join(missing)} too",
        )
