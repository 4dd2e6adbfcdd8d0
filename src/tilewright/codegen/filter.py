"""A reader for filter expressions such as `c.tile_n >= 128 and c.pipeline == 'packed'`.

The text is parsed by Python's own parser and then evaluated over a short list of allowed nodes;
nothing in it is ever executed.  `c` is the kernel; its attributes are the flat names of
`tilewright.ops.fields`.  Arithmetic is for numbers only, so no expression can build a large
value out of a short text.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tilewright.errors import FilterError, an, nearest
from tilewright.ops import op as op_by_name
from tilewright.ops import op_names
from tilewright.ops.base import KernelSpec
from tilewright.ops.fields import Getter, fields_of, old_names, old_words
from tilewright.renames import warn_renamed

MAX_TEXT = 2000
MAX_NODES = 400
MAX_DEPTH = 40
MAX_NUMBER = 1 << 128

Value = Callable[[KernelSpec], Any]

_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.In: ("in", lambda left, right: left in right),
    ast.NotIn: ("not in", lambda left, right: left not in right),
}
_HELP = (
    "compare attributes of c with and, or, not, <, ==, in, + - * // %: \"c.tile_n >= 128 and c.pipeline == 'packed'\""
)


class Filter:
    """A filter expression, read once; call it with a spec to ask whether the spec passes."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if len(self.text) > MAX_TEXT:
            self._size(f"{len(self.text)} characters, over {MAX_TEXT}")
        self._nodes = 0
        self._attributes: list[ast.Attribute] = []
        self._known: Mapping[str, Getter] = {}
        self._texts: set[str] = set()
        self._words: Mapping[str, str] = {}  # old values of fields, and what they are called now
        self._new_names: dict[str, str] = {}  # of attributes under old names
        self._value = self._read(self._parse().body, 0)

    def __call__(self, spec: KernelSpec) -> bool:
        known = fields_of(spec)
        if known is not self._known:
            self._demand_known(spec.op, known)
            self._known = known
        return bool(self._value(spec))

    def _demand_known(self, op: str, known: Mapping[str, Getter]) -> None:
        """Every name is checked before the first answer: short-circuiting must not hide a mistake."""
        names, self._words = self._renamed(op)
        for node in self._attributes:
            if node.attr not in known and node.attr in names:
                self._new_names[node.attr] = names[node.attr]
                warn_renamed("the filter", f"c.{node.attr}", f"c.{names[node.attr]}", skip=("_demand_known",))
            elif node.attr not in known:
                self._at(
                    node,
                    "filter-name",
                    f"{an(op)} kernel has no attribute {node.attr!r}",
                    nearest(node.attr, sorted(known)),
                )

    def _parse(self) -> ast.Expression:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an odd escape in a text is no concern of the user's console
                return ast.parse(self.text, mode="eval")
        except SyntaxError as error:
            column = error.offset - 1 if error.offset else len(self.text)  # no offset: the text ended too early
            reason = "it is empty" if not self.text else error.msg
            self._fail("filter-syntax", f"cannot read the filter: {reason}", column, error.lineno or 1)
        except (ValueError, RecursionError, MemoryError) as error:
            raise FilterError(
                f"cannot read the filter: {error or 'it is nested too deeply'}",
                rule="filter-syntax",
                value=self.text[:200],
                remedy=_HELP,
            ) from None

    def _fail(self, rule: str, message: str, column: int, line: int = 1, remedy: str = _HELP) -> NoReturn:
        lines = self.text.splitlines() or [""]
        shown = lines[min(line, len(lines)) - 1]
        raise FilterError(
            f"{message}\n    {shown}\n    {' ' * min(column, len(shown))}^", rule=rule, value=self.text, remedy=remedy
        )

    def _at(self, node: ast.expr, rule: str, message: str, remedy: str = _HELP) -> NoReturn:
        # The parser counts bytes, people count characters.
        line = self.text.splitlines()[node.lineno - 1]
        column = len(line.encode()[: node.col_offset].decode(errors="replace"))
        self._fail(rule, message, column, node.lineno, remedy)

    def _size(self, what: str) -> NoReturn:
        raise FilterError(
            f"the filter is too large: {what}",
            rule="filter-size",
            value=self.text[:200],
            remedy="shorten it, or filter the --json output",
        )

    def _read(self, node: ast.expr, depth: int) -> Value:
        """Turn a node into a function of a spec, or say why it is not allowed."""
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            self._size(f"over {MAX_NODES} parts" if depth <= MAX_DEPTH else f"nested over {MAX_DEPTH} levels")
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.BoolOp():
                return _joined(isinstance(node.op, ast.And), [self._read(value, depth + 1) for value in node.values])
            case ast.UnaryOp(op=ast.Not()):
                inner = self._read(node.operand, depth + 1)
                return lambda spec: not inner(spec)
            case ast.UnaryOp(op=ast.USub()):
                return self._negated(node, self._read(node.operand, depth + 1))
            case ast.BinOp():
                return self._arithmetic(node, self._read(node.left, depth + 1), self._read(node.right, depth + 1))
            case ast.Compare():
                return self._comparison(node, depth)
            case ast.Tuple() | ast.List():
                items = [self._read(elt, depth + 1) for elt in node.elts]
                build: type[tuple[Any, ...]] | type[list[Any]] = tuple if isinstance(node, ast.Tuple) else list
                return lambda spec: build(item(spec) for item in items)
            case ast.Name(id="c"):
                self._at(
                    node, "filter-name", "c is the kernel; ask for one of its attributes", "write c.tile_n, c.arch ..."
                )
            case ast.Name():
                self._at(
                    node,
                    "filter-name",
                    f"{node.id} is not known",
                    f"write c.{node.id} for an attribute, {node.id!r} for text",
                )
        self._at(node, "filter-syntax", f"{type(node).__name__} is not allowed in a filter")

    def _constant(self, node: ast.Constant) -> Value:
        value = node.value
        if not (value is None or isinstance(value, (bool, int, float, str))):
            self._at(node, "filter-syntax", f"{an(type(value).__name__)} constant is not allowed in a filter")
        if isinstance(value, (int, float)) and not -MAX_NUMBER <= value <= MAX_NUMBER:
            self._at(node, "filter-size", "the number is too large")
        if isinstance(value, str):
            self._texts.add(value)
            return lambda spec: self._words.get(value, value)
        return lambda spec: value

    def _renamed(self, op: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Old names of fields, and the old values among the filter's texts; an old value that is used is warned of."""
        if op not in op_names():
            return {}, {}
        words = {old: new for old, new in old_words(op_by_name(op)).items() if old in self._texts}
        for old, new in words.items():
            warn_renamed("the filter", repr(old), repr(new), skip=("_renamed", "_demand_known"))
        return old_names(op_by_name(op)), words

    def _attribute(self, node: ast.Attribute) -> Value:
        if not (isinstance(node.value, ast.Name) and node.value.id == "c"):
            self._at(node, "filter-name", "only attributes of c are offered", "write c.tile_n, c.arch ...")
        self._attributes.append(node)
        name = node.attr
        return lambda spec: fields_of(spec)[self._new_names.get(name, name)](spec)

    def _negated(self, node: ast.UnaryOp, inner: Value) -> Value:
        def value(spec: KernelSpec) -> Any:
            operand = inner(spec)
            if operand is None:
                return None
            if not isinstance(operand, (int, float)):
                self._at(node, "filter-type", f"{_shown(operand)} cannot be negated", "negate numbers only")
            return -operand

        return value

    def _arithmetic(self, node: ast.BinOp, left: Value, right: Value) -> Value:
        if type(node.op) not in _ARITHMETIC:
            self._at(node, "filter-syntax", f"the operator {type(node.op).__name__} is not allowed in a filter")
        sign, apply = _ARITHMETIC[type(node.op)]

        def value(spec: KernelSpec) -> Any:
            a, b = left(spec), right(spec)
            if a is None or b is None:
                return None  # the kernel's family has no such field
            for operand in (a, b):
                if not isinstance(operand, (int, float)):
                    self._at(node, "filter-type", f"{_shown(a)} {sign} {_shown(b)}", f"{sign} is for numbers only")
            try:
                result = apply(a, b)
            except ZeroDivisionError:
                self._at(node, "filter-value", f"{a} {sign} {b} divides by zero", "guard it: c.x != 0 and ...")
            except OverflowError:
                self._at(node, "filter-size", f"{_shown(a)} {sign} {_shown(b)} is too large", "use smaller numbers")
            if abs(result) > MAX_NUMBER:
                self._at(node, "filter-size", f"the result of {sign} is too large", "use smaller numbers")
            return result

        return value

    def _comparison(self, node: ast.Compare, depth: int) -> Value:
        for op in node.ops:
            if type(op) not in _COMPARISONS:
                self._at(
                    node, "filter-syntax", f"the comparison {type(op).__name__} is not allowed in a filter", "use =="
                )
        steps = [_COMPARISONS[type(op)] for op in node.ops]
        first = self._read(node.left, depth + 1)
        others = [self._read(comparator, depth + 1) for comparator in node.comparators]

        def value(spec: KernelSpec) -> bool:
            left = first(spec)
            for (sign, test), other in zip(steps, others, strict=True):
                right = other(spec)
                try:
                    holds = test(left, right)
                except TypeError:
                    if left is None or right is None:
                        return False  # the kernel's family has no such field: nothing is so of it
                    self._at(
                        node,
                        "filter-type",
                        f"{_shown(left)} {sign} {_shown(right)} cannot be compared",
                        "compare numbers with numbers and text with text; in needs a tuple, a list or a text",
                    )
                if not holds:
                    return False
                left = right
            return True

        return value


def _joined(every: bool, parts: list[Value]) -> Value:
    """`and` and `or`, short-circuiting, with Python's answer (the deciding operand)."""

    def value(spec: KernelSpec) -> Any:
        answer: Any = every
        for part in parts:
            answer = part(spec)
            if bool(answer) != every:
                break
        return answer

    return value


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text[:60]} ({type(value).__name__})"
