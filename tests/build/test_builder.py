"""The builder: what is missing is compiled once, reported as it ends, and failures are told apart."""

from __future__ import annotations

import ctypes
import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends.cpu.gemm.names import CpuPackedSchedule
from tests.build.stubs import COPY, Stub, tiny_specs
from tilewright import events, settings
from tilewright.arch import best_host_arch, host_facts
from tilewright.backends.base import Source, backend
from tilewright.backends.cpu.toolchain import CpuToolchain
from tilewright.build import Builder, Store, build_many, build_one, build_source, find
from tilewright.build.diagnose import first_error
from tilewright.build.jobs import available_memory, job_limit
from tilewright.build.ninja_run import Compile, build_file
from tilewright.errors import CompileError, IllegalSpecError, ToolchainError
from tilewright.ops.base import KernelSpec
from tilewright.runtime.abi import ABI_VERSION

UseStub = Callable[..., Stub]

ERROR_LOG = """k.cpp: In function 'int f()':
k.cpp:3:5: warning: unused variable 'error' [-Wunused-variable]
k.cpp:9:1: note: an error: far away
gemm.h:41:7: error: 'Tile' was not declared in this scope
gemm.h:52:7: error: a later one
"""


def only_first_fails(body: str) -> str:
    """A stub that treats one kernel badly and the others well."""
    return f'case "$src" in *{tiny_specs(1)[0].digest[:8]}*) {body};; esac\n{COPY}'


def test_each_spec_is_compiled_once_ever(store: Store, use_stub: UseStub) -> None:
    stub = use_stub()
    specs = tiny_specs(6)
    first = build_many([*specs, *specs])
    assert list(first) == [one.digest for one in specs]
    assert sorted(stub.compiled()) == sorted(f"{one.name}.cpp" for one in specs)
    second = Builder().build_many(specs)
    assert {one: second[one].path for one in second} == {one: first[one].path for one in first}
    assert build_one(specs[0]).path == first[specs[0].digest].path
    assert len(stub.compiled()) == 6


def test_find_never_compiles(store: Store, use_stub: UseStub) -> None:
    stub = use_stub()
    spec = tiny_specs(1)[0]
    assert find(spec) is None
    build_one(spec)
    found = find(spec)
    assert found is not None
    assert found.spec == spec
    assert len(stub.compiled()) == 1


def test_events_tell_the_plan_and_each_end(store: Store, use_stub: UseStub) -> None:
    use_stub()
    specs = tiny_specs(4)
    build_one(specs[0])
    heard: list[events.Event] = []
    with events.recorded() as recorded:
        build_many(specs, max_workers=2, on_event=heard.append)
    assert heard == recorded
    plan = heard[0]
    assert isinstance(plan, events.BuildPlanned)
    assert (plan.total, plan.cached) == (4, 1)
    assert 1 <= plan.jobs <= 2
    ends = [one for one in heard[1:] if isinstance(one, events.KernelBuilt)]
    assert sorted(one.digest for one in ends) == sorted(one.digest for one in specs)
    assert [one.digest for one in ends if one.cached] == [specs[0].digest]


def test_each_kernel_is_in_the_store_when_its_end_is_told(store: Store, use_stub: UseStub) -> None:
    use_stub()
    specs = {one.digest: one for one in tiny_specs(5)}
    seen: list[str] = []

    def check(event: events.Event) -> None:
        if isinstance(event, events.KernelBuilt):
            assert find(specs[event.digest]) is not None
            seen.append(event.digest)

    build_many(specs.values(), on_event=check)
    assert sorted(seen) == sorted(specs)


@pytest.mark.parametrize("count", [1, 4])
def test_a_failed_kernel_names_the_first_real_error_and_the_others_are_built(
    store: Store, use_stub: UseStub, count: int
) -> None:
    log = "\n".join(f"echo '{line}' >&2" for line in ERROR_LOG.replace("'", '"').splitlines())
    use_stub(only_first_fails(f"{log}\nexit 1"))
    specs = tiny_specs(count)
    with events.recorded() as heard, pytest.raises(CompileError) as caught:
        build_many(specs)
    error = caught.value
    assert error.rule == "compile-failed"
    assert specs[0].name in error.message
    assert 'gemm.h:41:7: error: "Tile" was not declared in this scope' in error.message
    assert "later" not in error.message
    text = Path(error.log_path).read_text()
    assert "unused variable" in text
    assert "a later one" in text
    assert error.log_path in str(error)
    failed = [one for one in heard if isinstance(one, events.BuildFailed)]
    assert [(one.name, one.log_path) for one in failed] == [(specs[0].name, error.log_path)]
    assert all(find(one) is not None for one in specs[1:])
    assert find(specs[0]) is None
    assert list(store.temporary.iterdir()) == []
    assert list(store.locks.iterdir()) == []


def test_the_command_to_reproduce_a_failure_runs_as_it_stands(store: Store, use_stub: UseStub, tmp_path: Path) -> None:
    stub = use_stub('echo "k.cpp:1:1: error: no" >&2; exit 1')
    with pytest.raises(CompileError) as caught:
        build_one(tiny_specs(1)[0])
    before = len(stub.compiled())
    answer = subprocess.run(
        ["sh", "-c", caught.value.reproduce], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 1
    assert "error: no" in answer.stderr
    assert len(stub.compiled()) == before + 1
    source = next(word for word in caught.value.reproduce.split() if word.endswith(".cpp"))
    assert Path(source).exists()


def test_several_failures_are_counted(store: Store, use_stub: UseStub) -> None:
    use_stub('echo "k.cpp:1:1: error: no" >&2; exit 1')
    with pytest.raises(CompileError, match="and 2 more kernels failed"):
        build_many(tiny_specs(3))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "body",
    [
        "kill -9 $$",
        "kill -15 $$",
        'echo "g++: fatal error: Killed signal terminated program cc1plus" >&2; exit 1',
        'echo "clang: error: unable to execute command: Killed" >&2; exit 254',
    ],
)
def test_a_killed_compiler_is_told_apart(store: Store, use_stub: UseStub, body: str, count: int) -> None:
    use_stub(only_first_fails(body))
    specs = tiny_specs(count)
    with pytest.raises(ToolchainError, match="was killed") as caught:
        build_many(specs)
    assert caught.value.rule == "compiler-killed"
    assert "TILEWRIGHT_JOBS=1" in caught.value.remedy
    assert all(find(one) is not None for one in specs[1:])


@pytest.mark.parametrize("count", [1, 3])
def test_a_compiler_out_of_memory_is_told_apart(store: Store, use_stub: UseStub, count: int) -> None:
    use_stub('echo "cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes" >&2; exit 1')
    with pytest.raises(ToolchainError, match="ran out of memory") as caught:
        build_many(tiny_specs(count))
    assert caught.value.rule == "compiler-out-of-memory"


@pytest.mark.parametrize("count", [1, 3])
def test_a_crashed_compiler_is_told_apart(store: Store, use_stub: UseStub, count: int) -> None:
    use_stub("kill -11 $$")
    with pytest.raises(ToolchainError, match="crashed") as caught:
        build_many(tiny_specs(count))
    assert caught.value.rule == "compiler-crashed"


@pytest.mark.parametrize("count", [1, 3])
def test_a_compiler_that_vanished_is_told_apart(store: Store, use_stub: UseStub, count: int) -> None:
    stub = use_stub()
    specs = tiny_specs(count)
    assert find(specs[0]) is None  # the compiler is known now
    stub.path.unlink()
    with pytest.raises(ToolchainError, match="gone or cannot be run") as caught:
        build_many(specs)
    assert caught.value.rule == "no-compiler"
    assert "tilewright doctor" in caught.value.remedy


@pytest.mark.parametrize("count", [1, 3])
def test_a_compiler_that_makes_nothing_is_an_error(store: Store, use_stub: UseStub, count: int) -> None:
    use_stub("exit 0")
    with pytest.raises(CompileError, match="made no library"):
        build_many(tiny_specs(count))


def test_a_disk_full_told_by_the_compiler_is_a_store_error(store: Store, use_stub: UseStub) -> None:
    use_stub('echo "/usr/bin/ld: final link failed: No space left on device" >&2; exit 1')
    with pytest.raises(Exception, match="is full") as caught:
        build_one(tiny_specs(1)[0])
    assert getattr(caught.value, "rule", "") == "store-full"


def test_warnings_are_kept_beside_the_kernel(store: Store, use_stub: UseStub) -> None:
    use_stub(f'echo "k.cpp:1:1: warning: hm" >&2\n{COPY}')
    artifact = build_one(tiny_specs(1)[0])
    assert "warning: hm" in (artifact.path.parent / "compiler.log").read_text()
    store.verify(artifact.key)


def test_another_compiler_or_flag_is_another_key(store: Store, use_stub: UseStub) -> None:
    spec = tiny_specs(1)[0]
    keys = []
    for version in ("1.0", "1.1"):
        use_stub(version=version, name=f"c++-{version}")
        keys.append(build_one(spec).key)
        with settings.override(cxxflags="-DX=1"):
            keys.append(build_one(spec).key)
    assert len(set(keys)) == 4


def test_an_illegal_spec_is_not_compiled(store: Store, use_stub: UseStub) -> None:
    stub = use_stub()
    spec = tiny_specs(1)[0]
    bad = KernelSpec(spec.op, spec.signature, CpuPackedSchedule("packed", (8, 8, 8), (8, 8, 8), split_k=-3), spec.arch)
    with pytest.raises(IllegalSpecError):
        build_one(bad)
    assert stub.compiled() == []


def test_a_header_edited_during_a_compile_never_lands_under_the_old_key(
    store: Store, use_stub: UseStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "include"
    (folder / "tilewright").mkdir(parents=True)
    header = folder / "tilewright" / "abi.h"
    header.write_text("int before;\n")
    use_stub(f"echo 'int after; // longer' > {header}\n{COPY}")
    monkeypatch.setattr(CpuToolchain, "include_dirs", lambda self, op="": (folder,))
    with pytest.raises(CompileError, match=r"tilewright/abi\.h changed while") as caught:
        build_one(tiny_specs(1)[0])
    assert caught.value.rule == "headers-changed"
    assert list(store.all_keys()) == []
    assert build_one(tiny_specs(1)[0]).path.exists()


def test_names_with_odd_characters_survive_ninja_and_the_shell(store: Store, use_stub: UseStub, tmp_path: Path) -> None:
    use_stub()
    with settings.override(cache_dir=tmp_path / "a $place: with 'quotes'", cxxflags="-DTEXT='\"a b\"'"):
        built = build_many(tiny_specs(3))
    assert len(built) == 3


def test_the_build_file_has_one_edge_for_each_kernel() -> None:
    text = build_file([Compile(("cc", "-o", "a b", "x$y"), Path("s.cpp"), Path("o.so"))])
    assert text.count("\nbuild ") == 1
    assert "cc -o 'a b' 'x$$y'" in text


def test_an_interrupted_build_kills_its_compilers_and_leaves_nothing(store: Store, use_stub: UseStub) -> None:
    use_stub()

    def interrupt(event: events.Event) -> None:
        if isinstance(event, events.KernelBuilt):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_many(tiny_specs(6), on_event=interrupt)
    assert list(store.temporary.iterdir()) == []
    assert list(store.locks.iterdir()) == []
    assert len(build_many(tiny_specs(6))) == 6


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (ERROR_LOG, "gemm.h:41:7: error: 'Tile' was not declared in this scope"),
        (
            "a.cpp:1:10: fatal error: x.h: No such file\ncompilation terminated.",
            "a.cpp:1:10: fatal error: x.h: No such file",
        ),
        (
            "k.cpp:(.text+0x5): undefined reference to `f'\ncollect2: error: ld returned 1",
            "collect2: error: ld returned 1",
        ),
        ("/usr/bin/ld: cannot find -lx: No such file", "/usr/bin/ld: cannot find -lx: No such file"),
        ("k.cpp:1:1: warning: error is a bad name\nstopped", "stopped"),
        ("", "the compiler printed nothing"),
    ],
)
def test_the_first_error_line_is_the_one_to_read(log: str, line: str) -> None:
    assert first_error(log) == line


def test_the_tightest_limit_decides_how_many_compilers_run(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = dataclasses.replace(host_facts(), cores=8)
    monkeypatch.setattr("tilewright.build.jobs.host_facts", lambda: facts)
    gib = 1 << 30
    assert job_limit(9, gib, memory=0).jobs == 1
    assert "MiB free" in job_limit(9, gib, memory=0).reason
    assert job_limit(1, gib, memory=64 * gib).jobs == 1
    assert "1 kernel to build" in job_limit(1, gib, memory=64 * gib).reason
    assert job_limit(9, gib, memory=64 * gib, setting=1).jobs == 1
    assert job_limit(9, gib, memory=64 * gib, max_workers=1).jobs == 1
    assert job_limit(9, gib, memory=5 * gib).jobs == 5
    assert job_limit(10_000, 1, memory=64 * gib).jobs == 8
    assert job_limit(10_000, 1, memory=64 * gib).reason == "8 cores"


def test_free_memory_is_that_of_the_container_where_it_is_less(tmp_path: Path) -> None:
    for name, text in {
        "proc/meminfo": "MemTotal: 100 kB\nMemAvailable:  8192 kB\n",
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/memory.current": "1000\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_memory(tmp_path) == 8192 << 10
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("5000\n")
    assert available_memory(tmp_path) == 4000
    assert available_memory(tmp_path / "nowhere") is None


def test_a_support_library_goes_through_the_same_store(store: Store, use_stub: UseStub) -> None:
    stub = use_stub()
    source = Source("helper.cpp", "int x;\n", "c++")
    first = build_source(source, "generic")
    assert first.spec is None
    assert build_source(source, "generic").path == first.path
    assert build_source(source, "generic", extra_key="other").path != first.path
    assert stub.compiled() == ["helper.cpp", "helper.cpp"]


# -- with the real compiler ----------------------------------------------------------------------


def test_a_real_kernel_compiles_loads_and_needs_no_cxx_library(store: Store) -> None:
    spec = tiny_specs(1)[0]
    artifact = build_one(spec)
    library = ctypes.CDLL(str(artifact.path))
    assert library.tw_abi_version() == ABI_VERSION
    count = ctypes.c_int64()
    library.tw_kernels.restype = ctypes.c_void_p
    assert library.tw_kernels(ctypes.byref(count))
    assert count.value == 1
    assert b"libstdc++" not in artifact.path.read_bytes()


def test_real_kernels_are_built_through_ninja(store: Store) -> None:
    built = build_many(tiny_specs(2, arch=best_host_arch().name))
    assert len(built) == 2
    assert all(ctypes.CDLL(str(one.path)).tw_abi_version() == ABI_VERSION for one in built.values())


def test_the_thread_team_builds_and_loads(store: Store) -> None:
    source = backend("cpu").host_library_source()
    assert source is not None
    artifact = build_source(source, "generic")
    library = ctypes.CDLL(str(artifact.path))
    library.tw_team.restype = ctypes.c_void_p
    assert library.tw_team(ctypes.c_int64(2))
    assert b"libstdc++" not in artifact.path.read_bytes()


THROWS = """
#include <stdexcept>
extern "C" __attribute__((visibility("default"))) int tw_throws(int x) {
  try {
    if (x) throw std::runtime_error("thrown");
  } catch (const std::exception &) { return 2 * x; }
  return 0;
}
"""


def test_a_source_may_ask_for_the_cxx_library(store: Store) -> None:
    with pytest.raises(CompileError, match="exception"):
        build_source(Source("throws.cpp", THROWS, "c++"), "generic")
    artifact = build_source(Source("throws.cpp", THROWS, "c++", cxx_library=True), "generic")
    assert ctypes.CDLL(str(artifact.path)).tw_throws(21) == 42
    assert "-fno-exceptions" not in artifact.manifest["inputs"]["flags"]


def test_a_real_error_of_the_real_compiler_is_read(store: Store) -> None:
    source = Source("wrong.cpp", "int unused() { int x = 1; return 0; }\nint f() { return nonsense; }\n", "c++")
    with pytest.raises(CompileError, match="nonsense") as caught:
        build_source(source, "generic")
    assert "error:" in caught.value.message
    assert Path(caught.value.log_path).exists()


def test_importing_the_builder_is_light() -> None:
    heavy = ("numpy", "jinja2", "rich", "typer")
    code = f"import sys, tilewright.build; sys.exit(any(one in sys.modules for one in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
