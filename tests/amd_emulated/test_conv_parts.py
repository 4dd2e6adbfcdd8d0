"""What the proof of convolutions rests on: its sums, its drawing, memory in any order; tested by themselves."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from tests.amd_emulated import oracle
from tests.amd_emulated.conv import calls, drawing
from tests.amd_emulated.conv.sums import READ, WALKS, WRITTEN, Geometry, convolved, spread
from tests.amd_emulated.fenced import Memory
from tests.amd_emulated.number_formats import FORMATS, Array, draw
from tests.amd_emulated.proving import proven, proving
from tilewright.ops import op

ODD = Geometry(2, 2, 3, 2, (5, 4), (3, 2), (3, 5), (2, 1), (1, 3), (1, 2))
LINE = Geometry(1, 3, 1, 1, (7,), (3,), (4,), (2,), (1,), (1,))
DEEP = Geometry(1, 1, 2, 3, (3, 2, 4), (2, 1, 3), (3, 2, 2), (1, 1, 2), (1, 1, 1), (0, 0, 1))


def _read(g: Geometry) -> list[tuple[Any, ...]]:
    """Every product there is: image, filter, channel of the group, channel of x, output, tap, input."""
    found = []
    for n, k, c in itertools.product(range(g.batch), range(g.groups * g.filters), range(g.channels)):
        for o, r in itertools.product(np.ndindex(*g.out), np.ndindex(*g.window)):
            at = [o[d] * g.stride[d] - g.before[d] + r[d] * g.dilation[d] for d in range(len(o))]
            if all(0 <= one < size for one, size in zip(at, g.size, strict=True)):
                found.append((n, k, c, k // g.filters * g.channels + c, o, r, tuple(at)))
    return found


def _by_hand(g: Geometry, variant: str, arrays: dict[str, Array]) -> Array:
    """One product after the other."""
    total = np.zeros(g.shapes[WRITTEN[variant]])
    for n, k, c, channel, o, r, at in _read(g):
        places = {"x": (n, *at, channel), "w": (k, *r, c), "y": (n, *o, k)}
        first, second = READ[variant]
        total[places[WRITTEN[variant]]] += arrays[first][places[first]] * arrays[second][places[second]]
    return total


@pytest.mark.parametrize("variant", WALKS)
@pytest.mark.parametrize("g", [ODD, LINE, DEEP], ids=["odd", "line", "deep"])
def test_sums_are_those_of_the_definition(g: Geometry, variant: str) -> None:
    rng = np.random.default_rng(5)
    arrays = {name: rng.integers(-9, 10, shape).astype(float) for name, shape in g.shapes.items()}
    first, second = READ[variant]
    assert np.array_equal(WALKS[variant](g, arrays[first], arrays[second]), _by_hand(g, variant, arrays))


@pytest.mark.parametrize("variant", WALKS)
def test_only_results_that_padding_meets_with_an_infinity_are_open(variant: str) -> None:
    g, half = ODD, FORMATS["fp16"]
    rng = np.random.default_rng(6)
    first, second = (draw(rng, g.shapes[name], half, "ordinary") for name in READ[variant])
    assert convolved(g, variant, first, second, half).open is False
    place = (1, *(0,) * (second.ndim - 1))
    second[place] = 0x7C00  # infinity
    found = convolved(g, variant, first, second, half)
    assert isinstance(found.open, np.ndarray)
    assert found.open.any()
    assert not found.open.all()
    # Elsewhere the infinity is met by numbers, or by nothing.
    assert np.isinf(found.value[~found.open]).any() or variant == "backward_weight"
    assert not np.isnan(found.value[~found.open]).any()


def test_infinities_spread_among_merged_groups_and_no_further() -> None:
    g, half = Geometry(1, 4, 2, 3, (4, 4), (1, 1), (4, 4), (1, 1), (1, 1), (0, 0)), FORMATS["fp16"]
    x = draw(np.random.default_rng(16), g.shapes["x"], half, "ordinary")
    assert spread(g, "forward", x, half, 2) is False
    x[0, 1, 2, 5] = 0x7C00  # a channel of the third group
    assert spread(g, "forward", x, half, 1) is False
    found = spread(g, "forward", x, half, 2)
    assert isinstance(found, np.ndarray)
    wanted = np.zeros(g.shapes["y"], bool)
    wanted[0, 1, 2, 6:] = True  # the pixel's filters of the last two groups
    assert np.array_equal(found, wanted)


def test_infinities_spread_among_as_many_groups_as_are_left() -> None:
    g, half = Geometry(1, 3, 2, 3, (4, 4), (1, 1), (4, 4), (1, 1), (1, 1), (0, 0)), FORMATS["fp16"]
    x = draw(np.random.default_rng(17), g.shapes["x"], half, "ordinary")
    x[0, 1, 2, 5] = 0x7C00  # a channel of the third group: of two merged it is alone, four are all there are
    for merged, first in ((2, 6), (4, 0)):
        wanted = np.zeros(g.shapes["y"], bool)
        wanted[0, 1, 2, first:] = True
        assert np.array_equal(spread(g, "forward", x, half, merged), wanted)


def test_results_are_judged_element_by_element() -> None:
    g, half, single = ODD, FORMATS["fp16"], FORMATS["fp32"]
    rng = np.random.default_rng(7)
    x, w = (draw(rng, g.shapes[name], half, "ordinary") for name in "xw")
    found = oracle.expected(convolved(g, "forward", x, w, half), oracle.After(single, single))
    right = found.value.astype(np.float32)
    assert oracle.judge(found, right.view(np.uint32)).ok
    right[1, 2, 3, 1] *= np.float32(1.001)
    said = oracle.judge(found, right.view(np.uint32))
    assert "(1, 2, 3, 1)" in said.detail
    assert "1 of 120" in said.detail


def test_memory_lies_as_it_is_told() -> None:
    lie = drawing.Lie(order=(0, 3, 1, 2), gaps=(0, 5, 1, 2), backwards=(1,), off=3)
    shape = (2, 3, 4, 6)
    strides = lie.strides(shape)
    assert strides == ((3 * (4 + 2) + 1) * 6 + 5, -(4 + 2), 1, 3 * (4 + 2) + 1)
    memory = Memory("fp16", shape, strides, 6)
    assert memory.address % 256 == 6
    bits = np.random.default_rng(8).integers(0, 1 << 15, shape).astype(np.uint16)
    memory.put(bits)
    assert int(memory.view.ctypes.data) == memory.address
    memory.view[1, 2, 3, 5] += 1
    assert not memory.unchanged()
    assert memory.untouched_around()
    memory.bytes[memory.address - int(memory.bytes.ctypes.data) + 2 * 5] ^= 1  # a gap behind four of the innermost
    assert not memory.untouched_around()


@pytest.mark.parametrize("shape", [(1, 1, 5, 1), (2, 1, 1, 4), (1, 1, 1, 1), (0, 3, 3, 2)])
def test_sizes_of_one_have_the_strides_of_dense_memory(shape: tuple[int, ...]) -> None:
    rng = random.Random(9)
    for _ in range(20):
        lie = drawing.Lie(tuple(rng.sample(range(4), 4)), tuple(rng.randint(0, 3) for _ in range(4)))
        found = lie.strides(shape)
        for axis, size in enumerate(shape):
            if size == 1:
                assert found[axis] == (abs(found[axis + 1]) * shape[axis + 1] if axis < 3 else 1)
        assert Memory("fp32", shape, found).view.shape == shape


def test_draws_are_legal_served_and_the_same_again() -> None:
    conv, seen = op("conv"), set()
    for index in range(24):
        entry = drawing.draw(11, index)
        if index < 3:
            again = drawing.draw(11, index)
            assert (entry.spec, entry.problems, entry.refused) == (again.spec, again.problems, again.refused)
        assert not conv.check(entry.spec)
        assert entry.problems
        for one in (*entry.problems, *entry.refused):
            asked = drawing.product_problem(entry.spec, one)
            assert not conv.problem_violations(asked, entry.spec.arch), one
            assert asked.out == one.out
            assert bool(conv.supports(entry.spec, asked)) == (one in entry.refused), one
            assert drawing.from_dict(one.to_dict()) == one
            seen.add((entry.spec.signature.variant, len(one.size), one.groups > 1))
    assert len(seen) >= 12, "all directions and dimensions, with groups and without"


def test_a_call_has_everything_the_kernel_reads() -> None:
    for index in range(12):
        entry = drawing.draw(12, index)
        for one in entry.problems:
            call = calls.prepare(entry.spec, one)
            for name, expected in call.expected().items():
                assert call.memory[name].view.shape == expected.value.shape
                assert all(each.unchanged() for each in call.memory.values())
            args = call.args
            assert (args.x, args.w, args.y) == tuple(call.memory[name].address for name in "xwy")


def test_every_op_with_a_part_is_found() -> None:
    assert {"conv", "gemm"} <= set(proven())
    with pytest.raises(SystemExit, match="no kernels of 'sort'"):
        proving("sort")
