"""Arithmetic that is written once, in a C++ header, and read by Python as it stands there.

Which schedules are legal is decided without a compiler, and depends on the shared memory that a kernel lays out.  So a
family writes that arithmetic as `constexpr` functions in a header of its own (`memory.h`).  The kernel includes it, and
`Arithmetic` evaluates the same text.  A header holds constants and functions of one expression over `int` and `bool`:
+ - * / % < <= > >= == != && || ! ?: and calls of functions before it.  Anything else in it is an error here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from tilewright import packaged
from tilewright.errors import InternalError

_TOKEN = re.compile(r"\s*(\d+|\w+|<=|>=|==|!=|&&|\|\||[-+*/%<>!?:=(){},;])")
_IGNORED = re.compile(r"^namespace \w+ \{$|^\}  // namespace[^\n]*$|^#[^\n]*$|//[^\n]*", re.M)
_MOST_KNOWN = 1 << 14  # answers of a function
_Names = Mapping[str, int]
_Value = Callable[[_Names], int]


def _quotient(a: int, b: int) -> int:
    """As C++ divides: towards zero."""
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


_BINARY: tuple[dict[str, Callable[[int, int], int]], ...] = (  # loosest first
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {"<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b),
     ">": lambda a, b: int(a > b), ">=": lambda a, b: int(a >= b)},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": _quotient, "%": lambda a, b: a - _quotient(a, b) * b},
)  # fmt: skip


class Function:
    """One of a header; what it was asked it remembers, as the kernels of a pool differ in few of their numbers."""

    def __init__(self, parameters: tuple[str, ...], body: _Value) -> None:
        self.parameters, self._body = parameters, body
        self._known: dict[tuple[int, ...], int] = {}

    def __call__(self, *arguments: int) -> int:
        known = self._known.get(arguments)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._body(dict(zip(self.parameters, map(int, arguments), strict=True)))
            self._known[arguments] = known
        return known


class _Reader:
    """Recursive descent over the tokens of one header."""

    def __init__(self, header: str, text: str, known: Mapping[str, Function]) -> None:
        self.header, self.functions = header, dict(known)
        code = _IGNORED.sub("", text)
        self.tokens: list[str] = []
        at = 0
        for token in _TOKEN.finditer(code):
            if token.start() != at:
                break
            self.tokens.append(token[1])
            at = token.end()
        if rest := code[at:].strip():
            raise self._error(rest[:20])
        self.at = 0

    def _error(self, text: str) -> InternalError:
        message = f"{self.header}: {text!r} is not arithmetic that Python reads"
        return InternalError(message, rule="constexpr", value=text)

    def _next(self, *expected: str) -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else "the end"
        if expected and token not in expected:
            raise self._error(token)
        self.at += 1
        return token

    def _accept(self, token: str) -> bool:
        accepted = self.at < len(self.tokens) and self.tokens[self.at] == token
        self.at += accepted
        return accepted

    def read(self) -> dict[str, Function]:
        while self.at < len(self.tokens):
            self._next("constexpr")
            self._next("int", "bool")
            name, parameters = self._next(), tuple[str, ...]()
            if self._next("=", "(") == "(":
                parameters = tuple(self._parameters())
                self._next("{")
                self._next("return")
                self.functions[name] = Function(parameters, self._choice(parameters))
                self._next(";")
                self._next("}")
            else:
                self.functions[name] = Function((), self._choice(()))
                self._next(";")
        return self.functions

    def _parameters(self) -> Iterator[str]:
        while not self._accept(")"):
            self._next("int", "bool")
            yield self._next()
            if not self._accept(","):
                self._next(")")
                return

    def _choice(self, names: Sequence[str]) -> _Value:
        condition = self._binary(0, names)
        if not self._accept("?"):
            return condition
        first = self._choice(names)
        self._next(":")
        second = self._choice(names)
        return lambda values: first(values) if condition(values) else second(values)

    def _binary(self, level: int, names: Sequence[str]) -> _Value:
        if level == len(_BINARY):
            return self._single(names)
        left = self._binary(level + 1, names)
        while self.at < len(self.tokens) and self.tokens[self.at] in _BINARY[level]:
            left = self._joined(_BINARY[level][self._next()], left, self._binary(level + 1, names))
        return left

    @staticmethod
    def _joined(operation: Callable[[int, int], int], left: _Value, right: _Value) -> _Value:
        return lambda values: operation(left(values), right(values))

    def _single(self, names: Sequence[str]) -> _Value:
        token = self._next()
        if token == "(":
            inner = self._choice(names)
            self._next(")")
            return inner
        if token == "!":
            denied = self._single(names)
            return lambda values: int(not denied(values))
        if token.isdigit():
            number = int(token)
            return lambda values: number
        if token in names:
            return lambda values: values[token]
        if token not in self.functions:
            raise self._error(token)
        return self._call(self.functions[token], names)

    def _call(self, function: Function, names: Sequence[str]) -> _Value:
        arguments: list[_Value] = []
        if self._accept("("):
            while not self._accept(")"):
                arguments.append(self._choice(names))
                if not self._accept(","):
                    self._next(")")
                    break
        if len(arguments) != len(function.parameters):
            raise self._error(f"{len(arguments)} arguments for {len(function.parameters)}")
        return lambda values: function(*(argument(values) for argument in arguments))


class Arithmetic:
    """The functions and constants of a header below `include/` of a package, and of those headers it includes."""

    def __init__(self, package: str, header: str, *included: Arithmetic) -> None:
        self.package, self.header, self.included = package, header, included

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        text = packaged.read_text(self.package, f"include/{self.header}")
        known = {name: function for other in self.included for name, function in other.functions.items()}
        return _Reader(self.header, text, known).read()

    def __call__(self, name: str, *arguments: int) -> int:
        return self.functions[name](*arguments)
