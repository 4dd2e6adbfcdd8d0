"""What belongs to a kernel family stays in its folder.

Elsewhere nobody asks which class a schedule is of, or which pipeline or family it names; and nowhere is a field of a
schedule read out of a string.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any

import pytest

from tests.test_architecture import SOURCE, files
from tilewright.backends.base import backend_names, op_kernels
from tilewright.ops.attention.spec import FAMILIES as KINDS

# A family's own folder: there everything about it may be said.
OWN = re.compile(r"backends/\w+/(?!include/)\w+/(?!include/)\w+/")
# Where `family` is a kind of drawn problems.
DRAWN = re.compile(r"ops/\w+/engine\.py")
READERS = {
    "startswith", "endswith", "split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix", "find",
    "rfind", "index", "count", "replace", "lower", "upper",
}  # fmt: skip
MOST = 10

_GEMM_H = "backends/cuda/gemm/include/tilewright/cuda/gemm/gemm.h"
# What remains outside of families, by file and text, each with its reason.
ALLOWED = {
    ("backends/base.py", "type(spec.schedule) in family.schedules"): "finds the family that a schedule belongs to",
    (
        "backends/cpu/gemm/preselected.py",
        "schedule.pipeline not in seen",
    ): "one kernel of each pipeline, whatever it is",
    ("compat/ck.py", "s.pipeline == 'preshuffle'"): "the dispatcher it stands in for calls this pipeline otherwise",
    ("ops/neighbours.py", "type(schedule) is kind"): "fields are compared within the dataclass of the kernel asked for",
    ("ops/rules.py", "type(spec.schedule) not in kinds"): "legality itself: an arch has the schedules of its families",
    (
        "ops/sweep.py",
        "pipeline in getattr(kind, 'pipelines', ())",
    ): "finds the dataclass of a pipeline that a file names",
    (_GEMM_H, "Config::pipeline =="): "one macro exports the kernels of all families, and one has a second symbol",
}


def _kernels() -> Iterator[Any]:
    return (op_kernels(one, op) for one in backend_names() for op in ("attention", "conv", "gemm"))


@cache
def family_names() -> frozenset[str]:
    """Kernel families that ship, without what attention's problems call their kinds."""
    return frozenset(one.name for kernels in _kernels() for one in kernels.own) - set(KINDS)


@cache
def words() -> frozenset[str]:
    """Fields of schedules that are words."""
    kinds = (kind for kernels in _kernels() for kind in kernels.SCHEDULES)
    return frozenset(one.name for kind in kinds for one in fields(kind) if one.type in ("str", str))


def _last(node: ast.AST) -> str:
    """`pipeline` of `spec.schedule.pipeline`, and of `pipeline`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _texts(node: ast.AST) -> set[str]:
    """The strings in an expression."""
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def _is_schedule_type(node: ast.AST) -> bool:
    """`type(schedule)`."""
    return (
        isinstance(node, ast.Call)
        and _last(node.func) == "type"
        and bool(node.args)
        and _last(node.args[0]) in ("schedule", "h")
    )


def _names_a_class(node: ast.AST) -> bool:
    return any(_last(one).endswith("Schedule") for one in ast.walk(node))


def _compared(node: ast.Compare) -> bool:
    """Whether a comparison asks which class, pipeline or family a schedule is of."""
    sides = [node.left, *node.comparators]
    if any(_is_schedule_type(one) for one in sides):
        return True
    if any(_last(one) in ("pipeline", "pipelines") for one in sides):
        return True
    if any(_last(one) == "family" or _texts(one) == {"family"} for one in sides):
        return any(_texts(one) & family_names() for one in sides)
    return False


def _chosen(node: ast.AST) -> bool:
    """A table of answers, by a pipeline's name: `{"compv4": 2}[h.pipeline]`, `.get(h.pipeline, 1)`."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Dict) and _last(node.slice) == "pipeline"
    if isinstance(node, ast.Call) and _last(node.func) == "get" and isinstance(node.func, ast.Attribute):
        return isinstance(node.func.value, ast.Dict) and bool(node.args) and _last(node.args[0]) == "pipeline"
    return False


def _matched(node: ast.Match) -> bool:
    if _last(node.subject) in ("pipeline", "schedule") or _is_schedule_type(node.subject):
        return True
    return any(isinstance(one, ast.MatchClass) and _names_a_class(one.cls) for one in ast.walk(node))


def asked(tree: ast.AST) -> Iterator[ast.AST]:
    """Where code asks which class a schedule is of, or which pipeline or family it names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last(node.func) in ("isinstance", "issubclass") and len(node.args) == 2:
            if _last(node.args[0]) in ("schedule", "h") or _names_a_class(node.args[1]):
                yield node
        elif (isinstance(node, ast.Compare) and _compared(node)) or _chosen(node):
            yield node
        elif isinstance(node, ast.Match) and _matched(node):
            yield node.subject


def read_out(tree: ast.AST) -> Iterator[ast.AST]:
    """Where a field of a schedule is read out of a word of it, or out of the name of a kernel."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
            inner = node.func.value
            of_schedule = isinstance(inner, ast.Attribute) and inner.attr in words()
            if of_schedule or (isinstance(inner, ast.Name) and inner.id == "pipeline"):
                yield node
        elif isinstance(node, ast.Compare) and any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            of = node.comparators[-1]
            if isinstance(node.left, ast.Constant) and isinstance(of, ast.Attribute) and of.attr in words():
                yield node


_IN_HEADERS = re.compile(r"\b\w+(?:::|\.|->)pipeline\s*(?:==|!=)")


def asked_in_headers() -> Iterator[tuple[str, str]]:
    for path in files(".h", ".cpp", under=SOURCE):
        place = path.relative_to(SOURCE).as_posix()
        if not OWN.match(place):
            text = path.read_text(encoding="utf-8")
            yield from ((place, found) for found in _IN_HEADERS.findall(text))


def _trees(outside: bool) -> Iterator[tuple[str, ast.AST]]:
    for path in files(".py", under=SOURCE):
        place = path.relative_to(SOURCE).as_posix()
        if not (outside and (OWN.match(place) or DRAWN.fullmatch(place))):
            yield place, ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(spec.schedule, Some)",
        "isinstance(h, Some)",
        "isinstance(one, (CkTileSchedule, Other))",
        "issubclass(kind, LoopsSchedule)",
        "type(spec.schedule) is Some",
        "type(schedule) in kinds",
        "schedule.pipeline == 'compv4'",
        "'compv4' != schedule.pipeline",
        "h.pipeline in ('compv3', 'mem')",
        "pipeline not in PERSISTENT",
        "2 if h.pipeline == 'mem' else 1",
        "{'compv3': 2}.get(schedule.pipeline, 1)",
        "{'compv3': 2}[h.pipeline]",
        "family == 'tma_ws'",
        "kernels.family in ('loops', 'tiled')",
        "match schedule.pipeline:\n    case 'mem': pass",
        "match one:\n    case LoopsSchedule(): pass",
    ],
)
def test_the_guard_finds_what_asks(text: str) -> None:
    assert len(list(asked(ast.parse(text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "problem.family == 'combine'",
        "arch.family == 'cpu'",
        "signature.variant == 'preshuffle'",
        "isinstance(value, str)",
        "PIPELINES[schedule.pipeline].lds_buffers > 1",
        "family_of(schedule).limits(spec, problem)",
    ],
)
def test_the_guard_takes_what_asks_for_something_else(text: str) -> None:
    assert not list(asked(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "schedule.pipeline.startswith('planes_')",
        "h.pipeline.endswith('_turned')",
        "pipeline.removeprefix('padded_')",
        "'trload' in self.pipeline",
        "spec.schedule.store.split('_')[0]",
        "spec.schedule.special.partition(':')",
    ],
)
def test_the_guard_finds_what_is_read_out_of_a_string(text: str) -> None:
    assert len(list(read_out(ast.parse(text)))) == 1


def test_the_guard_takes_other_strings() -> None:
    assert not list(read_out(ast.parse("path.name.startswith('x'); 'x' in names; h.tile.index(3)")))


def test_the_guard_finds_what_headers_ask() -> None:
    assert _IN_HEADERS.findall("if (s.pipeline == compv4) x;\nif constexpr (Config::pipeline != Pipeline::y)") == [
        "s.pipeline ==", "Config::pipeline !="
    ]  # fmt: skip


def test_outside_families_few_ask_what_a_schedule_is() -> None:
    assert {"tma_ws", "ck_tile", "winograd"} <= family_names(), "the guard looks for the wrong names"
    assert {"pipeline", "scheduler", "store"} <= words(), "the guard looks for the wrong fields"
    found = [(place, ast.unparse(node)) for place, tree in _trees(outside=True) for node in asked(tree)]
    found += asked_in_headers()
    new = [f"{place}: {text}" for place, text in found if (place, text) not in ALLOWED]
    assert not new, "belongs into the family's folder, or is a property of its pipelines:\n" + "\n".join(new)
    assert set(ALLOWED) <= set(found), "an exception that nothing needs"
    assert len(found) <= MOST, f"{len(found)} tests of a schedule's class or pipeline outside of families"


def test_no_field_is_read_out_of_a_string() -> None:
    found = [f"{place}: {ast.unparse(node)}" for place, tree in _trees(outside=False) for node in read_out(tree)]
    assert not found, "\n".join(found)


_OF_TEMPLATES = re.compile(r"\b(pipeline|family)\b\s*(==|!=|(not\s+)?in\b)")


def test_templates_of_several_families_ask_none() -> None:
    """A template that families share is filled with what differs."""
    assert _OF_TEMPLATES.search("{% if family == 'loops' %}")
    assert _OF_TEMPLATES.search("{{ 2 if h.pipeline in ('compv4', 'x') else 1 }}")
    templates = {path.relative_to(SOURCE).as_posix(): path for path in files(".jinja", under=SOURCE)}
    assert len(templates) > 8, "the guard looks at the wrong place"
    shared = {place: path.read_text(encoding="utf-8") for place, path in templates.items() if not OWN.match(place)}
    assert not [place for place, text in shared.items() if _OF_TEMPLATES.search(text)]
