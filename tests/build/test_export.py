"""Many kernels in one library: the table lists each of them, whatever the compiler and its options."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

import pytest

from tilewright.backends.cpu.toolchain import find_toolchain, object_rules
from tilewright.codegen import collect, generate
from tilewright.runtime import abi


@pytest.mark.parametrize("options", [("-O0",), ("-O2", "-ffunction-sections", "-fdata-sections")])
def test_the_table_of_a_library_lists_every_linked_kernel(tmp_path: Path, options: tuple[str, ...]) -> None:
    specs = collect("gemm", "generic", pool="tests", expression="c.pipeline != 'packed'").specs
    generate(specs, tmp_path)
    rules = object_rules("generic", ["gemm"])
    driver = find_toolchain().driver
    objects = []
    for number, spec in enumerate(specs):
        objects.append(str(tmp_path / f"{number}.o"))
        common = [*driver, *rules.compile_flags, *options, *(f"-I{one}" for one in rules.include_dirs)]
        subprocess.run([*common, "-c", str(tmp_path / f"{spec.name}.cpp"), "-o", objects[-1]], check=True)
    library = tmp_path / "many.so"
    gone = ["-Wl,--gc-sections"] if len(options) > 1 else []
    words = [*driver, "-shared", *rules.link_flags, *gone, "-o", str(library), *objects, *rules.libraries]
    subprocess.run(words, check=True)

    loaded = ctypes.CDLL(str(library))
    loaded.tw_kernels.restype = ctypes.POINTER(abi.KernelEntry)
    count = ctypes.c_int64()
    table = loaded.tw_kernels(ctypes.byref(count))
    manifests = [json.loads(table[i].manifest) for i in range(count.value)]
    assert len(manifests) == len(specs) > 2
    assert {json.dumps(one, sort_keys=True) for one in manifests} == {
        json.dumps(spec.to_dict(), sort_keys=True) for spec in specs
    }
