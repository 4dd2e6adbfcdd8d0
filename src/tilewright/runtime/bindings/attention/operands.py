"""The operands of an attention in the order kernels have them: sequence (or page), row, head; and the small ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tilewright.dataclass import dataclass
from tilewright.errors import ProblemError, UnknownNameError, an, counted, nearest, shown
from tilewright.ops.attention_terms import Sizes
from tilewright.runtime.arrays import View
from tilewright.runtime.bindings import numbers
from tilewright.runtime.copies import copy_needed

LAYOUTS = ("bshd", "bhsd")
PAGE_LAYOUTS = ("linear", "heads_first", "vectorised")
_ALIASES = {"vectorized": "vectorised", "nhd": "linear", "hnd": "heads_first", "": "linear", "bshd": "linear",
            "bhsd": "heads_first"}  # fmt: skip

_FLOATS = ("q", "k", "v", "bias", "attn_mask", "alibi_slopes", "sink", "q_scale", "k_scale", "v_scale", "cos", "sin",
           "out", "cache_k", "cache_v", "q_out", "dout", "lse", "dlse", "dq", "dk", "dv", "dbias", "dsink",
           "dalibi")  # fmt: skip


def bad(rule: str, message: str, value: object, remedy: str) -> ProblemError:
    return ProblemError(message, rule=rule, value=value, remedy=remedy)


whole_number = partial(numbers.whole_number, "attention")
switch = partial(numbers.switch, "attention")


def not_an_array(name: str, value: Any) -> ProblemError:
    """With the elements such an array has: tables are of int32, masks of truth values."""
    kind = "np.float32" if name in _FLOATS else "bool" if name == "mask" else "np.int32"
    held = "None" if value is None else an(type(value).__name__)
    remedy = f"give a NumPy array (np.asarray({name}, dtype={kind})) or anything with DLPack"
    return bad("array-type", f"{name} is {held}, not an array", held, remedy)


def known_layout(name: Any, known: tuple[str, ...], rule: str = "layout-name") -> str:
    """One of the known names, whatever its case; anything else is one error."""
    if isinstance(name, str):
        folded = name.lower()
        folded = _ALIASES.get(folded, folded) if known is PAGE_LAYOUTS else folded
        if folded in known:
            return folded
        raise UnknownNameError(
            f"{shown(name)} is not a layout", rule=rule, value=name, remedy=nearest(name, list(known))
        )
    raise bad(
        rule, f"the layout is {an(type(name).__name__)}, not a name", shown(name), f"use one of {', '.join(known)}"
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """An array of heads: sequences (or pages), rows, heads, elements, and the strides of the first three."""

    batch: int
    rows: int
    heads: int
    size: int
    strides: Sizes
    packed: bool = False

    @property
    def outer(self) -> Sizes:
        """Sequences and rows; rows alone where they are packed."""
        return (self.rows,) if self.packed else (self.batch, self.rows)

    @classmethod
    def dense(cls, shape: Sizes, layout: str) -> Rows:
        """Of a new result: (sequences,) rows, heads, elements in the order of the layout."""
        *outer, heads, size = shape
        rows, batch = outer[-1], outer[0] if len(outer) > 1 else 1
        row, head = (heads * size, size) if layout == "bshd" else (size, rows * size)
        first = rows * heads * size if len(outer) > 1 else 0
        return cls(batch, rows, heads, size, (first, row, head), len(outer) == 1)


def unit_rows(view: View) -> None:
    """The last dimension is contiguous."""
    if view.shape and view.shape[-1] > 1 and 0 not in view.shape and view.strides[-1] != 1:
        message = f"the last dimension of {view.what} has a stride of {view.strides[-1]}"
        raise copy_needed(view.what, message, rule="array-strides", value=view.strides)


def _plain(size: int, stride: int, inner: int) -> int:
    """The stride of a dimension; of one element what dense memory has: arrays may say anything there."""
    return stride if size > 1 else inner


def rows_of(view: View, layout: str, packed: bool) -> Rows:
    """q, k, v or a result of a layout."""
    rank = 3 if packed else 4
    if len(view.shape) != rank:
        order = "rows, heads, elements" if packed else "sequences, rows, heads, elements"
        message = f"{view.what} has {counted(len(view.shape), 'dimension')}" + (
            " and rows are packed" if packed else ""
        )
        raise bad("array-rank", message, view.shape, f"give {rank}: {order} (layout {layout!r})")
    unit_rows(view)
    *first, rows, heads, size = view.shape
    *outer, row_stride, head_stride, _ = view.strides
    if layout == "bhsd":
        rows, heads, row_stride, head_stride = heads, rows, head_stride, row_stride
    head = _plain(heads, head_stride, size)
    row = _plain(rows, row_stride, head * heads)
    batch = 0 if packed else _plain(first[0], outer[0], row * max(1, rows))
    if 0 in view.shape:
        batch, row, head = (0 if packed else rows * heads * size), heads * size, size
    return Rows(1 if packed else first[0], rows, heads, size, (batch, row, head), packed)


def demand_heads(lie: Mapping[str, Rows]) -> None:
    """Heads and elements there are: to a problem a size of 0 is one that nobody said."""
    for name, rows in lie.items():
        for size, what in ((rows.heads, "heads"), (rows.size, "elements in a head")):
            if size < 1:
                raise bad("size-positive", f"{name} has {size} {what}", size, "give at least one")


def page_shape(view: View, name: str, layout: str) -> Rows:
    """Pages of k or v as (pages, slots, heads, elements); vectorised ones have strides of pages and heads only."""
    if layout != "vectorised":
        return _with_slots(view, rows_of(view, "bhsd" if layout == "heads_first" else "bshd", False))
    vector = 16 // view.itemsize
    if len(view.shape) != 5 or view.shape[-1] != vector:
        order = f"(pages, heads, elements / {vector}, slots, {vector})"
        if name != "k":
            order = f"(pages, heads, slots / {vector}, elements, {vector})"
        raise bad("array-rank", f"{view.what} of shape {view.shape} is no vectorised page", view.shape, f"give {order}")
    pages, heads, outer, inner, _ = view.shape
    slots, size = (inner, outer * vector) if name == "k" else (outer * vector, inner)
    dense = (inner * vector, vector, 1)
    if 0 not in view.shape and any(
        count > 1 and mine != step for count, mine, step in zip(view.shape[2:], view.strides[2:], dense, strict=True)
    ):
        message = f"a page of {view.what} is not contiguous: its strides are {view.strides}"
        raise copy_needed(view.what, message, rule="array-strides", value=view.strides)
    head = _plain(heads, view.strides[1], slots * size)
    strides = (_plain(pages, view.strides[0], head * heads), 0, head)
    return _with_slots(view, Rows(pages, slots, heads, size, strides))


def _with_slots(view: View, pages: Rows) -> Rows:
    if pages.rows < 1:
        raise bad("page-size", f"pages of {view.what} have {pages.rows} slots", view.shape, "give pages of 1 to 1024")
    return pages


def table(view: View, rank: int, shape: Sizes = ()) -> View:
    """A table of int32 whose last dimension is contiguous."""
    if view.dtype != "int32":
        message = f"{view.what} holds {view.dtype}, and tables are of int32"
        raise bad("table-dtype", message, view.dtype, f"give {view.what} as int32")
    if len(view.shape) != rank or (shape and view.shape != shape):
        wanted = shape or counted(rank, "dimension")
        raise bad("table-shape", f"{view.what} has shape {view.shape}", view.shape, f"give {wanted}")
    unit_rows(view)
    if rank == 2 and view.shape[0] > 1 and view.strides[0] < view.shape[1]:
        raise copy_needed(view.what, f"rows of {view.what} overlap", rule="array-strides", value=view.strides)
    return view


def broadcast(view: View, full: Sizes, most: Sizes) -> tuple[Sizes, Sizes]:
    """The shape of a mask or bias in four dimensions, and its strides: 0 where it repeats.

    `most`: sizes it may have instead, those of the longest sequences there may ever be; what is beyond nobody reads.
    """
    missing = len(full) - len(view.shape)
    sizes = (*(1,) * max(0, missing), *view.shape)
    if missing < 0 or any(mine not in (1, *both) for mine, *both in zip(sizes, full, most, strict=True)):
        message = f"{view.what} of shape {view.shape} does not broadcast to {full} (sequences, query heads, rows, keys)"
        raise bad(f"{view.what}-shape", message, view.shape, f"give sizes of {full}, or 1 where it repeats")
    strides = (*(0,) * missing, *view.strides)
    sizes = tuple(mine if mine == 1 else size for mine, size in zip(sizes, full, strict=True))
    return sizes, tuple(0 if size == 1 else step for size, step in zip(sizes, strides, strict=True))


def scale_strides(view: View, batch: int, heads: int, rows: int, block: int, bound: str = "") -> tuple[str, Sizes]:
    """Which kind of scales an array is, and its strides of sequence, head and block (of `block` rows).

    `bound` is the argument that would say `rows` more closely, where none did.
    """
    remedy = f"give fp32 of one number, ({heads},), ({batch}, {heads}), or ({batch}, {heads}, blocks) with scale_block"
    shape, strides = view.shape, view.strides
    if view.dtype != "fp32":
        raise bad("scales-shape", f"{view.what} holds {view.dtype}", view.dtype, remedy)
    if len(shape) == 3 and block and shape[2] * block < rows:
        message = f"{view.what} of shape {shape} has {counted(shape[2], 'block')} of {block}, and there are {rows} rows"
        fewer = f", or {bound} where every sequence is shorter" if bound else ""
        raise bad("scales-shape", message, shape, f"give {-(-rows // block)} blocks{fewer}")
    if all(size == 1 for size in shape):
        return "tensor", (0, 0, 0)
    if shape == (heads,):
        return "head", (0, strides[0], 0)
    if shape in ((batch, heads), (1, heads), (batch, 1)):
        return "head", tuple(0 if size == 1 else step for size, step in zip((*shape, 1), (*strides, 0), strict=True))
    full = len(shape) == 3 and shape[0] in (1, batch) and shape[1] in (1, heads)
    if full and shape[2] == 0 and block > 0 and rows == 0:
        return "none", (0, 0, 0)  # as many blocks as no rows need
    if full and shape[2] > 0 and (block > 0 or shape[2] == 1):
        kind = "block" if shape[2] > 1 else "head"
        return kind, tuple(0 if size == 1 else step for size, step in zip(shape, strides, strict=True))
    raise bad("scales-shape", f"{view.what} has shape {shape}", shape, remedy)
