"""What the CUDA families of convolution share: what a template is filled with, and running in copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda.arch_facts import arch_facts
from tilewright.backends.cuda.conv.copies import IN_PLACE, Needs, copies_text
from tilewright.backends.families import Family
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.family import ConvFamily
from tilewright.ops.conv.problem import ConvProblem

COMPILE_MEMORY = 600 << 20
MEASURED = (9, 0)  # the compute capability whose kernels were measured

Fields = Mapping[str, object]  # of a Config, each as C++ writes it


def flag(on: bool) -> str:
    return "true" if on else "false"


def sizes(value: tuple[int, ...]) -> str:
    """128x64x32, as names and messages say it."""
    return "x".join(map(str, value))


def tile_numbers(tile: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("tile_m", "tile_n", "tile_k"), tile, strict=True))


def named(schedule: Any, *names: str) -> dict[str, int]:
    """Fields of a schedule that are numbers or switches."""
    return {name: int(getattr(schedule, name)) for name in names}


def most_processors(arch: str) -> int:
    """Multiprocessors that a device of the arch has at most."""
    facts = arch_by_name(arch)
    return max(facts.most_compute_units, facts.compute_units)


def needs_features(arch: Arch, name: str, *features: str) -> Iterator[Violation]:
    if not set(features) <= arch.features:
        names = " and ".join("TMA" if feature == "tma" else feature for feature in features)
        yield Violation("nv-arch", f"{name} needs {names}, which {arch.name} does not have", "use target sm_90a")


class CudaConvFamily(Family, ConvFamily):
    """A family of convolution kernels on NVIDIA GPUs: all are filled into one template.

    Its folder of headers has kernel.h, the device's half with a macro that names its functions, and host.h, the
    host's half with a struct (cuda/conv/conv.h says what it has).  Around most of them copies can be made
    (cuda/conv/padded/host.h): by a pipeline of its own.
    """

    template = ("tilewright.backends.cuda.conv", "conv.cu.jinja")
    host: ClassVar[str]  # the struct of the host's half
    beside: ClassVar[tuple[str, ...]] = ()  # what the names of its other device functions end in
    copies: ClassVar[Mapping[str, int]] = {}  # pipelines that run in copies, and in which (`Copies` of copies_limits.h)

    def config(self, spec: KernelSpec) -> Fields:
        """What both halves of the kernel read of its schedule."""
        return {}

    def copies_of(self, schedule: Any) -> int:
        return self.copies.get(schedule.pipeline, IN_PLACE)

    def needs(self, schedule: Any) -> Needs:
        """What it asks of operands that copies are made of."""
        return Needs()

    def device(self) -> tuple[str, str]:
        """The header of the device's half, and the macro in it that names its functions."""
        return f"conv/{self.name}/kernel.h", f"TW_DEVICE_CONV_{self.name.upper()}"

    def host_header(self) -> str:
        return f"conv/{self.name}/host.h"

    def functions_beside(self, schedule: Any) -> tuple[str, ...]:
        return (*self.beside, "_pad") if self.copies_of(schedule) else self.beside

    def limit_numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        """The numbers of the kernel's own check, by the place of each in `Schedule`."""
        return self.numbers(spec)

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        header, device = self.device()
        return {
            "family": self.name, "device_header": header, "device": device, "host_header": self.host_header(),
            "host": self.host, "config": self.config(spec), "copies": self.copies_of(spec.schedule),
            "beside": self.functions_beside(spec.schedule), "limits": self.limit_numbers(spec),
            "arch": arch_facts(spec.arch),
        }  # fmt: skip

    def remarks(self, schedule: Any, problem: ConvProblem) -> list[str]:
        """Which copies a kernel makes."""
        if not self.copies_of(schedule) or problem.batch == 0:
            return []
        return [f"{copies_text(problem, self.needs(schedule))}; {self.name} runs on them"]

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY
