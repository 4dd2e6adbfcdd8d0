"""Element types as people name them: fp8 and bf8 mean the encoding that an arch multiplies."""

from __future__ import annotations

from tilewright.arch import Arch

# The short names, each for two encodings: OCP's, and FNUZ on the archs that multiply that one.
SHORT = {"fp8": "fp8_e4m3", "bf8": "fp8_e5m2"}


def element_type(name: str, arch: Arch) -> str:
    """The element type that a name means on an arch; one that is no short name is what it says."""
    meant = SHORT.get(name)
    if meant is None:
        return name
    return f"{meant}fnuz" if "fp8-fnuz" in arch.features else meant


def element_types(text: str, arch: Arch) -> str:
    """The same for `a:b`, where two operands have different types."""
    return ":".join(element_type(name, arch) for name in text.split(":"))
