"""Several commands as one, for toolchains that take more than one step.

`steps.py A ... --else X ... --beside B ... --then C ...`: A and B run at once, X in place of A when that fails, C when
both have ended well.  Run as a script by itself, so it must not import the package: a start costs a hundredth of
a second.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

THEN, BESIDE, ELSE = "--then", "--beside", "--else"


def joined(groups: Sequence[Sequence[Sequence[str]]]) -> list[str]:
    """The one command line that runs these groups in order, each group at once, and stops at the first that fails."""
    words = [sys.executable, "-I", "-S", str(Path(__file__).resolve())]
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
    return code if code >= 0 else 128 - code  # as a shell tells a signal


def _start(command: Sequence[str], held: bool) -> subprocess.Popen[bytes]:
    output = subprocess.PIPE if held else None
    return subprocess.Popen(command, stdout=output, stderr=output and subprocess.STDOUT)


def _run_group(commands: Sequence[Sequence[str]]) -> int:
    """Run all at once; the messages of the later ones wait, so that compilers do not talk into each other's lines.

    Those of a command that another may take the place of wait too: they are nobody's if it fails.
    """
    children: list[tuple[subprocess.Popen[bytes], list[list[str]]]] = []
    code = 0
    for words in commands:
        command, *others = _split(words, ELSE)
        try:
            children.append((_start(command, held=bool(children or others)), others))
        except OSError as error:
            sys.stderr.write(f"{command[0]}: error: {error.strerror}\n")
            code = 127
            break
    for child, others in children:
        messages, _ = child.communicate()
        while child.returncode and others:
            child = _start(others.pop(0), held=True)
            messages, _ = child.communicate()
        if messages:
            sys.stderr.buffer.write(messages)
            sys.stderr.flush()
        code = code or _exit_code(child.returncode)
    return code


def run(words: Sequence[str]) -> int:
    for group in _split(words, THEN):
        code = _run_group(list(_split(group, BESIDE)))
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
