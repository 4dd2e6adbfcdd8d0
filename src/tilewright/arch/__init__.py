"""Arch facts: one JSON file, one loader with a schema, and detection of what this machine has."""

from tilewright.arch.facts import Arch, all_archs, arch, archs_of, families, fit_source, fitted, parse_archs
from tilewright.arch.host import HostFacts, best_host_arch, host_facts, runnable_host_archs
from tilewright.arch.rates import Rates

__all__ = [
    "Arch",
    "HostFacts",
    "Rates",
    "all_archs",
    "arch",
    "archs_of",
    "best_host_arch",
    "families",
    "fit_source",
    "fitted",
    "host_facts",
    "parse_archs",
    "runnable_host_archs",
]
