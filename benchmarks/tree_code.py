"""Two checkouts of Tilewright against each other: is the machine code of their NVIDIA kernels the same?

    git worktree add /tmp/old COMMIT
    python benchmarks/tree_code.py /tmp/old --random SEED [--count 200] [--archs sm_80,sm_90a]

Kernels are drawn by seed from the pool `default` of every op, as many of one arch and op as of another, among those
that both trees have (by digest).  Each tree compiles them in a process and a store of its own.  The code of a cubin is
compared byte for byte, function by function; names of functions are not, which carry names of C++ types.
Nothing is executed, so no GPU is needed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _machine import ROOT

OPS = ("gemm", "conv", "attention", "attention_backward")


def digests(archs: list[str]) -> dict[str, list[str]]:
    """Of each op and arch, the kernels that this process's tree has."""
    from tilewright.codegen import collect

    return {
        f"{op} {arch}": sorted(spec.digest for spec in collect(op, arch, pool="default").specs)
        for op in OPS
        for arch in archs
    }


def code(wanted: dict[str, list[str]]) -> dict[str, list[str]]:
    """Name and digest of the machine code of each kernel that is wanted, compiled by this process's tree."""
    from tilewright.build import builder
    from tilewright.codegen import collect

    specs = []
    for key, mine in wanted.items():
        op, arch = key.split()
        specs += [spec for spec in collect(op, arch, pool="default").specs if spec.digest in set(mine)]
    built = builder.Builder().build_many(specs)
    return {spec.digest: [spec.name, machine_code(built[spec.digest].path)] for spec in specs}


def machine_code(library: Path) -> str:
    from tilewright.inspect.elf import Elf
    from tilewright.inspect.nvidia import cubins

    files = (Elf(raw, str(library)) for raw in cubins(library.read_bytes(), str(library)))
    functions = (file.bytes_of(one) for file in files for one in file.sections if one.name.startswith(".text"))
    return " ".join(sorted(hashlib.sha256(function).hexdigest() for function in functions))


def of_tree(root: Path, store: str, question: dict[str, Any]) -> Any:
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [str(root / "src"), *(one for one in others if one and Path(one).resolve() != ROOT / "src")]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TILEWRIGHT_CACHE_DIR": store}
    script = [sys.executable, __file__, "--worker", str(root)]
    done = subprocess.run(
        script, env=variables, input=json.dumps(question), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{root}:\n{done.stderr}")
    return json.loads(done.stdout)


def work(root: Path) -> None:
    import tilewright

    if not Path(str(tilewright.__file__)).resolve().is_relative_to(root.resolve()):
        raise SystemExit(f"{root} was not what Python imported: {tilewright.__file__}")
    question = json.load(sys.stdin)
    json.dump(digests(question["archs"]) if "archs" in question else code(question["wanted"]), sys.stdout)


def draw(shared: dict[str, list[str]], seed: int, count: int) -> dict[str, list[str]]:
    drawn = random.Random(f"code {seed}")
    each = -(-count // len(shared))
    return {key: drawn.sample(mine, min(each, len(mine))) for key, mine in shared.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?", help="the other checkout")
    parser.add_argument("--random", type=int, metavar="SEED")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--archs", default="sm_80,sm_90a")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.worker)
        return 0
    roots = (given.old.resolve(), ROOT)
    with tempfile.TemporaryDirectory() as folder:
        stores = [str(Path(folder) / name) for name in ("old", "new")]
        theirs, ours = (
            of_tree(root, store, {"archs": given.archs.split(",")}) for root, store in zip(roots, stores, strict=True)
        )
        wanted = draw({key: sorted({*mine} & {*theirs[key]}) for key, mine in ours.items()}, given.random, given.count)
        old, new = (of_tree(root, store, {"wanted": wanted}) for root, store in zip(roots, stores, strict=True))
    different = sorted(name for digest, (name, hashed) in new.items() if old[digest][1] != hashed)
    print(f"{len(new)} kernels, seed {given.random}: the machine code of {len(different)} differs")
    print(*different, sep="\n")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
