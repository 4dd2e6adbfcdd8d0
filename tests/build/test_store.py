"""The store: whole entries or none, verified when read, one clear error for each kind of trouble."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.build.stubs import Stub, in_child, tiny_specs, wait_code
from tilewright import settings
from tilewright.build import Artifact, Builder, Store
from tilewright.build import store as store_module
from tilewright.build.store import MANIFEST
from tilewright.errors import NoKernelError, StoreError

UseStub = Callable[..., Stub]


def everything(root: Path) -> list[str]:
    """Every file in a store but its own marks, by relative name."""
    found = (one.relative_to(root).as_posix() for one in root.rglob("*") if one.is_file())
    return sorted(one for one in found if one not in ("format.json", "measured") and not one.startswith("built/"))


@pytest.fixture
def built(store: Store, use_stub: UseStub) -> Artifact:
    use_stub()
    return Builder(store).build_one(tiny_specs(1)[0])


def test_an_entry_holds_library_source_and_a_manifest_that_explains_it(store: Store, built: Artifact) -> None:
    spec = tiny_specs(1)[0]
    entry = store.verify(built.key)
    assert entry.library == built.path
    assert everything(store.root) == sorted(
        f"entries/{built.key[:2]}/{built.key}/{name}" for name in ("kernel.so", f"{spec.name}.cpp", MANIFEST)
    )
    manifest = built.manifest
    assert manifest["spec"] == spec.to_dict()
    assert manifest["name"] == spec.name
    assert manifest["seconds"] >= 0
    assert manifest["compiler"] == "gcc (Stub) 1.0"
    assert manifest["files"]["kernel.so"]["bytes"] == built.path.stat().st_size
    assert set(manifest["inputs"]) >= {"source", "headers", "flags", "compiler", "arch", "schema"}


def test_a_key_that_is_not_stored_is_not_an_error(store: Store) -> None:
    assert store.lookup("0" * 64) is None
    assert not store.root.exists(), "looking must not create anything"


def damage_library(entry: Path) -> None:
    data = bytearray((entry / "kernel.so").read_bytes())
    data[len(data) // 2] ^= 1
    (entry / "kernel.so").write_bytes(data)


def truncate_manifest(entry: Path) -> None:
    (entry / MANIFEST).write_bytes((entry / MANIFEST).read_bytes()[:40])


def empty_library(entry: Path) -> None:
    (entry / "kernel.so").write_bytes(b"")


def delete_library(entry: Path) -> None:
    (entry / "kernel.so").unlink()


def delete_manifest(entry: Path) -> None:
    (entry / MANIFEST).unlink()


def swap_key(entry: Path) -> None:
    manifest = json.loads((entry / MANIFEST).read_bytes())
    (entry / MANIFEST).write_text(json.dumps({**manifest, "key": "f" * 64}))


def odd_manifest(entry: Path) -> None:
    (entry / MANIFEST).write_text("[1, 2]")


DAMAGES = [
    damage_library, truncate_manifest, empty_library, delete_library, delete_manifest, swap_key, odd_manifest,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_the_kernel_built_again(
    store: Store, built: Artifact, damage: Callable[[Path], None], use_stub: UseStub
) -> None:
    damage(built.path.parent)
    with pytest.raises(StoreError, match=built.key) as caught:
        store.lookup(built.key)
    assert caught.value.rule == "store-corrupt"
    assert "cache verify --repair" in caught.value.remedy
    stub = use_stub()
    count = len(stub.compiled())
    again = Builder(store).build_one(tiny_specs(1)[0])
    assert again.key == built.key
    assert len(stub.compiled()) == count + 1
    store.verify(built.key)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_in_a_frozen_process_is_an_error_that_names_the_entry(
    store: Store, built: Artifact, damage: Callable[[Path], None]
) -> None:
    damage(built.path.parent)
    with settings.override(frozen=True), pytest.raises(StoreError, match=built.key) as caught:
        Builder(store).build_one(tiny_specs(1)[0])
    assert caught.value.rule == "store-corrupt"
    assert built.path.parent.exists(), "a frozen process changes nothing"


def test_a_changed_source_or_input_is_found_by_verify_only(store: Store, built: Artifact) -> None:
    source = next(built.path.parent.glob("*.cpp"))
    source.write_text(source.read_text() + "// edited\n")
    assert store.lookup(built.key) is not None
    with pytest.raises(StoreError, match="digest differs"):
        store.verify(built.key)
    manifest = json.loads((built.path.parent / MANIFEST).read_bytes())
    manifest["inputs"]["arch"] = "other"
    (built.path.parent / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match="do not hash to its key"):
        store.verify(built.key)


def test_a_frozen_process_uses_what_is_built_and_names_what_is_not(store: Store, built: Artifact) -> None:
    first, second = tiny_specs(2)
    with settings.override(frozen=True):
        assert Builder(store).build_one(first).key == built.key
        with pytest.raises(NoKernelError, match=second.name) as caught:
            Builder(store).build_many([first, second])
    assert caught.value.rule == "frozen"


def test_a_store_of_another_version_is_refused(store: Store, built: Artifact) -> None:
    (store.root / "format.json").write_text('{"schema": 99}')
    other = Store()
    for use in (lambda: other.lookup(built.key), lambda: Builder(other).build_one(tiny_specs(1)[0])):
        with pytest.raises(StoreError, match="format 99") as caught:
            use()
        assert caught.value.rule == "store-version"
        assert "--reset" in caught.value.remedy
    (store.root / "format.json").write_text("not json")
    with pytest.raises(StoreError, match="unreadable"):
        Store().lookup(built.key)


def test_stores_of_two_versions_live_side_by_side(store: Store, built: Artifact) -> None:
    newer = store.root.parent / "kernels-v99"
    newer.mkdir()
    (newer / "format.json").write_text('{"schema": 99}')
    assert store.lookup(built.key) is not None


def test_a_cache_place_that_is_a_file_is_one_error(tmp_path: Path, use_stub: UseStub) -> None:
    use_stub()
    place = tmp_path / "file"
    place.write_text("")
    with pytest.raises(StoreError, match="is not a folder") as caught:
        Builder(Store(place)).build_one(tiny_specs(1)[0])
    assert caught.value.rule == "store-place"


@pytest.mark.parametrize("part", ["entries", "locks"])
def test_a_part_of_the_store_that_is_a_file_is_named(tmp_path: Path, part: str) -> None:
    store = Store(tmp_path / "store")
    store.root.mkdir(parents=True)
    (store.root / part).write_text("a file")
    with pytest.raises(StoreError, match="is not a folder") as caught:
        store.prepare()
    assert str(store.root / part) in caught.value.message
    assert "remove that file" in caught.value.remedy


@pytest.mark.parametrize(
    ("number", "rule"),
    [
        (errno.ENOSPC, "store-full"),
        (errno.EDQUOT, "store-full"),
        (errno.EROFS, "store-read-only"),
        (errno.EACCES, "store-unwritable"),
        (errno.EIO, "store-io"),
    ],
)
@pytest.mark.parametrize("write", range(4))
def test_a_write_that_fails_leaves_nothing_half_written(
    store: Store, use_stub: UseStub, monkeypatch: pytest.MonkeyPatch, number: int, rule: str, write: int
) -> None:
    use_stub()
    real, calls = store_module._write, iter(range(100))

    def failing(path: Path, data: bytes) -> None:
        if next(calls) == write:
            real(path, data[: len(data) // 2])  # as much as fitted
            raise OSError(number, os.strerror(number))
        real(path, data)

    monkeypatch.setattr(store_module, "_write", failing)
    with pytest.raises(StoreError) as caught:
        Builder(store).build_one(tiny_specs(1)[0])
    assert caught.value.rule == rule
    assert caught.value.remedy
    assert everything(store.root) == []
    monkeypatch.undo()
    assert Builder(Store()).build_one(tiny_specs(1)[0]).path.exists()


def test_a_rename_that_fails_is_one_error(store: Store, use_stub: UseStub, monkeypatch: pytest.MonkeyPatch) -> None:
    use_stub()

    def failing(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(StoreError) as caught:
        Builder(store).build_one(tiny_specs(1)[0])
    assert caught.value.rule == "store-full"
    assert everything(store.root) == []


def test_of_a_log_that_cannot_be_written_nothing_stays(store: Store) -> None:
    """On a disk that is full, what could be written of it would take the last room."""
    store.prepare()

    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        assert store.save_log("key", ".log", "words of the compiler\n" * 100) is None

    assert wait_code(in_child(fill)) == 0
    assert list(store.logs.iterdir()) == []


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("limit", [0, 64, 700])
def test_a_disk_that_takes_no_more_is_one_error(store: Store, use_stub: UseStub, limit: int, count: int) -> None:
    """A real limit on file sizes, which compilers run into as well: a file may not grow beyond it."""
    use_stub()
    store.prepare()

    def body() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(StoreError) as caught:
            Builder(store).build_many(tiny_specs(count))
        assert caught.value.rule == "store-full", str(caught.value)
        assert caught.value.owner == "machine"

    assert wait_code(in_child(body)) == 0
    left = [one for one in everything(store.root) if not one.startswith("logs/")]
    assert left == []


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder other users can reach, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="tilewright-test-"))
    folder.chmod(0o755)
    yield folder
    for one in folder.rglob("*"):
        if one.is_dir():
            one.chmod(0o755)
    shutil.rmtree(folder)


NOBODY = 65534


def as_a_stranger(body: Callable[[], None]) -> int:
    """Run where the rights of files count: root becomes another user, and others are bound by them already."""

    def stranger() -> None:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        body()

    return wait_code(in_child(stranger))


def test_a_store_one_may_only_read_serves_hits_and_refuses_builds(open_place: Path, use_stub: UseStub) -> None:
    stub = use_stub()
    shutil.copy(stub.path, open_place / "c++")
    first, second = tiny_specs(2)
    with settings.override(cache_dir=open_place / "cache", cxx=str(open_place / "c++")):
        # The stub's record is out of reach of the other user; the first build warms what it needs.
        key = Builder().build_one(first).key
        for one in (open_place / "cache", *(open_place / "cache").rglob("*")):
            one.chmod(one.stat().st_mode & ~0o222)

        def body() -> None:
            assert Builder().build_one(first).key == key
            with pytest.raises(StoreError) as caught:
                Builder().build_one(second)
            assert caught.value.rule == "store-unwritable", str(caught.value)

        assert as_a_stranger(body) == 0


def test_a_store_that_may_not_be_read_says_so_and_is_not_called_damaged(open_place: Path, use_stub: UseStub) -> None:
    use_stub()
    spec = tiny_specs(1)[0]
    with settings.override(cache_dir=open_place / "cache"):
        artifact = Builder().build_one(spec)
        artifact.path.chmod(0)

        def body() -> None:
            with pytest.raises(StoreError) as caught:
                Store().lookup(artifact.key)
            assert caught.value.rule == "store-unreadable", str(caught.value)

        assert as_a_stranger(body) == 0


def test_losing_the_race_to_publish_is_a_hit(store: Store, built: Artifact, tmp_path: Path) -> None:
    library = tmp_path / "other.so"
    library.write_bytes(b"the loser's library")
    with store.workspace() as work:
        entry = store.publish(built.key, work, library, {"k.cpp": "text"}, {"inputs": {}})
    assert entry.library.read_bytes() != b"the loser's library"
    store.verify(built.key)


def test_publishing_over_a_damaged_entry_replaces_it(store: Store, built: Artifact, tmp_path: Path) -> None:
    data = built.path.read_bytes()
    damage_library(built.path.parent)
    library = tmp_path / "again.so"
    library.write_bytes(data)
    facts = {one: built.manifest[one] for one in ("name", "spec", "inputs")}
    with store.workspace() as work:
        store.publish(built.key, work, library, {"k.cpp": "text"}, facts)
    store.verify(built.key)


def test_a_work_folder_is_gone_afterwards_also_after_an_error(store: Store) -> None:
    def body() -> None:
        with store.workspace() as work:
            (work / "deep").mkdir()
            raise RuntimeError("something")

    with pytest.raises(RuntimeError, match="something"):
        body()
    assert list(store.temporary.iterdir()) == []
