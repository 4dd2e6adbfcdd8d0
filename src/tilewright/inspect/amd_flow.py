"""AMD device code as a graph: registers of an instruction, basic blocks, loops, and the path of a loop that matters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from tilewright.dataclass import dataclass
from tilewright.inspect.disassembly import Instruction

# Registers are numbers: vector ones from 0, accumulation ones from 512, scalar ones from 1024, vcc as s106 and s107.
ACCUMULATION, SCALAR, VCC = 512, 1024, 1024 + 106
_REGISTER = re.compile(r"\b(?:([vas])(?:(\d+)|\[(\d+):(\d+)\])|(vcc)(?:_(lo|hi))?)(?![\w(])")
_BASE = {"v": 0, "a": ACCUMULATION, "s": SCALAR}
_BRANCHES = ("s_branch", "s_cbranch_", "s_endpgm", "s_setpc_", "s_swappc_", "s_call_")
_UNFOLLOWED = ("s_setpc_", "s_swappc_", "s_call_")
# What copies whole tiles looks like, from memory and into LDS.
_WIDE = re.compile(
    r"^(?:global|buffer|flat)_load_(?:lds_)?(?:dwordx[34]|b96|b128)$|^ds_(?:write|store)_b(?:64|96|128)$"
)


@lru_cache(maxsize=16384)
def registers(operand: str) -> tuple[int, ...]:
    """The registers that an operand, or several, name."""
    numbers: list[int] = []
    for kind, single, first, last, vcc, half in _REGISTER.findall(operand):
        if vcc:
            numbers += [VCC + (half == "hi")] if half else [VCC, VCC + 1]
        elif single:
            numbers.append(_BASE[kind] + int(single))
        else:
            numbers += range(_BASE[kind] + int(first), _BASE[kind] + int(last) + 1)
    return tuple(numbers)


def register_name(number: int) -> str:
    if number in (VCC, VCC + 1):
        return "vcc"
    kind = "s" if number >= SCALAR else "a" if number >= ACCUMULATION else "v"
    return f"{kind}{number - _BASE[kind]}"


@lru_cache(maxsize=16384)
def operands(text: str) -> tuple[str, ...]:
    """Apart; modifiers stay with the last of them."""
    return tuple(text.split(", ")) if text else ()


def is_matrix(mnemonic: str) -> bool:
    return mnemonic.startswith(("v_mfma_", "v_smfmac_", "v_wmma_", "v_swmmac_"))


@dataclass(slots=True)
class Block:
    """Instructions without a branch in between; `next` holds the places of blocks that may follow."""

    code: list[Instruction]
    next: tuple[int, ...] = ()
    unfollowed: bool = False  # it ends in a jump whose target is in a register

    @property
    def address(self) -> int:
        return self.code[0].address


def _target(instruction: Instruction) -> int | None:
    """Where a branch goes: its operand counts words of four bytes behind it, as a number of 16 bits with a sign."""
    try:
        words = int(instruction.operands.split()[0], 0)
    except (IndexError, ValueError):
        return None
    return instruction.address + 4 + 4 * (words - 0x10000 if words & 0x8000 else words)


def blocks(code: Sequence[Instruction]) -> list[Block]:
    """Of one function; an edge to code outside of it is dropped."""
    leaders = {code[0].address} if code else set()
    for at, instruction in enumerate(code):
        if instruction.mnemonic.startswith(_BRANCHES):
            if at + 1 < len(code):
                leaders.add(code[at + 1].address)
            if (target := _target(instruction)) is not None and "branch" in instruction.mnemonic:
                leaders.add(target)
    graph: list[Block] = []
    for instruction in code:
        if instruction.address in leaders or not graph:
            graph.append(Block([]))
        graph[-1].code.append(instruction)
    place = {block.address: at for at, block in enumerate(graph)}
    for at, block in enumerate(graph):
        last = block.code[-1]
        after = [at + 1] if at + 1 < len(graph) else []
        address = _target(last) if "branch" in last.mnemonic else None
        target = None if address is None else place.get(address)
        if last.mnemonic.startswith(("s_endpgm", *_UNFOLLOWED)):
            after = []
            block.unfollowed = last.mnemonic.startswith(_UNFOLLOWED)
        elif last.mnemonic.startswith("s_branch"):
            after = []
        block.next = tuple(dict.fromkeys([*after, *([] if target is None else [target])]))
    return graph


def components(nodes: set[int], follows: Callable[[int], Sequence[int]]) -> list[list[int]]:
    """Strongly connected ones, those that nothing follows first (Tarjan's algorithm, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    result: list[list[int]] = []
    for root in sorted(nodes):
        if root in index:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(follows(root)))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for successor in rest:
                if successor not in nodes:
                    continue
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(follows(successor))))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    result.append(stack[at:])
                    on_stack.difference_update(stack[at:])
                    del stack[at:]
    return result


@dataclass(frozen=True, slots=True)
class Loop:
    header: int
    body: frozenset[int]


def loops(graph: Sequence[Block], nodes: set[int] | None = None, header: int = -1) -> Iterator[Loop]:
    """All of them, the outer ones first: an inner loop is what still comes back without the outer one's header."""
    nodes = set(range(len(graph))) if nodes is None else nodes

    def follows(node: int) -> Sequence[int]:
        return [successor for successor in graph[node].next if successor != header]

    for component in components(nodes, follows):
        body = set(component)
        if len(body) == 1 and component[0] not in follows(component[0]):
            continue
        entered = {successor for at, block in enumerate(graph) if at not in body for successor in block.next}
        first = min((entered & body) or body, key=lambda at: graph[at].address)
        yield Loop(first, frozenset(body))
        yield from loops(graph, body, first)


def main_loop(graph: Sequence[Block], weight: Callable[[Instruction], float]) -> Loop | None:
    """The innermost loop with the most weight; an inner one counts only with half of what its outer one has."""
    weights = [sum(map(weight, block.code)) for block in graph]
    best: Loop | None = None
    most = 0.0
    for loop in loops(graph):
        total = sum(weights[at] for at in loop.body)
        inside = best is not None and loop.body < best.body
        if total > most or (inside and total * 2 >= most):
            best, most = loop, total
    return best if most > 0 else None


_Score = tuple[float, int, int]


def hot_path(graph: Sequence[Block], loop: Loop, weight: Callable[[Instruction], float]) -> list[Instruction]:
    """One iteration of a loop for whole tiles: the path of the most weight, then the most wide copies, then the
    fewest instructions.  Edge code, which loads element by element in loops of its own, is on none of these paths."""

    def follows(node: int) -> Sequence[int]:
        return [at for at in graph[node].next if at in loop.body and at != loop.header]

    nodes = components(set(loop.body), follows)  # what follows comes first
    home = {at: index for index, members in enumerate(nodes) for at in members}
    ways: dict[int, tuple[_Score, int]] = {}
    for index, members in enumerate(nodes):
        inner = len(members) > 1 or members[0] in follows(members[0])
        own = _score([graph[at] for at in members], weight, 16 if inner else 1)
        after = {home[successor] for at in members for successor in follows(at)} - {index}
        choices = [(ways[next_][0], next_) for next_ in after if next_ in ways]
        if any(loop.header in graph[at].next for at in members):
            choices.append(((0.0, 0, 0), -1))
        if choices:
            score, next_ = max(choices)
            ways[index] = ((own[0] + score[0], own[1] + score[1], own[2] + score[2]), next_)
    at, path = home[loop.header], []
    while at >= 0 and at in ways:
        for block in sorted(nodes[at]):
            path += graph[block].code
        at = ways[at][1]
    return path


def _score(parts: Sequence[Block], weight: Callable[[Instruction], float], times: int) -> _Score:
    heavy, wide, count = 0.0, 0, 0
    for block in parts:
        count += len(block.code)
        for instruction in block.code:
            heavy += weight(instruction)
            wide += bool(_WIDE.match(instruction.mnemonic))
    return heavy, wide, -count * times
