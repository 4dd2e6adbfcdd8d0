"""Problem in, kernel out: registry, selection, records and measurement."""

from tilewright.dispatch.records import Record, Records
from tilewright.dispatch.registry import Registry, default_registry
from tilewright.dispatch.selection import Candidate, Explanation, Selection, StagedSelection

__all__ = [
    "Candidate",
    "Explanation",
    "Record",
    "Records",
    "Registry",
    "Selection",
    "StagedSelection",
    "default_registry",
]
