"""Answered requests as rows of a run: what reads them, what users say, kills and limits."""

import concurrent.futures
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import marked
import pytest
from command_line import run_command, served, started
from fault_server import FaultServer, faulty
from runs import build, rows
from serving import body_of, is_deliberation, post, serving

from heavydistill.config.run import RunConfig, refuse_code_of_saved
from heavydistill.errors import ConfigError
from heavydistill.schema import Trace
from heavydistill.serve import record
from heavydistill.serve.episode import ServedEpisode
from heavydistill.serve.record import RequestRecord
from heavydistill.store.traces import read_traces, write_traces

KEY = "sk-" + "a1" * 24
OWN = "an-own-password-of-this-machine"
PRIVATE = "-----BEGIN PRIVATE KEY-----\n" + ("QUJD" * 16 + "\n") * 3
FLAGS = ["--port", "0", "--set", "endpoint.context=4096"]
CONVERSATION = [
    {"role": "user", "content": f"My key is {KEY}, and these:\n{PRIVATE} {json.dumps(PRIVATE)}"},
    {"role": "assistant", "content": f"And {OWN}?"},
    {"role": "user", "content": f"Yes, {KEY}. What is 3 + 4?"},
]


@pytest.fixture(scope="module")
def models() -> Iterator[FaultServer]:
    with faulty() as server:
        yield server


def say(address: str, **body: Any) -> tuple[int, Any]:
    """What the service replies to a user's verdict."""
    return post(address, body, "feedback")[:2]


def row_of(folder: Path, id: str) -> Trace:
    (row,) = (each for each in read_traces(folder) if each.problem.id == id)
    return row


def labels(row: Trace) -> list[tuple[bool, str, str]]:
    """(whether it has the answer of the first deliberation, verdict, verifier) of each response."""
    answer = row.deliberations[0].extracted
    responses = (*row.pool, *row.deliberations)
    return [(e.extracted == answer, e.verdict.label, e.verdict.verifier) for e in responses]


def test_show_report_and_build_read_what_was_served_and_what_users_said(tmp_path, models):
    folder, ids = tmp_path / "served", []
    with serving(models.base_url, serve__out=str(folder), domain="brief") as address:
        for number in range(6):
            reply = post(address, body_of(f"What is 3 + {number}?", heavy={"seed": 1}))[1]
            assert reply["heavy"]["recorded"] is True
            ids.append(reply["id"])
        assert run_command("show", folder).stdout.startswith("The run is being continued")
        assert all(verdict == "undecided" for _, verdict, _ in labels(row_of(folder, ids[0])))
        status, said = say(address, id=ids[0], right=True)
        assert (status, said["verdict"]) == (200, "correct")
        say(address, id=ids[1], right=True)
        say(address, id=ids[1], right=False)  # the last word counts
        for id in ids[2:]:
            say(address, id=id, rating=1)
        refused = run_command("build", folder, "--student", "micro-student")
        assert refused.returncode == 2 and "still being written" in refused.stderr + refused.stdout
    row = row_of(folder, ids[0])
    assert {one for one in labels(row) if one[0]} == {(True, "correct", "feedback after text")}
    assert {one for one in labels(row) if not one[0]} <= {(False, "undecided", "text")}
    assert said["responses"] == sum(same for same, _, _ in labels(row))
    assert (row.problem.reference, row.problem.origin) == ("", "serve:heavy")
    assert row.outcome in ("kept", "rescued", "emergent")
    assert "incorrect" in {verdict for _, verdict, _ in labels(row_of(folder, ids[1]))}
    shown = run_command("show", folder, "--problem", ids[0])
    assert shown.returncode == 0 and "user_feedback, feedback after text" in shown.stdout
    figures = run_command("show", folder)
    assert figures.returncode == 0 and "no_reference" in figures.stdout, figures.stdout
    assert figures.stdout.startswith("Users judged answers that they were shown")
    assert run_command("report", folder, "--out", tmp_path / "page.html").returncode == 0
    out = tmp_path / "sets"
    build(out, folder, preset="natural", filters__uses_attempts=False)
    taught = rows(out, "sft_deliberator")
    assert len(taught) > 0 and {row["run"] for row in taught} == {"served"}
    told = {each.answer_text.strip() for id in ids for each in row_of(folder, id).deliberations}
    assert {row["answer_text"] for row in taught if row["role"] == "deliberator"} <= told


def test_what_two_choices_are_worth_is_no_prompt_for_rl(tmp_path, models):
    folder = tmp_path / "served"
    with serving(models.base_url, serve__out=str(folder), domain="brief") as address:
        for seed in range(8):
            heavy = {"seed": seed, "d": 2}
            id = post(address, body_of(f"{seed}?", heavy=heavy))[1]["id"]
            say(address, id=id, choice=0, right=True)
            say(address, id=id, choice=1, rating=0)
    decided = [each.right for row in read_traces(folder) for each in row.deliberations]
    assert {True, False} <= set(decided)
    build(tmp_path / "sets", folder, preset="natural", filters__uses_attempts=False)
    caches = rows(tmp_path / "sets", "caches")
    assert {each["rl_label"] for each in caches} == {"no_reference"}


@pytest.mark.parametrize(
    ("body", "status", "param", "said"),
    [
        ({"id": "chatcmpl-none", "right": True}, 404, "id", "no recorded answer"),
        ({"id": "ID", "right": True, "choice": 1}, 400, "choice", "no choice 1"),
        ({"id": "ID", "right": True, "rating": 1}, 400, None, "either right or rating"),
        ({"id": "ID"}, 400, None, "either right or rating"),
        ({"id": "ID", "rating": 5}, 400, "rating", "at most 1"),
        ({"id": "ID", "right": "yes"}, 400, "right", "true or false"),
        ({"id": "ID", "right": True, "thumbs": 1}, 400, "thumbs", "id, choice, right, rating"),
    ],
)
def test_feedback_that_cannot_be_kept_is_refused_by_name(
    recorded, models, body, status, param, said
):
    address, id = recorded
    body = {name: id if value == "ID" else value for name, value in body.items()}
    code, reply = say(address, **body)
    assert (code, reply["error"]["param"]) == (status, param)
    assert said in reply["error"]["message"]


@pytest.fixture(scope="module")
def recorded(models, tmp_path_factory) -> Iterator[tuple[str, str]]:
    """The address of a service that records, and the id of an answer."""
    out = str(tmp_path_factory.mktemp("recorded") / "served")
    with serving(models.base_url, serve__out=out) as address:
        yield address, post(address, body_of())[1]["id"]


def test_feedback_needs_a_record(models):
    with serving(models.base_url) as address:
        reply = post(address, body_of())[1]
        assert "recorded" not in reply["heavy"]
        status, said = say(address, id=reply["id"], right=True)
    assert (status, said["error"]["code"]) == (404, "not_recorded")


def test_feedback_is_on_the_answer_that_took_the_place_of_the_deliberation(tmp_path):
    folder = tmp_path / "served"
    with (
        faulty(plan=lambda body, _: "broken" if is_deliberation(body) else None) as models,
        serving(models.base_url, think__k=8, serve__out=str(folder)) as address,
    ):
        reply = post(address, body_of(heavy={"seed": 1}))[1]
        assert reply["heavy"]["path"] == "voted"
        say(address, id=reply["id"], right=True)
    row = row_of(folder, reply["id"])
    votes = reply["heavy"]["vote"]
    right = [each.extracted for each in row.pool if each.is_correct]
    assert right == [votes["answer"]] * votes["votes"]


def test_keys_are_not_in_the_rows(tmp_path, models, monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", OWN)
    folder = tmp_path / "served"
    with serving(models.base_url, serve__out=str(folder)) as address:
        body = {"model": "heavy", "messages": CONVERSATION, "heavy": {"seed": 1}}
        assert post(address, body)[1]["heavy"]["recorded"]
    (row,) = read_traces(folder)
    texts = (repr(row), row.caches[0].prompt, row.problem.text, row.problem.history_json)
    assert not [each for each in texts if KEY in each or OWN in each or "QUJD" in each]
    assert "[MY_PASSWORD]" in row.problem.history[1].text
    assert "a private key" in row.problem.history[0].text and "3 + 4" in row.problem.text


def test_old_rows_make_room_for_new_ones(tmp_path, models, caplog):
    folder = tmp_path / "served"
    with serving(models.base_url, serve__out=str(folder), serve__max_out_bytes=100_000) as address:
        ids = [post(address, body_of(f"{number}?"))[1]["id"] for number in range(12)]
        kept = [row.problem.id for row in read_traces(folder)]
        assert 0 < len(kept) < 12 and kept == ids[-len(kept) :]
        assert say(address, id=ids[0], right=True)[0] == 404
        assert say(address, id=ids[-1], right=True)[0] == 200
    assert sum(path.stat().st_size for path in folder.rglob("*.parquet")) <= 100_000 * 9 / 8
    assert "serve.max_out_bytes" in caplog.text


def test_a_service_goes_on_with_its_rows_and_counts_what_was_asked_again(tmp_path, models):
    folder = str(tmp_path / "served")
    with serving(models.base_url, serve__out=folder) as address:
        ids = [post(address, body_of(model=model))[1]["id"] for model in ("heavy", "single")]
        post(address, body_of("### Task:\nGive a title."))  # nobody asks for a title again
    half = Path(folder, "traces", ".served-00000007.parquet.unfinished")
    half.write_text("killed")
    with serving(models.base_url, serve__out=folder) as address:
        post(address, body_of(model="vote"))
        post(address, body_of("another"))
        assert say(address, id=ids[0], right=True)[0] == 200
    assert len(list(read_traces(Path(folder)))) == 5 and not half.exists()
    process, address = _ready("--out", folder, "--k", "4", models=models)
    post(address, body_of("another"))
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0, printed
    counted = {"heavy: 3 answered, 2 asked again", "single: 1 answered, 1 asked again"}
    counted |= {"vote: 1 answered, 0 asked again"}
    assert counted <= set(printed.splitlines())


def _ready(*words: str, models: FaultServer, **keys: Any) -> tuple[subprocess.Popen[str], str]:
    """A service in a process of its own, and its address; ``keys`` as of ``started``."""
    process = started("serve", *served(models.base_url), *FLAGS, *words, **keys)
    assert process.stdout
    line = next(line for line in process.stdout if line.startswith("Ready"))
    found = re.search(r"http://\S+/v1", line)
    assert found
    return process, found[0]


def test_a_kill_loses_no_answered_row_and_leaves_no_half_row_and_no_process(tmp_path, models):
    folder, mark = tmp_path / "served", uuid.uuid4().hex
    flags = ["--out", str(folder), "--k", "2", "--verifier", "math"]
    process, address = _ready(*flags, models=models, env={**os.environ, marked.MARK: mark})
    answered: list[str] = []

    def ask(number: int) -> None:
        while True:
            try:
                answered.append(post(address, body_of(f"{number} + {len(answered)}?"))[1]["id"])
                if len(answered) >= 20:
                    process.kill()
            except (OSError, http.client.HTTPException):
                return

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(8)))
    process.communicate(timeout=60)
    kept = [row.problem.id for row in read_traces(folder)]
    assert len(answered) >= 20 and set(answered) <= set(kept) and len(kept) == len(set(kept))
    assert marked.eventually(lambda: not marked.alive(mark), 30), marked.alive(mark)
    assert run_command("show", folder).returncode == 0
    with serving(models.base_url, serve__out=str(folder), think__k=2) as again:
        assert say(again, id=answered[0], right=True)[0] == 200


def test_a_folder_of_something_else_is_refused(tmp_path, models):
    folder = tmp_path / "served"
    with serving(models.base_url, serve__out=str(folder)) as address:
        post(address, body_of())
        with pytest.raises(ConfigError, match="another process") as caught:
            _open(models, folder)
        assert "--out" in str(caught.value)
    with pytest.raises(ConfigError, match="another configuration"):
        _open(models, folder, deliberate__rounds=2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        _open(models, tmp_path / "full")


def _open(models: FaultServer, folder: Path, **keys: Any) -> None:
    with serving(models.base_url, serve__out=str(folder), **keys):
        pass


def test_code_that_the_configuration_of_a_record_names_is_not_run_unasked(tmp_path):
    (tmp_path / "traces").mkdir()
    with pytest.raises(ConfigError, match="names Python files"):
        refuse_code_of_saved(tmp_path / "config.yaml", RunConfig(plugins=["own.py"]), "name them")


def test_a_disk_that_fails_costs_the_row_and_not_the_answer(tmp_path, models, caplog):
    folder = tmp_path / "served"
    with serving(models.base_url, serve__out=str(folder)) as address:
        (folder / "traces").write_text("in the way")
        reply = post(address, body_of())[1]
        assert reply["choices"][0]["message"]["content"]
        assert reply["heavy"]["recorded"] is False and "not recorded" in caplog.text
        (folder / "traces").unlink()
        assert post(address, body_of())[1]["heavy"]["recorded"] is True


def test_a_disk_that_hangs_costs_the_row_and_not_the_answer(tmp_path, models, monkeypatch, caplog):
    folder, over = tmp_path / "served", threading.Event()

    def hanging(*args: Any, **keys: Any) -> Path:
        over.wait(60)
        return write_traces(*args, **keys)

    with serving(models.base_url, serve__out=str(folder), serve__max_requests=2) as address:
        kept = post(address, body_of())[1]["id"]
        monkeypatch.setattr(record, "write_traces", hanging)
        monkeypatch.setattr(record, "_PATIENCE_S", 0.2)  # only now: the first row loads pyarrow
        replies = [post(address, body_of(f"{number}?"))[1] for number in range(5)]
        assert all(reply["choices"][0]["message"]["content"] for reply in replies)
        assert [reply["heavy"]["recorded"] for reply in replies] == [False] * 5
        status, said = say(address, id=kept, right=True)
        assert (status, said["error"]["code"]) == (503, "not_written")
        assert caplog.text.count("does not answer") == 5
        over.set()
        monkeypatch.setattr(record, "_PATIENCE_S", 60.0)
        # Not the first one, if those that waited are still there.
        assert any(post(address, body_of())[1]["heavy"]["recorded"] for _ in range(50))
    assert len(list(read_traces(folder))) == 3  # the one that was being written too


def test_a_row_that_cannot_be_written_costs_no_other_one(tmp_path, models, monkeypatch, caplog):
    folder, questions = tmp_path / "served", ["1 + 1?", "broken", "2 + 2?"]
    of_row, write = ServedEpisode.row, RequestRecord._write_waiting

    def row(self: ServedEpisode, id: str, error: str = "") -> Trace:
        if self._asked.problem.text == "broken":
            raise ValueError("a bug")
        return of_row(self, id, error)

    def write_all(self: RequestRecord) -> None:
        if self._waiting.qsize() == len(questions):
            write(self)

    monkeypatch.setattr(ServedEpisode, "row", row)
    monkeypatch.setattr(RequestRecord, "_write_waiting", write_all)
    with (
        serving(models.base_url, serve__out=str(folder)) as address,
        concurrent.futures.ThreadPoolExecutor(len(questions)) as threads,
    ):
        replies = list(threads.map(lambda asked: post(address, body_of(asked))[1], questions))
    assert [reply["heavy"]["recorded"] for reply in replies] == [True, False, True]
    assert {row.problem.id for row in read_traces(folder)} == {replies[n]["id"] for n in (0, 2)}
    assert "1 answered request(s) are not recorded: ValueError" in caplog.text


def test_without_a_deliberation_feedback_may_name_any_choice(tmp_path):
    folder, seeds = tmp_path / "served", list[int]()

    def plan(body: Any, attempt: int) -> str | None:
        seeds.append(body["seed"])
        return None if body["seed"] == seeds[0] else "broken"

    with (
        faulty(plan=plan) as models,
        serving(models.base_url, serve__out=str(folder)) as address,
    ):
        reply = post(address, body_of(heavy={"d": 2, "k": 2, "min_k": 2}))[1]
        assert reply["heavy"]["path"] == "single" and len(reply["choices"]) == 2
        assert say(address, id=reply["id"], choice=1, right=True)[0] == 200
    assert sum(each.is_correct for each in row_of(folder, reply["id"]).pool) == 1


def test_a_request_without_an_answer_is_a_row_too(tmp_path):
    folder = tmp_path / "served"
    with (
        faulty(plan=lambda body, attempt: "broken") as models,
        serving(models.base_url, serve__out=str(folder)) as address,
    ):
        assert post(address, body_of())[0] == 502
    (row,) = read_traces(folder)
    assert row.status.startswith("failed: serve: None of 4 attempts is usable")
    assert {each.failure for each in row.pool} == {"server"}
