"""No library is published whose code is not what its spec promises.

A kernel that multiplies without the matrix instructions of its arch computes the right numbers, only
ten times slower, and nothing else would ever say so.  The disassembler of the toolchain or of the
system is asked, which takes some hundredths of a second.  Where there is none, or it cannot read the
code, the kernel is published and its manifest says that nobody looked.
"""

from __future__ import annotations

from pathlib import Path

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
    beginnings = owner.promises(spec).multiply
    if not beginnings:
        return NOTHING
    try:
        return KEPT if owner.holds(library, beginnings) else _long_look(owner, spec, library)
    except NoDisassembly as error:
        return _not_looked(str(error))
    except InspectionError as error:
        if error.rule != "compressed-code":
            raise
        return _not_looked(error.message)


def _long_look(owner: Backend, spec: KernelSpec, library: Path) -> str:
    """Slower, and it has the words for an error."""
    try:
        found = owner.inspect(library, spec)
    except InspectionError as error:
        return _not_looked(error.message)
    demand_promises(found)
    if found.keeps_promises is None:
        return _not_looked("; ".join(found.notes)) if found.promises else NOTHING
    return KEPT


def _not_looked(why: str) -> str:
    return f"not looked at: {why}"
