"""JSON that others may have written: read with one kind of error, and never deeper than our own files go."""

from __future__ import annotations

import json
from typing import Any

# Deeper than any file of ours; what reads or writes the data afterwards may then walk it without a care.
MOST_NESTED = 64


def loads(text: bytes | str) -> Any:
    """The data of a JSON text; whatever is wrong with it is a ValueError."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > MOST_NESTED:
            raise ValueError(f"it is nested deeper than {MOST_NESTED} levels")
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, (dict, list))
        ]
    return data
