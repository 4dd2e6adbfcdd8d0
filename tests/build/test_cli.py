"""`tilewright cache` and `tilewright doctor`, run as a person would."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.build.stubs import Stub, tiny_specs
from tilewright import settings
from tilewright.backends.cpu import toolchain
from tilewright.backends.cpu.toolchain import find_toolchain
from tilewright.build import Artifact, Builder, Store
from tilewright.cli.main import build_app
from tilewright.ops import op

UseStub = Callable[..., Stub]


def run(*words: str) -> Result:
    return CliRunner().invoke(build_app(), list(words))


def data(*words: str) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def three(store: Store, use_stub: UseStub) -> list[Artifact]:
    use_stub()
    return list(Builder(store).build_many(tiny_specs(3)).values())


def test_ls_lists_what_is_stored(store: Store, three: list[Artifact]) -> None:
    text = run("cache", "ls").output
    for one in three:
        assert one.manifest["name"] in text
        assert one.key[:12] in text
    assert "3 entries" in text
    assert {one["key"] for one in data("cache", "ls")} == {one.key for one in three}


def test_an_absent_store_is_empty_not_an_error(store: Store) -> None:
    for words in (("ls",), ("verify",), ("gc",)):
        result = run("cache", *words)
        assert result.exit_code == 0, result.output
    assert data("cache", "ls") == []


def test_verify_is_quiet_about_sound_entries(store: Store, three: list[Artifact]) -> None:
    result = run("cache", "verify")
    assert result.exit_code == 0
    assert "3 entries checked, 0 damaged" in result.output


def test_verify_reports_damage_with_exit_code_2_and_repairs_when_asked(store: Store, three: list[Artifact]) -> None:
    three[1].path.write_bytes(b"damaged")
    result = run("cache", "verify")
    assert result.exit_code == 2, "the machine's, as docs/errors.md says"
    assert three[1].key in result.output
    assert "--repair" in result.output
    assert run("cache", "verify", "--repair").exit_code == 0
    assert run("cache", "verify").exit_code == 0
    assert len(list(store.all_keys())) == 2


def test_gc_trims_and_clears(store: Store, three: list[Artifact]) -> None:
    (store.temporary / "trash-1-2").mkdir()
    report = data("cache", "gc", "--max-bytes", "0")
    assert report["leavings"] == 1
    assert report["removed_entries"] == 0, "what was built just now is in use"
    assert report["kept_in_use"] == 3
    told = run("cache", "gc", "--max-bytes", "0").stderr
    assert "3 of them" in told
    assert "300 seconds" in told
    assert "--all" in told
    assert data("cache", "gc", "--all")["removed_entries"] == 3
    assert list(store.all_keys()) == []


def test_gc_resets_a_store_of_another_version(store: Store, three: list[Artifact]) -> None:
    (store.root / "format.json").write_text('{"schema": 99}')
    result = run("cache", "ls")
    assert result.exit_code == 2
    assert "store-version" in result.output
    done = run("cache", "gc", "--reset")
    assert done.exit_code == 0
    assert "removed 3 entries" in done.stderr
    assert data("cache", "ls") == []


def test_a_reset_counts_what_it_removed(store: Store, three: list[Artifact]) -> None:
    stored = sum(one["bytes"] for one in data("cache", "ls"))
    report = data("cache", "gc", "--reset")
    assert (report["removed_entries"], report["removed_bytes"]) == (3, stored)
    assert report["entries"] == 0
    assert data("cache", "gc", "--reset")["removed_entries"] == 0


def test_gc_removes_other_versions_only_when_asked(store: Store, three: list[Artifact]) -> None:
    other = store.root.parent / "kernels-v0"
    other.mkdir()
    (other / "format.json").write_text('{"schema": 0}')
    run("cache", "gc")
    assert other.exists()
    assert data("cache", "gc", "--other-versions")["other_versions"] == ["kernels-v0"]
    assert not other.exists()


def test_why_says_when_nothing_differs(store: Store, three: list[Artifact]) -> None:
    text = run("cache", "why", three[0].manifest["name"]).output
    assert "nothing would be compiled" in text
    for word in (three[0].key[:10], tiny_specs(1)[0].digest[:10]):
        assert data("cache", "why", word)["stored"] is True


def test_why_names_the_inputs_that_differ(store: Store, three: list[Artifact], use_stub: UseStub) -> None:
    use_stub(version="2.0", name="newer")
    with settings.override(cxxflags="-DNEW=1"):
        found = data("cache", "why", three[0].manifest["name"])
        text = run("cache", "why", three[0].manifest["name"]).output
    assert found["stored"] is False
    assert found["nearest"]["key"] == three[0].key
    differences = {one["what"]: (one["stored"], one["now"]) for one in found["differences"]}
    assert differences["flags"] == ("nothing", "-DNEW=1")
    assert differences["compiler.version"] == ("gcc (Stub) 1.0", "gcc (Stub) 2.0")
    assert set(differences) == {"flags", "compiler.version", "compiler.digest"}
    assert "-DNEW=1" in text


def test_why_compares_a_new_kernel_with_its_nearest_neighbour(
    store: Store, three: list[Artifact], tmp_path: Path
) -> None:
    spec = tiny_specs(6)[5]
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"name": spec.name, "spec": spec.to_dict()}))
    found = data("cache", "why", str(file))
    assert found["name"] == spec.name
    assert found["nearest"]["key"] in {one.key for one in three}
    names = {one["what"] for one in found["differences"]}
    assert "spec.signature.layout" in names or "spec.signature.dtype_a" in names
    assert not names & {"flags", "compiler.digest"}


def test_why_finds_a_kernel_of_a_pool_that_was_never_built(store: Store, three: list[Artifact]) -> None:
    spec = next(iter(op("gemm").proposals("tiny", "x86_64_v3")))
    found = data("cache", "why", spec.name)
    assert (found["name"], found["stored"]) == (spec.name, False)
    assert "spec.arch" in {one["what"] for one in found["differences"]}


def test_why_of_an_empty_store_and_of_an_unknown_kernel(store: Store, use_stub: UseStub, tmp_path: Path) -> None:
    use_stub()
    file = tmp_path / "spec.json"
    file.write_text(tiny_specs(1)[0].to_json())
    assert "no kernel to compare with" in run("cache", "why", str(file)).output
    result = run("cache", "why", "nonsense")
    assert result.exit_code == 1
    assert "kernel-name" in result.output
    assert run("cache", "why", str(tmp_path / "absent.json")).exit_code == 1
    file.write_text("{}")
    assert "spec-file" in run("cache", "why", str(file)).output


def test_an_unknown_kernel_is_told_the_nearest_of_all_that_are_stored(store: Store, use_stub: UseStub) -> None:
    use_stub()
    specs = tiny_specs(8)
    Builder(store).build_many(specs)
    for spec in specs:
        wrong = spec.name[:-1] + ("x" if spec.name[-1] != "x" else "y")
        assert f"near it: {spec.name}" in run("cache", "why", wrong).stderr


def test_a_stored_kernel_of_an_op_that_is_not_installed_is_told_as_that(store: Store, three: list[Artifact]) -> None:
    file = store.folder(three[0].key) / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["spec"]["op"], manifest["name"] = "fft", "fft_of_another_package"
    file.write_text(json.dumps(manifest))
    result = run("cache", "why", "fft_of_another_package")
    assert result.exit_code == 1
    assert "[op-name]" in result.stderr
    assert "'fft', which is not installed" in result.stderr


def test_why_asks_for_more_when_several_kernels_are_meant(store: Store, three: list[Artifact]) -> None:
    result = run("cache", "why", "gemm_fp32")
    assert result.exit_code == 1
    assert "kernel-ambiguous" in result.output


def test_doctor_finds_a_working_cpu_path(store: Store) -> None:
    result = run("doctor")
    assert result.exit_code == 0, result.output
    for word in ("generic", "hip (", "cuda (", "python", "numpy", "ninja", str(store.root)):
        assert word in result.output
    parts = [line.split()[0] for line in result.output.splitlines()[1:] if line[:1].strip()]
    assert parts[:3] == ["machine", "cpu", "targets"], "what matters comes first"
    assert "cache_max_bytes" not in result.output, "nobody set it"
    assert "cache_dir" in result.output
    assert "cache_max_bytes" in run("doctor", "--all").output


def findings() -> tuple[int, dict[tuple[str, str], Any]]:
    result = run("doctor", "--json")
    return result.exit_code, {(one["part"], one["what"]): one for one in json.loads(result.stdout)["findings"]}


def test_doctor_says_why_a_gpu_is_out_of_reach(store: Store, use_stub: UseStub) -> None:
    _, found = findings()
    for (part, _), one in found.items():
        if part == "targets" and not one["ok"]:
            assert one["text"]


def test_doctor_reports_a_compiler_that_does_not_compile(store: Store, use_stub: UseStub) -> None:
    stub = use_stub('echo "k.cpp:1:1: error: not today" >&2; exit 1')
    code, found = findings()
    assert code == 2
    assert found["compilers", str(stub.path)]["ok"] is True
    assert found["cpu path", "compile and load"]["ok"] is False
    assert "not today" in found["cpu path", "compile and load"]["text"]


def test_doctor_reports_a_library_that_does_not_load(store: Store, use_stub: UseStub) -> None:
    use_stub()  # copies the source: no library
    code, found = findings()
    assert code == 2
    assert found["cpu path", "compile and load"]["ok"] is False


def test_doctor_without_any_compiler_says_what_to_install(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "_wheel_driver", lambda: None)
    with settings.override(cxx=""):
        code, found = findings()
    assert code == 2
    assert "pip install ziglang" in found["compilers", "c++"]["text"]
    with settings.override(cxx=str(tmp_path / "gone")):
        code, found = findings()
    assert code == 2
    assert "no-compiler" in found["compilers", str(tmp_path / "gone")]["text"]


@pytest.mark.usefixtures("needs_compiler")
def test_doctor_reports_a_store_that_takes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    with settings.override(cache_dir=place):
        code, found = findings()
    assert code == 2
    assert found["cpu path", "store takes kernels"]["ok"] is False
    # Zig keeps the stubs of the C library in the cache folder, so it cannot compile without one.
    assert found["cpu path", "compile and load"]["ok"] is (find_toolchain().kind != "zig")
