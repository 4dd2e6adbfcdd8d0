"""A drawn convolution in memory: operands, arguments, and what must come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from tests.amd_emulated import oracle
from tests.amd_emulated.conv.drawing import Drawn, Numbers
from tests.amd_emulated.conv.sums import READ, WRITTEN, convolved, spread
from tests.amd_emulated.fenced import Memory
from tests.amd_emulated.number_formats import FORMATS, Array, draw
from tests.amd_emulated.proving import Call
from tilewright.ops.base import KernelSpec
from tilewright.runtime.bindings.conv.args import SPATIAL, ConvArgs


def prepare(spec: KernelSpec, one: Drawn) -> Call:
    s, rng = spec.signature, np.random.default_rng(one.seed)
    shapes, written = one.geometry.shapes, WRITTEN[s.variant]
    memory: dict[str, Memory] = {}
    bits: dict[str, Array] = {}
    for name in "xwy":
        dtype = s.dtype_out if name == written else s.dtype
        off = one.lie(name).off * FORMATS[dtype].bytes
        memory[name] = Memory(dtype, shapes[name], one.strides(name), off)
        if name != written:
            repeats = one.strides(name)[0] == 0
            shape = (1, *shapes[name][1:]) if repeats else shapes[name]
            bits[name] = np.broadcast_to(draw(rng, shape, FORMATS[dtype], one.values[name]), shapes[name])
            memory[name].put(bits[name])
    for index in range(s.num_d):
        name, strides = f"d{index}", one.d_strides(index)
        shape = tuple(size if stride else 1 for size, stride in zip(shapes["y"], strides, strict=True))
        memory[name] = Memory(s.dtype_d, shape, strides, one.lie(name).off * FORMATS[s.dtype_d].bytes)
        bits[name] = draw(rng, shape, FORMATS[s.dtype_d], one.values["d"])
        memory[name].put(bits[name])
    multiplies = spec.schedule.pipeline not in ("loops", "fma") and one.batch > 0
    return Call(_filled(spec, one, memory), memory, (written,), partial(_expected, spec, one, bits), multiplies)


def _three(sizes: Numbers, missing: int) -> Numbers:
    return (*(missing,) * (SPATIAL - len(sizes)), *sizes)


def _five(strides: Numbers, outer: int) -> Numbers:
    """Image, depth, height, width, channel; dimensions there are not have the stride of what lies inside of them."""
    return (strides[0], *(outer,) * (SPATIAL + 2 - len(strides)), *strides[1:])


def _filled(spec: KernelSpec, one: Drawn, memory: Mapping[str, Memory]) -> ConvArgs:
    args = ConvArgs(batch=one.batch, groups=one.groups, channels=one.channels, filters=one.filters)
    for field, missing in (("size", 1), ("window", 1), ("out", 1), ("stride", 1), ("dilation", 1), ("before", 0)):
        getattr(args, field)[:] = _three(getattr(one, field), missing)
    for name in "xwy":
        strides = one.strides(name)
        setattr(args, name, memory[name].address)
        getattr(args, f"{name}_strides")[:] = _five(strides, strides[1] * max(1, one.geometry.shapes[name][1]))
    for index in range(spec.signature.num_d):
        args.d[index] = memory[f"d{index}"].address
        args.d_strides[index][:] = _five(one.d_strides(index), 0)
    return args


def _expected(spec: KernelSpec, one: Drawn, bits: Mapping[str, Array]) -> dict[str, oracle.Expected]:
    s = spec.signature
    first, second = READ[s.variant]
    sums = convolved(one.geometry, s.variant, bits[first], bits[second], FORMATS[s.dtype])
    if (merged := getattr(spec.schedule, "merged", 1)) > 1:
        beside = spread(one.geometry, s.variant, bits[first], FORMATS[s.dtype], merged)
        sums = replace(sums, open=sums.open | beside)
    ds = [bits[f"d{index}"] for index in range(s.num_d)]
    after = oracle.After(FORMATS[s.dtype_out], FORMATS[s.dtype_d], ds=ds, epilogue=s.epilogue)
    return {WRITTEN[s.variant]: oracle.expected(sums, after)}
