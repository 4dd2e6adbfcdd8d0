"""Numbers of a call, of whichever library."""

from __future__ import annotations

import operator
from typing import Any

from tilewright.errors import ProblemError, shown


def whole_number(op: str, name: str, value: Any, wanted: str = "int") -> int:
    """A whole number of any library; truth values, texts and fractions are none."""
    if type(value) is int:
        return value
    wrong = ProblemError(
        f"{name} is {shown(value)}, which is no whole number",
        rule=f"{op}-number",
        value=shown(value),
        remedy=f"give {name} as {wanted}",
    )
    if isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
        raise wrong
    try:
        return operator.index(value)
    except Exception:  # what has no such number, arrays that hold several, and classes of the user's own
        raise wrong from None


def switch(op: str, name: str, value: Any) -> bool:
    """A truth value of any library; texts and numbers are none: "no" would be taken for yes."""
    if type(value) is bool:
        return value
    if "bool" in str(getattr(value, "dtype", "")) and getattr(value, "shape", None) == ():
        return bool(value)
    raise ProblemError(
        f"{name} is {shown(value)}, which is neither True nor False",
        rule=f"{op}-switch",
        value=shown(value),
        remedy=f"give {name}=True or {name}=False",
    )
