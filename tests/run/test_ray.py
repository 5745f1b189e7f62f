"""Runs on a real Ray cluster of two nodes, both on this machine, and on one that a run starts."""

import dataclasses
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_server import FakeServer, completion, serving

from heavydistill.config.run import load_config
from heavydistill.errors import ConfigError, JournalError
from heavydistill.run.ray import join
from heavydistill.run.ray_worker import Surroundings
from heavydistill.run.recipe import build_heavy_pipeline
from heavydistill.schema import Trace
from heavydistill.store.segment import segments
from heavydistill.store.traces import read_traces

COMMAND = str(Path(sys.executable).parent / "heavydistill")
MICRO = str(Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher")
# A busy machine of two cores starts the nodes' processes one after the other.
TIMEOUT_S = 600
pytestmark = pytest.mark.timeout(2 * TIMEOUT_S)


class TwoNodes:
    """The cluster, and what its tables say of the actors in it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def actors(self, step: str = "") -> list[dict[str, Any]]:
        """The workers of the last run, or of one of its steps, dead ones too."""
        from ray._private.state import actors

        table = list(actors().values())
        last = max((actor["JobID"] for actor in table), default="")
        return [a for a in table if a["JobID"] == last and a["Name"].startswith(step)]

    def left(self) -> list[str]:
        """Actors that are alive some seconds after a run."""
        from ray._private.state import actors

        for _ in range(50):
            alive = [a["Name"] for a in actors().values() if a["State"] != "DEAD"]
            if not alive:
                break
            time.sleep(0.1)
        return alive


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    import ray
    from ray.cluster_utils import Cluster

    here = signal.getsignal(signal.SIGTERM)
    size = {"num_cpus": 4, "object_store_memory": 100 * 2**20}
    nodes = Cluster(
        initialize_head=True, head_node_args={"include_dashboard": False, **size}, connect=False
    )
    nodes.add_node(**size)
    ray.init(nodes.address, log_to_driver=False, logging_level="ERROR")
    yield TwoNodes(nodes.address)
    ray.shutdown()
    nodes.shutdown()
    signal.signal(signal.SIGTERM, here)  # ray.init put its own there


def started(folder: Path, *flags: str) -> subprocess.Popen[str]:
    command = [COMMAND, "generate", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes)  # type: ignore[call-overload, no-any-return]


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """(exit code, what was printed)."""
    try:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    return process.returncode, printed


def generate(folder: Path, *flags: str) -> str:
    code, printed = ended(started(folder, *flags))
    assert code == 0, printed
    return printed


def told(run: Path) -> list[Trace]:
    """The traces without the times, in which two servings of one request differ."""

    def timeless(generation: Any) -> Any:
        return dataclasses.replace(generation, latency_s=0.0)

    return [
        dataclasses.replace(
            trace,
            pool=[timeless(t) for t in trace.pool],
            deliberations=[timeless(d) for d in trace.deliberations],
        )
        for trace in read_traces(run)
    ]


def records(journal: Path) -> list[int]:
    """How many are in each segment."""
    return [len(segment.lines) for segment in segments(journal)]


@dataclasses.dataclass
class Run:
    """A run of the micro teacher on both nodes.

    Attributes:
        folder: Where the command was given; the run is ``two`` in it.
        printed: By the command.
        nodes: Of the workers of each step, by their process number.
    """

    folder: Path
    printed: str
    nodes: dict[str, dict[int, str]]


FLAGS = ("--k=4", "--d=4", "--set=problems.size=24")
RESPONSES = 24 * (4 + 4)


@pytest.fixture(scope="module")
def on_two(cluster: TwoNodes, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("ray")
    printed = generate(folder, *FLAGS, "--out=two", f"--ray={cluster.address}")
    nodes: dict[str, dict[int, str]] = {}
    for actor in cluster.actors():
        step, pid, node = actor["Name"].split()[0], actor["Pid"], actor["Address"]["NodeID"][:6]
        nodes.setdefault(step, {})[pid] = node
    assert not cluster.left()
    return Run(folder, printed, nodes)


@pytest.mark.slow
def test_two_nodes_do_work(on_two: Run) -> None:
    last = on_two.printed.rpartition("each Ray node")[2]
    work = dict(re.findall(r"\((\w{6})\): (\d+)", last))
    assert len(work) == 2 and all(int(batches) > 0 for batches in work.values()), on_two.printed
    for step in ("sample_trajectories", "verify_pool", "deliberate_1", "verify_deliberations_1"):
        assert sorted(on_two.nodes[step].values()) == sorted(work), step
    # Each process that asked has a segment of its own, with its number in the name.
    wrote = {int(file.stem.rpartition("-")[2]) for file in (on_two.folder / "journal").iterdir()}
    assert on_two.nodes["sample_trajectories"].keys() <= wrote


@pytest.mark.slow
def test_the_traces_are_those_of_one_machine(on_two: Run) -> None:
    generate(on_two.folder, *FLAGS, "--out=one", "--journal=journal-of-one")
    assert told(on_two.folder / "two") == told(on_two.folder / "one")


@pytest.mark.slow
def test_a_second_run_finds_all_in_the_journal_of_the_nodes(on_two: Run) -> None:
    journal = on_two.folder / "journal"
    assert {file.suffix for file in journal.iterdir()} == {".segment"}
    assert sum(records(journal)) == RESPONSES
    generate(on_two.folder, *FLAGS, "--out=again")
    assert sum(records(journal)) == RESPONSES
    assert told(on_two.folder / "again") == told(on_two.folder / "two")


def served(server: FakeServer, folder: Path, address: str) -> list[str]:
    problems = folder / "problems.jsonl"
    lines = [{"id": f"p{n}", "text": f"{n} + 1?", "reference": f"{n + 1}"} for n in range(40)]
    problems.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return [
        *("--teacher=served", f"--endpoint={server.base_url}", f"--tokenizer={MICRO}"),
        *("--problems=problems.jsonl", "--k=4", "--d=2", "--out=run", f"--ray={address}"),
        "--set=endpoint.concurrency=8",
    ]


class Slow:
    """Answers that take a second; how many were given."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self, body: dict[str, Any]) -> Any:
        time.sleep(1.0)
        self.given += 1
        return completion("\\boxed{1}")


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, ended(process)
        time.sleep(0.05)


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_in_flight_and_leaves_no_actor(
    cluster: TwoNodes, tmp_path: Path
) -> None:
    answer = Slow()
    with serving(answer) as server:
        process = started(tmp_path, *served(server, tmp_path, cluster.address))
        wait_for(lambda: answer.given >= 12, process)
        os.killpg(process.pid, signal.SIGINT)
        code, printed = ended(process)
    assert code == 130 and "goes on from journal" in printed, printed
    assert sum(records(tmp_path / "journal")) == answer.given < 160
    assert not cluster.left()


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_run(cluster: TwoNodes, tmp_path: Path) -> None:
    answer = Slow()
    with serving(answer) as server:
        process = started(tmp_path, *served(server, tmp_path, cluster.address))
        wait_for(lambda: answer.given >= 4, process)
        os.kill(cluster.actors("verify_pool")[0]["Pid"], signal.SIGKILL)
        code, printed = ended(process)
    assert code == 1 and "The worker of step 'verify_pool' is lost" in printed, printed
    assert not (tmp_path / "run").exists() and not cluster.left()


UNLOADABLE = """
import pyarrow as pa
from streaming_steps import FailsToLoad, Numbers, Wait

from heavydistill.run.ray import HeavyRayPipeline

if __name__ == "__main__":
    schema = pa.schema([("number", pa.int64())])
    with HeavyRayPipeline("unloadable", schema, address="local") as pipeline:
        Numbers(name="load", count=4) >> FailsToLoad(name="first") >> Wait(name="last", seconds=0.0)
    pipeline.run()
"""


@pytest.mark.slow
def test_a_step_that_cannot_be_loaded_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "unloadable.py").write_text(UNLOADABLE, encoding="utf-8")
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "unloadable.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1, done.stderr
    assert "RunError: Step 'first' failed: OSError: no weights on this node" in done.stderr


def test_models_in_a_process_share_the_gpus_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [
        {"Alive": True, "NodeID": "head", "Resources": {"GPU": 4.0}},
        {"Alive": True, "NodeID": "large", "Resources": {"CPU": 8.0, "GPU": 4.0}},
        {"Alive": True, "NodeID": "small", "Resources": {"CPU": 8.0, "GPU": 1.0}},
        {"Alive": False, "NodeID": "lost", "Resources": {"CPU": 8.0, "GPU": 4.0}},
    ]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    pipeline = build_heavy_pipeline(load_config(None), ray="local")
    pipeline._spread()
    replicas = {step.name: step.resources.replicas for step in pipeline._steps()}
    assert replicas == {
        "load_problems": 1,
        "sample_trajectories": 5,
        "verify_pool": 2,
        "build_caches_1": 1,
        "deliberate_1": 5,
        "verify_deliberations_1": 2,
        "label_traces": 1,
    }
    assert pipeline._gpu_share == {"sample_trajectories": 0.5, "deliberate_1": 0.5}
    pipeline.discard()


def test_an_endpoint_is_asked_by_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    node = {"Alive": True, "NodeID": "one", "Resources": {"CPU": 8.0, "GPU": 4.0}}
    monkeypatch.setattr("ray.nodes", lambda: [node, node])
    flags = {"teacher": "m", "endpoint.base_url": "http://h/v1", "endpoint.tokenizer": MICRO}
    pipeline = build_heavy_pipeline(load_config(None, flags), ray="local")
    pipeline._spread()
    replicas = {step.name: step.resources.replicas for step in pipeline._steps()}
    assert replicas["sample_trajectories"] == 1 and replicas["verify_pool"] == 2
    pipeline.discard()


def test_the_key_of_the_endpoint_goes_to_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    flags = {
        "teacher": "m",
        "endpoint.base_url": "http://h/v1",
        "endpoint.tokenizer": MICRO,
        "journal": str(tmp_path / "journal"),
    }
    pipeline = build_heavy_pipeline(load_config(None, flags), ray="local")
    ours = pipeline._our_surroundings()
    assert ours.environment == {"OPENAI_API_KEY": "secret"}
    assert [token.parent for token in ours.tokens] == [tmp_path / "journal"]
    pipeline.discard()


def test_an_address_where_nothing_answers_is_said_soon(tmp_path: Path) -> None:
    before = time.monotonic()
    code, printed = ended(started(tmp_path, "--ray=127.0.0.1:9", "--set=problems.size=2"))
    assert code == 2 and "--ray 127.0.0.1:9: nothing answers there" in printed, printed
    assert time.monotonic() - before < 30


@pytest.mark.parametrize("address", ["cluster", "ray://host", "ray://:10001"])
def test_an_address_without_host_and_port_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="no host and port"):
        join(address)


def test_without_ray_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'distilabel\[ray\]==1.5.3'"):
        build_heavy_pipeline(load_config(None), ray="local")


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(Path.cwd())
    token = tmp_path / ".ray-token"
    token.touch()
    return Surroundings("0.1.0", tmp_path, (token,), {"SOME_KEY": "secret"})


def test_a_worker_works_where_the_command_was_given(
    ours: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "another")
    ours.take_over()
    assert Path.cwd() == tmp_path and os.environ["SOME_KEY"] == "secret"
    assert "secret" not in repr(ours)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"version": "0.0.1"}, ConfigError, "the driver 0.0.1"),
        ({"folder": Path("/no/such/folder")}, ConfigError, "cannot enter the working folder"),
        ({"tokens": (Path("/no/such/journal/t"),)}, JournalError, "does not see the journal"),
    ],
)
def test_a_node_that_differs_is_an_error(
    ours: Surroundings, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        dataclasses.replace(ours, **change).take_over()
