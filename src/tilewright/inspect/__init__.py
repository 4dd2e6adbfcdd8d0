"""What is inside a built kernel: registers, memory, occupancy, code size and the instructions that matter.

This package reads files and knows no backend; a backend's `inspect` calls it for the kind of code it
makes and adds what the spec promises.
"""

from tilewright.inspect.report import (
    Function,
    Inspection,
    Instructions,
    Occupancy,
    Resources,
    demand_promises,
    demand_waits,
)

__all__ = ["Function", "Inspection", "Instructions", "Occupancy", "Resources", "demand_promises", "demand_waits"]
