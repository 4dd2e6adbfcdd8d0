"""What editors and type checkers see of the package: every public name of every op that ships, with its type."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright as tw
from tilewright import plugins

ROOT = Path(tw.__file__).parent
# What a call of each function gives, as mypy reveals it.
PROGRAM = """
import numpy as np
import tilewright as tw

x = np.zeros((1, 2, 2, 4), np.float32)
tw.conv(x, x, stride="no number of ours", sliding=3)  # error: call-arg
tw.conv_backward_data(x, x)  # error: call-arg
tw.conv_backward_weight(x, x, (1, 2), shape=3)  # error: call-arg
tw.attention(x, x, x, num_splits="many")  # error: arg-type
tw.gemm(x, x, epilogues="relu")  # error: call-arg
tw.append_kv(x, x, x)  # error: call-overload
tw.AttentionProblem(1, 2, rows=3)  # error: call-arg
tw.ConvProblem("one", 2, 3, (4, 4), (3, 3))  # error: arg-type
appended: tuple[object, object] = tw.append_kv(x, x, x, x, cache_seqlens=x)
both: tuple[object, object, object] = tw.append_kv(x, x, x, x, cache_seqlens=x, q=x)
tw.attention(x, x, x, causal=True, starts_q=x)
tw.Selection, tw.Explanation, tw.Registry().select
tw.__version__.split(".")
tw.nonsense  # error: attr-defined
tw.atention(x, x, x)  # error: attr-defined
"""


def typed_names() -> list[str]:
    """Of `__all__` as a type checker reads it."""
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    block = next(one for one in tree.body if isinstance(one, ast.If))
    found = next(one.value for one in block.body if isinstance(one, ast.Assign))
    names: list[str] = ast.literal_eval(found)
    return names


def test_type_checkers_see_what_there_is_at_run_time() -> None:
    """Names of ops in other packages are no part of it: nobody knows them before they are installed."""
    group = "tilewright.api"
    ours = {name for name in plugins.names(group) if plugins.package_of(group, name) == "tilewright"}
    assert sorted(typed_names()) == sorted(ours | set(tw._HOMES))
    for name in typed_names():
        assert getattr(tw, name) is not None


def test_a_program_of_a_user_is_checked(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(tmp_path), "--config-file", "",
         "--follow-imports=silent", str(program)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    wrong = {}
    for line in done.stdout.splitlines():
        if ": error: " in line:
            wrong[int(line.split(":")[1])] = line.rpartition("[")[2].rstrip("]")
    expected = {
        number: line.rpartition("# error: ")[2]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "# error: " in line
    }
    assert wrong == expected, done.stdout
