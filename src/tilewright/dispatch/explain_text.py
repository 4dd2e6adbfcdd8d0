"""An explanation as text: the answer first and short, or every candidate with its reasons.

The short form has at most `MOST_LINES` lines: the kernel, its tier, why, its time, a few runner-ups, and how many
kernels were dropped by which rule.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tilewright.dispatch.selection import StagedSelection

if TYPE_CHECKING:
    from tilewright.dispatch.selection import Candidate, Explanation

MOST_LINES = 25
MOST_RUNNER_UPS = 3
MOST_RULES = 4
MOST_NOTES = 2  # of remarks, and of records that do not count
MOST_EXAMPLE = 110  # letters of a rule's words
_BY_CALL = "call"  # the arrays of a call refuse a kernel without a rule of the op


def short(explanation: Explanation, rows: Callable[[str], int] = lambda line: 1) -> str:
    """The answer: what runs, why, how long it takes, what was nearly chosen, and what was dropped.

    `rows` says how many rows of a screen a line takes: what there is no room for is left to the long form.
    """
    head = [*_answer(explanation), *_question(explanation)]
    tail = [f"replay    {explanation.replay}", "more      every candidate: --all, or print(explanation.full())"]
    room = MOST_LINES - sum(map(rows, [*head, *tail]))
    rest = []
    for line in _dropped_stages(explanation) if explanation.stages else _alternatives(explanation):
        room -= rows(line)
        if room < 0:
            break
        rest.append(line)
    return "\n".join([*head, *rest, *tail])


def whole(explanation: Explanation) -> str:
    """The answer, then every candidate."""
    lines = [*_answer(explanation), *_question(explanation)]
    for number, stage in enumerate(explanation.stages, 1):
        lines += [f"stage {number}   {stage.problem.describe()}", *_candidates(stage)]
    lines += [] if explanation.stages else _candidates(explanation)
    return "\n".join([*lines, f"replay    {explanation.replay}"])


def _question(explanation: Explanation) -> list[str]:
    strict = ", strict" if explanation.strict else ""
    threads = f", {_count(explanation.threads, 'thread')}" if explanation.on_host else ""
    lines = [f"problem   {explanation.problem.describe()}", f"target    {explanation.target}{threads}{strict}"]
    return [*lines, f"stages    {explanation.split_plan}"] if explanation.split_plan else lines


def _answer(explanation: Explanation) -> list[str]:
    """What runs, its tier, why and its time; or why nothing does."""
    selection = explanation.selection
    stages = [line for number, stage in enumerate(explanation.stages, 1) for line in _stage_answer(number, stage)]
    if selection is None:
        return ["chosen    none", f"why       {explanation.decided}", *stages]
    if isinstance(selection, StagedSelection):
        total = f"{_count(len(selection.stages), 'kernel')} in sequence, {duration(selection.seconds)} in total"
        return [f"chosen    {total}", f"tier      {selection.tier}", *stages]
    winner = _winner(explanation)
    lines = [f"chosen    {selection.name}", f"tier      {selection.tier}", f"why       {selection.reason}"]
    if winner is None:
        return lines
    times = _times(winner)
    built = "built" if winner.built else "compiled on first use"
    lines.append(f"time      {', '.join([*times, built])}")
    return lines + [f"note      {reason}" for reason in winner.reasons[:MOST_NOTES]]


def _winner(explanation: Explanation) -> Candidate | None:
    return next((each for each in explanation.candidates if each.verdict == "chosen"), None)


def _stage_answer(number: int, stage: Explanation) -> list[str]:
    """One stage in three lines, its tier before the reason."""
    winner = _winner(stage)
    if winner is None:
        return [f"stage {number}   none", f"  why     {stage.decided}"]
    return [f"stage {number}   {winner.name}", f"  why     {stage.decided}", f"  time    {', '.join(_times(winner))}"]


def _alternatives(explanation: Explanation) -> list[str]:
    """What else serves the problem, what was dropped, and what was not listened to."""
    serving, winner = ranked(explanation.candidates), _winner(explanation)
    lines = [f"kernels   {explanation.source}"]
    if serving:
        lines.append(f"behind    {_count(len(serving), 'kernel')} that would serve it too")
        ratios = [(_ratio(each, winner), each) for each in serving[:MOST_RUNNER_UPS]]
        width = max(6, *(len(ratio) for ratio, _ in ratios))
        lines += [f"  {ratio:>{width}}  {_named(each)}" for ratio, each in ratios]
    if explanation.model:
        lines.append(f"model     {explanation.model}")
    lines += _few([f"model     {remark}" for remark in explanation.models], "remark")
    lines += _few([f"records   {record}" for record in explanation.unused_records], "record")
    return lines + _dropped(explanation.candidates)


def _dropped_stages(explanation: Explanation) -> list[str]:
    lines = []
    for number, stage in enumerate(explanation.stages, 1):
        serving, dropped = ranked(stage.candidates), _rules(stage.candidates)
        text = f"others {number}  {len(serving)} behind, {sum(dropped.values())} dropped"
        lines.append(text + (f" ({_listed(dropped)})" if dropped else ""))
    return lines


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The kernels that serve the problem and were not chosen, the nearest first."""
    candidates = list(candidates)
    serving = [each for each in candidates if each.verdict not in ("chosen", "refused")]
    winner = next((each for each in candidates if each.verdict == "chosen"), None)
    # A kernel that a model does not know was chosen by its estimate: predictions of others do not compare with that.
    first = 0 if winner is None else _best_kind(_seconds(winner)) % len(_seconds(winner))

    def order(candidate: Candidate) -> tuple[int, float, str]:
        """Those known as the chosen one is first, then by the best source: times of different kinds do not compare."""
        every = _seconds(candidate)
        known = (*every[first:], *every[:first])
        kind = _best_kind(known)
        return kind, known[kind] or 0.0 if kind < len(known) else 0.0, candidate.name

    return sorted(serving, key=order)


def _best_kind(known: tuple[float | None, ...]) -> int:
    """The place of the first time that is known; the number of places where none is."""
    return next((place for place, seconds in enumerate(known) if seconds is not None), len(known))


def _ratio(candidate: Candidate, winner: Candidate | None) -> str:
    """Its time as a multiple of the chosen kernel's, known in the same way."""
    pairs = zip(_seconds(candidate), _seconds(winner), strict=True) if winner is not None else ()
    ratios = [mine / best for mine, best in pairs if mine is not None and best]
    if not ratios:
        return "?"
    return f"{ratios[0]:.2f}x" if ratios[0] < 100 else f"{ratios[0]:.0f}x"


def _named(candidate: Candidate) -> str:
    return candidate.name + ("  (within the noise)" if candidate.verdict == "tied" else "")


def _rules(candidates: Iterable[Candidate]) -> Counter[str]:
    """How many kernels each rule dropped; a kernel counts for the first rule it broke."""
    dropped = (each for each in candidates if each.verdict == "refused")
    return Counter(each.rules[0] if each.rules else _BY_CALL for each in dropped)


def _dropped(candidates: Sequence[Candidate]) -> list[str]:
    counts = _rules(candidates)
    if not counts:
        return []
    lines = [f"dropped   {_count(sum(counts.values()), 'kernel')} by {_count(len(counts), 'rule')}"]
    for rule, count in counts.most_common(MOST_RULES):
        example = next(
            each.reasons[0]
            for each in candidates
            if each.verdict == "refused" and (each.rules[0] if each.rules else _BY_CALL) == rule
        )
        example = example if example.startswith("[") else f"[{rule}] {example}"
        lines.append(f"  {count:>6}  {textwrap.shorten(example, MOST_EXAMPLE, placeholder=' ...')}")
    if len(counts) > MOST_RULES:
        lines.append(f"          and {len(counts) - MOST_RULES} more")
    return lines


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} [{rule}]" for rule, count in counts.most_common(MOST_RULES))


def _few(lines: list[str], noun: str) -> list[str]:
    if len(lines) <= MOST_NOTES:
        return lines
    return [*lines[:MOST_NOTES], f"          and {_count(len(lines) - MOST_NOTES, f'more {noun}')}"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def duration(seconds: float) -> str:
    """A time for people: microseconds, as tables have them, unless it is so long that nobody reads the digits."""
    for limit, unit, factor in ((0.1, "us", 1e6), (10.0, "ms", 1e3)):
        if seconds < limit:
            return f"{seconds * factor:.1f} {unit}"
    return f"{seconds:.1f} s"


def _seconds(candidate: Candidate) -> tuple[float | None, float | None, float | None]:
    """What is known of its time, the best knowledge first."""
    return candidate.measured_seconds, candidate.predicted_seconds, candidate.estimated_seconds


def _times(candidate: Candidate) -> list[str]:
    known = zip(("measured", "predicted", "estimated"), _seconds(candidate), strict=True)
    return [f"{label} {duration(seconds)}" for label, seconds in known if seconds is not None]


def _candidates(explanation: Explanation) -> list[str]:
    lines = [f"kernels   {explanation.source}"]
    for candidate in explanation.candidates:
        note = ", ".join([*_times(candidate), *(["built"] if candidate.built else [])])
        lines.append(f"  {candidate.verdict:<8}  {candidate.name}" + (f"  ({note})" if note else ""))
        lines += [f"            {reason}" for reason in candidate.reasons]
    lines += [f"model     {remark}" for remark in (explanation.model, *explanation.models) if remark]
    return lines + [f"records   {record}" for record in explanation.unused_records]
