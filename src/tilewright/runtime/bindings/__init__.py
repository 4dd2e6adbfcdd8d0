"""How arrays become calls of an op: one package an op, behind one contract.

Calls, plans, the registry and the measurements know ops only through this contract, never an op's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tilewright import plugins
from tilewright.errors import ProblemError, RequestError

if TYPE_CHECKING:
    from tilewright.ops.base import KernelSpec
    from tilewright.runtime.arrays import View
    from tilewright.runtime.loader import Kernel
    from tilewright.runtime.plans import Plan, Plans
    from tilewright.runtime.requests import Attributes, Operands, Packed, Request, Sample, Slot, StageRequest

GROUP = "tilewright.bindings"


def demand_open(spec: KernelSpec, fixed: Mapping[str, Any], keywords: Mapping[str, Any], function: str) -> None:
    """A call of one kernel gives none of the options that the kernel fixes."""
    for name in fixed:
        if name in keywords:
            raise ProblemError(
                f"{name} was given, and {spec.name} has its own",
                rule="kernel-signature",
                value=name,
                remedy=f"leave {name} out, or use `{function}`",
            )


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
    """Who chooses kernels: a registry, or one that always gives the same kernel."""

    @property
    def kind(self) -> str:
        """The kind of device kernels of the target read memory of: the name of its backend."""

    @property
    def target(self) -> str:
        """The arch kernels are chosen for."""

    def plans(self) -> Plans:
        """What is remembered of calls, valid for the settings in force."""

    def plan(self, request: Request) -> Plan:
        """Choose, build and load a kernel for each stage of a request."""

    def kernel_for(self, problem: Any) -> Kernel:
        """The kernel of a problem of one stage, loaded: what an operand is packed with."""


class Binding(Protocol):
    """What an op's package provides."""

    op: str
    slots: tuple[Slot, ...]  # the operands of a call in their order, results among them
    scalars: tuple[str, ...]  # the names of the numbers of a call

    def bind(self, *operands: Any, **keywords: Any) -> tuple[Operands, Sequence[Any], Attributes]:
        """A call as users write it, in the order of slots and scalars."""

    def bind_kernel(
        self, spec: KernelSpec, *operands: Any, **keywords: Any
    ) -> tuple[Operands, Sequence[Any], Attributes]:
        """The same for one kernel: what it computes is its own and not asked for."""

    def request(self, views: Sequence[View | Packed | None], attributes: Attributes, target: str) -> Request:
        """Shapes, strides and dtypes as one request for a target, or the first contradiction as one error."""

    def copies(self, stage: StageRequest, larger: Any) -> StageRequest:
        """The stage with copies of its operands, in which it is the larger problem."""

    def sample(self, problem: Any, seed: int = 0, exact: bool = False) -> Sample:
        """Fresh random operands of a problem on the host, memory laid out as the problem says, results poisoned.

        `exact`: such values that the bound of `check` holds for every kernel, however few bits its sums keep.
        """

    def checks_apart(self, problem: Any) -> bool:
        """Whether exact operands are of another kind than those that times are taken with."""

    def dense(self, problem: Any) -> Request:
        """The request of such operands: of exactly this problem, as one stage."""

    def attributes_for(self, attributes: Attributes, scalars: Sequence[float]) -> Attributes:
        """The attributes of the same call with other numbers."""

    def packed_for(self, planner: Planner, problem: Any, operands: Operands) -> Operands:
        """A sample's operands as kernels take them: packed, by the planner's kernel, where the problem says so."""

    def describe(self, stages: Sequence[StageRequest]) -> str:
        """The call that these stages make up, for errors: as its user knows it, not as one of its kernels does."""

    def wrong_table(self, stage: StageRequest, tables: Mapping[str, Any]) -> str:
        """The first table that holds what it may not (`Slot.holds`), of copies on the host; empty: none.

        Its slot's name, and the entry where one alone is to blame: `block_table[1, 3] = 99`.
        """

    def check(self, problem: Any, sample: Sample, kernels: Sequence[KernelSpec] = ()) -> Check:
        """Compare the results in a sample on the host with the reference.

        `kernels` computed them, one a stage: how far a result may be off is what these promise, and no more.  With none
        named it is what most kernels of the op promise.
        """

    def judge(self, problem: Any, sample: Sample) -> Callable[[Sample, Sequence[KernelSpec]], Check]:
        """A `check` for one set of operands and results of many kernels: the reference is computed once."""


class BindingDefaults:
    """The plain answers of a binding: no operand is packed, none is copied to pad it.  A binding inherits it."""

    op: str

    if TYPE_CHECKING:  # the binding's own; they have no default

        def bind(self, *operands: Any, **keywords: Any) -> tuple[Operands, Sequence[Any], Attributes]: ...

        def check(self, problem: Any, sample: Sample, kernels: Sequence[KernelSpec] = ()) -> Check: ...

    def bind_kernel(
        self, spec: KernelSpec, *operands: Any, **keywords: Any
    ) -> tuple[Operands, Sequence[Any], Attributes]:
        return self.bind(*operands, **keywords)

    def copies(self, stage: StageRequest, larger: Any) -> StageRequest:
        raise RequestError(
            f"{self.op} offers a larger problem ({larger.describe()}), and its binding makes no copies",
            rule="binding-copies",
            value=self.op,
            remedy=f"write `copies` in the binding of {self.op}, or let `padded` of the op answer None",
        )

    def checks_apart(self, problem: Any) -> bool:
        return False

    def describe(self, stages: Sequence[StageRequest]) -> str:
        text: str = stages[0].problem.describe()
        return text

    def wrong_table(self, stage: StageRequest, tables: Mapping[str, Any]) -> str:
        return ""

    def attributes_for(self, attributes: Attributes, scalars: Sequence[float]) -> Attributes:
        return attributes

    def packed_for(self, planner: Planner, problem: Any, operands: Operands) -> Operands:
        return operands

    def judge(self, problem: Any, sample: Sample) -> Callable[[Sample, Sequence[KernelSpec]], Check]:
        return lambda result, kernels: self.check(problem, result, kernels)


def binding(op: str) -> Binding:
    """The binding of an op."""
    bound: Binding = plugins.load(GROUP, op, "an op with a binding", Binding)
    return bound
