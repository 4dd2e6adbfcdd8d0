from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.toolchains.conftest import World
from tests.toolchains.fake_archive import make_deb, mirror, recipe, write_index
from tilewright import settings
from tilewright.errors import RequestError, ToolchainError
from tilewright.toolchains import deb, installed, staging
from tilewright.toolchains import install as installing


def no_leftovers(world: World) -> bool:
    place = world.prefix.parent
    return not place.exists() or [one.name for one in place.iterdir() if one.name.startswith(".")] == []


def test_a_toolchain_is_complete_after_an_installation(world: World) -> None:
    found, new = world.install()
    assert new
    assert found.version == "7.2.4"
    assert (found.manifest["llvm"], found.manifest["gcc"]) == ("22", "12")
    # Only what the compiler needs: the newest ROCm line, the base suite for the rest, this machine's libraries.
    packages = {name: one["version"] for name, one in found.manifest["packages"].items()}
    assert packages["libamdhip64-dev"] == "7.2.4-1~exp2"
    assert packages["libamd-comgr-dev"] == "7.2.4+dfsg-1~exp1"
    assert packages["libc6"] == "2.43-7"
    assert packages["real-library"] == "1.0"
    assert not {"rocminfo", "libstdc++-16-dev", "libclang-rt-22-dev"} & set(packages)
    assert set(found.manifest["sysroot"]) == {"libc6", "libc6-dev", "libstdc++-12-dev"}
    assert (world.prefix / "include" / "ck_tile" / "core.hpp").read_text() == "// core"
    assert not (world.prefix / "include" / "ck_tile" / "remod.py").exists()
    assert not (world.prefix / "include" / "ck").exists()
    assert (world.prefix / "include" / "licences" / "LICENSE").exists()
    assert (world.prefix / "sysroot" / "usr" / "lib" / "x86_64-linux-gnu" / "libc.so.6").exists()
    binaries = sorted(one.name for one in (world.prefix / "root/usr/lib/llvm-22/bin").iterdir())
    assert binaries == ["clang", "clang++", "lld"]
    assert installed.verify(found) == []
    assert no_leftovers(world)
    assert not (world.cache / "toolchains" / "downloads").exists()


def test_the_second_installation_does_nothing(world: World) -> None:
    first, _ = world.install()
    world.steps.clear()
    again, new = world.install()
    assert not new
    assert again.manifest == first.manifest
    assert world.steps == []


def test_force_replaces_what_is_there(world: World) -> None:
    world.install()
    (world.prefix / "bin" / "hipcc").write_text("broken")
    found, new = world.install(force=True)
    assert new
    assert installed.verify(found) == []
    assert no_leftovers(world)


def test_the_tested_versions_are_told_from_later_ones(world: World) -> None:
    found, _ = world.install()
    manifest = found.manifest
    tested = {
        "packages": manifest["packages"],
        "sysroot": manifest["sysroot"],
        "sysroot_suite": "bookworm",
        "headers": {"sha256": manifest["headers"]["sha256"]},
    }
    world.notes.clear()
    again, _ = world.install(force=True, recipe=recipe(tested=tested))
    assert again.manifest["tested"]
    assert [one for one in world.notes if "signature" not in one] == []

    world.archive.drop("sid", "clang-22")
    tools = {f"usr/lib/llvm-22/bin/{one}": b"newer" for one in ("clang", "clang++")}
    world.archive.add("sid", "clang-22", "1:22.1.9-1", tools)
    world.notes.clear()
    later, _ = world.install(force=True, recipe=recipe(tested=tested))
    assert not later.manifest["tested"]
    assert "clang-22 1:22.1.9-1: tested with 1:22.1.8-3" in world.notes


def test_the_newest_of_the_same_line_is_taken(world: World) -> None:
    newer = "7.2.10-1"
    world.archive.add("sid", "hipcc", newer, source="rocm-llvm", depends="clang-22, libc6, rocm-device-libs-22")
    world.archive.add("sid", "hipcc", "7.3.0-1", source="rocm-llvm", depends="clang-22, libc6, rocm-device-libs-22")
    found, _ = world.install()
    assert found.version == "7.2.10"


def test_another_line_of_rocm_is_taken_only_with_a_word(world: World) -> None:
    for name in ("hipcc", "libamdhip64-dev", "libamd-comgr-dev", "rocm-device-libs-22"):
        world.archive.drop("experimental", name)
        world.archive.drop("sid", name)
        world.archive.add("sid", name, "7.9.1-1", source="rocm-llvm", depends="clang-22, libc6, rocm-device-libs-22")
    found, _ = world.install()
    assert found.version == "7.9.1"
    assert any("no ROCm 7.2 any more" in one for one in world.notes)


def test_an_archive_without_rocm_is_an_error_that_says_so(world: World) -> None:
    for suite in ("sid", "experimental"):
        world.archive.drop(suite, "hipcc")
    with pytest.raises(ToolchainError, match="has no hipcc in sid") as caught:
        world.install()
    assert caught.value.rule == "no-rocm-in-archive"
    assert "ROCm's own packages" in caught.value.remedy
    assert not world.prefix.exists()


def test_a_missing_dependency_is_named(world: World) -> None:
    world.archive.drop("sid", "real-library")
    with pytest.raises(ToolchainError, match=r"clang-22 needs virtual-library \| nothing") as caught:
        world.install()
    assert caught.value.rule == "archive-dependency"


def test_a_package_with_a_wrong_digest_is_refused(world: World) -> None:
    world.archive.write()
    file = next((world.root / "mirror" / "pool").glob("clang-22_*"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(ToolchainError, match=r"clang-22.* has the digest") as caught:
        world.install()
    assert caught.value.rule == "download-digest"
    assert not world.prefix.exists()
    assert no_leftovers(world)
    # The others were kept, and nothing of the damaged one.
    kept = {one.name for one in (world.cache / "toolchains" / "downloads").iterdir()}
    assert not any(one.startswith("clang-22") for one in kept)


def test_a_truncated_package_is_refused(world: World) -> None:
    world.archive.write()
    file = next((world.root / "mirror" / "pool").glob("clang-22_*"))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ToolchainError, match="cut short"):
        world.install()
    assert not world.prefix.exists()


def test_an_index_with_a_wrong_digest_is_refused(world: World) -> None:
    world.archive.write()
    file = world.root / "mirror" / "dists" / "sid" / "main" / "binary-amd64" / "Packages.xz"
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(ToolchainError) as caught:
        installing.install_rocm(world.prefix, apt_dir=world.apt, recipe=recipe())
    assert caught.value.rule == "download-digest"


def test_a_broken_connection_is_continued_where_it_broke(world: World) -> None:
    world.archive.write()
    with mirror(world.root / "mirror") as server:
        world.use_url(server.url)
        name = next((world.root / "mirror" / "pool").glob("clang-22_*")).name
        server.cuts[name] = [100, 50]
        found, _ = world.install()
        asked = [wanted for path, wanted in server.requests if path.endswith(name)]
    assert asked == ["", "bytes=100-", "bytes=150-"]
    assert installed.verify(found) == []


def test_a_damaged_download_is_fetched_again(world: World) -> None:
    world.archive.write()
    downloads = world.cache / "toolchains" / "downloads"
    downloads.mkdir(parents=True)
    name = next((world.root / "mirror" / "pool").glob("clang-22_*")).name
    (downloads / name).write_bytes(b"damaged")
    (downloads / f"{name}.part").write_bytes(b"x" * 10_000_000)  # longer than the whole file
    found, _ = world.install()
    assert installed.verify(found) == []


_CHILD = """
import sys
import time
from pathlib import Path
from tests.toolchains.fake_archive import recipe
from tilewright.toolchains import install, python_index
python_index.pip_config = lambda: python_index.PipConfig((sys.argv[3],))
install.install_rocm(Path(sys.argv[1]), apt_dir=Path(sys.argv[2]), recipe=recipe())
"""


def test_a_killed_installation_leaves_nothing_and_the_next_one_goes_on(world: World) -> None:
    world.archive.write()
    index = (world.root / "index").as_uri()
    with mirror(world.root / "mirror") as server:
        world.use_url(server.url)
        name = next((world.root / "mirror" / "pool").glob("clang-22_*")).name
        server.cuts[name] = [120]
        server.stalls.add(name)
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(world.cache)}
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(world.prefix), str(world.apt), index],
            env=environment,
            cwd=Path(__file__).parents[2],
        )
        try:
            assert server.stalled.wait(60)
            downloads = world.cache / "toolchains" / "downloads"
            while not any(downloads.glob("hipcc_*.deb")) or not (downloads / f"{name}.part").exists():
                assert child.poll() is None
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert not world.prefix.exists()
        server.stalls.clear()
        server.stop.set()
        server.requests.clear()
        found, new = world.install()
        fetched = [path for path, _ in server.requests]
    assert new
    assert installed.verify(found) == []
    assert not any("/hipcc_" in path for path in fetched)  # finished before the kill: kept


_KILLED = """
import os, signal
from tilewright.toolchains import deb
def unpack(path, root, keep):
    (root / "large").write_bytes(bytes(3 << 20))
    os.kill(os.getpid(), signal.SIGKILL)
install.unpack_deb = unpack
"""


def killed_while_unpacking(world: World) -> list[Path]:
    """What an installation leaves that is killed in the middle."""
    world.archive.write()
    index = (world.root / "index").as_uri()
    lines = _CHILD.strip().splitlines()
    script = "\n".join([*lines[:-1], _KILLED, lines[-1]])
    command = [sys.executable, "-c", script, str(world.prefix), str(world.apt), index]
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(world.cache)}
    done = subprocess.run(command, env=environment, cwd=Path(__file__).parents[2], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = list(world.prefix.parent.glob(".*.partial"))
    assert len(left) == 1
    return left


def test_what_a_kill_leaves_the_next_installation_clears_away(world: World) -> None:
    (left,) = killed_while_unpacking(world)
    world.install()
    assert not left.exists()
    assert no_leftovers(world)
    assert not (world.cache / "toolchains" / staging.NOTE).exists()


def test_what_a_kill_leaves_anyone_who_looks_clears_away(world: World) -> None:
    """Though it lies beside a prefix that nobody names again; fresh downloads stay for the next installation."""
    (left,) = killed_while_unpacking(world)
    downloads = world.cache / "toolchains" / "downloads"
    assert staging.sweep() > 2 << 20
    assert not left.exists()
    assert any(downloads.iterdir())
    assert staging.sweep() == 0
    old = time.time() - 2 * staging.UNUSED_SECONDS
    for one in (*downloads.iterdir(), downloads):
        os.utime(one, (old, old))
    assert staging.sweep() > 0
    assert not downloads.exists()


def test_nothing_is_cleared_away_while_an_installation_runs(world: World) -> None:
    with staging.only_one(), staging.work_folder(world.prefix) as work:
        (work / "file").write_text("x")
        assert staging.sweep() == 0
        assert (work / "file").exists()


def test_a_note_of_anybody_else_clears_nothing_away(world: World) -> None:
    mine = world.root / "mine.partial"
    mine.mkdir(parents=True)
    (world.cache / "toolchains").mkdir(parents=True)
    for text in (json.dumps({"work": str(mine), "prefix": str(world.prefix)}), "[]", "nonsense"):
        (world.cache / "toolchains" / staging.NOTE).write_text(text)
        assert staging.sweep() == 0
        assert mine.is_dir()


def test_a_kill_between_two_renames_loses_no_toolchain(world: World) -> None:
    world.prefix = world.cache / "toolchains" / "rocm"
    found, _ = world.install()
    old = found.prefix.with_name(".rocm.replaced")
    found.prefix.rename(old)
    staging.sweep()
    again = installed.read(found.prefix)
    assert again is not None
    assert installed.verify(again) == []
    assert not old.exists()


def test_an_interruption_while_unpacking_leaves_no_folder(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(path: Path, root: Path, keep: deb.Keep) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(installing, "unpack_deb", interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.install()
    assert not world.prefix.exists()
    assert no_leftovers(world)
    assert any((world.cache / "toolchains" / "downloads").glob("*.deb"))


def test_too_little_space_is_said_before_anything_large_is_fetched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "free_bytes", lambda folder: 1 << 20)
    with pytest.raises(ToolchainError, match="1 MiB free") as caught:
        world.install()
    assert caught.value.rule == "no-space"
    assert not any((world.cache / "toolchains" / "downloads").glob("*.deb"))


@pytest.mark.parametrize("which", ["prefix", "cache"])
def test_a_folder_that_cannot_be_written_is_said_before_anything_is_fetched(world: World, which: str) -> None:
    (world.root / "file").write_text("in the way")
    cache = world.cache
    if which == "prefix":
        world.prefix = world.root / "file" / "rocm"
    else:
        cache = world.root / "file" / "cache"
    with settings.override(cache_dir=cache), pytest.raises(ToolchainError, match="Not a directory") as caught:
        world.install()
    assert caught.value.rule == "toolchain-folder"
    assert str(world.root / "file") in caught.value.message
    assert "--prefix" in caught.value.remedy
    assert world.steps == []
    assert (world.root / "file").read_text() == "in the way"


@pytest.mark.parametrize("step", ["_unpack", "_write_manifest", "publish"])
def test_a_disk_that_fills_up_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(staging if step == "publish" else installing, step, full)
    with pytest.raises(ToolchainError, match="No space left on device") as caught:
        world.install()
    assert caught.value.rule == "toolchain-folder"
    assert not world.prefix.exists()
    assert no_leftovers(world)


def test_no_apt_configuration_says_what_to_install_instead(world: World) -> None:
    with pytest.raises(ToolchainError) as caught:
        world.install(apt_dir=world.root / "nowhere")
    assert caught.value.rule == "not-debian-like"
    assert "rocm-hip-devel" in caught.value.remedy
    assert caught.value.owner == "machine"


def test_another_machine_type_says_what_to_install_instead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(ToolchainError, match="riscv64") as caught:
        world.install()
    assert caught.value.rule == "not-debian-like"


def test_an_archive_that_cannot_be_reached_is_a_machine_error(world: World) -> None:
    world.use_url("http://127.0.0.1:9/archive")  # nothing listens on the discard port
    with pytest.raises(ToolchainError, match="cannot be reached") as caught:
        world.install()
    assert caught.value.rule == "no-rocm-in-archive"
    assert "check the network" in caught.value.remedy


def test_a_folder_of_somebody_else_is_never_touched(world: World) -> None:
    world.prefix.mkdir(parents=True)
    (world.prefix / "thesis.txt").write_text("mine")
    with pytest.raises(RequestError, match="is no toolchain"):
        world.install(force=True)
    assert (world.prefix / "thesis.txt").read_text() == "mine"


def test_a_compiler_that_does_not_work_is_not_published(world: World) -> None:
    world.archive.drop("sid", "libc6")
    loader = b"#!/bin/sh\necho 'fatal error: no such thing' >&2\nexit 1\n"
    world.archive.add("sid", "libc6", "2.43-8", {"usr/lib64/ld-linux-x86-64.so.2": loader})
    with pytest.raises(ToolchainError, match="fatal error: no such thing") as caught:
        world.install()
    assert caught.value.rule == "toolchain-self-check"
    assert not world.prefix.exists()
    assert no_leftovers(world)


def test_saying_no_installs_nothing(world: World) -> None:
    with pytest.raises(RequestError, match="nothing was installed"):
        world.install(confirm=lambda sources: False)
    assert not world.prefix.exists()


def test_two_installations_at_once_do_not_meet(world: World) -> None:
    def second(sources: installing.Sources) -> bool:
        with pytest.raises(ToolchainError, match="another installation is running"):
            world.install()
        return True

    world.install(confirm=second)


def test_the_newest_headers_of_the_line_are_taken_with_a_word(world: World, index_at: Callable[[str], None]) -> None:
    index_at(write_index(world.root / "other", "2.8.2", "2.8.3", "2.8.3.post4", "2.9.0"))
    found, _ = world.install()
    assert found.manifest["headers"]["version"] == "2.8.3.post4"
    assert any("flash-attn 2.8.3.post4: tested with 2.8.3.post2" in one for one in world.notes)


def test_an_index_without_the_headers_is_an_error(world: World, index_at: Callable[[str], None]) -> None:
    index_at(write_index(world.root / "other", "2.9.0"))
    with pytest.raises(ToolchainError, match=r"no 2\.8\.3 release") as caught:
        world.install()
    assert caught.value.rule == "no-headers"


def test_a_distribution_without_the_headers_is_an_error(world: World, index_at: Callable[[str], None]) -> None:
    index_at(write_index(world.root / "other", "2.8.3.post2", headers=False))
    with pytest.raises(ToolchainError, match=r"has no .*ck_tile") as caught:
        world.install()
    assert caught.value.rule == "no-headers"
    assert not world.prefix.exists()


def test_headers_with_another_digest_than_the_tested_ones_are_refused(world: World) -> None:
    with pytest.raises(ToolchainError, match="another digest") as caught:
        world.install(recipe=recipe(tested={"headers": {"sha256": "0" * 64}}))
    assert caught.value.rule == "download-digest"


def test_verify_names_what_changed(world: World) -> None:
    found, _ = world.install()
    (world.prefix / "include" / "ck_tile" / "core.hpp").write_text("// edited")
    (world.prefix / "bin" / "lld").unlink()
    (world.prefix / "root" / "lib").unlink()
    problems = installed.verify(found)
    assert problems == [
        "bin/lld: missing",
        "include/ck_tile/core.hpp: changed",
        "root/lib: the link is gone or points elsewhere",
    ]


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"format": 1, "files_sha256": ""}', "[]"])
def test_a_damaged_manifest_is_an_error_with_the_way_out(world: World, text: str) -> None:
    world.install()
    (world.prefix / "manifest.json").write_text(text)
    with pytest.raises(ToolchainError, match="cannot be used") as caught:
        installed.read(world.prefix)
    assert "--force" in caught.value.remedy
    _, new = world.install(force=True)
    assert new


def test_remove_deletes_only_toolchains(world: World) -> None:
    world.install()
    installed.remove(world.prefix)
    assert not world.prefix.exists()
    assert no_leftovers(world)
    with pytest.raises(RequestError, match="no toolchain"):
        installed.remove(world.root)


@pytest.mark.parametrize("name", ["../outside", "usr/../../outside"])
def test_a_package_cannot_write_outside_its_folder(tmp_path: Path, name: str) -> None:
    file = tmp_path / "evil.deb"
    file.write_bytes(make_deb({name: b"data"}))
    with pytest.raises(ToolchainError, match="leaves the folder"):
        deb.unpack_deb(file, tmp_path / "root", lambda path: True)
    assert not (tmp_path / "outside").exists()


def test_a_link_cannot_lead_outside(tmp_path: Path) -> None:
    file = tmp_path / "evil.deb"
    file.write_bytes(make_deb({}, {"usr/lib/out": "../../../etc"}))
    with pytest.raises(ToolchainError, match="leaves the folder"):
        deb.unpack_deb(file, tmp_path / "root", lambda path: True)


@pytest.mark.parametrize("packed", ["xz", "gz", "bz2"])
def test_absolute_links_are_turned_inwards(tmp_path: Path, packed: str) -> None:
    file = tmp_path / "one.deb"
    file.write_bytes(make_deb({"lib/libz.so.1": b"library"}, {"usr/lib/libz.so": "/lib/libz.so.1"}, packed))
    root = tmp_path / "root"
    deb.prepare_root(root)
    deb.unpack_deb(file, root, lambda path: True)
    assert (root / "usr/lib/libz.so").read_bytes() == b"library"
    assert not (root / "usr/lib/libz.so").readlink().is_absolute()


def test_a_file_that_is_no_package_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "one.deb"
    file.write_bytes(b"<html>portal login</html>")
    with pytest.raises(ToolchainError, match="no Debian package"):
        deb.unpack_deb(file, tmp_path, lambda path: True)


def test_the_manifest_says_where_everything_came_from(world: World) -> None:
    world.install()
    manifest = json.loads((world.prefix / "manifest.json").read_text())
    assert manifest["suites"]["sid"]["signature"].startswith("not checked: ")
    assert all(len(one["sha256"]) == 64 for one in manifest["packages"].values())
    # The archive's address is not: the same packages from two mirrors are one toolchain.
    assert "file:" not in json.dumps(manifest)
