"""Convolution behind the generic contract of `tilewright.runtime.bindings.Binding`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.spec import MAX_D, OP
from tilewright.ops.fused import with_added
from tilewright.runtime.bindings import Binding, BindingDefaults, demand_open
from tilewright.runtime.bindings.conv import dense, request
from tilewright.runtime.bindings.conv.operands import SLOTS, bad, fixed, switch, whole_number
from tilewright.runtime.bindings.conv.request import Attributes
from tilewright.runtime.requests import Operands, Request, Sample, Slot, StageRequest

if TYPE_CHECKING:
    from tilewright.ops.numerics import Check

__all__ = ["BINDING", "Attributes", "bound", "normalized", "two"]


def two(ds: Any) -> tuple[Any, Any]:
    """The D tensors of a call, None where there are fewer than two."""
    if not isinstance(ds, (tuple, list)):
        raise bad("ds-type", "ds must be a tuple or list of arrays", type(ds).__name__, "write ds=(d0,)")
    if len(ds) > MAX_D:
        raise bad("epilogue-d-count", f"{len(ds)} D tensors were given", len(ds), f"give at most {MAX_D}")
    if any(d is None for d in ds):
        raise bad("array-type", "a D tensor is None", None, "leave it out of ds")
    padded = (*ds, None, None)
    return padded[0], padded[1]


def bound(variant: str, first: Any, second: Any, bias: Any, ds: Any, out: Any) -> Operands:
    """The operands of a direction in their slots."""
    d0, d1 = two(ds)
    if variant == "backward_data":
        return (None, second, first, bias, d0, d1, out)
    if variant == "backward_weight":
        return (first, None, second, bias, d0, d1, out)
    return (first, second, None, bias, d0, d1, out)


def normalized(options: tuple[Any, ...]) -> tuple[Any, ...]:
    """The attributes of a call from its options, which may hold numbers of any library; the first that is none is an
    error."""
    stated = Attributes(*options)
    attributes = stated._replace(
        stride=fixed("stride", stated.stride),
        padding=fixed("padding", stated.padding),
        dilation=fixed("dilation", stated.dilation),
        groups=whole_number("groups", stated.groups),
        shape=None if stated.shape is None else fixed(request.SHAPES.get(stated.variant, "shape"), stated.shape),
        deterministic=switch("deterministic", stated.deterministic),
    )
    return tuple(attributes)


class ConvBinding(BindingDefaults):
    op = OP
    slots: tuple[Slot, ...] = SLOTS
    scalars: tuple[str, ...] = ()

    def bind(
        self,
        first: Any,
        second: Any,
        bias: Any = None,
        *,
        variant: str = "forward",
        shape: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: Any = 1,
        layout: Any = "nhwc",
        residual: Any = None,
        ds: Any = (),
        epilogue: Any = "passthrough",
        out: Any = None,
        out_dtype: Any = None,
        deterministic: bool = False,
    ) -> tuple[Operands, Sequence[Any], tuple[Any, ...]]:
        """The arrays as the function of the direction takes them: x and w, dy and w, or x and dy."""
        epilogue, ds = with_added(epilogue, ds, residual=residual)
        options = (
            variant, stride, padding, dilation, groups, layout, shape, epilogue, out_dtype, deterministic
        )  # fmt: skip
        return bound(variant, first, second, bias, ds, out), (), normalized(options)

    def bind_kernel(
        self, spec: KernelSpec, first: Any, second: Any, third: Any = None, *, out: Any = None, **others: Any
    ) -> tuple[Operands, Sequence[Any], tuple[Any, ...]]:
        """As the function of its direction is called: the third argument is the bias, or the shape of the gradient.

        Direction, epilogue and output type are the kernel's.
        """
        signature = spec.signature
        own = request.SHAPES.get(signature.variant)
        if third is not None:
            others.setdefault("shape" if own else "bias", third)
        if own and own in others:
            others["shape"] = others.pop(own)
        known: dict[str, Any] = {
            "variant": signature.variant,
            "epilogue": signature.epilogue,
            "out_dtype": signature.dtype_out if out is None else None,
        }
        demand_open(spec, known, others, "tilewright.conv")
        return self.bind(first, second, out=out, **{**others, **known})

    def request(self, views: Sequence[Any], attributes: tuple[Any, ...], target: str) -> Request:
        return request.build(views, attributes, target)

    def copies(self, stage: StageRequest, larger: ConvProblem) -> StageRequest:
        return dense.copies(stage, larger)

    def sample(self, problem: ConvProblem, seed: int = 0, exact: bool = False) -> Sample:
        from tilewright.runtime.bindings.conv import samples

        return samples.sample(problem, seed, exact)

    def dense(self, problem: ConvProblem) -> Request:
        return dense.dense(problem)

    def check(self, problem: ConvProblem, sample: Sample, kernels: Sequence[KernelSpec] = ()) -> Check:
        from tilewright.runtime.bindings.conv import samples

        return samples.judge(problem, sample)(sample, kernels)

    def judge(self, problem: ConvProblem, sample: Sample) -> Callable[[Sample, Sequence[KernelSpec]], Check]:
        from tilewright.runtime.bindings.conv import samples

        return samples.judge(problem, sample)


BINDING: Binding = ConvBinding()
