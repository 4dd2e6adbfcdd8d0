"""GEMM kernels in the words of AMD's CK Tile dispatcher and tile engine, turned into ours.

    theirs                                ours
    warp_m, wave_m (waves of a block)     warp_grid_m
    epilogue cshuffle, default            store cshuffle, direct
    pipeline preshufflev1, preshufflev2   pipeline preshuffle
    layout rcrr                           layout rcr: D tensors lie as C does
    fp8, bf8                              the encoding the arch multiplies (`ops.encodings`)

Their configurations are objects of lists, either flat or in the sections `tile_config`, `trait_config` and
`multi_d_config`.  What is not named there has their default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.errors import RequestError
from tilewright.ops.base import KernelSpec, Op
from tilewright.ops.gemm.schedule import SCHEDULES, CkTileSchedule
from tilewright.ops.gemm.spec import LAYOUTS
from tilewright.ops.sweep import swept, unknown_name, values_of

SECTIONS = ("tile_config", "trait_config")
FUSED_SECTION = "multi_d_config"
OTHER_VARIANTS = ("streamk_config", "multi_abd_config")  # sections for kernels that are not asked for here

# Their names of values, by ours; a name that both have is not here.
NAMES = {
    **{f"{word}_{axis}": f"warp_grid_{axis}" for word in ("warp", "wave") for axis in "mnk"},
    "epilogue": "store",
    "vector_size_c": "store_width",
}
WORDS: Mapping[str, Mapping[str, str]] = {
    "pipeline": {"preshufflev1": "preshuffle", "preshufflev2": "preshuffle"},
    "store": {"default": "direct"},
}
# What they have and these kernels do not, with the one value that means nothing special.
WITHOUT: Mapping[str, Any] = {
    "k_block_per_cu": 1, "num_wave_groups": 1, "permute_n": False, "block_size": 256,
    "vector_size_a": 0, "vector_size_b": 0,
}  # fmt: skip

DEFAULTS: Mapping[str, Any] = {
    "tile_m": 128, "tile_n": 128, "tile_k": 32, "warp_grid_m": 2, "warp_grid_n": 2, "warp_grid_k": 1,
    "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16, "pipeline": "compv4", "scheduler": "intrawave",
    "store": "cshuffle", "pad_m": False, "pad_n": False, "pad_k": False, "persistent": False,
}  # fmt: skip


def normal_layout(text: str, arch: Arch) -> str:
    """A layout of four letters says how D lies too, which is as C does."""
    if len(text) != 4 or text[:3] not in LAYOUTS:
        return text
    if text[3] != text[2]:
        raise RequestError(
            f"layout {text} has D column-major: D tensors lie as C does",
            rule="layout-d",
            value=text,
            remedy=f"use {text[:3]}{text[2]} (or {text[:3]}, which is the same)",
        )
    return text[:3]


def configured(op: Op, data: Mapping[str, Any], arch: str, axes: Mapping[str, Any]) -> Iterator[KernelSpec]:
    """The kernels that a configuration in their words, or in ours, means."""
    if CkTileSchedule not in SCHEDULES.get(arch_by_name(arch).family, ()):
        fields, _ = read(data, {})
        return swept(op, fields, arch, axes)
    fields, fused = read(data, DEFAULTS)
    variants = axes.get("variants") or (("multi_d",) if axes.get("epilogues") or axes.get("num_d") else ("standard",))
    made = [_of_variant(op, one, fields, {**fused, **axes} if one == "multi_d" else axes, arch) for one in variants]
    return (spec for one in made for spec in one)


def _of_variant(
    op: Op, variant: str, fields: Mapping[str, Any], axes: Mapping[str, Any], arch: str
) -> Iterator[KernelSpec]:
    """Their sweep has one set of traits for all variants, of which each takes what it has."""
    always: dict[str, Any] = {}
    if variant == "preshuffle":
        always = {"pipeline": ("preshuffle",), "scheduler": ("default",), "store": ("cshuffle",), "pad_k": (False,)}
    elif variant == "multi_d":
        always = {"store": ("cshuffle",)}
    return swept(op, {**fields, **always}, arch, {**axes, "variants": (variant,)})


def read(data: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[dict[str, tuple[Any, ...]], dict[str, Any]]:
    """A configuration as lists of our fields, and the axes of fused work it names."""
    if not isinstance(data, Mapping):
        raise RequestError(
            f"a configuration is an object, not {data!r:.60}",
            rule="config-value",
            value=data,
            remedy='write {"tile_config": {"tile_m": [128], ...}, "trait_config": {...}}',
        )
    fields: dict[str, tuple[Any, ...]] = {name: (value,) for name, value in defaults.items()}
    for name, given in _flat(data):
        if name in WITHOUT:
            _demand_plain(name, given)
            continue
        ours = NAMES.get(name, name)
        words = WORDS.get(ours, {})
        fields[ours] = tuple(words.get(one, one) if isinstance(one, str) else one for one in values_of(name, given))
    return fields, _fused(data.get(FUSED_SECTION, {}))


def _flat(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, out of their sections; what begins with an underline is a remark of theirs."""
    for name, given in data.items():
        if name.startswith("_") or name in (FUSED_SECTION, *OTHER_VARIANTS):
            continue
        if name not in SECTIONS:
            yield name, given
        elif isinstance(given, Mapping):
            yield from ((one, value) for one, value in given.items() if not one.startswith("_"))
        else:
            raise RequestError(
                f"{name} of the configuration is {given!r:.60}, not an object",
                rule="config-value",
                value=name,
                remedy=f'write "{name}": {{"tile_m": [128], ...}}',
            )


def _demand_plain(name: str, given: Any) -> None:
    for value in values_of(name, given):
        if value != WITHOUT[name] and name != "block_size":  # it follows from the waves, there too
            raise RequestError(
                f"{name} of the configuration is {value!r}: these kernels have nothing of the kind",
                rule="config-value",
                value=name,
                remedy=f"leave it out, or give {WITHOUT[name]!r}",
            )


def _fused(section: Any) -> dict[str, tuple[Any, ...]]:
    """`multi_d_config` as axes."""
    if not isinstance(section, Mapping):
        raise RequestError(
            f"{FUSED_SECTION} of the configuration is {section!r:.60}, not an object",
            rule="config-value",
            value=FUSED_SECTION,
            remedy='write {"elementwise_ops": ["MultiDAdd"], "num_d_tensors": [1]}',
        )
    names = {"elementwise_ops": "epilogues", "num_d_tensors": "num_d"}
    given = {name: value for name, value in section.items() if not name.startswith("_")}
    for name in given:
        if name not in names:
            raise unknown_name(name, list(names))
    return {names[name]: values_of(name, value) for name, value in given.items()}
