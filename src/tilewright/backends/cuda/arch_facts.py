"""What the Config of a kernel says of its arch, each as C++ writes it: `Config::Arch` of the headers."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda import split_k as parts


def arch_facts(name: str) -> Mapping[str, object]:
    facts = arch_by_name(name)
    return {
        "processors": facts.compute_units,
        "most_processors": max(facts.most_compute_units, facts.compute_units),
        "shared_bytes": facts.scratch_bytes,
        **parts.constants(name)._asdict(),
    }
