"""The element types, once: names, sizes, kinds, precision.

`tf32` is how float32 arrays are multiplied when asked for (`math="tf32"`): rounded to 11 bits on the way into the
matrix units, so an input type only.  `fp8_e4m3` and `fp8_e5m2` are the OCP encodings (e4m3 has no infinity); the
`fnuz` ones, which older AMD GPUs multiply, have another bias, one zero and no infinity: the same byte is another
number.  Error bounds are derived from `unit_roundoff`, the largest relative error of rounding to the type.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import UnknownNameError, nearest


@dataclass(frozen=True, slots=True)
class DType:
    name: str
    bytes: int
    kind: str  # "float" or "int"
    mantissa_bits: int  # explicit bits; 0 for integers
    numpy_name: str  # name of the NumPy (or ml_dtypes) dtype of the same encoding

    @property
    def unit_roundoff(self) -> float:
        return 0.0 if self.kind == "int" else 2.0 ** -(self.mantissa_bits + 1)


DTYPES: dict[str, DType] = {
    one.name: one
    for one in (
        DType("fp32", 4, "float", 23, "float32"),
        DType("tf32", 4, "float", 10, "float32"),
        DType("fp16", 2, "float", 10, "float16"),
        DType("bf16", 2, "float", 7, "bfloat16"),
        DType("fp8_e4m3", 1, "float", 3, "float8_e4m3fn"),
        DType("fp8_e5m2", 1, "float", 2, "float8_e5m2"),
        DType("fp8_e4m3fnuz", 1, "float", 3, "float8_e4m3fnuz"),
        DType("fp8_e5m2fnuz", 1, "float", 2, "float8_e5m2fnuz"),
        DType("int8", 1, "int", 0, "int8"),
        DType("int32", 4, "int", 0, "int32"),
    )
}

# What an array holds; nothing holds tf32.
BY_NUMPY_NAME: dict[str, str] = {one.numpy_name: one.name for one in DTYPES.values() if one.name != "tf32"}


def dtype(name: str) -> DType:
    """The element type called `name`; an unknown name is an error with the nearest known one."""
    try:
        return DTYPES[name]
    except KeyError:
        raise UnknownNameError(
            f"{name!r} is not an element type", rule="dtype-name", value=name, remedy=nearest(name, list(DTYPES))
        ) from None
