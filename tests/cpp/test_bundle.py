"""C++ runs from a bundle: one file, whose libraries are loaded from memory, and in which a changed byte is refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

import tilewright as tw
from tests.cpp import programs
from tests.cpp.test_choices import slowest
from tests.cpp.test_front_end import gemm_problems
from tests.cpp.test_same_choice import line
from tests.cpp.test_same_model import trained_for
from tilewright import ops, settings
from tilewright.arch import runnable_host_archs
from tilewright.arch.host import l2_bytes
from tilewright.build.bundle_file import archive
from tilewright.bundle.build import Wish, build
from tilewright.dispatch import learned, locks, model_files
from tilewright.dispatch.records import Record, Timing, machine, records
from tilewright.ops.base import plain
from tilewright.runtime.host import thread_count

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")


def bundle(folder: Path, target: str, path: Path, **changes: object) -> Path:
    """A bundle of an exported folder, as the fixed points of the format say."""
    files = {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}
    files[f"registry/{target}.json"] = files.pop("registry.json")
    facts = {name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in files.items()}
    targets = {target: {"backend": "cpu", "registry": f"registry/{target}.json", "kernels": []}}
    manifest = {"format": "tilewright-bundle", "version": 1, "targets": targets, "files": facts, **changes}
    files["manifest.json"] = json.dumps(manifest).encode()
    path.write_bytes(b"".join(archive(files)))
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
    # The manifest, which no digest covers, and what lies between files and behind them: dates, modes, checksums.
    directory = data.index(b"PK\1\2")
    for place in (data.index(b'"format"') + 3, 12, directory + 5, directory + 16, directory + 39, len(data) - 18):
        broken.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        told = subprocess.run([str(checker), str(broken)], capture_output=True, text=True, check=False)
        assert told.returncode == 1, place
        assert "remedy:" in told.stderr or told.stderr.startswith("[bundle-d"), told.stderr
    for end in (0, 10, len(data) // 2, len(data) - 1):
        broken.write_bytes(data[:end])
        assert refusal(broken) == "bundle-damaged"
    assert refusal(bundle(folder, target, tmp_path / "later.twb", version=2)) == "bundle-version"
    assert refusal(bundle(folder, "sm_90a", tmp_path / "other.twb")) == "bundle-target"
    assert refusal(tmp_path / "none.twb") == "bundle-file"


@pytest.mark.proof  # each of them is read from folders in quick tests: test_choices.py, test_same_model.py
def test_a_bundle_brings_pins_measurements_and_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python under `use_bundle` and C++ choose alike by each of them; what none speaks of is left to the estimate."""
    target, threads = "generic", min(2, thread_count())
    model = trained_for("gemm-zen4-avx2", {"model": machine(target)["model"]}, targets=(target,))
    monkeypatch.setattr(model_files, "at_hand_for", lambda op, _: (model,) if op == "gemm" else ())
    monkeypatch.setattr(model_files, "files_for", lambda *_: {})
    monkeypatch.setattr(learned, "at_hand", lambda: True)
    learned._at_hand.cache_clear()
    pinned, measured, others = (tw.GemmProblem(m=m, n=512, k=512, layout="rcr") for m in (64, 96, 128))
    huge = tw.GemmProblem(m=1 << 20, n=16, k=3, layout="rcr")  # beyond what models were trained on
    spec = slowest(programs.registry_of(target, [pinned]), pinned)
    locks.write(tmp_path / "lock.json", [locks.pin(ops.op("gemm"), target, pinned, spec, alone=True)])
    with settings.override(cache_dir=tmp_path / "store", models=True, measure=True, threads=threads):
        timing = Timing(spec.digest, spec.name, spec.to_dict(), 1.25e-5, 0.0, 0.1)
        form = plain(ops.op("gemm").measured_as(measured))
        records().put(Record("gemm", form, threads, target, spec.digest, (timing,), {}, {}))
        wish = Wish([target], [pinned, measured, others, huge], threads=[threads], lock=tmp_path / "lock.json")
        build(tmp_path / "model.twb", wish, jobs=1)
    asked, expected = (pinned, measured, others, huge), list[tuple[str, str]]()
    elsewhere = settings.override(cache_dir=tmp_path / "other", models=True, measure=True, threads=threads)
    with elsewhere, tw.use_bundle(tmp_path / "model.twb"):
        for problem in asked:
            chosen = tw.explain(problem, target=target).selection
            assert chosen is not None
            expected.append((chosen.spec.digest, chosen.tier))
    learned._at_hand.cache_clear()
    assert [tier for _, tier in expected] == ["locked", "measured", "model", "heuristic"]
    chooser = programs.program(programs.CPP / "tests" / "choose.cpp", tmp_path / "choose")
    words = (str(chooser), str(tmp_path / "model.twb"), str(threads), str(l2_bytes()))
    answers = programs.call(*words, input="\n".join(map(line, asked)) + "\n").splitlines()
    assert [tuple(answer.split()[:2]) for answer in answers] == expected
    # All of it is checked: a changed tree of a model too.
    checker = programs.program(programs.CPP / "tests" / "test_bundle.cpp", tmp_path / "checker")
    assert programs.call(str(checker), str(tmp_path / "model.twb")).endswith(" files\n")
    data = (tmp_path / "model.twb").read_bytes()
    place = data.index(b"TWTREES1") + 100
    (tmp_path / "broken.twb").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    told = subprocess.run([str(checker), str(tmp_path / "broken.twb")], capture_output=True, text=True, check=False)
    assert told.stderr.startswith("[bundle-digest] models/gemm-zen4-avx2.twtrees")
