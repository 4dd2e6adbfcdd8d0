"""Setting up the ROCm cross-compiler: plan, fetch, unpack, check, publish.

Everything is prepared beside its final place and published by one rename, so a toolchain folder is
complete or absent.  Downloads survive an interruption and are verified before they are used.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tilewright import settings
from tilewright.errors import RequestError, ToolchainError
from tilewright.toolchains import apt_sources, installed, python_index, staging
from tilewright.toolchains.archive import Release, read_packages, read_release
from tilewright.toolchains.deb import prepare_root, unpack_deb, unpack_tar
from tilewright.toolchains.fetch import Advance, Fetcher, Item, Unreachable, free_bytes, shown
from tilewright.toolchains.launchers import write_launchers
from tilewright.toolchains.packages import Index, Package
from tilewright.toolchains.recipe import Headers, Plan, Recipe, load_recipe, make_plan, moved_on, plan_sysroot

ELSEWHERE = (
    "install ROCm's own packages instead (hipcc, hip-dev or hip-devel, rocm-device-libs, composablekernel-dev or "
    "-devel from the ROCm repository; on Fedora: hipcc rocm-hip-devel rocm-device-libs) and, unless they are in "
    "/opt/rocm, set TILEWRIGHT_ROCM_PATH to their folder"
)
# Rules of errors that say nothing about the toolchain itself: what it is made of cannot be had here.
OUTSIDE_CAUSES = frozenset(
    ("not-debian-like", "no-rocm-in-archive", "no-headers", "no-pip", "no-space", "download-failed")
)
HEADERS_BYTES = 60 << 20  # the source distribution and what is kept of it
SPARE_BYTES = 200 << 20  # room that stays free


class Progress(Protocol):
    """Who listens: a step begins, bytes or packages of it are done, something is worth telling."""

    def step(self, title: str) -> None: ...

    def advance(self, done: int, total: int) -> None: ...

    def note(self, text: str) -> None: ...


class Silent:
    def step(self, title: str) -> None:
        del title

    def advance(self, done: int, total: int) -> None:
        del done, total

    def note(self, text: str) -> None:
        del text


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything one installation is made from, chosen but not yet fetched."""

    archive: str
    releases: tuple[Release, ...]
    plan: Plan
    headers: Item
    headers_version: str
    notes: tuple[str, ...]

    @property
    def download_bytes(self) -> int:
        return self.plan.download_bytes + (self.headers.size or HEADERS_BYTES // 4)


def check_machine(sources: list[apt_sources.AptSource]) -> None:
    """This way only works where Debian packages for x86-64 are at hand."""
    if not sources:
        raise ToolchainError(
            "this machine has no apt configuration with a package archive, so there are no packages to take",
            rule="not-debian-like",
            value=platform.system(),
            remedy=ELSEWHERE,
        )
    if platform.machine() not in ("x86_64", "AMD64"):
        raise ToolchainError(
            f"the packaged compilers are for x86-64, and this machine is {platform.machine()}",
            rule="not-debian-like",
            value=platform.machine(),
            remedy=ELSEWHERE,
        )


def _apt_fetcher() -> Fetcher:
    """Downloads go the way apt's go: through its proxy, if one is configured."""
    tool = shutil.which("apt-config")
    if tool is None:
        return Fetcher()
    answer = subprocess.run(
        [tool, "dump", "--format", "%f=%v%n", "Acquire::http::Proxy", "Acquire::https::Proxy"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=settings.child_environment(),
    )
    pairs = [line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line]
    proxies = {name.split("::")[1].lower(): url for name, url in pairs if name.count("::") == 2 and "://" in url}
    return Fetcher(proxies)


def find_sources(recipe: Recipe, downloads: Path, progress: Progress, apt_dir: Path | None = None) -> Sources:
    """Choose archive, suites and versions; only indexes are fetched."""
    configured = apt_sources.read_sources(apt_dir)
    check_machine(configured)
    fetcher = _apt_fetcher()
    problems: list[str] = []
    progress.step("reading the package indexes")
    for archive in apt_sources.archives(configured, apt_dir):
        for edition in recipe.editions:
            base, overlays = edition.base, edition.overlays
            try:
                releases = _releases(fetcher, archive, base, overlays)
            except Unreachable as error:
                if error.missing:
                    continue
                problems.append(error.message)
                break  # the same machine would not answer for another suite
            index = Index()
            for release in releases:
                for component in recipe.components:
                    index.add(read_packages(fetcher, release, component, downloads), release.suite, archive.url)
            if not index.versions("hipcc"):
                problems.append(f"{shown(archive.url)} has no hipcc in {base}")
                continue
            sysroot = _sysroot(recipe, fetcher, archive, releases, index, downloads)
            plan = make_plan(recipe, index, base, overlays, sysroot)
            if plan is None:
                have = ", ".join(package.version for package in index.versions("hipcc")) or "none"
                problems.append(f"{shown(archive.url)} has no ROCm {recipe.lines[-1]} in {base} (hipcc: {have})")
                continue
            headers, version, notes = _find_headers(recipe, progress)
            unsigned = [
                f"{release.suite}: signature {release.signature}"
                for release in releases
                if release.signature != "checked"
            ]
            return Sources(
                archive.url, tuple(releases), plan, headers, version, (*moved_on(recipe, plan), *notes, *unsigned)
            )
    tried = ", ".join(dict.fromkeys(shown(archive.url) for archive in configured))
    raise ToolchainError(
        f"no archive apt is configured for has the ROCm packages: {'; '.join(problems) or tried}",
        rule="no-rocm-in-archive",
        value=tried,
        remedy=f"check the network; else {ELSEWHERE}",
    )


def _releases(fetcher: Fetcher, archive: apt_sources.Archive, base: str, overlays: tuple[str, ...]) -> list[Release]:
    releases = [read_release(fetcher, archive.url, base, archive.signed_by)]
    for suite in overlays:
        try:
            releases.append(read_release(fetcher, archive.url, suite, archive.signed_by))
        except Unreachable as error:
            if not error.missing:
                raise
    return releases


def _sysroot(
    recipe: Recipe,
    fetcher: Fetcher,
    archive: apt_sources.Archive,
    releases: list[Release],
    newest: Index,
    downloads: Path,
) -> list[Package]:
    """The C and C++ libraries of the first configured suite that has them, else of the newest."""
    read = {release.suite for release in releases}
    for suite in archive.suites:
        if suite in read:
            continue
        try:
            release = read_release(fetcher, archive.url, suite, archive.signed_by)
        except Unreachable as error:
            if error.missing:
                continue
            raise
        index = Index()
        index.add(read_packages(fetcher, release, recipe.components[0], downloads), suite, archive.url)
        sysroot = plan_sysroot(recipe, index)
        if sysroot is not None:
            releases.append(release)
            return sysroot
    sysroot = plan_sysroot(recipe, newest)
    if sysroot is None:
        raise ToolchainError(
            f"{shown(archive.url)} has no C and C++ development packages",
            rule="no-rocm-in-archive",
            value=archive.url,
            remedy=ELSEWHERE,
        )
    return sysroot


def _find_headers(recipe: Recipe, progress: Progress) -> tuple[Item, str, list[str]]:
    wanted = recipe.headers
    progress.step(f"looking for {wanted.project} {wanted.version} in the Python index")
    offers = python_index.distributions(python_index.pip_config(), wanted.project)
    chosen = python_index.choose(offers, wanted.version, wanted.line)
    known = recipe.tested.get("headers", {}).get("sha256", "") if chosen.version == wanted.version else ""
    item = python_index.as_item(chosen, known)
    notes = []
    if chosen.version != wanted.version:
        notes.append(f"{wanted.project} {chosen.version}: tested with {wanted.version}")
    elif known and known != item.sha256:
        raise ToolchainError(
            f"the index offers {chosen.file_name} with another digest than the tested file",
            rule="download-digest",
            value=chosen.file_name,
            remedy="this index is not to be trusted for it; use another, or set TILEWRIGHT_CK_TILE",
        )
    return item, chosen.version, notes


def check_space(sources: Sources, prefix: Path, downloads: Path) -> None:
    needs = {prefix.parent: sources.plan.installed_bytes + HEADERS_BYTES, downloads: sources.download_bytes}
    by_device: dict[int, tuple[Path, int]] = {}
    for place, size in needs.items():
        there = place
        while not there.exists():
            there = there.parent
        device = there.stat().st_dev
        _, sum_so_far = by_device.get(device, (place, 0))
        by_device[device] = (by_device.get(device, (place, 0))[0], sum_so_far + size)
    for place, size in by_device.values():
        free = free_bytes(place)
        if free < size + SPARE_BYTES:
            raise ToolchainError(
                f"{place} has {free >> 20} MiB free, and the toolchain needs {(size + SPARE_BYTES) >> 20} MiB",
                rule="no-space",
                value=free,
                remedy="make room, or give another folder with --prefix (and TILEWRIGHT_CACHE_DIR for the downloads)",
            )


def check_prefix(prefix: Path, force: bool) -> installed.Installed | None:
    """The toolchain that is there already; a folder of anybody else's is never touched."""
    try:
        there = installed.read(prefix)
    except ToolchainError:
        if not force:
            raise
        return None
    if there is None and prefix.exists() and (not prefix.is_dir() or any(prefix.iterdir())):
        raise RequestError(
            f"{prefix} exists and is no toolchain",
            rule="prefix-taken",
            value=str(prefix),
            remedy="give an empty or new folder with --prefix",
        )
    return None if force else there


Confirm = Callable[[Sources], bool]


def install_rocm(
    prefix: Path | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    confirm: Confirm | None = None,
    apt_dir: Path | None = None,
    recipe: Recipe | None = None,
) -> tuple[installed.Installed, bool]:
    """The toolchain in `prefix`, and whether it was made now.  `confirm` is asked before anything large is fetched."""
    progress = progress or Silent()
    recipe = recipe or load_recipe()
    prefix = (prefix or installed.default_prefix("rocm")).expanduser().absolute()
    there = check_prefix(prefix, force)
    if there is not None:
        return there, False
    try:
        # Before anything is fetched: a person who waited minutes should not hear it then.
        for place in (prefix, installed.folder()):
            check_writable(place)
        _install(prefix, recipe, progress, confirm, apt_dir)
    except OSError as error:
        raise installed.folder_error(error, prefix) from error
    toolchain = installed.read(prefix)
    assert toolchain is not None
    return toolchain, True


def check_writable(place: Path) -> None:
    """OSError unless the folder can be made, or written where it is there."""
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(there))


def _install(prefix: Path, recipe: Recipe, progress: Progress, confirm: Confirm | None, apt_dir: Path | None) -> None:
    downloads = installed.folder() / staging.DOWNLOADS
    with staging.only_one():
        staging.sweep_held(keep_downloads=True)
        sources = find_sources(recipe, downloads, progress, apt_dir)
        check_space(sources, prefix, downloads)
        for note in sources.notes:
            progress.note(note)
        if confirm is not None and not confirm(sources):
            raise RequestError("nothing was installed", rule="not-confirmed", remedy="answer yes, or give --yes")
        began = time.monotonic()
        headers = _fetch(sources, downloads, progress)
        with staging.work_folder(prefix) as work:
            _unpack(recipe, sources, downloads, headers, work, progress)
            progress.step("checking the compiler")
            seconds = self_check(work)
            _write_manifest(recipe, sources, work, time.monotonic() - began, seconds)
            staging.publish(work, prefix)
        shutil.rmtree(downloads, ignore_errors=True)  # kept only as long as they save work


def _fetch(sources: Sources, downloads: Path, progress: Progress) -> Path:
    items = [
        Item(package.url, package.file_name, package.sha256, package.size) for package in sources.plan.all_packages
    ]
    progress.step(f"fetching {len(items)} packages, {sources.plan.download_bytes >> 20} MiB")
    advance: Advance = progress.advance
    _apt_fetcher().fetch_all(items, downloads, advance)
    progress.step(f"fetching {sources.headers.name}")
    return python_index.pip_config().fetcher().fetch(sources.headers, downloads)


def _unpack(recipe: Recipe, sources: Sources, downloads: Path, headers: Path, work: Path, progress: Progress) -> None:
    plan = sources.plan
    # The compiler with the libraries it runs on, and apart from it what programs are linked against.
    jobs = [(package, work / "root") for package in plan.packages] + [
        (package, work / "sysroot") for package in plan.sysroot
    ]
    progress.step(f"unpacking {len(jobs)} packages")
    for root in dict.fromkeys(root for _, root in jobs):
        prepare_root(root)
    for done, (package, root) in enumerate(jobs, 1):
        unpack_deb(downloads / package.file_name, root, recipe.keeps)
        progress.advance(done, len(jobs))
    progress.step("unpacking the CK Tile headers")
    _unpack_headers(recipe.headers, headers, work / "include")
    binaries = work / "root" / "usr" / "lib" / f"llvm-{plan.llvm}" / "bin"
    tools = [tool for tool in recipe.tools if (binaries / tool).exists()]
    hip = ".".join(plan.rocm.split(".")[:2])
    write_launchers(work / "bin", tools, plan.llvm, plan.gcc, hip)


def _unpack_headers(wanted: Headers, archive: Path, goal: Path) -> None:
    """Only the header folders and the licences; nothing of the distribution is run."""
    inside, folders, licences = wanted.inside, wanted.folders, wanted.licences

    def place(name: str) -> str | None:
        _, _, rest = name.partition("/")  # the first folder is project-version
        if rest in licences:
            return "licences/" + rest.replace("/", "-")
        if rest.startswith(tuple(f"{inside}{folder}/" for folder in folders)) and rest.endswith((".hpp", ".h", ".inc")):
            return rest.removeprefix(inside)
        return None

    try:
        with tarfile.open(archive, "r:*") as tar:
            unpack_tar(tar, goal, archive, place)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
        raise ToolchainError(
            f"{archive.name} cannot be unpacked: {error}", rule="unpack", value=archive.name, remedy="run it again"
        ) from error
    for folder in folders:
        if not (goal / folder).is_dir():
            raise ToolchainError(
                f"{archive.name} has no {inside}{folder}",
                rule="no-headers",
                value=archive.name,
                remedy="set TILEWRIGHT_CK_TILE to a folder that holds the ck_tile headers",
            )


PROBE = """#include <hip/hip_runtime.h>
#include <vector>
__global__ void tw_probe(float* x) { x[threadIdx.x] = sinf(x[threadIdx.x]); }
extern "C" int tw_run(float* x) { std::vector<int> n(1, 64); tw_probe<<<1, n[0]>>>(x); return hipGetLastError(); }
"""


def self_check(prefix: Path) -> float:
    """Compile and link a small HIP program; answers the seconds it took."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tilewright-probe-") as folder:
        source, output = Path(folder) / "probe.cpp", Path(folder) / "probe.so"
        source.write_text(PROBE, encoding="utf-8")
        command = [str(prefix / "bin" / "hipcc"), "-std=c++17", "-O2", "-fPIC", "-shared", "--offload-arch=gfx942"]
        answer = subprocess.run(
            [*command, str(source), "-o", str(output)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=settings.child_environment({"TMPDIR": folder}),
        )
        if answer.returncode != 0 or not output.exists():
            lines = [line for line in answer.stderr.splitlines() if line.strip()]
            first = next((line for line in lines if "error" in line), lines[0] if lines else "it said nothing")
            raise ToolchainError(
                f"the new compiler does not compile a small HIP program: {first}",
                rule="toolchain-self-check",
                value=answer.returncode,
                remedy="the archive's packages do not fit together at the moment; try again in some hours, "
                f"or {ELSEWHERE}",
            )
    return time.monotonic() - began


def _write_manifest(recipe: Recipe, sources: Sources, work: Path, seconds: float, probe_seconds: float) -> None:
    plan = sources.plan
    files_digest = installed.record(work)
    size = sum(path.stat().st_size for path in work.rglob("*") if path.is_file() and not path.is_symlink())
    manifest = {
        "format": installed.FORMAT,
        "name": "rocm",
        "version": plan.rocm,
        "llvm": plan.llvm,
        "gcc": plan.gcc,
        "tested": not moved_on(recipe, plan) and sources.headers_version == recipe.headers.version,
        "notes": list(sources.notes),
        "suites": {
            release.suite: {"date": release.date, "signature": release.signature} for release in sources.releases
        },
        "packages": _versions(plan.packages),
        "sysroot": _versions(plan.sysroot),
        "headers": {
            "project": recipe.headers.project,
            "version": sources.headers_version,
            "sha256": sources.headers.sha256,
        },
        "files_sha256": files_digest,
        "bytes": size,
        "seconds": round(seconds, 1),
        "probe_seconds": round(probe_seconds, 1),
    }
    (work / installed.MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _versions(packages: tuple[Package, ...]) -> dict[str, dict[str, str]]:
    return {
        package.name: {"version": package.version, "suite": package.suite, "sha256": package.sha256}
        for package in packages
    }
