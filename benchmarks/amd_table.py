"""Fill the compile times of docs/reports/amd.md from benchmarks/results/compile_hip.json; no number is typed by hand.

python benchmarks/amd_table.py            writes the section
python benchmarks/amd_table.py --check    exits with 1 where docs/reports/amd.md says something else
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from _machine import RESULTS, ROOT
from cpu_table import missing, read, table

PAGE = ROOT / "docs" / "reports" / "amd.md"
BEGIN = "<!-- compile times: written by benchmarks/amd_table.py, do not edit -->"
END = "<!-- end of compile times -->"


def about(result: dict[str, Any]) -> str:
    machine, versions = result["machine"], result["versions"]
    parts = [f"{machine['cpu']}, {machine['cores']} cores", machine["system"], result["hipcc"]]
    return f"`{result['command']}`, {result['date']}, commit {versions['commit']}: {'; '.join(parts)}."


def section(result: dict[str, Any] | None) -> str:
    if result is None:
        return "\n".join([BEGIN, "", *missing("compile_hip"), END])
    levers = list(result["levers"])
    rows = [[row["label"], *(f"{row['cpu_seconds'][one]:.1f}" for one in levers)] for row in result["rows"]]
    lines = [BEGIN, "", f"CPU seconds of one kernel for {result['arch']}, each lever on top of those before it:", ""]
    lines += [*table(["kernel", *levers], rows, numbers=1), ""]
    lines += [f"- {name}: {what}" for name, what in result["levers"].items()]
    header, workers, pool = result["precompiled_header"], result["parallel"], result["generate"]
    made = f"The precompiled header itself takes {header['cpu_seconds']:.1f} s once and {header['mib']:.0f} MiB."
    lines += ["", made, ""]
    cells = [[count, f"{one:.1f} s", f"{workers['speed_up'][count]:.2f}"] for count, one in workers["seconds"].items()]
    lines += [f"{len(workers['kernels'])} kernels, the header at hand, from start to store:", ""]
    lines += [*table(["workers", "time", "speed-up"], cells, numbers=1), ""]
    goal = f"goal: {result['targets']['generate_seconds']:g} s, {'met' if result['met']['generate'] else 'missed'}"
    lines += [
        f"Generating the whole legal pool of fp16 rcr, {pool['headers']} headers, takes {pool['seconds']:.2f} s "
        f"({goal}): {pool['headers_a_second']} a second.",
        "",
        about(result),
        "",
        END,
    ]
    return "\n".join(lines)


def filled(page: str, new: str) -> str:
    before, found, rest = page.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"docs/reports/amd.md has no section between {BEGIN} and {END}")
    return before + new + after


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the compile times into docs/reports/amd.md.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    old = options.page.read_text(encoding="utf-8")
    new = filled(old, section(read("compile_hip", options.results)))
    if options.check:
        if new != old:
            raise SystemExit("docs/reports/amd.md does not say what the results say: run benchmarks/amd_table.py")
    elif new != old:
        options.page.write_text(new, encoding="utf-8")
        print("docs/reports/amd.md is up to date with the results")


if __name__ == "__main__":
    main()
