"""Wrappers: what is written, left alone, removed and refused.  Nothing is compiled here."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.build.stubs import tiny_specs
from tilewright import settings
from tilewright.arch import arch
from tilewright.backends.base import ObjectRules, backend
from tilewright.codegen import MANIFEST, generate
from tilewright.codegen.build_files import BUILD_SYSTEMS
from tilewright.codegen.wrap import RECORD, wrap
from tilewright.errors import MachineError, RequestError, UnknownNameError

SPECS = tiny_specs(4)
ALL = tuple(BUILD_SYSTEMS)


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A folder as `generate` leaves it."""
    return generate(SPECS, tmp_path / "kernels", jobs=1).folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def relist(folder: Path, change: Any) -> None:
    """Edit the manifest of a folder of kernels."""
    path = folder / MANIFEST
    data = json.loads(path.read_bytes())
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def test_one_wrapper_a_kernel_and_nothing_else(kernels: Path, tmp_path: Path) -> None:
    report = wrap(kernels, tmp_path / "out")
    wanted = {f"{spec.name}.cpp" for spec in SPECS}
    assert set(report.written) == wanted
    assert names(report.folder) == {*wanted, RECORD}
    for name in wanted:
        assert f"#include <{name}>" in (report.folder / name).read_text()


@pytest.mark.parametrize("parallel", [False, True])
def test_a_second_run_touches_nothing(kernels: Path, tmp_path: Path, parallel: bool) -> None:
    first = wrap(kernels, tmp_path / "out", build_systems=ALL, parallel=parallel)
    assert all(first.build_files.values())
    before = {path: path.stat().st_mtime_ns for path in first.folder.iterdir()}
    second = wrap(kernels, tmp_path / "out", build_systems=ALL, parallel=parallel)
    assert (second.written, len(second.unchanged), second.removed) == ((), len(SPECS), ())
    assert not any(second.build_files.values())
    assert {path: path.stat().st_mtime_ns for path in first.folder.iterdir()} == before


def test_threads_write_what_one_writes(kernels: Path, tmp_path: Path) -> None:
    many = generate(tiny_specs(9), tmp_path / "many", jobs=1).folder
    one = wrap(many, tmp_path / "one")
    several = wrap(many, tmp_path / "several", parallel=True)
    assert one.written == several.written
    for name in one.written:
        assert (one.folder / name).read_bytes() == (several.folder / name).read_bytes()


def test_only_what_changed_is_rewritten(kernels: Path, tmp_path: Path) -> None:
    first = wrap(kernels, tmp_path / "out")
    (first.folder / first.written[1]).write_text("// Written by `tilewright wrap`, then edited\n", encoding="utf-8")
    assert wrap(kernels, tmp_path / "out").written == (first.written[1],)


def test_a_pattern_chooses(kernels: Path, tmp_path: Path) -> None:
    report = wrap(kernels, tmp_path / "out", pattern="*_rcr_*.cpp")
    assert report.written
    assert all("_rcr_" in name for name in report.written)
    left_out = {name for name, why in report.ignored if "does not match" in why}
    assert left_out == {f"{spec.name}.cpp" for spec in SPECS} - set(report.written)


def test_the_backend_says_how_its_sources_end(kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of the GPUs are headers; here those of the CPU are renamed to stand for them."""

    def to_headers(data: Any) -> None:
        for one in data["kernels"]:
            header = one["file"].replace(".cpp", ".hpp")
            (kernels / one["file"]).rename(kernels / header)
            one.update(file=header)

    relist(kernels, to_headers)
    monkeypatch.setattr(type(backend("cpu")), "wrapper_suffix", ".cu")
    report = wrap(kernels, tmp_path / "out", pattern="*.hpp")
    assert all(name.endswith(".cu") for name in report.written)
    assert f"#include <{SPECS[0].name}.hpp>" in "".join(path.read_text() for path in report.folder.glob("*.c*"))
    beside = wrap(kernels, kernels, pattern="*.hpp")
    assert len(beside.written) == 4, "headers may have their wrappers beside them"


def test_wrappers_of_kernels_that_are_gone_go_too(kernels: Path, tmp_path: Path) -> None:
    out = wrap(kernels, tmp_path / "out").folder
    generate(SPECS[1:], kernels, jobs=1)
    (kernels / f"{SPECS[1].name}.cpp").unlink()  # gone, though the manifest still lists it
    report = wrap(kernels, out)
    assert set(report.removed) == {f"{SPECS[0].name}.cpp", f"{SPECS[1].name}.cpp"}
    assert (f"{SPECS[1].name}.cpp", "in the manifest, but gone") in report.left_out
    assert names(out) == {f"{spec.name}.cpp" for spec in SPECS[2:]} | {RECORD}


def test_what_others_wrote_or_edited_is_never_removed(kernels: Path, tmp_path: Path) -> None:
    out = wrap(kernels, tmp_path / "out").folder
    (out / "mine.cpp").write_text("int mine;\n", encoding="utf-8")
    edited = out / f"{SPECS[0].name}.cpp"
    edited.write_text("int mine_too;\n", encoding="utf-8")
    generate(SPECS[1:], kernels, jobs=1)
    assert wrap(kernels, out).removed == ()
    assert edited.read_text() == "int mine_too;\n"
    assert "mine.cpp" in names(out)


@pytest.mark.parametrize("damage", ["", "no json", '{"schema": 99}', '{"schema": 1, "files": 3, "build_systems": []}'])
def test_without_a_record_nothing_is_removed_and_all_goes_on(kernels: Path, tmp_path: Path, damage: str) -> None:
    out = wrap(kernels, tmp_path / "out").folder
    (out / RECORD).write_text(damage, encoding="utf-8")
    generate(SPECS[1:], kernels, jobs=1)
    report = wrap(kernels, out)
    assert report.removed == ()
    assert len(report.unchanged) == 3


def test_a_record_cannot_point_outside(kernels: Path, tmp_path: Path) -> None:
    out = wrap(kernels, tmp_path / "out").folder
    outside = tmp_path / "outside.cpp"
    outside.write_text("precious", encoding="utf-8")
    record = json.loads((out / RECORD).read_bytes())
    import hashlib

    record["files"]["../outside.cpp"] = hashlib.sha256(b"precious").hexdigest()
    (out / RECORD).write_text(json.dumps(record), encoding="utf-8")
    assert wrap(kernels, out).removed == ()
    assert outside.exists()


def test_build_files_of_earlier_runs_stay_in_step(kernels: Path, tmp_path: Path) -> None:
    out = wrap(kernels, tmp_path / "out", build_systems=["ninja"]).folder
    generate(SPECS[1:], kernels, jobs=1)
    report = wrap(kernels, out, build_systems=["make"])
    assert report.build_systems == ("ninja", "make")
    for name in ("build.ninja", "Makefile", "Makefile.objects"):
        text = (out / name).read_text()
        assert SPECS[0].name not in text
        assert SPECS[1].name in text


def test_our_headers_are_named_once_and_the_kernels_relatively(kernels: Path, tmp_path: Path) -> None:
    out = wrap(kernels, tmp_path / "out", build_systems=ALL).folder
    rules = backend("cpu").object_rules("generic")
    for name in ("CMakeLists.txt", "build.ninja", "Makefile"):
        text = (out / name).read_text()
        for folder in rules.include_dirs:
            assert text.count(f"{folder}\n") + text.count(f"{folder} ") + text.count(f'{folder}"') == 1
        assert str(tmp_path) not in text
        assert "../kernels" in text


def test_foreign_files_among_the_kernels_are_ignored_with_a_reason(kernels: Path, tmp_path: Path) -> None:
    (kernels / "notes.txt").write_text("", encoding="utf-8")
    (kernels / "other.cpp").write_text("int x;", encoding="utf-8")
    (kernels / "sub.cpp").mkdir()
    report = wrap(kernels, tmp_path / "out")
    assert dict(report.ignored) == {"notes.txt": "not in the manifest", "other.cpp": "not in the manifest"}
    assert len(report.written) == len(SPECS)


@pytest.mark.parametrize("name", ["../kernels/a.cpp", "a;b.cpp", 'a"b.cpp', "a\nb.cpp", "a:b.cpp", "a$(b).cpp"])
def test_a_name_no_kernel_of_ours_has_is_left_out_and_named(kernels: Path, tmp_path: Path, name: str) -> None:
    def rename(data: Any) -> None:
        data["kernels"][0]["file"] = name

    if "/" not in name:
        (kernels / name).write_text("", encoding="utf-8")
    relist(kernels, rename)
    report = wrap(kernels, tmp_path / "out", build_systems=ALL)
    assert len(report.written) == len(SPECS) - 1
    assert "its name has characters" in dict(report.left_out)[name]
    for text in ("CMakeLists.txt", "build.ninja", "Makefile"):
        assert name not in (report.folder / text).read_text()


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a\x7fb"])
def test_a_path_with_a_line_break_is_refused_before_anything_is_written(
    kernels: Path, tmp_path: Path, name: str
) -> None:
    kernels.rename(tmp_path / name)
    for source, out in ((tmp_path / name, tmp_path / "out"), (tmp_path / name, tmp_path / name / "below")):
        with pytest.raises(RequestError) as caught:
            wrap(source, out, build_systems=ALL)
        assert caught.value.rule == "path-characters"
        assert not out.exists()
    (tmp_path / "link").symlink_to(tmp_path / name)
    with pytest.raises(RequestError):
        wrap(tmp_path / "link", tmp_path / "out")


@pytest.mark.parametrize(
    ("system", "name"), [("cmake", 'a"b'), ("cmake", "a\\b"), ("cmake", "a[b"), ("make", "a:b"), ("ninja", "a;b")]
)
def test_a_folder_that_a_build_system_cannot_name_is_refused(
    kernels: Path, tmp_path: Path, system: str, name: str
) -> None:
    kernels.rename(tmp_path / name)
    with pytest.raises(RequestError, match="it has the character") as caught:
        wrap(tmp_path / name, tmp_path / "out", build_systems=[system])
    assert caught.value.rule == "path-characters"
    assert not list((tmp_path / "out").glob("*"))
    wrap(tmp_path / name, tmp_path / "out")


# -- refusals ------------------------------------------------------------------------------------------


def _missing(kernels: Path) -> Path:
    return kernels / "nowhere"


def _empty(kernels: Path) -> Path:
    (kernels / "empty").mkdir()
    return kernels / "empty"


def _a_file(kernels: Path) -> Path:
    return kernels / MANIFEST


def _no_manifest(kernels: Path) -> Path:
    (kernels / MANIFEST).unlink()
    return kernels


def _all_gone(kernels: Path) -> Path:
    for path in kernels.glob("*.cpp"):
        path.unlink()
    return kernels


def _damaged(kernels: Path) -> Path:
    (kernels / MANIFEST).write_text('{"schema": 1, "kernels": [{"name"', encoding="utf-8")
    return kernels


def _newer(kernels: Path) -> Path:
    relist(kernels, lambda data: data.update(schema=99))
    return kernels


def _deep(kernels: Path) -> Path:
    (kernels / MANIFEST).write_text("[" * 100_000, encoding="utf-8")
    return kernels


def _text_for_a_list(kernels: Path) -> Path:
    relist(kernels, lambda data: data.update(kernels="all"))
    return kernels


def _number_for_a_name(kernels: Path) -> Path:
    relist(kernels, lambda data: data["kernels"][0].update(file=5))
    return kernels


def _list_for_an_arch(kernels: Path) -> Path:
    relist(kernels, lambda data: data["kernels"][0].update(arch=["generic"]))
    return kernels


def _no_arch(kernels: Path) -> Path:
    relist(kernels, lambda data: data["kernels"][0].pop("arch"))
    return kernels


@pytest.mark.parametrize(
    ("spoil", "rule", "words"),
    [
        (_missing, "kernel-dir", "no such folder"),
        (_a_file, "kernel-dir", "cannot be read"),
        (_empty, "no-kernels", "is empty"),
        (_no_manifest, "no-kernels", "has no manifest.json"),
        (_all_gone, "no-kernels", "lists none that is there"),
        (_damaged, "manifest", "cannot be used"),
        (_newer, "manifest", "schema 99"),
        (_no_arch, "manifest", "no 'arch'"),
        (_deep, "manifest", "nested"),
        (_text_for_a_list, "manifest", "no list of kernels"),
        (_number_for_a_name, "manifest", "has file 5"),
        (_list_for_an_arch, "manifest", "has arch"),
    ],
)
def test_nothing_to_wrap_is_said_and_nothing_written(
    kernels: Path, tmp_path: Path, spoil: Any, rule: str, words: str
) -> None:
    place = spoil(kernels)
    with pytest.raises(RequestError, match=words) as caught:
        wrap(place, tmp_path / "out", build_systems=ALL)
    assert caught.value.rule == rule
    assert caught.value.remedy
    assert not (tmp_path / "out").exists()


def test_a_pattern_that_matches_nothing_names_one_that_would(kernels: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"matches '\*\.hpp'") as caught:
        wrap(kernels, tmp_path / "out", pattern="*.hpp")
    assert caught.value.rule == "no-kernels"
    assert '"*.cpp"' in caught.value.remedy
    assert not (tmp_path / "out").exists()


def test_a_wrapper_never_replaces_its_kernel(kernels: Path) -> None:
    before = {path.name: path.read_bytes() for path in kernels.iterdir()}
    with pytest.raises(RequestError, match="would replace its kernel") as caught:
        wrap(kernels, kernels)
    assert caught.value.rule == "output-dir"
    assert {path.name: path.read_bytes() for path in kernels.iterdir()} == before


@pytest.mark.parametrize("name", ["CMakeLists.txt", "build.ninja", "Makefile", f"{SPECS[0].name}.cpp"])
def test_a_foreign_file_in_the_way_is_left_alone(kernels: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("someone's own\n", encoding="utf-8")
    with pytest.raises(RequestError, match="tilewright did not write it") as caught:
        wrap(kernels, out, build_systems=ALL)
    assert caught.value.rule == "foreign-file"
    assert (out / name).read_text() == "someone's own\n"
    assert names(out) == {name}


def test_an_output_place_that_is_a_file_is_one_error(kernels: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("", encoding="utf-8")
    with pytest.raises(RequestError, match="cannot write") as caught:
        wrap(kernels, tmp_path / "out")
    assert caught.value.rule == "output-folder"


def test_a_folder_where_a_wrapper_should_be_is_one_error(kernels: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / f"{SPECS[0].name}.cpp").mkdir(parents=True)
    with pytest.raises(MachineError, match="cannot write"):
        wrap(kernels, tmp_path / "out")


def test_an_unknown_build_system_names_the_known(kernels: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        wrap(kernels, tmp_path / "out", build_systems=["nninja"])
    assert "'ninja'" in caught.value.remedy


def test_kernels_of_two_compilers_do_not_go_into_one_library(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from tilewright.codegen import wrap as module

    other = replace(arch("x86_64_v3"), backend="elsewhere")
    monkeypatch.setattr(module, "arch_by_name", lambda name: other if name == "x86_64_v3" else arch(name))
    relist(kernels, lambda data: data["kernels"][0].update(arch="x86_64_v3"))
    with pytest.raises(RequestError, match="several compilers") as caught:
        wrap(kernels, tmp_path / "out")
    assert caught.value.rule == "one-backend"


def test_an_unknown_arch_in_the_manifest_is_named(kernels: Path, tmp_path: Path) -> None:
    relist(kernels, lambda data: data["kernels"][0].update(arch="x86_64_v33"))
    with pytest.raises(UnknownNameError) as caught:
        wrap(kernels, tmp_path / "out")
    assert caught.value.rule == "arch-name"


# -- with and without a compiler -----------------------------------------------------------------------


def test_no_compiler_is_needed_to_write_build_files(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.backends.cpu import toolchain

    monkeypatch.setattr(toolchain, "candidates", lambda cxx="": [])
    monkeypatch.setenv("PATH", str(tmp_path))  # a search under a new key, not what was found before
    report = wrap(kernels, tmp_path / "out", build_systems=["make"])
    assert "CXX := c++\n" in (report.folder / "Makefile").read_text()


def test_flags_of_the_user_and_of_the_arch_reach_the_rules() -> None:
    with settings.override(cxxflags="-DANSWER='4 2'"):
        rules = backend("cpu").object_rules("x86_64_v3")
    assert isinstance(rules, ObjectRules)
    assert {"-DANSWER=4 2", "-mavx2", "-fPIC"} <= set(rules.compile_flags)
    assert not {"-shared", "-nodefaultlibs", "-nostdlib++", "-c"} & set(rules.compile_flags)


def test_two_runs_at_once_leave_a_whole_folder(kernels: Path, tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            wrap(kernels, tmp_path / "out", build_systems=ALL, parallel=True)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures
    assert len(wrap(kernels, tmp_path / "out").unchanged) == len(SPECS)
    assert not [name for name in names(tmp_path / "out") if "part" in name]
