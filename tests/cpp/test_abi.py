"""Programs and libtilewright of different versions: older programs run, newer and quite other ones are refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import tilewright as tw
from tests.cpp import programs
from tests.cpp.test_front_end import host
from tests.cpp.test_same_choice import line
from tilewright.arch.host import l2_bytes
from tilewright.native.judge import native_kernels

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

TESTS = programs.CPP / "tests"
PROBLEM = tw.GemmProblem(m=40, n=50, k=60, layout="rcr")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    registry = programs.registry_of(host(), [PROBLEM], "tiny")
    return registry.export(tmp_path_factory.mktemp("kernels")).parent


@pytest.mark.proof
def test_an_older_program_runs_with_this_library(folder: Path, tmp_path: Path) -> None:
    """Compiled with the header of 1.1, it gets the choice that a program of today gets."""
    program = programs.program(TESTS / "abi" / "old_client.cpp", tmp_path / "old_client", header=False)
    spec = next(iter(tw.Registry.from_json((folder / "registry.json").read_text()).specs()))
    kernels = native_kernels((spec,))
    assert kernels is not None
    signature = json.dumps(spec.to_dict()["signature"], sort_keys=True, separators=(",", ":"))
    numbers = map(str, map(int, kernels.problem(PROBLEM)))
    said = programs.call(str(program), str(folder), ",".join(kernels.problem_names), signature, *numbers).split()
    chooser = programs.program(TESTS / "choose.cpp", tmp_path / "choose")
    words = (str(chooser), str(folder), "2", str(l2_bytes()))
    digest, tier, seconds = programs.call(*words, input=line(PROBLEM) + "\n").split()
    assert said == [digest, {"heuristic": "3"}[tier], seconds, "1"]


def fields(header: str) -> dict[str, list[str]]:
    """The fields of the structs of a header, by the struct's name, in their order."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    structs = re.findall(r"typedef struct (\w+) \{(.*?)\}", text, flags=re.DOTALL)
    return {name: re.findall(r"(\w+)(?:\[\d+\])?\s*[,;]", body) for name, body in structs}


def layout(header: Path, asked: dict[str, list[str]], folder: Path) -> str:
    """Where a compiler puts fields of structs, how large they are, and what it takes functions for."""
    rows = [f'  printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));'
            for name, members in asked.items() for field in members]  # fmt: skip
    source = folder / f"{header.stem}.cpp"
    begin = f'#include <cstdio>\n#include <cstddef>\n#include "{header}"\nint main() {{\n'
    source.write_text(begin + "\n".join(rows) + "\n}\n")
    programs.call(*programs.compiler(), *programs.INCLUDES, str(source), "-o", str(source.with_suffix("")))
    return programs.call(str(source.with_suffix("")))


def test_structs_only_grow_at_their_ends(tmp_path: Path) -> None:
    old, new = TESTS / "abi" / "runtime_1_1.h", programs.CPP / "include" / "tilewright" / "runtime.h"
    before, now = fields(old.read_text()), fields(new.read_text())
    assert before["tw_problem"][0] == "size"
    assert len(before) > 5
    for name, members in before.items():
        assert now[name][: len(members)] == members
    assert len(now["tw_choice"]) > len(before["tw_choice"])  # or the client of then shows nothing of growth
    assert layout(new, before, tmp_path) == layout(old, before, tmp_path)
    moved = tmp_path / "moved.h"  # that it can fail: a field in the middle
    moved.write_text(new.read_text().replace("const int64_t *values;", "const int64_t *other, *values;"))
    assert layout(moved, before, tmp_path) != layout(old, before, tmp_path)


def test_functions_are_what_they_were() -> None:
    """Those of 1.1 are declared as they were then."""
    texts = []
    for header in (TESTS / "abi" / "runtime_1_1.h", programs.CPP / "include" / "tilewright" / "runtime.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
        texts.append({" ".join(one.split()) for one in re.findall(r"TW_RUNTIME_API [^;#]*;", text)})
    before, now = texts
    before = {each.replace("(*tell)", "(*visit)") for each in before}  # a parameter's name is no part of the ABI
    assert len(before) > 20
    assert before <= now


def test_it_exports_what_its_header_declares() -> None:
    """Nothing else, such as instances of the standard library's templates, which would stand in for a program's own."""
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("needs nm")
    rows = programs.call(nm, "-D", "--defined-only", str(programs.runtime())).splitlines()
    header = (programs.CPP / "include" / "tilewright" / "runtime.h").read_text()
    declared = set(re.findall(r"^TW_RUNTIME_API [^;(]*?(\w+)\(", header, flags=re.MULTILINE))
    assert {row.split()[-1].split("@")[0] for row in rows} == declared
    assert all(name.startswith("tw_") for name in declared)
    assert len(declared) > 30


@pytest.mark.parametrize(("version", "works"), [((1, 1), False), ((2, 0), False), ((0, 9), False), ((1, 99), True)])
def test_a_program_with_another_library(version: tuple[int, int], works: bool, folder: Path, tmp_path: Path) -> None:
    """A library that says it is of another version: an older one lacks what the program calls."""
    source = tmp_path / "version.cpp"
    number = version[0] << 16 | version[1]
    source.write_text(f'extern "C" long tw_runtime_version(void) {{ return {number}; }}\n')
    other = tmp_path / "version.so"
    programs.call(*programs.compiler(), "-shared", "-fPIC", str(source), "-o", str(other))
    chooser = programs.program(TESTS / "choose.cpp", tmp_path / "choose")
    words = [str(chooser), str(folder), "2", str(l2_bytes())]
    finished = subprocess.run(words, input=line(PROBLEM) + "\n", capture_output=True, text=True, check=False,
                              env={**os.environ, "LD_PRELOAD": str(other)})  # fmt: skip
    assert (finished.returncode == 0) is works, finished.stderr
    if not works:
        assert "runtime-version" in finished.stderr
        assert f"{version[0]}.{version[1]}" in finished.stderr
