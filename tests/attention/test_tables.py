"""What tables hold: copies of those on a device are judged as kernels of the CPU judge theirs."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from tests.attention.drawing import ATTENTION, kind, problem
from tests.attention.harness import BINDING
from tilewright.dispatch.kernels import kernel
from tilewright.errors import ProblemError
from tilewright.runtime.plans import Plan

TABLES = tuple(slot.name for slot in BINDING.slots if slot.holds)
WRONG = (-1, -(2**31), 2**31 - 1, 1000)


def with_a_wrong_entry(draw: random.Random, made: Any) -> tuple[str, Any]:
    """One entry of one table is another; perhaps one that nobody reads."""
    tables = [at for at, slot in enumerate(BINDING.slots) if slot.holds and made.operands[at] is not None]
    tables = [at for at in tables if made.operands[at].size]
    if not tables:
        return "", made
    at = draw.choice(tables)
    table = made.operands[at].copy()
    twin = int(table.flat[draw.randrange(table.size)])  # of a page two sequences may write to, which an append may not
    table.flat[draw.randrange(table.size)] = draw.choice((*WRONG, twin, twin))
    operands = list(made.operands)
    operands[at] = table
    return BINDING.slots[at].name, type(made)(tuple(operands), made.scalars, made.attributes)


def refusal(plan: Plan, made: Any) -> str:
    """The table a kernel of the CPU refuses; empty where it refuses none."""
    try:
        plan.run([0 if one is None else int(one.ctypes.data) for one in made.operands], made.scalars)
    except ProblemError as error:
        return str(error.value) if error.rule == "operand-values" else f"{error}"
    return ""


def wrong_entry(said: str, held: dict[str, Any]) -> bool:
    """Whether the entry that is blamed holds the number that is told: block_table[1, 3] = 99."""
    name, place, number = re.fullmatch(r"(\w+)\[([\d, ]+)\] = (-?\d+)", said).groups()  # type: ignore[union-attr]
    return bool(held[name][tuple(map(int, place.split(",")))] == int(number))


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.parametrize("seed", range(6))
def test_the_check_of_copies_says_what_kernels_of_the_cpu_say(seed: int) -> None:
    draw = random.Random(f"tables {seed}")
    of = kind(draw, ("forward", "append", "split", "combine", "forward", "append")[seed])
    refused = 0
    for number in range(40):
        one = problem(draw, of)
        if not (one.batch and one.seqlen_q):
            continue
        name, made = with_a_wrong_entry(draw, BINDING.sample(one, number))
        plan = Plan(BINDING.dense(one), [kernel(ATTENTION.fallback_spec(one.signature, "generic"))], (), 1)
        held = {slot.name: held for slot, held in zip(BINDING.slots, made.operands, strict=True) if held is not None}
        said = BINDING.wrong_table(plan.stages[0].request, {name: held[name] for name in TABLES if name in held})
        found = refusal(plan, made)
        assert said.partition("[")[0] == found, (one.describe(), name)
        assert not said or wrong_entry(said, held), said
        refused += bool(said)
    assert refused > 3
