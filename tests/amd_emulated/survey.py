"""Registers, scratch and code size of kernels drawn by seed: python -m tests.amd_emulated.survey SEED COUNT [options].

Only the device's half is compiled.  What the rules let pass must not spill; of what the rules on registers and code
refuse, most should (`--refused` draws from those).  Each row is a line of JSON, kept and not made again.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.amd_emulated import code_object
from tests.amd_emulated.gemm.drawing import draw_axes
from tests.amd_emulated.proving import modelled
from tests.backends.hip.gemm import names as amd
from tilewright.arch import all_archs
from tilewright.backends.base import backend
from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.ops import op
from tilewright.ops.base import KernelSpec

POOLS = ("default", "full", "full", "profiler")
RULES = {"amd-registers", "amd-code"}  # what this is about


def draw(seed: str, archs: Sequence[str], refused: bool = False) -> KernelSpec:
    """A kernel that is legal, or that nothing but these rules refuses."""
    rng, gemm = random.Random(seed), op("gemm")
    while True:
        arch = rng.choice(archs)
        proposed = list(gemm.proposals(rng.choice(POOLS), arch, **draw_axes(rng)))
        for _ in range(60):
            if not proposed or any(amd.signature_rules(proposed[0].signature, all_archs()[arch])):
                break
            spec = rng.choice(proposed)
            if not isinstance(spec.schedule, CkTileSchedule):
                continue
            broken = {one.rule for one in gemm.check(spec)}
            if broken <= RULES and bool(broken) == refused:
                return spec


def measure(spec: KernelSpec, seconds: int = 0) -> dict[str, Any]:
    """What the compiler says of the kernel's code object; more than `seconds` of a core is an answer too."""
    hip = backend("hip")
    toolchain: Any = hip.toolchain()
    row: dict[str, Any] = {"name": spec.name, "arch": spec.arch}
    with tempfile.TemporaryDirectory() as work:
        source, output = Path(work) / "kernel.hpp", Path(work) / "kernel.co"
        source.write_text(hip.render(spec).text, encoding="utf-8")
        command = toolchain.code_object_command(source, output, spec.arch, "gemm")
        command[1:1] = toolchain._shared(spec.arch, "gemm")

        def limited() -> None:
            if seconds:
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited)
        row["seconds"] = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 1)  # of a core
        if done.returncode:
            return {**row, "error": done.stderr[-400:] or f"more than {seconds} s of a core"}
        found = code_object.parse(output.read_bytes())
    held = found.kernels.values()
    most = {name: max(getattr(one, name) for one in held) for name in ("scratch", "vgprs", "sgprs")}
    return {**row, **most, "code": found.span, "kernels": len(found.kernels)}


def rows(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    known: dict[int, dict[str, Any]] = {}
    if given.results and given.results.exists():
        known = {one["index"]: one for one in map(json.loads, given.results.read_text().splitlines())}
    for index in range(given.count):
        spec = draw(f"survey {given.seed} {index}", given.arch or modelled(), given.refused)
        if index in known and known[index]["name"] == spec.name:
            yield known[index]
            continue
        row = {"index": index, "estimate": shape.registers(spec.signature, spec.schedule), **measure(spec, given.limit)}
        row["spec"] = json.loads(spec.to_json())
        if given.results:
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description="Registers and scratch of AMD kernels drawn by seed.")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--arch", action="append")
    parser.add_argument("--refused", action="store_true", help="kernels that only these rules refuse")
    parser.add_argument("--limit", type=int, default=0, help="seconds of a core for one compile")
    parser.add_argument("--results", type=Path)
    spilling = total = 0
    for row in rows(parser.parse_args()):
        said = row.get("error") or f"scratch {row['scratch']}, registers {row['vgprs']}, code {row['code']}"
        print(f"{row['name']}: estimate {row['estimate']}, {said}, {row['seconds']} s of a core", flush=True)
        total += 1
        spilling += bool(row.get("scratch") or row.get("error"))
    print(f"{spilling} of {total} spill or do not compile in time")


if __name__ == "__main__":
    main()
