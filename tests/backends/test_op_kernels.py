"""What a backend knows of an op comes from a module of that op, which may live in another package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilewright import ops, plugins
from tilewright.arch import all_archs
from tilewright.backends import base
from tilewright.backends.base import all_backends, backend, op_kernels
from tilewright.build.headers import forget
from tilewright.build.key import key_inputs
from tilewright.errors import PluginError, UnknownNameError
from tilewright.ops import op
from tilewright.ops.base import KernelSpec

MODULE = """
from pathlib import Path
from tilewright.backends.base import Promises

class Kernels:
    template = ("elsewhere", "texts/double.cpp.jinja")
    def context(self, spec): return {"factor": 2 * spec.signature.factor}
    def include_dirs(self): return (Path(__file__).parent / "headers",)
    def estimate(self, spec, problem, threads): return 0.5
    def promises(self, spec): return Promises(("vfmadd",))
    def compile_memory(self, spec, compiler): return 7 << 20

KERNELS = Kernels()
"""
TEMPLATE = "#include <elsewhere/deep.h>\n// {{ name }} {{ factor }} {{ s.factor }} {{ h.tile }} {{ space }}\n"


@dataclass(frozen=True)
class Signature:
    factor: int

    def label(self) -> str:
        return f"times{self.factor}"


@dataclass(frozen=True)
class Schedule:
    tile: int

    def label(self) -> str:
        return f"t{self.tile}"


SPEC = KernelSpec("double", Signature(3), Schedule(8), "generic")


def forget_plugins() -> None:
    plugins._installed.cache_clear()
    plugins._points.cache_clear()
    plugins.load.cache_clear()
    base.op_kernels.cache_clear()
    forget()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that is not ours and brings kernels of an op to the CPU backend."""
    package = tmp_path / "elsewhere"
    for name, text in {
        "__init__.py": MODULE,
        "texts/double.cpp.jinja": TEMPLATE,
        "headers/elsewhere/deep.h": "int one;\n",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    facts = tmp_path / "elsewhere-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[tilewright.kernels.cpu]\ndouble = elsewhere:KERNELS\n")
    monkeypatch.syspath_prepend(tmp_path)
    forget_plugins()
    yield package
    sys.modules.pop("elsewhere", None)
    monkeypatch.undo()
    forget_plugins()


def test_an_op_of_another_package_is_rendered_estimated_and_promised(elsewhere: Path) -> None:
    cpu = backend("cpu")
    source = cpu.render(SPEC)
    assert source.file_name == f"{SPEC.name}.cpp"
    assert source.text.endswith(f"// {SPEC.name} 6 3 8 tw_{SPEC.digest[:16]}\n")
    assert cpu.estimate(SPEC, None, 1) == 0.5
    assert cpu.promises(SPEC).multiply == ("vfmadd",)


def test_its_headers_are_found_and_part_of_the_key(elsewhere: Path) -> None:
    cpu = backend("cpu")
    tools, source = cpu.toolchain(), cpu.render(SPEC)
    mine = elsewhere / "headers"
    assert mine in tools.include_dirs("double")
    assert mine not in tools.include_dirs("gemm")
    assert f"-I{mine}" in tools.command(Path("k.cpp"), Path("k.so"), "generic", "double")
    assert mine in cpu.object_rules("generic", ["gemm", "double"]).include_dirs
    assert tools.memory_per_job(SPEC) == 7 << 20
    before = key_inputs(source, "generic", tools, spec=SPEC)
    assert "elsewhere/deep.h" in before.values["headers"]
    (mine / "elsewhere" / "deep.h").write_text("int two;\n")
    forget()
    assert key_inputs(source, "generic", tools, spec=SPEC).key != before.key


def test_a_template_that_is_not_there_is_the_packages_fault(elsewhere: Path) -> None:
    (elsewhere / "texts" / "double.cpp.jinja").rename(elsewhere / "texts" / "other")
    from tilewright.backends import instance

    for kept in (instance._text, instance._plain, instance._template):
        kept.cache_clear()
    with pytest.raises(PluginError, match=r"double\.cpp\.jinja.*package elsewhere"):
        backend("cpu").render(SPEC)


@pytest.mark.parametrize("name", ["cpu", "cuda", "hip"])
def test_an_op_without_kernels_is_named(name: str) -> None:
    with pytest.raises(UnknownNameError, match="no kernels for op 'telepathy'") as caught:
        op_kernels(name, "telepathy")
    assert (caught.value.rule, caught.value.value) == ("op-kernels", "telepathy")


def test_a_backend_itself_knows_no_op() -> None:
    folder = Path(base.__file__).parent
    names = ("attention", "attention_backward", "conv", "gemm")
    assert set(names) == set(ops.op_names())
    every = [path for path in folder.rglob("*.py") if not set(names) & set(path.relative_to(folder).parts)]
    # What backends share of an op is named for it, and CK Tile's rules are of the products its ops have in common.
    modules = [path for path in every if not path.name.startswith((*names, "ck_tile"))]
    assert len(modules) > 15
    for path in modules:
        text = path.read_text(encoding="utf-8")
        for name in names:
            assert f"ops.{name}" not in text, path
        assert "dtype_a" not in text, path


def test_every_backend_says_how_others_name_its_devices() -> None:
    kinds = {name: one.device for name, one in all_backends().items()}
    types = [number for one in kinds.values() for number in (one.dlpack, *one.dlpack_more, *one.dlpack_pinned)]
    assert len(set(types)) == len(types)
    assert kinds["cpu"].dlpack == 1


def test_memory_of_a_compile_is_asked_by_kernel() -> None:
    tools = backend("cpu").toolchain()
    spec = op("gemm").fallback_spec(next(iter(op("gemm").proposals("tiny", "generic"))).signature, "generic")
    assert tools.memory_per_job(spec) > tools.memory_per_job() > 0
    assert all_archs()[spec.arch].backend == "cpu"
