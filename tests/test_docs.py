"""The documents tell the truth: their code runs, their links lead somewhere, their commands exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.codegen import collect

ROOT = Path(__file__).parent.parent
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")]
PAGES = sorted([*TOP, *(ROOT / "docs").rglob("*.md")])
RESULT = ROOT / "benchmarks" / "results" / "gemm_cpu_random.json"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in _FENCE.findall(page.read_text(encoding="utf-8")) if found == language]


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


def test_the_pages_are_there() -> None:
    names = {name_of(page) for page in PAGES}
    assert {"README.md", "docs/architecture.md", "docs/adding-an-arch.md", "docs/adding-an-op.md"} <= names


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


_OP_ROWS = {
    "gemm": "GEMM",
    "conv": "convolution: forward",
    "attention": "attention, forward",
    "attention_backward": "attention, backward",
}


@pytest.mark.parametrize("op", _OP_ROWS)
def test_the_readme_names_wmma_where_rdna_has_such_kernels(op: str) -> None:
    """The table of targets, in its last column, beside what a pool has for an RDNA GPU."""
    rows = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    (row,) = [line for line in rows if line.startswith(f"| {_OP_ROWS[op]}")]
    specs = collect(op, "gfx1201").specs
    tiled = any(re.search(r"_(tiled|wmma)_", spec.name) for spec in specs)
    assert tiled == ("WMMA" in row.split("|")[-2])


# Others run the Python of these pages.
ELSEWHERE = ("coming-from-ck.md",)  # tests/compat/test_coming_from_ck.py


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in ELSEWHERE and blocks(page, "python")], ids=name_of
)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """All Python blocks of a page, one after the other, as a reader would paste them."""
    code = blocks(page, "python")
    if any("import torch" in text for text in code):
        pytest.importorskip("torch")
    program = tmp_path / "page.py"
    program.write_text("\n".join(code), encoding="utf-8")
    command = [sys.executable, "-W", "error::DeprecationWarning", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    if any("tw.explain" in text for text in code):
        assert "chosen    " in done.stdout


def test_the_readme_calls_every_op() -> None:
    code = "\n".join(blocks(ROOT / "README.md", "python"))
    for call in ("tw.gemm(", "tw.conv(", "tw.attention(", "tw.explain("):
        assert call in code


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        place, _, anchor = link.partition("#")
        if "://" in place:
            continue
        target = page if not place else (page.parent / place).resolve()
        assert target.exists(), f"{name_of(page)} links to {link}"
        assert target.is_relative_to(ROOT), f"{name_of(page)} links out of the project: {link}"
        if anchor:
            assert anchor in anchors(target), f"{name_of(page)} links to {link}; there are {sorted(anchors(target))}"


def commands(page: Path) -> list[list[str]]:
    """The words of every `$ tilewright ...` and `$ make ...` line, and of every `tilewright ...` in the prose."""
    found = []
    for block in blocks(page, "console"):
        for line in re.findall(r"^\$ (.+)$", block, re.M):
            words = shlex.split(line, comments=True)
            while words and "=" in words[0]:
                words.pop(0)  # a variable set for the command
            found.append(words)
    found += [shlex.split(one) for one in re.findall(r"`(tilewright [a-z][^`]*)`", prose(page))]
    return found


def click_commands() -> dict[str, Any]:
    import typer.main

    from tilewright.cli.main import build_app

    group: Any = typer.main.get_command(build_app())
    return dict(group.commands)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def demand_exists(words: list[str], known: dict[str, Any]) -> None:
    """A command line's command, subcommand and options exist."""
    if words[0] == "make":
        assert all("=" in one or one in make_targets() for one in words[1:]), words
        return
    if words[:2] == ["pip", "install"]:
        extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
        for extra in re.findall(r"\[(\w+)\]", " ".join(words)):
            assert extra in extras, f"there is no extra {extra!r}: {words}"
        return
    assert words[0] == "tilewright", words
    name, *rest = words[1:]
    if name == "COMMAND":  # a placeholder
        return
    assert name in known, f"there is no command {name!r}: {words}"
    command = known[name]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        # An alternative such as `cache ls|verify` names several.
        for one in rest[0].split("|"):
            assert one in command.commands, f"{name} has no {one!r}: {words}"
        command = command.commands[rest.pop(0).split("|")[0]]
    options = {option for one in command.params for option in one.opts} | {"--help"}
    for one in rest[: rest.index("--")] if "--" in rest else rest:  # what comes after is another program's
        if one.startswith("-"):
            assert one.split("=")[0] in options, f"{name} has no option {one!r}: {words}"


# A changelog names commands as they were.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name_of)
def test_commands_exist(page: Path) -> None:
    known = click_commands()
    for words in commands(page):
        demand_exists(words, known)


@pytest.mark.parametrize(
    "line",
    [
        "tilewright fly gemm",
        "tilewright run conv2",
        "tilewright run gemm --sideways 3",
        "make coffee",
        "pip install .[coffee]",
    ],
)
def test_the_check_sees_what_does_not_exist(line: str) -> None:
    with pytest.raises(AssertionError):
        demand_exists(shlex.split(line), click_commands())


def test_every_command_is_described() -> None:
    described = anchors(ROOT / "docs" / "cli.md")
    missing = set(click_commands()) - described
    assert not missing, f"docs/cli.md says nothing of {sorted(missing)}"


def test_the_page_of_settings_is_what_the_settings_say() -> None:
    from tests import settings_page

    page = settings_page.PAGE.read_text(encoding="utf-8")
    assert page == settings_page.filled(page), "run python -m tests.settings_page"


def test_every_public_name_is_in_the_reference() -> None:
    import tilewright

    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    last = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)", text, re.M)}
    inside = {"TilewrightError": "errors"}  # described with their module
    own = [name for name in tilewright.__all__ if name != "__version__" and not name.startswith("rowscale")]
    missing = [name for name in own if name not in last and inside.get(name) not in last]
    assert not missing, f"docs/api.md says nothing of {missing}"


def test_every_setting_is_a_field_that_exists() -> None:
    from dataclasses import fields

    from tilewright.settings import Settings

    known = {f"TILEWRIGHT_{one.name.upper()}" for one in fields(Settings)}
    for page in PAGES:
        for name in re.findall(r"TILEWRIGHT_[A-Z_]+[A-Z]", page.read_text(encoding="utf-8")):
            assert name in known, f"{name_of(page)} names {name}"


def test_every_arch_of_the_table_is_described() -> None:
    from tilewright.arch import all_archs

    text = (ROOT / "docs" / "cpu.md").read_text(encoding="utf-8")
    missing = [name for name, one in all_archs().items() if one.family == "cpu" and f"`{name}`" not in text]
    assert not missing


def test_every_error_class_is_described() -> None:
    from tilewright import errors

    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for name, one in vars(errors).items():
        if isinstance(one, type) and issubclass(one, errors.TilewrightError):
            assert name in text, f"docs/errors.md does not know {name}"


def test_every_example_is_named_by_its_file() -> None:
    for page in PAGES:
        for name in re.findall(r"examples/python/([\w/]+\.py)", page.read_text(encoding="utf-8")):
            assert (ROOT / "examples" / "python" / name).exists()


def script(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / name), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_results_in_the_reports_are_the_stored_ones() -> None:
    for name in ("cpu_table.py", "models_table.py", "nvidia_table.py", "amd_table.py"):
        done = script(name, "--check")
        assert done.returncode == 0, done.stderr


def test_a_number_typed_by_hand_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = (ROOT / "docs" / "reports" / "gemm_cpu.md").read_text(encoding="utf-8")
    page.write_text(text.replace("<!-- end of results -->", "9.99\n<!-- end of results -->"), encoding="utf-8")
    done = script("cpu_table.py", "--check", "--page", str(page))
    assert done.returncode == 1
    assert "run benchmarks/cpu_table.py" in done.stderr


@pytest.mark.skipif(not RESULT.exists(), reason="no stored results yet")
def test_the_pictures_are_drawn_from_the_stored_results(tmp_path: Path) -> None:
    for name in ("plot.py", "plot_overview.py"):
        done = script(name, "--check")
        assert done.returncode == 0, done.stderr
    other = tmp_path / "results.svg"
    drawn = (ROOT / "docs" / "images" / "results.svg").read_text(encoding="utf-8")
    changed, count = re.subn(r"\d\.\d\dx", "9.99x", drawn, count=1)
    assert count == 1
    other.write_text(changed, encoding="utf-8")
    assert script("plot_overview.py", "--check", "--output", str(other)).returncode == 1


def test_links_of_the_site_out_of_its_folder_are_text_and_must_exist(caplog: pytest.LogCaptureFixture) -> None:
    """The hook of mkdocs.yml, without MkDocs."""
    import importlib.util
    from types import SimpleNamespace

    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    docs = ROOT / "docs"
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(docs / "gemm.md"), src_path="gemm.md"))
    config = SimpleNamespace(docs_dir=str(docs), repo_url="")
    text = (
        "[a](conv.md#x) [rules](../CONTRIBUTING.md) [`b`](../README.md) [c](https://a.org)\n```\n[d](../no.md)\n```\n"
    )
    assert hooks.on_page_markdown(text, page=page, config=config) == (
        "[a](conv.md#x) rules (`CONTRIBUTING.md`) `b` [c](https://a.org)\n```\n[d](../no.md)\n```\n"
    )
    assert not caplog.records
    hooks.on_page_markdown("[d](../no.md)", page=page, config=config)
    assert "which is not there" in caplog.text
