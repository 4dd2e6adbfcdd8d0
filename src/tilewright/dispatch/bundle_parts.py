"""What bundles in force say beside their kernels: lock files and measurements.

A record counts on a device with the fingerprint of the one it was made on, as everywhere; on others the models that the
bundle brings, or estimates, choose among its kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from tilewright.build import bundled
from tilewright.build.bundled import Bundle

_Key = tuple[str, str, str]  # op, digest of the problem, target


def lock() -> str:
    """The lock file of a bundle in force, as a path that people can follow; empty where there is none."""
    for bundle in bundled.in_force():
        for row in bundle.file.manifest.get("locks", []):
            return f"{bundle.path}/{row['file']}"
    return ""


def lock_text(path: str) -> bytes | None:
    """The text of such a path; None of any other."""
    for bundle in bundled.in_force():
        for row in bundle.file.manifest.get("locks", []):
            if path == f"{bundle.path}/{row['file']}":
                return bundle.file.read(row["file"])
    return None


def has_records() -> bool:
    bundles = bundled.in_force()
    return bool(bundles) and any(bundle.file.manifest.get("records") for bundle in bundles)


def records(op: str, digest: str, target: str) -> Sequence[Mapping[str, Any]]:
    """The records of a problem, as data; of the first bundle that has some."""
    return next((rows for bundle in bundled.in_force() if (rows := _records(bundle).get((op, digest, target)))), ())


@lru_cache(maxsize=8)
def _records(bundle: Bundle) -> dict[_Key, list[Mapping[str, Any]]]:
    from tilewright.dispatch.results import problem_digest

    by_problem: dict[_Key, list[Mapping[str, Any]]] = {}
    for row in bundle.file.manifest.get("records", []):
        listed = bundle.file.json(row["file"])
        if not isinstance(listed, list):
            raise bundle.file.error(f"{row['file']} lists no measurements", "bundle-content")
        for record in listed:
            if isinstance(record, dict) and isinstance(record.get("problem"), dict):
                key = (
                    str(record.get("op")),
                    problem_digest(str(record.get("op")), record["problem"]),
                    str(record.get("target")),
                )
                by_problem.setdefault(key, []).append(record)
    return by_problem
