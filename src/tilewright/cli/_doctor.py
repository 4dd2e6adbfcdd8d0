"""What `tilewright doctor` looks at, one function a part."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.backends.findings import Finding, oneline
from tilewright.cli.common import print_json, show, table
from tilewright.errors import PluginError, TilewrightError, counted

_PACKAGES = ("tilewright", "numpy", "ninja", "jinja2", "ml_dtypes", "rich", "typer")
_SET = "  (set)"  # how a setting ends that has not its default
_PROBE = 'extern "C" __attribute__((visibility("default"))) int tw_probe(int x) { return x + 1; }\n'


def examine(json: bool, everything: bool = False) -> bool:
    """Look at everything and print it; whether kernels for this CPU can be compiled, stored and loaded.

    What matters comes first: whether it works, what runs here, then what would have to be mended.
    """
    findings = [
        *_machine(),
        *_works(),
        *_targets(),
        *_found_by_backends(),
        *_broken(),
        *_ops(),
        *_families(),
        *_pytorch(),
        *_cache(),
        *_models(),
        *_bundles(),
        *_settings(),
        *_versions(),
    ]
    healthy = all(finding.ok for finding in findings if finding.part == "cpu path")
    if json:
        print_json({"ok": healthy, "findings": [dataclasses.asdict(finding) for finding in findings]})
    else:
        _show(findings if everything else _short(findings))
    return healthy


def _short(findings: list[Finding]) -> list[Finding]:
    """Without settings that nobody set, and versions that are as they should be on one line."""
    unset = [finding for finding in findings if finding.part == "settings" and not finding.text.endswith(_SET)]
    versions = [finding for finding in findings if finding.part == "versions" and finding.ok]
    kept = [finding for finding in findings if finding not in unset and finding not in versions]
    if unset:
        kept.append(Finding("settings", counted(len(unset), "other"), None, "at their defaults; --all lists them"))
    kept.append(Finding("versions", "", True, ", ".join(f"{version.what} {version.text}" for version in versions)))
    return [finding for finding in kept if (finding.part, finding.what) != ("versions", "ziglang")]


def _show(findings: list[Finding]) -> None:
    marks = {True: "yes", False: "no", None: ""}
    shown = table("component", "ok", "what", "", fold=["what", ""])
    last = ""
    for finding in findings:
        shown.add_row(finding.part if finding.part != last else "", marks[finding.ok], finding.what, finding.text)
        last = finding.part
    show(shown)


def _machine() -> Iterator[Finding]:
    from tilewright.arch import host_facts
    from tilewright.build.jobs import available_memory

    facts = host_facts()
    memory = available_memory()
    free = f", {memory / 2**30:.1f} GiB free" if memory is not None else ""
    yield Finding("machine", "cpu", None, f"{facts.model} ({facts.machine}), {facts.cores} cores{free}")


def _found_by_backends() -> Iterator[Finding]:
    """Compilers, drivers and devices, the compilers of all backends first."""
    from tilewright.backends.base import all_backends
    from tilewright.backends.findings import findings_of

    findings = [finding for owner in all_backends().values() for finding in findings_of(owner)]
    parts = list(dict.fromkeys(finding.part for finding in findings))
    yield from sorted(findings, key=lambda finding: parts.index(finding.part))


def _targets() -> Iterator[Finding]:
    """Each arch of the host; of other backends one line, with the reason where nothing of it runs here."""
    from tilewright.arch import all_archs, best_host_arch, host_facts
    from tilewright.backends.base import all_backends

    best = best_host_arch()
    for name, owner in all_backends().items():
        archs = [arch for arch in all_archs().values() if arch.backend == name]
        here = owner.available_archs()
        if name != best.backend:
            reason = owner.why_unavailable()
            what = f"{name} ({' '.join(arch.name for arch in archs)})"
            yield Finding("targets", what, not reason, reason or f"kernels of {', '.join(here)} run here")
            continue
        for arch in archs:
            lacks = [flag for flag in arch.requires if flag not in host_facts().flags]
            text = arch.description + ("; best of this machine" if arch == best else "")
            if arch.name not in here:
                why = f"this CPU lacks {', '.join(lacks)}" if lacks else "the setting host_level leaves it out"
                text = f"{why} (kernels can be compiled)"
            yield Finding("targets", arch.name, arch.name in here, text)


def _ops() -> Iterator[Finding]:
    """Each op with the package that brings it and the backends it has kernels for."""
    from tilewright import ops, plugins
    from tilewright.backends.base import backend_names
    from tilewright.ops.spaces import kernels_group

    for name in ops.op_names():
        has = [backend for backend in backend_names() if name in plugins.names(kernels_group(backend))]
        try:
            ops.op(name)
        except PluginError:
            continue  # listed among the plug-ins
        kernels = f"kernels for {', '.join(has)}" if has else "no backend has kernels for it"
        yield Finding("ops", name, bool(has), f"{kernels} (of the package {plugins.package_of(ops.GROUP, name)})")


def _families() -> Iterator[Finding]:
    """The kernel families that other packages bring; one that cannot be used stops its op on its backend."""
    from tilewright import ops, plugins
    from tilewright.backends.base import backend_names, op_kernels
    from tilewright.ops.families import families, families_group

    for backend in backend_names():
        for op in ops.op_names():
            group = families_group(backend, op)
            names = plugins.names(group)
            try:
                families(backend, op)
                if names:
                    getattr(op_kernels(backend, op), "families", None)  # beside those that ship
            except PluginError as error:
                yield Finding("families", f"{', '.join(names)} ({op} on {backend})", False, oneline(error))
                continue
            for name in names:
                whose = f"of the package {plugins.package_of(group, name)}"
                yield Finding("families", name, True, f"kernels of {op} for {backend} ({whose})")


def _pytorch() -> Iterator[Finding]:
    """Who serves PyTorch's ops, where PyTorch is installed; it is not imported, which takes seconds."""
    from importlib.util import find_spec

    from tilewright.errors import TilewrightError
    from tilewright.runtime import torch_ops

    if find_spec("torch") is None:
        return
    try:
        torch_ops.build()
        yield Finding("ops", "torch.ops.tilewright", True, "served by C++: calls made before need no Python")
    except (TilewrightError, OSError) as error:
        yield Finding("ops", "torch.ops.tilewright", None, f"served by Python: {oneline(error)}")


def _broken() -> Iterator[Finding]:
    """Whatever is installed for us and cannot be loaded, with the reason."""
    from tilewright import ops, plugins
    from tilewright.backends.base import GROUP as BACKENDS
    from tilewright.backends.base import backend_names, op_kernels
    from tilewright.ops.spaces import kernels_group
    from tilewright.runtime.bindings import GROUP as BINDINGS
    from tilewright.runtime.bindings import binding

    parts: dict[str, Callable[[str], Any]] = {
        ops.GROUP: ops.op,
        BINDINGS: binding,
        BACKENDS: lambda name: plugins.load(BACKENDS, name, "a backend"),
        "tilewright.api": lambda name: plugins.load("tilewright.api", name, "a name of the API"),
    }
    parts |= {kernels_group(backend): partial(op_kernels, backend) for backend in backend_names()}
    for group, load in parts.items():
        for name in plugins.names(group):
            try:
                load(name)
            except PluginError as error:
                yield Finding("plug-ins", f"{name} ({group})", False, oneline(error))


def _versions() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    system = f"{platform.system()} {platform.release()}"
    yield Finding("versions", "python", True, f"{platform.python_version()} on {system}")
    for name in _PACKAGES:
        try:
            yield Finding("versions", name, True, version(name))
        except PackageNotFoundError:
            yield Finding("versions", name, False, f"not installed; `pip install {name}`")
    try:
        yield Finding("versions", "ziglang", None, version("ziglang"))
    except PackageNotFoundError:
        yield Finding("versions", "ziglang", None, "not installed (only needed where there is no other C++ compiler)")


def _cache() -> Iterator[Finding]:
    from tilewright import settings
    from tilewright.build import Store
    from tilewright.build.upkeep import other_versions, usage
    from tilewright.cli.cache import human
    from tilewright.errors import StoreError

    store = Store()
    limit = settings.current().cache_max_bytes
    try:
        entries = usage(store)
        size = human(sum(entry.bytes for entry in entries))
        yield Finding(
            "store", str(store.root), True, f"{counted(len(entries), 'entry')}, {size} of at most {human(limit)}"
        )
    except StoreError as error:
        yield Finding("store", str(store.root), False, oneline(error))
    for other in other_versions(store):
        text = "of another version; `tilewright cache gc --other-versions` removes it"
        yield Finding("store", str(other), None, text)


def _models() -> Iterator[Finding]:
    """The models of a user's own, where something about them is odd."""
    from tilewright.dispatch import learned, model_files

    if learned.stamp(model_files.folder().parent) is None:
        return
    for problem in model_files.damaged():
        yield Finding("models", str(model_files.folder()), False, problem)
    for problem in model_files.shadowing():
        yield Finding("models", str(model_files.folder()), None, problem)


def _bundles() -> Iterator[Finding]:
    """The bundles of installed packages."""
    from tilewright import plugins
    from tilewright.build import bundled

    for name in plugins.names(bundled.GROUP):
        try:
            bundle = bundled.Bundle(bundled.installed_path(name))
        except TilewrightError as error:
            yield Finding("bundle", name, False, error.message)
        else:
            summary = f"{counted(len(bundle.libraries), 'kernel')} for {', '.join(bundle.targets)}, from {bundle.path}"
            yield Finding("bundle", name, True, summary)


def _settings() -> Iterator[Finding]:
    from tilewright import settings

    now, default = settings.current(), settings.Settings()
    for field in dataclasses.fields(now):
        value: Any = getattr(now, field.name)
        usual: Any = getattr(default, field.name)
        if isinstance(usual, Path):
            usual = usual.expanduser()
        yield Finding("settings", field.name, None, f"{value}" + ("" if value == usual else _SET))


def _works() -> Iterator[Finding]:
    """Compile a small library, load it and call it; then see whether the store takes one."""
    import ctypes
    import tempfile

    from tilewright.arch import best_host_arch
    from tilewright.backends.base import backend
    from tilewright.build import Store
    from tilewright.build.diagnose import first_error
    from tilewright.build.ninja_run import Compile, ninja_binary, run_one
    from tilewright.errors import TilewrightError

    arch = best_host_arch().name
    try:
        tools = backend(best_host_arch().backend).toolchain()
        with tempfile.TemporaryDirectory(prefix="tilewright-doctor-") as folder:
            work = Path(folder)
            source, output = work / "probe.cpp", work / f"probe{tools.library_suffix}"
            source.write_text(_PROBE, encoding="utf-8")
            command = Compile(tuple(tools.command(source, output, arch)), source, output)
            outcome = run_one(command, work, tools.environment(work))
            answer = ctypes.CDLL(str(output)).tw_probe(41) if outcome.code == 0 else 0
        text = f"in {outcome.seconds:.2f} s for {arch}" if answer == 42 else first_error(outcome.log)
        yield Finding("cpu path", "compile and load", answer == 42, text)
    except (TilewrightError, OSError) as error:
        yield Finding("cpu path", "compile and load", False, oneline(error))
    try:
        yield Finding("cpu path", "ninja", True, ninja_binary())
    except TilewrightError as error:
        yield Finding("cpu path", "ninja", False, oneline(error))
    try:
        with Store().workspace():
            yield Finding("cpu path", "store takes kernels", True, "")
    except TilewrightError as error:
        yield Finding("cpu path", "store takes kernels", False, oneline(error))
