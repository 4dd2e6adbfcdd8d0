"""The element types, once: names, sizes, kinds, precision, and what array libraries call them.

`tf32` is how float32 arrays are multiplied when asked for (`math="tf32"`): rounded to 11 bits before the
matrix units, so an input type only.  `fp8_e4m3` and `fp8_e5m2` are the OCP encodings (e4m3 has no infinity); the
`fnuz` ones, which older AMD GPUs multiply, have another bias, one zero and no infinity: the same byte is another
number.  The integers from int64 on are for tables (lengths, indices, masks), which kernels read and never multiply.
Error bounds are derived from `unit_roundoff`, the largest relative error of rounding to the type.
"""

from __future__ import annotations

from tilewright.dataclass import dataclass
from tilewright.errors import UnknownNameError, nearest, shown


@dataclass(frozen=True, slots=True)
class DType:
    name: str
    bytes: int
    kind: str  # "float", "int", or "table" for integers nobody multiplies
    mantissa_bits: int  # explicit bits; 0 for integers
    numpy_name: str  # name of the NumPy (or ml_dtypes) dtype of the same encoding
    torch_name: str = ""  # PyTorch's name, where it is another one
    dlpack_code: int = 0  # DLPack's type code; its bits are those of `bytes`
    held: bool = True  # arrays hold it

    @property
    def unit_roundoff(self) -> float:
        return 2.0 ** -(self.mantissa_bits + 1) if self.kind == "float" else 0.0

    @property
    def in_torch(self) -> str:
        return self.torch_name or self.numpy_name


DTYPES: dict[str, DType] = {
    kind.name: kind
    for kind in (
        DType("fp32", 4, "float", 23, "float32", dlpack_code=2),
        DType("tf32", 4, "float", 10, "float32", dlpack_code=2, held=False),
        DType("fp16", 2, "float", 10, "float16", dlpack_code=2),
        DType("bf16", 2, "float", 7, "bfloat16", dlpack_code=4),
        DType("fp8_e4m3", 1, "float", 3, "float8_e4m3fn", dlpack_code=10),
        DType("fp8_e5m2", 1, "float", 2, "float8_e5m2", dlpack_code=12),
        DType("fp8_e4m3fnuz", 1, "float", 3, "float8_e4m3fnuz", dlpack_code=11),
        DType("fp8_e5m2fnuz", 1, "float", 2, "float8_e5m2fnuz", dlpack_code=13),
        DType("int8", 1, "int", 0, "int8", dlpack_code=0),
        DType("int32", 4, "int", 0, "int32", dlpack_code=0),
        DType("int64", 8, "table", 0, "int64", dlpack_code=0),
        DType("uint8", 1, "table", 0, "uint8", dlpack_code=1),
        DType("bool", 1, "table", 0, "bool", dlpack_code=6),
    )
}

# What an array holds, by what its library calls it.
BY_NUMPY_NAME: dict[str, str] = {kind.numpy_name: kind.name for kind in DTYPES.values() if kind.held}
BY_TORCH_NAME: dict[str, str] = {kind.in_torch: kind.name for kind in DTYPES.values() if kind.held}
BY_DLPACK: dict[tuple[int, int], str] = {
    (kind.dlpack_code, 8 * kind.bytes): kind.name for kind in DTYPES.values() if kind.held
}


def dtype(name: str) -> DType:
    """The element type called `name`; an unknown name is an error with the nearest known one."""
    known = DTYPES.get(name) if isinstance(name, str) else None
    if known is not None:
        return known
    text = name if isinstance(name, str) else shown(name)
    ours = BY_NUMPY_NAME.get(name) if isinstance(name, str) else None  # float32 is fp32 here
    remedy = f"write {ours!r}" if ours is not None else nearest(text, list(DTYPES))
    raise UnknownNameError(f"{shown(name)} is not an element type", rule="dtype-name", value=text, remedy=remedy)
