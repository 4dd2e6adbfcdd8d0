"""`tilewright doctor`: what this machine can do, and why not."""

from __future__ import annotations

import dataclasses
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.common import console, print_json

if TYPE_CHECKING:
    from tilewright.backends.hip.toolchain import HipToolchain

# Kinds of target that need a device: which backend serves them, which compilers and device files tell of them.
_GPUS = (
    ("AMD GPU", "hip", ("hipcc", "amdclang++"), ("/dev/kfd",)),
    ("NVIDIA GPU", "cuda", ("nvcc",), ("/dev/nvidiactl", "/dev/nvidia0")),
)
_PACKAGES = ("tilewright", "numpy", "ninja", "jinja2", "ml_dtypes", "rich", "typer")
_PROBE = 'extern "C" __attribute__((visibility("default"))) int tw_probe(int x) { return x + 1; }\n'


def register(app: typer.Typer) -> None:
    app.command()(doctor)


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: what was looked at, whether it is fine, and what there is to say."""

    part: str
    what: str
    ok: bool | None  # None: nothing to judge
    text: str


def doctor(json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False) -> None:
    """Say what this machine can do: compilers, targets, versions, the store, the settings in force.

    The exit code is 0 when kernels for this CPU can be compiled, stored and loaded, else 2.
    """
    findings = [
        *_machine(),
        *_compilers(),
        *_cuda_devices(),
        *_targets(),
        *_versions(),
        *_cache(),
        *_settings(),
        *_works(),
    ]
    healthy = all(one.ok for one in findings if one.part == "cpu path")
    if json:
        print_json({"ok": healthy, "findings": [dataclasses.asdict(one) for one in findings]})
    else:
        _show(findings)
    if not healthy:
        raise typer.Exit(2)


def _show(findings: list[Finding]) -> None:
    from rich.table import Table

    marks = {True: "yes", False: "no", None: ""}
    table = Table(box=None, pad_edge=False)
    for title in ("part", "what", "ok", ""):
        table.add_column(title)
    last = ""
    for one in findings:
        table.add_row(one.part if one.part != last else "", one.what, marks[one.ok], one.text)
        last = one.part
    console().print(table)


def _machine() -> Iterator[Finding]:
    from tilewright.arch import host_facts
    from tilewright.build.jobs import available_memory

    facts = host_facts()
    memory = available_memory()
    free = f", {memory / 2**30:.1f} GiB free" if memory is not None else ""
    yield Finding("machine", "cpu", None, f"{facts.model} ({facts.machine}), {facts.cores} cores{free}")


def _compilers() -> Iterator[Finding]:
    from tilewright import settings
    from tilewright.backends.cpu import toolchain
    from tilewright.errors import ToolchainError

    cxx = settings.current().cxx
    try:
        drivers = toolchain.candidates(cxx)
    except ToolchainError as error:
        yield Finding("compilers", cxx, False, _oneline(error))
        return
    used = False
    for driver in drivers:
        try:
            found = toolchain.identify(driver)
        except ToolchainError as error:
            yield Finding("compilers", " ".join(driver), False, _oneline(error))
            continue
        yield Finding("compilers", " ".join(driver), True, found.identity.version + ("" if used else "; used"))
        used = True
    if not drivers:
        yield Finding("compilers", "c++", False, f"none found; {toolchain.REMEDY}")
    yield from _hip_compilers()
    yield from _cuda_compilers()


def _hip_compilers() -> Iterator[Finding]:
    """Every HIP compiler and the CK Tile headers, with the place they were found in."""
    from tilewright.backends.hip import toolchain
    from tilewright.errors import ToolchainError

    try:
        found = toolchain.candidates()
    except ToolchainError as error:
        yield Finding("compilers", "hipcc", False, _oneline(error))
        return
    if not found:
        yield Finding("compilers", "hipcc", None, f"none found; {toolchain.REMEDY}")
    used = False
    for one in found:
        try:
            tools = toolchain.identify(one)
        except ToolchainError as error:
            yield Finding("compilers", " ".join(one.driver), False, _oneline(error))
            continue
        text = f"{tools.identity.version}; {one.where}" + ("" if used else "; used")
        yield Finding("compilers", " ".join(one.driver), True, text)
        if not used:
            yield _ck_tile_headers(tools)
        used = True


def _ck_tile_headers(tools: HipToolchain) -> Finding:
    from tilewright.errors import ToolchainError

    try:
        headers = tools.ck_tile()
    except ToolchainError as error:
        return Finding("compilers", "CK Tile headers", False, _oneline(error))
    return Finding("compilers", "CK Tile headers", True, f"{headers.folder}; profile {headers.profile}")


def _cuda_compilers() -> Iterator[Finding]:
    """Every nvcc and NVRTC with the place it was found in, and the disassembler."""
    from tilewright.backends.cuda import places, toolchain
    from tilewright.errors import ToolchainError

    try:
        found = toolchain.candidates()
    except ToolchainError as error:
        yield Finding("compilers", "nvcc, NVRTC", False, _oneline(error))
        return
    if not found:
        yield Finding("compilers", "nvcc, NVRTC", None, f"none found; {toolchain.REMEDY}")
    used = False
    for one in found:
        try:
            tools = toolchain.identify(one)
        except ToolchainError as error:
            yield Finding("compilers", one.shown, False, _oneline(error))
            continue
        text = f"{tools.identity.version}; {one.where}" + ("" if used else "; used")
        yield Finding("compilers", one.shown, True, text)
        used = True
    if found:
        tool = places.tool("nvdisasm")
        without = "not found: `inspect` names instructions by opcode only; `pip install nvidia-cuda-nvdisasm`"
        yield Finding("compilers", "nvdisasm", None if tool is None else True, str(tool or without))


def _cuda_devices() -> Iterator[Finding]:
    """NVIDIA's driver and each GPU it sees, or why it sees none."""
    from tilewright.arch import all_archs
    from tilewright.backends.cuda import driver
    from tilewright.errors import TilewrightError

    try:
        library = driver.driver()
    except TilewrightError as error:
        yield Finding("devices", "NVIDIA driver", None, _oneline(error))
        return
    try:
        devices = driver.devices()
    except TilewrightError as error:
        yield Finding("devices", "NVIDIA driver", False, _oneline(error))
        return
    yield Finding("devices", "NVIDIA driver", True, f"{devices[0].driver}; {library.path}")
    for one in devices:
        known = one.arch in all_archs()
        text = f"{one.name}, {one.arch}, {one.memory_bytes / 2**30:.0f} GiB, {one.compute_units} multiprocessors"
        yield Finding("devices", f"NVIDIA GPU {one.index}", known, text + ("" if known else "; no kernels for it"))


def _targets() -> Iterator[Finding]:
    from tilewright.arch import all_archs, host_facts, runnable_host_archs
    from tilewright.backends.base import all_backends

    backends = all_backends()
    here = [one.name for one in runnable_host_archs()]
    for one in all_archs().values():
        if one.family != "cpu":
            continue
        lacks = [flag for flag in one.requires if flag not in host_facts().flags]
        runs = one.name in here
        best = "; best of this machine" if here and one.name == here[0] else ""
        why = f"this CPU lacks {', '.join(lacks)}" if lacks else "the setting host_level leaves it out"
        text = one.description + best if runs else f"{why} (kernels can be compiled)"
        yield Finding("targets", one.name, runs, text)
    for label, backend, compilers, devices in _GPUS:
        names = [one.name for one in all_archs().values() if one.backend == backend]
        what = f"{label} ({' '.join(names)})" if names else label
        if backend in backends:
            reason = backends[backend].why_unavailable()
            yield Finding("targets", what, not reason, reason or "kernels run here")
            continue
        reasons = [f"no {backend} backend is installed"]
        tool = next((found for found in map(shutil.which, compilers) if found), None)
        reasons.append(f"compiler {tool}" if tool else f"no compiler ({' or '.join(compilers)}) on the path")
        device = next((one for one in devices if Path(one).exists()), None)
        reasons.append(f"device {device}" if device else f"no device ({' or '.join(devices)})")
        yield Finding("targets", what, False, "; ".join(reasons))


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
    from tilewright.build.collect import other_versions, usage
    from tilewright.cli.cache import human
    from tilewright.errors import StoreError

    store = Store()
    limit = settings.current().cache_max_bytes
    try:
        entries = usage(store)
        size = human(sum(one.bytes for one in entries))
        yield Finding("store", str(store.root), True, f"{len(entries)} entries, {size} of at most {human(limit)}")
    except StoreError as error:
        yield Finding("store", str(store.root), False, _oneline(error))
    for other in other_versions(store):
        text = "of another version; `tilewright cache gc --other-versions` removes it"
        yield Finding("store", str(other), None, text)


def _settings() -> Iterator[Finding]:
    from tilewright import settings

    now, default = settings.current(), settings.Settings()
    for field in dataclasses.fields(now):
        value: Any = getattr(now, field.name)
        usual: Any = getattr(default, field.name)
        if isinstance(usual, Path):
            usual = usual.expanduser()
        yield Finding("settings", field.name, None, f"{value}" + ("" if value == usual else "  (set)"))


def _works() -> Iterator[Finding]:
    """Compile a small library, load it and call it; then see whether the store takes one."""
    import ctypes
    import tempfile

    from tilewright.arch import best_host_arch
    from tilewright.backends.cpu.toolchain import find_toolchain
    from tilewright.build import Store
    from tilewright.build.diagnose import first_error
    from tilewright.build.ninja_run import Compile, ninja_binary, run_one
    from tilewright.errors import TilewrightError

    arch = best_host_arch().name
    try:
        tools = find_toolchain()
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
        yield Finding("cpu path", "compile and load", False, _oneline(error))
    try:
        yield Finding("cpu path", "ninja", True, ninja_binary())
    except TilewrightError as error:
        yield Finding("cpu path", "ninja", False, _oneline(error))
    try:
        with Store().workspace():
            yield Finding("cpu path", "store takes kernels", True, "")
    except TilewrightError as error:
        yield Finding("cpu path", "store takes kernels", False, _oneline(error))


def _oneline(error: Exception) -> str:
    return " ".join(str(error).split())
