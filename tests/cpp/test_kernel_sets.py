"""Kernels declared in C++: checked by the compiler, read from objects, built for archs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cpp import programs
from tilewright.codegen import collect
from tilewright.compat import declared
from tilewright.errors import FileError, RequestError
from tilewright.ops.conv.spec import VARIANTS
from tilewright.ops.gemm.spec import LAYOUTS

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

SOURCE = """
#include <tilewright/kernel_set.hpp>
TW_KERNEL_SET(plain, .add(Signature().dtype("fp32").layout("rcr"), Algorithm().tile(72, ANY_INT, 256))
                     .add(Signature().dtype("fp16").layout("rcr").elementwise("Relu", 1),
                          Algorithm().tile(128, 128, 32).wave(2, 2).warp(32, 32, 16).pipeline("compv4"), "gfx942"));
DECL_KERNEL_SET(named, .add(Signature().dtype("fp32"), Algorithm().tile_m(70).tile_n(500).auto_correct()));
DECL_GROUPED_CONV_KERNEL_SET(convs, .add(GroupedConvSignature().dtype("fp32").direction("fwd").dims(2),
                                         GroupedConvAlgorithm().pipeline(ANY).auto_fill()));
DECL_FMHA_KERNEL_SET(attentions, .add(FmhaSignature().family("fwd").dtype("fp32").hdim(64).mask("causal").lse(),
                                      FmhaAlgorithm().tile_m0(192)));
static_assert(plain.size() == 2 && plain[1].algorithm_size == 4, "data, not text");
"""


def compiled(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "sets.cpp").write_text(source)
    words = [*programs.compiler(), "-std=c++17", *programs.WARNINGS, *programs.INCLUDES, "-c", str(folder / "sets.cpp")]
    return subprocess.run([*words, "-o", str(folder / "sets.o")], capture_output=True, text=True, check=False)


def test_sets_are_read_from_the_object_and_become_kernels(tmp_path: Path) -> None:
    finished = compiled(SOURCE, tmp_path)
    assert finished.returncode == 0, finished.stderr
    rows = list(declared.sets_of(tmp_path / "sets.o"))
    assert [(row.set_name, row.op, row.arch) for row in rows] == [
        ("plain", "gemm", "*"), ("plain", "gemm", "gfx942"), ("named", "gemm", "*"), ("convs", "conv", "*"),
        ("attentions", "attention", "*"),
    ]  # fmt: skip
    first, ck, named, conv, attention = rows
    tiles = [spec.to_dict()["schedule"]["tile"] for spec in declared.specs_of(first, "x86_64_v3")]
    assert tiles
    assert all(tile[0] == 72 and tile[2] == 256 for tile in tiles)
    (spec,) = declared.specs_of(ck, "gfx942")
    assert "Relu" in spec.name
    assert "compv4_128x128x32_2x2x1_32x32x16" in spec.name
    assert {spec.to_dict()["schedule"]["tile"][0] for spec in declared.specs_of(named, "x86_64_v3")} == {72}  # nearest
    assert len(declared.specs_of(conv, "x86_64_v3")) > 2  # all there are
    (spec,) = declared.specs_of(attention, "x86_64_v3")
    assert (spec.signature.mask, spec.signature.return_lse) == ("window", True)
    with pytest.raises(RequestError) as refused:
        declared.specs_of(first, "gfx942")
    assert refused.value.rule == "declared-kernel"


@pytest.mark.parametrize(
    ("add", "said"),
    [
        ('Signature().dtype("fp99"), Algorithm()', "no such type"),
        ('Signature().layout("rxr"), Algorithm()', "use rcr"),
        ("Signature(), Algorithm().tile(0, 1)", "a size is 1 or more"),
        ("Signature(), Algorithm().tile(100, 128, 32).wave(2, 2).warp(32, 32)", "no whole number of waves"),
        ('FmhaSignature().mask("odd"), FmhaAlgorithm()', "use no, causal"),
        ("GroupedConvSignature().dims(4), Algorithm()", "1, 2 or 3"),
        ("FmhaSignature().hdim(ANY_INT, 64), FmhaAlgorithm()", "any of queries"),
        ('Signature().elementwise("Relu", 5), Algorithm()', "0 to 4"),
        ('GroupedConvSignature().elementwise("Relu", 3), Algorithm()', "0, 1 or 2"),
    ],
)
@pytest.mark.sampled(3)
def test_the_compiler_refuses(add: str, said: str, tmp_path: Path) -> None:
    source = f"#include <tilewright/kernel_set.hpp>\nTW_KERNEL_SET(bad, .add({add}));\n"
    finished = compiled(source, tmp_path)
    assert finished.returncode != 0
    assert said in finished.stderr
    assert "error" in finished.stderr


def test_any_stands_for_all_values(tmp_path: Path) -> None:
    source = """#include <tilewright/kernel_set.hpp>
    TW_KERNEL_SET(a, .add(FmhaSignature().dtype("fp32").hdim(ANY_INT), FmhaAlgorithm())
                     .add(GroupedConvSignature().dims(1).direction(ANY), Algorithm())
                     .add(GroupedConvSignature().dims(ANY_INT), Algorithm())
                     .add(Signature().layout(ANY), Algorithm()).add(Signature(), Algorithm()));"""
    finished = compiled(source, tmp_path)
    assert finished.returncode == 0, finished.stderr
    heads, line, ranks, layouts, plain = (
        [spec.signature for spec in declared.specs_of(row, "generic")] for row in declared.sets_of(tmp_path / "sets.o")
    )
    assert len({signature.head_dim for signature in heads}) > 3
    assert {(signature.spatial, signature.variant) for signature in line} == {(2, name) for name in VARIANTS}
    assert {signature.spatial for signature in ranks} == {2, 3}
    assert {signature.layout for signature in layouts} == set(LAYOUTS)
    assert {(signature.layout, signature.epilogue) for signature in plain} == {("rrr", "PassThrough")}


def test_what_a_signature_does_not_say_is_plain_on_every_arch(tmp_path: Path) -> None:
    source = """#include <tilewright/kernel_set.hpp>
    TW_KERNEL_SET(a, .add(Signature(), Algorithm()).add(Signature().elementwise("PassThrough"), Algorithm())
                     .add(Signature().elementwise("Relu"), Algorithm()).add(Signature().elementwise(ANY), Algorithm())
                     .add(GroupedConvSignature(), Algorithm()));"""
    finished = compiled(source, tmp_path)
    assert finished.returncode == 0, finished.stderr
    for arch in ("generic", "sm_90a", "gfx942"):
        labels = [
            {spec.signature.label() for spec in declared.specs_of(row, arch)}
            for row in declared.sets_of(tmp_path / "sets.o")
        ]
        plain, named, activated, several, conv = labels
        assert plain == named == {"fp32_rrr"}, arch
        assert activated == {"fp32_rrr_Relu"}, arch
        assert several > {"fp32_rrr", "fp32_rrr_Relu"}, arch
        assert conv == {"forward_2d_fp32"}, arch


def test_files_that_declare_nothing(tmp_path: Path) -> None:
    assert compiled("int number = 1;\n", tmp_path).returncode == 0
    assert list(declared.sets_of(tmp_path / "sets.o")) == []
    with pytest.raises(RequestError) as refused:
        declared.build([tmp_path / "sets.o"], ["x86_64_v3"], tmp_path / "out")
    assert refused.value.rule == "declared-none"
    with pytest.raises(FileError):
        list(declared.sets_of(tmp_path / "sets.cpp"))
    assert declared.main([str(tmp_path / "none.o"), "--archs", "generic", "--output", str(tmp_path / "out")]) == 1


def test_kernels_are_built_for_archs(tmp_path: Path) -> None:
    text = '#include <tilewright/kernel_set.hpp>\nTW_KERNEL_SET(one, .add(Signature().dtype("fp32").layout("rcr"), '
    assert compiled(text + 'Algorithm().pipeline("loops").auto_correct(), "generic"));\n', tmp_path).returncode == 0
    assert declared.main([str(tmp_path / "sets.o"), "--archs", "generic", "--output", str(tmp_path / "out")]) == 0
    folder = tmp_path / "out" / "generic"
    data = json.loads((folder / "registry.json").read_text())
    assert data["target"] == "generic"
    assert len(data["kernels"]) >= 1
    # What an earlier build left goes, of this arch and of one that is asked for no more; what is the user's stays.
    for name in ("kernels/old.so", "select/old.so", "kernels/notes.txt"):
        (folder / name).write_text("old")
    (tmp_path / "out" / "sm_90a" / "kernels").mkdir(parents=True)
    for name in ("registry.json", "kernels/old.so"):
        (tmp_path / "out" / "sm_90a" / name).write_text("{}")
    declared.build([tmp_path / "sets.o"], ["generic"], tmp_path / "out")
    named = {entry["library"] for entry in (*data["kernels"], *data["selection"].values())}
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert there == named | {"registry.json", "kernels/notes.txt"}
    assert [file for file in (tmp_path / "out" / "sm_90a").rglob("*") if file.is_file()] == []


@pytest.mark.proof
@pytest.mark.skipif(not programs.cmake(), reason="needs cmake")
def test_cmake_builds_what_is_declared(tmp_path: Path) -> None:
    place = programs.call(sys.executable, "-m", "tilewright", "--cmake-dir").strip()
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(mine CXX)\nfind_package(tilewright CONFIG REQUIRED)\n"
        "add_executable(mine main.cpp)\ntarget_link_libraries(mine PRIVATE tilewright::tilewright)\n"
        "tilewright_add_kernels(mine SOURCES main.cpp ARCHS generic)\n"
    )
    (tmp_path / "main.cpp").write_text(
        "#include <tilewright/kernel_set.hpp>\n#include <tilewright/tilewright.hpp>\n"
        'TW_KERNEL_SET(mine, .add(Signature().dtype("fp32").layout("rcr"), Algorithm().auto_correct()));\n'
        'int main() { return tw::Registry::open(TW_KERNELS "/generic").size() ? 0 : 1; }\n'
    )
    ninja = ("-G", "Ninja") if shutil.which("ninja") else ()
    words = ("-S", str(tmp_path), "-B", str(tmp_path / "build"), f"-Dtilewright_DIR={place}")
    programs.call("cmake", *ninja, *words, f"-DTILEWRIGHT_PYTHON={sys.executable}")
    programs.call("cmake", "--build", str(tmp_path / "build"))
    programs.call(str(tmp_path / "build" / "mine"))
    assert "Building" not in programs.call("cmake", "--build", str(tmp_path / "build"))  # only what changed
    # Another declaration: what was built for the first is gone, and of both only what is new is compiled.
    source, folder = tmp_path / "main.cpp", tmp_path / "build" / "mine-kernels" / "generic" / "kernels"
    before = {file.name for file in folder.iterdir()}
    source.write_text(source.read_text().replace('"rcr"', '"rrr"'))
    programs.call("cmake", "--build", str(tmp_path / "build"))
    programs.call(str(tmp_path / "build" / "mine"))
    data = json.loads((folder.parent / "registry.json").read_text())
    assert {file.name for file in folder.iterdir()} == {f"{entry['digest']}.so" for entry in data["kernels"]}
    assert not before & {file.name for file in folder.iterdir()}


def test_a_pool_of_an_op_is_built_beside_declarations_or_alone(tmp_path: Path) -> None:
    """What DISPATCHER_RULE_SET of CMake names."""
    words = ["--archs", "generic", "--output", str(tmp_path / "out"), "--ops", "gemm", "--rule-set", "tiny"]
    assert declared.main([*words, "--datatypes", "fp32", "--variants", "standard"]) == 0
    data = json.loads((tmp_path / "out" / "generic" / "registry.json").read_text())
    built = {kernel["digest"] for kernel in data["kernels"] if not kernel["fallback"]}
    tiny = collect("gemm", "generic", pool="tiny", axes={"datatypes": ("fp32",)}).specs
    assert built == {spec.digest for spec in tiny}
    assert declared.main([*words[:-1], "tinny"]) == 1
    assert declared.main(words[:4]) == 1  # neither sources nor ops


@pytest.mark.proof
@pytest.mark.skipif(not programs.cmake(), reason="needs cmake")
def test_cmake_builds_the_rule_set_that_is_named(tmp_path: Path) -> None:
    place = programs.call(sys.executable, "-m", "tilewright", "--cmake-dir").strip()
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(mine CXX)\nfind_package(tilewright CONFIG REQUIRED)\n"
        "add_executable(mine main.cpp)\ntarget_link_libraries(mine PRIVATE tilewright::tilewright)\n"
        "tilewright_add_kernels(mine OPS conv ARCHS generic DATATYPES fp32 VARIANTS forward)\n"
    )
    (tmp_path / "main.cpp").write_text(
        "#include <tilewright/tilewright.hpp>\n"
        'int main() { return tw::Registry::open(TW_KERNELS "/generic").size() ? 0 : 1; }\n'
    )
    words = ("-S", str(tmp_path), "-B", str(tmp_path / "build"), f"-Dtilewright_DIR={place}")
    programs.call("cmake", *words, f"-DTILEWRIGHT_PYTHON={sys.executable}", "-DDISPATCHER_RULE_SET=tiny")
    programs.call("cmake", "--build", str(tmp_path / "build"))
    programs.call(str(tmp_path / "build" / "mine"))
    data = json.loads((tmp_path / "build" / "mine-kernels" / "generic" / "registry.json").read_text())
    assert len(data["kernels"]) == len(collect("conv", "generic", pool="tiny", axes={"datatypes": ("fp32",)}).specs)


@pytest.mark.proof  # 13 s of compilers
@pytest.mark.skipif(not programs.cmake(), reason="needs cmake")
@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_cmake_compiles_declarations_as_the_program_does(tmp_path: Path) -> None:
    """With its include folders and definitions, not for link-time optimisation; other archs are other work of make."""
    place = programs.call(sys.executable, "-m", "tilewright", "--cmake-dir").strip()
    source, build = tmp_path / "a source", tmp_path / "a build"
    (source / "mine").mkdir(parents=True)
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(mine CXX)\nfind_package(tilewright CONFIG REQUIRED)\n"
        "add_executable(mine main.cpp)\ntilewright_add_kernels(mine SOURCES main.cpp ARCHS ${ARCHS} OUTPUT built)\n"
        "target_include_directories(mine PRIVATE mine)\ntarget_compile_definitions(mine PRIVATE LAYOUT=rcr)\n"
    )
    (source / "mine" / "tile.hpp").write_text("#define TILE 72, 256, 256\n#define TEXT(word) #word\n")
    (source / "main.cpp").write_text(
        '#include "tile.hpp"\n#include <tilewright/kernel_set.hpp>\n#define WORD(word) TEXT(word)\n'
        'TW_KERNEL_SET(mine, .add(Signature().dtype("fp32").layout(WORD(LAYOUT)), '
        "Algorithm().tile(TILE).auto_correct()));\nint main() {}\n"
    )
    words = ("-G", "Unix Makefiles", "-S", str(source), "-B", str(build), f"-Dtilewright_DIR={place}")
    more = (f"-DTILEWRIGHT_PYTHON={sys.executable}", "-DCMAKE_CXX_FLAGS=-flto")
    for archs in ("generic", "generic;x86_64_v3"):
        programs.call("cmake", *words, *more, f"-DARCHS={archs}")
        programs.call("cmake", "--build", str(build), "--target", "mine-kernels")
        assert {file.parent.name for file in (build / "built").glob("*/registry.json")} == set(archs.split(";"))
