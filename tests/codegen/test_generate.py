"""Generating into a folder: whole files, only what changed, one manifest, clear errors."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import backend
from tilewright.codegen import MANIFEST, Report, collect, generate, workers
from tilewright.codegen.folder import HEAD, SOURCE_MARK, TEMPORARY, output_folder
from tilewright.errors import InternalError, MachineError, RequestError
from tilewright.ops import KernelSpec, op

AXES = {"datatypes": ["fp32", "fp16", "bf16", "int8"], "layouts": ["rrr", "rcr", "crr", "ccr"]}


def some(count: int) -> tuple[KernelSpec, ...]:
    specs = collect("gemm", "x86_64_v3", pool="full", limit=count, axes=AXES).specs
    assert len(specs) == count
    return specs


def tree(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir()}


def times(place: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in place.iterdir()}


def manifest(place: Path) -> list[dict[str, Any]]:
    data = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
    assert data["schema"] == 1
    return list(data["kernels"])


def counts(report: Report) -> tuple[int, int, int]:
    return len(report.written), len(report.unchanged), len(report.removed)


def test_each_spec_gets_one_file_and_one_entry(tmp_path: Path) -> None:
    specs = some(12)
    report = generate(specs, tmp_path / "deep" / "out")
    place = report.folder
    assert counts(report) == (12, 0, 0)
    entries = manifest(place)
    assert [one["name"] for one in entries] == sorted(spec.name for spec in specs)
    assert {path.name for path in place.iterdir()} == {one["file"] for one in entries} | {MANIFEST}
    by_name = {spec.name: spec for spec in specs}
    for entry in entries:
        spec = by_name[entry["name"]]
        assert op(entry["op"]).spec_from_dict(entry["spec"]) == spec
        assert (entry["digest"], entry["arch"]) == (spec.digest, spec.arch)
        assert hashlib.sha256((place / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]


def test_a_second_run_writes_nothing(tmp_path: Path) -> None:
    generate(some(12), tmp_path)
    before = times(tmp_path)
    report = generate(reversed(some(12)), tmp_path)  # the order of the request does not matter
    assert counts(report) == (0, 12, 0)
    assert not report.manifest_written
    assert times(tmp_path) == before


def test_only_what_differs_is_written_again(tmp_path: Path) -> None:
    specs = some(12)
    generate(specs, tmp_path)
    lost, edited = (tmp_path / f"{spec.name}.cpp" for spec in specs[:2])
    whole = tree(tmp_path)
    lost.unlink()
    edited.write_text("someone was here", encoding="utf-8")
    before = times(tmp_path)
    report = generate(specs, tmp_path)
    assert sorted(report.written) == sorted([lost.name, edited.name])
    assert tree(tmp_path) == whole
    after = times(tmp_path)
    assert all(after[name] == before[name] for name in report.unchanged)


def test_the_folder_mirrors_the_request(tmp_path: Path) -> None:
    generate(some(12), tmp_path)
    report = generate(some(5), tmp_path)
    assert counts(report) == (0, 5, 7)
    assert len(manifest(tmp_path)) == 5
    assert len(list(tmp_path.glob("*.cpp"))) == 5


def test_files_of_others_are_never_removed(tmp_path: Path) -> None:
    specs = some(4)
    generate(specs, tmp_path)
    (tmp_path / "mine.cpp").write_text("int main() {}", encoding="utf-8")
    kept = tmp_path / f"{specs[3].name}.cpp"
    kept.write_text("edited by hand", encoding="utf-8")
    report = generate(specs[:2], tmp_path)
    assert report.removed == (f"{specs[2].name}.cpp",)
    assert (tmp_path / "mine.cpp").exists()
    assert kept.read_text(encoding="utf-8") == "edited by hand"


def test_a_manifest_cannot_point_out_of_its_folder(tmp_path: Path) -> None:
    outside = tmp_path / "precious.txt"
    outside.write_text("keep me", encoding="utf-8")
    place = tmp_path / "out"
    generate(some(2), place)
    data = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
    digest = hashlib.sha256(outside.read_bytes()).hexdigest()
    data["kernels"].append({**data["kernels"][0], "file": "../precious.txt", "sha256": digest})
    (place / MANIFEST).write_text(json.dumps(data), encoding="utf-8")
    generate(some(2), place)
    assert outside.exists()


def test_adding_keeps_what_was_there(tmp_path: Path) -> None:
    specs = some(8)
    generate(specs[:5], tmp_path)
    report = generate(specs[3:], tmp_path, add=True)
    assert counts(report) == (3, 2, 0)
    added = tree(tmp_path)
    assert len(manifest(tmp_path)) == 8
    assert counts(generate(specs, tmp_path)) == (0, 8, 0)
    assert {name: one for name, one in tree(tmp_path).items() if name != MANIFEST} == {
        name: one for name, one in added.items() if name != MANIFEST
    }


FOREIGN = {
    "empty": "",
    "half of one": "{",
    "a list": "[]",
    "someone's own": '{"name": "my web app", "version": 3}',
    "kernels of someone else": '{"kernels": ["a", "b"]}',
    "a schema that is text": '{"schema": "1.0", "kernels": []}',
    "odd entries": '{"schema": 1, "kernels": [5]}',
    "numbers for names": '{"schema": 1, "kernels": [{"name": 1, "file": 2, "sha256": 3}]}',
    "deep": "[" * 100_000,
    "deep and whole": '{"schema": 1, "kernels": ' + "[" * 900 + "]" * 900 + "}",
    "no text": "\udcff",
}


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_manifest_that_is_not_ours_is_never_written_over(tmp_path: Path, text: str, add: bool) -> None:
    (tmp_path / MANIFEST).write_bytes(text.encode("utf-8", "surrogateescape"))
    before = tree(tmp_path)
    with pytest.raises(RequestError, match="did not write it") as caught:
        generate(some(3), tmp_path, add=add)
    assert caught.value.rule == "foreign-file"
    assert tree(tmp_path) == before


def test_a_manifest_of_another_version_is_written_again_but_not_added_to(tmp_path: Path) -> None:
    generate(some(3), tmp_path)
    whole = tree(tmp_path)
    (tmp_path / MANIFEST).write_text('{"schema": 99, "kernels": []}', encoding="utf-8")
    with pytest.raises(RequestError) as caught:
        generate(some(3), tmp_path, add=True)
    assert caught.value.rule == "manifest"
    assert caught.value.remedy
    assert counts(generate(some(3), tmp_path)) == (0, 3, 0)
    assert tree(tmp_path) == whole


def test_a_foreign_file_under_a_kernels_name_is_left_alone(tmp_path: Path) -> None:
    specs = some(3)
    mine = tmp_path / f"{specs[1].name}.cpp"
    mine.write_text("int precious;\n", encoding="utf-8")
    (tmp_path / "other.cpp").write_text("int other;\n", encoding="utf-8")
    with pytest.raises(RequestError, match="did not write it") as caught:
        generate(specs, tmp_path)
    assert caught.value.rule == "foreign-file"
    assert sorted(tree(tmp_path)) == sorted([mine.name, "other.cpp"])
    mine.unlink()
    assert counts(generate(specs, tmp_path)) == (3, 0, 0)
    # What we wrote is ours: listed in the manifest, or with our mark where that is lost.
    mine.write_text("// Written by tilewright from the spec, by an older version\n", encoding="utf-8")
    (tmp_path / MANIFEST).unlink()
    assert counts(generate(specs, tmp_path)) == (1, 2, 0)


@pytest.mark.parametrize("arch", ["generic", "sm_90a", "gfx942"])
def test_every_source_says_that_we_wrote_it(arch: str) -> None:
    spec = collect("gemm", arch, pool="tiny", limit=1, axes={"datatypes": ["fp16"], "layouts": ["rcr"]}).specs[0]
    assert SOURCE_MARK in backend(arch_by_name(arch).backend).render(spec).text.encode()[:HEAD]


@pytest.mark.parametrize("name", ["", " ", "a\nb"])
def test_a_folder_that_cannot_be_meant_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError):
        output_folder(name)
    assert not list(tmp_path.iterdir())


def test_an_interrupt_stops_the_workers_at_once(
    tmp_path: Path, eager_processes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    def interrupted(self: Any, timeout: Any = None) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
    monkeypatch.setattr(workers, "CHUNK", 1)
    with pytest.raises(KeyboardInterrupt):
        generate(some(200), tmp_path, jobs=2, on_progress=lambda now, total: done.append(now))
    assert len(done) < 50, "feeders that nobody tells go on to the end"
    assert MANIFEST not in tree(tmp_path)


def test_illegal_specs_are_reported_and_not_written(tmp_path: Path) -> None:
    good = some(2)
    bad = KernelSpec(good[0].op, good[0].signature, good[0].schedule, "nowhere")
    report = generate([*good, bad], tmp_path)
    assert counts(report) == (2, 0, 0)
    assert [one.spec for one in report.rejected] == [bad]
    assert report.rejected[0].violations[0].rule == "arch-name"


def test_a_spec_given_twice_is_written_once(tmp_path: Path) -> None:
    assert counts(generate([*some(3), *some(3)], tmp_path)) == (3, 0, 0)


def test_no_specs_give_an_empty_manifest(tmp_path: Path) -> None:
    assert counts(generate([], tmp_path)) == (0, 0, 0)
    assert manifest(tmp_path) == []


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    generate(some(300), tmp_path, on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (300, 300)
    assert seen == sorted(seen)


@pytest.fixture
def eager_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes for a handful of specs, so that the tests need no thousands."""
    monkeypatch.setattr(workers, "PAYS_FROM", 4)
    monkeypatch.setattr(workers, "CHUNK", 3)


@pytest.mark.usefixtures("eager_processes")
def test_processes_write_the_same_bytes(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    one = generate(some(20), tmp_path / "one", jobs=1)
    two = generate(some(20), tmp_path / "two", jobs=2, on_progress=lambda done, total: seen.append((done, total)))
    assert (one.processes, two.processes) == (1, 2)
    assert counts(one) == counts(two) == (20, 0, 0)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert seen[-1] == (20, 20)
    assert counts(generate(some(20), tmp_path / "two", jobs=2)) == (0, 20, 0)


@pytest.mark.usefixtures("eager_processes")
def test_an_error_in_a_process_arrives_whole(tmp_path: Path) -> None:
    (tmp_path / f"{some(20)[7].name}.cpp").mkdir()
    with pytest.raises(MachineError) as caught:
        generate(some(20), tmp_path, jobs=2)
    assert caught.value.rule == "output-folder"
    assert caught.value.remedy


@pytest.mark.usefixtures("eager_processes")
def test_a_process_that_dies_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(MachineError) as caught:
        generate(some(20), tmp_path, jobs=2)
    assert caught.value.rule == "render-worker"
    assert "--jobs 1" in caught.value.remedy


def test_few_specs_need_no_process() -> None:
    assert workers.processes_for(10, 8) == 1
    assert workers.processes_for(workers.PAYS_FROM * 3, 8) == 3
    assert workers.processes_for(workers.PAYS_FROM * 30, 2) == 2


def test_a_file_in_the_way_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RequestError) as caught:
            generate(some(1), place)
        assert caught.value.rule == "output-folder"
        assert str(place) in str(caught.value)
        assert "not a file" in caught.value.remedy


@pytest.mark.parametrize(
    ("code", "remedy"), [(errno.ENOSPC, "free some space"), (errno.EROFS, "make this one writable")]
)
def test_a_full_or_read_only_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    specs = some(6)
    written = Path.write_bytes
    budget = [3]

    def fails_later(path: Path, data: Any) -> int:
        budget[0] -= 1
        if budget[0] < 0:
            written(path, data[: len(data) // 2])  # a full disk takes a part first
            raise OSError(code, "the disk says no")
        return written(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", fails_later)
        with pytest.raises(MachineError) as caught:
            generate(specs, tmp_path)
    assert caught.value.rule == "output-folder"
    assert remedy in caught.value.remedy
    assert not list(tmp_path.iterdir()), "no part, no manifest, no kernels that no manifest lists"
    report = generate(specs, tmp_path)
    assert counts(report) == (6, 0, 0)


def test_two_specs_of_one_name_are_our_bug(tmp_path: Path) -> None:
    one, other = some(2)
    other.__dict__["_name"] = one.name
    with pytest.raises(InternalError, match="share the name"):
        generate([one, other], tmp_path)


PROGRAM = f"""
import sys
from pathlib import Path
from tilewright.codegen import collect, generate
specs = collect("gemm", "x86_64_v3", pool="full", limit=1200, axes={AXES!r}).specs
generate(specs, Path(sys.argv[1]), jobs=1)
"""


def start(place: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(place)])


def test_killing_it_at_any_moment_leaves_only_whole_files(tmp_path: Path) -> None:
    expected = tmp_path / "expected"
    specs = some(1200)
    generate(specs, expected)
    whole = tree(expected)
    place = tmp_path / "out"
    dice = random.Random(7)
    for _ in range(5):
        for path in list(place.glob("*.cpp"))[::2]:
            path.unlink()  # so that every round has work to do
        enough = len(list(place.glob("*.cpp"))) + dice.randint(1, 250)
        process = start(place)
        while process.poll() is None and len(list(place.glob("*.cpp"))) < enough:
            time.sleep(0.001)
        process.kill()
        process.communicate()
        found = {name: data for name, data in tree(place).items() if not name.endswith(TEMPORARY)}
        assert 0 < len(found) < len(whole), "the kill met the writing"
        assert all(whole[name] == data for name, data in found.items())
    generate(specs, place)
    assert tree(place) == whole, "and no part of a killed run stays behind"


def test_writers_at_once_end_with_one_whole_folder(tmp_path: Path) -> None:
    place = tmp_path / "out"
    running = [start(place) for _ in range(3)]
    for process in running:
        process.communicate()
        assert process.returncode == 0
    assert counts(generate(some(1200), place)) == (0, 1200, 0)
    assert not list(place.glob(f"*{TEMPORARY}"))
