"""Names in the package are the field's: words that only this tree used do not come back (docs/glossary.md)."""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tilewright
from tilewright.backends.base import backend_names, op_kernels

SOURCE = Path(tilewright.__file__).parent
# A word of a name, where it must not be used, and what is said instead.
OLD = {
    "forge": ("", "build queue"),
    "crew": ("", "worker pool"),
    "crews": ("", "worker pools"),
    "lane": ("tune/", "device worker"),  # elsewhere a lane of a vector, a warp or a DLPack type
    "lanes": ("tune/", "device workers"),
    "rehearse": ("", "run_problem"),
    "rehearsed": ("", "run"),
    "asked_for": ("dispatch/", "inputs"),
    "ruled_pools": ("", "derived pools"),
    "generic_spec": ("", "fallback_spec"),
    "generic_schedule": ("", "fallback_schedule"),
    "ways": ("ops/", "split plans"),
    "guests": ("", "auxiliary operands"),
    "invite": ("", "auxiliary operands"),
    "quick": ("runtime/", "fast path"),
    "house_ops": ("", "plug-in examples"),
}
# Words that name nothing: a variable, a parameter or an attribute has the name of the thing that it holds.
NAMELESS = {"asked", "found", "given", "made", "of", "one", "said", "told"}


def names(path: Path) -> Iterator[tuple[int, str]]:
    """What a module defines: itself, classes, functions and their parameters."""
    yield 0, path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower()
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def old_words(name: str, place: str) -> list[str]:
    return [
        f"{word}: say {new}"
        for word, (where, new) in OLD.items()
        if place.startswith(where) and re.search(rf"(^|_){word}($|_)", name)
    ]


def variables(source: str) -> Iterator[tuple[int, str]]:
    """What a module binds: variables of every kind, parameters, attributes that are set or declared."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.lineno, node.name
        elif isinstance(node, ast.alias):
            yield node.lineno, node.asname or node.name


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """Variables, functions and classes whose names begin with an underscore."""
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    functions = ((node.lineno, node.name) for node in ast.walk(ast.parse(source)) if isinstance(node, defined))
    yield from ((line, name) for line, name in (*variables(source), *functions) if name.startswith("_"))


def is_nameless(name: str) -> bool:
    return name.strip("_").lower() in NAMELESS


def test_names_of_the_package_are_the_field_s() -> None:
    files = [path for path in SOURCE.rglob("*.py") if "__pycache__" not in path.parts]
    assert len(files) > 300, "the guard looks at the wrong place"
    told = [
        f"{place}:{line}: {word}"
        for path in files
        for place in [path.relative_to(SOURCE).as_posix()]
        for line, name in names(path)
        for word in old_words(name, place)
    ]
    assert not told, "\n".join(told)


# Names that kernel families, pipelines, fields of schedules and their values had.
OLD_IN_SCHEDULES = {
    "band", "band_weight", "dealing", "direct_weight", "few", "few_columns", "few_rows", "first_weight", "folded",
    "lanes_weight", "latent", "shares", "slots", "spread", "step", "striped", "tiles", "together", "turned", "window",
}  # fmt: skip


def schedule_words(kind: Any) -> set[str]:
    """Every word that a kernel of a schedule can be asked for by."""
    return {
        *(field.name for field in dataclasses.fields(kind)),
        *kind.pipelines,
        *kind.choices,
        *(word for words in kind.choices.values() for word in words),
    }


@pytest.mark.parametrize("op", ["attention", "conv", "gemm"])
def test_schedules_speak_the_words_of_the_field(op: str) -> None:
    spaces: list[Any] = [op_kernels(backend, op) for backend in backend_names()]
    kinds = [kind for space in spaces for kind in space.SCHEDULES]
    assert len(kinds) > 5
    old = {kind.__name__: schedule_words(kind) & OLD_IN_SCHEDULES for kind in kinds}
    assert not any(old.values()), {name: words for name, words in old.items() if words}
    families = {family.name for space in spaces for family in space.families}
    assert not families & OLD_IN_SCHEDULES


# Names that kernels and host code had, as whole words of an identifier, outside of comments.
OLD_IN_HEADERS = {
    "asked", "feeder", "feeding", "guest", "guests", "invite", "lying", "meet", "seat", "settled", "sheet", "sheets",
    "told", "turned", "walk", "walked",
}  # fmt: skip


def old_identifiers(text: str) -> set[str]:
    code = re.sub(r"//.*|/\*[\s\S]*?\*/|\"(?:[^\"\\\\]|\\\\.)*\"", "", text)
    spread = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() for name in re.findall(r"[A-Za-z_]\w*", code))
    return OLD_IN_HEADERS & {word for name in spread for word in name.split("_")}


def test_headers_speak_the_words_of_the_field() -> None:
    files = [path for ending in ("*.h", "*.hpp", "*.cpp") for path in SOURCE.rglob(ending)]
    assert len(files) > 300
    old = {path.relative_to(SOURCE).as_posix(): old_identifiers(path.read_text(encoding="utf-8")) for path in files}
    shim = "backends/cpu/conv/include/tilewright/cpu/conv/turned.h"  # the old name of a header, for one version
    assert {place: words for place, words in old.items() if words and place != shim} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [("t.guests[0] = x;", {"guests"}), ("struct MmaFeeder;", {"feeder"}), ("// a sheet that is turned", set()),
     ('"would meet"; x.met();', set()), ("int full_turned;", {"turned"}), ("ConvWalk walk;", {"walk"})],
)  # fmt: skip
def test_the_guard_reads_identifiers_of_headers(text: str, found: set[str]) -> None:
    assert old_identifiers(text) == found


# What comments of headers do not say any more, and what they say instead.  Names in backticks are names.
OLD_IN_COMMENTS = {
    r"(?<![Pp]artial )(?<!row )(?<!column )(?<![`\w])[Ss]ums\b(?! (up|over)\b)": "accumulators, or partial sums",
    r"\b[Tt]old\b|\b[Tt]ells?\b": "an ordinary verb: passes, knows, announces",
    r"copy engine": "TMA",
    r"\b[Ww]alk(s|ed|ing)?\b": "traverses, or a traversal",
    r"\bsheets?\b": "staging buffer",
    r"\bk steps?\b|\bsteps? of k\b": "k-blocks",
    r"\bparts of (a split )?k\b": "splits of k",
}


# What headers that users read do not say besides: the C ABI, and the C++ front end.
OLD_IN_PUBLIC_HEADERS = {
    r"\b[Ll](ies?|ying)\b": "is, is contiguous, has the layout",
    r"\b[Pp]arts?\b(?! of (the|an?)\b)": "splits, or what it is a part of",
    r"\b[Pp]laces?\b": "index, position, address",
    r"\b[Tt]urn(s|ed)?\b": "transposed, rotated",
    r"\b[Cc]omes?\b|\b[Ww]ays?\b|\b[Hh]ands? (in|on)\b": "an ordinary verb: is given, follows, writes",
}
PUBLIC_HEADERS = (
    SOURCE / "include" / "tilewright" / "abi.h",
    *sorted((SOURCE / "include" / "tilewright").glob("*_args.h")),
    *sorted((SOURCE.parent.parent / "cpp" / "include").rglob("*.h*")),
)


def old_comments(text: str, old: Mapping[str, str] = OLD_IN_COMMENTS) -> Iterator[str]:
    """Lines of comments of either kind; of one in the middle of a line, what follows its end is code."""
    code = re.sub(r"\"(?:[^\"\\\n]|\\.)*\"", "", text)
    comments = (comment.group() for comment in re.finditer(r"//[^\n]*|/\*[\s\S]*?\*/", code))
    for comment in (line for each in comments for line in each.split("\n")):
        for pattern, instead in old.items():
            if re.search(pattern, re.sub(r"`[^`]*`", "", comment)):
                yield f"say {instead}: {comment.strip()}"


def test_comments_of_headers_speak_the_words_of_the_field() -> None:
    files = [path for ending in ("*.h", "*.hpp", "*.cpp") for path in SOURCE.rglob(ending)]
    old = [
        f"{path.relative_to(SOURCE).as_posix()}: {line}"
        for path in files
        for line in old_comments(path.read_text(encoding="utf-8"))
    ]
    assert not old, "\n".join(old)


def test_public_headers_speak_the_words_of_the_field() -> None:
    assert len(PUBLIC_HEADERS) > 20
    words = {**OLD_IN_COMMENTS, **OLD_IN_PUBLIC_HEADERS}
    old = [f"{path.name}: {line}" for path in PUBLIC_HEADERS for line in old_comments(path.read_text("utf-8"), words)]
    assert not old, "\n".join(old)


# What comments and docstrings of modules do not say, but where AMD kernels and PyTorch's modules have yet to follow.
OLD_IN_MODULES = {
    r"\b[Ll](ies?|ying)\b": "is, is contiguous, has the layout",
    r"copy engine": "TMA",
    r"\b[Ww]alk(s|ed|ing)?\b": "traverses, or a traversal",
    r"\bk steps?\b|\bsteps? of k\b": "k-blocks",
    r"\bparts of (a split )?k\b": "splits of k",
    r"\b[Hh]ands? on\b": "an ordinary verb: passes, writes",
    r"\b[Oo]n (its|their|the) way\b": "in flight, or what is done: every selection asks it",
    r"\b[Tt]urns? of (a|its|the)\b|\b(in|one|per) turn\b|\btakes? turns\b": "an iteration; to alternate",
    r"\bstands? (above|before|behind|beside)\b": "precedes, takes precedence over, is beside",
}
NOT_YET = ("backends/hip/", "torch/")


def prose_of(source: str) -> Iterator[str]:
    """Comments and docstrings, line by line, less what stands in backticks."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = [token.string for token in tokens if token.type == tokenize.COMMENT]
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    texts += [each.value for each in constants if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    yield from (re.sub(r"`[^`]*`", "", line) for text in texts for line in text.split("\n"))


def old_prose(source: str) -> Iterator[str]:
    there = {pattern: new for pattern, new in OLD_IN_MODULES.items() if re.search(pattern, source)}
    if there:
        for line in prose_of(source):
            yield from (f"say {new}: {line.strip()}" for pattern, new in there.items() if re.search(pattern, line))


def test_comments_of_modules_speak_the_words_of_the_field() -> None:
    files = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    assert len(files) > 300
    old = [
        f"{place}: {line}"
        for place, path in files.items()
        if not place.startswith(NOT_YET)
        for line in old_prose(path.read_text(encoding="utf-8"))
    ]
    assert not old, "\n".join(old)


@pytest.mark.parametrize(
    ("text", "old"),
    [("x = 1  # as it lies", 1), ('"""Where keys lie."""', 1), ('def f():\n    """Walks\n    over k steps."""', 2),
     ("# `lies` is a name", 0), ('lies = "walks"', 0), ("# one turn of the loop", 1), ("# they stand beside it", 1),
     ('"""Loads on their way; they take turns."""', 2), ("# it turns a path into a URL, in its way", 0)],
)  # fmt: skip
def test_the_guard_reads_comments_of_modules(text: str, old: int) -> None:
    assert len(list(old_prose(text))) == old


@pytest.mark.parametrize(
    ("text", "old"),
    [("x;  // the sums of a tile", 1), ("/* one\n * the sums of a tile */ int sums;", 1), ("int x; /* k steps */", 1),
     ("// partial sums, `sums`; a block sums up", 0), ("// how TMA is told", 1),
     ('"what is told";', 0), ("// the k steps of a tile", 1), ("// parts of k", 1), ("int sums;", 0)],
)  # fmt: skip
def test_the_guard_reads_comments_of_headers(text: str, old: int) -> None:
    assert len(list(old_comments(text))) == old


def test_messages_count_what_they_name() -> None:
    """1 thread, 2 threads (`errors.counted`), not "thread(s)"."""
    lazy = re.compile(r"[a-z]\((s|es)\)[^;]*\"")
    uncounted = [
        f"{path.relative_to(SOURCE).as_posix()}: {line.strip()}"
        for ending in ("*.py", "*.h", "*.cpp")
        for path in SOURCE.rglob(ending)
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\} [a-z ]+\((s|es)\)", line) and lazy.search(line)
    ]
    assert not uncounted, "\n".join(uncounted)


@pytest.mark.parametrize(
    ("name", "place"),
    [("build_forge", "a.py"), ("crew", "cli/a.py"), ("generic_spec", "ops/a.py"), ("lane", "tune/a.py")],
)
def test_the_guard_finds_a_word(name: str, place: str) -> None:
    assert old_words(name, place)


def test_a_lane_of_a_vector_is_one() -> None:
    assert not old_words("lanes", "backends/cpu/conv/space.py")


def test_variables_have_the_name_of_the_thing() -> None:
    nameless = [
        f"{path.relative_to(SOURCE).as_posix()}:{line}: {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, name in variables(path.read_text(encoding="utf-8"))
        if name in NAMELESS
    ]
    assert not nameless, "\n".join(nameless)


def test_private_names_say_something_too() -> None:
    """In the package and in its tests."""
    nameless = [
        f"{path.relative_to(root.parent).as_posix()}:{line}: {name}"
        for root in (SOURCE, Path(__file__).parent)
        for path in sorted(root.rglob("*.py"))
        for line, name in private_names(path.read_text(encoding="utf-8"))
        if is_nameless(name)
    ]
    assert not nameless, "\n".join(nameless)


@pytest.mark.parametrize(
    "source",
    ["_told = 1", "def _made(): pass", "class _Made: pass", "self._asked = 0", "_GIVEN = 1", "lambda *_one: 0"],
)
def test_the_guard_finds_a_private_name(source: str) -> None:
    assert any(is_nameless(name) for _, name in private_names(source))


@pytest.mark.parametrize(
    "source",
    [
        "one = 1",
        "for found in (): pass",
        "[one for one in ()]",
        "lambda given: 0",
        "def f(*, told): pass",
        "class A:\n    asked: int",
        "self.said = 1",
        "if (made := 1): pass",
        "with open('') as of: pass",
        "import lightgbm as found",
    ],
)
def test_the_guard_finds_a_variable(source: str) -> None:
    assert NAMELESS & {name for _, name in variables(source)}


def test_a_method_may_be_called_of() -> None:
    assert not NAMELESS & {name for _, name in variables("DeviceArray.of(array)")}
