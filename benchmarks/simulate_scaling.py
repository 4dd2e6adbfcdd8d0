"""What 1,000 devices and 10^8 rows would need, by simulation with constants measured from the engine on this machine.

    python benchmarks/simulate_scaling.py          prints a table and writes benchmarks/results/simulate_scaling.json

First the constants: what one row costs the process that collects rows (making the result, and the store's transaction
of a batch), bytes a row takes in the store, what planning one (kernel, problem) pair costs, what an actor call costs
where Ray is installed, bytes of a kernel's parcel.  Those of devices (seconds a row takes, seconds a build takes) are
options: they are properties of kernels, not of the engine.

Then a model of events: devices that ask for a batch, get it from one dispatcher, wait for the kernels they have not
(all through one network link of the driver's node), measure, and hand the rows to one collector.  Builds run on as many
cores as are given, ahead of the devices, in the order of need.  A part of the sweep is simulated batch by batch, as
many as `--batches`; the rate of its second half, when every kernel is built and sent, is that of the rest.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from _machine import RESULTS, provenance

from tilewright import ops
from tilewright.dispatch.records import machine
from tilewright.dispatch.results import Results
from tilewright.tune.device_worker import Outcome
from tilewright.tune.sweep import Options, Sweep, of_list
from tilewright.tune.worker_pool import Measurement

TARGET = "generic"
BATCH = 20


@dataclass(frozen=True)
class Constants:
    """Seconds and bytes of the engine."""

    row_seconds: float  # making a result and storing it, in a batch
    row_bytes: float  # in the store
    pair_seconds: float  # planning a kernel for a problem
    pair_bytes: float  # of memory a planned pair takes in the driver
    call_seconds: float  # of the driver's one thread, for sending a batch to an actor and taking the answer
    call_latency: float  # seconds until an answer is back that took no time
    parcel_bytes: float


@dataclass(frozen=True)
class Case:
    """A cluster and a sweep."""

    devices: int
    kernels: int
    problems: int
    build_cores: int
    measure_seconds: float  # a row
    build_seconds: float  # a kernel
    link_bytes: float = 10e9 / 8  # a second, of the driver's node
    collectors: int = 1  # processes with a store each, merged later

    @property
    def rows(self) -> int:
        return self.kernels * self.problems


# -- constants ---------------------------------------------------------------------------------------------


def store_costs(rows: int) -> tuple[float, float]:
    """Seconds and bytes of a row, the way a sweep writes them."""
    gemm = ops.op("gemm")
    first = gemm.problem({"m": 8, "n": 8, "k": 8})
    specs = list(gemm.proposals("full", "x86_64_v4", **gemm.axes_of(gemm.signature_of(first))))[:200]
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(gemm, TARGET, Results(Path(folder) / "r.db"), Options())
        draw = random.Random(7)
        start = time.process_time()
        for number in range(rows // BATCH):
            size, turn = divmod(number, len(specs) // BATCH)
            problem = gemm.problem({"m": 1 + size, "n": 64, "k": 64})
            chosen = specs[turn * BATCH : (turn + 1) * BATCH]
            said = [
                Measurement(
                    problem, one, Outcome(one.digest, "ok", "", draw.random(), 0.01, 0.2, 4096, 0.01), {"compiler": "x"}
                )
                for one in chosen
            ]
            sweep.store.put([sweep._result(one) for one in said])
        seconds = (time.process_time() - start) / rows
        sweep.store.close()
        size = sum(one.stat().st_size for one in Path(folder).iterdir())
    return seconds, size / rows


def plan_costs() -> tuple[float, float]:
    """Seconds and bytes of a pair in a plan."""
    import tracemalloc

    gemm = ops.op("gemm")
    problems = [gemm.problem({"m": size, "n": 64, "k": 64}) for size in range(1, 201)]
    specs = list(gemm.proposals("full", "x86_64_v4", **gemm.axes_of(gemm.signature_of(problems[0]))))[:100]
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(gemm, TARGET, Results(Path(folder) / "r.db"), Options())
        sweep.plan(problems[:1], of_list(gemm, specs))
        start = time.process_time()
        work = sweep.plan(problems, of_list(gemm, specs))
        seconds = (time.process_time() - start) / (len(problems) * len(specs))
        tracemalloc.start()
        kept = [work := sweep.plan(problems, of_list(gemm, specs)), sweep._batches(work)]
        memory = tracemalloc.get_traced_memory()[0] / max(1, work.total)
        tracemalloc.stop()
        del kept
    return seconds, memory


def call_costs(calls: int = 60) -> tuple[float, float]:
    """Processor seconds of a driver, and seconds by the clock, for a batch's request and answer; 0 without Ray."""
    try:
        import ray
    except ImportError:
        return 0.0, 0.0
    ray.init("local", num_cpus=1, log_to_driver=False, include_dashboard=False, _system_config={"worker_niceness": 0})
    try:

        class Echo:
            def ask(self, words: Any) -> Any:
                return [asdict(Outcome("d" * 64, "ok", seconds=1.0))] * BATCH

        gemm = ops.op("gemm")
        problem = gemm.problem({"m": 8, "n": 8, "k": 8})
        spec = next(iter(gemm.candidates(gemm.signature_of(problem), TARGET))).to_dict()
        words = [{"spec": spec, "kin": "k" * 16, "key": "k" * 64}] * BATCH
        echo = ray.remote(Echo).remote()
        ray.get(echo.ask.remote(words))
        own, took = time.process_time(), []
        for _ in range(calls):
            start = time.perf_counter()
            ray.get(echo.ask.remote(words))
            took.append(time.perf_counter() - start)
        # Of the clock, what a calm machine would show: other programs only ever add.
        return (time.process_time() - own) / calls, sorted(took)[calls // 10]
    finally:
        ray.shutdown()


def parcel_bytes() -> float:
    from tilewright.build import Builder, Store
    from tilewright.tune.node import parcel

    gemm = ops.op("gemm")
    signature = gemm.signature_of(gemm.problem({"m": 8, "n": 8, "k": 8}))
    built = Builder().build_one(next(iter(gemm.candidates(signature, TARGET))))
    one = parcel(Store(), built.key)
    return float(len(one["library"]) + sum(map(len, one["texts"].values())) + len(json.dumps(one["facts"])))


def measured(rows: int) -> Constants:
    assert machine(TARGET), "the host runs generic kernels"
    return Constants(*store_costs(rows), *plan_costs(), *call_costs(), parcel_bytes())


# -- the model ---------------------------------------------------------------------------------------------


def simulate(case: Case, known: Constants, batches: int, seed: int) -> dict[str, Any]:
    """How long the sweep takes, and what is busy how much of the time once all is built and sent."""
    draw = random.Random(seed)
    waves = max(1, case.kernels // BATCH)  # batches of one problem
    batches = min(batches, waves * case.problems)
    half = batches // 2
    free = [(0.0, number) for number in range(case.devices)]  # when each device may ask
    desks = [0.0] * case.collectors  # when each collector may serve
    has = [0] * case.devices  # kernels that a device's node was sent
    link = 0.0  # when the link is free
    built_rate = case.build_cores / case.build_seconds  # kernels a second
    service = known.call_seconds + BATCH * known.row_seconds  # a request, and the rows of the one before
    busy = {"devices": 0.0, "driver": 0.0, "link": 0.0}
    turn = end = 0.0
    for number in range(batches):
        if number == half:
            turn, busy = end, dict.fromkeys(busy, 0.0)  # from here on the rate counts
        ask, device = heapq.heappop(free)
        desk = number % case.collectors
        desks[desk] = max(ask, desks[desk]) + service
        begin = desks[desk] + known.call_latency
        if number < waves:  # the first problem waits for compilers
            begin = max(begin, (number + 1) * BATCH / built_rate)
        if has[device] < case.kernels:
            has[device] += BATCH
            send = BATCH * known.parcel_bytes / case.link_bytes
            begin = link = max(link, begin) + send
            busy["link"] += send
        took = BATCH * case.measure_seconds * draw.lognormvariate(-0.18, 0.6)  # a mean of 1
        busy["devices"] += took
        busy["driver"] += service
        end = max(end, begin)  # batches begin as fast as they end
        heapq.heappush(free, (begin + took, device))
    if end <= turn:
        raise SystemExit(f"{batches} batches are over before all kernels are sent: simulate more (--batches)")
    rate = (batches - half) * BATCH / (end - turn)
    shares = {"devices": case.devices, "driver": case.collectors, "link": 1}
    return {
        **asdict(case), "rows": case.rows, "rows_per_second": round(rate),
        "hours": round((turn + (case.rows - half * BATCH) / rate) / 3600, 2),
        "ideal_hours": round(case.rows * case.measure_seconds / case.devices / 3600, 2),
        **{f"{name}_busy": round(busy[name] / (end - turn) / of, 3) for name, of in shares.items()},
        "plan_hours": round(known.pair_seconds * case.rows / 3600, 2),
        "plan_gigabytes": round(known.pair_bytes * case.rows / 1e9, 1),
        "store_gigabytes": round(known.row_bytes * case.rows / 1e9, 1),
        "kernel_gigabytes": round(known.parcel_bytes * case.kernels / 1e9, 2),
        "sent_gigabytes": round(known.parcel_bytes * case.kernels * case.devices / 1e9, 1),
        "sending_hours": round(known.parcel_bytes * case.kernels * case.devices / case.link_bytes / 3600, 2),
    }  # fmt: skip


def cases(measure_seconds: float, build_seconds: float) -> list[Case]:
    def case(devices: int, kernels: int, problems: int, **more: Any) -> Case:
        return Case(devices, kernels, problems, 64 * max(1, devices // 8), measure_seconds, build_seconds, **more)

    return [
        case(1, 1_000, 1_000), case(8, 2_000, 5_000), case(100, 20_000, 5_000), case(300, 20_000, 5_000),
        case(1_000, 20_000, 5_000), case(1_000, 20_000, 5_000, collectors=8),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rows", type=int, default=100_000, help="rows that are stored to measure the store")
    parser.add_argument("--batches", type=int, default=400_000, help="batches that are simulated")
    parser.add_argument("--measure-seconds", type=float, default=0.06, help="of a device, a row")
    parser.add_argument("--build-seconds", type=float, default=15.0, help="of a core, a kernel")
    parser.add_argument("--parcel-bytes", type=float, default=0.0, help="of a kernel; 0: of a small one of the CPU")
    parser.add_argument("--constants", type=Path, help="an earlier result whose constants are taken, not measured")
    parser.add_argument("--output", type=Path, default=RESULTS / "simulate_scaling.json")
    args = parser.parse_args()
    known = Constants(**json.loads(args.constants.read_text())["constants"]) if args.constants else measured(args.rows)
    if args.parcel_bytes:
        known = replace(known, parcel_bytes=args.parcel_bytes)
    print(json.dumps(asdict(known), indent=1))
    found = [simulate(one, known, args.batches, args.seed) for one in cases(args.measure_seconds, args.build_seconds)]
    head = ("devices", "collectors", "rows", "rows_per_second", "hours", "ideal_hours", "devices_busy", "driver_busy",
            "sending_hours", "plan_hours", "plan_gigabytes", "store_gigabytes", "sent_gigabytes")  # fmt: skip
    print(" | ".join(head))
    for one in found:
        print(" | ".join(str(one[name]) for name in head))
    command = f"python benchmarks/simulate_scaling.py --seed {args.seed} --rows {args.rows} --batches {args.batches}"
    data = {**provenance(command), "constants": asdict(known), "cases": found}
    args.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
