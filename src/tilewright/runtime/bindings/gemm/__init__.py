"""GEMM behind the generic contract of `tilewright.runtime.bindings.Binding`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.errors import ProblemError
from tilewright.ops.base import KernelSpec
from tilewright.ops.fused import with_added
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.spec import MAX_D
from tilewright.runtime.arrays import view
from tilewright.runtime.bindings import BindingDefaults, Planner, demand_open
from tilewright.runtime.bindings.gemm import dense, request
from tilewright.runtime.bindings.gemm.operands import B
from tilewright.runtime.bindings.gemm.packed import PackedB
from tilewright.runtime.bindings.gemm.request import MATHS, Attributes
from tilewright.runtime.calls import scalar
from tilewright.runtime.host import thread_count
from tilewright.runtime.requests import Operands, Request, Sample, Slot, StageRequest

if TYPE_CHECKING:
    from tilewright.ops.numerics import Check

__all__ = ["BINDING", "Attributes", "PackedB"]

NO_DS = (None,) * MAX_D


def filled(ds: Any) -> tuple[Any, ...]:
    """The D tensors of a call, None where there are fewer than kernels take."""
    if type(ds) is tuple or type(ds) is list:
        count = len(ds)
        if count == 1 and ds[0] is not None:
            return (ds[0], *NO_DS[1:])
        if count == 0:
            return NO_DS
        if count <= MAX_D and not any(d is None for d in ds):
            return (*ds, *NO_DS[count:])
    if not isinstance(ds, Sequence) or isinstance(ds, str):  # arrays are none
        raise ProblemError(
            "ds must be a tuple or list of arrays", rule="ds-type", value=type(ds).__name__, remedy="write ds=(d0,)"
        )
    if len(ds) > MAX_D:
        raise ProblemError(
            f"{len(ds)} D tensors were given", rule="epilogue-d-count", value=len(ds), remedy=f"give at most {MAX_D}"
        )
    if any(d is None for d in ds):
        raise ProblemError("a D tensor is None", rule="array-type", value=None, remedy="leave it out of ds")
    return filled(tuple(ds))


def counted(beta: float) -> int:
    """How C counts: not at all, once, or by a factor."""
    return 0 if beta == 0 else 1 if beta == 1 else 2


class GemmBinding(BindingDefaults):
    op = "gemm"
    slots = (  # in the order of `operands`
        Slot("a", cast=True),
        Slot("b", packed=PackedB, cast=True),
        Slot("c", optional=True, cast=True),
        *(Slot(f"ds[{index}]", optional=True, cast=True) for index in range(MAX_D)),
        Slot("out", written=True, optional=True, twin="c"),
        Slot("up", optional=True, cast=True),
    )
    scalars = ("alpha", "beta")

    def bind(
        self,
        a: Any,
        b: Any,
        c: Any = None,
        *,
        alpha: Any = 1.0,
        beta: Any = None,
        bias: Any = None,
        residual: Any = None,
        ds: Any = (),
        epilogue: Any = "passthrough",
        out: Any = None,
        out_dtype: Any = None,
        math: str = "",
        form: str = "",
        up: Any = None,
    ) -> tuple[Operands, Sequence[Any], tuple[Any, ...]]:
        alpha = scalar("alpha", alpha)
        beta = scalar("beta", beta if beta is not None else float(c is not None))
        epilogue, ds = with_added(epilogue, ds, bias=bias, residual=residual)
        attributes = (epilogue, out_dtype, math, counted(beta), form)
        return (a, b, c, *filled(ds), out, up), (alpha, beta), attributes

    def bind_kernel(
        self,
        spec: KernelSpec,
        a: Any,
        b: Any,
        c: Any = None,
        *,
        alpha: Any = 1.0,
        beta: Any = None,
        ds: Any = (),
        out: Any = None,
        up: Any = None,
        **others: Any,
    ) -> tuple[Operands, Sequence[Any], tuple[Any, ...]]:
        """Epilogue, output type and math are the kernel's."""
        signature = spec.signature
        known: dict[str, Any] = {
            "epilogue": signature.epilogue,
            "out_dtype": signature.dtype_c if out is None else None,
            "math": signature.dtype_a if signature.dtype_a in MATHS else "",
            "form": signature.layout,
        }
        demand_open(spec, known, others, "tilewright.gemm")
        return self.bind(a, b, c, alpha=alpha, beta=beta, ds=ds, out=out, up=up, **{**others, **known})

    def request(self, views: Sequence[Any], attributes: tuple[Any, ...], target: str) -> Request:
        return request.build(views, attributes, target)

    def copies(self, stage: StageRequest, larger: GemmProblem) -> StageRequest:
        return dense.copies(stage, larger)

    def sample(self, problem: GemmProblem, seed: int = 0, exact: bool = False) -> Sample:
        from tilewright.runtime.bindings.gemm import samples

        return samples.sample(problem, seed, exact)

    def checks_apart(self, problem: GemmProblem) -> bool:
        from tilewright.runtime.bindings.gemm import samples

        return samples.may_be_narrow(problem)

    def dense(self, problem: GemmProblem) -> Request:
        return dense.dense(problem)

    def attributes_for(self, attributes: tuple[Any, ...], scalars: Sequence[float]) -> tuple[Any, ...]:
        _, beta = scalars
        return tuple(Attributes(*attributes)._replace(c_counts=counted(beta)))

    def packed_for(self, planner: Planner, problem: GemmProblem, operands: Operands) -> Operands:
        if problem.variant != "preshuffle":
            return operands
        from tilewright.runtime.bindings.gemm.packing import pack

        of_b = view("b", operands[B], planner.kind)
        template = dense.dense(problem).stages[0].args
        packed = pack(planner.kernel_for(problem), problem, template, of_b, thread_count())
        return tuple(packed if index == B else operand for index, operand in enumerate(operands))

    def check(self, problem: GemmProblem, sample: Sample, kernels: Sequence[KernelSpec] = ()) -> Check:
        from tilewright.runtime.bindings.gemm import samples

        return samples.check(problem, sample)

    def judge(self, problem: GemmProblem, sample: Sample) -> Callable[[Sample, Sequence[KernelSpec]], Check]:
        from tilewright.runtime.bindings.gemm import samples

        ask = samples.judge(problem, sample)
        return lambda result, kernels: ask(result)


BINDING = GemmBinding()
