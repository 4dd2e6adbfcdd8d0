"""From what a person names (a kernel, a digest, a file) to what is inside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilewright import jsontext
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Backend, Source, all_backends, backend, resolve_target
from tilewright.build import without_compiler
from tilewright.build.builder import Builder
from tilewright.build.store import MANIFEST, Store
from tilewright.build.why import find_spec
from tilewright.errors import InspectionError, RequestError, StoreError, TilewrightError, ToolchainError
from tilewright.inspect import Inspection
from tilewright.inspect.disassembly import NoDisassembly
from tilewright.ops import op
from tilewright.ops.base import KernelSpec


def inspect_kernel(word: str, builder: Builder | None = None) -> Inspection:
    """Look into a library, a code object or a kernel named by name or digest (built now if the store lacks it)."""
    return inspect_all(word, builder=builder)[0]


def inspect_all(word: str, target: str = "", builder: Builder | None = None) -> list[Inspection]:
    """The same for all that a person means: a file of specs may hold several."""
    if _is_code(word):
        return [inspect_file(Path(word))]
    builder = builder or Builder()
    return [inspect_spec(spec, builder) for spec in meant(builder.store, word, target)]


def sources(word: str, target: str = "") -> list[str]:
    """The generated sources of the kernels a person means; nothing is built."""
    if _is_code(word):
        spec = _spec_beside(Path(word))
        if spec is None:
            raise RequestError(
                f"nothing beside {word} says which kernel it is, so its source is not known",
                rule="inspect-source",
                value=word,
                remedy="name the kernel",
            )
        return [_source(spec).text]
    return [_source(spec).text for spec in meant(Store(), word, target)]


def listings(word: str, target: str = "", builder: Builder | None = None) -> Iterator[str]:
    """The machine code of the kernels a person means, as a disassembler shows it."""
    if _is_code(word):
        path = Path(word)
        yield _listing(_owner_of(path, _spec_beside(path)), path)
        return
    builder = builder or Builder()
    for spec in meant(builder.store, word, target):
        yield _listing(backend(arch_by_name(spec.arch).backend), _library(builder, spec))


def meant(store: Store, word: str, target: str = "") -> list[KernelSpec]:
    """The specs a person means: those of a JSON file (of `specs --json`, a manifest, one spec), or a kernel's."""
    if not word.endswith(".json"):
        return [find_spec(store, word, resolve_target(target, to_run=False).name if target else "")]
    remedy = "give what `tilewright specs --json` prints, a manifest, or one spec"
    try:
        specs = list(_specs_in(jsontext.loads(jsontext.read(Path(word), regular=False))))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestError(f"{word} cannot be read: {reason}", rule="spec-file", value=word, remedy=remedy) from None
    if not specs:
        raise RequestError(f"{word} holds no kernel spec", rule="spec-file", value=word, remedy=remedy)
    return specs


def _specs_in(data: Any) -> Iterator[KernelSpec]:
    if isinstance(data, dict):
        inner = next((data[name] for name in ("specs", "kernels") if isinstance(data.get(name), list)), None)
        if inner is not None:
            data = inner
        elif isinstance(data.get("spec"), dict):
            yield from _specs_in(data["spec"])
        elif isinstance(data.get("op"), str) and "signature" in data:
            yield op(data["op"]).spec_from_dict(data)
    if isinstance(data, list):
        for item in data:
            yield from _specs_in(item)


def _is_code(word: str) -> bool:
    path = Path(word)
    return path.suffix != ".json" and path.is_file()


def _source(spec: KernelSpec) -> Source:
    return backend(arch_by_name(spec.arch).backend).render(spec)


def _listing(owner: Backend, path: Path) -> str:
    try:
        return _inspector(owner).listing(path)
    except NoDisassembly as error:
        raise InspectionError(
            f"{path.name} cannot be disassembled: {error}",
            rule="no-disassembler",
            value=str(path),
            remedy="install binutils or LLVM (NVIDIA: `pip install nvidia-cuda-nvdisasm`), or set TILEWRIGHT_OBJDUMP",
        ) from None


def inspect_spec(spec: KernelSpec, builder: Builder | None = None) -> Inspection:
    """What is inside a kernel's library: the one a call would load, else the newest of any compiler, else a new one."""
    path = _library(builder or Builder(), spec)
    return _inspector(backend(arch_by_name(spec.arch).backend)).inspect(path, spec)


def _library(builder: Builder, spec: KernelSpec) -> Path:
    return _stored(builder, spec) or builder.build_one(spec).path


def _stored(builder: Builder, spec: KernelSpec) -> Path | None:
    """The library that a call would load, verified; else the last that any compiler made of today's source."""
    store = builder.store
    try:
        with suppress(ToolchainError):  # no compiler is needed to look at what another one made
            if (artifact := builder.find(spec)) is not None:
                return store.verify(artifact.key).library
        entry = without_compiler.stored(store, _source(spec), spec.arch, spec)
        return None if entry is None else store.verify(entry.key).library
    except StoreError:
        return None  # damaged: a new build will do


def inspect_file(path: Path) -> Inspection:
    """What is inside a file; the manifest beside a stored library says which kernel it is."""
    spec = _spec_beside(path)
    return _inspector(_owner_of(path, spec)).inspect(path, spec)


def _owner_of(path: Path, spec: KernelSpec | None) -> Backend:
    """The backend whose code a file holds."""
    if spec is not None:
        return backend(arch_by_name(spec.arch).backend)
    try:
        data = jsontext.read(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestError(
            f"{path} cannot be read: {reason}", rule="inspect-file", value=str(path), remedy="give a file"
        ) from error
    for candidate in all_backends().values():
        if hasattr(candidate, "recognises") and candidate.recognises(data):
            return candidate
    raise RequestError(
        f"{path.name} holds no code that can be inspected",
        rule="inspect-file",
        value=str(path),
        remedy="give a library (.so), a cubin or an AMD code object that a build made, or the name of a kernel",
    )


def _inspector(owner: Backend) -> Backend:
    if not hasattr(owner, "inspect"):
        raise RequestError(
            f"kernels of the {owner.name} backend cannot be inspected",
            rule="inspect-backend",
            value=owner.name,
            remedy="the vendor's own tools show their code",
        )
    return owner


def _spec_beside(path: Path) -> KernelSpec | None:
    try:
        manifest: Any = jsontext.loads(jsontext.read(path.parent / MANIFEST))
        data = manifest["spec"]
        if manifest.get("library", path.name) != path.name:
            return None
        return op(str(data["op"])).spec_from_dict(data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, TilewrightError):
        return None  # no store entry, or one of another version: the code still speaks for itself
