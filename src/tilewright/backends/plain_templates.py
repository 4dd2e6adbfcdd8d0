"""The part of Jinja's language that most templates keep to, filled without Jinja.

A key of the store holds the digest of a rendered source, so every process renders each kernel it looks up; importing
Jinja and compiling a template takes longer than all the rest of that.  What is read here:

    {{ value }}    {% if value %} {% else %} {% endif %}    {% for name, ... in value %} {% else %} {% endfor %}

where a value is a name, `.field`, `[0]`, `.method()`, a text, a number, a tuple, `value|capitalize`,
`value if value == value else value`, or of a loop `loop.first` and `loop.last`.  They mean what they mean to Jinja with
`trim_blocks`, `keep_trailing_newline` and strict names.  A template with anything else is none of ours to fill, and
whatever goes wrong in filling is for Jinja to report (`Unfilled`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Value = Callable[[Mapping[str, Any]], Any]
Part = Callable[[dict[str, Any], list[str]], None]

_TAGS = re.compile(r"\{\{(?!-)(.*?)(?<!-)\}\}|\{%(?![-+])(.*?)(?<![-+])%\}(?:\n)?|(\{\{|\{%|\{#)", re.S)
_TOKENS = re.compile(r"""\s*(?:([A-Za-z_]\w*)|(\d+)(?![\w.])|'([^'\\]*)'|"([^"\\]*)"|(==|[.,()\[\]|])|(\S))""")
_WORDS = frozenset(
    [
        "if",
        "else",
        "elif",
        "for",
        "in",
        "is",
        "not",
        "and",
        "or",
        "recursive",
        "true",
        "false",
        "none",
        "True",
        "False",
        "None",
        "loop",
        "self",
        "super",
        "varargs",
        "kwargs",
        "caller",
    ]
)
_GLOBALS = frozenset(("range", "dict", "lipsum", "cycler", "joiner", "namespace"))  # Jinja's own names


class Unfilled(Exception):
    """A template or values that Jinja has to be asked about."""


class Template:
    """One template, read once."""

    def __init__(self, text: str) -> None:
        reader = _Reader(text)
        self._body = reader.body(())

    def render(self, values: Mapping[str, Any]) -> str:
        written: list[str] = []
        try:
            _write(self._body, dict(values), written)
        except Unfilled:
            raise
        except Exception as error:
            raise Unfilled(str(error)) from error
        return "".join(written)


def _write(body: Sequence[Part], names: dict[str, Any], written: list[str]) -> None:
    for part in body:
        part(names, written)


class _Reader:
    """Reads a template token by token."""

    def __init__(self, text: str) -> None:
        if "\r" in text:
            raise Unfilled("line ends that Jinja would change")
        self._text = text
        self._at = 0

    def body(self, ends: Sequence[str]) -> list[Part]:
        """The parts up to a tag of these words, which is left to be asked by `ended`."""
        parts: list[Part] = []
        for tag in iter(self._next, None):
            before, value, block = tag
            if before:
                parts.append(_literal(before))
            if value is not None:
                parts.append(_output(_Expression(value).whole()))
            elif block is not None:
                word, _, rest = block.strip().partition(" ")
                if word in ends:
                    self.ended = word
                    if rest.strip():
                        raise Unfilled(block)
                    return parts
                parts.append(self._block(word, rest))
        if ends:
            raise Unfilled(f"no {ends[-1]}")
        return parts

    def _next(self) -> tuple[str, str | None, str | None] | None:
        if self._at > len(self._text):
            return None
        match = _TAGS.search(self._text, self._at)
        if match is None:
            rest, self._at = self._text[self._at :], len(self._text) + 1
            return rest, None, None
        if match[3] is not None:  # a comment, a tag that trims, or one that does not end
            raise Unfilled(match[3])
        before, self._at = self._text[self._at : match.start()], match.end()
        return before, match[1], match[2]

    def _block(self, word: str, rest: str) -> Part:
        if word == "if":
            value = _Expression(rest).whole()
            then, otherwise = self._branches("endif")
            return _choice(value, then, otherwise)
        if word == "for":
            expression = _Expression(rest)
            targets = expression.targets()
            value = expression.whole(conditional=False)  # Jinja takes an `if` here as a filter of the items
            then, otherwise = self._branches("endfor")
            return _loop(targets, value, then, otherwise)
        raise Unfilled(word)

    def _branches(self, end: str) -> tuple[list[Part], list[Part]]:
        first = self.body(("else", end))
        return (first, []) if self.ended == end else (first, self.body((end,)))


def _literal(text: str) -> Part:
    return lambda names, written: written.append(text)


def _output(value: Value) -> Part:
    return lambda names, written: written.append(str(value(names)))


def _choice(value: Value, then: Sequence[Part], otherwise: Sequence[Part]) -> Part:
    return lambda names, written: _write(then if value(names) else otherwise, names, written)


def _loop(targets: Sequence[str], value: Value, then: Sequence[Part], otherwise: Sequence[Part]) -> Part:
    def written_for(names: dict[str, Any], written: list[str]) -> None:
        inner, items = dict(names), tuple(value(names))
        for at, item in enumerate(items):
            inner["loop"] = {"first": at == 0, "last": at == len(items) - 1}
            if len(targets) == 1:
                inner[targets[0]] = item
            else:
                inner.update(zip(targets, item, strict=True))
            _write(then, inner, written)
        if not items:
            _write(otherwise, names, written)

    return written_for


class _Expression:
    """Reads one value out of a tag's text."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, Any]] = []
        for match in _TOKENS.finditer(text.rstrip()):
            name, number, single, double, sign, odd = match.groups()
            if odd is not None:
                raise Unfilled(odd)
            if name is not None:
                self._tokens.append(("name", name))
            elif number is not None:
                self._tokens.append(("literal", int(number)))
            elif sign is not None:
                self._tokens.append((sign, sign))
            else:
                self._tokens.append(("literal", single if single is not None else double))
        self._at = 0

    def _peek(self, ahead: int = 0) -> tuple[str, Any]:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ("end", None)

    def _take(self, kind: str, word: str = "") -> Any:
        token, value = self._peek()
        if token != kind or (word and value != word):
            raise Unfilled(str(value))
        self._at += 1
        return value

    def _is(self, word: str) -> bool:
        return self._peek() == ("name", word)

    def targets(self) -> list[str]:
        """The names of a loop, up to its `in`."""
        names = [self._name()]
        while self._peek()[0] == ",":
            self._at += 1
            names.append(self._name())
        self._take("name", "in")
        return names

    def whole(self, *, conditional: bool = True) -> Value:
        value = self._conditional() if conditional else self._compared()
        self._take("end")
        return value

    def _name(self) -> str:
        name = str(self._take("name"))
        if name in _WORDS or name in _GLOBALS:
            raise Unfilled(name)
        return name

    def _conditional(self) -> Value:
        value = self._compared()
        if not self._is("if"):
            return value
        self._at += 1
        condition = self._compared()
        self._take("name", "else")
        otherwise = self._conditional()
        return lambda names: value(names) if condition(names) else otherwise(names)

    def _compared(self) -> Value:
        left = self._piped()
        if self._peek()[0] != "==":
            return left
        self._at += 1
        right = self._piped()
        if self._peek()[0] == "==":
            raise Unfilled("a chain of comparisons")
        return lambda names: left(names) == right(names)

    def _piped(self) -> Value:
        value = self._followed()
        while self._peek()[0] == "|":
            self._at += 1
            self._take("name", "capitalize")
            value = _capitalized(value)
        return value

    def _followed(self) -> Value:
        value = self._atom()
        while self._peek()[0] in (".", "[", "("):
            sign = self._peek()[0]
            self._at += 1
            if sign == ".":
                value = _field(value, str(self._take("name")))
            elif sign == "[":
                value = _item(value, self._take("literal"))
                self._take("]")
            else:
                self._take(")")
                value = _called(value)
        return value

    def _atom(self) -> Value:
        kind, literal = self._peek()
        if kind == "literal":
            self._at += 1
            return lambda names: literal
        if kind == "(":
            return self._tuple()
        if self._is("loop"):
            return self._of_loop()
        name = self._name()
        return lambda names: names[name]

    def _of_loop(self) -> Value:
        """`loop.first` or `loop.last`, which nothing may follow: the rest of what Jinja knows of a loop is not here."""
        self._take("name", "loop")
        self._take(".")
        field = str(self._take("name"))
        if field not in ("first", "last"):
            raise Unfilled(f"loop.{field}")
        return lambda names: names["loop"][field]

    def _tuple(self) -> Value:
        self._take("(")
        values = [self._conditional()]
        plain = True
        while self._peek()[0] == ",":
            plain = False
            self._at += 1
            if self._peek()[0] == ")":
                break
            values.append(self._conditional())
        self._take(")")
        return values[0] if plain else lambda names: tuple(value(names) for value in values)


def _capitalized(value: Value) -> Value:
    return lambda names: str(value(names)).capitalize()


def _called(value: Value) -> Value:
    return lambda names: value(names)()


def _field(value: Value, name: str) -> Value:
    """As Jinja reads `a.b`: the attribute, else the item of that name."""

    def read(names: Mapping[str, Any]) -> Any:
        owner = value(names)
        try:
            return getattr(owner, name)
        except AttributeError:
            return owner[name]

    return read


def _item(value: Value, key: Any) -> Value:
    return lambda names: value(names)[key]
