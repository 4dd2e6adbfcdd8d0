"""Sweeps on a Ray cluster of several nodes, all on this machine: kernels that travel, nodes and drivers killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright import ops
from tilewright.build import Store
from tilewright.dispatch.records import machine
from tilewright.dispatch.results import OK, Results
from tilewright.errors import MachineError, RequestError
from tilewright.runtime.timing import Method
from tilewright.tune import cluster as clusters
from tilewright.tune.sweep import Options, Sweep, of_list, run_all

GEMM = ops.op("gemm")
TARGET = "generic"
QUICK = Method(rounds=2, sample_seconds=1e-4, seed=7)
# A fifth of a second a batch: who hears of the first rows has time to do something before the last ones are measured.
SLOW = Method(rounds=25, sample_seconds=0.004, seed=7)


# -- what needs no Ray -------------------------------------------------------------------------------------


def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MachineError, match="not installed") as caught:
        clusters.ray_module()
    assert caught.value.rule == "no-ray"
    assert "tilewright[ray]" in caught.value.remedy


@pytest.mark.parametrize("address", ["auto", "ray://head:10001", "head", "head:", ":6379", "head:port", "head:99999"])
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(RequestError) as caught:
        clusters.demand_reachable(address)
    assert caught.value.rule == "cluster-address"


def test_an_address_where_nothing_or_something_else_answers_is_told_in_bounded_time() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(MachineError, match="refused") as caught:
            clusters.demand_reachable(address)
        assert caught.value.rule == "cluster-unreachable"
        listening.listen()
        with pytest.raises(MachineError, match=r"nothing answers there within 0\.2 s"):
            clusters.demand_reachable(address, 0.2)


def test_a_node_with_another_python_or_tilewright_is_named() -> None:
    node = clusters.Node("1" * 8, "that one", {})
    same = clusters._probe()(TARGET, 1)
    assert not same["trouble"]
    clusters.demand_alike([(node, same)])
    for change, said in (
        ({"python": "3.9.1"}, "that one has Python 3.9, this machine"),
        ({"tilewright": "0.0.1"}, "that one has Tilewright 0.0.1, this machine"),
        ({"tree": "abc"}, "that one has other sources"),
        ({"tilewright": "", "trouble": "ModuleNotFoundError: none"}, "cannot import Tilewright: ModuleNotFoundError"),
        ({"trouble": "ValueError: x"}, "cannot describe itself: ValueError"),
    ):
        with pytest.raises(MachineError, match=said) as caught:
            clusters.demand_alike([(node, {**same, **change})])
        assert caught.value.rule == "cluster-node-version"


# -- what does -----------------------------------------------------------------------------------------------


class Nodes:
    """A head that does nothing, and nodes with kernel stores of their own."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        # A node that is killed is noticed within some seconds, not within half a minute.
        # Processes of Ray's are as important as those of the tests beside them.
        quick = {"health_check_period_ms": 1000, "health_check_failure_threshold": 5, "worker_niceness": 0}
        self._folder = folder
        self._cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": quick}
        )
        self.here: dict[str, Any] = {}

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def store(self, name: str) -> Store:
        return Store(self._folder / name)

    def add(self, name: str, **variables: str) -> None:
        own = {"TILEWRIGHT_CACHE_DIR": str(self._folder / name), **variables}
        before = dict(os.environ)
        os.environ.update(own)  # a node's processes have the environment of who starts it
        try:
            self.here[name] = self._cluster.add_node(num_cpus=1)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def kill(self, name: str) -> None:
        self._cluster.remove_node(self.here.pop(name), allow_graceful=False)

    def clear(self) -> None:
        """Without nodes, and until the cluster has noticed: a sweep would tell of those that it thinks are there."""
        for name in list(self.here):
            self.kill(name)
        with clusters.Cluster(self.address, TARGET, limit=30, patience=0.0) as there:
            ends = time.monotonic() + 60
            while any(one["Alive"] and one["Resources"].get("CPU") for one in there.ray.nodes()):
                assert time.monotonic() < ends, "the cluster does not notice that its nodes are gone"
                time.sleep(0.1)

    def end(self) -> None:
        for name in list(self.here):
            self.kill(name)
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def all_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    pytest.importorskip("ray", reason="needs Ray: pip install ray")
    found = Nodes(tmp_path_factory.mktemp("nodes"))
    yield found
    found.end()


@pytest.fixture
def nodes(all_nodes: Nodes, needs_compiler: None) -> Iterator[Nodes]:
    yield all_nodes
    all_nodes.clear()


def specs(count: int = 2) -> list[Any]:
    problem = GEMM.problem({"m": 24, "n": 16, "k": 8})
    return [one for one in GEMM.candidates(GEMM.signature_of(problem), TARGET) if not GEMM.supports(one, problem)][
        :count
    ]


def problems(count: int) -> list[Any]:
    return [GEMM.problem({"m": size, "n": 8, "k": 8}) for size in range(1, count + 1)]


def sweep(
    nodes: Nodes, store: Results, asked: list[Any], on_row: Callable[[Any, Any], None] | None = None,
    method: Method = QUICK,
) -> list[str]:  # fmt: skip
    """A sweep on all nodes; what was noted on the way."""
    said: list[str] = []
    options = Options(method, patience=0.0, batch=2)
    from tilewright import settings

    with settings.override(threads=1), clusters.Cluster(nodes.address, TARGET, limit=30, patience=0.0) as there:
        works = []
        for worker_pool in there.worker_pools(said.append):
            one = Sweep(GEMM, TARGET, store, options, worker_pool)
            works.append((one, one.plan(asked, of_list(GEMM, specs()))))
        run_all(works, on_row=on_row, on_lost=said.append)
    return said


def keys(store: Results) -> list[tuple[str, int]]:
    return sorted((one.kernel.digest, one.problem["m"]) for one in store.all())


def wanted(asked: list[Any]) -> list[tuple[str, int]]:
    return sorted((spec.digest, one.m) for one in asked for spec in specs() if not GEMM.supports(spec, one))


def entries(store: Store) -> dict[str, float]:
    """Kernels of a store by their key, with the time they were compiled."""
    return {str(one["key"]): float(one["built_at"]) for one in store.manifests() if one["spec"] is not None}


def test_devices_that_are_alike_share_the_work_and_kernels_are_compiled_once(nodes: Nodes, tmp_path: Path) -> None:
    nodes.add("a")
    nodes.add("b")
    store = Results(tmp_path / "r.db")
    asked = problems(24)
    assert sweep(nodes, store, asked, method=SLOW) == []
    assert keys(store) == wanted(asked)
    rows = list(store.all())
    assert {one.status for one in rows} == {OK}
    assert {one.device["fingerprint"] for one in rows} == {machine(TARGET)["fingerprint"]}
    assert {one.threads for one in rows} == {1}
    first, second = entries(nodes.store("a")), entries(nodes.store("b"))
    assert first.keys() == second.keys(), "each node has what it measured"
    assert first == second, "and nothing was compiled twice: what one had not came from the other as it was"
    assert sweep(nodes, store, asked, method=SLOW) == []
    assert len(rows) == store.count(), "the second time there was nothing to do"


def test_a_node_with_another_toolchain_builds_its_own(nodes: Nodes, tmp_path: Path) -> None:
    nodes.add("a")
    nodes.add("b")
    nodes.add("other", TILEWRIGHT_CXXFLAGS="-DTILEWRIGHT_OTHER=1")
    store = Results(tmp_path / "r.db")
    asked = problems(36)
    assert sweep(nodes, store, asked, method=SLOW) == []
    assert keys(store) == wanted(asked)
    usual, other = entries(nodes.store("a")), entries(nodes.store("other"))
    assert other, "it had a part in it"
    assert not usual.keys() & other.keys()


def test_the_work_of_a_node_that_is_killed_is_done_by_others(nodes: Nodes, tmp_path: Path) -> None:
    nodes.add("a")
    nodes.add("b")
    store = Results(tmp_path / "r.db")
    asked = problems(40)

    def on_row(_: Any, progress: Any) -> None:
        if progress.done > 4 and "b" in nodes.here:
            nodes.kill("b")

    said = sweep(nodes, store, asked, on_row, SLOW)
    assert len(said) == 1, said
    assert "is lost" in said[0]
    assert keys(store) == wanted(asked)
    assert {one.status for one in store.all()} == {OK}


def test_a_node_that_the_cluster_has_not_missed_yet_is_told_of_once_and_left_out(nodes: Nodes, tmp_path: Path) -> None:
    nodes.add("a")
    nodes.add("b")
    nodes.kill("b")
    store = Results(tmp_path / "r.db")
    asked = problems(3)
    said = sweep(nodes, store, asked)
    assert len(said) <= 1, "it may have been missed by now"
    assert all("is left out" in one for one in said)
    assert keys(store) == wanted(asked)


def test_the_driver_may_be_killed_and_the_same_command_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    nodes.add("a")
    nodes.add("b")
    file, store = tmp_path / "p.json", tmp_path / "r.db"
    file.write_text(json.dumps([{"m": size, "n": 8, "k": 8} for size in range(1, 61)]))
    digests = ",".join(repr(one.name) for one in specs())
    command = [
        sys.executable, "-m", "tilewright", "bench", "gemm", "--problems", str(file), "--target", TARGET,
        "--threads", "1", "--rounds", "20", "--batch-size", "2", "--patience", "0", "--store", str(store),
        "--filter", f"c.name in ({digests},)", "--cluster", nodes.address,
    ]  # fmt: skip
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    ends = time.monotonic() + 240
    while first.poll() is None and time.monotonic() < ends:
        time.sleep(0.05)
        if store.exists() and Results(store).count() > 5:
            break
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = {(one.kernel.digest, one.problem["m"]): one.date for one in Results(store).all()}
    asked = problems(60)
    assert 5 < len(kept) < len(wanted(asked)), first.stderr.read() if first.stderr else ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(wanted(asked)) - len(kept)} to measure, {len(kept)} are in" in done.stderr
    assert "2 devices of the cluster" in done.stderr
    again = {(one.kernel.digest, one.problem["m"]): one.date for one in Results(store).all()}
    assert sorted(again) == wanted(asked)
    assert all(again[one] == date for one, date in kept.items()), "what was finished was not measured again"


def test_a_node_with_another_version_is_an_error_that_names_it(nodes: Nodes, tmp_path: Path) -> None:
    nodes.add("a")
    package = tmp_path / "old" / "tilewright"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "0.0.1"\n')
    nodes.add("old", PYTHONPATH=str(package.parent))
    with pytest.raises(MachineError, match=r"has Tilewright 0\.0\.1, this machine") as caught:
        sweep(nodes, Results(tmp_path / "r.db"), problems(1))
    assert caught.value.rule == "cluster-node-version"
    assert not (tmp_path / "r.db").exists()
