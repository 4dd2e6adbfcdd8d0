"""Kernels that compile and are not published: their build looked at the code and refused it (`build.promises`).

The compiler works, and one kernel of many came out wrong, so the next candidate takes its place, which a warning, the
choice's reason and `explain` say.  Not so where somebody decided on that kernel (by name, by a lock file), in strict
mode, and of the fallback kernel, behind which there is nothing: then the refusal is the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright import events, settings
from tilewright.dispatch import kernels
from tilewright.dispatch.selection import Selection
from tilewright.errors import InspectionError
from tilewright.ops.base import KernelSpec
from tilewright.runtime.loader import Kernel
from tilewright.runtime.requests import Where


class AnotherChoice(Exception):
    """A kernel was refused just now: choose again, without it."""


class Rejected:
    """Those of one registry, under the settings they were built by."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[object, ...]], tuple[KernelSpec, str]] = {}  # each with the reason

    def load(self, chosen: Sequence[Selection], final: bool) -> list[Kernel]:
        """The kernels of a plan's stages; AnotherChoice where one is refused, unless the choice is final."""
        try:
            if len(chosen) == 1:
                return [kernels.kernel(chosen[0].spec)]
            return kernels.together([selection.spec for selection in chosen])
        except InspectionError as error:
            refused = next((selection for selection in chosen if selection.spec.digest == error.digest), None)
            if final or refused is None or refused.tier in ("locked", "fallback"):
                raise
            self._known[refused.spec.digest, settings.builds()] = refused.spec, f"[{error.rule}] {error.message}"
            message = f"{refused.name} is not used, another kernel replaces it: {error.message}"
            events.emit(events.Warned(error.rule, message))
            raise AnotherChoice from error

    def where(self, others: Where | None) -> Where | None:
        """A stage's own reasons to leave kernels out, and these."""
        if not self._known:
            return others
        builds = settings.builds()

        def reason(spec: KernelSpec) -> str:
            _, why = self._known.get((spec.digest, builds), (spec, ""))
            return why or ("" if others is None else others(spec))

        return reason

    def noted(self, chosen: Selection) -> Selection:
        """The choice, whose reason says which kernels of its signature it may stand in for."""
        if not self._known:
            return chosen
        builds = settings.builds()
        refused = [
            spec.name
            for (_, under), (spec, _) in self._known.items()
            if under == builds and spec.signature == chosen.spec.signature
        ]
        reason = f"{chosen.reason}; not {', '.join(refused)}: the build refused its code"
        return replace(chosen, reason=reason) if refused else chosen
