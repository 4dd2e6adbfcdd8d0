"""No library is published whose code is not what its spec promises.

A kernel that multiplies without the matrix instructions of its arch, or loads without the copies it was
written for (TMA, cp.async), computes the right numbers, only many times slower, and nothing else would
ever say so.  The disassembler of the toolchain or of the system is asked, which takes some hundredths
of a second.  Where there is none, or it cannot read the code, or does not know the instructions that
were promised, the kernel is published and its manifest says so: what cannot be decided is not wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright import events
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Backend, backend
from tilewright.errors import InspectionError
from tilewright.inspect import demand_promises
from tilewright.inspect.disassembly import NoDisassembly
from tilewright.ops.base import KernelSpec

NOTHING, KEPT = "nothing promised", "kept"


def demand_kept(spec: KernelSpec | None, library: Path) -> str:
    """What the manifest says about a library's promises; InspectionError where the code breaks them."""
    if spec is None:
        return NOTHING
    owner = backend(arch_by_name(spec.arch).backend)
    if not hasattr(owner, "holds"):
        return _long_look(owner, spec, library) if hasattr(owner, "inspect") else NOTHING
    promised = owner.promises(spec)
    needed = [*([promised.multiply] if promised.multiply else []), *((copy,) for copy in promised.copies)]
    if not needed:
        return NOTHING
    try:
        if all(owner.holds(library, any_of) for any_of in needed):
            return KEPT
    except NoDisassembly:
        pass  # the long look may have a better reader
    except InspectionError as error:
        if error.rule != "compressed-code":
            raise
        return _undecided(error.message)
    return _long_look(owner, spec, library)


def code_model(spec: KernelSpec | None, library: Path) -> Mapping[str, Any] | None:
    """What the manifest says of a kernel's main loop, where the backend has a model of it."""
    if spec is None or not spec_multiplies(spec):
        return None
    owner: Any = backend(arch_by_name(spec.arch).backend)
    try:
        model: Mapping[str, Any] | None = owner.code_model(library, spec) if hasattr(owner, "code_model") else None
    except InspectionError:  # compressed code that this Python cannot read
        return None
    except Exception as error:  # a listing that the model's reader does not know: the kernel is as good without
        events.emit(events.Warned("code-model", f"{spec.name} has no model of its main loop: {error!r}"))
        return None
    return model


def spec_multiplies(spec: KernelSpec) -> bool:
    return bool(backend(arch_by_name(spec.arch).backend).promises(spec).multiply)


def _long_look(owner: Backend, spec: KernelSpec, library: Path) -> str:
    """Slower, and it has the words for an error."""
    try:
        inspection = owner.inspect(library, spec)
    except InspectionError as error:
        return _undecided(error.message)
    demand_promises(inspection)
    if owner.promises(spec).copies and not inspection.copy_promises:
        return _undecided(f"the backend {owner.name} does not look for copies")
    if inspection.keeps_promises is not None:
        return KEPT
    if not (inspection.promises or inspection.copy_promises):
        return NOTHING
    return _undecided("; ".join((inspection.doubt, *inspection.notes)))


def _undecided(why: str) -> str:
    return f"undecided: {why}"
