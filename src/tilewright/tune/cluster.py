"""Sweeps on several machines, by Ray: builds go to the nodes, every device has an actor that measures and returns rows.

A cluster is seen as worker pools: devices with one fingerprint share the work, whichever node they are in; devices of
another kind do all of it too, since their times are others.  Kernels are built on the nodes and kept by this process,
which sends each to a node that needs it once; a node with another compiler, or another CPU level, builds its own.

What a node was doing when it was lost is given to others.  This process may die at any time: rows are in its store,
kernels in the stores of the nodes, and the same command goes on from there.
"""

from __future__ import annotations

import logging
import platform
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tilewright import __version__, settings
from tilewright.arch import arch as arch_by_name
from tilewright.errors import DeviceError, MachineError, RequestError, TilewrightError
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime.devices import HOST
from tilewright.runtime.timing import Method
from tilewright.tune import node as nodes
from tilewright.tune import quiet
from tilewright.tune.build_queue import Finished, Heard
from tilewright.tune.device_worker import START, DeviceWorkerLost, Outcome
from tilewright.tune.spent import Spent
from tilewright.tune.worker_pool import WorkerPool

CONNECT = 10.0  # seconds until an address counts as unreachable
ANSWER = 120.0  # seconds a node has to start a process of ours and to answer
TOGETHER = 4  # kernels of one build task
LOSSES = 3  # processes that may end over one build task
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # and empty settings
_SETTINGS_FRAME = 4

OnNote = Callable[[str], None]


@dataclass(slots=True)
class Node:
    """One machine of the cluster, as it described itself."""

    id: str
    name: str
    resources: Mapping[str, float]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cpus(self) -> int:
        return int(self.resources.get("CPU", 0))

    @property
    def gpus(self) -> int:
        return int(self.resources.get("GPU", 0))


@dataclass(frozen=True, slots=True)
class Sent:
    """A kernel that was built somewhere: its bytes are in this process's share of the cluster's memory."""

    spec: KernelSpec
    kin: str
    key: str
    parcel: Any  # an ObjectRef


# -- coming in ---------------------------------------------------------------------------------------------


def ray_module() -> Any:
    """Ray, where it is installed."""
    try:
        import ray
    except ImportError as error:
        raise MachineError(
            f"sweeps on a cluster need Ray, which is not installed ({error})",
            rule="no-ray",
            value="ray",
            remedy='pip install "tilewright[ray]" here and on every node',
        ) from error
    return ray


def _place(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or "://" in address or not port.isdigit() or not 0 < int(port) < 65536:
        raise RequestError(
            f"{address!r} is not the address of a Ray cluster",
            rule="cluster-address",
            value=address,
            remedy="give HOST:PORT of its head node, as `ray start --head` prints it (the port is 6379 unless set "
            "otherwise), on a machine that is a node of the cluster",
        )
    return host.strip("[]"), int(port)


def demand_reachable(address: str, limit: float = CONNECT) -> None:
    """Ray itself waits for minutes, or for ever, where nothing answers: an address is tried first."""
    host, port = _place(address)
    why = ""
    try:
        with socket.create_connection((host, port), timeout=limit) as link:
            if settings.child_environment().get("RAY_USE_TLS", "0") not in ("", "0"):
                return  # its answer would have to be asked for in another way
            link.settimeout(limit)
            link.sendall(_PREFACE)
            head = link.recv(9)
            if len(head) < 4 or head[3] != _SETTINGS_FRAME:
                why = "something answers there that is not Ray"
    except TimeoutError:
        why = f"nothing answers there within {limit:g} s"
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise MachineError(
            f"there is no Ray cluster at {address}: {why}",
            rule="cluster-unreachable",
            value=address,
            remedy="start one (`ray start --head` on one machine, `ray start --address HOST:PORT` on the others), or "
            "fix the address",
        )


class Cluster:
    """The nodes of a Ray cluster that have a part in sweeps of a target; a context."""

    def __init__(self, address: str, target: str, *, limit: float, patience: float, jobs: int | None = None) -> None:
        self.address, self.target = address, target
        self.limit, self.patience, self.jobs = limit, patience, jobs
        self.on_host = arch_by_name(target).backend == HOST.kind
        self.threads = settings.current().threads  # 0 means all cores of each node
        self.ray: Any = None

    def __enter__(self) -> Cluster:
        demand_reachable(self.address)
        self.ray = ray = ray_module()
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
        except Exception as error:
            raise self._refused(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self.ray.shutdown()

    def _refused(self, error: Exception) -> MachineError:
        text = " ".join(str(error).split())[:400]
        mismatch = "version mismatch" in text.lower()
        return MachineError(
            f"the Ray cluster at {self.address} cannot be used from here: {text or type(error).__name__}",
            rule="cluster-version" if mismatch else "cluster-refused",
            value=self.address,
            remedy="install the same Python and Ray here as on the cluster"
            if mismatch
            else f"make this machine a node of it (`ray start --address {self.address}`), or fix the address",
        )

    # -- who is there ------------------------------------------------------------------------------------

    def worker_pools(self, note: OnNote) -> list[WorkerPool]:
        """Those who can measure the target, with what is wrong with the others said to `note`."""
        members = self.nodes(note)
        if self.on_host:
            workers = [RayDeviceWorker(self, node, node.facts) for node in members if self._measures(node, note)]
        else:
            workers = list(self._with_gpus(members, note))
        if not workers:
            raise DeviceError(
                f"no node of the cluster at {self.address} has a device of {self.target} that is free",
                rule="cluster-devices",
                value=self.target,
                remedy="name a target that its nodes have, or wait until they are free (see `ray status`)",
            )
        groups: dict[tuple[str, int], list[RayDeviceWorker]] = {}
        for worker in workers:
            groups.setdefault((worker.facts["machine"]["fingerprint"], worker.facts["threads"]), []).append(worker)
        return [self._worker_pool(members, group) for group in groups.values()]

    def nodes(self, note: OnNote) -> list[Node]:
        """The nodes that answer; MachineError where one has another Python or another Tilewright."""
        alive = [
            Node(node["NodeID"], f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})", node["Resources"])
            for node in self.ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        ]
        ask = self.ray.remote(max_retries=0, num_cpus=0)(_probe())
        answers = {node.id: self.on(ask, node.id).remote(self.target, self.threads) for node in alive}
        self.ray.wait(list(answers.values()), num_returns=max(1, len(answers)), timeout=ANSWER) if answers else None
        answered: list[tuple[Node, Mapping[str, Any]]] = []
        for node in alive:
            try:
                answered.append((node, self.ray.get(answers[node.id], timeout=0.1)))
            except Exception as error:
                note(f"node {node.name} is left out: {_short(error)}")
        demand_alike(answered)
        for node, answer in answered:
            node.facts = answer["facts"]
        return [node for node, _ in answered]

    def alive(self, node: str) -> bool:
        return any(entry["Alive"] for entry in self.ray.nodes() if entry["NodeID"] == node)

    def on(self, remote: Any, node: str, **options: Any) -> Any:
        """A task or an actor that runs on one node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False), **options)

    def _measures(self, node: Node, note: OnNote) -> bool:
        why = node.facts["why_no_device"]
        if why:
            note(f"node {node.name} does not measure: {why}")
        return not why

    def _with_gpus(self, members: Sequence[Node], note: OnNote) -> Iterator[RayDeviceWorker]:
        """Workers of devices that are free; each actor has one of its own, and says which."""
        workers = [RayDeviceWorker(self, node, {}, place) for node in members for place in range(node.gpus)]
        answers = [(worker, worker.ask()) for worker in workers]
        for worker, answer in answers:
            try:
                worker.facts = self.ray.get(answer, timeout=ANSWER)
                why = worker.facts["why_no_device"]
            except Exception as error:
                why = f"it was not free within {ANSWER:g} s" if _is(error, "GetTimeoutError") else _short(error)
            if why:
                note(f"{worker.name} does not measure: {why}")
                worker.close()
            else:
                yield worker

    def _worker_pool(self, members: Sequence[Node], workers: Sequence[RayDeviceWorker]) -> WorkerPool:
        """Alike devices; their kernels are built by the nodes of the kin most of them are."""
        among = [worker.node for worker in workers] if self.on_host else members
        kins = Counter(worker.facts["kin"] for worker in workers if worker.facts["kin"])
        kins = kins or Counter(node.facts["kin"] for node in members if node.facts["kin"])
        if not kins:
            raise MachineError(
                f"no node of the cluster at {self.address} can build kernels of {self.target}: "
                f"{members[0].facts['why_no_compiler']}",
                rule="cluster-compiler",
                value=self.target,
                remedy="install a compiler on one of them; `tilewright doctor` there says what is missing",
            )
        kin = kins.most_common(1)[0][0]
        builders = [node for node in among if node.facts["kin"] == kin]
        builders = builders or [node for node in members if node.facts["kin"] == kin]
        for worker in workers:
            worker.builder_versions = builders[0].facts["versions"]
        facts = workers[0].facts
        return WorkerPool(
            facts["machine"], facts["threads"], facts["cache_bytes"], self.on_host,
            RayBuilds(self, kin, builders), tuple(workers),
        )  # fmt: skip


def _probe() -> Callable[[str, int], dict[str, Any]]:
    """A function that is sent as it is: it must run where Tilewright is missing, or another one."""

    def probe(target: str, threads: int) -> dict[str, Any]:
        import platform

        answer: dict[str, Any] = {"python": platform.python_version(), "tilewright": "", "tree": "", "trouble": ""}
        try:
            import tilewright

            answer["tilewright"] = tilewright.__version__
            from tilewright.tune import node

            answer["tree"] = node.tree()
            answer["facts"] = node.facts(target, threads)
        except Exception as error:
            answer["trouble"] = f"{type(error).__name__}: {error}"
        return answer

    return probe


def demand_alike(answered: Sequence[tuple[Node, Mapping[str, Any]]]) -> None:
    """Raise where a node has another Python or another Tilewright than this process, and name it."""
    mine = {"Python": _minor(platform.python_version()), "Tilewright": __version__, "sources": nodes.tree()}
    for node, answer in answered:
        theirs = {"Python": _minor(answer["python"]), "Tilewright": answer["tilewright"], "sources": answer["tree"]}
        what = next((name for name in mine if theirs[name] != mine[name]), "")
        if not what and not answer["trouble"]:
            continue
        if not theirs["Tilewright"]:
            why = f"cannot import Tilewright: {answer['trouble']}"
        elif what == "sources" and theirs["sources"]:
            why = f"has other sources of Tilewright {__version__} than this machine"
        elif what and theirs[what]:
            why = f"has {what} {theirs[what]}, this machine {mine[what]}"
        else:
            why = f"cannot describe itself: {answer['trouble']}"
        raise MachineError(
            f"node {node.name} {why}",
            rule="cluster-node-version",
            value=node.name,
            remedy="install the same Tilewright and Python on every node, and start Ray there again",
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _short(error: BaseException) -> str:
    return (" ".join(str(getattr(error, "cause", None) or error).split()) or type(error).__name__)[:300]


def _is(error: BaseException, *names: str) -> bool:
    """Whether an error of Ray is one of these: its classes differ a little from version to version."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


# -- building ----------------------------------------------------------------------------------------------


class RayBuilds:
    """Builds on the nodes of one kin, as many at a time as they have processors."""

    def __init__(self, cluster: Cluster, kin: str, builders: Sequence[Node]) -> None:
        self._cluster, self._kin, self._builders = cluster, kin, builders

    def build(self, specs: Sequence[KernelSpec], heard: Heard | None) -> Generator[Finished, None, None]:
        ray = self._cluster.ray
        task = ray.remote(max_retries=0, num_cpus=1)(nodes.build)
        waiting = deque(_Group(tuple(specs[first : first + TOGETHER])) for first in range(0, len(specs), TOGETHER))
        running: dict[Any, tuple[str, _Group]] = {}
        free = {builder.id: min(builder.cpus, self._cluster.jobs or builder.cpus) for builder in self._builders}
        try:
            while waiting or running:
                while waiting and (place := max(free, key=lambda name: free[name], default="")) and free[place] > 0:
                    group = waiting.popleft()
                    free[place] -= 1
                    words = [spec.to_dict() for spec in group.specs]
                    running[self._cluster.on(task, place).remote(group.specs[0].op, words)] = (place, group)
                if not running:
                    raise self._nobody(len(waiting))
                for future in ray.wait(list(running), num_returns=1, timeout=1.0)[0]:
                    place, group = running.pop(future)
                    try:
                        answer = ray.get(future)
                    except Exception as error:
                        why = _demand_lost(error)
                        if not self._cluster.alive(place):
                            free.pop(place, None)
                        group = _Group(group.specs, group.losses + 1)
                        if group.losses < LOSSES:
                            waiting.appendleft(group)
                        else:
                            yield Finished({}, {each.digest: why for each in group.specs})
                    else:
                        yield self._finished(answer, group.specs, heard)
                    if place in free:
                        free[place] += 1
        finally:
            for future in running:
                with suppress(Exception):
                    ray.cancel(future, force=True)

    def _finished(self, answer: Mapping[str, Any], group: Sequence[KernelSpec], heard: Heard | None) -> Finished:
        for event in answer["heard"]:
            if heard is not None:
                heard(event)
        specs = {spec.digest: spec for spec in group}
        built = {
            digest: Sent(specs[digest], self._kin, parcel["key"], self._cluster.ray.put(parcel))
            for digest, parcel in answer["built"].items()
        }
        return Finished(built, answer["failed"])

    def _nobody(self, left: int) -> MachineError:
        return MachineError(
            f"every node that builds is lost ({', '.join(builder.name for builder in self._builders)})",
            rule="cluster-lost",
            value=left,
            remedy="start the nodes again; the same command goes on from where it was",
        )


@dataclass(frozen=True, slots=True)
class _Group:
    """Kernels of one task, and how many processes ended over them."""

    specs: tuple[KernelSpec, ...]
    losses: int = 0


def _demand_lost(error: Exception) -> str:
    """How a node or its process ended; raises what is no such end, since the same would happen on the next."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, TilewrightError):
        raise cause from error
    if _is(error, "RayTaskError"):
        raise error
    return f"the process that built it was lost: {_short(error)}"


# -- measuring ---------------------------------------------------------------------------------------------


class RayDeviceWorker:
    """One device of a node, by an actor that holds it."""

    def __init__(self, cluster: Cluster, node: Node, facts: Mapping[str, Any], place: int = 0) -> None:
        self._cluster, self.node, self.facts, self._place = cluster, node, facts, place
        self.builder_versions: Mapping[str, str] = {}
        self.spent = Spent()
        self.on_wait: quiet.Waiting | None = None  # of nobody: a node reports its waits with what it spent
        self._actor: Any = None
        self._has: set[str] = set()  # digests of kernels the node was sent
        self._closed = False

    @property
    def name(self) -> str:
        return f"node {self.node.name}" + ("" if self._cluster.on_host else f" device {self._place}")

    def versions(self, spec: KernelSpec) -> Mapping[str, str]:
        versions: Mapping[str, str] = self.facts["versions"] if self.facts["kin"] else self.builder_versions
        return versions

    def ask(self) -> Any:
        """Start the actor; its answer is what it measures on.

        On the host it takes all the node's processors, so that nothing else of the cluster runs beside it.
        """
        cluster = self._cluster
        takes = {"num_cpus": self.node.cpus} if cluster.on_host else {"num_gpus": 1, "num_cpus": 0}
        hosted = cluster.ray.remote(nodes.HostedWorker)
        actor = cluster.on(hosted, self.node.id, max_restarts=0, max_task_retries=0, **takes)
        self._actor = actor.remote(cluster.target, cluster.threads, cluster.limit, cluster.patience)
        return self._actor.facts.remote()

    def prepare(self) -> None:
        """Nothing: on the host an actor takes all of its node, and kernels are built there."""

    def open(self) -> None:
        self._closed = False
        if self._actor is not None:
            return  # it was asked what it is
        facts = self._get(self.ask(), ANSWER, "it did not start")
        if facts["why_no_device"]:
            raise DeviceWorkerLost(facts["why_no_device"])
        if facts["machine"]["fingerprint"] != self.facts["machine"]["fingerprint"]:
            raise DeviceWorkerLost(f"{self.name} is another device now: {facts['machine']}")

    def measure(self, problem: Any, kernels: Sequence[Sent], method: Method) -> Iterator[Outcome]:
        limit = 3 * START + 4 * self._cluster.limit * max(1, len(kernels))  # each may be asked alone, and twice
        again: set[str] = set()
        while True:
            sent = [kernel for kernel in kernels if kernel.kin == self.facts["kin"] or not self.facts["kin"]]
            wanted = [kernel for kernel in sent if kernel.spec.digest not in self._has or kernel.spec.digest in again]
            words = [{"spec": kernel.spec.to_dict(), "kin": kernel.kin, "key": kernel.key} for kernel in kernels]
            answer = self._get(
                self._actor.measure.remote(
                    problem.op, plain(problem), plain(method), words, *(kernel.parcel for kernel in wanted)
                ),
                limit,
                f"no answer within {limit:g} s",
            )
            self._has |= {kernel.spec.digest for kernel in sent}
            if "missing" not in answer:
                break
            if again:
                raise DeviceWorkerLost(f"it does not keep the kernels that it is sent ({answer['missing'][0][:12]})")
            again = set(answer["missing"])
        self.spent.add(answer.get("spent") or {})
        for fields in answer["outcomes"]:
            yield Outcome(**fields)
        if "lost" in answer:
            raise DeviceWorkerLost(answer["lost"])

    def _get(self, answer: Any, limit: float, late: str) -> Any:
        """An actor's answer; DeviceWorkerLost where there is none."""
        ray = self._cluster.ray
        ends = time.monotonic() + limit
        while not self._closed:
            try:
                return ray.get(answer, timeout=1.0)
            except Exception as error:
                if _is(error, "GetTimeoutError"):
                    if time.monotonic() > ends:
                        raise DeviceWorkerLost(late) from error
                    continue
                cause = getattr(error, "cause", None)
                if isinstance(cause, TilewrightError):
                    raise cause from error
                if _is(error, "RayTaskError"):
                    raise
                raise DeviceWorkerLost(f"{type(error).__name__}: {_short(error)}") from error
        raise DeviceWorkerLost("the sweep ended")

    def close(self) -> None:
        self._closed = True
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(Exception):
                self._cluster.ray.kill(actor)
