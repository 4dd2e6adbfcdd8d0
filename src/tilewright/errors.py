"""One error hierarchy with three owners: the request, this machine, and our own bugs.

Every error says which rule spoke, which value broke it, what would work instead and, where it
helps, how to reproduce the failure.  Errors carry their parts as fields so that callers, the
command line and worker processes can use them without reading the text back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class TilewrightError(Exception):
    """Root of all errors raised on purpose."""

    owner = "tilewright"

    def __init__(
        self,
        message: str,
        *,
        rule: str = "",
        value: object = None,
        remedy: str = "",
        reproduce: str = "",
    ) -> None:
        self.message = message
        self.rule = rule
        self.value = value
        self.remedy = remedy
        self.reproduce = reproduce
        super().__init__(message)

    def __str__(self) -> str:
        text = f"[{self.rule}] {self.message}" if self.rule else self.message
        if self.remedy:
            text += f"\n  remedy: {self.remedy}"
        if self.reproduce:
            text += f"\n  reproduce: {self.reproduce}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions.
        return (_rebuild, (type(self), self.__dict__.copy()))


def _rebuild(cls: type[TilewrightError], state: dict[str, Any]) -> TilewrightError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    Exception.__init__(error, state.get("message", ""))
    return error


class RequestError(TilewrightError):
    """What was asked for cannot be done as asked; changing the request helps."""

    owner = "request"


class ArgumentError(RequestError, TypeError):
    """A function was given arguments that exclude each other, as Python's own TypeError says it."""


class ProblemError(RequestError):
    """Shapes, strides, dtypes or arrays of a problem contradict each other."""


class IllegalSpecError(RequestError):
    """A kernel specification breaks a legality rule."""


class UnknownNameError(RequestError):
    """A name (arch, pool, op, dtype, epilogue, kernel ...) is not known."""


class FilterError(RequestError):
    """A --filter expression cannot be read."""


class FileError(RequestError):
    """A file that people write (an arch table, a manifest, a list of problems) cannot be read or used."""


class NoKernelError(RequestError):
    """No registered kernel may serve the problem (strict or frozen mode)."""


class MachineError(TilewrightError):
    """This machine lacks something: a compiler, a device, disk space, permission."""

    owner = "machine"


class ToolchainError(MachineError):
    """A compiler or build tool is missing, broken or was killed."""


class CompileError(MachineError):
    """A compiler rejected a source.  `log_path` holds everything it said."""

    def __init__(self, message: str, *, log_path: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.log_path = log_path


class StoreError(MachineError):
    """The kernel store cannot be read or written."""


class LoadError(MachineError):
    """A built library cannot be trusted or loaded."""


class DeviceError(MachineError):
    """No usable device for a target, or the device reported an error."""


class PluginError(MachineError):
    """A package that brings an op, kernels or a backend is broken; `package` is the name it is installed by."""

    def __init__(self, message: str, *, package: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.package = package


class ModelError(MachineError):
    """A file of learned selection is damaged, or of another version."""


class InspectionError(MachineError):
    """A built code object cannot be read, or is not what its spec promises; `digest` is that of a build it ended."""

    digest: str = ""


class InternalError(TilewrightError):
    """A bug in Tilewright; please report it with the text of this error."""

    owner = "tilewright"


def no_memory(what: str, error: BaseException) -> MachineError:
    """The error for memory that this machine does not have."""
    return MachineError(
        f"there is no memory for {what} ({error!s:.200})",
        rule="memory",
        value=what,
        remedy="take smaller operands, or a machine with more memory",
    )


def shown(value: object, most: int = 60) -> str:
    """A value as an error shows it: short, and some words for what has none of its own."""
    try:
        text = repr(value)
    except Exception:  # whatever a class of the user's own raises, and integers of too many digits
        text = f"{an(type(value).__name__)} that cannot be printed"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def attribute_of(value: object, name: str, default: object = None) -> Any:
    """An attribute of whatever a person gave; the default too where asking for it raises anything."""
    try:
        return getattr(value, name, default)
    except Exception:
        return default


# What is read letter by letter, from a letter whose name begins with a vowel.
_SPELLED = ("fp", "sm_", "nd", "nv", "mma")


def an(word: str) -> str:
    """A word behind its article: a kernel, an op, an fp16, a uint8."""
    sound = word.casefold()
    return f"{'an' if sound.startswith(('a', 'e', 'i', 'o', *_SPELLED)) else 'a'} {word}"


def either(choices: Iterable[object]) -> str:
    """Choices as one reads them, each once: x, x or y; x, y or z."""
    *most, last = dict.fromkeys(map(str, choices))
    return f"{', '.join(most)} or {last}" if most else last


def counted(count: int, noun: str) -> str:
    """A number of things: 1 kernel, 2 kernels, 0 entries."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{count} {noun[:-1]}ies"
    return f"{count} {noun}es" if noun.endswith("s") else f"{count} {noun}s"


def nearest(name: str, known: list[str]) -> str:
    """A remedy sentence for an unknown name: the closest known one, then all of them."""
    import difflib

    # Case does not count: of Relu and Gelu, "gelu" is nearer to the second.
    folded = {word.casefold(): word for word in reversed(known)}
    close = difflib.get_close_matches(str(name).casefold(), list(folded), n=1, cutoff=0.4)
    listing = ", ".join(known)
    return f"did you mean {folded[close[0]]!r}? Known: {listing}" if close else f"known: {listing or 'none yet'}"
