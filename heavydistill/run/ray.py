"""Shards as tasks of a Ray cluster.

There is one shard per node that has CPUs. If shards run models themselves and the cluster has GPUs,
there is one per GPU; if each shard starts a server, one per set of GPUs that a server needs. Ray
places the shards. If a node is lost, its shard starts again on another one, at most ``_RETRIES``
times.

Shards receive the working folder and the keys of endpoints and of the Hub, which are not logged.
Journal and rows must be on a file system that all nodes share.

Not covered: nodes that join during a run, which get no work.
"""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path
from urllib.parse import urlsplit

# Otherwise Ray tries an address without a cluster 20 times, for 40 s each.
os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
# A cluster that is started here sends no usage statistics.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Under `uv run`, Ray would copy the working folder with the journal to the nodes.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

import ray

import heavydistill
from heavydistill.errors import ConfigError, RunError
from heavydistill.models.resolve import ResolvedRun
from heavydistill.run.shards import Shard, ShardEnd, Surroundings, run_shard
from heavydistill.store.traces import writing

LOCAL = "local"

# Environment variables that shards receive, in addition to the keys of endpoints.
_PASSED = {"HF_TOKEN", "OMP_NUM_THREADS"}
_RETRIES = 3
_CONNECT_TIMEOUT_S = 5.0


class RayPool:
    """Runs the shards of a run on a Ray cluster.

    Args:
        address: ``local`` starts Ray on this machine; ``host:port`` and ``auto`` join a cluster
            that this machine is part of, ``ray://host:port`` another one. If Ray is initialized
            already, that cluster is used.
        run: The run.

    Raises:
        ConfigError: The cluster cannot be joined, or has too few GPUs for a server.
        RunError: The journal cannot be written.
    """

    def __init__(self, address: str, run: ResolvedRun) -> None:
        self._joined = not ray.is_initialized()
        if self._joined:
            join(address)
        self.count, self._gpus = _spread(address, run)
        self._token = _token(run)
        self.surroundings: Surroundings | None = Surroundings(
            heavydistill.__version__, Path.cwd(), self._token, _passed(run)
        )
        self._tasks: list[object] = []
        self._ends: dict[int, ShardEnd] = {}

    def start(self, shards: list[Shard]) -> None:
        options: dict[str, object] = {"max_retries": _RETRIES, "scheduling_strategy": "SPREAD"}
        task = ray.remote(run_shard).options(num_gpus=self._gpus, **options)
        self._tasks = [task.remote(shard) for shard in shards]

    def ended(self) -> dict[int, ShardEnd]:
        waiting = [task for n, task in enumerate(self._tasks) if n not in self._ends]
        over = set(ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]) if waiting else ()
        for number, task in enumerate(self._tasks):
            if task in over:
                try:
                    self._ends[number] = ray.get(task)
                except ray.exceptions.RayError as error:
                    raise RunError(
                        f"Shard {number} is lost, after {_RETRIES} retries: {_in_one_line(error)}",
                        "Check the memory of the cluster's nodes, then repeat the same command: it "
                        "goes on from the journal.",
                    ) from None
        return self._ends

    def close(self) -> None:
        if ray.is_initialized():
            for number, task in enumerate(self._tasks):
                if number not in self._ends:
                    ray.cancel(task, force=True)
        self._token.unlink(missing_ok=True)
        if self._joined:
            ray.shutdown()


def _spread(address: str, run: ResolvedRun) -> tuple[int, float]:
    """Return (number of shards, GPUs per shard).

    Raises:
        ConfigError: No node has enough GPUs for a server.
    """
    nodes = [n["Resources"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
    there = [int(node.get("GPU", 0)) for node in nodes]
    if run.server and (gpus := run.server.gpus):
        if not (servers := sum(each // gpus for each in there)):
            raise ConfigError(
                f"--ray {address}: no node has the {gpus} GPUs that --start-vllm needs",
                "Add such nodes, or start a server yourself and name it with --endpoint.",
            )
        return servers, gpus
    if sum(there) and any(model.is_local for model in run.models):
        return sum(there), 1
    return max(1, len(nodes)), 0


def _token(run: ResolvedRun) -> Path:
    """Create a file in the journal, by which shards verify that they see the same journal."""
    token = Path(run.config.journal or "").absolute() / f".ray-{uuid.uuid4().hex}"
    with writing(token.parent):
        token.parent.mkdir(parents=True, exist_ok=True)
        token.touch()
    return token


def _passed(run: ResolvedRun) -> dict[str, str]:
    names = _PASSED | {model.endpoint.key_env for model in run.models}
    return {name: os.environ[name] for name in names if name in os.environ}


def join(address: str) -> None:
    """Start Ray on this machine or join a cluster.

    Raises:
        ConfigError: There is no cluster at the address, or it cannot be joined.
    """
    options = {"include_dashboard": False} if address == LOCAL else {}
    try:
        if address not in (LOCAL, "auto"):  # Ray needs a minute to notice a missing listener
            parts = urlsplit(address if "://" in address else f"//{address}")
            if not parts.hostname or not parts.port:
                raise ValueError("the address has no host and port")
            socket.create_connection((parts.hostname, parts.port), _CONNECT_TIMEOUT_S).close()
        ray.init(address, log_to_driver=False, logging_level="ERROR", **options)
    except (Exception, SystemExit) as error:  # Ray raises errors of many kinds, and may exit
        raise ConfigError(
            f"--ray {address}: the cluster cannot be joined: {_in_one_line(error)}",
            "Start Ray there (`ray start`) with the Python and ray versions of this machine. Give "
            "host:6379 or auto on a machine of the cluster, ray://host:10001 elsewhere, or local.",
        ) from None


def _in_one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
