"""Samples of any op on any device: moved there and back, poisoned, and run by one kernel with little around it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.dtypes import BY_NUMPY_NAME
from tilewright.ops.base import KernelSpec
from tilewright.runtime.arrays import address_of
from tilewright.runtime.bindings import Binding, Check
from tilewright.runtime.calls import OneKernel
from tilewright.runtime.device_arrays import DeviceArray
from tilewright.runtime.devices import HOST, Device
from tilewright.runtime.lines import extent
from tilewright.runtime.loader import Kernel
from tilewright.runtime.plans import Plan
from tilewright.runtime.requests import Sample

Array = np.ndarray[Any, Any]


def poison(out: Array | DeviceArray) -> None:
    """Every byte 0xff: NaN in every float type, -1 in the integers; what a kernel skips shows."""
    if isinstance(out, DeviceArray):
        out.fill(0xFF)
    elif out.size:
        out.view(f"u{out.itemsize}")[...] = (1 << 8 * out.itemsize) - 1


def poison_results(binding: Binding, sample: Sample) -> None:
    for slot, operand in zip(binding.slots, sample.operands, strict=True):
        if slot.written and operand is not None:
            poison(operand)


def _there(device: Device, array: Array) -> DeviceArray:
    """The memory of an array, as it is: strides are kept."""
    strides = tuple(stride // array.itemsize for stride in array.strides)
    low, high = extent(array.shape, strides, array.itemsize)
    memory = device.allocate(high - low)
    device.write(memory.address, address_of(array) + low, high - low)
    there = DeviceArray(device, memory, array.shape, strides, BY_NUMPY_NAME[array.dtype.name])
    there.address = memory.address - low
    return there


def on_device(sample: Sample, device: Device) -> Sample:
    """The same operands in the memory of a device."""
    if device.place is HOST:
        return sample
    return replace(
        sample, operands=tuple(None if operand is None else _there(device, operand) for operand in sample.operands)
    )


def on_host(sample: Sample) -> Sample:
    """The operands as NumPy arrays, read back where they are on a device."""
    moved = tuple(operand.numpy() if isinstance(operand, DeviceArray) else operand for operand in sample.operands)
    return replace(sample, operands=moved)


def make(binding: Binding, problem: Any, seed: int, device: Device, exact: bool = False) -> Sample:
    return on_device(binding.sample(problem, seed, exact), device)


def check(binding: Binding, problem: Any, sample: Sample, kernels: Sequence[KernelSpec] = ()) -> Check:
    """Whether the results in a sample, which `kernels` computed, are right."""
    return binding.check(problem, on_host(sample), kernels)


def judge(binding: Binding, problem: Any, sample: Sample) -> Callable[[KernelSpec], tuple[Check, int]]:
    """A check of what a kernel made of a sample's results when it is asked, and how many of their elements are not 0.

    The reference is computed once, and operands are read back once.
    """
    first = on_host(sample)
    ask = binding.judge(problem, first)

    def check_results(kernel: KernelSpec) -> tuple[Check, int]:
        operands = list(first.operands)
        non_zero = 0
        for index, (slot, operand) in enumerate(zip(binding.slots, sample.operands, strict=True)):
            if slot.written and operand is not None:
                operands[index] = result = operand.numpy() if isinstance(operand, DeviceArray) else operand
                non_zero += int(np.count_nonzero(result))
        return ask(replace(first, operands=tuple(operands)), (kernel,)), non_zero

    return check_results


def _address(operand: Any) -> int:
    if operand is None:
        return 0
    return address_of(operand) if isinstance(operand, np.ndarray) else int(operand.address)


def runner(
    binding: Binding, kernel: Kernel, problem: Any, sample: Sample, device: Device, threads: int
) -> Callable[[], None]:
    """A call that runs the kernel on the operands into their results, with as little around it as possible."""
    plan = Plan(replace(binding.dense(problem), place=device.place), [kernel], (), threads)
    operands = binding.packed_for(OneKernel(kernel), problem, sample.operands)
    addresses, scalars = [_address(operand) for operand in operands], sample.scalars
    stage = plan.stages[0]
    if device.place is not HOST or len(plan.stages) > 1 or stage.request.loop or plan.request.between_bytes:

        def run(_keep: object = operands) -> None:
            plan.run(addresses, scalars)

        return run
    args = stage.filled([addresses[pointer.slot] for pointer in stage.request.pointers], scalars)
    start, launch, team = ctypes.addressof(args), kernel.launch, plan.team

    def run_bare(_keep: object = (operands, args)) -> None:
        with device.scratch(plan.scratch_bytes) as (scratch, _):
            status = launch(start, scratch, team)
        if status:
            raise device.launch_error(kernel, status, start)

    return run_bare
