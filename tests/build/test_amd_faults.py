"""What goes wrong between a spec for an AMD GPU and its library: one clear error each, and nothing half-written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw
from tests.build.fake_rocm import amd_specs, compiled, write_rocm
from tests.inspect import code_objects
from tests.inspect.code_objects import fake_objdump, host_library
from tilewright import events, settings
from tilewright.backends.hip import toolchain as hip
from tilewright.build import Store, build_many, build_one, find
from tilewright.errors import (
    CompileError,
    IllegalSpecError,
    InspectionError,
    StoreError,
    TilewrightError,
    ToolchainError,
)

Rocm = Callable[..., Path]

# As clang writes it when a template of CK Tile does not fit: the way there, then the error, then notes.
CLANG_LOG = """In file included from k.hpp:3:
In file included from tilewright/hip/glue_mid_2025.h:10:
ck_tile/ops/gemm/block.hpp:31:3: warning: unused variable [-Wunused]
ck_tile/ops/gemm/warp.hpp:87:5: error: static assertion failed: no such warp tile
k.hpp:60:9: note: in instantiation of member function requested here
ck_tile/ops/gemm/warp.hpp:90:5: error: a later one
2 errors generated when compiling for gfx942."""


@pytest.fixture
def rocm(tmp_path: Path, store: Store) -> Iterator[Rocm]:
    """Makes a fake ROCm the one in force: rocm(body, newer=True)."""
    with ExitStack() as scopes:

        def use(body: str = "", **headers: bool) -> Path:
            folder = write_rocm(tmp_path / "rocm", body, **headers)
            scopes.enter_context(settings.override(rocm_path=str(folder)))
            hip.forget()
            return folder

        yield use
    hip.forget()


def nothing_left(store: Store) -> None:
    for folder in (store.temporary, store.locks):
        assert not folder.exists() or list(folder.iterdir()) == []


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("body", "kind", "rule", "words"),
    [
        (f"cat >&2 <<'END'\n{CLANG_LOG}\nEND\nexit 1", CompileError, "compile-failed", "error: static assertion"),
        ('echo "LLVM ERROR: out of memory" >&2; exit 1', ToolchainError, "compiler-out-of-memory", "out of memory"),
        # The driver survives its front end, which the system killed.
        (
            'echo "clang++: error: unable to execute command: Killed" >&2; exit 254',
            ToolchainError, "compiler-killed", "killed",
        ),
        ("kill -9 $$", ToolchainError, "compiler-killed", "SIGKILL"),
        ("kill -SEGV $$", ToolchainError, "compiler-crashed", "SIGSEGV"),
        ('echo "ld.lld: error: No space left on device" >&2; exit 1', StoreError, "store-full", "full"),
        ("exit 0", CompileError, "compile-failed", "made no library"),
    ],
)  # fmt: skip
def test_a_compile_that_ends_badly(
    store: Store, rocm: Rocm, body: str, kind: type[TilewrightError], rule: str, words: str, count: int
) -> None:
    folder = rocm(body)
    specs = amd_specs(count)
    with pytest.raises(kind, match=words) as caught:
        build_many(specs)
    assert caught.value.rule == rule
    assert caught.value.remedy
    assert "a later one" not in caught.value.message
    assert len(compiled(folder)) == count
    assert [find(one) for one in specs] == [None] * count
    nothing_left(store)


def test_a_compiler_that_went_away_is_no_matter_of_cxx(store: Store, rocm: Rocm) -> None:
    folder = rocm()
    (spec,) = amd_specs(1)
    find(spec)  # who the compiler is was asked before
    (folder / "bin" / "hipcc").unlink()
    with pytest.raises(ToolchainError, match="hipcc is gone") as caught:
        build_one(spec)
    assert caught.value.rule == "no-compiler"
    assert "doctor" in caught.value.remedy
    nothing_left(store)


@pytest.mark.parametrize(
    ("headers", "rule", "words"),
    [
        ({"newer": True}, "headers-version", "has no CShuffleEpilogueProblem with kBlockSize_"),
        ({"older": True}, "headers-version", "older than mid-2025"),
    ],
)
def test_headers_of_another_version_are_said_before_a_compile(
    store: Store, rocm: Rocm, headers: dict[str, bool], rule: str, words: str
) -> None:
    folder = rocm(**headers)
    with pytest.raises(ToolchainError, match=words) as caught:
        build_many(amd_specs(2))
    assert caught.value.rule == rule
    assert "toolchain install rocm" in caught.value.remedy
    assert compiled(folder) == []
    nothing_left(store)


def test_missing_headers_are_said_before_a_compile(store: Store, rocm: Rocm, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = rocm()
    monkeypatch.setattr(hip, "USUAL", folder / "nowhere")
    (folder / "include" / "ck_tile" / "core.hpp").unlink()
    with pytest.raises(ToolchainError, match="no CK Tile headers") as caught:
        tw.Registry("gfx942", amd_specs(1)).build()
    assert caught.value.rule == "no-headers"
    assert compiled(folder) == []
    nothing_left(store)


def test_an_illegal_config_is_told_by_its_rule_and_not_compiled(store: Store, rocm: Rocm) -> None:
    folder = rocm()
    (good,) = amd_specs(1)
    bad = replace(good, schedule=replace(good.schedule, pipeline="compv3", scheduler="interwave"))
    with pytest.raises(IllegalSpecError, match="interwave") as caught:
        tw.Registry("gfx942", [bad]).build()
    assert caught.value.rule.startswith("amd-")
    assert compiled(folder) == []
    nothing_left(store)


def test_no_compiler_is_said_with_the_command_that_installs_one(store: Store, tmp_path: Path) -> None:
    with (
        settings.override(rocm_path=str(tmp_path)),
        pytest.raises(ToolchainError, match="has no bin/hipcc") as caught,
    ):
        build_one(amd_specs(1)[0])
    assert caught.value.rule == "no-hipcc"
    assert "tilewright toolchain install rocm" in caught.value.remedy


def test_a_store_that_cannot_be_written(rocm: Rocm, tmp_path: Path) -> None:
    folder = rocm()
    (tmp_path / "file").write_text("in the way")
    with settings.override(cache_dir=tmp_path / "file" / "cache"), pytest.raises(StoreError) as caught:
        build_one(amd_specs(1)[0])
    assert str(tmp_path / "file") in caught.value.message
    assert "TILEWRIGHT_CACHE_DIR" in caught.value.remedy
    assert compiled(folder) == []


# -- promises --------------------------------------------------------------------------------------------------------

PLAIN = code_objects.LISTING.replace("v_mfma_f32_32x32x8_f16", "v_fma_f32")


def test_a_kernel_that_keeps_its_promise_is_published(store: Store, rocm: Rocm) -> None:
    rocm()
    assert build_one(amd_specs(1)[0]).manifest["promises"] == "kept"


@pytest.mark.parametrize("count", [1, 3])
def test_a_kernel_without_matrix_instructions_is_not_published(store: Store, rocm: Rocm, count: int) -> None:
    folder = rocm()
    (folder / "listing.txt").write_text(PLAIN)
    specs = amd_specs(count)
    with events.recorded() as heard, pytest.raises(InspectionError, match="v_mfma_") as caught:
        build_many(specs)
    assert caught.value.rule == "no-matrix-instruction"
    assert specs[0].name in caught.value.message
    assert [find(one) for one in specs] == [None] * count
    assert len([one for one in heard if isinstance(one, events.BuildFailed)]) == count
    nothing_left(store)


EARLY = code_objects.LISTING.replace("a[0:15], v[20:21]", "a[0:15], v[0:1]")


def test_a_kernel_that_reads_too_early_is_not_published(store: Store, rocm: Rocm) -> None:
    """v0 comes from memory, and nothing waits for it."""
    folder = rocm()
    (folder / "listing.txt").write_text(EARLY)
    spec = amd_specs(1)[0]
    with pytest.raises(InspectionError, match="v0 of global_load_dwordx4") as caught:
        build_one(spec)
    assert caught.value.rule == "missing-wait"
    assert caught.value.digest == spec.digest  # by which selection knows what to leave out
    assert spec.name in caught.value.message
    assert find(spec) is None
    nothing_left(store)


@pytest.mark.parametrize(("line", "waits"), [("s_nop 0", "kept"), (".long 0xbf800000", "undecided: ")])
def test_the_manifest_says_whether_waits_were_checked(store: Store, rocm: Rocm, line: str, waits: str) -> None:
    """Of code that the disassembler does not know whole, nothing is said: the wait may be what it does not know."""
    folder = rocm()
    listing = code_objects.LISTING.replace("s_load_dwordx4 s[4:7], s[0:1], 0x0", line)
    (folder / "listing.txt").write_text(listing)
    assert build_one(amd_specs(1)[0]).manifest["waits"].startswith(waits)


def test_a_library_without_device_code_is_not_published(store: Store, rocm: Rocm) -> None:
    """What a compiler makes that was not told that the source is HIP."""
    folder = rocm()
    (folder / "library.so").write_bytes(host_library(b""))
    with pytest.raises(InspectionError, match="no AMD device code"):
        build_one(amd_specs(1)[0])
    nothing_left(store)


@pytest.mark.parametrize("how", ["missing", "failing", "ignorant"])
def test_where_nobody_can_look_the_manifest_says_so(store: Store, rocm: Rocm, tmp_path: Path, how: str) -> None:
    rocm()
    listing = PLAIN.replace("v_fma_f32", "<unknown>") if how == "ignorant" else PLAIN
    tool = fake_objdump(tmp_path, listing, status=1 if how == "failing" else 0)
    with settings.override(objdump=str(tmp_path / "none" if how == "missing" else tool)):
        said = build_one(amd_specs(1)[0]).manifest["promises"]
    words = {"missing": "did not answer", "failing": "no such target", "ignorant": "does not know every instruction"}
    assert said.startswith("undecided: ")
    assert words[how] in said
