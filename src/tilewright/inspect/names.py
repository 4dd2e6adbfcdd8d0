"""Names of functions as their authors wrote them, from the symbols compilers make of them (Itanium C++ ABI).

Small, and enough for kernels: namespaces, templates of types and constants, substitutions.  Return types and parameters
are left out, since a kernel is known by its name.  A symbol that needs more than this is shown as it is.
"""

from __future__ import annotations

from functools import lru_cache

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double",
    "e": "long double", "g": "__float128", "z": "...",
}  # fmt: skip
_WIDER = {"DF16_": "_Float16", "DF16b": "std::bfloat16_t", "Dh": "half", "Dn": "std::nullptr_t", "Du": "char8_t",
          "Ds": "char16_t", "Di": "char32_t"}  # fmt: skip
_STANDARD = {"St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string", "Si": "std::istream",
             "So": "std::ostream", "Sd": "std::iostream"}  # fmt: skip
_BEHIND = {"P": "*", "R": "&", "O": "&&", "K": " const", "V": " volatile"}
_SUFFIXES = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}
_OPERATORS = {"cl": "operator()", "ix": "operator[]", "aS": "operator=", "pl": "operator+", "mi": "operator-"}
_DEEPEST = 100


class _Unknown(Exception):
    """Something this reader does not know."""


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._known: list[str] = []  # what S_, S0_, S1_ ... stand for

    def _next(self, *words: str) -> str:
        """The first of the words that stands here, taken; empty where none does."""
        for word in words:
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return word
        return ""

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _digits(self) -> str:
        start = self._at
        while self._peek().isascii() and self._peek().isdigit():
            self._at += 1
        return self._text[start : self._at]

    def _remember(self, text: str) -> str:
        self._known.append(text)
        return text

    def function(self) -> str:
        """The name a symbol begins with, after `_Z`."""
        if self._peek() == "N":
            return self._nested(of_type=False)
        self._next("L")  # of this file alone
        name = ("std::" if self._next("St") else "") + self._source_name()
        if self._peek() == "I":
            self._remember(name)
            name += self._arguments()
        return name

    def _source_name(self) -> str:
        length = self._digits()
        if not length or len(length) > 5:
            raise _Unknown
        name = self._text[self._at : self._at + int(length)]
        if len(name) != int(length):
            raise _Unknown
        self._at += len(name)
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N") else name

    def _substitution(self) -> str | None:
        """What an S stands for; None where it is no substitution."""
        code = self._next(*_STANDARD)
        if code:
            return _STANDARD[code]
        if not self._next("S"):
            return None
        start = self._at
        while self._peek().isascii() and self._peek().isalnum():
            self._at += 1
        number = self._text[start : self._at]
        if not self._next("_"):
            raise _Unknown
        try:
            return self._known[int(number, 36) + 1 if number else 0]
        except (ValueError, IndexError):
            raise _Unknown from None

    def _nested(self, *, of_type: bool) -> str:
        self._next("N")
        while self._next("K", "V", "R", "O"):  # of the function, not of its name
            pass
        whole, last, new = "", "", False  # the name so far, its last part, and whether it may be referred to
        while not self._next("E"):
            if new:
                self._remember(whole)
            new = True
            if self._peek() == "S" and not whole:
                whole, new = self._substitution() or "", False
            elif self._peek() == "I" and whole:
                whole += self._arguments()
            else:
                self._next("L")
                last = self._unqualified(last)
                whole += ("::" if whole else "") + last
        if not whole:
            raise _Unknown
        return self._remember(whole) if of_type and new else whole

    def _unqualified(self, owner: str) -> str:
        operator = self._next(*_OPERATORS)
        if operator:
            return _OPERATORS[operator]
        if owner and self._next("C1", "C2", "C3"):
            return owner
        if owner and self._next("D0", "D1", "D2"):
            return f"~{owner}"
        return self._source_name()

    def _arguments(self) -> str:
        if not self._next("I", "J"):
            raise _Unknown
        arguments = []
        while not self._next("E"):
            arguments.append(self._arguments()[1:-1] if self._peek() == "J" else self._argument())
        return f"<{', '.join(argument for argument in arguments if argument)}>"

    def _argument(self) -> str:
        if not self._next("L"):
            return self._type()
        if self._peek() == "_":
            raise _Unknown  # the address of something
        kind = self._peek()
        name = self._type()
        sign = "-" if self._next("n") else ""
        value = self._digits()
        if not value or not self._next("E"):
            raise _Unknown
        if kind == "b":
            return {"0": "false", "1": "true"}.get(value, value)
        return f"{sign}{value}{_SUFFIXES[kind]}" if kind in _SUFFIXES else f"({name}){sign}{value}"

    def _type(self) -> str:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unknown
        try:
            return self._one_type()
        finally:
            self._depth -= 1

    def _one_type(self) -> str:
        code = self._next(*_WIDER)
        if code:
            return _WIDER[code]
        code = self._next(*_BUILTIN)
        if code:
            return _BUILTIN[code]
        behind = self._next(*_BEHIND)
        if behind:
            return self._remember(self._type() + _BEHIND[behind])
        if self._next("A"):
            count = self._digits()
            if not self._next("_"):
                raise _Unknown
            return self._remember(f"{self._type()} [{count}]")
        if self._next("Dv"):
            count = self._digits()
            if not self._next("_"):
                raise _Unknown
            return self._remember(f"{self._type()} __vector({count})")
        if self._next("u"):
            return self._remember(self._source_name())
        if self._peek() == "N":
            return self._nested(of_type=True)
        return self._named_type()

    def _named_type(self) -> str:
        """A name of no namespace, or of std, or one that was there before; with arguments of a template."""
        name = self._substitution()
        if name == "std":
            name = self._remember(f"std::{self._source_name()}")
        elif name is None:
            name = self._remember(self._source_name())
        return self._remember(name + self._arguments()) if self._peek() == "I" else name


@lru_cache(maxsize=1024)
def readable(symbol: str) -> str:
    """A symbol's name without parameters; the symbol itself where it has no such form."""
    mangled, dot, clone = symbol.partition(".")
    if not mangled.startswith("_Z"):
        return symbol
    inside = mangled.startswith("_ZZ")  # something in a function
    if inside and "Ul" not in mangled:
        return symbol
    try:
        name = _Reader(mangled[3 if inside else 2 :]).function() + ("::{lambda}" if inside else "")
    except (_Unknown, RecursionError):
        return symbol
    return f"{name} [{dot}{clone}]" if clone else name
