"""A key changes with every input byte and with nothing else."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build.stubs import FakeTools, tiny_specs
from tilewright import settings
from tilewright.backends.base import CompilerIdentity, Source
from tilewright.build import Builder, headers
from tilewright.build.headers import header_digests, includes_of
from tilewright.build.key import key_inputs
from tilewright.errors import InternalError

HEADERS = {
    "a/tilewright/abi.h": "#define TW_ABI_VERSION 1\n",
    "a/tilewright/one.h": '#pragma once\n#include "two.h"\n#include <stdint.h>\nint one;\n',
    "a/tilewright/two.h": "#pragma once\n#include <tilewright/cpu/three.h>\n#include <tilewright/one.h>\nint two;\n",
    "b/tilewright/cpu/three.h": "int three;\n",
    "b/tilewright/unused.h": "int unused;\n",
}
SOURCE = "// a kernel\n  #  include <tilewright/one.h>\nint main;\n"


def write_headers(root: Path, texts: dict[str, str]) -> tuple[Path, Path]:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "a", root / "b"


def key(root: Path, texts: dict[str, str] = HEADERS, **changes: object) -> str:
    """The key of the example with some input replaced."""
    headers.forget()
    dirs = write_headers(root, texts)
    tools = FakeTools(dirs, **changes.pop("tools", {}))  # type: ignore[arg-type]
    spec = changes.pop("spec", tiny_specs(1)[0])
    source = Source("k.cpp", str(changes.pop("source", SOURCE)), str(changes.pop("language", "c++")))
    arch, extra = str(changes.pop("arch", "generic")), str(changes.pop("extra", ""))
    assert not changes
    return key_inputs(source, arch, tools, spec=spec, extra=extra).key  # type: ignore[arg-type]


def flipped(text: str, position: int) -> str:
    """One byte changed, to another that keeps the text readable."""
    position %= len(text)
    return text[:position] + ("y" if text[position] == "x" else "x") + text[position + 1 :]


@given(st.sampled_from([one for one in HEADERS if "unused" not in one]), st.integers(0, 10_000))
def test_any_byte_of_a_header_that_is_seen_changes_the_key(name: str, position: int) -> None:
    changed = {**HEADERS, name: HEADERS[name] + "/" + "*" * (position % 5) + "*/ "}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        assert key(Path(one)) != key(Path(two), changed)
    # A flipped byte inside a comment or a name counts as well.
    comment = {**HEADERS, name: HEADERS[name] + "// some words in a comment\n"}
    again = {**comment, name: HEADERS[name] + "// " + flipped("some words in a comment", position) + "\n"}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        assert key(Path(one), comment) != key(Path(two), again)


@given(st.integers(0, 10_000))
def test_any_byte_of_the_source_changes_the_key(position: int) -> None:
    text = SOURCE + "int values[] = {1, 2, 3, 4};\n"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        body = flipped("int values[] = {1, 2, 3, 4};", position)
        assert key(root, source=text) != key(root, source=SOURCE + body + "\n")


def test_every_other_input_changes_the_key(tmp_path: Path) -> None:
    base = {
        "plain": key(tmp_path),
        "spec": key(tmp_path, spec=tiny_specs(2)[1]),
        "no spec": key(tmp_path, spec=None),
        "arch": key(tmp_path, arch="x86_64_v3"),
        "extra": key(tmp_path, extra="x"),
        "language": key(tmp_path, language="cuda"),
        "flag": key(tmp_path, tools={"options": ("-O2", "-fPIC")}),
        "flag order": key(tmp_path, tools={"options": ("-fPIC", "-O3")}),
        "flag joined": key(tmp_path, tools={"options": ("-O3 -fPIC",)}),
        "compiler kind": key(tmp_path, tools={"identity": CompilerIdentity("clang", "gcc 1.0", "d" * 64)}),
        "compiler version": key(tmp_path, tools={"identity": CompilerIdentity("gcc", "gcc 1.1", "d" * 64)}),
        "compiler build": key(tmp_path, tools={"identity": CompilerIdentity("gcc", "gcc 1.0", "e" * 64)}),
    }
    assert len(set(base.values())) == len(base)


def test_the_abi_header_counts_although_the_source_does_not_name_it(tmp_path: Path) -> None:
    source = "int nothing_included;\n"
    changed = {**HEADERS, "a/tilewright/abi.h": "#define TW_ABI_VERSION 2\n"}
    assert key(tmp_path / "x", source=source) != key(tmp_path / "y", changed, source=source)


@given(st.permutations(sorted(HEADERS)), st.integers(0, 2_000_000_000))
def test_place_order_and_time_stamps_leave_the_key_alone(order: list[str], stamp: int) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        moved = Path(two) / "somewhere else" / "deep"
        expected = key(Path(one))
        write_headers(moved, {name: HEADERS[name] for name in order})
        for name in order:
            os.utime(moved / name, (stamp, stamp))
        assert key(moved, {}) == expected


def test_a_header_nobody_includes_leaves_the_key_alone(tmp_path: Path) -> None:
    changed = {**HEADERS, "b/tilewright/unused.h": "int other;\n"}
    assert key(tmp_path / "x") == key(tmp_path / "y", changed)


def test_include_folders_in_another_order_leave_the_key_alone(tmp_path: Path) -> None:
    first, second = write_headers(tmp_path, HEADERS)
    assert header_digests(SOURCE, (first, second)) == header_digests(SOURCE, (second, first))


@pytest.mark.usefixtures("needs_compiler")
def test_locale_hash_seed_and_folder_leave_the_key_alone(tmp_path: Path) -> None:
    code = (
        "from tests.build.stubs import tiny_specs; from tilewright.build import Builder;"
        "import sys; sys.stdout.write(Builder().key_of(tiny_specs(1)[0]).key)"
    )
    root = Path(__file__).parent.parent.parent
    keys = set()
    for number, locale in enumerate(("C", "C.UTF-8", "de_DE.ISO-8859-1")):
        environment = settings.child_environment({"LC_ALL": locale, "LANG": locale, "PYTHONHASHSEED": str(number)})
        places = os.pathsep.join([str(root), str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment |= {"PYTHONPATH": places, "TILEWRIGHT_CACHE_DIR": str(tmp_path / locale), "TZ": f"UTC{number}"}
        answer = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        keys.add(answer.stdout)
    assert len(keys) == 1
    assert len(keys.pop()) == 64


def test_the_package_may_be_installed_anywhere(tmp_path: Path) -> None:
    spec = tiny_specs(1)[0]
    here = Builder()._request(spec)
    copies = []
    for number, folder in enumerate(here.toolchain.include_dirs(spec.op)):
        shutil.copytree(folder, tmp_path / f"copy{number}")
        copies.append(tmp_path / f"copy{number}")
    there = FakeTools(tuple(copies), here.toolchain.identity, here.toolchain.flags(spec.arch))
    assert key_inputs(here.source, spec.arch, there, spec=spec).key == here.key


def test_an_edited_header_is_noticed_without_a_new_process(tmp_path: Path) -> None:
    dirs = write_headers(tmp_path, HEADERS)
    before = header_digests(SOURCE, dirs)
    assert header_digests(SOURCE, dirs) == before
    place = tmp_path / "b/tilewright/cpu/three.h"
    place.write_text(place.read_text() + "int more;\n")
    assert header_digests(SOURCE, dirs) != before


def test_the_scanner_finds_both_forms_and_follows_them(tmp_path: Path) -> None:
    dirs = write_headers(tmp_path, HEADERS)
    found = header_digests(SOURCE, dirs)
    assert list(found) == ["tilewright/abi.h", "tilewright/cpu/three.h", "tilewright/one.h", "tilewright/two.h"]
    assert includes_of('#include <a.h>\n # include "b.h" // c\nint x; // #include', "x") == ("<a.h", '"b.h')
    assert includes_of("#if __has_include(<c.h>)\n#endif", "x") == ("<c.h",)


def test_a_computed_include_is_refused_because_its_content_would_be_missed() -> None:
    with pytest.raises(InternalError, match="only a preprocessor can resolve") as caught:
        includes_of("#define H <a.h>\n#include H\n", "x.h")
    assert caught.value.rule == "computed-include"


def test_an_include_that_leaves_the_folders_is_refused(tmp_path: Path) -> None:
    dirs = write_headers(tmp_path, {**HEADERS, "outside.h": "", "a/x.h": '#include "../outside.h"\n'})
    with pytest.raises(InternalError, match="leaves the include folders"):
        header_digests("#include <x.h>\n", dirs)


def test_the_inputs_are_plain_data_that_names_no_place(tmp_path: Path) -> None:
    request = Builder()._request(tiny_specs(1)[0])
    text = repr(request.inputs.values)
    for folder in request.toolchain.include_dirs():
        assert str(folder) not in text
    assert dataclasses.asdict(request.toolchain.identity) == request.inputs.values["compiler"]
