"""Help texts and option names: whole, in groups, and in the words of the field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from tilewright import ops
from tilewright.cli.main import GROUPS, build_app

# Words of our own that public names and help texts must not use again, and the field's.
OLD_WORDS = {
    r"\bstarts_[qk]\b": "cu_seqlens_q, cu_seqlens_k",
    r"\blongest_[qk]\b": "max_seqlen_q, max_seqlen_k",
    r"\blengths_(q|k|new)\b": "seqlens_q, seqlens_k, seqlens_new",
    r"\bpage_table\b": "block_table",
    r"--(rows|keys|head-qk|head-v|lse|packed|turns-q|scales-kv|scales-q|lookup|splits|sink-keys)\b": "vocabulary",
    r"\bthe floor\b|\bfloor (tier|kernel)": "fallback",
    r"\bby rule\b": "heuristic",
    r"\bcopy engine\b": "TMA",
    r"\bturned\b|\bturns [qk]\b": "transposed; rotary embedding",
    r"\b(dealing|together|shares|folded)\b|\bband\b": "tile scheduler, CTAs per SM, stream-K, width-folded, halo",
    r"\bheads? of (keys|values|queries)\b": "KV heads, query heads",
    r"\bcrews?\b|\blanes?\b|\bforge\b": "worker pool, device worker, build queue",
}


def commands(ctx: Any = None, group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its path, those of each op that ships too."""
    if group is None:
        group = typer.main.get_command(build_app())
        ctx = group.context_class(group)
    for name in group.list_commands(ctx):
        one = group.get_command(ctx, name)
        yield (*path, name), one
        if hasattr(one, "list_commands"):
            yield from commands(ctx, one, (*path, name))


ALL = {" ".join(path): one for path, one in commands()}


def test_every_command_is_listed_in_a_group_and_whole() -> None:
    done = CliRunner().invoke(build_app(), ["--help"], env={"COLUMNS": "80"})
    assert "..." not in done.stdout.partition("Run and choose")[2]
    assert "More:" not in done.stdout, "a new command has a group in cli/main.py"
    for title, names in GROUPS.items():
        assert f"{title}:" in done.stdout
        assert list(names) == sorted(names)
    assert {name for names in GROUPS.values() for name in names} == {name for name in ALL if " " not in name}
    below = CliRunner().invoke(build_app(), ["learn", "--help"], env={"COLUMNS": "80"})
    assert "..." not in below.stdout.partition("Commands")[2]


@pytest.mark.parametrize("name", ALL)
def test_help_speaks_the_words_of_the_field(name: str) -> None:
    one = ALL[name]
    texts = [one.help or "", one.get_short_help_str(1000)]
    options = [(param.opts, getattr(param, "help", "") or "") for param in one.params]
    whole = " ".join([*texts, *(f"{' '.join(opts)} {text}" for opts, text in options)])
    own = any(op in name.split() for op in ops.op_names() if op not in ("gemm", "conv", "attention"))
    for pattern, word in OLD_WORDS.items():
        found = re.search(pattern, whole)
        assert own or found is None, f"{found.group(0) if found else ''}: say {word}"


@pytest.mark.parametrize("name", [name for name in ALL if name.endswith(("attention", "conv", "gemm"))])
def test_a_help_text_is_a_sentence(name: str) -> None:
    for param in ALL[name].params:
        text = getattr(param, "help", "") or ""
        if getattr(param, "hidden", False) or param.name == "help":
            continue
        assert text, f"{param.opts[0]} has no help"
        assert text[0].isupper() or text[0].isdigit(), text
        assert "  [" in text or text.rstrip().endswith((".", "]", ")", "...")), text


FRAGMENT = re.compile(r"(Of|As|Where|What|How|Whose|Whether|Who|Those)\b")


@pytest.mark.parametrize("name", ALL)
def test_a_help_text_starts_with_a_verb_or_a_noun(name: str) -> None:
    one = ALL[name]
    for text in (one.help or "", *(getattr(param, "help", "") or "" for param in one.params)):
        assert not FRAGMENT.match(text.strip()), text


@pytest.mark.parametrize("name", ["gemm", "conv", "attention"])
def test_public_names_are_those_of_the_field(name: str) -> None:
    """Options of problems, and the arguments of the functions users call."""
    for option in ops.op(name).options:
        for pattern, word in OLD_WORDS.items():
            assert not re.search(pattern, f"--{option.name.replace('_', '-')} {option.name}"), f"say {word}"
