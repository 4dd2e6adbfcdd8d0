"""Specs in, verified libraries out: ask the store, compile what is missing, publish each as it is ready.

A kernel is compiled by one process at a time (others wait and take the result); a kill loses what
was in flight and nothing else; one kernel that fails does not keep the others from being built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tilewright import events, settings
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Rendering, Source, WithCxxLibrary, backend
from tilewright.build import bundled
from tilewright.build.key import KeyInputs, key_inputs
from tilewright.build.requests import Artifact as Artifact  # noqa: PLC0414  what a builder answers
from tilewright.build.requests import OnEvent, Request, Run
from tilewright.build.store import Store
from tilewright.errors import NoKernelError, ToolchainError, counted
from tilewright.ops import op
from tilewright.ops.base import KernelSpec, demand_legal


class Builder:
    """Builds into one store; without arguments, the store of the settings in force."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = Store() if store is None else store

    # -- what callers use ------------------------------------------------------------------------

    def key_of(self, spec: KernelSpec) -> KeyInputs:
        """The key of a spec on this machine, with the inputs it is made of."""
        return self._request(spec).inputs

    def find(self, spec: KernelSpec) -> Artifact | None:
        """The built kernel if the store has it; never compiles."""
        try:
            request = self._request(spec)
        except ToolchainError as error:
            return self._without_compiler(error, backend(arch_by_name(spec.arch).backend).render(spec), spec)
        entry = self.store.lookup(request.key)
        return None if entry is None else request.artifact(entry)

    def build_one(self, spec: KernelSpec, *, on_event: OnEvent | None = None) -> Artifact:
        return self.build_many([spec], max_workers=1, on_event=on_event)[spec.digest]

    def build_many(
        self, specs: Iterable[KernelSpec], *, max_workers: int | None = None, on_event: OnEvent | None = None
    ) -> dict[str, Artifact]:
        """Build every spec; the answer is by `spec.digest`.  All that compile are built before an error is raised."""
        unique = {spec.digest: spec for spec in specs}
        requests: dict[str, Request] = {}
        done: dict[str, Artifact] = {}
        for digest, spec in unique.items():
            try:
                requests[digest] = self._request(spec)
            except ToolchainError as error:
                done[digest] = self._demand_without_compiler(error, spec, on_event)
        built = self._build(list(requests.values()), max_workers, on_event) if requests else {}
        return {**done, **{digest: built[request.key] for digest, request in requests.items()}}

    def build_source(
        self, source: Source, arch: str, *, extra_key: str = "", op: str = "", on_event: OnEvent | None = None
    ) -> Artifact:
        """Build a support library (no spec) through the same store; `extra_key` distinguishes what the text does not.

        `op` names the op whose headers it includes, beyond those of the backend.
        """
        bundled_path = bundled.support(source, arch, extra_key, op)
        if bundled_path is not None:
            return Artifact("", bundled_path, {})
        try:
            toolchain = backend(arch_by_name(arch).backend).toolchain()
            if source.cxx_library and isinstance(toolchain, WithCxxLibrary):
                toolchain = toolchain.with_cxx_library()
        except ToolchainError as error:
            artifact = self._without_compiler(error, source, arch=arch, extra=extra_key, op=op)
            if artifact is None:
                raise _frozen([Path(source.file_name).stem], arch) from error
            return artifact
        inputs = key_inputs(source, arch, toolchain, extra=extra_key, op=op)
        request = Request(Path(source.file_name).stem, source, arch, toolchain, inputs, inputs.key, None, op)
        return self._build([request], 1, on_event)[request.key]

    # -- how -------------------------------------------------------------------------------------

    def _without_compiler(
        self, error: ToolchainError, source: Source, spec: KernelSpec | None = None, *, arch: str = "",
        extra: str = "", op: str = "",
    ) -> Artifact | None:  # fmt: skip
        """What a process finds where no compiler is: an entry of the same source, whoever compiled it.

        Where there is none, a process that is not frozen lacks a compiler, and that is the error.  So is one that was
        named and is not there, or is broken.
        """
        frozen, none_here = settings.current().frozen, error.rule.startswith("no-") and not error.value
        if not frozen and not none_here:
            raise error
        from tilewright.build import without_compiler

        entry = without_compiler.stored(self.store, source, spec.arch if spec is not None else arch, spec, extra, op)
        if entry is None and not frozen:
            raise _not_bundled(error, spec) from None
        return None if entry is None else Artifact(entry.key, entry.library, entry.manifest, spec)

    def _demand_without_compiler(self, error: ToolchainError, spec: KernelSpec, on_event: OnEvent | None) -> Artifact:
        artifact = self._without_compiler(error, backend(arch_by_name(spec.arch).backend).render(spec), spec)
        if artifact is None:
            raise _frozen([spec.name], spec.digest) from error
        Run(self.store, None, on_event).emit(events.KernelBuilt(spec.name, spec.digest, 0.0, True))
        return artifact

    def _request(self, spec: KernelSpec) -> Request:
        owner = backend(arch_by_name(spec.arch).backend)
        toolchain = owner.toolchain()
        source = toolchain.source(spec) if isinstance(toolchain, Rendering) else owner.render(spec)
        inputs = key_inputs(source, spec.arch, toolchain, spec=spec)
        return Request(spec.name, source, spec.arch, toolchain, inputs, inputs.key, spec, spec.op)

    def _build(
        self, requests: Sequence[Request], max_workers: int | None, on_event: OnEvent | None
    ) -> dict[str, Artifact]:
        run = Run(self.store, max_workers, on_event)
        missing = run.take_stored(requests)
        if missing:
            if settings.current().frozen:
                raise _frozen([request.name for request in missing], missing[0].key)
            for request in missing:
                if request.spec is not None:
                    demand_legal(op(request.spec.op), request.spec)
            from tilewright.build.compile_run import CompileRun

            CompileRun(run).build(missing)
        return run.done


def _bundles() -> str:
    return ", ".join(str(bundle.path) for bundle in bundled.in_force())


def _not_bundled(error: ToolchainError, spec: KernelSpec | None) -> ToolchainError:
    """The lack of a compiler, as it is reported where bundles should have made up for it."""
    bundles = _bundles()
    if spec is None or not bundles:
        return error
    return ToolchainError(
        f"{error.message}; {spec.name} has to be compiled, as it is not in the bundle {bundles}",
        rule=error.rule,
        value=error.value,
        remedy=f"record the problem and make the bundle with it (`tilewright record`, `tilewright bundle build`), or "
        f"{error.remedy}",
    )


def _frozen(missing: Sequence[str], value: str) -> NoKernelError:
    names = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    waits = settings.current().missing == "compile"
    serve = ", or let the best kernel that is built serve (missing='best_built')" if waits else ""
    return NoKernelError(
        f"the setting frozen forbids compiling, and {counted(len(missing), 'kernel')} would have to be built: {names}",
        rule="frozen",
        value=value,
        remedy="build them beforehand without TILEWRIGHT_FROZEN (`tw.prepare`, `tilewright prepare`)"
        + serve
        + (f", or make the bundle {bundles} with this problem too" if (bundles := _bundles()) else "")
        + "; `tilewright cache why NAME` lists what differs",
    )


def build_many(
    specs: Iterable[KernelSpec], *, max_workers: int | None = None, on_event: OnEvent | None = None
) -> dict[str, Artifact]:
    """Build specs into the store of the settings in force; see `Builder.build_many`."""
    return Builder().build_many(specs, max_workers=max_workers, on_event=on_event)


def build_one(spec: KernelSpec, *, on_event: OnEvent | None = None) -> Artifact:
    return Builder().build_one(spec, on_event=on_event)


def build_source(source: Source, arch: str, *, extra_key: str = "", op: str = "") -> Artifact:
    return Builder().build_source(source, arch, extra_key=extra_key, op=op)


def find(spec: KernelSpec) -> Artifact | None:
    """The built kernel if the store has it; never compiles."""
    return Builder().find(spec)
