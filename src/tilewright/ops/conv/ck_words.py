"""Convolutions in the words of AMD's CK Tile dispatcher and tile engine, turned into ours.

    theirs                                          ours
    wave_mode                                       scheduler
    num_groups_to_merge                             merged
    pipeline basic_v1, compv6, wavelet, ...         none: left out, with a note
    N, C, K, G                                      batch, channels, filters, groups (C and K over all groups there too)
    Di, Hi, Wi; Z, Y, X                             size; window
    stride_h, pad_h, dilation_h, ...                stride, padding, dilation
    direction                                       variant

Their other traits (double_smem_buffer, split_image, explicit_gemm, two_stage) are what a kernel has or has not:
families whose kernels are so offer them under these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.errors import RequestError
from tilewright.ops.conv.spec import VARIANTS, normal_variant
from tilewright.ops.sweep import values_of

TRAITS = "trait_config"
NAMES = {"wave_mode": "scheduler", "num_groups_to_merge": "merged"}
# Pipelines of theirs that no kernel here has.
NO_PIPELINES = ("basic_v1", "compv1", "basic_v2", "compv2", "compv6", "comp_async", "basic_async_v1", "wavelet")
# Names that only their configurations have.
_THEIRS = {*NAMES, "double_smem_buffer", "split_image", "explicit_gemm", "two_stage"}
WITHOUT_MEANING = ("block_per_cu", "num_wave_groups")  # hints, and what follows from the pipeline


def trait_config(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """A trait config under our names, and what was left out of it, for people."""
    traits = data.get(TRAITS)
    if not isinstance(traits, Mapping):
        return data, []
    ours: dict[str, Any] = {}
    notes = []
    for name, value in traits.items():
        if name in WITHOUT_MEANING:
            notes.append(f"{name} means nothing here, and is left out")
            continue
        new = NAMES.get(str(name), str(name))
        if new in ours:
            raise RequestError(
                f"the configuration gives {new} twice, the second time as {name}",
                rule="config-name",
                value=name,
                remedy="leave one of them out",
            )
        ours[new] = value
    if "pipeline" in ours:
        words = values_of("pipeline", ours["pipeline"])
        absent = [word for word in words if word in NO_PIPELINES]
        kept = [word for word in words if word not in NO_PIPELINES]
        if absent and kept:  # where none is left, the error says which there are
            ours["pipeline"] = kept
            notes.append(f"no kernel here has pipeline {', '.join(absent)}: left out")
    theirs = bool(notes) or not _THEIRS.isdisjoint(traits)
    # Theirs sweep tiles; a configuration of ours that names no pool has the default kernels.
    return {**({"pool": "full"} if theirs else {}), **data, TRAITS: ours}, notes


_AXES = ("d", "h", "w")
_SIZES = {"Di": "d", "Hi": "h", "Wi": "w"}
_WINDOWS = {"Z": "d", "Y": "h", "X": "w"}
_COUNTS = {"N": "batch", "C": "channels", "K": "filters", "G": "groups"}
_STEPS = {"stride": ("stride", 1), "pad": ("padding", 0), "dilation": ("dilation", 1)}
_OF_SIZE = ("Hi", "Wi", "Y", "X")
_FIELDS = {
    *_COUNTS, *_SIZES, *_WINDOWS, *(f"{word}_{axis}" for word in _STEPS for axis in _AXES), "direction", "split_k",
}  # fmt: skip


def problem(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A problem by the names of their problems, under ours; one by other names is let be."""
    if not {"Hi", "Wi"} <= row.keys() or "size" in row:
        return row
    missing = [name for name in ("N", "C", "K", *_OF_SIZE) if name not in row]
    if missing:
        raise RequestError(
            f"a problem with Hi and Wi has no {missing[0]}",
            rule="option-missing",
            value=missing[0],
            remedy=f"give {' and '.join(missing)} too",
        )
    axes = _AXES if _is_deep(row) else _AXES[1:]
    values = {ours: row[name] for name, ours in _COUNTS.items() if name in row}
    values["size"] = _sizes(row, _SIZES, axes)
    values["window"] = _sizes(row, _WINDOWS, axes)
    for word, (ours, usual) in _STEPS.items():
        values[ours] = "x".join(_whole(row.get(f"{word}_{axis}", usual)) for axis in axes)
    if "direction" in row:
        values["variant"] = _direction(row["direction"])
    # Kernels have a split_k; which is best, selection says.
    return {**values, **{name: value for name, value in row.items() if name not in _FIELDS}}


def _is_deep(row: Mapping[str, Any]) -> bool:
    """Whether a problem has three dimensions, which theirs do not say otherwise."""
    usual = {"Di": 1, "Z": 1, "pad_d": 0}
    return any(_whole(row.get(name, value)) != str(value) for name, value in usual.items())


def _whole(value: Any) -> str:
    """A number as sizes are written; a table with gaps has 3.0 for 3."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _sizes(row: Mapping[str, Any], names: Mapping[str, str], axes: tuple[str, ...]) -> str:
    return "x".join(_whole(row.get(name, 1)) for name, axis in names.items() if axis in axes)


def _direction(value: Any) -> str:
    """By name, or by the number their C interface has for it."""
    text = _whole(value)
    return VARIANTS[int(text)] if text in ("0", "1", "2") else normal_variant(text)


_IN_ORDER = (
    "N", "C", "K", "G", "Hi", "Wi", "Y", "X", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w",
)  # fmt: skip


def of_numbers(numbers: tuple[int, ...]) -> Mapping[str, Any]:
    """N,C,K,G,H,W,Y,X and then strides, padding and dilation, two of each, as their quick benchmark takes problems."""
    if not 8 <= len(numbers) <= len(_IN_ORDER) or len(numbers) % 2:
        raise RequestError(
            f"{','.join(map(str, numbers))} is no problem of a convolution",
            rule="problem-set",
            value=len(numbers),
            remedy="give N,C,K,G,H,W,Y,X; behind these strides, padding and dilation, two of each",
        )
    return problem(dict(zip(_IN_ORDER, numbers, strict=False)))


def columns(p: Any) -> dict[str, Any]:
    """The columns of a problem in their tables."""

    def along(sizes: tuple[int, ...], axis: str, missing: int) -> int:
        place = len(sizes) - len(_AXES) + _AXES.index(axis)
        return sizes[place] if place >= 0 else missing

    return {
        **{name: getattr(p, ours) for name, ours in _COUNTS.items()},
        **{name: along(p.size, axis, 1) for name, axis in _SIZES.items()},
        **{name: along(p.window, axis, 1) for name, axis in _WINDOWS.items()},
        **{f"stride_{axis}": along(p.stride, axis, 1) for axis in _AXES},
        **{f"pad_{axis}": along(p.before, axis, 0) for axis in _AXES},
        **{f"dilation_{axis}": along(p.dilation, axis, 1) for axis in _AXES},
    }
