"""Write the kernels that the C++ examples run into a folder: `python export_kernels.py FOLDER [--target ARCH]`."""

from __future__ import annotations

import argparse
from pathlib import Path

import tilewright as tw
from tilewright import ops

PROBLEMS = (
    tw.GemmProblem(m=64, n=128, k=256, layout="rcr", epilogue="Gelu", num_d=1),
    tw.ConvProblem(1, 16, 32, (28, 28), (3, 3), epilogue="Relu", num_d=1),
    tw.AttentionProblem(1, 8, 128, 128, 64, window_right=0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default=None, help="an arch; this machine's CPU where not given")
    options = parser.parse_args()
    registry = tw.Registry(options.target)
    for problem in PROBLEMS:
        op = ops.op(problem.op)
        registry.add_pool(op.name, "tiny", **op.axes_of(op.signature_of(problem)))
    print(f"{len(registry)} kernels for {registry.target}: {registry.export(options.folder)}")


if __name__ == "__main__":
    main()
