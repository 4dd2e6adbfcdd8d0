"""The file the suite writes and docs/reports/amd.md is made from: one record a kernel, kept over runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any


def emulator_version(checkout: Path) -> str:
    """The checkout's own version, its commit where it is a clone, and the digest of its emulator."""
    text = (checkout / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version\s*=\s*"([^"]+)"', text, re.MULTILINE)
    digest = hashlib.sha256((checkout / "test/mockgpu/amd/emu.py").read_bytes()).hexdigest()[:12]
    words = [f"tinygrad {version[1] if version else 'of unknown version'}", f"emu.py {digest}"]
    if (checkout / ".git").exists():
        done = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        )
        words.insert(1, f"commit {done.stdout.strip()[:12]}" if done.returncode == 0 else "no commit")
    return ", ".join(words)


class Results:
    def __init__(self, path: Path, checkout: Path) -> None:
        self.path = path
        self.emulator = emulator_version(checkout)

    def put(self, label: str, record: dict[str, Any]) -> None:
        """Write or replace the record of one kernel."""
        held = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        held[label] = {"emulator": self.emulator, **record}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        part.replace(self.path)
