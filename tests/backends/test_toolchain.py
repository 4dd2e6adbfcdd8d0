"""The host's compiler: found in order, identified by what it says, turned into place-free flags."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build.stubs import tiny_specs, write_stub
from tilewright import settings
from tilewright.arch import all_archs, runnable_host_archs
from tilewright.backends import search
from tilewright.backends.cpu import toolchain
from tilewright.backends.cpu.toolchain import CpuToolchain, find_toolchain, identify
from tilewright.build import Store, build_one
from tilewright.errors import RequestError, ToolchainError
from tilewright.runtime.abi import ABI_VERSION

needs_zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="the ziglang wheel is not installed (pip install ziglang)"
)


@pytest.fixture
def only_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A path with stub compilers of the given names and nothing else."""

    def make(*names: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name in names:
            write_stub(folder, name=name, version=f"{len(name)}.0")
        monkeypatch.setenv("PATH", str(folder))
        return folder

    return make


def test_the_setting_comes_first(only_on_path: Callable[..., Path], tmp_path: Path) -> None:
    only_on_path("c++", "g++")
    mine = write_stub(tmp_path / "mine", name="my-compiler")
    with settings.override(cxx=f"{mine.path} -m32"):
        with_words = find_toolchain()
    with settings.override(cxx=str(mine.path)):
        plain = find_toolchain()
    assert with_words.driver == (str(mine.path), "-m32")
    assert with_words.identity.digest != plain.identity.digest, "the words change the code, so they change the key"


def test_then_the_path_in_order(only_on_path: Callable[..., Path]) -> None:
    folder = only_on_path("clang++")
    with settings.override(cxx=""):
        assert find_toolchain().driver == (str(folder / "clang++"),)
    only_on_path("g++")
    (folder / "clang++").rename(folder / "elsewhere")
    (folder / "c++").symlink_to("g++")
    toolchain._find.cache_clear()
    with settings.override(cxx=""):
        assert find_toolchain().driver == (str(folder / "c++"),)


def test_a_broken_compiler_is_passed_over_for_the_next(only_on_path: Callable[..., Path]) -> None:
    folder = only_on_path("c++", "g++")
    (folder / "c++").write_text("#!/bin/sh\nexit 1\n")
    with settings.override(cxx=""):
        assert find_toolchain().driver == (str(folder / "g++"),)


def test_none_at_all_says_what_to_install(only_on_path: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    only_on_path()
    monkeypatch.setattr(toolchain, "_wheel_driver", lambda: None)
    with settings.override(cxx=""), pytest.raises(ToolchainError, match=r"no C\+\+ compiler") as caught:
        find_toolchain()
    assert caught.value.rule == "no-compiler"
    assert "pip install ziglang" in caught.value.remedy
    assert "g++" in caught.value.remedy


def test_a_setting_that_names_no_compiler_is_an_error_not_a_search(tmp_path: Path) -> None:
    with settings.override(cxx=str(tmp_path / "nothing")), pytest.raises(ToolchainError) as caught:
        find_toolchain()
    assert caught.value.rule == "no-compiler"
    assert "TILEWRIGHT_CXX" in caught.value.remedy


@pytest.mark.parametrize("body", ["exit 3", "echo; echo", "exec sleep 100"])
def test_a_setting_that_names_something_else_is_an_error(
    tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "ANSWER_SECONDS", 0.2)
    odd = tmp_path / "odd"
    odd.write_text(f"#!/bin/sh\n{body}\n")
    odd.chmod(0o755)
    with settings.override(cxx=str(odd)), pytest.raises(ToolchainError) as caught:
        find_toolchain()
    assert caught.value.rule == "broken-compiler"


def test_the_same_build_has_the_same_identity_wherever_it_is(tmp_path: Path) -> None:
    one = identify((str(write_stub(tmp_path / "a", version="9.1").path),))
    two = identify((str(write_stub(tmp_path / "b", version="9.1", name="g++").path),))
    other = identify((str(write_stub(tmp_path / "c", version="9.2").path),))
    assert one.identity == two.identity
    assert other.identity.digest != one.identity.digest


def test_clangs_folder_is_no_part_of_its_identity(tmp_path: Path) -> None:
    found = []
    for place in ("x", "y"):
        path = tmp_path / place
        path.write_text(
            "#!/bin/sh\n"
            'if [ "$1" = -dumpmachine ]; then echo aarch64-linux-gnu; exit; fi\n'
            f"echo clang version 18.1.0; echo Target: aarch64-linux-gnu; echo InstalledDir: /opt/{place}\n"
        )
        path.chmod(0o755)
        found.append(identify((str(path),)))
    assert found[0].identity == found[1].identity
    assert (found[0].kind, found[0].machine) == ("clang", "aarch64")


def test_the_name_it_is_called_by_is_no_part_of_its_identity(tmp_path: Path) -> None:
    real = shutil.which("g++")
    if real is None:
        pytest.skip("needs g++")
    (tmp_path / "other-name").symlink_to(real)
    assert identify((str(tmp_path / "other-name"),)).identity == identify((real,)).identity


def test_an_x86_arch_on_another_machine_is_refused(tmp_path: Path) -> None:
    tools = identify((str(write_stub(tmp_path).path),))
    arm = CpuToolchain(tools.driver, "gcc", "aarch64", tools.identity)
    with pytest.raises(ToolchainError, match="compiles for aarch64") as caught:
        arm.flags("x86_64_v3")
    assert caught.value.rule == "arch-machine"
    assert "generic" in caught.value.remedy
    assert "-O3" in arm.flags("generic")


@pytest.mark.parametrize("arch", [one.name for one in all_archs().values() if one.backend == "cpu"])
def test_flags_name_no_place_and_the_command_holds_all_of_them(arch: str, tmp_path: Path) -> None:
    tools = identify((str(write_stub(tmp_path).path),))
    flags = tools.flags(arch)
    assert not [one for one in flags if "/" in one]
    assert set(all_archs()[arch].compile_flags) <= set(flags)
    command = tools.command(Path("in.cpp"), Path("out.so"), arch)
    rest = list(command[1:])
    for one in flags:
        rest.remove(one)
    assert sorted(rest) == sorted(["-o", "out.so", "in.cpp", *(f"-I{one}" for one in tools.include_dirs())])
    assert all(one.is_dir() for one in tools.include_dirs())
    # Libraries after the source that needs them.
    assert command.index("in.cpp") < command.index("-lm")


def test_extra_flags_of_the_settings_are_part_of_the_flags(tmp_path: Path) -> None:
    tools = identify((str(write_stub(tmp_path).path),))
    with settings.override(cxxflags="-g '-DA=b c'"):
        assert {"-g", "-DA=b c"} <= set(tools.flags("generic"))
    with settings.override(cxxflags="'open"), pytest.raises(RequestError, match="closing quotation"):
        tools.flags("generic")


@pytest.mark.parametrize("arch", [one.name for one in all_archs().values() if one.backend == "cpu"])
def test_the_real_compiler_takes_the_flags_of_every_arch(arch: str, tmp_path: Path) -> None:
    facts = all_archs()[arch]
    tools = find_toolchain()
    if facts.machines and tools.machine not in facts.machines:
        pytest.skip(f"{tools.machine} compiler")
    with settings.override(cache_dir=tmp_path / "cache"):
        artifact = build_one(tiny_specs(1, arch=arch)[0])
        if arch in {one.name for one in runnable_host_archs()}:
            assert ctypes.CDLL(str(artifact.path)).tw_abi_version() == ABI_VERSION
        data = artifact.path.read_bytes()
    assert b"libstdc++" not in data
    assert b"libc++" not in data


@needs_zig
def test_zig_serves_where_there_is_no_other_compiler(only_on_path: Callable[..., Path], tmp_path: Path) -> None:
    only_on_path()
    # The wheel builds its C library stubs once, in half a minute: a place that outlives the test.
    with settings.override(cxx=""):
        tools = find_toolchain()
        assert tools.kind == "zig"
        assert tools.identity.version.startswith("zig ")
        artifact = build_one(tiny_specs(1)[0])
        assert ctypes.CDLL(str(artifact.path)).tw_abi_version() == ABI_VERSION
        assert b"libc++" not in artifact.path.read_bytes()
        Store().verify(artifact.key)
        assert settings.current().cache_dir.joinpath("zig").is_dir()


@needs_zig
def test_zig_aims_at_the_arch_not_at_this_cpu() -> None:
    driver = toolchain._wheel_driver()
    assert driver is not None
    tools = identify(driver)
    assert "-mcpu=baseline" in tools.flags("generic")
    assert tools.environment(Path("work"))["ZIG_LOCAL_CACHE_DIR"] == str(Path("work/zig"))


def test_compilers_speak_english_and_see_no_include_path_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPATH", "/somewhere")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    environment = settings.child_environment({"EXTRA": "1"})
    assert "CPATH" not in environment
    assert (environment["LC_ALL"], environment["EXTRA"]) == ("C", "1")
