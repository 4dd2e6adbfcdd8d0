"""From a request to source files: collect specs, filter them, render and write what changed."""

from tilewright.codegen.collect import Correction, Rejection, SpecSet, Tally, collect, demand_some, split_legal, tally
from tilewright.codegen.filter import Filter
from tilewright.codegen.generation import Report, generate
from tilewright.codegen.manifest import MANIFEST

__all__ = [
    "MANIFEST",
    "Correction",
    "Filter",
    "Rejection",
    "Report",
    "SpecSet",
    "Tally",
    "collect",
    "demand_some",
    "generate",
    "split_legal",
    "tally",
]
