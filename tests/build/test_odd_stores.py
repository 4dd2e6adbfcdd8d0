"""What people, disks and other programs leave in a store: stray files, odd JSON, no space.  None of it is a bug."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.build.stubs import COPY, Stub, tiny_specs, write_stub
from tilewright import settings
from tilewright.build import Artifact, Builder, Store, diagnose, upkeep
from tilewright.build.diagnose import Outcome, compile_failure
from tilewright.build.store import MANIFEST
from tilewright.cli.main import build_app
from tilewright.errors import StoreError

UseStub = Callable[..., Stub]
DEEP = "[" * 100_000
DEEP_BUT_WHOLE = '{"a":' * 500 + "1" + "}" * 500


def run(*words: str) -> Result:
    return CliRunner().invoke(build_app(), list(words))


@pytest.fixture
def three(store: Store, use_stub: UseStub) -> list[Artifact]:
    use_stub()
    return list(Builder(store).build_many(tiny_specs(3)).values())


def commands_work(expected: int = 0) -> None:
    for words in (("cache", "ls"), ("cache", "ls", "--json"), ("cache", "gc"), ("doctor",)):
        done = run(*words)
        assert "bug in Tilewright" not in done.output
        assert done.exit_code == (0 if words[0] == "cache" else done.exit_code), done.output
    done = run("cache", "verify")
    assert done.exit_code == expected, done.output


def test_stray_files_are_no_entries(store: Store, three: list[Artifact]) -> None:
    shard = store.folder(three[0].key).parent
    (store.entries / "README").write_text("mine")
    (store.entries / "ff").write_text("a file where a folder of entries could be")
    (store.entries / "not ours").mkdir()
    (shard / ".DS_Store").write_text("")
    (shard / "backup").mkdir()
    assert sorted(store.all_keys()) == sorted(one.key for one in three)
    assert len(upkeep.usage(store)) == 3
    commands_work()
    assert (store.entries / "README").read_text() == "mine"
    assert (shard / "backup").is_dir()
    assert upkeep.trim(store, 0, in_use_seconds=0).entries == 3


def test_a_file_where_a_folder_of_entries_belongs_is_named(store: Store, use_stub: UseStub) -> None:
    use_stub()
    key = Builder().key_of(tiny_specs(1)[0]).key
    store.prepare()
    store.folder(key).parent.write_text("stray")
    with pytest.raises(StoreError, match="is a file where the kernel store keeps a folder") as caught:
        Builder().build_one(tiny_specs(1)[0])
    assert caught.value.rule == "store-stray"
    assert str(store.folder(key).parent) in caught.value.message


def test_a_file_in_an_entrys_place_is_damage_that_is_mended(store: Store, three: list[Artifact]) -> None:
    folder = store.folder(three[0].key)
    shutil.rmtree(folder)
    folder.write_text("a file")
    commands_work(expected=2)
    with pytest.raises(StoreError, match=three[0].key):
        store.lookup(three[0].key)
    assert Builder().build_one(tiny_specs(1)[0]).path.is_file(), "built again in its place"
    shutil.rmtree(folder)
    folder.write_text("a file")
    assert run("cache", "verify", "--repair").exit_code == 0
    assert run("cache", "verify").exit_code == 0
    assert not folder.exists()


ODD = {
    "deep": DEEP,
    "deep but whole": DEEP_BUT_WHOLE,
    "a list": "[]",
    "a number": "7",
    "no text": "\udcff",
    "empty": "",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_an_odd_format_file_is_another_version_not_a_bug(store: Store, three: list[Artifact], text: str) -> None:
    (store.root / "format.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    done = run("cache", "ls")
    assert done.exit_code == 2
    assert "[store-version]" in done.stderr
    with pytest.raises(StoreError, match="unreadable"):
        Store().lookup(three[0].key)


def _with(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda manifest: {**manifest, **changes}


def _always(text: str) -> Callable[[dict[str, Any]], Any]:
    return lambda manifest: text


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{name: _always(text) for name, text in ODD.items()},
    "files that are a list": _with(files=["kernel.so"]),
    "a library that is a number": _with(library=5),
    "a library elsewhere": _with(library="../../../kernel.so", files={"../../../kernel.so": {"sha256": ""}}),
    "files elsewhere": lambda manifest: _with(files={**manifest["files"], "../x": {"sha256": ""}})(manifest),
    "inputs that are text": _with(inputs="all"),
    "a name that is a list": _with(name=[1]),
    "seconds that are text": _with(seconds="long"),
    "a time that is nothing": _with(built_at=None),
    "a spec that is text": _with(spec="gemm"),
    "facts that are text": lambda manifest: _with(files=dict.fromkeys(manifest["files"], "x"))(manifest),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_an_odd_manifest_is_a_damaged_entry_not_a_bug(
    store: Store, three: list[Artifact], wrong: Callable[[dict[str, Any]], Any], tmp_path: Path
) -> None:
    place = store.folder(three[0].key) / MANIFEST
    made = wrong(json.loads(place.read_bytes()))
    text = made if isinstance(made, str) else json.dumps(made)
    place.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StoreError) as caught:
        store.lookup(three[0].key)
    assert caught.value.rule == "store-corrupt"
    commands_work(expected=2)
    file = tmp_path / "spec.json"
    file.write_text(tiny_specs(1)[0].to_json())
    for words in (("cache", "why", str(file)), ("inspect", str(file))):
        done = run(*words)
        assert done.exit_code != 3, done.output
        assert "bug in Tilewright" not in done.output
    assert Builder().build_one(tiny_specs(1)[0]).path.is_file()
    store.verify(three[0].key)


# -- gc --reset --------------------------------------------------------------------------------------


def test_a_folder_without_a_format_file_is_not_removed(store: Store) -> None:
    (store.root / "entries").mkdir(parents=True)
    (store.root / "holiday.jpg").write_text("precious")
    done = run("cache", "gc", "--reset")
    assert done.exit_code == 2
    assert "[store-foreign]" in done.stderr
    assert (store.root / "holiday.jpg").read_text() == "precious"
    assert (store.root / "entries").is_dir()


def test_reset_removes_what_is_ours_and_nothing_else(store: Store, three: list[Artifact]) -> None:
    (store.root / "notes.txt").write_text("precious")
    (store.entries / "notes.txt").write_text("precious too")
    assert set(upkeep.reset(store).foreign) == {"entries", "notes.txt"}
    assert sorted(one.relative_to(store.root).as_posix() for one in store.root.rglob("*")) == [
        "entries", "entries/notes.txt", "notes.txt",
    ]  # fmt: skip
    (store.root / "notes.txt").unlink()
    shutil.rmtree(store.entries)
    use = Builder().build_one(tiny_specs(1)[0])
    assert use.path.exists()
    assert upkeep.reset(Store()).foreign == ()
    assert not store.root.exists()
    assert upkeep.reset(Store()) == upkeep.Cleaned(), "nothing there is nothing to do"


def test_other_versions_are_told_by_their_format_file(store: Store, three: list[Artifact]) -> None:
    folders = {
        name: store.root.parent / name for name in ("kernels-v0", "kernels-v7", "kernels-v8", "kernels-very-old")
    }
    for folder in folders.values():
        folder.mkdir()
        (folder / "x").write_text("x")
    (folders["kernels-v7"] / "format.json").write_text('{"schema": 7}')
    (folders["kernels-v8"] / "format.json").write_text(DEEP)
    assert upkeep.other_versions(store) == [folders["kernels-v7"]]
    done = run("cache", "gc", "--other-versions", "--json")
    assert json.loads(done.stdout)["other_versions"] == ["kernels-v7"]
    assert {name: folder.exists() for name, folder in folders.items()} == {
        "kernels-v0": True, "kernels-v7": False, "kernels-v8": True, "kernels-very-old": True,
    }  # fmt: skip


# -- a full disk ---------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one MiB, where this user may mount one."""
    place = Path(tempfile.mkdtemp(prefix="tilewright-disk-"))
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        place.rmdir()
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
    place.rmdir()


# As gcc does: it says why, and exits with 1.  What it says goes where the disk is full.
FILLS_THE_DISK = """cat /dev/zero > "$out" 2>/dev/null || {
  echo "cc1plus: fatal error: error writing to $out: No space left on device" >&2; exit 1; }"""
FULL_AND_SILENT = 'cat /dev/zero > "$out" 2>/dev/null; exit 1'


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("body", [FILLS_THE_DISK, FULL_AND_SILENT], ids=["told", "silent"])
def test_a_full_disk_during_a_compile_is_told_as_what_it_is(
    small_disk: Path, tmp_path: Path, body: str, count: int
) -> None:
    stub = write_stub(tmp_path / "bin", body)
    with settings.override(cache_dir=small_disk / "cache", cxx=str(stub.path)):
        with pytest.raises(StoreError) as caught:
            Builder().build_many(tiny_specs(count))
        assert caught.value.rule == "store-full", str(caught.value)
        assert "said nothing" not in str(caught.value)
        assert "header" not in str(caught.value)
        assert "TILEWRIGHT_CACHE_DIR" in caught.value.remedy
        assert not list(Store().temporary.iterdir())
        done = run("build", "gemm", "--pool", "tiny", "--target", "generic")
        assert done.exit_code == 2
        assert "[store-full]" in done.stderr


def test_a_log_that_was_lost_is_asked_for_again(store: Store, use_stub: UseStub) -> None:
    """Of many compiles each writes a log; where that could not be written, one more run tells through a pipe."""
    body = 'if [ -p /dev/stdout ]; then echo "as: error writing: No space left on device"; fi; exit 1'
    use_stub(f'case "$src" in *fp16*) {body};; esac\n{COPY}')
    with pytest.raises(StoreError, match="No space left on device") as caught:
        Builder().build_many(tiny_specs(6))
    assert caught.value.rule == "store-full"


def test_no_room_is_noticed_where_nobody_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "_no_room", lambda store: True)
    silent = compile_failure("k", ["c++"], Outcome(1, "", 0.1), log_path=None, reproduce="", store=tmp_path)
    assert silent.rule == "store-full"
    spoken = Outcome(1, "k.cpp:1:1: error: expected ';'", 0.1)
    told = compile_failure("k", ["c++"], spoken, log_path=None, reproduce="", store=tmp_path)
    assert told.rule == "compile-failed", "a real error is a real error, however full the disk"


def test_a_linker_s_lost_words_are_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "_no_room", lambda store: True)
    cut = Outcome(1, "collect2: error: ld returned 1 exit status\n", 0.1)
    told = compile_failure("k", ["c++"], cut, log_path=None, reproduce="", store=tmp_path)
    assert told.rule == "store-full", "what the linker said before is lost with the disk's space"
    whole = Outcome(1, "/usr/bin/ld: k.o: undefined reference to `x'\n" + cut.log, 0.1)
    told = compile_failure("k", ["c++"], whole, log_path=None, reproduce="", store=tmp_path)
    assert told.rule == "compile-failed"


def test_a_full_disk_is_told_before_what_kernels_did_themselves(store: Store, use_stub: UseStub) -> None:
    specs = tiny_specs(6)
    broken = 'echo "k.cpp:1:1: error: no such thing" >&2; exit 1'
    full = 'echo "ld: final link failed: No space left on device" >&2; exit 1'
    use_stub(f'case "$src" in *{specs[-1].digest[:8]}*) {full};; *) {broken};; esac')
    with pytest.raises(StoreError) as caught:
        Builder().build_many(specs)
    assert caught.value.rule == "store-full"
