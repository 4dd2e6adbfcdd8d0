"""The rules that sources name: in Python where kernels are refused, in C++ where limits are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_PLACES = {"Violation": 0, "known": 0, "need": 1}  # which argument names the rule
_RULE = re.compile(r'\bRule \w+\{\s*"([\w-]+)"')


def _in_python(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            rule = node.args[_PLACES[name]] if name in _PLACES and _PLACES[name] < len(node.args) else None
            if isinstance(rule, ast.Constant) and isinstance(rule.value, str):
                yield rule.value


def rules_said(*places: str | Path) -> set[str]:
    """By files and by all in folders."""
    rules: set[str] = set()
    for place in map(Path, places):
        for file in (place,) if place.is_file() else (*place.rglob("*.py"), *place.rglob("*.h")):
            text = file.read_text(encoding="utf-8")
            rules.update(_in_python(text) if file.suffix == ".py" else _RULE.findall(text))
    return rules
