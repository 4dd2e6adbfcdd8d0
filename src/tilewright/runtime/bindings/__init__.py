"""How arrays become the argument struct of an op: one package an op, behind one contract.

The registry and the measurements know bindings only through this contract, never an op's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from tilewright import plugins

if TYPE_CHECKING:
    from tilewright.ops.base import KernelSpec
    from tilewright.runtime.devices import Device
    from tilewright.runtime.loader import Kernel


class Check(Protocol):
    """The outcome of comparing a result with the reference."""

    @property
    def ok(self) -> bool: ...

    @property
    def max_error(self) -> float: ...

    @property
    def bound_ratio(self) -> float:
        """Largest error over its bound; at most 1 when ok."""

    @property
    def detail(self) -> str:
        """Where it is worst, when not ok."""


class Planner(Protocol):
    """What a binding asks of a registry: where its kernels run, remembered plans, and new ones."""

    @property
    def kind(self) -> str:
        """The kind of device kernels of the target read memory of: the name of its backend."""

    def plans(self) -> MutableMapping[Any, Any]:
        """Plans by call key, valid for the settings in force."""

    def plan(self, op: str, request: Any, where: Callable[[KernelSpec], str] | None = None) -> Any:
        """Choose, build and prepare a kernel for a request; `where` gives a reason to refuse a kernel."""


class Binding(Protocol):
    """What an op's package provides."""

    def run(self, planner: Planner, *operands: Any, **keywords: Any) -> Any:
        """Run the op on arrays with the kernel the planner chooses."""

    def call(self, kernel: Kernel, *operands: Any, **keywords: Any) -> Any:
        """Run the op on arrays with this kernel."""

    def prepare(self, kernel: Kernel, request: Any, threads: int, padded: Any = None) -> Any:
        """A plan: everything of a call but the pointers.  `padded` is the problem to run instead, in copies."""

    def operands(
        self, problem: Any, seed: int = 0, device: Device | None = None, exact: bool = False
    ) -> Mapping[str, Any]:
        """Fresh random operands of a problem, with a poisoned output, in the memory of a device (the host's).

        `exact`: such values that the bound of `check` holds for every kernel, however few bits its sums keep.
        """

    def checks_apart(self, problem: Any) -> bool:
        """Whether exact operands are of another kind than those that times are taken with."""

    def call_arguments(
        self, planner: Any, problem: Any, operands: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The operands as `run` takes them: positions and keywords."""

    def runner(self, kernel: Kernel, problem: Any, operands: Mapping[str, Any], threads: int) -> Callable[[], None]:
        """A call that runs the kernel on the operands into their output, with as little around it as possible."""

    def poison(self, operands: Mapping[str, Any]) -> None:
        """Fill the output with what no kernel writes."""

    def check(self, problem: Any, operands: Mapping[str, Any]) -> Check:
        """Compare the operands' output with the reference."""


def binding(op: str) -> Binding:
    """The binding of an op."""
    found: Binding = plugins.load("tilewright.bindings", op, "an op with a binding")
    return found
