"""Guards of the house: size of files, direction and cost of imports, and constructs that are banned."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tilewright"
MAX_LINES = 600
READS_PATH = {("sys.path", "entry_points.py")}  # where packages lie, which it reads and leaves as it is
READS_ENVIRONMENT = {"settings.py", "backends/steps.py"}  # the second, a script by itself, hands on what it was given


def files(*suffixes: str, under: Path = ROOT) -> list[Path]:
    top = [ROOT / name for name in ("src", "tests", "benchmarks", "examples")] if under == ROOT else [under]
    found = (path for place in top for suffix in suffixes for path in place.rglob(f"*{suffix}"))
    return sorted(path for path in found if "__pycache__" not in path.parts and "golden" not in path.parts)


def _name(node: ast.AST) -> str:
    """`os.environ` for the attribute node of that text; empty for anything that is not a dotted name."""
    if isinstance(node, ast.Attribute):
        inner = _name(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


# As the standard library's own does: a text of the names of a class's fields, which no user writes.
WRITES_CODE = {("exec", "dataclass.py")}


def banned(tree: ast.AST, place: str) -> Iterator[str]:
    """What a module of the package must not contain; `place` is its path inside the package."""
    for node in ast.walk(tree):
        name = _name(node)
        line = getattr(node, "lineno", 0)
        if name in ("os.environ", "os.getenv", "os.putenv", "os.environb") and place not in READS_ENVIRONMENT:
            yield f"{place}:{line}: {name} (settings.py reads the environment)"
        if name in ("sys.path", "os.system", "os.popen") and (name, place) not in READS_PATH:
            yield f"{place}:{line}: {name}"
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "sys"):
            for alias in node.names:
                if alias.name in ("environ", "getenv", "putenv", "system", "popen", "path") and (
                    node.module == "sys" or alias.name != "path"
                ):
                    yield f"{place}:{line}: from {node.module} import {alias.name}"
        if isinstance(node, ast.Call):
            called = _name(node.func)
            if called in ("eval", "exec", "compile", "__import__") and (called, place) not in WRITES_CODE:
                yield f"{place}:{line}: {called}()"
            if called == "print" and not place.startswith("cli/"):
                yield f"{place}:{line}: print() outside cli/"
            for keyword in node.keywords:
                if keyword.arg == "shell" and not (
                    isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                ):
                    yield f"{place}:{line}: shell="
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or _name(node.type) in ("Exception", "BaseException")
            if broad and all(isinstance(one, ast.Pass) for one in node.body):
                yield f"{place}:{line}: a swallowed error"


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ['A']",
        "import os\nos.getenv('A')",
        "from os import environ",
        "import sys\nsys.path.insert(0, 'x')",
        "eval('1')",
        "exec('1')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import os\nos.system('ls')",
        "print('x')",
        "try:\n    f()\nexcept Exception:\n    pass",
        "try:\n    f()\nexcept:\n    pass",
    ],
)
def test_the_guard_sees_what_it_bans(text: str) -> None:
    assert list(banned(ast.parse(text), "ops/some.py"))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("settings.py", "import os\nos.environ['A']"),
        ("cli/some.py", "print('x')"),
        ("dataclass.py", "exec('1')"),
        ("ops/some.py", "# os.environ and eval('x') in a comment\ntext = 'print()'"),
        ("ops/some.py", "from os import path\nmodel.eval_loss(1)\nsubprocess.run(['ls'], shell=False)"),
    ],
)
def test_the_guard_lets_pass_what_is_allowed(place: str, text: str) -> None:
    assert not list(banned(ast.parse(text), place))


def test_the_package_holds_nothing_banned() -> None:
    found = [
        complaint
        for path in files(".py", under=SOURCE)
        for complaint in banned(ast.parse(path.read_text(encoding="utf-8")), path.relative_to(SOURCE).as_posix())
    ]
    assert not found, "\n".join(found)


_HARDWARE = re.compile(
    r"\b(wgmma|tma|mma|wmma|mfma|cp\.async|multiprocessors?|warpgroups?|tensor cores?|copy engine|lds|shared memory"
    r"|cuda|nvidia|amd|rocm|hip|hopper|h200|gfx\d\w*|sm_\d\w*|avx\w*|[vs]gprs?|compute.units?|clusters?|cache lines?"
    r"|line of the cache|scratch_bytes)\b"
    r"|\barch\.features|\.family [!=]= \"(cpu|nvidia|cdna|rdna)\"",
    re.IGNORECASE,
)
# What an op may say of hardware, each with its reason.
_HARDWARE_ALLOWED = {
    "attention/categories.py": "names the test matrix of AMD's dispatcher that it follows",
    "attention/ck_words.py": "names whose words it reads",
    "conv/ck_words.py": "names whose words it reads",
    "demo.py": "asks PyTorch for a device by PyTorch's name",
    "encodings.py": "an arch encodes fp8 one way or the other",
    "gemm/ck_words.py": "names whose words it reads",
    "gemm/reference.py": "error bounds of matrix instructions that sum narrowly",
    "numerics.py": "error bounds of matrix instructions that sum narrowly",
}


def hardware_words(text: str) -> list[str]:
    return [match.group(0) for match in _HARDWARE.finditer(text)]


def test_ops_hold_no_word_of_hardware() -> None:
    """An op says what is computed; how a device does it stands with its kernel families."""
    found = {
        path.relative_to(SOURCE / "ops").as_posix(): words
        for path in files(".py", under=SOURCE / "ops")
        if (words := hardware_words(path.read_text(encoding="utf-8")))
    }
    assert found.keys() == _HARDWARE_ALLOWED.keys(), {
        place: words for place, words in found.items() if place not in _HARDWARE_ALLOWED
    }


@pytest.mark.parametrize(
    "text",
    [
        "fed by wgmma", "TMA reads", "TMA boxes", "if arch.features:", 'arch.family != "cpu"',
        "places = arch.compute_units", "two a multiprocessor", "on sm_90a", "An H200's rates", "clusters of four",
        "that a compute unit holds", "to a line of the cache",
    ],
)  # fmt: skip
def test_the_guard_sees_a_word_of_hardware(text: str) -> None:
    assert hardware_words(text)


def test_the_guard_of_hardware_lets_pass_what_is_allowed() -> None:
    assert not hardware_words("signature.features of a problem, family == 'forward', a tile of shared_by warps")


def test_no_file_is_too_long_to_have_one_job() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in files(".py", ".h", ".hpp", ".cpp", ".jinja")
    }
    assert len(lengths) > 20, "the guard looks at the wrong place"
    long = {name: lines for name, lines in lengths.items() if lines > MAX_LINES}
    assert not long, f"over {MAX_LINES} lines: {long}"


def test_imports_point_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    from importlinter.cli import lint_imports

    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == 0, capsys.readouterr().out


SHARED = ("gpu",)  # what the GPU backends share is no backend


@pytest.mark.parametrize("layer", ["ops", "backends"])
def test_siblings_know_nothing_of_each_other(layer: str) -> None:
    """An op imports no other op, a backend no other backend; what they share is beside them."""
    packages = sorted(path.name for path in (SOURCE / layer).iterdir() if (path / "__init__.py").exists())
    packages = [name for name in packages if name not in SHARED]
    assert packages
    for package in packages:
        for path in files(".py", under=SOURCE / layer / package):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                for name in names:
                    for other in packages:
                        foreign = f"tilewright.{layer}.{other}"
                        assert other == package or not (name == foreign or name.startswith(f"{foreign}.")), (
                            f"{path.name} of {package} imports {name}"
                        )


def _imported_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nsys.stdout.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_is_cheap() -> None:
    loaded = _imported_by("import tilewright")
    assert "tilewright" in loaded
    assert not loaded & {"rich", "typer", "jinja2", "torch", "matplotlib", "hypothesis", *READERS}


# Libraries that read files or lock them: between 2 and 40 ms each to import, and a call with a built kernel needs none.
READERS = {"pydantic", "filelock", "platformdirs", "elftools", "msgpack"}
CALL = "import numpy as np, tilewright as tw; tw.gemm(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32))"


def test_a_call_with_a_built_kernel_is_cheap() -> None:
    built = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, check=False)
    if "no-compiler" in built.stderr:
        pytest.skip("there is no C++ compiler here")
    loaded = _imported_by(CALL)
    assert "tilewright.runtime.loader" in loaded
    assert not loaded & READERS
    # Nor the kernels of other backends and ops, nor what reads code: a first call would wait for each of them.
    others = ("tilewright.backends.cuda", "tilewright.backends.hip", "tilewright.ops.conv", "tilewright.inspect")
    assert not [name for name in loaded if name.startswith((*others, "tilewright.tune")) or name == "numpy.ma"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs is asked for the folder")
def test_the_default_cache_folder_is_found_without_libraries() -> None:
    """platformdirs imports tempfile and archives' modules: some 5 ms of a first call."""
    code = "import os; os.environ.pop('TILEWRIGHT_CACHE_DIR', None); import tilewright as tw; tw.settings.current()"
    assert not _imported_by(code) & {"platformdirs", "tempfile", "shutil"}


def test_help_needs_no_backend() -> None:
    loaded = _imported_by("import tilewright.cli.main as m; m.build_app()")
    assert "typer" in loaded
    assert not loaded & {"jinja2", "numpy", "torch", "ml_dtypes", "tilewright.backends.cpu"}


def test_tests_mirror_the_package() -> None:
    """What tests a folder of the package is in the folder of that name."""
    package = ROOT / "src" / "tilewright"
    folders = [one.name for one in package.iterdir() if one.is_dir() and (one / "__init__.py").exists()]
    assert len(folders) > 10
    assert [one for one in folders if not any((ROOT / "tests" / one).rglob("test_*.py"))] == []
