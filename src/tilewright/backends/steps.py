"""Several commands as one, for toolchains that take more than one step.

`steps.py A ... --else X ... --beside B ... --then C ...`: A and B run at once, X in place of A when that fails, C when
both have ended well.  Run as a script by itself, so it must not import the package, nor `subprocess`, which takes
three times as long as the rest of a start: a first call waits for it.
"""

from __future__ import annotations

import os
import sys
from _signal import SIGPIPE, SIGXFSZ  # type: ignore[import-not-found]  # `signal` makes enumerations of them

TYPE_CHECKING = False  # that of `typing` takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

THEN, BESIDE, ELSE = "--then", "--beside", "--else"


def joined(groups: Sequence[Sequence[Sequence[str]]]) -> list[str]:
    """The one command line that runs these groups in order, each group at once, and stops at the first that fails."""
    words = [sys.executable, "-I", "-S", os.path.realpath(__file__)]
    for group in groups:
        for command in group:
            words += [BESIDE if command is not group[0] else THEN, *command]
    words.remove(THEN)
    return words


def _split(words: Sequence[str], separator: str) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if word == separator:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code  # as a shell reports a signal


class _Child:
    """A command that runs; where its messages are `held`, `ended` has them."""

    def __init__(self, command: Sequence[str], held: bool) -> None:
        self._messages = -1
        actions: list[tuple[int, int, int]] = []
        if held:
            self._messages, theirs = os.pipe()
            actions = [(os.POSIX_SPAWN_DUP2, theirs, 1), (os.POSIX_SPAWN_DUP2, theirs, 2)]
        try:
            # Python ignores these signals, and the commands are not to.
            self._pid = os.posix_spawnp(
                command[0], list(command), os.environ, file_actions=actions, setsigdef=(SIGPIPE, SIGXFSZ)
            )
        except OSError:
            if held:
                os.close(self._messages)
            raise
        finally:
            if held:
                os.close(theirs)

    def ended(self) -> tuple[int, bytes]:
        messages = b""
        if self._messages >= 0:
            with open(self._messages, "rb") as pipe:  # noqa: PTH123  a descriptor
                messages = pipe.read()
        return _exit_code(os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])), messages


def _run_group(commands: Sequence[Sequence[str]]) -> int:
    """Run all at once; the messages of the later ones wait, so that compilers do not talk into each other's lines.

    Those of a command that another may take the place of wait too: they are nobody's if it fails.
    """
    children: list[tuple[_Child, list[list[str]]]] = []
    code = 0
    for words in commands:
        command, *others = _split(words, ELSE)
        try:
            children.append((_Child(command, held=bool(children or others)), others))
        except OSError as error:
            sys.stderr.write(f"{command[0]}: error: {error.strerror}\n")
            code = 127
            break
    for child, others in children:
        own_code, messages = child.ended()
        while own_code and others:
            own_code, messages = _Child(others.pop(0), held=True).ended()
        if messages:
            sys.stderr.buffer.write(messages)
            sys.stderr.flush()
        code = code or own_code
    return code


def run(words: Sequence[str]) -> int:
    for group in _split(words, THEN):
        code = _run_group(list(_split(group, BESIDE)))
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
