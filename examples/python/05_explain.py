"""Why this kernel?  The answer first, every candidate with its reason on request; nothing is compiled for it."""

from __future__ import annotations

import json

import tilewright as tw


def main() -> None:
    problem = tw.GemmProblem(m=3, n=500, k=700)
    explanation = tw.explain(problem)
    print(explanation)  # the answer, in at most 25 lines
    print(len(explanation.full().splitlines()), "lines with every candidate: `tilewright explain --all`")
    assert explanation.selection is not None
    assert any(one.verdict == "chosen" for one in explanation.candidates)
    assert all(one.reasons for one in explanation.candidates if one.verdict != "chosen"), "each has a reason"

    # The same as data, for tools.
    print("as data:", json.dumps(explanation.to_dict()["chosen"]))

    # A registry with a single kernel that has no edge code: dispatch is total, so an odd problem
    # falls to the padded tier and says so; strict mode refuses instead.
    from dataclasses import replace

    registry = tw.Registry()
    registry.add_pool("gemm", "tiny", layouts=("rrr",))
    packed = next(spec for spec in registry.specs() if spec.schedule.pipeline == "packed")
    exact_sizes_only = replace(packed, schedule=replace(packed.schedule, pad=(False, False, False)))
    small = tw.Registry(specs=[exact_sizes_only])
    chosen = small.select(tw.GemmProblem(m=33, n=65, k=17))
    print(f"tier {chosen.tier}: {chosen.reason}")
    assert chosen.tier == "padded"
    try:
        small.select(tw.GemmProblem(m=33, n=65, k=17), strict=True)
    except tw.errors.NoKernelError as error:
        print(f"strict mode:\n{error}")
    else:
        raise AssertionError("strict mode accepted a fallback")


if __name__ == "__main__":
    main()
