"""NVRTC as a program: `nvrtc.py LIBRARY SOURCE CUBIN OPTION...`, or `nvrtc.py LIBRARY` to say its version.

Run as a script by itself, so it must not import the package: a start costs a hundredth of a second.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Refused(Exception):
    """What NVRTC said against a call."""


def _load(path: str) -> Any:
    # It looks for this one by name only, and so finds what is loaded already but not what is in the same folder.
    for beside in Path(path).resolve().parent.glob("libnvrtc-builtins.so*"):
        ctypes.CDLL(str(beside), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(path)
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


class Program:
    """One source in NVRTC's hands."""

    def __init__(self, library: Any, text: bytes, name: str) -> None:
        self._library, self._handle = library, ctypes.c_void_p()
        self._call("CreateProgram", text, name.encode(), 0, None, None, first=(ctypes.byref(self._handle),))

    def _call(self, name: str, *arguments: Any, first: tuple[Any, ...] = ()) -> None:
        status = getattr(self._library, f"nvrtc{name}")(*(first or (self._handle,)), *arguments)
        if status:
            raise Refused(f"nvrtc{name}: {self._library.nvrtcGetErrorString(status).decode()}")

    def _text(self, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", text)
        return text.raw

    def compile(self, options: Sequence[str]) -> str:
        """The log; a source that does not compile is refused with it."""
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        try:
            self._call("CompileProgram", len(options), words)
        except Refused as error:
            raise Refused(f"{self.log()}\n{error}".strip()) from None
        return self.log()

    def log(self) -> str:
        return self._text("ProgramLog").rstrip(b"\0").decode("utf-8", "replace").strip()

    def cubin(self) -> bytes:
        return self._text("CUBIN")

    def ptx(self) -> str:
        return self._text("PTX").rstrip(b"\0").decode("utf-8", "replace")


def version(library: Any) -> str:
    """The lines about the compiler that head all PTX it writes: more exact than what it answers when asked."""
    program = Program(library, b"", "nothing.cu")
    program.compile(["--gpu-architecture=compute_80"])
    comments = [line.lstrip("/ ") for line in program.ptx().splitlines() if line.startswith("// ")]
    return "\n".join(line for line in comments if "Compiler" in line or "release" in line)


def main(words: Sequence[str]) -> int:
    try:
        library = _load(words[0])
        if len(words) == 1:
            sys.stdout.write(version(library) + "\n")
            return 0
        source, output, *options = words[1:]
        program = Program(library, Path(source).read_bytes(), source)
        log = program.compile(options)
        if log:
            sys.stderr.write(log + "\n")
        Path(output).write_bytes(program.cubin())
    except (OSError, AttributeError, Refused) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
