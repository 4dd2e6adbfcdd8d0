"""CK Tile's headers of late 2025 for the tests that build with them: python -m tests.late_headers FOLDER fetches them.

They are inside the package amd-aiter, which pip downloads; nothing of it is installed or run.  Where it cannot be had,
this says so, and the tests are skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "amd-aiter==0.1.7.post2.dev18"
INSIDE = "/composable_kernel/include/"
ROOT = Path(__file__).parents[1]
USUAL = ROOT / "build" / "ck_tile_late_2025"


def why_none() -> str:
    """Empty where they are there."""
    if (USUAL / "ck_tile" / "core.hpp").is_file():
        return ""
    return f"there are no CK Tile headers of late 2025 in {USUAL}; `make test-amd` fetches them"


def fetch(folder: Path) -> str:
    """Puts them there; says why not where they cannot be had."""
    with tempfile.TemporaryDirectory() as work:
        command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary", ":all:", "-d", work]
        done = subprocess.run([*command, PACKAGE], capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            return lines[-1] if lines else f"pip ended with {done.returncode}"
        part = Path(work) / "headers"
        with zipfile.ZipFile(next(Path(work).glob("*.whl"))) as wheel:
            for name in wheel.namelist():
                _, found, rest = name.partition(INSIDE)
                if found and rest.startswith("ck_tile/") and rest.endswith(".hpp"):
                    to = part / rest
                    to.parent.mkdir(parents=True, exist_ok=True)
                    to.write_bytes(wheel.read(name))
        if not (part / "ck_tile" / "core.hpp").is_file():
            return f"{PACKAGE} has no {INSIDE}ck_tile"
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(part, folder, dirs_exist_ok=True)
    return ""


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else USUAL
    if not (folder / "ck_tile" / "core.hpp").is_file() and (reason := fetch(folder)):
        print(f"no CK Tile headers of late 2025 here, and their tests are skipped: {reason}")


if __name__ == "__main__":
    main()
