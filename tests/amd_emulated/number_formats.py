"""Element types by their bits: what a pattern means, and patterns of a kind drawn at random.

Nothing of the product is asked: formats are stated here as their standards do, and read with integer arithmetic into
float64, which holds every number of every one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

IEEE = "ieee"  # the last exponent holds infinities and NaNs
FINITE = "finite"  # OCP e4m3: no infinities, NaN is all ones
FNUZ = "fnuz"  # no infinities, no negative zero: its pattern is the only NaN


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format, sign first; without exponent a whole number in two's complement."""

    bytes: int
    exponent: int = 0
    mantissa: int = 0
    bias: int = 0
    specials: str = IEEE

    @property
    def is_int(self) -> bool:
        return self.exponent == 0

    @property
    def word(self) -> str:
        return f"u{self.bytes}"

    @property
    def sign(self) -> int:
        return 1 << (8 * self.bytes - 1)

    @property
    def last(self) -> int:
        """The largest exponent field of a finite number."""
        return (1 << self.exponent) - (2 if self.specials == IEEE else 1)

    @property
    def largest_bits(self) -> int:
        """The largest finite number."""
        bits = self.last << self.mantissa | ((1 << self.mantissa) - 1)
        return bits - 1 if self.specials == FINITE else bits

    @property
    def largest(self) -> float:
        return float(decode(np.array([self.largest_bits], self.word), self)[0])

    @property
    def roundoff(self) -> float:
        return float(2.0 ** -(self.mantissa + 1))

    @property
    def smallest(self) -> float:
        """The smallest number above 0, a subnormal."""
        return float(2.0 ** (1 - self.bias - self.mantissa))

    @property
    def nan_bits(self) -> int:
        return self.sign if self.specials == FNUZ else self.sign - 1

    @property
    def poison(self) -> int:
        """A byte that makes a NaN of any element it fills; of whole numbers one that spoils every sum."""
        return 0x5B if self.is_int else 0x80 if self.specials == FNUZ else 0xFF


FORMATS = {
    "fp32": Format(4, 8, 23, 127),
    "fp16": Format(2, 5, 10, 15),
    "bf16": Format(2, 8, 7, 127),
    "fp8_e4m3": Format(1, 4, 3, 7, FINITE),
    "fp8_e5m2": Format(1, 5, 2, 15),
    "fp8_e4m3fnuz": Format(1, 4, 3, 8, FNUZ),
    "fp8_e5m2fnuz": Format(1, 5, 2, 16, FNUZ),
    "int8": Format(1),
    "int32": Format(4),
}


def decode(bits: Array, of: Format) -> Array:
    """The numbers of bit patterns, in float64."""
    if of.is_int:
        return bits.astype(f"i{of.bytes}").astype(np.float64)
    whole = bits.astype(np.int64)
    sign = np.where(whole & of.sign, -1.0, 1.0)
    exponent = whole >> of.mantissa & ((1 << of.exponent) - 1)
    fraction = whole & ((1 << of.mantissa) - 1)
    normal = exponent > 0
    digits = np.where(normal, fraction + (1 << of.mantissa), fraction).astype(np.float64)
    value = np.ldexp(digits, (np.where(normal, exponent, 1) - of.bias - of.mantissa).astype(np.int32))
    if of.specials == IEEE:
        value = np.where(exponent > of.last, np.where(fraction == 0, np.inf, np.nan), value)
    elif of.specials == FINITE:
        value = np.where((whole & (of.sign - 1)) == of.sign - 1, np.nan, value)
    else:
        value = np.where(whole == of.sign, np.nan, value)
    return np.asarray(sign * value)


def encode_small(values: Array, of: Format) -> Array:
    """Bit patterns of whole numbers so small that the format has them."""
    if of.is_int:
        return values.astype(f"i{of.bytes}").astype(of.word)
    size = np.abs(values).astype(np.int64)
    power = np.zeros_like(size)
    for one in range(1, of.mantissa + 2):
        power = np.where(size >> one > 0, one, power)
    bits = (power + of.bias) << of.mantissa | ((size << of.mantissa >> power) & ((1 << of.mantissa) - 1))
    bits = np.where(size == 0, 0, bits | np.where(values < 0, of.sign, 0))
    return np.asarray(bits.astype(of.word))


# -- kinds of numbers --------------------------------------------------------------------------------------------------

ORDINARY, WHOLE, WIDE, SMALL, LARGEST = "ordinary", "whole", "wide", "subnormal", "largest"
ZEROS, SPECIAL, ONE_HOT = "zeros", "special", "one-hot"
KINDS = (ORDINARY, WHOLE, WIDE, SMALL, LARGEST, ZEROS, SPECIAL, ONE_HOT)


def draw(rng: np.random.Generator, shape: tuple[int, ...], of: Format, kind: str) -> Array:
    """Bit patterns of a kind.

    ordinary   between 1/8 and 8 in size, any digits; whole numbers: their whole range
    whole      -3 to 3, whole: sums of thousands of products are exact
    wide       sizes over many powers of two, so that sums cancel what came before
    subnormal  below the smallest normal number; whole numbers: -1, 0, 1
    largest    the largest finite number, of either sign
    zeros      of either sign where there are two
    special    ordinary, and here and there an infinity, a NaN, the largest, a subnormal number or a zero
    one-hot    a single 1 in each line, else zeros: an element that lands elsewhere is seen
    """
    if kind == WHOLE:
        return encode_small(rng.integers(-3, 4, shape), of)
    if kind == ZEROS:
        return _signed(rng, np.zeros(shape, np.int64), of)
    if kind == ONE_HOT:
        values = np.zeros(shape, np.int64)
        if values.size:
            place = rng.integers(0, shape[-1], shape[:-1])
            np.put_along_axis(values, place[..., None], 1, axis=-1)
        return encode_small(values, of)
    if of.is_int:
        return _draw_int(rng, shape, of, kind)
    digits = rng.integers(0, 1 << of.mantissa, shape)
    if kind == SMALL:
        return _signed(rng, digits, of)
    if kind == LARGEST:
        return _signed(rng, np.full(shape, of.largest_bits), of)
    reach = 3 if kind != WIDE else min(of.bias - 1, 12)
    exponent = rng.integers(max(1, of.bias - reach), min(of.last - (of.specials == FINITE), of.bias + reach), shape)
    bits = _signed(rng, exponent << of.mantissa | digits, of)
    if kind != SPECIAL:
        return bits
    return np.where(rng.random(shape) < 0.004, rng.choice(_specials(of), shape), bits).astype(of.word)


def _signed(rng: np.random.Generator, bits: Array, of: Format) -> Array:
    minus: Array = np.asarray(rng.integers(0, 2, bits.shape)) * of.sign
    if of.is_int or of.specials == FNUZ:
        minus = np.where(bits == 0, 0, minus)
    return (bits | minus).astype(of.word)


def _specials(of: Format) -> Array:
    found = [0, 1, of.largest_bits, of.largest_bits | of.sign, of.sign | 1, of.nan_bits]
    if of.specials == IEEE:
        infinity = ((1 << of.exponent) - 1) << of.mantissa
        found += [infinity, infinity | of.sign]
    return np.array(found, np.uint64)


def _draw_int(rng: np.random.Generator, shape: tuple[int, ...], of: Format, kind: str) -> Array:
    top = 127 if of.bytes == 1 else 1 << 22  # sums of int32 with it stay far inside
    if kind == SMALL:
        values = rng.integers(-1, 2, shape)
    elif kind == LARGEST:
        values = np.where(rng.integers(0, 2, shape) == 0, -top - 1, top)
    else:
        values = rng.integers(-top - 1, top + 1, shape)
    return values.astype(f"i{of.bytes}").astype(of.word)
