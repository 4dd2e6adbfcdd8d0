"""What a target has, for `--show-arch-info`: the facts that legality asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tilewright.cli.common import fit, print_json

if TYPE_CHECKING:
    from tilewright.arch import Arch
    from tilewright.ops.base import Op

# Facts with a number, and how people read it.
_NUMBERS = {
    "vector_bytes": "bytes of a vector",
    "warp_size": "lanes of a warp",
    "max_threads": "threads of a block at most",
    "scratch_bytes": "bytes of LDS or shared memory a block",
    "vector_registers": "vector registers",
    "accumulator_registers": "accumulator registers",
    "compute_units": "compute units",
    "simds": "SIMD units a compute unit",
    "last_cache_bytes": "bytes of the last cache",
}


def show_arch(op: Op, target: str, json: bool) -> None:
    """The facts of one arch, whether its kernels run here, and what an op has for it."""
    from tilewright.backends.base import backend, resolve_target

    arch = resolve_target(target or None, to_run=False)
    here = arch.name in backend(arch.backend).available_archs()
    count, why = _served(op, arch)
    if json:
        print_json({**_data(arch, here), "kernels": {"op": op.name, "default": count, "why_none": why}})
        return
    kernels = f"{count} kernels in the pool default" if count else f"none: {why}"
    lines = [*_lines(arch, here), (op.name, kernels)]
    typer.echo(fit("\n".join(f"{label:<12}{value}" for label, value in lines)))


def _served(op: Op, arch: Arch) -> tuple[int, str]:
    """How many kernels the default pool has where nobody says more, and why where there are none."""
    from tilewright.codegen import collect
    from tilewright.errors import RequestError

    try:
        collected = collect(op.name, arch.name)
    except RequestError as error:  # nothing is written for its family
        return 0, error.message
    refused = next(iter(collected.rejections_by_rule().values()), None)
    return len(collected.specs), "" if collected.specs or refused is None else refused[1].message


def _data(arch: Arch, here: bool) -> dict[str, Any]:
    from tilewright.ops.base import plain

    facts = {
        name: sorted(value)
        if isinstance(value, frozenset)
        else dict(value)
        if name == "warp_tiles" and value
        else value
        for name, value in ((name, getattr(arch, name)) for name in arch.__slots__)
    }
    return {**{name: plain(value) for name, value in facts.items()}, "runs_here": here}


def _lines(arch: Arch, here: bool) -> list[tuple[str, str]]:
    lines = [
        ("arch", arch.name),
        ("what", arch.description),
        ("family", f"{arch.family}, compiled by the backend {arch.backend}"),
        ("runs here", "yes" if here else "no"),
        ("features", ", ".join(sorted(arch.features)) or "none"),
    ]
    lines += [("has", f"{getattr(arch, name)} {what}") for name, what in _NUMBERS.items() if getattr(arch, name) > 1]
    if arch.includes:
        lines.append(("runs", f"kernels of {', '.join(arch.includes)} too"))
    if arch.warp_grids:
        lines.append(("warp grids", ", ".join(_sizes(grid) for grid in arch.warp_grids)))
    for key, tiles in (arch.warp_tiles or {}).items():
        lines.append(("warp tiles", f"{key}: {', '.join(_sizes(tile) for tile in tiles)}"))
    return lines


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
