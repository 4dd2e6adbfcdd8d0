"""C++ runs from a bundle: one file, whose libraries are loaded from memory, and in which a changed byte is refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.cpp import programs
from tests.cpp.test_front_end import gemm_problems
from tilewright.arch import runnable_host_archs

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")


def bundle(folder: Path, target: str, path: Path, **changes: object) -> Path:
    """A bundle of an exported folder, as the fixed points of the format say."""
    files = {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}
    files[f"registry/{target}.json"] = files.pop("registry.json")
    facts = {name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in files.items()}
    targets = {target: {"backend": "cpu", "registry": f"registry/{target}.json", "kernels": []}}
    manifest = {"format": "tilewright-bundle", "version": 1, "targets": targets, "files": facts, **changes}
    files["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(name, data)
    return path


def test_kernels_of_a_bundle(tmp_path: Path) -> None:
    target = runnable_host_archs()[0].name
    folder = programs.registry_of(target, gemm_problems(), "tiny").export(tmp_path / "kernels").parent
    path = bundle(folder, target, tmp_path / "model.twb")
    program = programs.program(programs.CPP / "tests" / "test_gemm.cpp", tmp_path / "test_gemm")
    assert " 0 failed" in programs.call(str(program), str(path))

    example = programs.program(programs.ROOT / "examples/cpp/gemm/01_basic.cpp", tmp_path / "01_basic")

    def refusal(file: Path) -> str:
        finished = subprocess.run([str(example), str(file)], capture_output=True, text=True, check=False)
        assert finished.returncode == 1, finished.stdout
        assert "remedy:" in finished.stderr
        return finished.stderr.partition("]")[0].removeprefix("[")

    data = path.read_bytes()
    place = data.index((folder / "select" / "cpu_gemm.so").read_bytes()) + 1000
    broken = tmp_path / "broken.twb"
    broken.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    assert refusal(broken) == "bundle-digest"
    # All of it is read only where that is asked for: a library that nobody loads may be the damaged one.
    checker = programs.program(programs.CPP / "tests" / "test_bundle.cpp", tmp_path / "checker")
    files = len(list(folder.rglob("*.so"))) + 1
    assert programs.call(str(checker), str(path)) == f"{files} files\n"
    kernel = sorted((folder / "kernels").glob("*.so"))[-1]
    place = data.index(kernel.read_bytes()) + 500
    broken.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    told = subprocess.run([str(checker), str(broken)], capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert told.stderr.startswith(f"[bundle-digest] kernels/{kernel.name}")
    for end in (0, 10, len(data) // 2, len(data) - 1):
        broken.write_bytes(data[:end])
        assert refusal(broken) == "bundle-damaged"
    assert refusal(bundle(folder, target, tmp_path / "later.twb", version=2)) == "bundle-version"
    assert refusal(bundle(folder, "sm_90a", tmp_path / "other.twb")) == "bundle-target"
    assert refusal(tmp_path / "none.twb") == "bundle-file"
