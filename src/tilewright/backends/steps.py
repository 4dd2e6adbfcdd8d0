"""Several commands as one, for toolchains that take more than one step: `steps.py A ... --then B ...`.

Run as a script by itself, so it must not import the package: a start costs a hundredth of a second.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

THEN = "--then"


def joined(commands: Sequence[Sequence[str]]) -> list[str]:
    """The one command line that runs these in order and stops at the first that fails."""
    words = [sys.executable, "-I", "-S", str(Path(__file__).resolve())]
    for number, command in enumerate(commands):
        words += [THEN, *command] if number else command
    return words


def run(words: Sequence[str]) -> int:
    rest = list(words)
    while rest:
        end = rest.index(THEN) if THEN in rest else len(rest)
        command, rest = rest[:end], rest[end + 1 :]
        try:
            code = subprocess.run(command, check=False).returncode
        except OSError as error:
            sys.stderr.write(f"{command[0]}: error: {error.strerror}\n")
            return 127
        if code:
            return code if code > 0 else 128 - code  # as a shell tells a signal
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
