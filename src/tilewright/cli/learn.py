"""`tilewright learn`: models of kernels' times, trained on what was measured, judged, asked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli.common import AsJson, Summaries, Target, Threads, print_json, say, show, table
from tilewright.errors import FileError, RequestError, TilewrightError, counted

if TYPE_CHECKING:
    from tilewright.dispatch.model import Model
    from tilewright.dispatch.registry import Registry
    from tilewright.dispatch.results import Result
    from tilewright.learn.data import Data
    from tilewright.learn.evaluate import Score
    from tilewright.learn.predictions import Prediction
    from tilewright.ops.base import Op

OpName = Annotated[str, typer.Argument(metavar="OP", help="Name of the op.")]
Sources = Annotated[
    list[Path] | None,
    typer.Option("--data", metavar="FILE", help="A store (.db), table (.csv, .parquet) or packed results (.json.gz); "
                 "several allowed.  [default: this machine's store]", show_default=False),
]  # fmt: skip
Archs = Annotated[str, typer.Option("--target", help="Use only results for this arch.")]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model file written by `train`, or the name of a shipped model.")
]


_SHOWN = 40  # problems that are listed; of more, see the table


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=Summaries,
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Train, evaluate and query learned selection models.",
    )
    group.command("train")(train)
    group.command("evaluate")(evaluate)
    group.command("compare")(compare)
    group.command("pack")(pack)
    help = "Predict the kernel times of a problem with a model."
    _ops.register(group, "predict", help, _predict, _ops.problem_parameters)
    app.add_typer(group, name="learn")


# -- files -----------------------------------------------------------------------------------------------------


def results(op: Op, sources: list[Path] | None, arch: str) -> list[Result]:
    """What was measured of an op, out of stores and tables."""
    from tilewright.dispatch.records import records
    from tilewright.dispatch.results import Results, Unreadable
    from tilewright.learn import packed
    from tilewright.tune import export

    measured: list[Result] = []
    for path in sources or [records().path]:
        if path.suffix in export.FORMATS:
            measured += export.read(path)
            continue
        if path.name.endswith(packed.ENDING):
            measured += packed.read(path)
            continue
        if sources and not path.is_file():
            raise _unusable(path, "there is no such store")
        try:
            measured += Results(path).all(" WHERE p.op = ?", [op.name])
        except Unreadable as error:
            raise _unusable(path, str(error)) from None
    return [result for result in measured if result.op == op.name and (not arch or result.kernel.arch == arch)]


def _unusable(path: Path, why: str) -> FileError:
    return FileError(
        f"{path} cannot be used: {why}",
        rule="results-file",
        value=str(path),
        remedy="give stores (.db) that `bench --store` made, or tables that `bench --output` wrote",
    )


def model_of(path: Path) -> Model:
    from tilewright.dispatch import model_files

    try:
        if not path.exists() and path.name == str(path):
            return model_files.shipped(path.name.removesuffix(model_files.ENDING))
        return model_files.read_file(path)
    except LookupError:
        why = "there is no such file, and no model of that name ships"
    except OSError as error:
        why = error.strerror or str(error)
    raise FileError(
        f"{path} cannot be read: {why}",
        rule="model-file",
        value=str(path),
        remedy=f"name a file that `tilewright learn train` wrote, or one of {', '.join(model_files.shipped_names())}",
    )


def _data(op: Op, sources: list[Path] | None, arch: str, *, to_train: bool) -> Data:
    from tilewright.learn.data import collect

    # To train, what is held out stays out; judged, it is what one wants to know.
    return collect(op, results(op, sources, arch), held=None if to_train else ())


def _demand_some(data: Data) -> None:
    if not data.groups:
        reasons = ", ".join(f"{count} {why}" for why, count in data.left_out.items())
        raise RequestError(
            "there is nothing to judge by" + (f" (left out: {reasons})" if reasons else ""),
            rule="too-little-data",
            value=0,
            remedy="measure: `tilewright bench OP --problems holdout`, and name its store or table with --data",
        )


# -- commands --------------------------------------------------------------------------------------------------


def train(
    op: OpName,
    data: Sources = None,
    target: Archs = "",
    output: Annotated[
        Path | None, typer.Option(help="Output file; default: the cache folder that dispatch reads.")
    ] = None,
    start: Annotated[Path | None, typer.Option(metavar="MODEL", help="Continue training from this model.")] = None,
    trees: Annotated[int, typer.Option(min=1, max=5000)] = 300,
    leaves: Annotated[int, typer.Option(min=2, max=1024)] = 47,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the folds and of LightGBM.")] = 7,
    json: AsJson = False,
) -> None:
    """Train a model on measurements, without held-out problems and their neighbours, and print its accuracy.

    The numbers are of cross-validation by problem: each problem is judged by a model that has not seen it.  Beside them
    stand the estimate and the models that are there already, on problems they have not seen: dispatch does not go by a
    model that one of these beats.
    """
    from tilewright import ops
    from tilewright.dispatch import model_files
    from tilewright.learn import evaluate as judging
    from tilewright.learn import train as training

    training.lightgbm()  # reported before anything is read
    op_object = ops.op(op)
    if output is not None:
        _demand_model_file(output)
    measured = _data(op_object, data, target, to_train=True)
    model = training.train(
        measured, training.Settings(trees=trees, leaves=leaves, seed=seed), None if start is None else model_of(start)
    )
    path = output if output is not None else model_files.folder() / f"{model.card.name}{model_files.ENDING}"
    # One of its name is what it takes the place of.
    others = [other for other in model_files.at_hand() if other.name != model.name]
    model = judging.beside(model, others, measured, training_problems)
    _write(path, model)
    if json:
        print_json({"path": str(path), "card": card_of(model)})
        return
    metrics = model.card.metrics
    _show_scores({model.card.name: metrics["cross_validation"], "the estimate": metrics["estimate"],
                  **metrics.get("others", {})})  # fmt: skip
    if model.unsure:
        say(f"dispatch will not go by it: {model.unsure}")
    if "judged" in model.card.metrics:
        say(f"judged {model.card.metrics['judged']}")
    for why, count in measured.left_out.items():
        say(f"left out: {counted(count, 'row')}, {why}")
    size = path.stat().st_size / 1024
    rows = f"{counted(measured.rows, 'row')} of {counted(len(measured.groups), 'problem')}"
    say(f"{rows}; {size:.0f} KiB written to {path}")


def card_of(model: Model) -> dict[str, Any]:
    from tilewright.ops.base import plain

    card: dict[str, Any] = plain(model.card)
    return {**card, "devices": [dict(device) for device in model.card.devices]}


def _demand_model_file(path: Path) -> None:
    """Said before the work: where no model can be written; a file that is none is left alone."""
    from tilewright.codegen.folder import demand_room, output_error
    from tilewright.dispatch import model_files

    if path.suffix != model_files.ENDING:
        raise RequestError(
            f"{path.name} does not end in {model_files.ENDING}",
            rule="model-name",
            value=str(path),
            remedy=f"name it {path.stem}{model_files.ENDING}",
        )
    try:  # folders are made when there is a model to put there
        there = next(parent for parent in path.absolute().parents if parent.exists())
    except OSError as error:
        raise output_error(path, error) from None
    demand_room(there / path.name)
    if path.exists():
        model_of(path)


def _write(path: Path, model: Model) -> None:
    """The model, and its card beside it for people."""
    import json

    from tilewright.codegen.folder import output_error, write_if_changed
    from tilewright.dispatch import model_files

    _demand_model_file(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(path.parent, error) from None
    model_files.write(path, model)
    card = json.dumps(card_of(model), indent=1, sort_keys=True, default=dict) + "\n"
    write_if_changed(path.with_suffix(".card.json"), card.encode())


def pack(
    op: OpName,
    output: Annotated[Path, typer.Option(metavar="FILE.json.gz", help="Output file.")],
    data: Sources = None,
    target: Archs = "",
) -> None:
    """Pack measurements into one small file, to ship or to train elsewhere."""
    from tilewright import ops
    from tilewright.codegen.folder import demand_room
    from tilewright.dispatch.results import OK
    from tilewright.learn import packed

    if not output.name.endswith(packed.ENDING):
        raise RequestError(
            f"{output.name} does not end in {packed.ENDING}",
            rule="results-name",
            value=str(output),
            remedy=f"name it {output.name.partition('.')[0]}{packed.ENDING}",
        )
    demand_room(output)
    if output.exists():
        packed.read(output)  # a file that is none of ours is left alone
    measured = results(ops.op(op), data, target)
    if not any(result.status == OK and result.seconds for result in measured):
        raise RequestError(
            f"there are no times of {op} to pack",
            rule="too-little-data",
            value=len(measured),
            remedy="measure some: `tilewright bench OP --problems validation`, or name other files with --data",
        )
    count = packed.write(output, ops.op(op).name, measured)
    say(f"{count} times, {output.stat().st_size / 1024:.0f} KiB written to {output}")


def evaluate(
    op: OpName,
    model: ModelFile,
    data: Sources = None,
    target: Archs = "",
    again: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Second measurement of the kernels that were fastest in --data; "
            "its times are used for them, to remove selection bias.",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw each choice beside the fastest.")] = None,
    json: AsJson = False,
) -> None:
    """Compare a model's choices with measurements and with the analytic estimate, by problem family."""
    from tilewright import ops
    from tilewright.learn import evaluate as judged
    from tilewright.learn.plot import scatter

    trained = _of_op(model_of(model), op)
    if plot is not None:
        _demand_picture(plot)
    measured = _data(ops.op(op), data, target, to_train=False)
    _demand_some(measured)
    choices, guesses = judged.by_model(trained, measured), judged.by_estimate(measured)
    if again:
        second = _data(ops.op(op), again, target, to_train=False)
        choices, guesses = (judged.again(chosen, measured, second) for chosen in (choices, guesses))
    scores = {"model": judged.score(choices), "estimate": judged.score(guesses)}
    silent = judged.unspoken(trained, measured)
    if plot is not None:
        from tilewright.codegen.folder import write_if_changed

        write_if_changed(plot, scatter(choices, trained.card.name).encode())
    _print_scores(scores, measured, trained, silent, json=json)


def _demand_picture(path: Path) -> None:
    """Said before the work: a file that is there and no picture of ours is left alone."""
    from tilewright.codegen.folder import demand_replaceable, demand_room
    from tilewright.learn.plot import MARK

    if path.suffix != ".svg":
        raise RequestError(
            f"{path.name!r} is no name of a picture", rule="plot-name", value=str(path), remedy="end it in .svg"
        )
    demand_room(path)
    demand_replaceable(path, MARK.encode())


def _print_scores(scores: dict[str, Score], data: Data, model: Model, silent: dict[str, int], *, json: bool) -> None:
    if json:
        print_json(
            {**{name: score.to_dict() for name, score in scores.items()}, "rows": data.rows, "left_out": data.left_out,
             **_known(model, data), "silent": silent}
        )  # fmt: skip
        return
    _show_scores({name: score.to_dict() for name, score in scores.items()})
    for why, count in silent.items():
        say(f"{count} problems: dispatch would go by the estimate: {why}")
    _warn_of_known(model, data, "")


def _known(model: Model, data: Data) -> dict[str, Any]:
    """Whether a model was trained on these rows, and how many of the problems it has seen; None: it does not say."""
    known = training_problems(model)
    again = None if known is None else sum(problem in known for problem in data.seen)
    return {"trained_on_these": data.digest == model.card.data.get("digest"), "seen_in_training": again}


def _warn_of_known(model: Model, data: Data, who: str) -> None:
    known = _known(model, data)
    if known["trained_on_these"]:
        say(f"{who}these are the rows it was trained on: they say nothing of other problems")
    elif known["seen_in_training"]:
        seen = known["seen_in_training"]
        say(f"{who}it has seen {seen} of the {len(data.groups)} problems in training: of those it says nothing new")


def training_problems(model: Model) -> frozenset[str] | None:
    from tilewright.learn.train import seen_by

    return seen_by(model)


def _of_op(model: Model, op: str) -> Model:
    if model.card.op != op:
        raise RequestError(
            f"the model {model.card.name} is for {model.card.op}",
            rule="model-op",
            value=op,
            remedy=f"ask for {model.card.op}",
        )
    return model


def compare(
    op: OpName,
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL...", help="Files that `train` wrote, or tables of predictions (.csv)."),
    ],
    data: Sources = None,
    target: Archs = "",
    json: AsJson = False,
) -> None:
    """Compare several models, or predictions that `predict --output` wrote, and the estimate on the same problems."""
    from tilewright import ops
    from tilewright.learn import evaluate as judged
    from tilewright.learn import predictions

    tables = {str(path): predictions.read(path, op) for path in models if path.suffix == predictions.ENDING}
    by_path = {str(path): _of_op(model_of(path), op) for path in models if str(path) not in tables}
    measured = _data(ops.op(op), data, target, to_train=False)
    _demand_some(measured)
    scores = {name: judged.score(judged.by_model(model, measured)).to_dict() for name, model in by_path.items()}
    for name, predicted in tables.items():
        chosen = predictions.judged(measured, predicted)
        if not chosen:
            raise RequestError(
                f"{name} predicts none of the problems that were measured", rule="predictions-file", value=name,
                remedy="measure the problems it was made for (`bench --problems`), or predict those of --data",
            )  # fmt: skip
        if len(chosen) < len(measured.groups) and not json:
            say(f"{name}: of {len(measured.groups)} problems it has {len(chosen)}")
        scores[name] = judged.score(chosen).to_dict()
    scores["estimate"] = judged.score(judged.by_estimate(measured)).to_dict()
    if json:
        known = {name: _known(model, measured) for name, model in by_path.items()}
        print_json({"scores": scores, "rows": measured.rows, "left_out": measured.left_out, "known": known})
        return
    _show_scores(scores)
    for name, model in by_path.items():
        for why, count in judged.unspoken(model, measured).items():
            say(f"{name}: {count} problems: dispatch would go by the estimate: {why}")
        _warn_of_known(model, measured, f"{name}: ")


def _show_scores(scores: dict[str, Any]) -> None:
    numbers = ("mean", "p10", "worst", "top1", "top5")
    shown = table("problems", *numbers, "family", "by", fold=["by"], right=["problems", *numbers])
    for name, score in scores.items():
        for family, each in {"all": score, **score.get("families", {})}.items():
            shown.add_row(str(each["problems"]), *(f"{each[word]:.1%}" for word in numbers), family, name)
    show(shown)


def _predict(
    op: Any,
    values: dict[str, Any],
    model: Annotated[Path, typer.Option(metavar="MODEL", help="Model file written by `train`, or a shipped model.")],
    problems: Annotated[
        str, typer.Option("--problems", metavar="SET|FILE", help="Predict a set of problems instead of one.")
    ] = "",
    predictions: Annotated[
        Path | None,
        typer.Option("--table", "--output", metavar="FILE.csv", help="With --problems: write a table of all kernels."),
    ] = None,
    target: Target = "",
    threads: Threads = 0,
    json: AsJson = False,
) -> None:
    """Predict the times of the kernels that serve a problem, fastest first; nothing is compiled or run.

    Of a set of problems, which kernel it would choose for each; `learn compare` judges the table of all.
    """
    from tilewright.cli._problems import problem_of, registry_for, table_of

    trained = _of_op(model_of(model), op.name)
    where = target or trained.card.targets[0]
    if problems:
        predictions = predictions or table_of(values)
        with registry_for(where, threads, to_run=False) as registry:
            _say_whose_times(trained, registry.target)
            _predict_set(registry, op, problems, values, trained, predictions, json=json)
        return
    if predictions is not None:
        raise RequestError(
            "--output is for sets of problems", rule="option-without-set", value="--output",
            remedy="give --problems too, or leave it out",
        )  # fmt: skip
    with registry_for(where, threads, to_run=False) as registry:
        _say_whose_times(trained, registry.target)
        stages = registry.stages(problem_of(op, values, registry.arch).problem)
        listed = [each for stage in stages for each in _predicted(registry, op, stage, trained)]
    if json:
        print_json({"sigma": trained.card.sigma, "kernels": [_as_row(each) for each in listed]})
        return
    _show_predictions(listed)
    if any(each.predicted is None for each in listed):
        say("-: not predicted, its estimate is too far from the lowest")


def _as_row(each: Prediction) -> dict[str, Any]:
    return {"problem": each.problem.describe(), "kernel": each.kernel, "predicted": each.predicted,
            "estimated": each.estimated}  # fmt: skip


def _show_predictions(listed: list[Prediction], *, problem: bool = False) -> None:
    numbers = ("predicted us", "estimated us")
    columns = ("problem", "kernel") if problem else ("kernel",)
    shown = table(*numbers, *columns, fold=columns, right=numbers)
    for each in listed:
        predicted = "-" if each.predicted is None else f"{each.predicted * 1e6:.1f}"
        named = (each.problem.describe(), each.kernel) if problem else (each.kernel,)
        shown.add_row(predicted, f"{each.estimated * 1e6:.1f}", *named)
    show(shown)


def _predict_set(
    registry: Registry, op: Op, word: str, values: dict[str, Any], model: Model, path: Path | None, *, json: bool
) -> None:
    from tilewright.cli import _sweep
    from tilewright.learn import predictions

    if path is not None:
        predictions.demand_writable(path)
    listed: list[Prediction] = []
    silent: dict[str, int] = {}
    for problem in _sweep.problems(op, word, values, registry.arch):
        try:
            for stage in registry.stages(problem):
                listed += _predicted(registry, op, stage, model)
        except TilewrightError as error:  # it does not speak of such a problem, or no kernel serves it
            silent[error.message] = silent.get(error.message, 0) + 1
    chosen = list({each.problem: each for each in reversed(listed)}.values())[::-1]
    if path is not None and listed:
        count = predictions.write(path, listed)
        say(f"{count} problems, {len(listed)} kernels: written to {path}")
    if json:
        print_json({"sigma": model.card.sigma, "chosen": [_as_row(each) for each in chosen], "silent": silent})
    elif chosen:
        _show_predictions(chosen[:_SHOWN], problem=True)
        if len(chosen) > _SHOWN:
            say(f"and {len(chosen) - _SHOWN} more problems")
    for why, number in silent.items():
        say(f"{number} problems: {why}")
    if not listed:
        raise RequestError(
            "the model speaks of none of these problems", rule="model-silent", value=model.card.name,
            remedy="train a model for such problems on this device; dispatch goes by the estimate",
        )  # fmt: skip


def _device_of(model: Model, target: str) -> dict[str, Any]:
    """The device a model is asked about: this machine's where it knows that one, else its own."""
    from tilewright.dispatch.learned import same_device
    from tilewright.dispatch.records import machine

    here, known = machine(target), model.card.devices
    if not known or any(same_device(each, here) for each in known):
        return here
    return dict(known[0])


def _say_whose_times(model: Model, target: str) -> None:
    """What a user of a machine that has another device of the target would else take for times of this one."""
    from tilewright.dispatch.model import device_words
    from tilewright.dispatch.records import machine

    device, here = _device_of(model, target), machine(target)
    if here and device != here and target in model.card.targets:
        say(f"times are those of {device_words(device)}; dispatch on this device does not ask the model")


def _predicted(registry: Registry, op: Op, stage: Any, model: Model) -> list[Prediction]:
    from tilewright.dispatch import model as models
    from tilewright.dispatch.records import threads_of
    from tilewright.learn.data import estimates_of, units_of
    from tilewright.learn.predictions import Prediction
    from tilewright.runtime.host import thread_count

    problem, target = op.measured_as(stage), registry.target
    where = _device_of(model, target)
    specs = [candidate for candidate in registry.candidates(stage) if not op.supports(candidate, stage)]
    threads = threads_of(target, thread_count())
    guesses = estimates_of(specs, problem, threads).tolist()
    verdict = models.ask([model], specs, problem, units_of(target, threads), guesses, where) if specs else None
    if verdict is None or verdict.seconds is None:
        raise RequestError(
            verdict.why_not if verdict is not None else f"no kernel serves {stage.describe()} as it is",
            rule="model-silent",
            value=model.card.name,
            remedy="train a model for such problems on this device; dispatch goes by the estimate",
        )
    rows = zip(verdict.seconds.tolist(), guesses, specs, strict=True)
    return [
        Prediction(stage, spec.name, spec.digest, seconds if math.isfinite(seconds) else None, guess)
        for seconds, guess, spec in sorted(rows, key=lambda row: row[:2])
    ]
