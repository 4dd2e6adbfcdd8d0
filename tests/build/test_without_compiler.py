"""A filled store serves a machine that has no compiler at all, frozen or not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.build.stubs import Stub, tiny_specs
from tilewright import events, settings
from tilewright.backends.base import Source
from tilewright.backends.cpu import toolchain as cpu
from tilewright.build import (
    Builder,
    Store,
    build_many,
    build_one,
    build_source,
    find,
    inspected,
    without_compiler,
)
from tilewright.build.headers import header_digests
from tilewright.build.key import source_inputs
from tilewright.errors import NoKernelError, StoreError, ToolchainError

UseStub = Callable[..., Stub]


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on this machine has no C++ compiler."""

    def hide() -> None:
        monkeypatch.setattr(cpu, "candidates", lambda cxx="": [])
        cpu._find.cache_clear()

    return hide


@pytest.fixture(autouse=True)
def look_again() -> object:
    yield
    cpu._find.cache_clear()


def test_frozen_finds_what_was_built_by_whoever(
    store: Store, use_stub: UseStub, no_compiler: Callable[[], None]
) -> None:
    specs = tiny_specs(3)
    use_stub()
    built = build_many(specs[:2])
    support = build_source(Source("team.cpp", "int one;", "c++"), "generic", extra_key="x")
    no_compiler()
    with settings.override(frozen=True):
        seen: list[events.Event] = []
        again = build_many(specs[:2], on_event=seen.append)
        assert {digest: one.key for digest, one in again.items()} == {digest: one.key for digest, one in built.items()}
        assert [(one.name, one.cached) for one in seen if isinstance(one, events.KernelBuilt)] == [
            (spec.name, True) for spec in specs[:2]
        ]
        found = find(specs[0])
        assert found is not None
        assert (found.spec, found.path) == (specs[0], built[specs[0].digest].path)
        assert find(specs[2]) is None
        with pytest.raises(NoKernelError, match=specs[2].name) as caught:
            build_one(specs[2])
        assert caught.value.rule == "frozen"
        assert build_source(Source("team.cpp", "int one;", "c++"), "generic", extra_key="x").key == support.key
        for other in (("int two;", "x"), ("int one;", "y")):
            with pytest.raises(NoKernelError, match="team"):
                build_source(Source("team.cpp", other[0], "c++"), "generic", extra_key=other[1])


def test_so_does_a_process_that_is_not_frozen(store: Store, use_stub: UseStub, no_compiler: Callable[[], None]) -> None:
    """What the store does not hold is an error as before: there is no compiler."""
    here, missing = tiny_specs(2)
    use_stub()
    built = build_one(here)
    support = build_source(Source("team.cpp", "int one;", "c++"), "generic")
    no_compiler()
    found = find(here)
    assert found is not None
    assert build_one(here).path == found.path == built.path
    assert build_source(Source("team.cpp", "int one;", "c++"), "generic").path == support.path
    for ask in (build_one, find):
        with pytest.raises(ToolchainError) as caught:
            ask(missing)
        assert caught.value.rule == "no-compiler"


def test_a_compiler_that_was_named_and_is_not_there_is_an_error(store: Store, use_stub: UseStub) -> None:
    (spec,) = tiny_specs(1)
    use_stub()
    build_one(spec)
    cpu._find.cache_clear()
    with settings.override(cxx="/no/such/compiler"), pytest.raises(ToolchainError) as caught:
        build_one(spec)
    assert caught.value.rule == "no-compiler"


def test_the_newest_of_several_counts_and_a_damaged_one_does_not(
    store: Store, use_stub: UseStub, no_compiler: Callable[[], None]
) -> None:
    (spec,) = tiny_specs(1)
    keys = []
    for version in ("1.0", "2.0"):
        use_stub(version=version, name=f"stub-{version}")
        keys.append(build_one(spec).key)
    assert len(set(keys)) == 2
    no_compiler()
    with settings.override(frozen=True):
        newest = build_one(spec)
        assert newest.key == keys[1]
        newest.path.write_bytes(b"damaged")
        assert build_one(spec).key == keys[0]
        (store.folder(keys[0]) / "manifest.json").unlink()
        store.discard(keys[0])
        with pytest.raises(StoreError) as caught:
            build_one(spec)
        assert caught.value.rule == "store-corrupt"


def test_kernels_of_another_version_of_our_headers_do_not_count(
    store: Store, use_stub: UseStub, no_compiler: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (spec,) = tiny_specs(1)
    use_stub()
    build_one(spec)
    no_compiler()

    def changed(*args: object, **more: object) -> dict[str, object]:
        found = source_inputs(*args, **more)  # type: ignore[arg-type]
        return {**found, "headers": {**found["headers"], "tilewright/abi.h": "another"}}

    with settings.override(frozen=True):
        assert find(spec) is not None
        monkeypatch.setattr(without_compiler, "source_inputs", changed)
        assert find(spec) is None
        assert find(replace(spec, arch="x86_64_v3")) is None


_CALL = """
import sys
import numpy as np
import tilewright as tw
if sys.argv[1] == "hidden":
    from tilewright.backends.cpu import toolchain
    toolchain.candidates = lambda cxx="": []
    tw.settings.configure(frozen=True)
a = np.arange(12, dtype=np.float32).reshape(3, 4)
for _ in range(2):
    assert (tw.gemm(a, a.T.copy()) == a @ a.T).all()
print("right")
"""


def test_a_call_runs_where_no_compiler_is(tmp_path: Path) -> None:
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path), "TILEWRIGHT_THREADS": "2"}
    for how in ("filled", "hidden"):
        command = [sys.executable, "-c", _CALL, how]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.strip()) == (0, "right"), done.stderr
        assert done.stderr == ""


def test_what_is_looked_into_is_of_today_s_headers(
    store: Store, use_stub: UseStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spec,) = tiny_specs(1)
    use_stub()
    first = build_one(spec).path
    assert inspected._library(Builder(), spec) == first, "it is not built again"

    def changed(*args: Any) -> dict[str, str]:
        return {**header_digests(*args), "tilewright/abi.h": "another"}

    for place in ("key", "compile_run"):
        monkeypatch.setattr(f"tilewright.build.{place}.header_digests", changed)
    second = inspected._library(Builder(), spec)
    assert second != first, "a build of other headers says nothing of the kernel as it is now"
    assert inspected._library(Builder(), spec) == second
