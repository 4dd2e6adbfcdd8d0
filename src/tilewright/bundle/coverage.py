"""What a bundle says of every problem: as a table of text, and as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from tilewright.build.bundle_file import BundleFile
from tilewright.bundle.build import size_text
from tilewright.bundle.plan import covered
from tilewright.errors import RequestError

Row = Mapping[str, Any]
MARK = "tilewright bundle coverage"  # distinguishes our pages from other people's


def bundle_rows(bundle: BundleFile) -> list[Row]:
    rows: list[Row] = bundle.manifest.get("coverage", [])
    return rows


def rows_of(bundle: BundleFile, targets: Iterable[str] = (), op: str = "") -> list[Row]:
    """The coverage of a bundle, of some targets and an op where these are named."""
    wanted = set(targets)
    there = {"targets": set(bundle.manifest["targets"]), "problems of": {row.get("op") for row in bundle_rows(bundle)}}
    for what, names in (("targets", wanted), ("problems of", {op} - {""})):
        unknown = sorted(names - there[what])
        if unknown:
            raise RequestError(
                f"the bundle {bundle.path} has no {what} {', '.join(unknown)}",
                rule="bundle-target" if what == "targets" else "bundle-op",
                value=unknown[0],
                remedy=f"it has {', '.join(sorted(map(str, there[what]))) or 'none'}",
            )
    return [
        row
        for row in bundle_rows(bundle)
        if (not wanted or row.get("target") in wanted) and (not op or row.get("op") == op)
    ]


def loss_text(row: Row) -> str:
    loss = row.get("loss")
    return f"{loss:.1%}" if isinstance(loss, (int, float)) else "-"


def kernels_text(row: Row) -> str:
    return " + ".join(str(stage.get("kernel") or "-") for stage in row.get("stages", ())) or "-"


def tier_text(row: Row) -> str:
    return str(row.get("tier") or "missing")


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table: problem, target, threads, tier, loss, kernels, and why it is not covered."""
    threads = str(row.get("threads") or "-")
    return (
        str(row.get("text")), str(row.get("target")), threads, tier_text(row), loss_text(row), kernels_text(row),
        str(row.get("why") or ""),
    )  # fmt: skip


COLUMNS = ("problem", "target", "threads", "tier", "loss", "kernel", "why")

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 90em; padding: 0 1em; color: #1b1f24 }
h1 { font-size: 1.4em } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .25em .7em; border-bottom: 1px solid #d0d7de; vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums }
td.kernel { font-family: ui-monospace, monospace; font-size: 12px; overflow-wrap: anywhere }
tr.uncovered td { background: #fff1e5 } tr.missing td { background: #ffebe9 }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3 } th, td { border-color: #30363d }
  tr.uncovered td { background: #3d2a00 } tr.missing td { background: #4b1113 }
}
"""


def target_sizes(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Bytes by target, as `bundle build` prints them: kernels and registry, each file once."""
    files = {
        name: target
        for target, part in manifest["targets"].items()
        for name in (part["registry"], *(kernel["file"] for kernel in part["kernels"]))
    }
    sizes = dict.fromkeys(manifest["targets"], 0)
    for name, target in files.items():
        sizes[target] += int(manifest["files"][name]["bytes"])
    return sizes


def page(bundle: BundleFile, rows: Sequence[Row]) -> str:
    """The page: sizes by target, then every problem; what is not covered stands out."""
    served, by_target = sum(map(covered, rows)), target_sizes(bundle.manifest)
    sizes = "".join(
        f"<tr><td>{escape(target)}</td><td class=number>{len(part['kernels'])}</td>"
        f"<td class=number>{size_text(by_target[target])}</td></tr>"
        for target, part in bundle.manifest["targets"].items()
    )
    table = "".join(_table_row(row) for row in sorted(rows, key=lambda row: (covered(row), cells(row))))
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="generator" content="{MARK}">'
        f"<title>{escape(bundle.path.name)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(bundle.path.name)}: {served} of {len(rows)} problems covered</h1>"
        f"<p>{size_text(bundle.size)}, made by {escape(str(bundle.manifest.get('created_by', '')))}. The loss is the "
        "time beside an unrestricted choice, by selection's own estimates.</p>"
        f"<table><tr><th>target</th><th>kernels</th><th>size</th></tr>{sizes}</table>"
        f"<h2>Problems</h2><table><tr>{head}</tr>{table}</table></body></html>\n"
    )


def _table_row(row: Row) -> str:
    problem, target, threads, tier, loss, kernel, why = map(escape, cells(row))
    kind = "" if covered(row) else ' class="missing"' if tier == "missing" else ' class="uncovered"'
    return (
        f"<tr{kind}><td>{problem}</td><td>{target}</td><td class=number>{threads}</td><td>{tier}</td>"
        f"<td class=number>{loss}</td><td class=kernel>{kernel}</td><td>{why}</td></tr>"
    )
