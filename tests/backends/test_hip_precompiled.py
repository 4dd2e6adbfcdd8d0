"""The header that compiles for AMD GPUs share: when it is made, that it is made once, and that it changes no code."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import amd_toolchain
from tests.backends.test_hip_toolchain import make_headers
from tilewright import settings
from tilewright.backends.base import CompilerIdentity, Preparing, backend
from tilewright.backends.hip import precompiled
from tilewright.backends.hip.ck_tile import Headers
from tilewright.backends.hip.gemm.ck_tile.templates import example_kernel
from tilewright.backends.hip.toolchain import HipToolchain, find_toolchain, forget
from tilewright.build.prepare import gains, prepare
from tilewright.build.store import Store
from tilewright.inspect.amdgpu import code_objects
from tilewright.inspect.elf import Elf
from tilewright.ops import op
from tilewright.ops.base import KernelSpec

COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do case "$1" in -o) out=$2; shift;; esac; shift; done
echo "$out" >> {record}
sleep 0.05
{body}
"""


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    with settings.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def tools_of(folder: Path, body: str = 'echo made > "$out"') -> tuple[HipToolchain, Path]:
    """A compiler that only writes its output, and the record of what it wrote."""
    record, hipcc = folder / "record", folder / "hipcc"
    hipcc.write_text(COMPILER.format(record=record, body=body))
    hipcc.chmod(0o755)
    make_headers(folder)
    identity = CompilerIdentity("hipcc", "test", "digest")
    return HipToolchain((str(hipcc),), None, "test", identity, Headers(folder, "mid-2025", "headers")), record


def source(folder: Path) -> Path:
    spec = example_kernel("gfx942")
    path = folder / "kernel.hpp"
    path.write_text(backend("hip").render(spec).text)
    return path


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_the_example_is_a_legal_kernel(arch: str) -> None:
    assert not list(op("gemm").check(example_kernel(arch)))


def test_it_is_made_where_enough_kernels_gain_by_it_and_used_from_then_on(cache: Path, tmp_path: Path) -> None:
    tools, record = tools_of(tmp_path)
    assert isinstance(tools, Preparing)
    kernel, few, enough = source(tmp_path), precompiled.WORTH_KERNELS - 1, precompiled.WORTH_KERNELS
    store = Store()
    with store.workspace() as work:
        prepare([(tools, "gfx942", "gemm")] * few, store, work)
        assert not record.exists()
        assert "-Xarch_device" not in tools.command(kernel, tmp_path / "k.so", "gfx942", "gemm")
        prepare([(tools, "gfx942", "gemm")] * enough, store, work)
        prepare([(tools, "gfx942", "gemm")] * enough, store, work)
    assert len(record.read_text().splitlines()) == 1
    words = tools.command(kernel, tmp_path / "k.so", "gfx942", "gemm")
    header = Path(words[words.index("-Xarch_device") + 1].removeprefix("-include"))
    assert header.is_relative_to(cache)
    assert precompiled.compiled(header).read_text() == "made\n"
    assert "-Xarch_device" not in tools.command(kernel, tmp_path / "k.so", "gfx90a", "gemm")  # of another arch
    assert not list(header.parent.glob("*.part"))


def test_small_builds_add_up(cache: Path, tmp_path: Path) -> None:
    """Kernel after kernel, as calls build them: from so many on it is made, and then no more are counted."""
    tools, record = tools_of(tmp_path)
    store = Store()
    with store.workspace() as work:
        for _ in range(precompiled.WORTH_KERNELS - 1):
            prepare([(tools, "gfx942", "gemm")], store, work)
        assert not record.exists()
        prepare([(tools, "gfx90a", "gemm")], store, work)  # of another arch: another header
        assert not record.exists()
        for _ in range(3):
            prepare([(tools, "gfx942", "gemm")], store, work)
    assert len(record.read_text().splitlines()) == 1
    (counted,) = [note for note in cache.rglob(precompiled.WANTED) if note.stat().st_size > 1]
    assert counted.stat().st_size == precompiled.WORTH_KERNELS


def test_only_kernels_that_include_it_count(tmp_path: Path) -> None:
    tools, _ = tools_of(tmp_path)
    render = backend("hip").render
    assert gains(tools, render(example_kernel("gfx942")))
    own = op("gemm").fallback_spec(example_kernel("gfx942").signature, "gfx942")
    assert not gains(tools, render(own))


def test_a_cache_that_cannot_be_written_counts_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert precompiled.wanted(tmp_path / "file" / "key" / "shared.hpp", 2) == 2


def test_builders_at_the_same_time_make_it_once(cache: Path, tmp_path: Path) -> None:
    tools, record = tools_of(tmp_path)

    def one() -> None:
        store = Store()
        with store.workspace() as work:
            prepare([(tools, "gfx942", "gemm")] * precompiled.WORTH_KERNELS, store, work)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(record.read_text().splitlines()) == 1


@pytest.mark.parametrize("body", ["exit 1", 'echo half > "$out"; exit 1', "exit 0"])
def test_kernels_are_compiled_without_it_where_it_cannot_be_made(cache: Path, tmp_path: Path, body: str) -> None:
    tools, record = tools_of(tmp_path, body)
    store = Store()
    with store.workspace() as work:
        prepare([(tools, "gfx942", "gemm")] * precompiled.WORTH_KERNELS, store, work)
    assert record.exists()
    assert "-Xarch_device" not in tools.command(source(tmp_path), tmp_path / "k.so", "gfx942", "gemm")


def test_a_changed_header_of_ours_needs_another_one(cache: Path, tmp_path: Path) -> None:
    ours = tmp_path / "include" / "tilewright"
    glue = ours / "hip" / "glue_mid_2025.h"
    glue.parent.mkdir(parents=True)
    glue.write_text("#include <tilewright/deeper.h>\n")
    (ours / "deeper.h").write_text("int x;")
    (tmp_path / "hipcc").touch()

    def place(flag: str = "-O3", identity: str = "a", arch: str = "gfx942") -> Path:
        return precompiled.header(
            (str(tmp_path / "hipcc"),), (flag,), (tmp_path / "include",), identity, precompiled.text(arch, "gemm")
        )

    first = place()
    (ours / "unused.h").write_text("int other;")
    assert place() == first
    assert len({first, place("-O2"), place(identity="b"), place(arch="gfx90a")}) == 4
    (ours / "deeper.h").write_text("int y;")
    second = place()
    assert second != first
    glue.write_text("#include <tilewright/deeper.h>\n\n")
    assert place() not in (first, second)


def test_a_source_of_no_op_and_an_op_that_shares_nothing_go_without(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, record = tools_of(tmp_path)
    assert not precompiled.text("gfx942", "")
    monkeypatch.setattr(precompiled, "op_kernels", lambda backend, op: object())
    assert tools.preparation("gfx942", "other", 100) is None
    assert not record.exists()


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201", "gfx1250", "gfx908"])
def test_where_ck_tile_has_no_kernels_there_is_no_header_to_share(cache: Path, tmp_path: Path, arch: str) -> None:
    tools, record = tools_of(tmp_path)
    assert tools.preparation(arch, "gemm", 100) is None
    assert not record.exists()


def test_a_kernel_without_ck_tile_takes_no_header_of_it(cache: Path, tmp_path: Path) -> None:
    tools, _ = tools_of(tmp_path)
    store = Store()
    with store.workspace() as work:
        prepare([(tools, "gfx942", "gemm")] * precompiled.WORTH_KERNELS, store, work)
    with_it = tools.command(source(tmp_path), tmp_path / "out.so", "gfx942", "gemm")
    assert any(word.startswith("-include") for word in with_it)
    loops = tmp_path / "loops.hpp"
    loops.write_text(backend("hip").render(op("gemm").fallback_spec(example_kernel("gfx942").signature, "gfx942")).text)
    assert not any(word.startswith("-include") for word in tools.command(loops, tmp_path / "out.so", "gfx942", "gemm"))


def test_those_nobody_uses_any_more_are_swept(cache: Path) -> None:
    folders = {name: cache / "precompiled" / name for name in ("old", "new", "mine")}
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        (folder / "shared.hpp").touch()
        (folder / "shared.hpp.pch").touch()
        if name != "new":
            before = time.time() - precompiled.UNUSED_SECONDS - 1
            for one in folder.iterdir():
                os.utime(one, (before, before))
    precompiled.sweep(folders["mine"] / "shared.hpp")
    assert {name for name, folder in folders.items() if folder.exists()} == {"new", "mine"}


@pytest.mark.amd
def test_machine_code_is_the_same_with_and_without_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a kernel's key need not tell which way it was compiled."""
    spec = example_kernel("gfx942")
    schedule = replace(spec.schedule, tile=(64, 64, 32), pad=(False, False, False))
    other = KernelSpec(spec.op, spec.signature, schedule, spec.arch)
    assert not list(op("gemm").check(other))
    kernel = tmp_path / "kernel.hpp"
    kernel.write_text(backend("hip").render(other).text)
    forget()
    with amd_toolchain.in_force():
        tools = find_toolchain()
        codes = []
        for _ in range(2):
            output = tmp_path / "kernel.so"
            command = tools.command(kernel, output, "gfx942", "gemm")
            environment = settings.child_environment(tools.environment(tmp_path))
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            ((_, image),) = code_objects(output.read_bytes(), "the kernel")
            code = Elf(image, "the kernel").section(".text")
            assert code is not None
            codes.append(("-Xarch_device" in command, Elf(image, "the kernel").bytes_of(code)))
            monkeypatch.setattr(precompiled, "WORTH_KERNELS", 1)
            store = Store()
            with store.workspace() as work:
                prepare([(tools, "gfx942", "gemm")], store, work)
    assert [shared for shared, _ in codes] == [False, True]
    assert codes[0][1] == codes[1][1]
