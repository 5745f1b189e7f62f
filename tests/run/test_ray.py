"""Runs on a real Ray cluster of nodes on this machine, one of which is lost during a run."""

import dataclasses
import importlib.util
import os
import signal
import subprocess
from typing import Any

import messages
import pytest
from command_line import MICRO, started
from fake_server import serving
from samples import untimed
from sharded_runs import IN_FLIGHT, PROBLEMS, D, K, Slow, asking, planned, seeds

from heavydistill.config.run import load_config
from heavydistill.models.profiles import Setup
from heavydistill.models.registry import profile_of
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.models.vllm.server import OwnServer
from heavydistill.run.generate import check, run
from heavydistill.run.ray import _passed, _spread, _token, join
from heavydistill.store.traces import read_traces

# A busy machine of two cores starts the nodes' processes one after the other.
TIMEOUT_S = 600
pytestmark = pytest.mark.timeout(2 * TIMEOUT_S)
SIZE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}


class Nodes:
    """A cluster of a head without processors and two nodes."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"include_dashboard": False, **SIZE, "num_cpus": 0}
        self.cluster = Cluster(initialize_head=True, head_node_args=head, connect=False)
        self.nodes = [self.cluster.add_node(**SIZE) for _ in range(2)]
        self.address = self.cluster.address


@pytest.fixture(scope="module")
def cluster():
    import ray

    here = signal.getsignal(signal.SIGTERM)
    nodes = Nodes()
    yield nodes
    ray.shutdown()
    nodes.cluster.shutdown()
    signal.signal(signal.SIGTERM, here)  # Ray put its own there


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """(exit code, what was printed)."""
    try:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    return process.returncode, printed


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_in_flight_on_all_nodes(cluster, tmp_path):
    answer = Slow()
    with serving(answer) as server:
        planned(server, tmp_path)
        flags = asking(server.base_url, "run", f"--ray={cluster.address}")
        process = started("generate", *flags, cwd=tmp_path)
        answer.midway(process, 12)
        os.killpg(process.pid, signal.SIGINT)
        code, printed = ended(process)
        assert code == 130 and messages.is_in(printed, "same_command_goes_on"), printed
        assert seeds(tmp_path) == answer.given == len(server.requests) < PROBLEMS * (K + D)


@pytest.mark.slow
def test_a_run_that_loses_a_node_in_its_midst_finishes_with_the_same_rows(cluster, tmp_path):
    answer = Slow()
    with serving(answer) as server:
        planned(server, tmp_path)
        more = [f"--ray={cluster.address}", "--budget=200ktok"]
        flags = asking(server.base_url, "two", *more)
        process = started("generate", *flags, cwd=tmp_path)
        answer.midway(process)
        cluster.cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
        code, printed = ended(process)
        assert code == 0, printed
        # What the lost node had in flight, and nothing else, was asked again.
        asked = len(server.requests)
        assert PROBLEMS * (K + D) <= asked <= PROBLEMS * (K + D) + IN_FLIGHT // 2, asked
        plan = planned(server, tmp_path, out=str(tmp_path / "one"))
        run(plan, replay=True)
    two, one = (untimed(read_traces(folder)) for folder in (tmp_path / "two", plan.folder))
    assert two == one and len(two) == PROBLEMS


NODES = [
    {"Alive": True, "NodeID": "head", "Resources": {"GPU": 4.0}},
    {"Alive": True, "NodeID": "large", "Resources": {"CPU": 8.0, "GPU": 4.0}},
    {"Alive": True, "NodeID": "small", "Resources": {"CPU": 8.0, "GPU": 1.0}},
    {"Alive": False, "NodeID": "lost", "Resources": {"CPU": 8.0, "GPU": 4.0}},
]
SERVED = {"teacher": "m", "endpoint.base_url": "http://h/v1", "endpoint.tokenizer": MICRO}


@pytest.mark.parametrize(
    ("keys", "of_server", "expected"),
    [
        ({}, None, (5, 1)),  # a model in each shard, and a shard on each GPU
        (SERVED, None, (2, 0)),  # on each node
        (SERVED, 2, (2, 2)),  # on each pair, for a server of its own
        (SERVED, 4, (1, 4)),
        (SERVED, 1, (5, 1)),
        (SERVED, 0, (2, 0)),  # on each node, for a server on its processors
    ],
)
def test_shards_are_as_many_as_nodes_gpus_or_servers(monkeypatch, keys, of_server, expected):
    monkeypatch.setattr("ray.nodes", lambda: NODES)
    assert _spread("auto", with_server(keys, of_server)) == expected


def with_server(keys: dict[str, Any], gpus: int | None) -> ResolvedRun:
    """A run that starts a server on so many GPUs; None: no server."""
    run = resolve(load_config(None, keys))
    if gpus is None:
        return run
    own = OwnServer(profile_of("qwen3-8b"), gpus, Setup(max_model_len=4096))
    return dataclasses.replace(run, server=own)


def test_a_server_that_no_node_has_the_gpus_for_is_refused(monkeypatch):
    monkeypatch.setattr("ray.nodes", lambda: NODES)
    with messages.raises("ray_no_gpus", gpus=8):
        _spread("auto", with_server(SERVED, 8))


def test_the_key_of_the_endpoint_goes_to_the_shards(tmp_path, monkeypatch):
    for name in ("HF_TOKEN", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    run = resolve(load_config(None, {**SERVED, "journal": str(tmp_path / "journal")}))
    assert _passed(run) == {"OPENAI_API_KEY": "secret"}
    token = _token(run)
    assert token.parent == tmp_path / "journal" and token.exists()


def test_an_address_where_nothing_answers_is_said_soon(tmp_path):
    words = ["generate", "--ray=127.0.0.1:9", "--set=problems.size=2"]
    code, printed = ended(started(*words, cwd=tmp_path))
    assert code == 2 and "--ray 127.0.0.1:9: the cluster cannot be joined" in printed, printed
    assert "Connection refused" in printed, "Ray itself would look for a minute"


@pytest.mark.parametrize("address", ["cluster", "ray://host", "ray://:10001"])
def test_an_address_without_host_and_port_is_refused(address):
    with messages.raises("ray_address"):
        join(address)


def test_without_ray_the_command_to_install_it_is_named(monkeypatch, tmp_path):
    plan = check(load_config(None, {"problems.limit": 1, "out": str(tmp_path / "run")}))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with messages.raises("ray_not_installed"):
        run(plan, ray="local")


def test_processes_and_a_cluster_are_not_asked_for_at_once(tmp_path):
    keys = {"problems.limit": 1, "out": str(tmp_path / "run"), "processes": 2}
    with messages.raises("ray_and_processes"):
        run(check(load_config(None, keys)), ray="local")
