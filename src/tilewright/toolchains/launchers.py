"""Small scripts that run the unpacked compilers in place.

The unpacked binaries may be built for a newer C library than this machine's, so each is started by
the loader that came with it.  The loader hides the binary's place from clang, which is why clang is
given everything it would otherwise find by looking around: `-no-canonical-prefixes` makes it take
the script's folder for its own, and so find the other scripts.  Scripts find the toolchain beside
themselves: the folder can be moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_HEAD = """#!/bin/sh
# Written by `tilewright toolchain install`; runs a binary of ../root with the loader and libraries it came with.
here=${0%/*}
case $here in "$0") here=.;; esac
root=$here/../root
llvm=$root/usr/lib/llvm-@LLVM@
"""

_RUN = """exec "$root/lib64/ld-linux-x86-64.so.2" --argv0 "$0" \\
    --library-path "$root/usr/lib/x86_64-linux-gnu:$llvm/lib" "$llvm/bin/@TOOL@" "$@"
"""

_CLANG = """case $1 in
-cc1*) ;;
*) set -- -no-canonical-prefixes -resource-dir "$llvm/lib/clang/@LLVM@" --sysroot="$here/../sysroot" \\
       --gcc-install-dir="$here/../sysroot/usr/lib/gcc/x86_64-linux-gnu/@GCC@" \\
       --rocm-path="$root/usr" --rocm-device-lib-path="$llvm/lib/clang/@LLVM@/amdgcn/bitcode" \\
       --hip-version=@HIP@ -L"$root/usr/lib/x86_64-linux-gnu" -fuse-ld=lld -Wno-unused-command-line-argument "$@";;
esac
"""

# What the hipcc of a ROCm installation adds to clang: sources are HIP whatever their name ends in,
# and a link gets the HIP runtime.
_HIPCC = """#!/bin/sh
# Written by `tilewright toolchain install`: clang++ as a HIP compiler.
here=${0%/*}
case $here in "$0") here=.;; esac
case " $* " in *" -x "*) exec "$here/clang++" --hip-link "$@";; esac
left=$#
before=
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case $before in
    -o|-I|-include|-isystem|-MF|-MT|-MQ|-D|-Xclang|-mllvm|-L) set -- "$@" "$word";;
    *)
        case $word in
        *.cpp|*.cc|*.cxx|*.c++|*.C|*.cu|*.hip) set -- "$@" -x hip "$word" -x none;;
        *) set -- "$@" "$word";;
        esac;;
    esac
    before=$word
done
exec "$here/clang++" --hip-link "$@"
"""


def write_launchers(folder: Path, tools: Sequence[str], llvm: str, gcc: str, hip: str) -> None:
    """One script for each tool, and `hipcc`, in `folder` (the unpacked packages are in ../root)."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"@LLVM@": llvm, "@GCC@": gcc, "@HIP@": hip}
    for tool in tools:
        middle = _CLANG if tool in ("clang", "clang++") else ""
        text = _HEAD + middle + _RUN.replace("@TOOL@", tool)
        for mark, value in values.items():
            text = text.replace(mark, value)
        _write(folder / tool, text)
    _write(folder / "hipcc", _HIPCC)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
