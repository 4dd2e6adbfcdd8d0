"""The options that say which specs are meant, shared by `specs` and `generate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from tilewright.cli.common import console, numbers, resolve_target, say, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilewright.codegen import Rejection, SpecSet

OpName = Annotated[str, typer.Argument(metavar="OP", help="The op: gemm.")]
Target = Annotated[str, typer.Option("--target", help="Arch name; the best of this machine when left out.")]
Datatypes = Annotated[
    list[str] | None, typer.Option("--datatype", help="Input dtype, or a:b for two; repeat it or use commas.")
]
Layouts = Annotated[
    list[str] | None, typer.Option("--layout", help="Layout of A, B and C such as rcr; several allowed.")
]
Variants = Annotated[
    list[str] | None, typer.Option("--variants", "--variant", help="Variants of the op; several allowed.")
]
Pool = Annotated[str, typer.Option("--pool", help="tiny, tests, default, full or profiler.  [default: default]")]
Preselected = Annotated[str, typer.Option("--preselected", help="A named set instead of a pool.")]
Expression = Annotated[
    str, typer.Option("--filter", help="Keep kernels c that pass: \"c.tile_n >= 128 and c.pipeline == 'packed'\".")
]
Epilogues = Annotated[list[str] | None, typer.Option("--epilogue", help="Fused epilogues; several allowed.")]
NumD = Annotated[list[str] | None, typer.Option("--num-d", help="Numbers of D tensors; several allowed.")]
Outputs = Annotated[list[str] | None, typer.Option("--output", help="Dtype of the result E; several allowed.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="At most so many specs; 0 means all.")]
WhyNot = Annotated[bool, typer.Option("--why-not", help="List the rejected proposals by rule; with -v each of them.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


class WordLists(typer.core.TyperCommand):
    """A command whose list options take several words at once: `--variants standard multi_d`.

    Only once the command's own arguments have been given: before that a word might be one of them.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_value = {name for one in self.params if not getattr(one, "is_flag", False) for name in one.opts}
        lists = {name for one in self.params if getattr(one, "multiple", False) for name in one.opts}
        missing = sum(one.param_type_name == "argument" for one in self.params)
        folded: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            folded.append(word)
            if word in takes_value and word.startswith("-") and rest:
                folded.append(rest.pop(0))
                while word in lists and not missing and rest and not rest[0].startswith("-"):
                    folded += [word, rest.pop(0)]
            elif not word.startswith("-"):
                missing = max(0, missing - 1)
        return super().parse_args(ctx, folded)


def choose(
    op: str,
    target: str,
    *,
    pool: str,
    preselected: str,
    expression: str,
    limit: int,
    datatypes: Sequence[str] | None,
    layouts: Sequence[str] | None,
    variants: Sequence[str] | None,
    epilogues: Sequence[str] | None,
    num_d: Sequence[str] | None,
    outputs: Sequence[str] | None,
) -> SpecSet:
    """The specs the options mean; an axis nobody gave is left to the op's default."""
    from tilewright.codegen import collect
    from tilewright.ops import op as op_by_name

    op_by_name(op)  # a wrong op is reported before anything about its options
    axes: dict[str, Any] = {
        "datatypes": words(datatypes),
        "layouts": words(layouts),
        "variants": words(variants),
        "epilogues": words(epilogues),
        "outputs": words(outputs),
        "num_d": numbers("--num-d", num_d),
    }
    return collect(
        op,
        resolve_target(target).name,
        pool=pool,
        preselected=preselected,
        expression=expression,
        limit=limit,
        axes={axis: values for axis, values in axes.items() if values},
    )


def rejection_data(rejection: Rejection) -> dict[str, Any]:
    return {
        "name": rejection.spec.name,
        "spec": rejection.spec.to_dict(),
        "violations": [
            {"rule": one.rule, "message": one.message, "remedy": one.remedy} for one in rejection.violations
        ],
    }


def print_why_not(selection: SpecSet, verbose: bool) -> None:
    """Each rule that refused something with its count and one sentence; every proposal when verbose."""
    if not selection.rejected:
        say("no proposal was rejected")
        return
    from rich.table import Table

    table = Table("rule", "rejected", "for example", "what would work", title=f"{len(selection.rejected)} rejected")
    for rule, (count, example) in selection.rejections_by_rule().items():
        table.add_row(rule, str(count), example.message, example.remedy)
    console().print(table)
    if verbose:
        for rejection in selection.rejected:
            typer.echo(rejection.spec.name)
            for violation in rejection.violations:
                typer.echo(f"  {violation}")


def summary(selection: SpecSet) -> str:
    parts = [f"{len(selection.specs)} specs"]
    if selection.rejected:
        parts.append(f"{len(selection.rejected)} proposals rejected (--why-not lists them)")
    if selection.filtered:
        parts.append(f"{selection.filtered} filtered out")
    return ", ".join(parts)
