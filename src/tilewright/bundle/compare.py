"""Two bundles beside each other: kernels, libraries, and what changed for problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.build.bundle_file import BundleFile
from tilewright.bundle.coverage import kernels_text, loss_text, tier_text


@dataclass(frozen=True, slots=True)
class Difference:
    """One line: what it is about, and what it is in either bundle (empty where it is not there)."""

    what: str
    name: str
    first: str
    second: str

    def __str__(self) -> str:
        if not self.first:
            return f"+ {self.what:9} {self.name}" + (f": {self.second}" if self.second != "there" else "")
        if not self.second:
            return f"- {self.what:9} {self.name}"
        return f"~ {self.what:9} {self.name}: {self.first} -> {self.second}"


def compare(first: BundleFile, second: BundleFile) -> list[Difference]:
    """What differs, by parts; nothing where the two hold the same."""
    differences: list[Difference] = []
    for what, look in (
        ("format", _heads), ("kernel", _kernels), ("library", _libraries), ("file", _others), ("problem", _problems)
    ):  # fmt: skip
        before, after = look(first.manifest), look(second.manifest)
        differences += [
            Difference(what, name, before.get(name, ""), after.get(name, ""))
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]
    return differences


def _heads(manifest: Mapping[str, Any]) -> dict[str, str]:
    names = ("version", "abi", "created_by", "host")
    return {name: str(manifest[name]) for name in names if name in manifest}


def _kernels(manifest: Mapping[str, Any]) -> dict[str, str]:
    targets = manifest["targets"].items()
    return {
        f"{kernel['name']} ({target})": str(kernel.get("role") or "there")
        for target, part in targets
        for kernel in part["kernels"]
    }


def _libraries(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The bytes of kernels that both have: another compiler makes others of the same spec."""
    kernels = (kernel for part in manifest["targets"].values() for kernel in part["kernels"])
    return {kernel["name"]: f"{kernel['sha256'][:12]} ({kernel.get('compiler', '')})" for kernel in kernels}


def _others(manifest: Mapping[str, Any]) -> dict[str, str]:
    files = manifest["files"].items()
    return {name: facts["sha256"][:12] for name, facts in files if not name.startswith("kernels/")}


def _problems(manifest: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{row.get('text')} on {row.get('target')}, {row.get('threads') or 'any'} threads": (
            f"{tier_text(row)} {loss_text(row)} {kernels_text(row)}"
        )
        for row in manifest.get("coverage", [])
    }
