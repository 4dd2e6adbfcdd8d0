"""`tilewright cache`: look into the kernel store, check it, trim it, and ask why a kernel is built again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.common import AsJson, Summaries, Target, narrow, print_json, say, short_name, show, table
from tilewright.errors import counted

if TYPE_CHECKING:
    from tilewright.build import Store
    from tilewright.build.why import KeyComparison

_LISTED = ("name", "compiler", "seconds", "built_at", "spec")


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=Summaries, no_args_is_help=True, help="Manage the kernel store: list, verify, trim, explain."
    )
    group.command("ls")(ls)
    group.command("verify")(verify)
    group.command("gc")(gc)
    group.command("why")(why)
    app.add_typer(group, name="cache")


def _store() -> Store:
    from tilewright.build import Store

    return Store()


def human(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return ""


def _ago(then: float) -> str:
    seconds = max(0.0, time.time() - then)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def ls(json: AsJson = False) -> None:
    """List stored kernels, most recently used first."""
    from tilewright.build.upkeep import usage

    store = _store()
    known = {str(manifest["key"]): manifest for manifest in store.manifests()}
    uses = list(reversed(usage(store)))
    if json:
        print_json(
            [
                {"key": use.key, "bytes": use.bytes, "used": use.used}
                | {field: known.get(use.key, {}).get(field) for field in _LISTED}
                for use in uses
            ]
        )
        return
    # Shortened names are not folded too: a digest in two pieces is of no use to any command.
    shown = table("key", "size", "built in", "last use", "kernel", "compiler", right=["size", "built in", "last use"],
                  fold=["compiler"] if narrow() else ["kernel", "compiler"])  # fmt: skip
    for use in uses:
        facts = known.get(use.key, {})
        shown.add_row(
            use.key[:12],
            human(use.bytes),
            f"{facts.get('seconds', 0):.2f} s",
            _ago(use.used),
            short_name(str(facts.get("name", "(manifest not readable)")), 24),
            str(facts.get("compiler", "")),
        )
    if uses:
        show(shown)
    say(f"{counted(len(uses), 'entry')}, {human(sum(use.bytes for use in uses))} in {store.root}")


def verify(
    repair: Annotated[bool, typer.Option("--repair", help="Remove damaged entries.")] = False,
    json: AsJson = False,
) -> None:
    """Check every entry against its digests; exit code 2 when a damaged one is left."""
    from tilewright.errors import StoreError

    store = _store()
    count, damaged = 0, dict[str, str]()
    for key in store.all_keys():
        count += 1
        try:
            store.verify(key)
        except StoreError as error:
            if error.rule != "store-corrupt":
                raise
            damaged[key] = error.message
            if repair:
                store.discard(key)
    if json:
        print_json({"entries": count, "damaged": damaged, "repaired": repair and bool(damaged)})
    else:
        for message in damaged.values():
            typer.echo(message + (" (removed)" if repair else ""))
        say(f"{count} entries checked, {len(damaged)} damaged in {store.root}")
        if damaged and not repair:
            say("remedy: `tilewright cache verify --repair` removes them; they are built again when needed")
    if damaged and not repair:
        raise typer.Exit(2)


def gc(
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=0, help="Trim to this many bytes; default: cache_max_bytes.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove every entry, recently used ones included.")] = False,
    other: Annotated[bool, typer.Option("--other-versions", help="Remove stores that other versions wrote.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Remove all of the store, whatever its format.")] = False,
    json: AsJson = False,
) -> None:
    """Trim the store, least recently used first, and remove leftovers of killed processes."""
    from tilewright import settings
    from tilewright.build import upkeep
    from tilewright.build.store import remove_tree

    store, before = _store(), upkeep.Cleaned()
    if reset:
        before = upkeep.reset(store)
        if before.foreign:
            say(f"{store.root} is kept: {', '.join(before.foreign[:5])} in it is not the store's")
    removed_versions = upkeep.other_versions(store) if other else []
    for folder in removed_versions:
        remove_tree(folder)
    if everything:
        report = upkeep.clean(store, 0, in_use_seconds=0)
    else:
        limit = settings.current().cache_max_bytes if max_bytes is None else max_bytes
        report = upkeep.clean(store, limit)
    report = before.plus(report)
    if json:
        print_json(
            {
                "removed_entries": report.entries,
                "removed_bytes": report.bytes,
                "leavings": report.leavings,
                "entries": report.left_entries,
                "bytes": report.left_bytes,
                "kept_in_use": report.in_use,
                "other_versions": [version.name for version in removed_versions],
            }
        )
        return
    say(
        f"removed {counted(report.entries, 'entry')} ({human(report.bytes)}) and {counted(report.leavings, 'file')} "
        f"of ended processes; {counted(report.left_entries, 'entry')} ({human(report.left_bytes)}) kept in {store.root}"
    )
    if report.in_use:
        say(
            f"{report.in_use} of them are over the limit and are kept, having been used in the last "
            f"{upkeep.IN_USE_SECONDS:.0f} seconds: another process may be about to load them; --all removes them too"
        )
    for folder in removed_versions:
        say(f"removed {folder}")


def why(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="Kernel name, digest, or a JSON file with specs.")],
    target: Target = "",
    json: AsJson = False,
) -> None:
    """Show which inputs of a kernel's key differ from the nearest stored entry."""
    from tilewright.build import Builder
    from tilewright.build.inspected import meant
    from tilewright.build.why import explain

    builder = Builder(_store())
    comparisons = [explain(builder, spec) for spec in meant(builder.store, kernel, target)]
    if json:
        data = [_why_data(comparison) for comparison in comparisons]
        print_json(data[0] if len(data) == 1 else data)
        return
    for number, comparison in enumerate(comparisons):
        if number:
            typer.echo("")
        _print_why(comparison)


def _why_data(comparison: KeyComparison) -> dict[str, Any]:
    return {
        "name": comparison.name,
        "key": comparison.key,
        "stored": comparison.stored,
        "nearest": {"key": comparison.nearest_key, "name": comparison.nearest_name},
        "differences": [
            {"what": difference.what, "stored": difference.stored, "now": difference.now}
            for difference in comparison.differences
        ],
    }


def _print_why(comparison: KeyComparison) -> None:
    typer.echo(f"{comparison.name}\nkey {comparison.key}")
    if comparison.stored:
        typer.echo("is in the store: nothing would be compiled")
    elif not comparison.nearest_key:
        typer.echo("is not in the store, which holds no kernel to compare with")
    else:
        typer.echo(
            f"is not in the store; nearest is {comparison.nearest_name} ({comparison.nearest_key[:12]}), different in:"
        )
        shown = table("input", "stored", "now", fold=["input", "stored", "now"])
        for difference in comparison.differences:
            shown.add_row(difference.what, _short(difference.stored), _short(difference.now))
        show(shown)


def _short(text: str) -> str:
    """Digests are distinguished by their first digits."""
    return text[:12] if len(text) == 64 and " " not in text else text
