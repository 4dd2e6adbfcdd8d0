"""Which table of a stage holds what it may not: the same that <tilewright/attention_rules.h> says on the host.

For tables on a device, copied to the host (`runtime/tables.py`): the first that is wrong is named as a CPU's kernel
would, so that both have one error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.runtime.requests import StageRequest

Array = np.ndarray[Any, Any]
Tables = Mapping[str, Array]  # by the name of their slots


def wrong_table(stage: StageRequest, tables: Tables) -> str:
    """The first table that is wrong, with the entry where one alone is to blame; empty where none is."""
    wide: Tables = {name: table.astype(np.int64) for name, table in tables.items()}
    args: Any = stage.args
    if stage.problem.family == "append":
        return _places(args, wide)
    wrong = wrong_rows("q", wide, args.batch, args.rows, args.total_rows)
    if wrong or stage.problem.family == "combine":
        return wrong
    if stage.problem.pages == "none":
        return wrong_rows("k", wide, args.batch, args.keys, args.total_keys)
    return _pages(args, wide)


def wrong_rows(which: str, tables: Tables, batch: int, most: int, total: int) -> str:
    starts, lengths = tables.get(f"cu_seqlens_{which}"), tables.get(f"seqlens_{which}")
    for b in range(batch):
        there = most
        if starts is not None:
            first, after = int(starts[b]), int(starts[b + 1])
            there = after - first
            if first < 0 or after < first or after > total or there > most:
                return entry(f"cu_seqlens_{which}", b + (0 if first < 0 else 1), starts[b + (0 if first < 0 else 1)])
        if lengths is not None and not 0 <= lengths[b] <= there:
            return entry(f"seqlens_{which}", b, lengths[b])
    return ""


def _pages(args: Any, tables: Tables) -> str:
    pages, table, indptr = args.pages, tables["block_table"], tables.get("page_indptr")
    for b in range(args.batch):
        if indptr is None:
            keys = int(tables["seqlens_k"][b]) if "seqlens_k" in tables else args.keys
            mine = table[b]
        else:
            first, after, last = int(indptr[b]), int(indptr[b + 1]), int(tables["page_last"][b])
            if first < 0 or after < first or after > pages.stride:
                return entry("page_indptr", b + 1, after)
            if after > first and not 1 <= last <= pages.size:
                return entry("page_last", b, last)
            keys, mine = ((after - first - 1) * pages.size + last if after > first else 0), table[first:after]
        if not 0 <= keys <= args.keys:
            return entry("seqlens_k", b, keys) if indptr is None else entry("page_indptr", b + 1, indptr[b + 1])
        wrong = _beyond(mine[: -(-keys // pages.size)], pages.count)
        if wrong is not None:
            at = f"{b}, {wrong}" if indptr is None else first + wrong
            return entry("block_table", at, mine[wrong])
    return ""


def _places(args: Any, tables: Tables) -> str:
    new, size = tables.get("seqlens_new"), args.pages.size
    written: dict[int, list[tuple[int, int]]] = {}  # slots of a page that new rows go to
    for b in range(args.batch):
        old, more = int(tables["cache_seqlens"][b]), args.rows if new is None else int(new[b])
        if not 0 <= more <= args.rows:
            return entry("seqlens_new", b, more)
        if old < 0 or old + more > args.keys or (args.rotary and old + more > args.table_rows):
            return entry("cache_seqlens", b, old)
        if "block_table" in tables and more:
            mine = tables["block_table"][b, old // size : -(-(old + more) // size)]
            wrong = _beyond(mine, args.pages.count)
            if wrong is not None:
                return entry("block_table", f"{b}, {old // size + wrong}", mine[wrong])
            for logical, page in enumerate(mine.tolist(), old // size):
                low, high = max(old - logical * size, 0), min(old + more - logical * size, size)
                if any(low < end and begin < high for begin, end in written.setdefault(page, [])):
                    return entry("block_table", f"{b}, {logical}", page)
                written[page].append((low, high))
    return ""


def _beyond(pages: Array, count: int) -> int | None:
    """Where the first number is that is no page's."""
    wrong = ((pages < 0) | (pages >= count)).nonzero()[0]
    return int(wrong[0]) if len(wrong) else None


def entry(name: str, at: int | str, number: Any) -> str:
    """A table with the entry of it that is wrong: block_table[1, 3] = 99."""
    return f"{name}[{at}] = {int(number)}"
