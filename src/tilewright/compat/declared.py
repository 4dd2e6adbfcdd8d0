"""Kernels that C++ sources declare (`TW_KERNEL_SET`), read from their object files and built: what CMake's
`tilewright_add_kernels` runs.

    python -m tilewright.compat.declared OBJECT... --archs x86_64_v3,sm_90a --output FOLDER
    python -m tilewright.compat.declared --ops conv --rule-set profiler --datatypes bf16 --archs gfx942 --output FOLDER

For every arch FOLDER/ARCH gets what `Registry.export` writes, and what an earlier build left there goes.  What the
store has already is not compiled again.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright import jsontext
from tilewright.arch import all_archs
from tilewright.arch import arch as arch_by_name
from tilewright.codegen import collect
from tilewright.dispatch import exported_models, registry_json
from tilewright.dispatch.registry import Registry
from tilewright.errors import FileError, RequestError, TilewrightError
from tilewright.ops import op as op_by_name
from tilewright.ops.attention.spec import AttentionSignature, default_output, normalized
from tilewright.ops.attention_terms import HEADS
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.spec import DIMENSIONS, VARIANTS
from tilewright.ops.fused import EPILOGUES
from tilewright.ops.gemm.spec import LAYOUTS

SECTION, MARK = b"tw_kernel_sets", b"tw-set-1"
ANY, ANY_NUMBER = "*", -1
POOL = "default"
# Their words for values of ours.
_WORDS = {"fwd": "forward", "bwd_data": "backward_data", "bwd_weight": "backward_weight", "no": "none",
          "causal": "window", "fwd_splitkv": "split", "fwd_splitkv_combine": "combine", "default": "direct",
          "fp8": "fp8_e4m3", "bf8": "fp8_e5m2"}  # fmt: skip
# Fields of a signature, and the axes of pools that they are values of.
_AXES = {
    "gemm": {"dtype": "datatypes", "layout": "layouts", "elementwise": "epilogues", "num_d": "num_d",
             "dtype_c": "outputs"},
    "conv": {"dtype": "datatypes", "direction": "variants", "dims": "spatial", "elementwise": "epilogues",
             "num_d": "num_d"},
}  # fmt: skip
# What a signature is of where it does not say so, on every arch.
_PLAIN: dict[str, dict[str, Any]] = {
    "gemm": {"datatypes": "fp32", "layouts": "rrr"},
    "conv": {"datatypes": "fp32", "variants": "forward", "spatial": 2},
}
# What ANY stands for in a signature; nothing: what the others make of it.
_EVERY: dict[str, tuple[Any, ...]] = {
    "datatypes": ("fp32", "fp16", "bf16"), "layouts": LAYOUTS, "variants": VARIANTS, "spatial": DIMENSIONS,
    "epilogues": tuple(EPILOGUES), "outputs": (), "num_d": (),
}  # fmt: skip
_SCHEDULE = {"tile": "tile", "wave": "warp_grid", "warp": "warp_tile", "pad": "pad", "pipeline": "pipeline",
             "scheduler": "scheduler", "epilogue": "store", "block_per_cu": "block_per_cu",
             "max_splits_log2": "max_splits_log2"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Declared:
    """One declaration of a set; numbers of -1 and the word * are any."""

    set_name: str
    op: str
    arch: str
    signature: Mapping[str, Any]
    algorithm: Mapping[str, Any]

    def __str__(self) -> str:
        words = json.dumps({**self.signature, **self.algorithm})
        return f"{self.set_name}: {self.op} {words} for {'any arch' if self.arch == ANY else self.arch}"


# -- object files ----------------------------------------------------------------------------------------------------


def sets_of(path: Path) -> Iterator[Declared]:
    """What an object file declares."""
    for text in _records(_section(path)):
        data = jsontext.loads(text)
        for kernel in data["kernels"]:
            yield Declared(data["set"], kernel["op"], kernel["arch"], kernel["signature"], kernel["algorithm"])


def _records(section: bytes) -> Iterator[bytes]:
    at = section.find(MARK)
    while at >= 0:
        (size,) = struct.unpack_from("<q", section, at + len(MARK))
        start = at + len(MARK) + 8
        yield section[start : start + size]
        at = section.find(MARK, start + size)


def _section(path: Path) -> bytes:
    """The bytes of the section; empty where an object declares nothing."""
    try:
        data = path.read_bytes()
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("it is no ELF object of 64 bits")
        (table,) = struct.unpack_from("<Q", data, 0x28)
        size, count, names = struct.unpack_from("<HHH", data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * at) for at in range(count)]
        text = headers[names][4]
        return b"".join(
            data[header[4] : header[4] + header[5]]
            for header in headers
            if data[text + header[0] :].split(b"\0", 1)[0] == SECTION
        )
    except (OSError, ValueError, struct.error, IndexError) as error:
        raise FileError(f"{path} cannot be read: {error}", rule="object-file", value=str(path),
                        remedy="give object files of sources that declare kernels") from error  # fmt: skip


# -- declarations to specs -------------------------------------------------------------------------------------------


def specs_of(declared: Declared, arch: str) -> tuple[KernelSpec, ...]:
    """The kernels of an arch that a declaration means: all that fit, or with auto_correct the nearest."""
    if declared.op not in (*_AXES, "attention"):
        raise RequestError(f"{declared}: no such op", rule="declared-op", value=declared.op,
                           remedy="declare a GEMM, a convolution or an attention")  # fmt: skip
    collected = collect(declared.op, arch, pool=POOL, axes=_axes(declared))
    fitting = [spec for spec in collected.specs if _distance(declared, spec) == 0]
    if fitting:
        return tuple(fitting)
    nearest = sorted(collected.specs, key=lambda spec: (_distance(declared, spec), spec.digest))
    if nearest and declared.algorithm.get("auto_correct") == [1]:
        least = _distance(declared, nearest[0])
        return tuple(spec for spec in nearest if _distance(declared, spec) == least)
    offers = "; ".join(spec.name for spec in nearest[:3]) or "none of this signature at all"
    raise RequestError(
        f"{declared}: {arch} has no such kernel", rule="declared-kernel", value=str(declared),
        remedy=f"use auto_correct(), or one of what there is: {offers}",
    )  # fmt: skip


def _axes(declared: Declared) -> dict[str, Any]:
    """What the pool is asked for: of `ANY` all values there are; what is not said is plain."""
    if declared.op == "attention":
        return _attention_axes(declared)
    names = _AXES[declared.op]
    fields = {names[name]: _value(value) for name, value in declared.signature.items() if name in names}
    if fields.get("spatial") == 1:  # such problems run on kernels of two dimensions
        fields["spatial"] = 2
    if declared.op == "gemm" and "epilogues" in fields:  # without fused work, a GEMM is of another variant
        fields["variants"] = ("standard", "multi_d")
    every = {name: _EVERY[name] if value in (ANY, ANY_NUMBER) else value for name, value in fields.items()}
    return {name: value for name, value in {**_PLAIN[declared.op], **every}.items() if value != ()}


def _attention_axes(declared: Declared) -> dict[str, Any]:
    fields = {name: _value(value) for name, value in declared.signature.items() if value != ANY}
    dtype, heads = fields.get("dtype", "fp16"), declared.signature.get("hdim", [128, 128])
    any_head = ANY_NUMBER in heads
    if any_head:
        heads = [HEADS[0], HEADS[0]]
    bias = {"bias": "tensor"}.get(fields.get("bias", "none"), fields.get("bias", "none"))
    flags = {name: bool(fields.get(name, False)) for name in ("lse", "dropout", "softcap", "sink")}
    signature = AttentionSignature(
        fields.get("family", "forward"), dtype, dtype, default_output(dtype), heads[0], heads[1],
        mask=fields.get("mask", "none"), bias=bias, varlen=fields.get("mode") == "group", return_lse=flags["lse"],
        dropout=flags["dropout"], softcap=flags["softcap"], sink=flags["sink"],
    )  # fmt: skip
    axes = dict(op_by_name("attention").axes_of(normalized(signature)))
    return {**axes, "heads": tuple(f"{size}x{size}" for size in HEADS)} if any_head else axes


def _value(value: Any) -> Any:
    """A field's value in our words."""
    return _WORDS.get(value, value) if isinstance(value, str) else value[0]


def _distance(declared: Declared, spec: KernelSpec) -> float:
    """How far a kernel is from a declaration: 0 where it satisfies all that is declared; sizes count by their ratio."""
    schedule = spec.to_dict()["schedule"]
    far = 0.0
    for name, wanted in declared.algorithm.items():
        if name == "auto_correct" or wanted == ANY:
            continue
        mine = schedule.get(_SCHEDULE.get(name, name))
        if isinstance(wanted, str):
            far += 0.0 if mine == _WORDS.get(wanted, wanted) or mine == wanted else 4.0
            continue
        numbers = list(mine) if isinstance(mine, (list, tuple)) else [mine]
        for at, number in enumerate(wanted):
            if number == ANY_NUMBER or (name == "wave" and at == 2 and at >= len(numbers)):
                continue
            there = numbers[at] if at < len(numbers) and numbers[at] is not None else 0
            if int(there) != number:
                far += 1.0 + abs(math.log2(max(1, int(there)) / max(1, number)))
    return far


# -- building --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """Kernels that are asked for by ops and not by declarations: those of a pool."""

    ops: tuple[str, ...] = ()
    pool: str = "default"
    axes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def specs(self, arch: str) -> Iterator[KernelSpec]:
        for name in self.ops:
            known = {axis.name for axis in op_by_name(name).axes}
            axes = {axis: tuple(values) for axis, values in self.axes.items() if axis in known and values}
            yield from collect(name, arch, pool=self.pool, axes=axes).specs


def build(objects: Iterable[Path], archs: Sequence[str], output: Path, wanted: Wanted | None = None) -> list[Path]:
    """A folder for each arch with the kernels that the objects declare for it, and those that are wanted beside."""
    pools = wanted or Wanted()
    declared = [kernel for path in objects for kernel in sets_of(path)]
    if not declared and not pools.ops:
        raise RequestError("the sources declare no kernels", rule="declared-none", value="",
                           remedy="use TW_KERNEL_SET of <tilewright/kernel_set.hpp>")  # fmt: skip
    folders = []
    for arch in archs:
        name = arch_by_name(arch).name
        mine = [kernel for kernel in declared if kernel.arch in (ANY, name)]
        specs = dict.fromkeys(spec for kernel in mine for spec in specs_of(kernel, name))
        specs |= dict.fromkeys(pools.specs(name))
        if specs:
            file = Registry(name, tuple(specs)).export(output / name)
            _drop_others(file.parent, _files_of(file))
            folders.append(file.parent)
    if not folders:
        raise RequestError(f"no set is for {', '.join(archs)}", rule="declared-arch", value=",".join(archs),
                           remedy="declare kernels of these archs, or of any")  # fmt: skip
    for name in all_archs():  # of an earlier build, for archs that nothing is declared for any more
        if output / name not in folders and (output / name / registry_json.FILE).is_file():
            (output / name / registry_json.FILE).unlink()
            _drop_others(output / name, frozenset())
    return folders


def _files_of(registry: Path) -> frozenset[str]:
    """The files that a registry.json names, by their paths in its folder."""
    data = jsontext.loads(jsontext.read(registry))
    libraries = {entry["library"] for entry in (*data["kernels"], *data["selection"].values())}
    return frozenset(libraries | {model["file"] for model in data.get("models", ())})


def _drop_others(folder: Path, named: frozenset[str]) -> None:
    """Take away what an earlier `Registry.export` wrote into a folder and nobody names any more; nothing else goes."""
    kinds = {registry_json.KERNELS: ".so", registry_json.SELECT: ".so", exported_models.FOLDER: exported_models.ENDING}
    for part, ending in kinds.items():
        for file in (folder / part).glob(f"*{ending}"):
            if f"{part}/{file.name}" not in named:
                file.unlink()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the kernels that C++ object files declare.")
    parser.add_argument("objects", nargs="*", type=Path)
    parser.add_argument("--archs", required=True, help="with a comma between")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--ops", default="", help="ops of which a pool is built too, with a comma between")
    parser.add_argument("--rule-set", default="default", help="the pool of these ops")
    parser.add_argument("--datatypes", default="", help="element types of these ops")
    parser.add_argument("--variants", default="", help="variants of these ops: directions of convolutions, ...")
    options = parser.parse_args(words)

    def listed(text: str) -> tuple[str, ...]:
        return tuple(word for word in text.split(",") if word)

    axes = {"datatypes": listed(options.datatypes), "variants": listed(options.variants)}
    try:
        wanted = Wanted(listed(options.ops), options.rule_set or "default", axes)
        build(options.objects, options.archs.split(","), options.output, wanted)
    except TilewrightError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
