"""What executing AMD kernels needs, and what of it is missing here.

`python -m tests.amd_emulated.needs` says so and ends with 1; with everything at hand it says nothing.  With
`--checkout` it looks at the checkout only: the toolchain, which brings clang, may not be installed yet.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

CHECKOUT = "TINYGRAD_CHECKOUT"


def missing(*, clang: bool = True) -> str:
    """Empty where the emulator can run; kernels need a compiler too."""
    given = os.environ.get(CHECKOUT, "")
    if not given:
        return f"set {CHECKOUT} to a tinygrad checkout (see docs/reports/amd.md)"
    if clang and shutil.which("clang") is None:
        return "the emulator needs clang on the path"
    return ""


def wrong() -> str:
    """Empty where the checkout, if one is named, is one."""
    given = os.environ.get(CHECKOUT, "")
    if given and not (checkout() / "test" / "mockgpu" / "amd" / "emu.py").is_file():
        return f"{CHECKOUT}={given} is no tinygrad checkout with an AMD emulator"
    return ""


def checkout() -> Path:
    return Path(os.environ[CHECKOUT]).expanduser().resolve()


if __name__ == "__main__":
    reason = missing(clang="--checkout" not in sys.argv) or wrong()
    if reason:
        sys.exit(f"AMD kernels are not executed, and nothing was changed: {reason}")
