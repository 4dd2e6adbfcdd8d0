"""The Python mirror of abi.h has the compiler's sizes and offsets, field by field."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

from tilewright.runtime import abi


def test_structs_are_what_the_compiler_makes_of_the_header(library_of: Callable[[str], Path]) -> None:
    expected: list[tuple[str, int]] = []
    values: list[str] = []
    for name, mirror in abi.STRUCTS.items():
        expected.append((f"sizeof({name})", ctypes.sizeof(mirror)))
        values.append(f"sizeof({name})")
        for field, *_ in mirror._fields_:
            place = getattr(mirror, field)
            expected += [(f"offset {name}.{field}", place.offset), (f"size {name}.{field}", place.size)]
            values += [f"offsetof({name}, {field})", f"sizeof((({name} *)nullptr)->{field})"]
    constants = ["TW_ABI_VERSION", "TW_MAX_D", *sorted(abi.STATUS_NAMES.values())]
    by_name = {name: code for code, name in abi.STATUS_NAMES.items()}
    expected += [("TW_ABI_VERSION", abi.ABI_VERSION), ("TW_MAX_D", abi.MAX_D)]
    expected += [(name, by_name[name]) for name in sorted(by_name)]
    text = (
        "#include <tilewright/abi.h>\n"
        f"static const int64_t values[] = {{{', '.join(values + constants)}}};\n"
        'extern "C" __attribute__((visibility("default"))) const int64_t *values_of(void) { return values; }\n'
    )
    library = ctypes.CDLL(str(library_of(text)))
    library.values_of.restype = ctypes.POINTER(ctypes.c_int64)
    found = library.values_of()[: len(expected)]
    assert list(zip([name for name, _ in expected], found, strict=True)) == expected


def test_every_field_of_the_header_is_mirrored() -> None:
    from importlib import resources

    header = resources.files("tilewright").joinpath("include/tilewright/abi.h").read_text(encoding="utf-8")
    body = header.partition("typedef struct tw_gemm_args {")[2].partition("} tw_gemm_args;")[0]
    assert body, "the struct is no longer spelled as this test reads it"
    lines = [line.partition("/*")[0].rstrip(" ;") for line in body.splitlines() if line.strip()]
    names = [
        word.strip().lstrip("*").partition("[")[0]
        for line in lines
        for word in line.replace("const void", "")
        .replace("int64_t", "")
        .replace("double", "")
        .replace("void", "")
        .split(",")
    ]
    assert names == [name for name, *_ in abi.GemmArgs._fields_]
