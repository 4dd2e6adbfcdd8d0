"""The op by itself: what it proposes is legal, what it refuses is named, what it writes it reads back."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest
from hypothesis import given

from tests.conv.conftest import CONV
from tests.conv.drawing import convolutions
from tilewright.arch import all_archs
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cpu.conv import KERNELS as CPU_KERNELS
from tilewright.backends.cpu.conv.shared import CpuConvFamily
from tilewright.backends.cuda.conv import KERNELS as NVIDIA_KERNELS
from tilewright.backends.hip.conv import KERNELS as AMD_KERNELS
from tilewright.dispatch.registry import Registry
from tilewright.errors import RequestError, UnknownNameError
from tilewright.ops import derived_pools
from tilewright.ops.base import KernelSpec, Op, Violation, plain
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.spec import VARIANTS, ConvSignature

CPU, NVIDIA, AMD = "x86_64_v3", "sm_90a", "gfx942"
ARCHS = (CPU, "generic", "x86_64_v4", NVIDIA, "sm_80", AMD, "gfx1100")
LAYER = {"batch": 2, "channels": 8, "filters": 16, "size": "9x7", "window": "3", "padding": "1"}


def test_it_is_an_op_and_the_families_keep_their_contract() -> None:
    assert isinstance(CONV, Op)
    for module in (CPU_KERNELS, NVIDIA_KERNELS, AMD_KERNELS):
        for name in ("SCHEDULES", "RULES", "signature_rules", "limits", "schedules", "fallback_schedule"):
            assert hasattr(module, name), f"{module} lacks {name}"
        kinds: tuple[Any, ...] = module.SCHEDULES
        for kind in kinds:
            assert kind.pipelines
            assert set(kind.choices) | set(kind.may_be_zero) <= {one.name for one in dataclasses.fields(kind)}
        names = [name for kind in kinds for name in kind.pipelines]
        assert len(names) == len(set(names)), "a pipeline belongs to one schedule"


# -- pools ---------------------------------------------------------------------------------------------------------


def specs(pool: str, arch: str, **axes: Any) -> list[KernelSpec]:
    return list(CONV.proposals(pool, arch, **axes))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_pools_are_legal_or_refused_by_name(arch: str, variant: str) -> None:
    for pool in ("default", "tiny", "tests"):
        found = specs(pool, arch, variants=(variant,), spatial=(2, 3), datatypes=("bf16",))
        assert found
        for spec in found:
            assert CONV.spec_from_dict(json.loads(spec.to_json())) == spec
            assert all(one.rule and one.message for one in CONV.check(spec))
        assert {one.signature.spatial for one in found if not CONV.check(one)} == {2, 3}


@pytest.mark.parametrize("arch", [CPU, NVIDIA, AMD])
@pytest.mark.parametrize("variant", VARIANTS)
def test_few_are_real_subsets_of_full(arch: str, variant: str) -> None:
    legal = [one for one in specs("full", arch, variants=(variant,)) if not CONV.check(one)]
    tests, tiny = specs("full-tests", arch, variants=(variant,)), specs("tiny", arch, variants=(variant,))
    assert set(tiny) <= set(tests) <= set(legal)
    assert len(tests) == len(set(tests))
    pipelines = {one.schedule.pipeline for one in legal}
    assert {one.schedule.pipeline for one in tiny} == pipelines
    assert len(tiny) == len(pipelines)
    assert {derived_pools.kind(one.schedule) for one in tests} == {derived_pools.kind(one.schedule) for one in legal}
    kinds = len({derived_pools.kind(one.schedule) for one in legal})
    assert len(tests) <= len(legal) / derived_pools.SHARE + kinds
    default = {one for one in specs("default", arch, variants=(variant,)) if not CONV.check(one)}
    assert default
    assert {one for one in specs("tests", arch, variants=(variant,)) if not CONV.check(one)} == default | set(tiny)


@pytest.mark.parametrize("arch", [CPU, NVIDIA, AMD])
@pytest.mark.parametrize("pool", ["full-tests", "tiny"])
def test_where_nothing_is_legal_a_subset_still_says_which_rule_spoke(arch: str, pool: str) -> None:
    for axes, rule in (({"spatial": (4,)}, "kernel-rank"), ({"datatypes": ("fp8_e4m3",)}, "dtype-input")):
        found = specs(pool, arch, **axes)
        assert found
        assert all(rule in {one.rule for one in CONV.check(spec)} for spec in found)


def test_a_subset_is_drawn_evenly_from_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a family with more kernels than any has today."""

    @dataclasses.dataclass(frozen=True)
    class Made:
        pipeline: str
        wide: bool
        tile: int
        pipelines = ("a", "b")
        choices = {"pipeline": ("a", "b")}  # noqa: RUF012
        may_be_zero = ()

        def label(self) -> str:
            return f"{self.pipeline}{self.tile}"

    every = [Made(name, wide, tile) for name in "ab" for wide in (False, True) for tile in range(1, 1 + 11 * 2)]
    monkeypatch.setattr(CPU_KERNELS, "SCHEDULES", (Made,))
    monkeypatch.setattr(CPU_KERNELS, "schedules", lambda pool, signature, arch: iter(every))
    monkeypatch.setattr(CPU_KERNELS, "RULES", ())
    family = derived_pools.DerivedPools("conv", CPU_KERNELS, CONV.check)
    signature = ConvProblem(1, 1, 1, (1,), (1,)).signature
    arch = arch_by_name(CPU)
    few: list[Any] = list(family.schedules("full-tests", signature, arch))
    assert len(few) == 4 * 5
    assert [one.tile for one in few[:5]] == [1, 6, 11, 16, 21]
    tiny: list[Any] = list(family.schedules("tiny", signature, arch))
    assert [(one.pipeline, one.tile) for one in tiny] == [("a", 1), ("b", 1)]


def test_the_floor_is_no_candidate_where_there_is_another() -> None:
    """It would serve channels-first memory, which others turn, many times as fast."""
    problem = CONV.problem({**LAYER, "layout": "nchw"})
    candidates = CONV.candidates(problem.signature, CPU)
    floor = CONV.fallback_spec(problem.signature, CPU)
    assert candidates
    assert floor not in candidates
    assert not [one for one in candidates if CONV.supports(one, problem) and not CONV.supports(one, problem.dense())]
    for arch in (NVIDIA, AMD):  # copies of channels that lie apart are a kernel's own there
        assert all(CONV.padded(one, problem) is None for one in CONV.candidates(problem.signature, arch))
        assert not CONV.supports(CONV.fallback_spec(problem.signature, arch), problem)


def test_axes_say_which_signatures() -> None:
    found = specs("default", CPU, variants=("bwd_data", "forward"), spatial=(1, 2, 3), datatypes=("fp32", "bf16"))
    labels = {one.signature.label() for one in found}
    assert labels == {f"{v}_{d}d_{t}" for v in ("backward_data", "forward") for d in (2, 3) for t in ("fp32", "bf16")}
    fused = specs("default", CPU, epilogues=("relu",), num_d=(1,), outputs=("bf16",), datatypes=("bf16",))
    assert {one.signature.label() for one in fused} == {"forward_2d_bf16_Relu_d1"}
    added = specs("default", CPU, num_d=(2,))
    assert {(one.signature.epilogue, one.signature.num_d) for one in added} == {("MultiDAdd", 2)}
    for one in (*found, *fused, *added):
        assert {each.signature for each in CONV.proposals("default", CPU, **CONV.axes_of(one.signature))} == {
            one.signature
        }
        assert one.signature in list(CONV.signatures_of(one.name.removeprefix("conv_")))


def test_names_that_are_not_known_are_errors() -> None:
    for wrong in ({"variants": ("sideways",)}, {"datatypes": ("fp31",)}, {"epilogues": ("Selu",)}):
        with pytest.raises(UnknownNameError):
            CONV.proposals("default", CPU, **wrong)
    with pytest.raises(UnknownNameError, match="full-tests"):
        CONV.proposals("full-test", CPU)
    with pytest.raises(RequestError):
        CONV.spec_from_dict({})
    good = specs("default", CPU)[0].to_dict()
    with pytest.raises(UnknownNameError, match="loops"):
        CONV.spec_from_dict({**good, "schedule": {"pipeline": "loop"}})


# -- rules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"variant": "sideways"}, "variant-name"),
        ({"epilogue": "Selu"}, "epilogue-name"),
        ({"epilogue": "Relu", "num_d": 3}, "epilogue-d-count"),
        ({"dtype_out": "fp31"}, "dtype-name"),
        ({"spatial": 1}, "kernel-rank"),
        ({"spatial": 4}, "kernel-rank"),
        ({"variant": "backward_data", "epilogue": "Relu"}, "fused-backward"),
        ({"dtype_acc": "bf16"}, "accumulator"),
        ({"dtype_d": "bf16"}, "dtype-d"),
        ({"dtype": "tf32"}, "dtype-input"),
        ({"dtype": "int8", "dtype_acc": "int32", "variant": "backward_weight"}, "dtype-input"),
        ({"dtype_out": "int32", "dtype_d": "int32"}, "dtype-output"),
        ({"epilogue": "MultiDAdd", "num_d": 1, "dtype_d": "bf16"}, "dtype-d"),
    ],
)
@pytest.mark.parametrize("arch", [CPU, NVIDIA, AMD])
def test_every_rule_of_a_signature_speaks(arch: str, fields: dict[str, Any], rule: str) -> None:
    signature = ConvProblem(1, 8, 8, (8, 8), (3, 3)).signature
    floor = CONV.fallback_spec(signature, arch)
    assert not CONV.check(floor)
    broken = dataclasses.replace(floor, signature=dataclasses.replace(signature, **fields))
    found = {one.rule: one for one in CONV.check(broken)}
    assert rule in found
    assert found[rule].remedy


def test_a_schedule_of_another_arch_is_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class Other:
        pipeline: str = "other"

        def label(self) -> str:
            return "other"

    floor = CONV.fallback_spec(ConvProblem(1, 1, 1, (1,), (1,)).signature, CPU)
    assert [one.rule for one in CONV.check(dataclasses.replace(floor, schedule=Other()))] == ["schedule-family"]
    assert [one.rule for one in CONV.check(dataclasses.replace(floor, arch="sm_1"))] == ["arch-name"]


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"batch": -1}, "size-negative"),
        ({"channels": 0}, "size-positive"),
        ({"filters": 0}, "size-positive"),
        ({"groups": 0}, "size-positive"),
        ({"size": "9x0"}, "size-positive"),
        ({"window": "0x3"}, "size-positive"),
        ({"stride": "0"}, "size-positive"),
        ({"dilation": "0"}, "size-positive"),
        ({"padding": "-1"}, "padding-negative"),
        ({"size": "2x2x2x2"}, "spatial-rank"),
        ({"groups": 3}, "groups-divide"),
        ({"groups": 8, "filters": 12}, "groups-divide"),
        ({"window": "12"}, "window-fits"),
        ({"window": "3x3", "dilation": "1x5"}, "window-fits"),
        ({"batch": 1 << 41}, "size-huge"),
        ({"batch": 1 << 39, "size": f"{1 << 20}x{1 << 10}"}, "size-huge"),
        ({"padding": str(1 << 41)}, "size-huge"),
        ({"variant": "sideways"}, "variant-name"),
        ({"datatype": "fp8_e4m3"}, "dtype-input"),
        ({"variant": "backward_data", "epilogue": "Relu"}, "fused-backward"),
        ({"num_d": 1}, "epilogue-d-count"),
        ({"epilogue": "MultiDAdd", "num_d": 1, "full_d": 2}, "full-d"),
        ({"x_strides": "1x1"}, "stride-rank"),
        ({"y_strides": "1x1x1x1"}, "stride-overlap"),
        ({"x_strides": f"{1 << 61}x1x1x1"}, "size-huge"),
        ({"datatype": "int8", "variant": "backward_data"}, "dtype-input"),
        ({"output": "int32"}, "dtype-output"),
    ],
)
def test_every_rule_of_a_problem_speaks(values: dict[str, Any], rule: str) -> None:
    found = {one.rule: one for one in CONV.problem_violations(CONV.problem({**LAYER, **values}), CPU)}
    assert rule in found
    assert found[rule].remedy


def test_strides_of_what_is_read_may_repeat() -> None:
    for values in ({"x_strides": "0x0x0x1"}, {"x_strides": "-1x-1x-1x1"}, {"w_strides": "0x0x0x0"}):
        assert not CONV.problem_violations(CONV.problem({**LAYER, **values}), CPU)


# -- problems ------------------------------------------------------------------------------------------------------

EXAMPLES: tuple[dict[str, Any], ...] = (
    LAYER,
    {**LAYER, "size": "9", "stride": "2", "datatype": "bf16", "output": "fp32"},
    {**LAYER, "size": "9x7x5", "window": "3x1x2", "padding": "1:0x0:0x2:1", "dilation": "1x2x1", "groups": 4},
    {**LAYER, "layout": "nchw", "variant": "backward_weight", "deterministic": True},
    {**LAYER, "x_strides": "1000x70x9x1", "variant": "backward_data"},
    {**LAYER, "epilogue": "Relu", "num_d": 2, "full_d": 1, "datatype": "fp16", "d_datatype": "fp32"},
)


def from_words(words: list[str]) -> ConvProblem:
    values: dict[str, Any] = {}
    while words:
        option = next(one for one in CONV.options if words[0] == "--" + one.name.replace("_", "-"))
        values[option.name] = True if option.kind is bool else option.kind(words[1])
        words = words[1 if option.kind is bool else 2 :]
    found: ConvProblem = CONV.problem(values)
    return found


@pytest.mark.parametrize("values", EXAMPLES)
def test_a_problem_is_the_same_after_words_and_json(values: dict[str, Any]) -> None:
    problem = CONV.problem(values)
    assert CONV.problem_from_dict(json.loads(json.dumps(plain(problem)))) == problem
    assert from_words(CONV.words(problem)) == problem
    assert problem.flops > 0
    assert problem.bytes > 0
    assert problem.describe().startswith("conv ")


@given(convolutions())
def test_so_is_any_other(problem: ConvProblem) -> None:
    assert not CONV.problem_violations(problem, CPU)
    assert from_words(CONV.words(problem)) == problem
    m, n, k = problem.gemm
    assert problem.flops == 2 * m * n * k * problem.groups or problem.variant == "backward_data"


@pytest.mark.parametrize(
    "values",
    [{"size": "axb"}, {"window": "3x3x3"}, {"stride": "1x"}, {"padding": "1:2:3"}, {"layout": "chwn"}, {"size": ""}],
)
def test_an_option_that_means_nothing_is_one_clear_error(values: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        CONV.problem({**LAYER, **values})
    assert caught.value.rule == "option-value"
    assert caught.value.remedy


def test_channels_and_filters_are_those_of_a_group_where_kernels_are_told() -> None:
    """What the ancestor got wrong: totals at the ABI."""
    from tilewright.runtime.bindings.conv.dense import dense

    args = dense(CONV.problem({**LAYER, "groups": 4})).stages[0].args
    assert (args.groups, args.channels, args.filters) == (4, 2, 4)


def test_measurements_are_shared_where_only_gaps_differ() -> None:
    plain_one = CONV.problem(LAYER)
    assert CONV.measured_as(CONV.problem({**LAYER, "x_strides": "1000x70x9x1"})) == plain_one
    first = CONV.problem({**LAYER, "layout": "nchw"})
    assert CONV.measured_as(first) == first != plain_one


def test_copies_are_offered_only_where_they_help(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = CONV.fallback_spec(CONV.problem(LAYER).signature, CPU)
    first = CONV.problem({**LAYER, "layout": "nchw"})
    assert CONV.padded(spec, first) is None, "the floor takes it as it is"

    def only_last(family: Any, spec: KernelSpec, problem: ConvProblem) -> Any:
        if not problem.channels_last:
            yield Violation("channels-last", "channels are apart")

    monkeypatch.setattr(CpuConvFamily, "limits", only_last)
    assert CONV.padded(spec, first) == CONV.problem(LAYER)
    assert CONV.padded(spec, CONV.problem(LAYER)) is None
    backwards = CONV.problem({**LAYER, "x_strides": "-504x56x8x-1"})
    assert CONV.supports(spec, backwards)
    assert CONV.padded(spec, backwards) is None


def test_the_floor_is_legal_for_every_signature_an_arch_has() -> None:
    for arch in all_archs().values():
        for variant in VARIANTS:
            for dtype in ("fp32", "bf16", "fp16", *(("int8",) if variant == "forward" else ())):
                signature = ConvProblem(1, 1, 1, (1,), (1,), variant=variant, dtype=dtype).signature
                assert isinstance(signature, ConvSignature)
                if not CONV.problem_violations(
                    ConvProblem(1, 1, 1, (1,), (1,), variant=variant, dtype=dtype), arch.name
                ):
                    assert not CONV.check(CONV.fallback_spec(signature, arch.name))


@pytest.mark.parametrize("arch", [CPU, NVIDIA, AMD])
def test_explain_tells_what_is_copied_or_turned(arch: str) -> None:
    """Of channels-first memory, for the chosen kernel; of dense memory nothing."""
    sizes = {"batch": 8, "channels": 64, "filters": 64, "size": "28x28"}
    layer = {**LAYER, **sizes, "datatype": "bf16"}
    first = str(Registry(arch).explain(CONV.problem({**layer, "layout": "nchw"})))
    assert "transposes x, w, y" in first or "copies x" in first
    last = str(Registry(arch).explain(CONV.problem(layer)))
    assert "transposes x" not in last
    assert "copies x" not in last


def test_dense_operands_are_known_by_their_strides() -> None:
    """What is quickly told is what the strides of dense operands say."""
    r, dense = random.Random(6), 0
    for _ in range(500):
        dims, groups = r.randrange(1, 4), r.choice((1, 2))
        made = ConvProblem(
            r.randrange(3), 4 * groups, 2 * groups, tuple(r.randrange(1, 4) for _ in range(dims)),
            (r.choice((1, 2)),) * dims, groups=groups, before=(r.randrange(2),) * dims,
        )  # fmt: skip
        name = r.choice("xwy")
        strides = list(getattr(made, f"{name}_strides"))
        if r.random() < 0.5:
            strides[r.randrange(len(strides))] += r.choice((-1, 1))
        odd = made.laid(**{f"{name}_strides": tuple(strides)})
        expected = all(getattr(odd, f"{one}_strides") == getattr(made, f"{one}_strides") for one in "xwy")
        assert odd.lies_dense is odd.lies_dense is expected, odd
        dense += expected
    assert 100 < dense < 400
    assert not made.laid(x_strides=(1,)).lies_dense
