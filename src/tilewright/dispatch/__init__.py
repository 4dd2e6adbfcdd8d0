"""Problem in, kernel out: registry, selection, records and measurement."""

from tilewright.dispatch.records import Record, Records
from tilewright.dispatch.registry import Registry, default_registry, resolve_target
from tilewright.dispatch.selection import Candidate, Explanation, Selection

__all__ = [
    "Candidate",
    "Explanation",
    "Record",
    "Records",
    "Registry",
    "Selection",
    "default_registry",
    "resolve_target",
]
