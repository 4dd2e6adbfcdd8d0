"""Write the kernels that the C++ examples run into a folder.

    python export_kernels.py [FOLDER] [--target ARCH] [--examples gemm conv/02_all_directions ...]

FOLDER is kernels where it is left out, or kernels-ARCH with --target: where the examples look for them.  Without
--examples those of all; the first time they are compiled, a second or two each.  An arch needs its compiler, not a GPU.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tilewright as tw
from tilewright import ops
from tilewright.tune import problem_sets

KERNELS = 2  # of a signature, beside the fallback kernel


def gemm(**more: Any) -> Any:
    return tw.GemmProblem(m=64, n=128, k=256, layout="rcr", **more)


def conv(dims: int = 2, **more: Any) -> Any:
    return tw.ConvProblem(1, 16, 32, (28,) * dims, (3,) * dims, **more)


def attention(head: int = 64, **more: Any) -> Any:
    return tw.AttentionProblem(1, 4, 64, 64, head, **more)


def backward(**more: Any) -> Any:
    return tw.AttentionBackwardProblem(1, 4, 64, 64, 64, **more)


PLAIN, CAUSAL = attention(), attention(window_right=0)
# What examples take beyond the plain problem of their op.
MORE: dict[str, tuple[Any, ...]] = {
    "gemm/07_fused": (gemm(epilogue="Gelu", num_d=1),),
    "conv/01_basic": (conv(epilogue="Relu", num_d=1),),
    "conv/02_all_directions": tuple(
        conv(dims, variant=name) for dims in (2, 3) for name in ("forward", "backward_data", "backward_weight")
    ),
    "conv/04_registry_json": (conv(variant="backward_data"), conv(variant="backward_weight")),
    "conv/05_backward_data": (conv(variant="backward_data"),),
    "conv/06_backward_weight": (conv(variant="backward_weight"),),
    "attention/01_basic": (CAUSAL,),
    "attention/02_split_kv_plan": (attention(num_splits=2),),
    "attention/03_paged_cache": (attention(pages="strided", page_lookup="table", seqlens_k=True),),
    "attention/04_backward_plan": (backward(), attention(return_lse=True)),
    "attention/05_packed_sequences": (attention(varlen=True, window_right=0), CAUSAL),
    "attention/06_batch_prefill": (attention(varlen=True, pages="strided", page_lookup="indices"),),
    "attention/07_softcap": (attention(softcap=True),),
    "attention/08_sink_logits": (attention(sink=True),),
    "attention/09_window": (CAUSAL,),
    "attention/10_alibi": (attention(bias="alibi"),),
    "attention/13_feature_coverage": (CAUSAL,),
    "attention/18_split_kv": (attention(num_splits=2, return_lse=True),),
    "attention/19_masks": (attention(mask_shape=(1, 1, 64, 64)),),
    "attention/20_bias": (attention(bias="tensor"),),
    "attention/21_dropout_gqa_lse": (attention(dropout=True, return_lse=True),),
    "attention/22_backward": (backward(),),
    "attention/24_backward_dropout": (backward(dropout=True),),
    "attention/25_backward_gqa_causal": (backward(window_right=0),),
    "attention/26_head_sizes": (attention(32), attention(128)),
    "attention/28_append_kv": (
        attention(family="append", rotary="half", rotary_q=True, pages="strided", page_lookup="table"),
        attention(pages="strided", page_lookup="table", seqlens_k=True, window_right=0, align="bottom_right"),
    ),
    "attention/29_fp8_scales": (
        attention(dtype_q="fp8_e4m3", dtype_out="fp32", q_scale="head", kv_scales="block", scale_block=16),
    ),
}
OF_EACH = {"gemm": (gemm(),), "conv": (conv(),), "attention": (PLAIN,)}


def examples() -> list[str]:
    folder = Path(__file__).parent
    return sorted(f"{file.parent.name}/{file.stem}" for file in folder.glob("*/*.cpp"))


def problems(names: Iterable[str]) -> list[Any]:
    """Of examples, by their names or those of their folders."""
    wanted = list(names)
    chosen = [name for name in examples() if not wanted or name in wanted or name.partition("/")[0] in wanted]
    return [
        problem for name in chosen for problem in (*OF_EACH.get(name.partition("/")[0], ()), *MORE.get(name, ()))
    ] + [problem for name in chosen if name.startswith("end_to_end/") for problem in listed()]


def listed() -> list[Any]:
    """What the end-to-end program's bundle is made of."""
    data = json.loads((Path(__file__).parent / "end_to_end" / "problems.json").read_text())
    return [problem_sets.problem(ops.op(op), row) for op, rows in data.items() for row in rows]


def kernels_of(op: Any, stage: Any, target: str) -> list[Any]:
    """The one that is chosen for a problem, and the first others of its signature."""
    candidates = list(op.candidates(op.signature_of(stage), target))
    chosen = tw.Registry(target).select_stage(stage).spec
    return sorted(candidates, key=lambda spec: spec.digest != chosen.digest)[:KERNELS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="default: kernels, or kernels-TARGET")
    parser.add_argument("--target", default=None, help="cpu, cuda, hip or an arch (default: cpu)")
    parser.add_argument("--examples", nargs="*", default=[], help="names such as gemm or conv/01_basic; all where none")
    options = parser.parse_args()
    registry = tw.Registry(options.target)
    for problem in problems(options.examples):
        op = ops.op(problem.op)
        for stage in op.stages(problem, registry.target):
            registry.add(kernels_of(op, stage, registry.target))
    folder = options.folder or Path(f"kernels-{options.target}" if options.target else "kernels")
    print(f"{len(registry)} kernels for {registry.target}: {registry.export(folder)}")


if __name__ == "__main__":
    main()
