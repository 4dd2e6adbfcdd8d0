"""The source of a selection library: one text with every header in it, so that nothing but a C++ compiler is needed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from tilewright.backends.native import SelectionSource
from tilewright.errors import InternalError

_INCLUDE = re.compile(r"^#include <(tilewright/[^>]+)>\n", re.M)
_ONCE = "#pragma once\n"

# Where products and sums were fused, estimates would round one way here and another there.
_BEGIN = """// The selection library of {name}: which kernels serve a problem, and what each is estimated to take.
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
"""


def _inlined(header: str, places: Sequence[str], seen: set[str]) -> str:
    if header in seen:
        return ""
    seen.add(header)
    for place in places:
        if os.path.isfile(f"{place}/{header}"):  # noqa: PTH113  dozens of headers, in a dozen of folders each
            with open(f"{place}/{header}", encoding="utf-8") as file:  # noqa: PTH123
                text = file.read().replace(_ONCE, "")
            return _INCLUDE.sub(lambda match: _inlined(match.group(1), places, seen), text)
    raise InternalError(f"no include folder holds {header}", rule="selection-header", value=header)


def text_of(name: str, source: SelectionSource) -> str:
    """The whole library of a set."""
    seen: set[str] = set()
    headers = (*source.headers, "tilewright/select/library.h")
    places = [str(place) for place in source.include_dirs]
    inlined = "".join(_inlined(header, places, seen) for header in headers)
    families = ", ".join(f'TW_SELECT_FAMILY("{name}", {space})' for name, space in source.families.items())
    opened = "".join(f"namespace {part} {{ " for part in source.space.split("::"))
    closed = "} " * len(source.space.split("::"))
    listed = f"{opened}const tw::selection::Family<Query> kFamilies[] = {{{families}}}; {closed}\n"
    exports = f"TW_SELECT_LIBRARY({source.space}, {source.prepared})\n{source.exports}"
    return _BEGIN.format(name=name) + inlined + listed + exports
