"""A pool asked for without features holds kernels for every stage of its target's plans."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright.errors import NoKernelError
from tilewright.ops.attention_backward import pools

PROBLEM = tw.AttentionBackwardProblem(4, 32, 2048, 2048, 128, dtype="bf16", window_right=0)


def stages(registry: tw.Registry, heads_kv: int, window_right: int, head_dim: int) -> list[str]:
    problem = tw.AttentionBackwardProblem(
        batch=4, heads_q=32, heads_kv=heads_kv, seqlen_q=2048, seqlen_k=2048, head_dim=head_dim, dtype="bf16",
        window_right=window_right,
    )  # fmt: skip
    selection = registry.select(problem)
    return [f"{stage.spec.signature.family} {stage.spec.schedule.pipeline}" for stage in selection.stages]


@pytest.mark.parametrize("pool", ["tiny", "default"])
@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942", "x86_64_v3"])
def test_a_kernel_set_of_a_pool_needs_no_fallback(target: str, pool: str) -> None:
    """Plans that leave sums to `convert` got the fallback kernels alone: pools held neither."""
    for head_dim in (64, 128):
        registry = tw.Registry(target)
        registry.add_pool("attention_backward", pool, datatypes=("bf16",), heads=(str(head_dim),))
        for heads_kv in (32, 8):
            for window_right in (-1, 0):
                chosen = stages(registry, heads_kv, window_right, head_dim)
                assert not any("loops" in each for each in chosen), chosen
                if pool == "default":  # the kernels that a call without a kernel set is given
                    assert chosen == stages(tw.Registry(target), heads_kv, window_right, head_dim)


@pytest.mark.parametrize(
    ("target", "features", "pipelines"),
    [
        ("sm_90a", ("window",), ["dot rows", "grad mma"]),  # no sums: two stages
        ("sm_90a", ("window+accum_dq",), ["dot rows", "grad ws", "convert rows"]),
        ("sm_90a", ("window+accum_all",), ["dot rows", "grad ws", "convert rows"]),
        ("gfx942", ("window",), ["dot rows", "grad tiled"]),
        ("gfx942", ("window+accum_all",), ["dot rows", "grad kr_ktr_vr", "convert rows"]),
    ],
)
def test_the_features_of_a_kernel_set_decide_the_plan(
    target: str, features: tuple[str, ...], pipelines: list[str]
) -> None:
    """The heuristic's plan was taken whatever was registered, and its stages ran on fallback kernels."""
    registry = tw.Registry(target)
    registry.add_pool("attention_backward", datatypes=("bf16",), heads=("128",), features=features)
    for heads_kv in (32, 8):
        assert stages(registry, heads_kv, 0, 128) == pipelines


def test_a_plan_that_kernels_serve_partly_leaves_the_least_work_to_the_fallback() -> None:
    registry = tw.Registry("sm_90a")
    registry.add_pool("attention_backward", datatypes=("bf16",), families=("grad",), features=("window",))
    assert stages(registry, 32, 0, 128) == ["dot loops", "grad mma"]
    explanation = registry.explain(PROBLEM)
    assert (
        "no accumulators by heuristic: the registered kernels do not serve accumulators of dq" in explanation.split_plan
    )
    with pytest.raises(NoKernelError):
        registry.select(PROBLEM, strict=True)


def test_convert_is_proposed_where_sums_are_left() -> None:
    def families(target: str, **axes: tuple[str, ...]) -> set[str]:
        return {spec.signature.family for spec in pools.proposals("default", target, **axes)}

    assert families("sm_90a") == {"dot", "grad", "convert"}
    assert families("sm_90a", features=("accum_dq",)) == {"dot", "grad", "convert"}
    assert families("sm_90a", features=("window",)) == {"dot", "grad"}
    assert families("sm_90a", families=("grad",)) == {"grad"}
    assert families("sm_90a", datatypes=("fp32",)) == families("x86_64_v3") == {"dot", "grad"}
