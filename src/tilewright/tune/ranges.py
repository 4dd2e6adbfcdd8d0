"""Ranges of problems: an op's options, some with bounds instead of a value, and a dense sample of what they mean.

    Ranges(OP, m=(1, 8192), n=4096, k=[64, 128], dtype="bf16")
    Ranges(OTHER, batch=range(8, 64, 8), size="7..224x7..224")

A pair is every whole number between two bounds, both included; a `range` or a list is what it says.  Texts write a
range as 7..224, or 8..512..8 with a step.  The sample is the same on every machine: both ends, numbers by octaves, and
around each the multiples of 8, 64 and 128 and their neighbours, for there kernels begin and cease to serve a problem.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilewright import ops
from tilewright.arch import Arch
from tilewright.errors import RequestError, UnknownNameError, nearest, shown
from tilewright.ops.base import Op, Option, with_new_names

MOST = 4096  # problems of a sample
_ALL = 64  # a range of no more numbers is taken whole
_PER_OCTAVE = 12
_GRAINS = (8, 64, 128)
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?:\.\.(\d+))?")
_ALIASES = {"dtype": "datatype"}  # as calls say it

Numbers = Sequence[int]


class Ranges:
    """Problems of an op by its options (`tilewright explain OP --help` lists them), of which some are ranges."""

    def __init__(self, op: str, **options: Any) -> None:
        self.op = ops.op(op)
        known = {option.name: option for option in self.op.options}
        renamed = {
            _ALIASES[name] if name not in known and name in _ALIASES else name: options[name] for name in options
        }
        self.options: dict[str, Any] = dict(with_new_names(self.op, renamed))
        for name in self.options:
            if name not in known:
                raise UnknownNameError(
                    f"{self.op.name} has no option {name!r}",
                    rule="prepare-range",
                    value=name,
                    remedy=nearest(name, list(known)),
                )
        self._parts = {name: _parts(known[name], value) for name, value in self.options.items()}

    def __repr__(self) -> str:
        return f"Ranges({self.op.name!r}, {', '.join(f'{name}={value!r}' for name, value in self.options.items())})"

    def values(self) -> list[dict[str, Any]]:
        """A sample, each by the values of options."""
        axes = [numbers for parts in self._parts.values() for numbers in parts if not isinstance(numbers, str)]
        return [self._filled(chosen) for chosen in _sample(axes)]

    def _filled(self, chosen: Sequence[int]) -> dict[str, Any]:
        left = iter(chosen)
        filled: dict[str, Any] = {}
        for name, parts in self._parts.items():
            value = self.options[name]
            if not parts:
                filled[name] = value
            elif len(parts) == 1 and not isinstance(value, str) and not isinstance(parts[0], str):
                filled[name] = next(left)
            else:
                text = "".join(part if isinstance(part, str) else str(next(left)) for part in parts)
                filled[name] = int(text) if text.isdecimal() and _kind(self.op, name) is int else text
        return filled


def _kind(op: Op, name: str) -> type[Any]:
    return next(option.kind for option in op.options if option.name == name)


def options_of(problem: Any) -> dict[str, Any]:
    """The values of options that describe a problem: its command-line words read back."""
    op = ops.op(problem.op)
    known = {f"--{option.name.replace('_', '-')}": option for option in op.options}
    words, options = list(op.words(problem)), dict[str, Any]()
    while words:
        word, equals, value = words.pop(0).partition("=")
        words = [value, *words] if equals else words
        off = f"--{word.removeprefix('--no-')}"
        option = known[word] if word in known else known[off]
        if option.kind is bool:
            options[option.name] = word in known
        else:
            options[option.name] = option.kind(words.pop(0))
    return options


def _parts(option: Option, value: Any) -> list[Numbers | str]:
    """What a value is put together of: numbers to choose from, and texts between them; nothing where it is as it is."""
    if option.kind is str:
        return _text_parts(option, value)
    if isinstance(value, str) and (match := _RANGE.fullmatch(value.strip())):
        return [_numbers(option.name, value, *match.groups())]
    if isinstance(value, str) and option.kind is int:
        raise _wrong(option.name, value)
    if isinstance(value, (range, list)):
        return [_listed(option.name, value)]
    if isinstance(value, tuple):
        if len(value) != 2:
            raise _wrong(option.name, value)
        return [_numbers(option.name, value, *value)]
    return []


def _text_parts(option: Option, value: Any) -> list[Numbers | str]:
    """Of sizes such as 56x56: ranges in a text, or a tuple with a number or a pair for each dimension."""
    if isinstance(value, bool):
        return [str(value).lower()]
    if isinstance(value, int):
        return [str(value)]
    if isinstance(value, (tuple, list)):
        each = [
            [_numbers(option.name, value, *item)] if isinstance(item, (tuple, list)) and len(item) == 2 else [str(item)]
            for item in value
        ]
        spaced: list[Numbers | str] = []
        for index, item in enumerate(each):
            spaced += ["x", *item] if index else item
        return spaced
    if not isinstance(value, str) or not _RANGE.search(value):
        return []
    parts: list[Numbers | str] = []
    end = 0
    for match in _RANGE.finditer(value):
        parts += [value[end : match.start()]] if match.start() > end else []
        parts.append(_numbers(option.name, value, *match.groups()))
        end = match.end()
    return parts + ([value[end:]] if value[end:] else [])


def _wrong(name: str, value: Any) -> RequestError:
    text = shown(value)
    return RequestError(
        f"{name} is {text}, which is no range",
        rule="prepare-range",
        value=text,
        remedy="give (1, 8192) for all from 1 to 8192, range(8, 512, 8), a list of numbers, or 1..8192 as text",
    )


def _numbers(name: str, value: Any, low: Any, high: Any, step: Any = None) -> Numbers:
    try:
        first, last, by = int(low), int(high), int(step or 1)
    except (TypeError, ValueError):
        raise _wrong(name, value) from None
    if first > last or by < 1 or isinstance(low, float) or isinstance(high, float):
        raise _wrong(name, value)
    return _dense(range(first, last + 1, by))


def _listed(name: str, value: Sequence[Any]) -> Numbers:
    if not len(value) or not all(type(number) is int for number in value):
        raise _wrong(name, value)
    return _dense(value) if isinstance(value, range) else sorted(set(value))


def _dense(among: range) -> Numbers:
    """The numbers of a range that a sample takes."""
    if len(among) <= _ALL:
        return list(among)
    low, high = sorted((among[0], among[-1]))  # min and max would look at every number
    numbers = {low, high, low + abs(among.step), high - abs(among.step)}
    count = 1 + _PER_OCTAVE * (high // max(low, 1)).bit_length()
    for index in range(count + 1):
        at = max(low, 1) * (high / max(low, 1)) ** (index / count)
        near = {round(at)}
        for grain in _GRAINS:
            multiple = grain * round(at / grain)
            near |= {multiple, multiple + 1, multiple - 1} if grain == _GRAINS[0] else {multiple, multiple + 1}
        numbers |= near
    return sorted(number for number in numbers if number in among)


def _sample(axes: Sequence[Numbers]) -> Iterator[tuple[int, ...]]:
    """All of the product where it is small; else corners, each axis on its own and the diagonal, and drawn points."""
    product = 1
    for numbers in axes:
        product *= len(numbers)
    if product <= MOST:
        yield from itertools.product(*axes)
        return
    r, points = random.Random("tilewright.prepare"), dict[tuple[int, ...], None]()
    if len(axes) <= 8:
        points.update(dict.fromkeys(itertools.product(*((numbers[0], numbers[-1]) for numbers in axes))))
    for index, numbers in enumerate(axes):
        for number in numbers[:: 1 + len(numbers) * len(axes) // MOST]:
            point = [r.choice(other) for other in axes]
            point[index] = number
            points[tuple(point)] = None
    alike = set(axes[0]).intersection(*axes[1:])  # square problems are more frequent than chance makes them
    points.update(dict.fromkeys((number,) * len(axes) for number in sorted(alike)))
    while len(points) < MOST:
        points[tuple(r.choice(numbers) for numbers in axes)] = None
    yield from points


def described(values: Mapping[str, Any], op: Op, arch: Arch) -> Any:
    """The problem of a point of a sample; some words mean what they do on an arch only."""
    from tilewright.tune.problem_sets import problem

    known = {option.name: option for option in op.options}
    normalized: dict[str, Any] = {}
    for name, value in values.items():
        option = known[name]
        text = str(value) if option.kind is str else value
        normalized[name] = option.normal(text, arch) if option.normal is not None and text else text
    return problem(op, normalized)
