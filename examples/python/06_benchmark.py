"""Measure the candidates of a problem; the winner is chosen from then on (tier `measured`).

Every kernel is checked against the float64 reference before it is timed, and the kernels take turns.
The record says what was measured, how, with which compiler and on which machine.
"""

from __future__ import annotations

import argparse
import tempfile

import tilewright as tw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=256, help="m, n and k")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kernels", type=int, default=4, help="how many of the candidates")
    options = parser.parse_args()
    problem = tw.GemmProblem(m=options.size, n=options.size, k=options.size)

    # A folder of its own, so that this example changes no choice of yours; leave it out to keep the record.
    with tempfile.TemporaryDirectory() as folder, tw.settings.override(cache_dir=folder):
        registry = tw.Registry()
        before = registry.select(problem)
        print(f"before  {before.tier}: {before.name}")
        record = registry.measure(problem, registry.candidates(problem)[: options.kernels], rounds=options.rounds)
        for one in record.timings:
            speed = problem.flops / one.seconds / 1e9
            print(f"  {one.seconds * 1e6:8.1f} us {speed:7.1f} GFLOP/s  error/bound {one.error:.3f}  {one.name}")
        after = registry.select(problem)
        print(f"after   {after.tier}: {after.name}")
        assert after.tier == "measured"
        assert after.spec.digest == record.choice
        assert all(one.error <= 1.0 for one in record.timings)
        print(f"measured on {record.machine['model']}, {record.threads} thread(s), {record.versions['compiler']}")


if __name__ == "__main__":
    main()
