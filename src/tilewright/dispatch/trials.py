"""Kernels tried one after another: how a plan is made where no selection library says which of them serve a problem.

The library is missing where no C++ compiler could build it.  What a kernel refuses is then known when it is loaded and
asked, and loading may compile it.  After a first refusal kernels are tried in this order, each by its own check:

    built      those that are built already: they cost milliseconds
    compile    at most `MOST_COMPILES` others, in the order of their pool
    fallback   the fallback kernel

Where these are used up there is one error, which says what was tried and what would help.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.dispatch import built
from tilewright.errors import NoKernelError, ProblemError, RequestError
from tilewright.ops.base import KernelSpec, Op
from tilewright.runtime.requests import Where

MOST_COMPILES = 3
_PHASES = ("built", "compile", "fallback")


def refused_by_kernel(error: RequestError) -> bool:
    """Whether a kernel's own check refused a problem."""
    return isinstance(error, ProblemError) and error.rule == "kernel-check"


class Trials:
    """The kernels that refused one request so far, and which of the others are tried next."""

    def __init__(self, op: Op, arch: str, problems: Iterable[Any], candidates: Iterable[KernelSpec]) -> None:
        self._problems = tuple(problems)
        fallbacks = {op.fallback_spec(op.signature_of(problem), arch) for problem in self._problems}
        self._fallbacks = {spec.digest for spec in fallbacks}
        self._signatures = {spec.name: spec.signature for spec in (*candidates, *fallbacks)}
        self._refused: dict[str, str] = {}  # reasons by the kernel's name
        self._phase, self._compiled = _PHASES[0], 0

    def after(self, error: RequestError) -> None:
        """Take note of a refusal; raise where nothing is left to try."""
        name = str(error.value)
        if refused_by_kernel(error) and name not in self._refused:
            if self._phase == "compile":
                self._compiled += 1
            self._refused[name] = error.message
            if self._phase == "fallback":
                raise self._error() from error
            if self._compiled >= MOST_COMPILES:
                self._phase = "fallback"
        elif error.rule != "no-kernel":
            raise error
        elif self._phase == _PHASES[-1]:
            raise self._error() from error
        else:  # no kernel of this phase is left
            self._phase = _PHASES[_PHASES.index(self._phase) + 1]

    def where(self, others: Where | None) -> Where:
        """A stage's own reasons to leave kernels out, and those of the trials."""
        signatures = {self._signatures.get(name) for name in self._refused}

        def reason(spec: KernelSpec) -> str:
            if spec.name in self._refused:
                return self._refused[spec.name]
            if spec.signature in signatures:  # other stages are chosen as ever
                if self._phase == "built" and not built.is_built(spec):
                    return "it is not built, and one that is may serve the problem"
                if self._phase == "fallback" and spec.digest not in self._fallbacks:
                    return f"{MOST_COMPILES} kernels were compiled in vain before it"
            return "" if others is None else others(spec)

        return reason

    def _error(self) -> NoKernelError:
        tried = "".join(f"\n  {reason}" for reason in self._refused.values())
        described = ", ".join(problem.describe() for problem in self._problems)
        return NoKernelError(
            f"no kernel for {described}: without a selection library kernels are tried one after another, "
            f"and the {len(self._refused)} that were tried refuse:{tried}",
            rule="no-kernel",
            value=tuple(self._refused),
            remedy="install a C++ compiler, with which the selection library is built that knows which kernels serve a "
            "problem (`tilewright doctor` says what is missing), or name a kernel that does",
        )
