"""The calls of AMD's CK Tile dispatcher (its `ctypes_utils`), over our specs, pools, generator and registry.

    from tilewright.compat.ck import CodegenRunner, KernelConfig, setup_gemm_dispatcher

    config = KernelConfig(tile_m=256, tile_n=128, tile_k=32, pipeline="compv3")
    CodegenRunner().generate_from_config(config)      # a source and a manifest
    setup = setup_gemm_dispatcher(config)             # built, in a registry

Names and defaults are theirs: `wave_*` is our warp grid, `warp_*` our warp tile.  What goes wrong raises our errors;
`validate_kernel_config` and `auto_correct_kernel_config` ask beforehand.  docs/coming-from-ck.md has both side by side.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.codegen import Report, SpecSet, collect, demand_some, generate
from tilewright.codegen.collect import Rejection
from tilewright.dataclass import NamedTuple
from tilewright.dispatch.registry import Registry
from tilewright.errors import RequestError, TilewrightError
from tilewright.ops import op as op_by_name
from tilewright.ops.base import KernelSpec, illegal
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.spec import VARIANTS
from tilewright.ops.neighbours import neighbours

__all__ = [
    "AutoCorrection",
    "CodegenResult",
    "CodegenRunner",
    "Dispatcher",
    "GemmSetupResult",
    "KernelConfig",
    "ValidationResult",
    "auto_correct_kernel_config",
    "setup_gemm_dispatcher",
    "setup_multiple_gemm_dispatchers",
    "validate_kernel_config",
]

OP = "gemm"
_AXES = ("m", "n", "k")
_LETTERS = {"row": "r", "col": "c"}
_OUTPUTS = {"fp8": "fp16", "bf8": "fp16", "int8": "int32"}  # where it is not that of the inputs


def _print_lines(lines: Iterable[str]) -> None:
    """Their calls print; ours say it where standard output goes now."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


@dataclass(slots=True)
class KernelConfig:
    """One kernel, by their names.  An empty dtype follows from `dtype_a`."""

    dtype_a: str = "fp16"
    dtype_b: str = ""
    dtype_c: str = ""
    dtype_acc: str = ""
    layout_a: str = "row"
    layout_b: str = "col"
    layout_c: str = "row"
    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 32
    wave_m: int = 2
    wave_n: int = 2
    wave_k: int = 1
    warp_m: int = 32
    warp_n: int = 32
    warp_k: int = 16
    pipeline: str = "compv4"
    scheduler: str = "intrawave"
    epilogue: str = "cshuffle"
    pad_m: bool = True
    pad_n: bool = True
    pad_k: bool = True
    persistent: bool = False
    variant: str = "standard"
    elementwise_op: str = "PassThrough"
    num_d_tensors: int = 0
    vector_size_c: int = 0  # elements of one store; 0 is as many as a lane can
    split_k: int = 1  # theirs is an argument of the call (k_batch)
    block_size: int = 256  # follows from the waves, there too
    gfx_arch: str = "gfx942"

    @property
    def layout(self) -> str:
        """rcr, as they and we write it."""
        layouts = (self.layout_a, self.layout_b, self.layout_c)
        for layout in layouts:
            if layout not in _LETTERS and layout not in _LETTERS.values():
                raise RequestError(
                    f"layout {layout!r} is not known", rule="layout-name", value=layout, remedy="use row or col"
                )
        return "".join(_LETTERS.get(layout, layout) for layout in layouts)

    @property
    def tile_str(self) -> str:
        return f"{self.tile_m}x{self.tile_n}x{self.tile_k}"

    @property
    def spec(self) -> KernelSpec:
        """The kernel in our words, legal or not; a name that nobody knows is an error."""
        return _spec_of(self)[0]

    @property
    def name(self) -> str:
        return self.spec.name

    def print_config(self, indent: str = "  ") -> None:
        """A few lines for people."""
        _print_lines(f"{indent}{name}: {value}" for name, value in self._facts().items())

    def _facts(self) -> dict[str, str]:
        shapes = {"Tile": "tile", "Wave": "wave", "Warp": "warp", "Padding": "pad"}
        return {
            "Data types": f"{self.dtype_a} x {self.dtype_b or self.dtype_a} -> {self.dtype_c or self.dtype_a}",
            "Layout": self.layout,
            **{
                name: " x ".join(str(getattr(self, f"{field}_{axis}")) for axis in _AXES)
                for name, field in shapes.items()
            },
            "Pipeline": f"{self.pipeline}/{self.scheduler}/{self.epilogue}",
            "Variant": self.variant,
            "Target": self.gfx_arch,
        }

    def to_json(self) -> dict[str, Any]:
        """As `--config` and `--tile-config-json` take it, theirs and ours."""
        shapes = (("tile", "tile"), ("wave", "warp"), ("warp", "warp_tile"))  # ours in Python, theirs in JSON
        tile = {f"{theirs}_{axis}": getattr(self, f"{mine}_{axis}") for mine, theirs in shapes for axis in _AXES}
        traits = (
            "pipeline",
            "epilogue",
            "scheduler",
            "pad_m",
            "pad_n",
            "pad_k",
            "persistent",
            "vector_size_c",
            "split_k",
        )
        return {
            "tile_config": {name: [value] for name, value in tile.items()},
            "trait_config": {name: [getattr(self, name)] for name in (*traits, "vector_size_c")},
        }

    def corrected(self, spec: KernelSpec) -> KernelConfig:
        """This configuration with the schedule of another kernel of the same signature; what the two share stays."""
        mine, other = _in_their_words(self.spec.schedule), _in_their_words(spec.schedule)
        return replace(self, **{name: value for name, value in other.items() if value != mine[name]})


def _in_their_words(s: CkTileSchedule) -> dict[str, Any]:
    shapes = (("tile", s.tile), ("wave", s.warp_grid), ("warp", s.warp_tile), ("pad", s.pad))
    return {
        **{f"{name}_{axis}": value for name, shape in shapes for axis, value in zip(_AXES, shape, strict=True)},
        "pipeline": "preshufflev2" if s.pipeline == "preshuffle" else s.pipeline,
        "scheduler": s.scheduler,
        "epilogue": "default" if s.store == "direct" else s.store,
        "persistent": s.persistent,
        "split_k": s.split_k,
        "vector_size_c": s.store_width,
    }


def _axes(config: KernelConfig) -> dict[str, Any]:
    b = config.dtype_b or config.dtype_a
    output = config.dtype_c or _OUTPUTS.get(config.dtype_a, config.dtype_a)
    axes = {
        "datatypes": config.dtype_a if b == config.dtype_a else f"{config.dtype_a}:{b}",
        "layouts": config.layout,
        "variants": config.variant,
        "outputs": output,
    }
    fused = config.variant == "multi_d" or config.elementwise_op != "PassThrough" or config.num_d_tensors
    return {**axes, "epilogues": config.elementwise_op, "num_d": config.num_d_tensors} if fused else axes


def _spec_of(config: KernelConfig) -> tuple[KernelSpec, Rejection | None]:
    """The spec of a configuration, and why it is not legal where it is not."""
    if not isinstance(config, KernelConfig):
        raise RequestError(
            f"a configuration is a KernelConfig, not {type(config).__name__}",
            rule="ck-config",
            value=config,
            remedy="write KernelConfig(tile_m=256, ...); of a dict KernelConfig(**dict)",
        )
    arch = arch_by_name(config.gfx_arch)
    if arch.backend != "hip":
        raise RequestError(
            f"gfx_arch is {arch.name}: this configuration describes kernels of AMD GPUs",
            rule="ck-arch",
            value=arch.name,
            remedy="use an arch such as gfx942; for others say what you want with pools and specs",
        )
    collected = collect(OP, arch.name, config=config.to_json(), axes=_axes(config))
    refused = None if collected.specs else collected.rejected[0]
    spec = collected.specs[0] if refused is None else refused.spec
    if config.dtype_acc and config.dtype_acc != spec.signature.dtype_acc:
        spec = replace(spec, signature=replace(spec.signature, dtype_acc=config.dtype_acc))
        refused = Rejection(spec)
    return spec, refused


# -- is it legal, and what would be --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Every rule a configuration breaks, and the nearest configurations that break none."""

    config: KernelConfig
    errors: tuple[str, ...] = ()
    nearest: tuple[KernelConfig, ...] = ()  # closest first

    @property
    def is_valid(self) -> bool:
        return not self.errors

    @property
    def warnings(self) -> tuple[str, ...]:
        """None: a rule is broken or it is not."""
        return ()

    def print_result(self, indent: str = "  ") -> None:
        """For people: what is wrong, and what to change."""
        fixes = [f"suggested: {name} = {value}" for name, value in self.suggested_fixes.items()]
        _print_lines([f"{indent}{'valid' if self.is_valid else 'not valid'}"])
        _print_lines(f"{indent}  {line}" for line in (*self.errors, *fixes))

    @property
    def suggested_fixes(self) -> dict[str, Any]:
        """What to change for the nearest one, by their names."""
        return {} if not self.nearest else _differences(self.config, self.nearest[0])


def _differences(before: KernelConfig, after: KernelConfig) -> dict[str, Any]:
    was = asdict(before)
    return {name: value for name, value in asdict(after).items() if value != was[name]}


def validate_kernel_config(config: KernelConfig) -> ValidationResult:
    """Ask legality; nothing is raised for what is merely illegal."""
    spec, refused = _spec_of(config)
    if refused is None:
        return ValidationResult(config)
    near = tuple(config.corrected(neighbour.spec) for neighbour in neighbours(op_by_name(OP), spec))
    return ValidationResult(config, tuple(map(str, refused.violations)), near)


class AutoCorrection(NamedTuple):
    """The configuration to use, whether it is another than was asked for, and what was changed."""

    config: KernelConfig
    was_modified: bool
    corrections: tuple[str, ...]


def auto_correct_kernel_config(config: KernelConfig, verbose: bool = False) -> AutoCorrection:
    """The nearest legal configuration; where the arch has no kernel for these types at all, the error that says so.

    With `verbose` the changes are printed.
    """
    corrected = _corrected(config)
    if verbose:
        _print_lines(f"  corrected: {correction}" for correction in corrected.corrections)
    return corrected


def _corrected(config: KernelConfig) -> AutoCorrection:
    spec, refused = _spec_of(config)
    if refused is None:
        return AutoCorrection(config, False, ())
    near = neighbours(op_by_name(OP), spec, 1)
    if not near:
        raise illegal(op_by_name(OP), spec, refused.violations)
    taken = config.corrected(near[0].spec)
    changed = _differences(config, taken)
    return AutoCorrection(
        taken, True, tuple(f"{name} {getattr(config, name)} -> {value}" for name, value in changed.items())
    )


def _legal(config: KernelConfig) -> KernelSpec:
    spec, refused = _spec_of(config)
    if refused is not None:
        raise illegal(op_by_name(OP), spec, refused.violations)
    return spec


# -- sources -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CodegenResult:
    """What a generation wrote: sources in a folder with a manifest of all that is there."""

    variant: str
    output_dir: Path
    kernels: tuple[KernelSpec, ...] = ()
    written: tuple[Path, ...] = ()  # now; the others were there as they are
    rejected: tuple[Rejection, ...] = ()
    elapsed_seconds: float = 0.0
    error: TilewrightError | None = None  # of one variant of several

    @property
    def success(self) -> bool:
        return self.error is None

    @property
    def kernel_count(self) -> int:
        return len(self.kernels)

    @property
    def instance_names(self) -> tuple[str, ...]:
        return tuple(kernel.name for kernel in self.kernels)


@dataclass(frozen=True)
class CodegenRunner:
    """Sources of kernels in one folder, which grows from call to call."""

    output_dir: Path | str = "generated_kernels"
    datatype: str = "fp16"
    layout: str = "rcr"
    gpu_target: str = "gfx942"
    max_workers: int | None = None
    pool: str = "default"  # which kernels a variant has; theirs is more like our `full`

    def generate(self, variant: str = "standard", output_dir: Path | str | None = None) -> CodegenResult:
        """The pool's kernels of one variant."""
        axes = {"datatypes": self.datatype, "layouts": self.layout, "variants": variant}
        if self.datatype in _OUTPUTS:
            axes["outputs"] = _OUTPUTS[self.datatype]
        return self._write(variant, collect(OP, self.gpu_target, pool=self.pool, axes=axes), output_dir)

    def generate_all(self, output_dir: Path | str | None = None) -> tuple[CodegenResult, ...]:
        """Every variant; one that these types and layouts do not have is reported, unless none has them."""
        results: list[CodegenResult] = []
        for variant in VARIANTS:
            try:
                results.append(self.generate(variant, output_dir))
            except RequestError as error:
                results.append(CodegenResult(variant, Path(output_dir or self.output_dir), error=error))
        failed = [result.error for result in results if result.error is not None]
        if len(failed) == len(results):
            raise failed[0]
        return tuple(results)

    def generate_from_config(self, config: KernelConfig, output_dir: Path | str | None = None) -> CodegenResult:
        """One kernel, of the config's own types, layout and arch; an illegal one is an error with its neighbours."""
        return self._write(config.variant, SpecSet((_legal(config),)), output_dir)

    def generate_preselected(
        self, preset: str = "fp16_rcr_essential", output_dir: Path | str | None = None
    ) -> CodegenResult:
        """A named set, whose types and layout are its own."""
        return self._write(preset, collect(OP, self.gpu_target, preselected=preset), output_dir)

    def _write(self, variant: str, selection: SpecSet, output_dir: Path | str | None) -> CodegenResult:
        demand_some(selection)
        folder = Path(output_dir or self.output_dir)
        report: Report = generate(selection.specs, folder, jobs=self.max_workers or 0, add=True)
        return CodegenResult(
            variant,
            report.folder,
            selection.specs,
            tuple(report.folder / name for name in report.written),
            selection.rejected,
            report.seconds,
        )


# -- kernels to run ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dispatcher:
    """The kernels of one registry for products of one kind: the types, layout and fused work of a configuration."""

    registry: Registry
    config: KernelConfig

    def problem(self, m: int, n: int, k: int) -> GemmProblem:
        s = self._signature
        return GemmProblem(
            m, n, k, s.dtype_a, s.dtype_b, s.dtype_c, s.dtype_d, s.layout,
            epilogue=s.epilogue, num_d=s.num_d, preshuffled=s.variant == "preshuffle",
        )  # fmt: skip

    @cached_property
    def _signature(self) -> Any:
        return self.config.spec.signature

    def select_kernel(self, m: int, n: int, k: int) -> str:
        """The name of the kernel that would run; dispatch is total, so there is one for every legal problem."""
        return self.registry.select(self.problem(m, n, k)).name

    def is_supported(self, m: int, n: int, k: int) -> bool:
        """Whether a registered kernel takes these sizes as they are, without copies and without the fallback kernel."""
        return self.registry.select(self.problem(m, n, k)).tier in ("measured", "model", "heuristic")

    def run(
        self,
        a: Any,
        b: Any,
        m: int | None = None,
        n: int | None = None,
        k: int | None = None,
        *,
        ds: Sequence[Any] = (),
        **options: Any,
    ) -> Any:
        """The product of device arrays, as `tilewright.gemm` takes them; layouts are read from the strides.

        Sizes are those of the arrays; where they are given too, they must be the same.
        """
        for name, size, array, axis in (("m", m, a, -2), ("n", n, b, -1), ("k", k, a, -1)):
            if size is not None and size != array.shape[axis]:
                raise RequestError(
                    f"{name} is given as {size}, the arrays have {array.shape[axis]}",
                    rule="ck-sizes",
                    value=size,
                    remedy=f"leave it out, or give {array.shape[axis]}",
                )
        return self.registry.run(OP, a, b, ds=ds, epilogue=self.config.elementwise_op, **options)


@dataclass(frozen=True, slots=True)
class GemmSetupResult:
    """A kernel in a registry, built or to be built on its first use."""

    config: KernelConfig  # as it was used
    kernel: KernelSpec
    registry: Registry
    dispatcher: Dispatcher
    corrections: tuple[str, ...] = ()
    library: Path | None = None

    @property
    def success(self) -> bool:
        """True: what cannot be set up is an error."""
        return True


def setup_gemm_dispatcher(
    config: KernelConfig, registry_name: str = "", verbose: bool = False, auto_rebuild: bool = True
) -> GemmSetupResult:
    """Correct, build and register one kernel; without `auto_rebuild` it is compiled on its first use.

    `registry_name` is taken for old calls and means nothing: a registry is the object that is returned.
    """
    return setup_multiple_gemm_dispatchers([config], registry_name, verbose, auto_rebuild=auto_rebuild)[0]


def setup_multiple_gemm_dispatchers(
    configs: Iterable[KernelConfig],
    registry_name: str = "",
    verbose: bool = False,
    max_workers: int | None = None,
    *,
    auto_rebuild: bool = True,
) -> tuple[GemmSetupResult, ...]:
    """The same for several, compiled side by side; each has a registry of its own."""
    corrected = [auto_correct_kernel_config(config, verbose) for config in configs]
    specs = [correction.config.spec for correction in corrected]
    built: Mapping[str, Any] = {}
    for arch in dict.fromkeys(spec.arch for spec in specs) if auto_rebuild else ():
        mine = Registry(arch, [spec for spec in specs if spec.arch == arch])
        built = {**built, **mine.build(max_workers=max_workers)}
    results = []
    for correction, spec in zip(corrected, specs, strict=True):
        registry = Registry(spec.arch, [spec])
        artifact = built.get(spec.digest)
        results.append(
            GemmSetupResult(
                correction.config,
                spec,
                registry,
                Dispatcher(registry, correction.config),
                correction.corrections,
                artifact.path if artifact is not None else None,
            )
        )
    return tuple(results)
