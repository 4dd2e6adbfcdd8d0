"""Attention behind the generic contract of `tilewright.runtime.bindings.Binding`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import OP
from tilewright.renames import call_renamed
from tilewright.runtime.bindings import Binding
from tilewright.runtime.bindings.attention import calls, request, stages
from tilewright.runtime.bindings.attention.common import JudgedBinding
from tilewright.runtime.bindings.attention.tables import wrong_table
from tilewright.runtime.requests import Operands, Request, Sample, Slot, StageRequest

if TYPE_CHECKING:
    from tilewright.ops.numerics import Check

__all__ = ["BINDING"]


class AttentionBinding(JudgedBinding):
    op = OP
    slots: tuple[Slot, ...] = stages.SLOTS

    def bind(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        causal: Any = False,
        window: Any = None,
        scale: Any = None,
        mask: Any = None,
        bias: Any = None,
        attn_mask: Any = None,
        alibi_slopes: Any = None,
        softcap: Any = None,
        sink: Any = None,
        sink_tokens: Any = None,
        dropout_p: Any = 0.0,
        seed: Any = None,
        seqlens_q: Any = None,
        seqlens_k: Any = None,
        cu_seqlens_q: Any = None,
        cu_seqlens_k: Any = None,
        max_seqlen_q: Any = None,
        max_seqlen_k: Any = None,
        block_table: Any = None,
        page_size: Any = None,
        kv_layout: Any = None,
        q_scale: Any = None,
        kv_scales: Any = None,
        scale_block: Any = None,
        num_splits: Any = None,
        layout: Any = "bshd",
        return_lse: bool = False,
        out: Any = None,
        out_dtype: Any = None,
        **old: Any,
    ) -> tuple[Operands, Sequence[Any], tuple[Any, ...]]:
        if old:
            bound: tuple[Operands, Sequence[Any], tuple[Any, ...]] = call_renamed(self.bind, calls.RENAMED, locals())
            return bound
        keywords = {name: value for name, value in locals().items() if name not in ("self", "q", "k", "v", "old")}
        return calls.forward(q, k, v, **keywords)

    def request(self, views: Sequence[Any], attributes: tuple[Any, ...], target: str) -> Request:
        return request.build(views, attributes, target)

    def sample(self, problem: AttentionProblem, seed: int = 0, exact: bool = False) -> Sample:
        from tilewright.runtime.bindings.attention import samples

        return samples.sample(problem, seed, exact)

    def dense(self, problem: AttentionProblem) -> Request:
        return stages.alone(problem)

    def describe(self, stages: Sequence[StageRequest]) -> str:
        problem = stages[0].problem
        text: str = (replace(problem, family="forward") if problem.family == "split" else problem).describe()
        return text

    def wrong_table(self, stage: StageRequest, tables: Mapping[str, Any]) -> str:
        return wrong_table(stage, tables)

    def judged(self, problem: AttentionProblem, sample: Sample) -> Callable[[Sample], Check]:
        from tilewright.runtime.bindings.attention import samples

        return samples.judge(problem, sample)


BINDING: Binding = AttentionBinding()
