"""From what a person names (a kernel, a digest, a file) to what is inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright import jsontext
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Backend, all_backends, backend
from tilewright.build.builder import Builder
from tilewright.build.store import MANIFEST, Store
from tilewright.build.why import find_spec
from tilewright.errors import RequestError, StoreError, TilewrightError
from tilewright.inspect import Inspection
from tilewright.ops import op
from tilewright.ops.base import KernelSpec


def inspect_kernel(word: str, builder: Builder | None = None) -> Inspection:
    """Look into a library, a code object or a kernel named by name or digest (built now if the store lacks it)."""
    path = Path(word)
    if path.suffix != ".json" and path.is_file():
        return inspect_file(path)
    builder = builder or Builder()
    return inspect_spec(find_spec(builder.store, word), builder)


def inspect_spec(spec: KernelSpec, builder: Builder | None = None) -> Inspection:
    """What is inside a kernel's library: the newest in the store whatever built it, else one built now."""
    builder = builder or Builder()
    path = _stored(builder.store, spec)
    if path is None:
        path = builder.build_one(spec).path
    return _inspector(backend(arch_by_name(spec.arch).backend)).inspect(path, spec)


def inspect_file(path: Path) -> Inspection:
    """What is inside a file; the manifest beside a stored library says which kernel it is."""
    spec = _spec_beside(path)
    if spec is not None:
        return _inspector(backend(arch_by_name(spec.arch).backend)).inspect(path, spec)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read: {error.strerror}", rule="inspect-file", value=str(path), remedy="give a file"
        ) from error
    for one in all_backends().values():
        if hasattr(one, "recognises") and one.recognises(data):
            return one.inspect(path)
    raise RequestError(
        f"{path.name} holds no code that can be inspected",
        rule="inspect-file",
        value=str(path),
        remedy="give a library (.so), a cubin or an AMD code object that a build made, or the name of a kernel",
    )


def _inspector(one: Backend) -> Backend:
    if not hasattr(one, "inspect"):
        raise RequestError(
            f"kernels of the {one.name} backend cannot be inspected",
            rule="inspect-backend",
            value=one.name,
            remedy="the vendor's own tools show their code",
        )
    return one


def _stored(store: Store, spec: KernelSpec) -> Path | None:
    """The library of a spec that was built last, verified; a compiler is not needed to look at it."""
    mine = [one for one in store.manifests() if one["inputs"].get("spec") == spec.digest]
    for one in sorted(mine, key=lambda each: -float(each.get("built_at", 0))):
        try:
            return store.verify(str(one["key"])).library
        except StoreError:
            continue  # damaged: an older one, or a new build, will do
    return None


def _spec_beside(path: Path) -> KernelSpec | None:
    try:
        manifest: Any = jsontext.loads((path.parent / MANIFEST).read_bytes())
        data = manifest["spec"]
        if manifest.get("library", path.name) != path.name:
            return None
        return op(str(data["op"])).spec_from_dict(data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, TilewrightError):
        return None  # no store entry, or one of another version: the code still speaks for itself
