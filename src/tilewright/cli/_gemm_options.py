"""The options that describe a GEMM, once for every command that takes one."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from tilewright.dispatch.registry import Registry
    from tilewright.ops.gemm.problem import GemmProblem

Option = typer.Option


@dataclass(frozen=True, kw_only=True)
class GemmOptions:
    m: Annotated[int, Option(help="Rows of A and of the result.")]
    n: Annotated[int, Option(help="Columns of B and of the result.")]
    k: Annotated[int, Option(help="Columns of A, rows of B.")]
    batch: Annotated[int, Option(help="Matrices in the batch.")] = 1
    datatype: Annotated[str, Option(help="Element type of A and B, or a:b for different ones.")] = "fp32"
    layout: Annotated[str, Option(help="Layouts of A, B and C: rcr, rrr, crr or ccr.")] = "rrr"
    epilogue: Annotated[str, Option(help="Fused work: PassThrough, MultiDAdd, Relu, Gelu, ...")] = "PassThrough"
    num_d: Annotated[int, Option(help="D tensors the epilogue takes: 0, 1 or 2.")] = 0
    output: Annotated[str, Option(help="Element type of C and the result; by default that of the inputs.")] = ""
    d_datatype: Annotated[str, Option(help="Element type of the D tensors; by default the output's.")] = ""
    alpha: Annotated[float, Option(help="Factor of A.B.")] = 1.0
    beta: Annotated[float, Option(help="Factor of C; 0 leaves C out.")] = 0.0
    a_stride: Annotated[int, Option(help="Leading stride of A in elements; 0 is dense.")] = 0
    b_stride: Annotated[int, Option(help="Leading stride of B in elements; 0 is dense.")] = 0
    c_stride: Annotated[int, Option(help="Leading stride of C and the result; 0 is dense.")] = 0
    preshuffle: Annotated[bool, Option("--preshuffle", help="Pack B beforehand.")] = False
    broadcast_a: Annotated[bool, Option("--broadcast-a", help="One A for the whole batch.")] = False
    broadcast_b: Annotated[bool, Option("--broadcast-b", help="One B for the whole batch.")] = False
    target: Annotated[str, Option(help="Arch or backend; by default the best this machine has.")] = ""
    threads: Annotated[int, Option(help="Threads; 0 means every core.")] = 0
    strict: Annotated[bool, Option("--strict", help="Refuse the padded and generic tiers.")] = False

    def problem(self) -> GemmProblem:
        from tilewright.dtypes import dtype
        from tilewright.ops.fused import normal_epilogue
        from tilewright.ops.gemm.problem import GemmProblem

        a, _, b = self.datatype.partition(":")
        for name in (a, b, self.output, self.d_datatype):
            if name:
                dtype(name)
        return GemmProblem(
            m=self.m,
            n=self.n,
            k=self.k,
            dtype_a=a,
            dtype_b=b,
            dtype_c=self.output,
            dtype_d=self.d_datatype,
            layout=self.layout,
            batch=self.batch,
            epilogue=normal_epilogue(self.epilogue),
            num_d=self.num_d,
            beta=self.beta != 0,
            preshuffled=self.preshuffle,
            a_stride=self.a_stride,
            b_stride=self.b_stride,
            c_stride=self.c_stride,
            broadcast_a=self.broadcast_a,
            broadcast_b=self.broadcast_b,
        )

    @contextmanager
    def settings(self) -> Iterator[Registry]:
        """The settings these options ask for, and the registry under them."""
        from tilewright import settings
        from tilewright.dispatch.registry import default_registry

        changes: dict[str, Any] = {"threads": self.threads} if self.threads else {}
        if self.strict:
            changes["strict"] = True
        with settings.override(**changes):
            yield default_registry(self.target or None)


def takes_gemm(command: Callable[..., None]) -> Callable[..., None]:
    """`command(options, ...)` as a function with one parameter an option, which is what typer reads."""
    shared = [one.name for one in dataclasses.fields(GemmOptions)]
    hints = get_type_hints(GemmOptions, include_extras=True)
    own_hints = get_type_hints(command, include_extras=True)
    parameters = []
    for one in dataclasses.fields(GemmOptions):
        default = inspect.Parameter.empty if one.default is dataclasses.MISSING else one.default
        parameters.append(
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[one.name])
        )
    for parameter in list(inspect.signature(command).parameters.values())[1:]:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(parameter.replace(kind=kind, annotation=own_hints[parameter.name]))

    def run(**values: Any) -> None:
        options = GemmOptions(**{name: values.pop(name) for name in shared})
        command(options, **values)

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run
