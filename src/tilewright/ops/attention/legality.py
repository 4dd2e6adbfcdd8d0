"""The one place that says no to an attention spec.

Rules common to all targets are in `ops.attention_legality` and `ops.rules`; each arch family adds its own from its
module, which has

    SCHEDULES            the dataclasses of its schedules
    RULES                functions of signature, schedule and arch that yield violations
    signature_rules      why the arch has no kernel for a signature, whatever the schedule
    limits               problems a legal kernel was not made for
    schedules            what a pool proposes for a signature
    fallback_schedule    the fallback's
    USUAL                optional: the type of q that pools are meant for where none is named; fp32 where missing
    POOLS                optional: names of more pools it has, each with a sentence
    pool_signatures      optional, of one of these and an arch: its signatures where no axis is named
"""

from __future__ import annotations

from tilewright.ops import rules
from tilewright.ops.attention.problem_rules import problem_violations
from tilewright.ops.attention.spec import FAMILIES, OP, WORDS, AttentionSignature, normalized
from tilewright.ops.attention_legality import common_rules
from tilewright.ops.spaces import Spaces

SPACES = Spaces(OP)
COMMON = common_rules(WORDS, ("dtype_q", "dtype_kv", "dtype_out", "dtype_aux"), FAMILIES, normalized)
LEGALITY = rules.Legality(OP, SPACES, COMMON.rules, problem_violations, AttentionSignature, COMMON.of_signature)
check, is_legal, problem_check, supports = LEGALITY.check, LEGALITY.is_legal, LEGALITY.problem_check, LEGALITY.supports
legal_schedules = LEGALITY.legal_schedules
spec_from_dict, family_of = LEGALITY.spec_from_dict, LEGALITY.family_of
