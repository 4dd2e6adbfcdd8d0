"""GEMM kernels in the words of AMD's CK Tile dispatcher and tile engine, turned into ours.

    theirs                                ours
    warp_m, wave_m (waves of a block)     warp_grid_m
    epilogue cshuffle, default            store cshuffle, direct
    pipeline preshufflev1, preshufflev2   pipeline preshuffle
    layout rcrr                           layout rcr: D tensors have the layout of C
    fp8, bf8                              the encoding the arch multiplies (`ops.encodings`)

Their configurations are objects of lists, either flat or in the sections `problem`, `tile_config`, `trait_config` and
`multi_d_config`.  What is not named there has their default.  Hints to the compiler (`k_block_per_cu`), what follows
from other values (`block_size`) and the order of a packed B (`permute_n`), which is our own, mean nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.dataclass import dataclass
from tilewright.errors import RequestError
from tilewright.ops.base import KernelSpec, Op
from tilewright.ops.encodings import element_types
from tilewright.ops.gemm.legality import SPACES
from tilewright.ops.sweep import Keep, swept, unknown_name, values_of

_LOOKS = {
    "problem": '{"datatype": ["fp16"], ...}',
    "tile_config": '{"tile_m": [128], ...}',
    "trait_config": '{"pipeline": ["compv3"], ...}',
}
SECTIONS = tuple(_LOOKS)
FUSED_SECTION = "multi_d_config"
OTHER_VARIANTS = ("streamk_config", "multi_abd_config")  # sections for kernels that are not asked for here

# Their names of values, by ours; a name that both have is not here.
NAMES = {
    **{f"{word}_{axis}": f"warp_grid_{axis}" for word in ("warp", "wave") for axis in "mnk"},
    "epilogue": "store",
    "vector_size_c": "store_width",
    **{f"kPad{axis.upper()}": f"pad_{axis}" for axis in "mnk"},
}
WORDS: Mapping[str, Mapping[str, str]] = {
    "pipeline": {"preshufflev1": "preshuffle", "preshufflev2": "preshuffle"},
    "store": {"default": "direct"},
}
WITHOUT_MEANING = ("block_size", "k_block_per_cu", "num_wave_groups", "permute_n")
NATIVE_ONLY = ("vector_size_a", "vector_size_b")  # these kernels load as wide as they can, which there is 0
LAYOUTS_OF = ("layout_a", "layout_b", "layout_c")
DTYPES_OF = ("datatype", "datatype_a", "datatype_b", "datatype_c")


def configured(op: Op, data: Mapping[str, Any], arch: str, axes: Mapping[str, Any]) -> Iterator[KernelSpec]:
    """The kernels that a configuration in their words, or in ours, means; axes that are given count first."""
    facts = arch_by_name(arch)
    theirs: Mapping[str, Any] | None = getattr(SPACES.get(facts.family), "CONFIG_DEFAULTS", None)
    config = read(data, facts, theirs or {})
    plain = {**config.axes, **axes}
    if theirs is None:
        return swept(op, config.fields, arch, plain, names_used=config.names_used)
    variants = axes.get("variants") or (("multi_d",) if axes.get("epilogues") or axes.get("num_d") else ("standard",))
    keep = _keep(facts)
    by_variant = [
        _of_variant(op, variant, config, {**config.fused, **plain} if variant == "multi_d" else plain, arch, keep)
        for variant in variants
    ]
    return (spec for specs in by_variant for spec in specs)


def _keep(arch: Arch) -> Keep:
    """Whether a combination may be legal: its parts divide, and the arch has such waves and instructions."""
    grids = set(arch.warp_grids)
    tiles = {tile for shapes in (arch.warp_tiles or {}).values() for tile in shapes}

    def keep(values: Mapping[str, Any]) -> bool:
        tile, grid, step = (
            tuple(values[f"{name}_{axis}"] for axis in "mnk") for name in ("tile", "warp_grid", "warp_tile")
        )
        if any(type(size) is not int for size in (*tile, *grid, *step)):
            return True  # which is an error when it is read
        if grid not in grids or step not in tiles:
            return False
        return not any(size % (a * b) for size, a, b in zip(tile, grid, step, strict=True))

    return keep


def _of_variant(
    op: Op, variant: str, config: Read, axes: Mapping[str, Any], arch: str, keep: Keep
) -> Iterator[KernelSpec]:
    """Their sweep has one set of traits for all variants, of which each takes what it has."""
    fields, always = config.fields, dict[str, Any]()
    if variant == "preshuffle":
        always = {"pipeline": ("preshuffle",), "scheduler": ("default",), "store": ("cshuffle",)}
        always |= {"pad_k": (False,)} if "pad_k" in fields else {}
    elif variant == "multi_d":
        always = {"store": ("cshuffle",)}
    whole = any(name in fields for name in ("tile", "warp_grid", "warp_tile"))  # our own way to name them
    named = {**axes, "variants": (variant,)}
    return swept(op, {**fields, **always}, arch, named, None if whole else keep, config.names_used)


@dataclass(frozen=True, slots=True)
class Read:
    """A configuration as lists of our fields, and the axes it names: of all kernels, and of fused ones."""

    fields: dict[str, tuple[Any, ...]]
    axes: dict[str, tuple[Any, ...]]
    fused: dict[str, tuple[Any, ...]]
    names_used: dict[str, str]  # how the user called our fields


def read(data: Mapping[str, Any], arch: Arch, defaults: Mapping[str, Any]) -> Read:
    """A configuration in their words or ours."""
    if not isinstance(data, Mapping):
        raise RequestError(
            f"a configuration is an object, not {data!r:.60}",
            rule="config-value",
            value=data,
            remedy='write {"tile_config": {"tile_m": [128], ...}, "trait_config": {...}}',
        )
    sweeps: dict[str, tuple[Any, ...]] = {}
    types: dict[str, tuple[Any, ...]] = {}
    names_used: dict[str, str] = {}
    for name, value in _flat(data):
        values = values_of(name, value)
        if name in WITHOUT_MEANING:
            continue
        if name in (*LAYOUTS_OF, *DTYPES_OF):
            types[name] = values
            continue
        _demand_native(name, values)
        ours = NAMES.get(name, name)
        names_used.setdefault(ours, name)
        if ours in sweeps:
            raise RequestError(
                f"the configuration gives {ours} twice, the second time as {name}",
                rule="config-name",
                value=name,
                remedy="leave one of them out",
            )
        words = WORDS.get(ours, {})
        sweeps[ours] = tuple(words.get(word, word) if isinstance(word, str) else word for word in values)
    # A shape that is named whole needs no defaults for its elements.
    whole = {name for name in ("tile", "warp_grid", "warp_tile", "pad") if name in sweeps}
    fields = {name: (value,) for name, value in defaults.items() if name.rpartition("_")[0] not in whole}
    return Read({**fields, **sweeps}, _types(types, arch), _fused(data.get(FUSED_SECTION, {})), names_used)


def _types(types: Mapping[str, tuple[Any, ...]], arch: Arch) -> dict[str, tuple[Any, ...]]:
    """Datatypes and layouts as axes."""
    axes: dict[str, tuple[Any, ...]] = {}
    both = types.get("datatype", ())
    a, b = types.get("datatype_a", both), types.get("datatype_b", both)
    if a or b:
        pairs = product(a or b, b or a) if a != b else ((dtype, dtype) for dtype in a)
        axes["datatypes"] = tuple(
            element_types(str(dtype) if dtype == other else f"{dtype}:{other}", arch) for dtype, other in pairs
        )
    if "datatype_c" in types:
        axes["outputs"] = tuple(element_types(str(dtype), arch) for dtype in types["datatype_c"])
    if any(name in types for name in LAYOUTS_OF):
        letters = (types.get(name, (usual,)) for name, usual in zip(LAYOUTS_OF, "rcr", strict=True))
        axes["layouts"] = tuple("".join(map(str, layout)) for layout in product(*letters))
    return axes


def _flat(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, out of their sections; what begins with an underline is a remark of theirs."""
    for name, value in data.items():
        if name.startswith("_") or name in (FUSED_SECTION, *OTHER_VARIANTS):
            continue
        if name not in SECTIONS:
            yield name, value
        elif isinstance(value, Mapping):
            yield from ((field, value) for field, value in value.items() if not field.startswith("_"))
        else:
            raise RequestError(
                f"{name} of the configuration is {value!r:.60}, not an object",
                rule="config-value",
                value=name,
                remedy=f'write "{name}": {_LOOKS[name]}',
            )


def _demand_native(name: str, values: tuple[Any, ...]) -> None:
    if name in NATIVE_ONLY and any(values):
        raise RequestError(
            f"{name} of the configuration is {values!r:.60}: these kernels load as wide as they can",
            rule="config-value",
            value=name,
            remedy="leave it out, or give 0",
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
    values = {name: value for name, value in section.items() if not name.startswith("_")}
    for name in values:
        if name not in names:
            raise unknown_name(name, list(names))
    return {names[name]: values_of(name, value) for name, value in values.items()}
