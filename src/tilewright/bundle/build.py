"""`tilewright bundle build`: plan, compile, and put everything into one file, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tilewright
from tilewright import events, ops, settings
from tilewright.arch import all_archs, runnable_host_archs
from tilewright.backends.base import Source, backend, resolve_target
from tilewright.build import Builder
from tilewright.build.bundle_file import FORMAT, HEAD, MANIFEST, VERSION, archive
from tilewright.build.bundled import ABI, support_inputs
from tilewright.bundle.plan import FALLBACK, Plan, add_lock, add_pool, coverage, covered, plan
from tilewright.codegen.folder import demand_replaceable, demand_room, output_error
from tilewright.dispatch import exported_choices, exported_models, locks, model_files, registry_json
from tilewright.dispatch.missing import LOSS
from tilewright.dispatch.records import Record, records
from tilewright.dispatch.results import problem_digest
from tilewright.errors import NoKernelError, RequestError, ToolchainError, counted
from tilewright.native.judge import native_kernels
from tilewright.native.library import library_source
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime.support import support_sources

OnProgress = Callable[[int, int], None]  # (done, total)

# What is given up step by step where a bundle is too large.
LOSSES = (LOSS, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0, 2.0, 4.0, 9.0)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a bundle is to be of."""

    targets: Sequence[str]
    what: Sequence[Any] = ()  # as `tw.prepare` takes it, or (op, file or set)
    pools: Sequence[tuple[str, str]] = ()  # (op or "", pool)
    expression: str = ""  # a filter of these
    limit: int = 0
    threads: Sequence[int] = ()  # of CPU kernels; none means those of this machine
    loss: float | None = None  # at most; where none is said, 3 %, and more where `max_bytes` asks for it
    max_bytes: int = 0
    lock: Path | None = None
    fallback: bool = True  # a kernel of each signature that serves everything
    strict: bool = False  # a problem that is not covered is an error


@dataclass(frozen=True, slots=True)
class Made:
    """What was written; `print` it."""

    path: Path
    bytes: int
    loss: float  # that was allowed in the end
    kernels: Mapping[str, int]  # by target
    sizes: Mapping[str, int]  # bytes by what they are for: targets, selection, ...
    problems: int
    uncovered: Sequence[Mapping[str, Any]]
    worst: float

    def to_dict(self) -> dict[str, Any]:
        return {**plain(self), "path": str(self.path), "uncovered": [dict(row) for row in self.uncovered]}

    def __str__(self) -> str:
        lines = [f"{self.path}: {size_text(self.bytes)}"]
        for name, size in self.sizes.items():
            count = f"{self.kernels[name]} kernels" if name in self.kernels else ""
            lines.append(f"{name:16}{size_text(size):>10}  {count}".rstrip())
        served = self.problems - len(self.uncovered)
        lines.append(
            f"covered         {served} of {self.problems} problems, with a loss of at most {self.worst:.1%} "
            f"({self.loss:.0%} allowed)"
        )
        lines += [
            f"not covered     {row['text']} on {row['target']}: {row['tier'] or 'missing'}: {row['why']}"
            for row in self.uncovered[:10]
        ]
        if len(self.uncovered) > 10:
            lines.append(f"                and {len(self.uncovered) - 10} more: `tilewright bundle coverage`")
        return "\n".join(lines)


def size_text(size: int) -> str:
    for unit, scale in (("MB", 1_000_000), ("kB", 1_000)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def build(output: Path | str, wish: Wish, *, jobs: int = 0, progress: OnProgress | None = None) -> Made:
    """Make a bundle; the same inputs give the same bytes.  On an error nothing is left of it."""
    output = Path(output)
    targets = _targets(wish)
    demand_compilers(targets)
    demand_room(output)
    demand_replaceable(output, HEAD)
    plans = [plan(target, wish.what, wish.threads) for target in targets]
    for planned in plans:
        for op, pool in wish.pools:
            for name in (op,) if op else _ops_of(planned):
                add_pool(planned, name, pool, wish.expression, wish.limit)
    pins = [] if wish.lock is None else list(locks.read(wish.lock).values())
    pinned = [pin for planned in plans for pin in add_lock(planned, pins)]
    content, loss, rows, kernels = _fitting(plans, wish, pinned, jobs, progress)
    write(output, content.files)
    lost = [row["loss"] for row in rows if row["loss"] is not None]
    return Made(
        output, output.stat().st_size, loss, kernels, content.sizes(), len(rows),
        [row for row in rows if not covered(row)], max(lost, default=0.0),
    )  # fmt: skip


def _targets(wish: Wish) -> list[str]:
    if not wish.targets:
        raise RequestError(
            "a bundle needs targets", rule="bundle-targets", value="", remedy="--targets x86_64_v3,sm_90a"
        )
    if not wish.what and not wish.pools and wish.lock is None:
        raise RequestError(
            "nothing says which kernels the bundle is to have",
            rule="bundle-what",
            value="",
            remedy="give --problems, --record, --pool or --lock",
        )
    for name, setting in (("--filter", wish.expression), ("--limit", wish.limit)):
        if setting and not wish.pools:
            raise RequestError(
                f"{name} {setting!r} chooses among the kernels of a pool, and no pool is named",
                rule="bundle-filter",
                value=setting,
                remedy=f"give --pool, or leave {name} out: of problems, the kernels that serve them are taken",
            )
    for name, value in (("loss", wish.loss), ("max-size", wish.max_bytes)):
        if value is not None and not 0 <= value < float("inf"):
            raise RequestError(f"{name} is {value}", rule="bundle-loss", value=value, remedy="give 0 or more")
    # In an order of their own: bytes depend on which targets are named, not on how.
    return sorted({resolve_target(name, to_run=False).name for name in wish.targets})


def demand_compilers(targets: Iterable[str]) -> None:
    """One error that names every target for which this machine has no compiler, and what to do."""
    lacking: list[tuple[str, ToolchainError]] = []
    for target in targets:
        try:
            backend(all_archs()[target].backend).toolchain().flags(target)
        except ToolchainError as error:
            lacking.append((target, error))
    if not lacking:
        return
    reasons = "; ".join(f"{target}: {error.message}" for target, error in lacking)
    remedies = dict.fromkeys(error.remedy for _, error in lacking)
    raise ToolchainError(
        f"this machine cannot compile for {', '.join(target for target, _ in lacking)} ({reasons})",
        rule="bundle-compiler",
        value=[target for target, _ in lacking],
        remedy=f"{'; '.join(remedies)}; or leave the target out of --targets",
    )


def _ops_of(planned: Plan) -> list[str]:
    """The ops that the backend of a target has kernels of."""
    from tilewright import plugins

    return [name for name in ops.op_names() if name in plugins.names(f"tilewright.kernels.{planned.registry.kind}")]


def _fitting(
    plans: Sequence[Plan], wish: Wish, pinned: Sequence[locks.Pin], jobs: int, progress: OnProgress | None
) -> tuple[Content, float, list[dict[str, Any]], dict[str, int]]:
    """The content at the least loss whose archive is no larger than asked for."""
    steps: Sequence[float] = (
        LOSSES if wish.loss is None and wish.max_bytes else (LOSS if wish.loss is None else wish.loss,)
    )
    least = 0
    for loss in steps:
        chosen = [planned.chosen(loss, fallback=wish.fallback) for planned in plans]
        rows = [row for planned, digests in zip(plans, chosen, strict=True) for row in coverage(planned, digests)]
        if wish.strict:
            _demand_covered(rows)
        if not any(chosen):
            raise RequestError(
                f"no problem is served on any target: {rows[0]['why'] if rows else 'there is none'}",
                rule="bundle-empty",
                value=0,
                remedy="give problems that some target serves",
            )
        content = _content(plans, chosen, rows, pinned, jobs, progress)
        least = content.archive_bytes
        if not wish.max_bytes or least <= wish.max_bytes:
            return (
                content,
                loss,
                rows,
                {planned.target: len(each) for planned, each in zip(plans, chosen, strict=True)},
            )
    allowed = f"with a loss of at most {steps[-1]:.0%}"
    raise RequestError(
        f"the bundle has {size_text(least)} {allowed}, which is more than {size_text(wish.max_bytes)}",
        rule="bundle-size",
        value=least,
        remedy=f"allow --max-size {-(-least // 100_000) / 10:g}MB"
        + (", leave --loss out" if wish.loss is not None else "")
        + ", or take fewer problems or targets",
    )


def _demand_covered(rows: Iterable[Mapping[str, Any]]) -> None:
    wrong = [row for row in rows if not covered(row)]
    if wrong:
        first = wrong[0]
        raise NoKernelError(
            f"the bundle does not cover {counted(len(wrong), 'problem')}: {first['text']} on {first['target']} is "
            f"{first['tier'] or 'missing'} ({first['why']})",
            rule="bundle-uncovered",
            value=first["text"],
            remedy="leave them or the target out, or do without --strict",
        )


# -- the files -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Content:
    """The files of a bundle, with what the manifest says of each."""

    files: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)  # what a file is for

    def add(self, name: str, data: bytes, part: str) -> dict[str, Any]:
        self.files[name], self.parts[name] = data, part
        return {"file": name, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}

    def facts(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for name, data in sorted(self.files.items())
        }

    def sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for name, part in self.parts.items():
            sizes[part] = sizes.get(part, 0) + len(self.files[name])
        return sizes

    @property
    def archive_bytes(self) -> int:
        return sum(map(len, archive(self.files)))


def _content(
    plans: Sequence[Plan], chosen: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, Any]],
    pinned: Sequence[locks.Pin], jobs: int, progress: OnProgress | None,
) -> Content:  # fmt: skip
    content = Content()
    specs = {
        digest: planned.specs[digest] for planned, digests in zip(plans, chosen, strict=True) for digest in digests
    }
    built = _compiled(specs.values(), jobs, progress)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "abi": list(ABI),
        "created_by": f"tilewright {tilewright.__version__}",
        "host": platform.machine(),
        "targets": {},
        "selection": _selection(content, specs.values()),
    }
    measured = _measurements(plans, specs) if settings.current().measure else {plan.target: [] for plan in plans}
    for planned, digests in zip(plans, chosen, strict=True):
        kernels = []
        for digest, role in digests.items():
            spec, (path, compiler) = specs[digest], built[digest]
            facts = content.add(f"kernels/{digest}.so", path.read_bytes(), planned.target)
            kernels.append(
                {"digest": digest, "name": spec.name, "op": spec.op, "role": role, "compiler": compiler, **facts}
            )
        data = _registry(content, planned, digests, pinned, measured[planned.target])
        listed = content.add(f"registry/{planned.target}.json", data, planned.target)
        manifest["targets"][planned.target] = {
            "backend": planned.registry.kind, "registry": listed["file"], "registry_sha256": listed["sha256"],
            "kernels": kernels,
        }  # fmt: skip
    rows_of_support = [_support(content, source) for source in support_sources()]
    manifest["support"] = [row for row in rows_of_support if row is not None]
    pairs = sorted({(spec.op, spec.arch) for spec in specs.values()})
    manifest["models"] = _models(content, pairs) if settings.current().models else []
    manifest["locks"] = [content.add("locks/lock.json", locks.text(pinned).encode(), "locks")] if pinned else []
    manifest["records"] = _records(content, measured, specs)
    manifest["coverage"] = list(rows)
    manifest["files"] = content.facts()
    content.add(MANIFEST, json.dumps(manifest, sort_keys=True, indent=1).encode(), "manifest")
    return content


def _compiled(specs: Iterable[KernelSpec], jobs: int, progress: OnProgress | None) -> dict[str, tuple[Path, str]]:
    """The libraries by digest, each with its compiler; compiled together, for whatever target."""
    wanted, done = list(specs), set[str]()

    def heard(event: events.Event) -> None:
        if isinstance(event, events.KernelBuilt) and progress is not None:
            done.add(event.digest)
            progress(len(done), len(wanted))

    artifacts = Builder().build_many(wanted, max_workers=jobs or None, on_event=heard)
    return {
        digest: (artifact.path, str(artifact.manifest.get("compiler", ""))) for digest, artifact in artifacts.items()
    }


def _registry(
    content: Content, planned: Plan, digests: Mapping[str, str], pinned: Sequence[locks.Pin], measured: list[Record]
) -> bytes:
    """The registry of a target as JSON, with all that C++ chooses by: pins, measurements and models too."""
    files = {digest: f"kernels/{digest}.so" for digest in digests}
    chosen = [planned.specs[digest] for digest, role in digests.items() if role != FALLBACK]
    last = [planned.specs[digest] for digest, role in digests.items() if role == FALLBACK]
    both = (*chosen, *last)
    sets = {native.set_name: f"select/{native.set_name}.so" for spec in both if (native := native_kernels((spec,)))}
    choices = exported_choices.of(chosen, planned.target, pinned, measured)
    learned = exported_models.models(chosen, planned.target)
    for name, data in learned.files.items():
        content.add(name, data, "models")
    whole = registry_json.to_dict(chosen, planned.target, {**files, **sets}, choices, learned.rows, last)
    return json.dumps(whole, sort_keys=True, indent=1).encode()


def _plainest() -> str:
    return runnable_host_archs()[-1].name


def _selection(content: Content, specs: Iterable[KernelSpec]) -> dict[str, Any]:
    sets: dict[str, Any] = {}
    for spec in specs:
        kernels = native_kernels((spec,))
        if kernels is None or kernels.set_name in sets:
            continue
        source, arch = library_source(kernels), _plainest()
        data = Builder().build_source(source, arch).path.read_bytes()
        facts = content.add(f"select/{kernels.set_name}.so", data, "selection")
        sets[kernels.set_name] = {**facts, "arch": arch, "inputs": support_inputs(source, arch)}
    return dict(sorted(sets.items()))


def _support(content: Content, source: Source) -> dict[str, Any] | None:
    """What calls need beside kernels; None where it takes a C++ standard library and this compiler has none."""
    arch, name = _plainest(), Path(source.file_name).stem
    try:
        data = Builder().build_source(source, arch).path.read_bytes()
    except ToolchainError:
        if not source.cxx_library:
            raise
        return None
    facts = content.add(f"support/{name}.so", data, "support")
    return {"name": name, **facts, "arch": arch, "inputs": support_inputs(source, arch)}


def _models(content: Content, pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    models: dict[str, dict[str, Any]] = {}
    for op, target in pairs:
        for name, data in model_files.files_for(op, target).items():
            if name in models:
                models[name]["targets"].append(target)
                continue
            facts = content.add(f"models/{name}{model_files.ENDING}", data, "models")
            models[name] = {"name": name, "op": op, "targets": [target], **facts}
    return [models[name] for name in sorted(models)]


def _measurements(plans: Sequence[Plan], specs: Mapping[str, KernelSpec]) -> dict[str, list[Record]]:
    """What was measured of these problems and won by a kernel of the bundle, by target."""
    measured: dict[str, list[Record]] = {}
    for planned in plans:
        stages = {
            (stage.op, problem_digest(stage.op, plain(ops.op(stage.op).measured_as(stage))))
            for _, stage in planned.times
        }
        mine = [
            record
            for record in records().all()
            if record.target == planned.target
            and record.choice in specs
            and (record.op, problem_digest(record.op, record.problem)) in stages
        ]
        measured[planned.target] = sorted(mine, key=lambda record: json.dumps(record.to_dict(), sort_keys=True))
    return measured


def _records(
    content: Content, measured: Mapping[str, Sequence[Record]], specs: Mapping[str, KernelSpec]
) -> list[dict[str, Any]]:
    """The files of measurements, with the times of the bundle's own kernels."""
    listed = []
    for target, mine in measured.items():
        rows = [record.to_dict() for record in mine]
        for row in rows:
            row["timings"] = [timing for timing in row["timings"] if timing["digest"] in specs]
        if rows:
            data = json.dumps(rows, sort_keys=True, indent=1).encode()
            listed.append({"target": target, **content.add(f"records/{target}.json", data, "records")})
    return listed


def write(output: Path, files: Mapping[str, bytes]) -> None:
    """The archive in place of whatever was there: whole, or not at all."""
    part = output.with_name(f".{output.name}.{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            for chunk in archive(files):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        part.replace(output)
    except OSError as error:
        raise output_error(output, error) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
