"""The HIP compiler and the CK Tile headers: found, identified and turned into command lines.

Looked at, in this order: the setting `hipcc`, the setting `rocm_path`, the toolchain that
`tilewright toolchain install rocm` set up, the usual folders of a ROCm installation, the path.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import tilewright
from tilewright import settings
from tilewright.arch import arch as arch_by_name
from tilewright.backends import search
from tilewright.backends.base import (
    CompilerIdentity,
    ObjectRules,
    Preparation,
    Source,
    backend,
    kernels_of,
    op_include_dirs,
)
from tilewright.backends.hip import ck_tile
from tilewright.backends.hip.ck_tile import REMEDY as HEADERS_REMEDY
from tilewright.backends.hip.ck_tile import Headers, has_headers, is_used, read_headers
from tilewright.dataclass import dataclass
from tilewright.digests import sha256
from tilewright.errors import ToolchainError
from tilewright.ops.base import KernelSpec
from tilewright.toolchains import installed

USUAL = Path("/opt")  # rocm and rocm-<version> lie here
REMEDY = "`tilewright toolchain install rocm` sets one up without root; or set TILEWRIGHT_HIPCC or TILEWRIGHT_ROCM_PATH"

# No -amdgpu-early-inline-all: LLVM 22 then spends ten minutes a kernel in loop-invariant code motion, else 20 s in all.
_CODE = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-mllvm", "-enable-noalias-to-md-conversion=0")
_DEVICE_ONLY = ("--cuda-device-only", "--no-gpu-bundle-output")

# Kernels are .hpp files, which hipcc takes for C++ headers to be precompiled: no HIP include folders, no device code.
_LANGUAGE = ("-x", "hip")

# Peak resident size of a compile that is no kernel's.
MEMORY_PER_JOB = 512 << 20


@dataclass(frozen=True)
class HipToolchain:
    """One HIP compiler behind the contract of `tilewright.backends.base.Toolchain`."""

    driver: tuple[str, ...]
    root: Path | None  # the ROCm folder or the installed toolchain, where known
    where: str  # how it was found, for people
    identity: CompilerIdentity
    headers: Headers | None

    @property
    def library_suffix(self) -> str:
        return ".so"

    def flags(self, arch: str) -> tuple[str, ...]:
        return (*self._code(arch), "-shared")

    def _code(self, arch: str) -> tuple[str, ...]:
        facts = arch_by_name(arch)
        if facts.backend != "hip":
            raise ToolchainError(
                f"hipcc compiles for AMD GPUs, and {arch} is a target of the {facts.backend} backend",
                rule="arch-backend",
                value=arch,
                remedy="ask the toolchain of the arch's own backend",
            )
        return (*_CODE, *facts.compile_flags)

    def include_dirs(self, op: str = "") -> tuple[Path, ...]:
        return include_dirs((op,))

    def ck_tile(self) -> Headers:
        """The CK Tile headers; none, or those no kernel is written for, are an error."""
        if self.headers is None:
            raise ToolchainError(
                f"no CK Tile headers were found beside {shlex.join(self.driver)}",
                rule="no-headers",
                value="",
                remedy=HEADERS_REMEDY,
            )
        self.headers.require()
        return self.headers

    def _demand_headers(self, source: Path) -> bool:
        """Whether a source includes CK Tile.

        Missing headers, or those of another version, are one clear error and no page of template errors.
        """
        try:
            text = source.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False  # the compiler says so in its own words
        if is_used(text):
            self.ck_tile().demand(text)
        return is_used(text)

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """Sources that are written in the body are for the headers found here, where they are of a known version."""
        version = self.headers.profile if self.headers is not None else ""
        setting = settings.current().ck_tile_profile
        if version and setting and ck_tile.chosen() != version:
            assert self.headers is not None
            raise ToolchainError(
                f"the setting ck_tile_profile is {setting}, but the headers in {self.headers.folder} are of {version}",
                rule="headers-version",
                value=setting,
                remedy=f"leave TILEWRIGHT_CK_TILE_PROFILE out, or set TILEWRIGHT_CK_TILE to headers of {setting}",
            )
        with settings.override(ck_tile_profile=version or setting):
            yield

    def source(self, spec: KernelSpec) -> Source:
        """The kernel's source for the headers found here."""
        with self._speaking():
            return backend("hip").render(spec)

    def _places(self, op: str = "") -> list[str]:
        ours = [f"-I{folder}" for folder in self.include_dirs(op)]
        # As a system folder: warnings about others' headers help nobody.
        return [*ours, *(("-isystem", str(self.headers.folder)) if self.headers is not None else ())]

    def command(self, source: Path, output: Path, arch: str, op: str = "") -> list[str]:
        shared = self._shared(arch, op) if self._demand_headers(source) else ()
        words = (*self.flags(arch), *self._places(op), *shared)
        return [*self.driver, *words, "-o", str(output), *_LANGUAGE, str(source)]

    def _shared_header(self, arch: str, op: str, text: str) -> Path:
        from tilewright.backends.hip import precompiled

        # The place of CK Tile's headers counts as a word: a precompiled file names the files it was made of.
        words = (*self._code(arch), str(self.headers.folder) if self.headers is not None else "")
        return precompiled.header(self.driver, words, self.include_dirs(op), self.identity.digest, text)

    def _shared(self, arch: str, op: str) -> tuple[str, ...]:
        """The precompiled header where there is one, for the device's pass alone: the host's needs no CK Tile."""
        from tilewright.backends.hip import precompiled

        with self._speaking():
            text = precompiled.text(arch, op)
        if not text:
            return ()
        header = self._shared_header(arch, op, text)
        # clang takes the precompiled file beside a header; -Xarch_device forwards only options of one word.
        return ("-Xarch_device", f"-include{header}") if precompiled.ready(header) else ()

    def gains(self, source: Source) -> bool:
        """Whether a kernel includes what is precompiled: those of our own do not."""
        return is_used(source.text)

    def preparation(self, arch: str, op: str, kernels: int) -> Preparation | None:
        """The precompiled header, where it is not there and these kernels, with those built before, are worth it."""
        from tilewright.backends.hip import precompiled

        with self._speaking():
            text = precompiled.text(arch, op)
        if not text:
            return None
        header = self._shared_header(arch, op, text)
        if precompiled.ready(header) or precompiled.wanted(header, kernels) < precompiled.WORTH_KERNELS:
            return None
        precompiled.write(header, text)
        precompiled.sweep(header)
        part = header.with_name(f"{secrets.token_hex(8)}.part")
        command = self.precompile_command(header, part, arch, op)
        return Preparation(tuple(command), part, precompiled.compiled(header))

    def object_command(self, source: Path, output: Path, arch: str, op: str = "") -> list[str]:
        """Host and device code in one object, for a library of many kernels."""
        self._demand_headers(source)
        return [*self.driver, *self._code(arch), *self._places(op), "-c", "-o", str(output), *_LANGUAGE, str(source)]

    def code_object_command(self, source: Path, output: Path, arch: str, op: str = "") -> list[str]:
        """Only the device's code: half the time of a library, and all there is to inspect or emulate."""
        self._demand_headers(source)
        options = (*self._code(arch), *_DEVICE_ONLY, *self._places(op))
        return [*self.driver, *options, "-o", str(output), *_LANGUAGE, str(source)]

    def precompile_command(self, header: Path, output: Path, arch: str, op: str = "") -> list[str]:
        """A precompiled header for the device's pass, templates that its text uses made once for all."""
        # Only with -S does the device's half stop before its linker, which knows no such file.
        half = ("--cuda-device-only", "-S")
        # No times of files: what is in them is known by digests.
        emit = ("-Xclang", "-emit-pch", "-Xclang", "-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp")
        words = (*self._code(arch), *half, *self._places(op), *_LANGUAGE, *emit)
        return [*self.driver, *words, "-o", str(output), str(header)]

    def use_precompiled(self, output: Path) -> tuple[str, ...]:
        return ("-Xclang", "-include-pch", "-Xclang", str(output))

    def environment(self, work: Path) -> Mapping[str, str]:
        # hipcc's temporary files go where they are swept after a kill.
        return {"TMPDIR": str(work)}

    def memory_per_job(self, spec: KernelSpec | None = None) -> int:
        return MEMORY_PER_JOB if spec is None else kernels_of("hip", spec).compile_memory(spec, self.identity.kind)

    def tool(self, name: str) -> Path:
        """A tool of the compiler's own LLVM, such as llvm-objdump."""
        return find_tool(name, self.root, self.driver)


def include_dirs(ops: Sequence[str] = ()) -> tuple[Path, ...]:
    """Our own headers, and those that ops bring; folders that a build does not have are left out."""
    package = Path(tilewright.__file__).parent
    places = (package / "include", package / "backends" / "hip" / "include", package / "backends" / "gpu" / "include")
    return tuple(folder for folder in (*places, *op_include_dirs("hip", ops)) if folder.is_dir())


def find_tool(name: str, root: Path | None, driver: tuple[str, ...]) -> Path:
    folders = [Path(driver[0]).resolve().parent]
    if root is not None:
        folders += [root / "bin", root / "llvm" / "bin", root / "lib" / "llvm" / "bin"]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    path = shutil.which(name)
    if path:
        return Path(path)
    raise ToolchainError(
        f"{name} is not beside {shlex.join(driver)}", rule="no-tool", value=name, remedy=f"install it, or {REMEDY}"
    )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compiler that would be tried: its words, the folder it belongs to, and how it was found."""

    driver: tuple[str, ...]
    root: Path | None
    where: str


def _in_folder(folder: Path, where: str) -> Candidate | None:
    hipcc = folder / "bin" / "hipcc"
    return Candidate((str(hipcc),), folder, where) if hipcc.is_file() else None


def _rocm_folders() -> list[Path]:
    """/opt/rocm, then /opt/rocm-7.1.0 and its like, the newest first."""
    return [USUAL / "rocm", *sorted(USUAL.glob("rocm-*"), key=search.numbers, reverse=True)]


def candidates() -> list[Candidate]:
    """Every compiler that would be tried, in order; one given by a setting is the only one."""
    now = settings.current()
    if now.hipcc:
        words = search.given_words(now.hipcc, "hipcc", "the HIP compiler", rule="no-hipcc", remedy=REMEDY)
        return [Candidate(words, Path(words[0]).resolve().parent.parent, "the setting hipcc")]
    if now.rocm_path:
        candidate = _in_folder(Path(now.rocm_path).expanduser(), "the setting rocm_path")
        if candidate is None:
            raise ToolchainError(
                f"the folder {now.rocm_path} of the setting rocm_path has no bin/hipcc",
                rule="no-hipcc",
                value=now.rocm_path,
                remedy=f"give the folder of a ROCm installation; else {REMEDY}",
            )
        return [candidate]
    found_ones = [_in_folder(installed.default_prefix("rocm"), "the installed toolchain")]
    found_ones += [_in_folder(folder, "the usual folder") for folder in _rocm_folders()]
    on_path = shutil.which("hipcc")
    if on_path:
        found_ones.append(Candidate((on_path,), Path(on_path).resolve().parent.parent, "the path"))
    unique: dict[Path, Candidate] = {}
    for candidate in found_ones:
        if candidate is not None:
            unique.setdefault(Path(candidate.driver[0]).resolve(), candidate)
    return list(unique.values())


def header_folders(root: Path | None) -> list[Path]:
    """Where CK Tile headers may lie, in order; a folder given by the setting is the only one."""
    setting = settings.current().ck_tile
    if setting:
        return [ck_tile.folder_of(setting)]
    beside = [root / "include"] if root is not None else []
    places = [
        *beside,
        installed.default_prefix("rocm") / "include",
        *(folder / "include" for folder in _rocm_folders()),
    ]
    return list(dict.fromkeys(places))


def find_headers(root: Path | None) -> Headers | None:
    """The first CK Tile headers there are; a folder given by the setting must have them."""
    folders = header_folders(root)
    if settings.current().ck_tile:
        return read_headers(folders[0])
    return next((read_headers(folder) for folder in folders if has_headers(folder)), None)


def _broken(driver: tuple[str, ...], what: str) -> ToolchainError:
    return ToolchainError(
        f"{shlex.join(driver)} is no usable HIP compiler: {what}",
        rule="broken-hipcc",
        value=shlex.join(driver),
        remedy=f"`tilewright toolchain verify` checks an installed one; else {REMEDY}",
    )


def identify(candidate: Candidate) -> HipToolchain:
    """Ask a compiler who it is and find its headers."""
    driver = candidate.driver
    answer = search.query(driver, "--version", broken=lambda what: _broken(driver, what), expect="clang")
    lines = [splitline.strip() for splitline in answer.splitlines() if splitline.strip()]
    # Places are no part of an identity.
    lines = [line for line in lines if not line.startswith(("InstalledDir:", "Configuration file:"))]
    toolchain = installed.read(candidate.root) if candidate.root is not None else None
    headers = find_headers(candidate.root)
    clang = next(line for line in lines if "clang" in line)
    hip = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("HIP version:")), "")
    release = f"ROCm {toolchain.version}" if toolchain is not None else f"HIP {hip}" if hip else ""
    version = f"{release}, {clang}" if release else clang
    parts = [*lines, *candidate.driver[1:], toolchain.digest if toolchain is not None else ""]
    # Kernels are mostly CK Tile's code: its headers are as much a part of the compiler as clang is.
    parts.append(headers.digest if headers is not None else "")
    digest = sha256("\n".join(parts).encode()).hexdigest()
    identity = CompilerIdentity("hipcc", version, digest)
    return HipToolchain(candidate.driver, candidate.root, candidate.where, identity, headers)


def _none() -> ToolchainError:
    return ToolchainError(
        f"no HIP compiler: none is installed under {installed.folder()}, in {USUAL}/rocm or on the path",
        rule="no-hipcc",
        value="",
        remedy=REMEDY,
    )


@lru_cache(maxsize=32)
def _find(hipcc: str, rocm_path: str, ck_tile: str, prefix: str, path: str) -> HipToolchain:
    del hipcc, rocm_path, ck_tile, prefix, path  # what the answer depends on, read again by candidates()
    return search.first_usable(candidates(), identify, _none)


def find_toolchain() -> HipToolchain:
    """The HIP compiler, found once for each setting; none is a ToolchainError with the remedy."""
    now = settings.current()
    path = settings.child_path()
    return _find(now.hipcc, now.rocm_path, now.ck_tile, str(installed.folder()), path)


def forget() -> None:
    """Look again the next time: after an installation, and for tests."""
    _find.cache_clear()
    ck_tile.forget()


def object_rules(arch: str, ops: Sequence[str] = ()) -> ObjectRules:
    """For build files: the compiler found here, or plain `hipcc` where there is none yet.

    A setting that names a compiler or headers that are not there is an error: nobody means plain `hipcc` by it.
    """
    now, note = settings.current(), ""
    try:
        tools = find_toolchain()
        driver, headers = tools.driver, tools.headers
    except ToolchainError as error:
        if now.hipcc or now.rocm_path or now.ck_tile:
            raise
        driver, headers = ("hipcc",), None
        note = f"the build files say plain hipcc, and no folder of CK Tile headers: {error.message}"
    if headers is not None and not headers.profile:
        note = f"the CK Tile headers in {headers.folder} fit no profile; `tilewright doctor` says what is missing"
    folders = (*include_dirs(ops), *((headers.folder,) if headers is not None else ()))
    return ObjectRules(
        language="CXX",
        variable="HIPCXX",
        compiler=search.portable(driver),
        compile_flags=(*_LANGUAGE, *_CODE, *arch_by_name(arch).compile_flags),
        include_dirs=folders,
        link_flags=tuple(arch_by_name(arch).compile_flags),
        headers=headers.profile if headers is not None else "",
        note=note,
        compress_flags=("--offload-compress",),
    )
