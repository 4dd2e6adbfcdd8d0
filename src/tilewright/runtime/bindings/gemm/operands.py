"""The operands of a GEMM as matrices over one batch: shapes, strides, and which batch dimensions are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.dataclass import dataclass
from tilewright.errors import ProblemError
from tilewright.runtime.arrays import View
from tilewright.runtime.copies import CopyNeeded, copy_needed
from tilewright.runtime.devices import HOST, Place

A, B, C, D0, _D1, _D2, _D3, OUT, UP = range(9)  # the slots; UP: the second B of a dual call


@dataclass(frozen=True, slots=True)
class PackedShape:
    """What is left of a B that was packed beforehand: its sizes and the layout it was packed from."""

    k: int
    n: int
    batch: int | None  # None: not batched
    repeated: bool  # one matrix was packed for the whole batch
    dtype: str
    layout: str
    place: Place = HOST


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand as rows and columns; strides in elements, 0 where it repeats, `steps` along the batch dimensions."""

    slot: int
    what: str
    dtype: str
    itemsize: int
    shape: tuple[int, int]
    strides: tuple[int, int]
    steps: tuple[int, ...] = ()
    odd: bool = False  # it starts elsewhere than at a multiple of 16 bytes

    def transposed(self) -> Matrix:
        """The same memory with rows and columns exchanged."""
        return replace(self, shape=self.shape[::-1], strides=self.strides[::-1])

    @property
    def repeats(self) -> bool:
        """Whether rows, or the elements of a row, are one and the same."""
        return any(size > 1 and stride == 0 for size, stride in zip(self.shape, self.strides, strict=True))

    def leading(self) -> dict[str, int]:
        """The leading stride for each layout (r, c) the matrix can be read in; may be empty."""
        (rows, columns), (down, across) = self.shape, self.strides
        if rows == 0 or columns == 0:
            return {"r": max(1, columns), "c": max(1, rows)}
        strides = {}
        if (columns == 1 or across == 1) and (rows == 1 or down >= columns):
            strides["r"] = down if rows > 1 else columns
        if (rows == 1 or down == 1) and (columns == 1 or across >= rows):
            strides["c"] = across if columns > 1 else rows
        return strides

    def layout(self, prefer: str = "") -> tuple[str, int]:
        """Layout and leading stride of an input.

        A vector fits both layouts: then the preferred layout is taken, or else the one its strides look like, so
        that a transposed view of a row-major array stays column-major at every size.
        """
        leading = self.leading()
        if not leading:
            raise self.no_layout()
        alike = prefer or ("r" if self.strides[0] >= self.strides[1] else "c")
        letter = alike if alike in leading else next(iter(leading))
        return letter, leading[letter]

    def no_layout(self) -> CopyNeeded:
        return copy_needed(
            self.what,
            f"{self.what} of {self.shape[0]}x{self.shape[1]} has element strides {self.strides}: neither its rows nor "
            "its columns are contiguous and apart",
            rule="array-layout",
            value=self.strides,
        )


def matrix(slot: int, view: View, shape: tuple[int, ...]) -> Matrix:
    """A view as a matrix over a result's batch; `shape` is what it broadcasts to, batch dimensions first."""
    *steps, down, across = spread(view, shape)
    rows, columns = shape[-2:]
    odd = view.address % 16 != 0 and 0 not in view.shape
    laid = Matrix(slot, view.what, view.dtype, view.itemsize, (rows, columns), (down, across), tuple(steps), odd)
    if 0 in shape and not laid.leading():  # nothing is read, so whatever its strides are will do
        return replace(laid, strides=(max(1, columns), 1))
    return laid


def spread(view: View, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides with which a view has another shape: 0 where it repeats.  A shape it has not is an error."""
    if view.shape == shape:  # most: nothing repeats
        return view.strides
    lead = len(shape) - len(view.shape)
    fits = lead >= 0 and all(
        size in (1, wanted) for size, wanted in zip(view.shape, shape[max(0, lead) :], strict=False)
    )
    if not fits:
        raise ProblemError(
            f"{view.what} has shape {view.shape}, which does not broadcast to the result's {shape}",
            rule={C: "shape-c"}.get(_slot_of(view.what), "shape-d"),
            value=view.shape,
            remedy=f"give shape {shape}, or sizes of 1 where it repeats",
        )
    mine = zip(view.shape, view.strides, shape[lead:], strict=True)
    return (*(0,) * lead, *(stride if size == wanted else 0 for size, stride, wanted in mine))


def _slot_of(what: str) -> int:
    return C if what == "c" else D0


def batch_of(operands: Sequence[View], packed: PackedShape | None) -> tuple[int, ...]:
    """The batch dimensions all operands broadcast to; sizes of 1 and missing ones repeat."""
    shapes = {operand.what: operand.shape[:-2] for operand in operands if len(operand.shape) > 2}
    if packed is not None and packed.batch is not None:
        shapes["b"] = (packed.batch,)
    if not shapes:
        return ()
    rank = max(map(len, shapes.values()), default=0)
    batch = [1] * rank
    for shape in shapes.values():
        for index, size in enumerate((1,) * (rank - len(shape)) + shape):
            if size != 1 and batch[index] not in (1, size):
                listing = ", ".join(f"{what} {size_text}" for what, size_text in shapes.items())
                raise ProblemError(
                    f"the batch sizes differ: {listing}",
                    rule="shape-batch",
                    value=shapes,
                    remedy="use the same batch sizes, or 1 to repeat",
                )
            if size != 1:
                batch[index] = size
    return tuple(batch)


def merged(batch: tuple[int, ...], operands: Sequence[Matrix]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """As few batch dimensions as the strides of all operands allow, and the steps of each operand along them."""
    if not batch:
        return (), [()] * len(operands)
    if 0 in batch:
        return (0,), [(0,)] * len(operands)
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in operands]
    for index, size in enumerate(batch):
        if size == 1:
            continue
        here = [operand.steps[index] for operand in operands]
        if sizes and all(operand_steps[-1] == step * size for operand_steps, step in zip(steps, here, strict=True)):
            sizes[-1] *= size
            for operand_steps, step in zip(steps, here, strict=True):
                operand_steps[-1] = step
        else:
            sizes.append(size)
            for operand_steps, step in zip(steps, here, strict=True):
                operand_steps.append(step)
    return tuple(sizes), [tuple(operand_steps) for operand_steps in steps]
