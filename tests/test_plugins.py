"""Packages of others that are broken: their error and not ours, and nothing else stops working."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

import tilewright
from tilewright import events, plugins
from tilewright.backends.base import OpKernels
from tilewright.cli.main import _verdict
from tilewright.errors import InternalError, PluginError
from tilewright.ops import all_ops, op
from tilewright.ops.base import Op

HOUSE_OPS = Path(__file__).parent / "plugin_ops"
SOURCE = Path(tilewright.__file__).parent.parent
RUN = ("run", "rowscale", "--rows", "4", "--columns", "8", "--target", "generic")


def installed(folder: Path, package: str, module: str, text: str | None, points: str) -> None:
    """A package as pip leaves it: a module, unless it is missing, and its metadata."""
    facts = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(points)
    if text is not None:
        (folder / f"{module}.py").write_text(text)


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(SOURCE))), "COLUMNS": "400"}
    environment["TILEWRIGHT_CACHE_DIR"] = str(folder / "cache")
    line = [sys.executable, "-m", "tilewright", *words]
    return subprocess.run(line, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on this process's path; what is found there is forgotten after the test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget()
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    monkeypatch.undo()
    plugins.forget()


BROKEN = {
    "module missing": (None, "ModuleNotFoundError"),
    "value": ("raise ValueError('no table of weights')", "ValueError: no table of weights"),
    "syntax": ("def broken(:\n", "SyntaxError"),
    "exit": ("import sys\nsys.exit(7)", "SystemExit: 7"),
    "no such object": ("OTHER = 1", "AttributeError"),
    "our kind of error": ("from tilewright.errors import InternalError\nraise InternalError('x')", "InternalError: x"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_loaded_is_an_error_of_its_package(kind: str, on_path: Path) -> None:
    text, reason = BROKEN[kind]
    installed(on_path, "shaky-ops", "shaky", text, "[tilewright.ops]\nshaky = shaky:OP\n")
    plugins.forget()
    with pytest.raises(PluginError) as caught:
        op("shaky")
    error = caught.value
    assert (error.owner, error.rule, error.value, error.package) == ("machine", "plugin", "shaky:OP", "shaky-ops")
    assert reason in error.message
    assert "shaky-ops" in error.message
    assert "remove" in error.remedy
    assert pickle.loads(pickle.dumps(error)).package == "shaky-ops"


def test_missing_members_are_named(on_path: Path) -> None:
    text = "class Shaky:\n    name = 'shaky'\n    check = 3\nOP = Shaky()\nKERNELS = Shaky()\n"
    points = (
        "[tilewright.ops]\nshaky = shaky:OP\nclass = shaky:Shaky\n[tilewright.bindings]\nshaky = shaky:OP\n"
        "[tilewright.kernels.cpu]\nshaky = shaky:KERNELS\n"
    )
    installed(on_path, "shaky-ops", "shaky", text, points)
    plugins.forget()
    from tilewright.backends.base import op_kernels
    from tilewright.runtime.bindings import binding

    with pytest.raises(PluginError, match=r"lacks .*supports.* and has no function as check"):
        op("shaky")
    with pytest.raises(PluginError, match="is the class Shaky"):
        op("class")
    with pytest.raises(PluginError, match=r"lacks .*slots"):
        binding("shaky")
    with pytest.raises(PluginError, match=r"lacks template, .*estimate"):
        op_kernels("cpu", "shaky")


def test_members_of_a_protocol() -> None:
    class Base(Protocol):
        size: int

    class Contract(Base, Protocol):
        def call(self) -> None: ...

    assert dict(plugins.members(Contract)) == {"size": False, "call": True}
    assert ("template", False) in plugins.members(OpKernels)
    assert {"name", "supports", "candidates"} <= {name for name, _ in plugins.members(Op)}


@pytest.mark.parametrize(
    ("name", "owners", "winner"),
    [("sum", ("zoo", "Ant", "bee"), "Ant"), ("gemm", ("aardvark",), "tilewright")],
)
def test_of_two_packages_with_one_name_the_same_one_counts(
    name: str, owners: tuple[str, ...], winner: str, on_path: Path
) -> None:
    for owner in owners:
        installed(on_path, owner, f"of_{owner}", "", f"[tilewright.ops]\n{name} = of_{owner}:OP\n")
    plugins.forget()
    with events.recorded() as seen:
        assert plugins.package_of("tilewright.ops", name) == winner
    warned = [one for one in seen if isinstance(one, events.Warned)]
    assert [one.rule for one in warned] == ["plugin-twice"]
    assert all(owner in warned[0].message for owner in owners)


def test_a_broken_op_keeps_no_other_from_working(on_path: Path) -> None:
    installed(on_path, "shaky-ops", "shaky", "raise ValueError('no weights')", "[tilewright.ops]\nshaky = shaky:OP\n")
    for words in (("run", "--help"), ("specs", "--help"), ("bench", "--help")):
        done = command(on_path, *words)
        assert done.returncode == 0, done.stderr
        assert "(broken: " in done.stdout
        assert "no weights" in " ".join(done.stdout.split())
        assert "gemm" in done.stdout
    for used in (("run", "shaky"), ("specs", "shaky", "--help"), ("inspect", "shaky_fp32_t8_generic_01234567")):
        done = command(on_path, *used)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "shaky-ops" in done.stderr
        assert "bug" not in done.stderr
    done = command(on_path, "doctor", "--json")
    findings = json.loads(done.stdout)["findings"]
    wrong = [one for one in findings if one["part"] == "plug-ins"]
    assert [one["what"] for one in wrong] == ["shaky (tilewright.ops)"]
    assert "no weights" in wrong[0]["text"]
    listed = {one["what"]: one["text"] for one in findings if one["part"] == "ops"}
    assert "cpu" in listed["gemm"]
    assert "shaky" not in listed
    plugins.forget()
    with events.recorded() as seen:
        assert sorted(all_ops()) == ["attention", "attention_backward", "conv", "gemm"]
    assert any(isinstance(one, events.Warned) and "shaky-ops" in one.message for one in seen)


def _estimate(folder: Path) -> None:
    _edit(folder / "kernels.py", 'the busiest thread."""\n', 'the busiest thread."""\n        [].pop()\n')


def _binding(folder: Path) -> None:
    _edit(
        folder / "binding.py", "exact: bool = False) -> Sample:\n", "exact: bool = False) -> Sample:\n        1 / 0\n"
    )


def _numpy(folder: Path) -> None:
    text = "exact: bool = False) -> Sample:\n"
    _edit(folder / "binding.py", text, text + "        np.zeros(3).reshape(2)\n")


def _no_template(folder: Path) -> None:
    (folder / "templates" / "rowscale.cpp.jinja").unlink()


def _undefined(folder: Path) -> None:
    (folder / "templates" / "rowscale.cpp.jinja").write_text("{{ weather }}\n")


def _option(folder: Path) -> None:
    _edit(folder / "op.py", 'Option("rows",', 'Option("target", "Twice.", ""), Option("rows",')


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (_estimate, "IndexError: pop from empty list"),
        (_binding, "ZeroDivisionError: division by zero"),
        (_numpy, "ValueError: cannot reshape"),
        (_no_template, "there is no template 'templates/rowscale.cpp.jinja'"),
        (_undefined, "UndefinedError: 'weather' is undefined"),
        (_option, "--target"),
    ],
)
def test_what_fails_in_a_package_of_others_is_no_bug_of_ours(
    break_it: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    for name in ("rowscale", "rowscale-1.0.dist-info"):
        shutil.copytree(HOUSE_OPS / name, tmp_path / name)
    break_it(tmp_path / "rowscale")
    done = command(tmp_path, *RUN)
    assert done.returncode == 2, done.stdout + done.stderr
    assert reason in done.stderr
    assert "package rowscale" in done.stderr
    assert "bug in Tilewright" not in done.stderr
    assert "Traceback" not in done.stderr
    if break_it is _binding:
        debug = command(tmp_path, "--debug", *RUN).stderr
        assert "Traceback" in debug
        assert "1 / 0" in debug


def test_what_fails_in_our_own_code_stays_a_bug() -> None:
    with pytest.raises(AttributeError) as caught:
        list(plugins.members(object()))  # type: ignore[arg-type]  # in a frame of ours
    assert plugins.plugin_error(caught.value) is None
    assert _verdict(caught.value)[0] == 3
    assert isinstance(plugins.fault("tilewright.ops.gemm", "x"), InternalError)


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_loaded_is_not_looked_at_by_the_collector(on_path: Path, frozen: bool) -> None:
    """It has lived long at once; what a program froze stays frozen, and nothing of ours is."""
    installed(
        on_path, "lasting", "lasting_module", "LASTING = [[]]\n", "[tilewright.ops]\nlasting = lasting_module:LASTING\n"
    )
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    if frozen:
        gc.freeze()
    try:
        before = gc.get_freeze_count()
        loaded = plugins.load("tilewright.ops", "lasting", "an op")
        assert gc.isenabled()
        assert (gc.get_freeze_count() > 0) == frozen
        assert gc.get_freeze_count() <= before
        assert frozen or any(each is loaded for each in gc.get_objects(generation=2))
    finally:
        gc.unfreeze()
        if was_frozen:
            gc.freeze()
