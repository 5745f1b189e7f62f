"""The steps as actors of a Ray cluster, by distilabel's ``RayPipeline``.

Where they run: Ray spreads the workers of all steps over the nodes. A step whose ``computes`` is
true, which are the verifiers and whatever asks a model in its own process, has a replica on every
node; if the cluster has GPUs, a model in a process has one on every GPU instead, and stages that
ask share each GPU as they do on one machine. Asking an endpoint is light work: one process does
it. A step with ``resources`` of its own keeps them, replicas included.

What a worker takes over: the working folder, so that relative paths mean the same everywhere, and
the keys of endpoints and of the Hub, which go to no log. A journal must lie on a file system that
all nodes share; a worker that does not see it as the driver does is an error. So is another
version of this package.

Not covered: distilabel's ``vLLM`` class (serve vLLM, and ask the endpoint); nodes that join while a
run is under way get no work of it.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

# Ray asks an address that is no cluster 20 times, for 40 s each.
os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
# A cluster that is started here reports nothing to its makers.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Under `uv run`, Ray would send the working folder to the nodes, journal and all.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

import ray
from distilabel.constants import STEP_ATTR_NAME
from distilabel.pipeline.base import BasePipeline
from distilabel.pipeline.ray import RayPipeline
from distilabel.steps import StepResources
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import heavydistill
from heavydistill.errors import ConfigError, HeavydistillError, JournalError, RunError
from heavydistill.run.flow import HeavyBase, OnBatch
from heavydistill.run.mailboxes import Mailbox, Mailboxes
from heavydistill.run.ray_worker import End, RayWrapper, Surroundings, Worker

if TYPE_CHECKING:
    import pyarrow as pa

LOCAL = "local"

# What workers take over of the environment, beside the keys of endpoints.
_PASSED = {"HF_TOKEN", "OMP_NUM_THREADS"}
_GRACE_S = 10.0
_POLL_S = 0.2
_CONNECT_TIMEOUT_S = 5.0
_ROOM_WARNING_S = 60.0


class HeavyRayPipeline(HeavyBase, RayPipeline):
    """A pipeline of Ray actors that leaves none behind.

    Args:
        name: See ``HeavyBase``, as for the next three.
        leaf_schema: Of the rows that leave the last step.
        on_batch: For progress.
        window: Of rows.
        address: ``local`` starts Ray on this machine; ``host:port`` and ``auto`` join a cluster
            that this machine is part of, ``ray://host:port`` one that it is not. Where Ray is
            joined already, that is used and left as it is.
    """

    def __init__(
        self,
        name: str,
        leaf_schema: pa.Schema,
        on_batch: OnBatch | None = None,
        window: int = 1024,
        address: str = LOCAL,
    ) -> None:
        super().__init__(name, leaf_schema, on_batch, window)
        self.address = address
        self._workers: list[_Started] = []
        self._boxes: Any = None
        self._numbers = itertools.count()
        self._joined = False
        self._gpu_share: dict[str, float] = {}
        self._nodes_of: dict[str, list[str]] = {}
        self._tokens: list[Path] = []
        self._since = 0.0
        # Of the actors' names, which a killed run may hold for a moment.
        self._namespace = f"heavydistill-{uuid.uuid4().hex}"

    def _open(self) -> None:
        if not ray.is_initialized():
            join(self.address)
            self._joined = True
        self._since = time.monotonic()
        named = {"name": "mailboxes", "namespace": self._namespace}
        self._boxes = ray.remote(Mailboxes).options(num_cpus=0, **named).remote()
        self._log_queue = self._mailbox()
        self._spread()
        self._surroundings = self._our_surroundings()

    def _spread(self) -> None:
        """Give the steps that compute their replicas; see the module."""
        nodes = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
        gpus = int(sum(node["Resources"].get("GPU", 0) for node in nodes))
        free = [
            step
            for step in self._steps()
            if getattr(step, "computes", False) and "resources" not in step.model_fields_set
        ]
        asking = [step for step in free if hasattr(step, "llm")]
        for step in free:
            if gpus and step in asking:
                step.resources = StepResources(replicas=gpus)
                self._gpu_share[step.name] = 1 / len(asking)
            elif nodes:
                step.resources = StepResources(replicas=len(nodes))
                self._nodes_of[step.name] = [node["NodeID"] for node in nodes]
        self.window.most *= max((step.resources.replicas for step in asking), default=1)

    def _our_surroundings(self) -> Surroundings:
        """Also leaves a token in every journal, for the workers to see."""
        models = [step.llm for step in self._steps() if hasattr(step, "llm")]
        for journal in {model.journal for model in models if getattr(model, "journal", None)}:
            token = Path(journal).absolute() / f".ray-{uuid.uuid4().hex}"
            try:
                token.parent.mkdir(parents=True, exist_ok=True)
                token.touch()
            except OSError as error:
                raise JournalError(
                    f"The journal {journal} cannot be used: {error.strerror}",
                    "Name a folder on a file system that all nodes share and that can be written.",
                ) from error
            self._tokens.append(token)
        keys = {model.endpoint.key_env for model in models if hasattr(model, "endpoint")}
        passed = {name: os.environ[name] for name in keys | _PASSED if name in os.environ}
        return Surroundings(heavydistill.__version__, Path.cwd(), tuple(self._tokens), passed)

    def _steps(self) -> Iterator[Any]:
        for name in self.dag:
            yield self.dag.get_step(name)[STEP_ATTR_NAME]

    def _dead_worker(self) -> HeavydistillError | None:
        running = [worker.end for worker in self._workers if not worker.over]
        over = set(ray.wait(running, num_returns=len(running), timeout=0)[0]) if running else ()
        for worker in self._workers:
            if worker.end in over:
                worker.over = True
                if failure := self._settle(worker):
                    return failure
        self._warn_of_no_room()
        return None

    def _settle(self, worker: _Started) -> HeavydistillError | None:
        """Count the work of a worker that has ended, and say why if that was too early."""
        try:
            end: End = ray.get(worker.end)
        except ray.exceptions.RayError as error:
            return RunError(
                f"The worker of step {worker.step!r} is lost: {_in_one_line(error)}",
                "Look at that node, often short of memory. What is in the journal is kept.",
            )
        self.batches_of_nodes[end.node] += end.batches
        return end.failure

    def _warn_of_no_room(self) -> None:
        if time.monotonic() < self._since + _ROOM_WARNING_S:
            return
        self._since = float("inf")
        if waiting := {worker.step for worker in self._not_started()}:
            self._logger.warning(
                "Workers of %s have not started yet. They wait if the cluster, of which "
                "`ray status` tells more, has no room.",
                ", ".join(sorted(waiting)),
            )

    def _not_started(self) -> list[_Started]:
        """Workers that Ray has not placed on a node yet."""
        return [worker for worker in self._workers if not ray.wait([worker.there], timeout=0)[0]]

    def _await_ends(self) -> None:
        running = [worker.end for worker in self._workers if not worker.over]
        if running:
            ray.wait(running, num_returns=len(running), timeout=_GRACE_S)

    def _stop_workers(self, drain: bool) -> None:
        if not ray.is_initialized():
            return
        waiting = self._not_started()
        draining = [w for w in self._workers if drain and w.asks and w not in waiting]
        for worker in self._workers:
            if worker in draining:
                worker.actor.drain.remote()
            else:
                ray.kill(worker.actor)
        if draining:
            self._await_drained()

    def _join_drained(self) -> None:
        running = [worker.end for worker in self._workers]
        while running:
            _, running = ray.wait(running, num_returns=len(running), timeout=_POLL_S)

    def _kill_workers(self) -> None:
        for worker in self._workers:
            ray.kill(worker.actor)

    def _close(self) -> None:
        for token in self._tokens:
            token.unlink(missing_ok=True)
        if ray.is_initialized():
            self._kill_workers()
            if self._boxes:
                ray.kill(self._boxes)
        self._workers.clear()
        self._boxes = None
        if self._joined:
            ray.shutdown()
            self._joined = False

    def _fail(self, error: Exception) -> None:
        if isinstance(error, ray.exceptions.RayError):
            error = RunError(
                f"The Ray cluster lost the queues of the pipeline: {_in_one_line(error)}",
                "Look at its nodes and run the same command again.",
            )
        super()._fail(error)

    # From here on: overrides of distilabel's private methods.

    @property
    def QueueClass(self) -> Any:
        return self._mailbox

    def _mailbox(self) -> Mailbox:
        return Mailbox(self._boxes, next(self._numbers))

    def _create_step_input_queue(self, step_name: str) -> Any:
        # RayPipeline gives it a name.
        return BasePipeline._create_step_input_queue(self, step_name)

    def _run_step(self, step: Any, input_queue: Mailbox, replica: int) -> None:
        wrapper = self._wrapped(RayWrapper, step, input_queue, replica)
        strategy: Any = "SPREAD"  # which may well put two replicas of a step on one node
        if nodes := self._nodes_of.get(step.name):
            strategy = NodeAffinitySchedulingStrategy(nodes[replica], soft=True)
        options = {
            "name": f"{step.name} {replica}",
            "namespace": self._namespace,
            "scheduling_strategy": strategy,
            "max_concurrency": 2,  # to hear of a drain during the run
            "num_cpus": step.resources.cpus,
            "num_gpus": step.resources.gpus or self._gpu_share.get(step.name),
            "memory": step.resources.memory,
            "resources": step.resources.resources,
        }
        given = {name: value for name, value in options.items() if value is not None}
        actor = ray.remote(Worker).options(**given).remote(self._surroundings)
        end = actor.run.remote(wrapper, self._log_queue, self.name, self.signature)
        asks = hasattr(step, "llm")
        self._workers.append(_Started(step.name, asks, actor, actor.node.remote(), end))


def join(address: str) -> None:
    """Start Ray on this machine or join a cluster.

    Raises:
        ConfigError: Nothing answers at the address, or what does cannot be joined.
    """
    _require_listener(address)
    options = {"include_dashboard": False} if address == LOCAL else {}
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR", **options)
    except (Exception, SystemExit) as error:  # Ray raises whatever comes up, and exits too
        raise ConfigError(
            f"--ray {address}: Ray cannot be joined there: {_in_one_line(error)}",
            "Start Ray there with the Python and ray versions of this machine (`ray start`), and "
            "give host:6379 on a machine of the cluster, ray://host:10001 elsewhere, or local.",
        ) from None


def _require_listener(address: str) -> None:
    """Say at once that nobody listens, which Ray finds out after a minute."""
    if address in (LOCAL, "auto"):
        return
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        if not parts.hostname or not parts.port:
            raise ValueError("it has no host and port")
        socket.create_connection((parts.hostname, parts.port), _CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--ray {address}: nothing answers there: {error}",
            "Give local, auto, host:6379 or ray://host:10001 of a cluster that runs.",
        ) from None


def _in_one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


@dataclass(slots=True, eq=False)
class _Started:
    """A worker as the driver sees it: its step, whether that asks a model, and what will come."""

    step: str
    asks: bool
    actor: Any
    there: Any
    end: Any
    over: bool = False
