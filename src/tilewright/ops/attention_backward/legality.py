"""The one place that says no to a spec of attention's gradients.

Rules common to all targets are in `ops.attention_legality` and `ops.rules`; each arch family adds its own from its
module, which has

    SCHEDULES            the dataclasses of its schedules
    RULES                functions of signature, schedule and arch that yield violations
    signature_rules      why the arch has no kernel for a signature, whatever the schedule
    limits               problems a legal kernel was not made for
    schedules            what a pool proposes for a signature
    fallback_schedule    the fallback's
    accumulates          which results are fp32 accumulators between two stages (`family.py`)
    POOLS                optional: pools of its own, each with a sentence; then there are
    pool_signatures      what such a pool is for where nothing is named
    pool_rules           why it has nothing of a signature
    USUAL                optional: the element type that pools are meant for where none is named; fp32 where missing
"""

from __future__ import annotations

from tilewright.ops import rules
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.problem_rules import problem_violations
from tilewright.ops.attention_backward.spec import FAMILIES, OP, WORDS, AttentionBackwardSignature, normalized
from tilewright.ops.attention_legality import common_rules
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.spaces import Spaces

SPACES = Spaces(OP)
COMMON = common_rules(WORDS, ("dtype", "dtype_aux"), FAMILIES, normalized)
LEGALITY = rules.Legality(OP, SPACES, COMMON.rules, problem_violations, AttentionBackwardSignature, COMMON.of_signature)
check, is_legal, problem_check, spec_from_dict = (
    LEGALITY.check,
    LEGALITY.is_legal,
    LEGALITY.problem_check,
    LEGALITY.spec_from_dict,
)
legal_schedules = LEGALITY.legal_schedules


def supports(spec: KernelSpec, problem: AttentionBackwardProblem) -> list[Violation]:
    """Why this kernel cannot serve this problem; the C check of the built kernel agrees (tested)."""
    if not problem.family:
        return [Violation("stage", "a kernel computes one stage of the problem", "select a kernel for each stage")]
    return LEGALITY.supports(spec, problem)
