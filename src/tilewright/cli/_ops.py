"""Commands made from what an op says of itself: `Op.axes` and `Op.options`.

A group of commands, one an op, is made without loading any of them: an op is loaded when its command is used.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
import typer.core
import typer.main

from tilewright import plugins
from tilewright.cli.common import Summaries, numbers, words
from tilewright.errors import PluginError, TilewrightError
from tilewright.renames import given_twice, warn_renamed

if TYPE_CHECKING:
    from tilewright.ops.base import Op, Option

# A body is called with the op, the values its own data asked for, and what its signature asks for beyond.
Body = Callable[..., None]
Parameters = Callable[["Op"], list[inspect.Parameter]]
_RENAMED = {"--ways": "--split-plans"}  # old flags of commands to new ones; those of ops stand with their options
_OF_OP = "given_"  # before the names that an op brings, which may be those of a command's own parameters


class OpCommand(typer.core.TyperCommand):
    """A command of an op that takes options under their old names too, with a warning; its help does not name them."""

    renamed: Mapping[str, str] = MappingProxyType({})  # old flags to new ones

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        flags = {word.partition("=")[0] for word in args[:end]}
        for old, new in self.renamed.items():
            if old in flags and new in flags:
                raise given_twice(f"{new} is given", old, new)
        return super().parse_args(ctx, [*map(self._with_new_name, args[:end]), *args[end:]])

    def _with_new_name(self, word: str) -> str:
        flag, equals, value = word.partition("=")
        if flag not in self.renamed:
            return word
        warn_renamed(f"tilewright ... {self.name}", flag, self.renamed[flag])
        return f"{self.renamed[flag]}{equals}{value}"


class WordLists(OpCommand):
    """A command whose list options take several words at once: `--variants standard multi_d`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_value = {name for param in self.params if not getattr(param, "is_flag", False) for name in param.opts}
        lists = {name for param in self.params if getattr(param, "multiple", False) for name in param.opts}
        folded: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            folded.append(word)
            if word in takes_value and word.startswith("-") and rest:
                folded.append(rest.pop(0))
                while word in lists and rest and not rest[0].startswith("-"):
                    folded += [word, rest.pop(0)]
        return super().parse_args(ctx, folded)


class Broken(typer.core.TyperCommand):
    """The command of an op that cannot be loaded: listed with the reason, which is the error of every use of it."""

    def __init__(self, name: str, error: PluginError) -> None:
        super().__init__(name, short_help=f"(broken: {error.message})")
        self.error = error

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        raise self.error


def _command(op: Op, make: Callable[[Op], Any]) -> Any:
    """The command of an op; where what a plug-in says of its axes and options makes none, that is its error."""
    try:
        return make(op)
    except TilewrightError:
        raise
    except Exception as error:
        module = type(op).__module__
        message = f"no command can be made of the axes and options of the op {op.name}: {plugins.error_text(error)}"
        raise plugins.fault(module, message, rule="plugin", value=module, remedy=plugins.REMEDY) from error


class _OpCommands(MutableMapping[str, Any]):
    """The commands of a group by the names of ops, each made when it is asked for."""

    def __init__(self, make: Callable[[Op], Any]) -> None:
        self._make = make
        self._command: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        from tilewright import ops

        if name not in self._command:
            if name not in ops.op_names():
                raise KeyError(name)
            try:
                self._command[name] = _command(ops.op(name), self._make)
            except PluginError as error:
                self._command[name] = Broken(name, error)
        return self._command[name]

    def __iter__(self) -> Iterator[str]:
        from tilewright import ops

        return iter(dict.fromkeys([*ops.op_names(), *self._command]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __setitem__(self, name: str, command: Any) -> None:
        self._command[name] = command

    def __delitem__(self, name: str) -> None:
        del self._command[name]


class OpGroup(Summaries):
    """A group with one command an op; an unknown op is our error, which names the nearest."""

    make: Callable[[Op], Any]
    op_of: Callable[[Sequence[str]], str] | None = None  # which op is meant where none is named

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "subcommand_metavar": "OP [OPTIONS]"})
        self.commands = _OpCommands(type(self).make)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The op comes first; where someone put options before it, it is found among them."""
        if args and args[0].startswith("-") and args[0] not in ("--help", "-h"):
            place = next((index for index, word in enumerate(args) if word in self.commands), 0)
            args = [args[place], *args[:place], *args[place + 1 :]]
        guess = type(self).op_of
        if guess is not None and not any(word in self.commands for word in args):
            meant = guess(args)
            args = [meant, *args] if meant else args
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        from tilewright import ops

        if args and args[0] not in self.commands:
            ops.op(args[0])  # which raises
        return super().resolve_command(ctx, args)


def register(
    app: typer.Typer, name: str, help: str, body: Body, parameters: Parameters, *, lists: bool = False,
    op_of: Callable[[Sequence[str]], str] | None = None,
) -> None:  # fmt: skip
    """Add `tilewright NAME OP`: for each op the body, with an option for each parameter that `given` makes of it.

    `op_of` says which op the words of a command mean that name none; empty where they do not say.
    """

    def make(op: Op) -> Any:
        return op_command(op, body, parameters(op), WordLists if lists else OpCommand)

    resolver = staticmethod(op_of) if op_of is not None else None
    group = type("Group", (OpGroup,), {"make": staticmethod(make), "op_of": resolver})
    app.add_typer(typer.Typer(cls=group, no_args_is_help=True, rich_markup_mode=None, help=help), name=name)


def op_command(op: Op, body: Body, op_parameters: Sequence[inspect.Parameter], cls: type[OpCommand]) -> Any:
    """`body(op, values, ...)` as a command; the values are those of `op_parameters`, by name."""
    hints = get_type_hints(body, include_extras=True)
    own = [
        parameter.replace(
            kind=inspect.Parameter.KEYWORD_ONLY, annotation=_yielding(hints[parameter.name], op_parameters)
        )
        for parameter in list(inspect.signature(body).parameters.values())[2:]
    ]
    parameters = [*op_parameters, *own]
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    _demand_distinct(op, parameters)

    def run(**values: Any) -> None:
        brought = {parameter.name.removeprefix(_OF_OP): values.pop(parameter.name) for parameter in op_parameters}
        body(op, brought, **values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    help_text = f"{inspect.cleandoc(body.__doc__ or '')}\n\n{op.name}: {op.summary}."
    app.command(op.name, cls=cls, help=help_text)(run)
    command: Any = typer.main.get_command(app)
    command.name = op.name
    flags = {name for param in command.params for name in param.opts}
    renamed = {flag_of(option, old=True): flag_of(option) for option in op.options if option.old} | _RENAMED
    command.renamed = {old: new for old, new in renamed.items() if new in flags}
    return command


def _declared(option: Any) -> list[str]:
    # In an annotation the first name of an option is where elsewhere its default is.
    first = [option.default] if isinstance(option.default, str) else []
    return [*first, *(option.param_decls or ())]


def _yielding(annotation: Any, op_parameters: Sequence[inspect.Parameter]) -> Any:
    """A command's option without those of its further names that the op uses for one of its own."""
    option = annotation.__metadata__[0]
    brought = {word for parameter in op_parameters for word in _declared(parameter.annotation.__metadata__[0])}
    names = _declared(option)
    if not brought.intersection(names[1:]):
        return annotation
    mine = copy.copy(option)
    mine.param_decls = tuple(name for name in names[1:] if name not in brought)
    return Annotated[annotation.__origin__, mine]


def _demand_distinct(op: Op, parameters: Sequence[inspect.Parameter]) -> None:
    seen: set[str] = set()
    for parameter in parameters:
        declared = _declared(parameter.annotation.__metadata__[0]) or [f"--{parameter.name.replace('_', '-')}"]
        for word in (name for text in declared for name in text.split("/")):
            if word in seen:
                raise plugins.fault(
                    type(op).__module__,
                    f"the op {op.name} brings the option {word}, which the command has already",
                    rule="op-option",
                    value=word,
                    remedy="give the op's option another name",
                )
            seen.add(word)


# -- which kernels: the axes of an op ------------------------------------------------------------------


def axis_parameters(op: Op) -> list[inspect.Parameter]:
    """One option for each axis, under its singular and its own name; several values allowed."""
    parameters = []
    for axis in op.axes:
        names = dict.fromkeys((axis.option, f"--{axis.name.replace('_', '-')}"))
        option = typer.Option(*names, help=f"{axis.help}  Several allowed.", metavar="VALUE", show_default=False)
        parameters.append(_parameter(axis.name, list[str] | None, option, None))
    return parameters


def axis_values(op: Op, options: dict[str, Any]) -> dict[str, Any]:
    """What was given of the axes, each value of its kind; an axis nobody gave is left to the op's default."""
    by_axis: dict[str, tuple[Any, ...]] = {}
    for axis in op.axes:
        values = options[axis.name]
        by_axis[axis.name] = numbers(axis.option, values) if axis.kind is int else words(values)
    return {name: values for name, values in by_axis.items() if values}


# -- which problem: the options of an op ---------------------------------------------------------------


def flag_of(option: Option, *, old: bool = False) -> str:
    return f"--{(option.old if old else option.name).replace('_', '-')}"


def problem_parameters(op: Op) -> list[inspect.Parameter]:
    """One option for each value that describes a problem.

    None is required here: a list of problems may come from a file instead, and `problems.problem_of` says what is
    missing.
    """
    from tilewright.ops.base import REQUIRED

    parameters = []
    for declared in op.options:
        flag = flag_of(declared)
        if declared.kind is bool:
            option = typer.Option(
                flag if declared.default is not True else f"{flag}/--no-{flag[2:]}", help=declared.help
            )
            parameters.append(_parameter(declared.name, bool, option, declared.default is True))
            continue
        usual = (
            "  [required]"
            if declared.default is REQUIRED
            else f"  [default: {declared.default}]"
            if declared.default
            else ""
        )
        option = typer.Option(flag, help=declared.help + usual, show_default=False)
        parameters.append(_parameter(declared.name, declared.kind | None, option, None))
    return parameters


def _parameter(name: str, kind: Any, option: Any, default: Any) -> inspect.Parameter:
    annotation = Annotated[kind, option]
    return inspect.Parameter(_OF_OP + name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
