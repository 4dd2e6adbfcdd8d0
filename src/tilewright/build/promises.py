"""No library is published whose code is not what its spec promises, or that reads a register too early.

A kernel that multiplies without the matrix instructions of its arch, or loads without the copies it was
written for (TMA, cp.async), computes the right numbers, only many times slower, and nothing else would
ever say so.  The disassembler of the toolchain or of the system is asked, which takes some hundredths
of a second.  Where there is none, or it cannot read the code, or does not know the instructions that
were promised, the kernel is published and its manifest says so: what cannot be decided is not wrong.

The same for waits, which no test without the GPU would miss: compilers count wait states along the path they come to
first, which need not be the shortest.
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


def read_code(spec: KernelSpec | None, library: Path) -> Mapping[str, Any]:
    """What the manifest says of waits and of a main loop's model; InspectionError where a wait is missing.

    Nothing of a backend that reads no such thing from its code.
    """
    if spec is None:
        return {}
    owner: Any = backend(arch_by_name(spec.arch).backend)
    if not hasattr(owner, "read_code"):
        return {}
    try:
        facts: Mapping[str, Any] = owner.read_code(library, spec)
    except InspectionError as error:
        if error.rule == "missing-wait":
            raise
        return {"waits": _undecided(error.message)}  # compressed code that this Python cannot read
    except Exception as error:  # a listing that the reader does not know
        message = f"{spec.name} has no model of its main loop, and its waits are not checked: {error!r}"
        events.emit(events.Warned("code-model", message))
        return {"waits": _undecided(f"the listing cannot be read: {error!r}")}
    return facts


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
