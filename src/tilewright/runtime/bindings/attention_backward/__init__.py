"""Attention's gradients behind the generic contract of `tilewright.runtime.bindings.Binding`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import OP
from tilewright.runtime.bindings import Binding
from tilewright.runtime.bindings.attention.common import JudgedBinding
from tilewright.runtime.bindings.attention.tables import wrong_rows
from tilewright.runtime.bindings.attention_backward import calls, request, stages
from tilewright.runtime.requests import Operands, Request, Sample, Slot, StageRequest

if TYPE_CHECKING:
    from tilewright.ops.numerics import Check

__all__ = ["BINDING"]


class AttentionBackwardBinding(JudgedBinding):
    op = OP
    slots: tuple[Slot, ...] = stages.SLOTS

    def bind(
        self,
        dout: Any,
        q: Any,
        k: Any,
        v: Any,
        out: Any,
        lse: Any,
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
        q_scale: Any = None,
        kv_scales: Any = None,
        kv_layout: Any = None,
        layout: Any = "bshd",
        dlse: Any = None,
        deterministic: Any = False,
        return_dbias: Any = False,
        return_dsink: Any = False,
        return_dalibi: Any = False,
        dq: Any = None,
        dk: Any = None,
        dv: Any = None,
        dbias: Any = None,
        dsink: Any = None,
        dalibi: Any = None,
    ) -> tuple[Operands, Sequence[Any], tuple[Any, ...]]:
        positional = ("self", "dout", "q", "k", "v", "out", "lse")
        keywords = {name: value for name, value in locals().items() if name not in (*positional, "positional")}
        return calls.backward(dout, q, k, v, out, lse, **keywords)

    def request(self, views: Sequence[Any], attributes: tuple[Any, ...], target: str) -> Request:
        return request.build(views, attributes, target)

    def sample(self, problem: AttentionBackwardProblem, seed: int = 0, exact: bool = False) -> Sample:
        from tilewright.runtime.bindings.attention_backward import samples

        return samples.sample(problem, seed)

    def dense(self, problem: AttentionBackwardProblem) -> Request:
        return stages.alone(problem)

    def describe(self, stages: Sequence[StageRequest]) -> str:
        problems = [stage.problem for stage in stages]
        problem = next((problem for problem in problems if problem.family == "grad"), problems[0])
        text: str = (replace(problem, family="") if len(problems) > 1 else problem).describe()
        return text

    def wrong_table(self, stage: StageRequest, tables: Mapping[str, Any]) -> str:
        args: Any = stage.args
        wrong = wrong_rows("q", tables, args.batch, args.rows, args.total_rows)
        if wrong or stage.problem.family == "dot":
            return wrong
        return wrong_rows("k", tables, args.batch, args.keys, args.total_keys)

    def judged(self, problem: AttentionBackwardProblem, sample: Sample) -> Callable[[Sample], Check]:
        from tilewright.runtime.bindings.attention_backward import samples

        return samples.judge(problem, sample)


BINDING: Binding = AttentionBackwardBinding()
