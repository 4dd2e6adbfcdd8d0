"""The Python mirrors of abi.h and of every op's arguments have the compiler's sizes and offsets, field by field."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from importlib import import_module, resources
from pathlib import Path

import pytest

from tilewright import ops
from tilewright.runtime import abi

# A header, and what mirrors it: that of all ops, and one an op.
ABI = (abi.STRUCTS, {"TW_ABI_VERSION": abi.ABI_VERSION, **{name: code for code, name in abi.STATUS_NAMES.items()}})
OPS = sorted(ops.all_ops())


def mirrored(header: str) -> tuple[Mapping[str, type[ctypes.Structure]], Mapping[str, int]]:
    if header == "abi":
        return ABI
    args = import_module(f"tilewright.runtime.bindings.{header.removesuffix('_args')}.args")
    return args.ARGS, args.CONSTANTS


HEADERS = ["abi", *(f"{one}_args" for one in OPS)]


@pytest.mark.parametrize("header", HEADERS)
def test_structs_are_what_the_compiler_makes_of_the_header(library_of: Callable[[str], Path], header: str) -> None:
    structs, constants = mirrored(header)
    assert structs
    expected: dict[str, int] = dict(constants)
    for name, mirror in structs.items():
        expected[f"sizeof({name})"] = ctypes.sizeof(mirror)
        for field, *_ in mirror._fields_:
            place = getattr(mirror, field)
            expected[f"offsetof({name}, {field})"] = place.offset
            expected[f"sizeof((({name} *)nullptr)->{field})"] = place.size
    text = (
        f"#include <tilewright/{header}.h>\n"
        f"static const int64_t values[] = {{{', '.join(expected)}}};\n"
        'extern "C" __attribute__((visibility("default"))) const int64_t *values_of(void) { return values; }\n'
    )
    library = ctypes.CDLL(str(library_of(text)))
    library.values_of.restype = ctypes.POINTER(ctypes.c_int64)
    assert dict(zip(expected, library.values_of()[: len(expected)], strict=True)) == expected


def fields_of(body: str) -> list[str]:
    """The names a struct declares, in order; a function's is the one behind (*."""
    text = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    names = []
    for line in filter(None, (one.strip() for one in text.split(";"))):
        function = re.match(r"[^(]*\(\*(\w+)\)\(", line)
        if function:
            names.append(function[1])
        else:
            names += re.findall(r"(\w+)(?:\[[^]]*\])*\s*(?:,|$)", line)
    return names


@pytest.mark.parametrize("header", HEADERS)
def test_every_struct_and_field_of_the_header_is_mirrored(header: str) -> None:
    structs, _ = mirrored(header)
    text = resources.files("tilewright").joinpath(f"include/tilewright/{header}.h").read_text(encoding="utf-8")
    found = re.findall(r"typedef struct (\w+) \{\n(.*?)\n\} \1;", text, re.S)
    assert [name for name, _ in found] == list(structs)
    for name, body in found:
        assert fields_of(body) == [field for field, *_ in structs[name]._fields_]


def test_a_new_ops_arguments_rebuild_no_other_ops_kernels() -> None:
    """Every kernel's key holds abi.h: nothing of one op may be in it."""
    text = resources.files("tilewright").joinpath("include/tilewright/abi.h").read_text(encoding="utf-8")
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    assert [one for one in OPS if one in code] == []
