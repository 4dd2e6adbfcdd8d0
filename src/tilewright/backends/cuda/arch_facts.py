"""What the Config of a kernel says of its arch, each as C++ writes it: `Config::Arch` of the headers."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import arch as arch_by_name


def arch_facts(name: str) -> Mapping[str, object]:
    from tilewright.backends.cuda.gemm import estimate_parts as parts  # whose package asks here: conv may come first

    facts = arch_by_name(name)
    return {
        "processors": facts.compute_units,
        "most_processors": max(facts.most_compute_units, facts.compute_units),
        "shared_bytes": facts.scratch_bytes,
        **parts.constants(name)._asdict(),
    }
