"""Numbers of a call, of whichever library."""

from __future__ import annotations

import operator
from typing import Any

from tilewright.errors import ProblemError, attribute_of, shown

_OVER = 10**100  # what no size, bound or seed is; errors print numbers below it


def whole_number(op: str, name: str, value: Any, wanted: str = "int") -> int:
    """A whole number of any library; truth values, texts and fractions are none."""
    if type(value) is int and -_OVER < value < _OVER:
        return value
    wrong = ProblemError(
        f"{name} is {shown(value)}, which is no whole number",
        rule=f"{op}-number",
        value=shown(value),
        remedy=f"give {name} as {wanted}",
    )
    if isinstance(value, bool) or "bool" in shown(attribute_of(value, "dtype", "")):
        raise wrong
    try:
        number = operator.index(value)
    except Exception:  # what has no such number, arrays that hold several, and classes of the user's own
        raise wrong from None
    if not -_OVER < number < _OVER:
        raise ProblemError(
            f"{name} is {shown(number)}, larger than any size",
            rule=f"{op}-number",
            value=shown(number),
            remedy=f"give {name} as {wanted} of at most 64 bits",
        )
    return number


def switch(op: str, name: str, value: Any) -> bool:
    """A truth value of any library; texts and numbers are none: "no" would be taken for yes."""
    if type(value) is bool:
        return value
    if "bool" in shown(attribute_of(value, "dtype", "")) and attribute_of(value, "shape") == ():
        return bool(value)
    raise ProblemError(
        f"{name} is {shown(value)}, which is neither True nor False",
        rule=f"{op}-switch",
        value=shown(value),
        remedy=f"give {name}=True or {name}=False",
    )
