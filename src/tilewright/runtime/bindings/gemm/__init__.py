"""GEMM behind the generic contract of `tilewright.runtime.bindings.Binding`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.reference import verify
from tilewright.ops.numerics import Check
from tilewright.runtime.arrays import memory_address, view
from tilewright.runtime.bindings import Planner
from tilewright.runtime.bindings.gemm import call, samples
from tilewright.runtime.bindings.gemm.packed import PackedB, pack, pack_with
from tilewright.runtime.bindings.gemm.plan import GemmPlan, prepare
from tilewright.runtime.bindings.gemm.request import Request, analyse, dense_request
from tilewright.runtime.device_arrays import DeviceArray
from tilewright.runtime.devices import HOST, Device
from tilewright.runtime.loader import Kernel

__all__ = ["BINDING", "GemmPlan", "PackedB", "Request", "analyse", "pack"]


class GemmBinding:
    def run(self, planner: Planner, *operands: Any, **keywords: Any) -> Any:
        return call.run(planner, *operands, **keywords)

    def call(self, kernel: Kernel, *operands: Any, **keywords: Any) -> Any:
        return call.call(kernel, *operands, **keywords)

    def prepare(self, kernel: Kernel, request: Request, threads: int, padded: GemmProblem | None = None) -> GemmPlan:
        return prepare(kernel, request, threads, padded)

    def operands(
        self, problem: GemmProblem, seed: int = 0, device: Device | None = None, exact: bool = False
    ) -> Mapping[str, Any]:
        made = samples.operands(problem, seed, exact)
        return made if device is None or device.place is HOST else samples.on_device(made, device)

    def checks_apart(self, problem: GemmProblem) -> bool:
        return samples.may_be_narrow(problem)

    def call_arguments(
        self, planner: Any, problem: GemmProblem, operands: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        (a, b, c), keywords = samples.call_arguments(problem, operands)
        if problem.preshuffled:
            b = pack_with(planner, b, problem.m, problem.dtype_a)
        return (a, b, c), keywords

    def runner(
        self, kernel: Kernel, problem: GemmProblem, operands: Mapping[str, Any], threads: int
    ) -> Callable[[], None]:
        request = dense_request(problem)
        out = operands["out"]
        if isinstance(out, DeviceArray):
            request = replace(request, place=out.place)
        plan = prepare(kernel, request, threads)
        b = memory_address(operands["b"])
        keep: object = operands
        if problem.variant == "preshuffle":
            packed = pack(kernel, request, view("b", operands["b"], request.place.kind), threads)
            b, keep = packed.address, (operands, packed)
        a, c, e = memory_address(operands["a"]), memory_address(operands["c"]), memory_address(out)
        ds = tuple(memory_address(one) for one in operands["ds"])
        alpha, beta = operands["alpha"], operands["beta"]

        def run(_keep: object = keep) -> None:
            plan(a, b, c, ds, e, alpha, beta)

        return run

    def poison(self, operands: Mapping[str, Any]) -> None:
        samples.poison(operands["out"])

    def check(self, problem: GemmProblem, operands: Mapping[str, Any]) -> Check:
        here = samples.on_host(operands)
        return verify(problem, samples.logical(problem, here), samples.result(problem, here))


BINDING = GemmBinding()
