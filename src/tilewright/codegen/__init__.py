"""From a request to source files: collect specs, filter them, render and write what changed."""

from tilewright.codegen.collect import Rejection, Selection, collect, demand_some, split_legal
from tilewright.codegen.emit import MANIFEST, Report, generate
from tilewright.codegen.filter import Filter

__all__ = [
    "MANIFEST",
    "Filter",
    "Rejection",
    "Report",
    "Selection",
    "collect",
    "demand_some",
    "generate",
    "split_legal",
]
