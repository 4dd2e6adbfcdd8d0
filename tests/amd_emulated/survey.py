"""Registers, scratch and code size of kernels drawn by seed: python -m tests.amd_emulated.survey SEED COUNT [options].

Only the device's half is compiled.  What the rules let pass must compile and must not spill; of what the rules on
registers refuse, most should (`--refused` draws from those).  Each row is a line of JSON, kept and not made again.

Failures come in strata, so these are drawn evenly: ops and archs in turn, then a pool, what is computed, and a pipeline
of what the pool has for it.  Half are the tightest of some (`pressure`), since what spills is near a limit.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.amd_emulated import code_object
from tests.amd_emulated.attention import drawing as attention
from tests.amd_emulated.attention_backward.drawing import draw_signature as draw_backward
from tests.amd_emulated.conv.drawing import draw_axes as draw_conv
from tests.amd_emulated.gemm.drawing import draw_axes as draw_gemm
from tilewright.arch import all_archs
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import backend
from tilewright.backends.hip import ck_tile_rules, ck_tile_shape
from tilewright.backends.hip.attention import tiled as attention_tiled
from tilewright.backends.hip.attention.ck_tile import headers
from tilewright.backends.hip.attention.ck_tile import schedules as attention_schedules
from tilewright.backends.hip.attention.ck_tile.schedules import CkTileAttentionSchedule
from tilewright.backends.hip.attention.tiled import TiledAttentionSchedule
from tilewright.backends.hip.attention_backward import tiled as backward_tiled
from tilewright.backends.hip.attention_backward.tiled import TiledBackwardSchedule
from tilewright.backends.hip.conv import tiled as conv_tiled
from tilewright.backends.hip.conv.ck_tile.schedules import CkTileConvSchedule
from tilewright.backends.hip.conv.ck_tile.shape import as_product, walking_registers
from tilewright.backends.hip.conv.tiled import TiledConvSchedule
from tilewright.backends.hip.gemm import tiled as gemm_tiled
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.backends.hip.gemm.tiled import TiledSchedule
from tilewright.errors import RequestError
from tilewright.ops import op
from tilewright.ops.base import KernelSpec

OPS = ("attention", "gemm", "attention_backward", "conv")
ARCHS = ("gfx90a", "gfx1100", "gfx942", "gfx908", "gfx950", "gfx1201", "gfx1200", "gfx1250")
# Rules on what a kernel takes: those this is about.
RULES = {"amd-registers", "amd-attention-registers", "amd-backward-registers", "amd-compv5-fragments"}
FALLBACK = ("loops", "rows")
KEPT = 0.1  # of the fallback kernels that are drawn where there are others
TRIES, TIGHTEST_OF, TURNS = 60, 16, 600
MARK = "<!-- survey: written by tests/amd_emulated/survey.py -->"
MANY = 1000  # kernels: more than a precompiled header pays for


@lru_cache(maxsize=64)
def pools(name: str, arch: str) -> tuple[str, ...]:
    """The pools of an op on an arch, each under one name: receipts are numbers of profiles."""
    named = [pool for pool in op(name).pool_names if not pool.isdigit()]
    return tuple(pool for pool in named if _has(name, pool, arch))


def _has(name: str, pool: str, arch: str) -> bool:
    try:
        op(name).proposals(pool, arch)
    except RequestError:
        return False  # of another family of archs
    return True


def proposed(name: str, pool: str, arch: str, rng: random.Random) -> dict[str, list[KernelSpec]]:
    """What a pool has for something drawn, by pipeline."""
    if name in ("gemm", "conv"):
        axes = draw_gemm(rng) if name == "gemm" else draw_conv(rng)
    else:
        signature: Any = attention.draw_signature(rng, arch) if name == "attention" else draw_backward(rng)
        axes = op(name).axes_of(signature)
    by_pipeline: dict[str, list[KernelSpec]] = {}
    try:
        for spec in op(name).proposals(pool, arch, **axes):
            by_pipeline.setdefault(spec.schedule.pipeline, []).append(spec)
    except RequestError:
        return {}  # a profile that is not for such kernels
    return by_pipeline


def wanted(spec: KernelSpec) -> tuple[int, int]:
    """Registers of a lane that the rules count, and how many they let pass; (0, 1) of what no rule counts."""
    s, h, arch = spec.signature, spec.schedule, arch_by_name(spec.arch)
    if isinstance(h, CkTileSchedule):
        return ck_tile_shape.registers(s, h), ck_tile_rules.register_room(h, arch)
    if isinstance(h, CkTileConvSchedule):
        both = as_product(s, h)
        return ck_tile_shape.registers(*both) + walking_registers(s, h), ck_tile_rules.register_room(both[1], arch)
    if isinstance(h, CkTileAttentionSchedule):
        instance = attention_schedules.instance(s, h, spec.arch)
        return headers.registers(instance), headers.room(instance, arch)
    if isinstance(h, TiledSchedule):
        return gemm_tiled.wanted_registers(s, h, arch), gemm_tiled.most_registers(h, arch)
    if isinstance(h, TiledAttentionSchedule):
        return attention_tiled.wanted_registers(s, h, arch), attention_tiled.most_registers(h, arch)
    if isinstance(h, TiledConvSchedule):
        return conv_tiled.registers_and_room(s, h, arch)
    if isinstance(h, TiledBackwardSchedule):
        return backward_tiled.wanted_registers(s, h, arch), backward_tiled.most_registers(h, arch)
    return 0, 1


def pressure(spec: KernelSpec) -> float:
    count, most = wanted(spec)
    return count / most


@dataclass(frozen=True, slots=True)
class Wish:
    """What to draw from: everything, unless something is named."""

    refused: bool = False  # kernels that only the rules on registers refuse
    pool: str = ""
    pipelines: tuple[str, ...] = ()


def draw(name: str, seed: str, arch: str, wish: Wish, tight: bool = False) -> KernelSpec:
    """A kernel that is legal, or that nothing but the rules on registers refuses."""
    rng = random.Random(seed)
    for turn in range(TURNS):
        by_pipeline = proposed(name, wish.pool or rng.choice(pools(name, arch)), arch, rng)
        kinds = [pipeline for pipeline in by_pipeline if not wish.pipelines or pipeline in wish.pipelines]
        fast = [pipeline for pipeline in kinds if pipeline not in FALLBACK]
        if not fast and turn < TURNS // 2 and rng.random() > KEPT:
            continue
        for pipeline in rng.sample(fast or kinds, len(fast or kinds)):
            fitting = _fitting(by_pipeline[pipeline], rng, wish.refused, TIGHTEST_OF if tight else 1)
            if fitting:
                return max(fitting, key=pressure)
    raise LookupError(f"nothing of {name} on {arch} was drawn")


def _fitting(specs: Sequence[KernelSpec], rng: random.Random, refused: bool, most: int) -> list[KernelSpec]:
    fitting: list[KernelSpec] = []
    for spec in rng.sample(specs, min(len(specs), TRIES if most == 1 else 8 * TRIES)):
        broken = {violation.rule for violation in op(spec.op).check(spec)}
        if broken <= RULES and bool(broken) == refused:
            fitting.append(spec)
            if len(fitting) == most:
                break
    return fitting


def command_of(spec: KernelSpec, source: Path, output: Path) -> list[str]:
    toolchain: Any = backend("hip").toolchain()
    command: list[str] = toolchain.code_object_command(source, output, spec.arch, spec.op)
    if toolchain._demand_headers(source):
        command[1:1] = toolchain._shared(spec.arch, spec.op)
    return command


def prepare(name: str, arch: str) -> None:
    """The precompiled header of an op's CK Tile kernels on an arch: it halves the time of each."""
    toolchain: Any = backend("hip").toolchain()
    shared = toolchain.preparation(arch, name, MANY)
    if shared is not None:
        subprocess.run(shared.command, check=True)
        shared.part.replace(shared.output)


def measure(spec: KernelSpec, seconds: int = 0) -> dict[str, Any]:
    """What the compiler says of the kernel's code object; more than `seconds` of a core is an answer too."""
    row: dict[str, Any] = {"name": spec.name, "op": spec.op, "arch": spec.arch}
    with tempfile.TemporaryDirectory() as work:
        source, output = Path(work) / "kernel.hpp", Path(work) / "kernel.co"
        toolchain: Any = backend("hip").toolchain()
        source.write_text(toolchain.source(spec).text, encoding="utf-8")
        command = command_of(spec, source, output)

        def limited() -> None:
            if seconds:
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited)
        row["seconds"] = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 1)  # of a core
        if done.returncode:
            return {**row, "error": done.stderr[-400:] or f"ended by {done.returncode}"}
        found = code_object.parse(output.read_bytes())
    held = found.kernels.values()
    names = ("scratch", "spilled", "vgprs", "agprs", "sgprs", "lds")
    most = {name: max(getattr(kernel, name) for kernel in held) for name in names}
    return {**row, **most, "code": found.span, "kernels": len(found.kernels)}


def rows(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    known: dict[str, dict[str, Any]] = {}
    if given.results and given.results.exists():
        known = {row["name"]: row for row in map(json.loads, given.results.read_text().splitlines())}
    ops, archs = given.op or OPS, given.arch or ARCHS
    wish = Wish(given.refused, given.pool, tuple(given.pipeline or ()))
    for index in range(given.first, given.first + given.count):
        name, arch = ops[index % len(ops)], archs[index // len(ops) % len(archs)]
        tight = index // (len(ops) * len(archs)) % 2 == 0
        try:
            spec = draw(name, f"survey {given.seed} {index}", arch, wish, tight)
        except LookupError:
            continue
        if spec.name in known:
            yield known[spec.name]
            continue
        count, most = wanted(spec)
        row = {"index": index, "counted": count, "most": most, "pipeline": spec.schedule.pipeline}
        row |= measure(spec, given.limit) | {"spec": json.loads(spec.to_json())}
        if given.results:
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        yield row


def _cause(row: dict[str, Any]) -> str:
    """What became of a kernel that failed: the rule that refuses it now, or nothing."""
    broken = op(row["op"]).check(op(row["op"]).spec_from_dict(row["spec"]))
    return f"refused now: `{broken[0].rule}`" if broken else "**legal**"


def written(rows_of: Sequence[dict[str, Any]]) -> str:
    """The tables of a document."""
    counts: Counter[tuple[str, ...]] = Counter()
    for row in rows_of:
        for key in ((row["op"], row["arch"]), (row["op"], "all"), ("all", "all")):
            counts[key] += 1
            counts[(*key, "failed")] += "error" in row
            counts[(*key, "scratch")] += bool(row.get("scratch"))
            counts[(*key, "refused")] += ("error" in row or bool(row.get("scratch"))) and "refused" in _cause(row)
    lines = [
        "| op | arch | compiled | do not compile | scratch | of these refused now |",
        "| --- | --- |" + " ---: |" * 4,
    ]
    for key in sorted(key for key in counts if len(key) == 2):
        numbers = (counts[key], *(counts[(*key, what)] for what in ("failed", "scratch", "refused")))
        lines.append(f"| {key[0]} | {key[1]} | {' | '.join(map(str, numbers))} |")
    lines += ["", "| kernel | registers counted | has | bytes of scratch | |", "| --- | ---: | ---: | ---: | --- |"]
    for row in rows_of:
        if "error" in row or row.get("scratch"):
            said = "does not compile" if "error" in row else row["scratch"]
            lines.append(f"| `{row['name']}` | {row['counted']} | {row.get('vgprs', '')} | {said} | {_cause(row)} |")
    return "\n".join(lines) + "\n"


def write(document: Path, results: Path) -> None:
    text = document.read_text(encoding="utf-8") if document.exists() else ""
    head = text.partition(MARK)[0] if MARK in text else text
    rows_of = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    document.write_text(f"{head}{MARK}\n\n{written(rows_of)}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Registers and scratch of AMD kernels drawn by seed.")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0, help="index of the first")
    parser.add_argument("--op", action="append", choices=OPS)
    parser.add_argument("--arch", action="append", choices=sorted(all_archs()))
    parser.add_argument("--pool", default="", help="one pool instead of every one")
    parser.add_argument("--pipeline", action="append", help="one pipeline instead of every one")
    parser.add_argument("--refused", action="store_true", help="kernels that only the rules on registers refuse")
    parser.add_argument("--limit", type=int, default=0, help="seconds of a core for one compile")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--document", type=Path, help="where the tables of all results go")
    seen: Counter[str] = Counter()
    given = parser.parse_args()
    for row in rows(given):
        said = row.get("error") or f"scratch {row['scratch']}, registers {row['vgprs']}, code {row['code']}"
        print(f"{row['name']}: {row['counted']} of {row['most']}, {said}, {row['seconds']} s of a core", flush=True)
        for key in (row["op"], row["arch"], "in all"):
            seen[key] += 1
            seen[f"{key}: failed"] += "error" in row
            seen[f"{key}: scratch"] += bool(row.get("scratch"))
    for key in sorted(seen):
        print(f"{key}: {seen[key]}")
    if given.document and given.results:
        write(given.document, given.results)


if __name__ == "__main__":
    main()
