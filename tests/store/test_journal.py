"""What a journal promises: durable, whole, and unharmed by kills, damage and full disks."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import messages
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_engine import ScriptedEngine

from heavydistill.config.models import Sampling
from heavydistill.models.journaled import JournaledEngine
from heavydistill.models.ledger import most_cost
from heavydistill.models.request import Request, Response, samples, user_turn
from heavydistill.store.journal import Journal, keys, prompt_id, usage
from heavydistill.store.segment import FORMAT, Record, segments

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def request(prompt: str = "2 + 2?", index: int = 0, **sampling: float) -> Request:
    return Request(user_turn(prompt), Sampling(**sampling), 7 + index, index, "think")


def key(model: str, revision: str, of: Request) -> str:
    (only,) = keys(model, revision, [of])
    return only


def record(of: Request, answer_text: str = "4", **fields) -> Record:
    response = Response(**{"answer_text": answer_text, "finish_reason": "stop"} | fields)
    return Record(key("m", "", of), "m", {"seed": of.seed}, response, 1.5)


def put(folder: Path, *records: Record) -> Journal:
    journal = Journal(folder)
    for each in records:
        journal.put([each])
    journal.close()
    return journal


def filled(folder: Path, *answers: str) -> Journal:
    return put(folder, *(record(request(index=n), answer) for n, answer in enumerate(answers)))


def failure(index: int = 0) -> Record:
    return record(request(index=index), finish_reason="error", error="timeout", answer_text="")


def only_segment(folder: Path) -> Path:
    (segment,) = folder.glob("*.segment")
    return segment


def answers(folder: Path, count: int) -> list[str | None]:
    journal = Journal(folder)
    found = [journal.get(key("m", "", request(index=index))) for index in range(count)]
    return [response.answer_text if response else None for response in found]


@settings(max_examples=100, deadline=None)
@given(reasoning=texts, answer_text=texts, request_id=texts)
def test_what_was_put_is_read_back_as_it_was(tmp_path_factory, reasoning, answer_text, request_id):
    folder = tmp_path_factory.mktemp("journal")
    fields = {"reasoning": reasoning, "request_id": request_id, "prompt_tokens": 3}
    put(folder, record(request(), answer_text, **fields))
    read = Journal(folder).get(key("m", "", request()))
    assert read == Response(
        answer_text=answer_text, finish_reason="stop", from_journal=True, **fields
    )


def test_keys_and_seeds_of_a_user_turn_are_those_of_version_0_1():
    (first, second) = samples(
        user_turn("2 + 2 = ?\n\nAnswer: 中"), 2, Sampling(), run_seed=3, model="m", stage="think"
    )
    assert prompt_id(first.messages) == "57b1d9c7bcae2d77"
    assert (first.seed, second.seed) == (369820859, 429243837)
    assert [key("m", "rev", each) for each in (first, second)] == [
        "9c93b0afecd1b7397ba14928a19a931fd95a8fc53a3d3ff2aa1e5b08ace6abc7",
        "a81a0eee33022147a480204a2fbf4321c12f858a8cf1c1de6d241d15c580e50c",
    ]


def test_every_part_of_a_conversation_is_in_the_key_and_in_the_size_of_a_prompt():
    call = {"id": "c1", "type": "function", "function": {"name": "python", "arguments": "{}"}}
    changed = call | {"function": {"name": "python", "arguments": '{"code": "1"}'}}
    asked = [*user_turn("2 + 2?"), {"role": "assistant", "content": "", "tool_calls": [call]}]
    result = {"role": "tool", "content": "4", "tool_call_id": "c1"}
    conversations = [
        user_turn("2 + 2?"),
        [{"role": "system", "content": "Be brief."}, *user_turn("2 + 2?")],
        asked,
        [asked[0], asked[1] | {"reasoning_content": "Ask."}],
        [asked[0], asked[1] | {"tool_calls": [changed]}],
        [*asked, result],
        [*asked, result | {"tool_call_id": "c2"}],
    ]
    requests = [Request(each, Sampling(max_tokens=1), 7) for each in conversations]
    assert len({key("m", "", each) for each in requests}) == len(requests)
    sizes = [most_cost([each], None).tokens for each in requests]
    assert sizes[0] < min(sizes[1:]) and sizes[4] > sizes[2] < sizes[3] and sizes[5] > sizes[2]


def test_a_key_is_made_of_all_that_changes_a_response():
    keys = {
        key("m", "", request()),
        key("other", "", request()),
        key("m", "revision", request()),
        key("m", "", request("3 + 3?")),
        key("m", "", request(temperature=0.5)),
        key("m", "", request(index=1)),
        key("m", "", Request(user_turn("2 + 2?"), Sampling(), seed=8)),
    }
    assert len(keys) == 7
    assert key("m", "", request()) == key("m", "", request())


@pytest.mark.parametrize("kept", [1, 10, -1])
def test_a_torn_last_line_is_dropped_and_the_rest_is_whole(tmp_path, kept):
    filled(tmp_path, "a", "b", "c")
    segment = only_segment(tmp_path)
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:-1]) + lines[-1][:kept])
    assert answers(tmp_path, 3) == ["a", "b", None]
    (found,) = segments(tmp_path)
    assert found.torn == len(lines[-1][:kept]) and not found.damaged


def test_every_truncation_leaves_a_journal_that_can_be_read_and_written(tmp_path):
    filled(tmp_path / "whole", "a", "b")
    data = only_segment(tmp_path / "whole").read_bytes()
    for length in (*range(len(FORMAT)), *range(len(FORMAT), len(data), 7)):
        folder = tmp_path / str(length)
        folder.mkdir()
        (folder / "1.segment").write_bytes(data[:length])
        put(folder, record(request(index=9), "new"))
        assert answers(folder, 10)[9] == "new"


def test_a_full_disk_stops_the_writer_and_leaves_what_was_written(tmp_path, monkeypatch):
    journal = Journal(tmp_path)
    journal.put([record(request(index=0), "a")])
    write = os.write

    def half(file: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return write(file, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    full = {"why": "No space left on device", "fix": "Make room there"}
    with messages.raises("journal_unwritable", **full):
        journal.put([record(request(index=1), "b"), record(request(index=2), "c" * 2000)])
    monkeypatch.undo()
    # Nothing may follow half of a line.
    with messages.raises("journal_unwritable", **full):
        journal.put([record(request(index=3), "d")])
    journal.close()
    assert answers(tmp_path, 4) == ["a", "b", None, None]


def test_threads_share_a_segment_without_mixing_their_lines(tmp_path):
    journal = Journal(tmp_path)

    def write(start: int) -> None:
        for index in range(start, start + 50):
            journal.put([record(request(index=index), str(index) * 200)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(0, 400, 50)))
    journal.close()
    assert answers(tmp_path, 400) == [str(index) * 200 for index in range(400)]


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2].split(":")
from test_journal import record, request
from heavydistill.store.journal import Journal
journal = Journal(Path(sys.argv[1]))
for index in range(int(sys.argv[3]), 10**6):
    journal.put([record(request(index=index), f"answer {index}")])
    print(index, flush=True)
"""


def test_what_a_killed_process_said_was_put_is_there(tmp_path):
    here = ":".join(sys.path)
    for start in (0, 1000, 2000):  # three processes, each killed in the midst of writing
        arguments = [sys.executable, "-c", WRITER, str(tmp_path), here, str(start)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                if int(line) == start + 60:
                    process.kill()
            said = start + 60
        journal = Journal(tmp_path)
        for index in range(start, said + 1):
            assert journal.get(key("m", "", request(index=index))).answer_text == f"answer {index}"
    assert len(list(tmp_path.glob("*.segment"))) == 3
    assert not any(segment.damaged for segment in segments(tmp_path))


def scripted(fails_on: tuple[int, ...] = (), wait_s: float = 0.0) -> ScriptedEngine:
    """One that fails on some, and may take its time."""

    def answer(one: Request, before: int) -> Response:
        time.sleep(wait_s)
        if one.index in fails_on:
            return Response(answer_text="", finish_reason="error", error="timeout")
        return Response(answer_text=f"{one.index}", finish_reason="stop")

    return ScriptedEngine(answer, "r1")


def ask(folder: Path, count: int, fails_on: tuple[int, ...] = ()) -> tuple[list, list[int]]:
    """(responses, indices that the engine was asked for)."""
    engine = scripted(fails_on)
    journaled = JournaledEngine(engine, Journal(folder), "m")
    responses = journaled.generate([request(index=index) for index in range(count)])
    journaled.close()
    return responses, [each.index for each in engine.requests]


def test_more_samples_pay_for_the_new_ones_and_for_what_failed(tmp_path):
    first, asked = ask(tmp_path, 8, fails_on=(3,))
    assert asked == list(range(8)) and first[3].finish_reason == "error"
    second, asked = ask(tmp_path, 16)
    assert asked == [3, *range(8, 16)]
    assert [r.answer_text for r in second] == [str(index) for index in range(16)]
    assert [r.from_journal for r in second] == [i < 8 and i != 3 for i in range(16)]


def test_a_record_names_what_was_asked(tmp_path):
    ask(tmp_path, 1)
    line = only_segment(tmp_path).read_text().splitlines()[1]
    payload = json.loads(line.split(" ", 3)[3])
    assert payload["model"] == "m" and payload["at"] > 1e9
    assert payload["asked"] == {
        "stage": "think",
        "prompt": prompt_id(user_turn("2 + 2?")),
        "sampling": Sampling().model_dump(),
        "seed": 7,
        "index": 0,
    }


def test_nothing_is_durable_before_the_disk_says_so(tmp_path, monkeypatch):
    known, flush = [], os.fdatasync
    journal = Journal(tmp_path)

    def flushed(file: int) -> None:
        known.append(journal.answered)
        flush(file)

    monkeypatch.setattr(os, "fdatasync", flushed)
    journal.put([record(request(index=0), "a")])
    journal.put([record(request(index=index), text) for index, text in ((1, "b"), (2, "c"))])
    assert (known, journal.answered) == ([0, 1], 3)
    assert answers(tmp_path, 3) == ["a", "b", "c"]
    assert [each.response.answer_text for each in journal.answers()] == ["a", "b", "c"]


def test_a_disk_that_fails_to_flush_is_not_trusted_again(tmp_path, monkeypatch):
    journal = Journal(tmp_path)

    def broken(file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    for index in range(2):
        with messages.raises("journal_unwritable", why="Input/output error", fix="Check the disk"):
            journal.put([record(request(index=index))])
        monkeypatch.undo()


def test_a_record_that_cannot_be_written_down_harms_no_other(tmp_path):
    journal = Journal(tmp_path)
    with pytest.raises(UnicodeEncodeError):
        journal.put([record(request(index=0), "\ud83d")])
    journal.put([record(request(index=1), "b")])
    journal.close()
    assert answers(tmp_path, 2) == [None, "b"]


def test_nothing_can_be_put_after_the_end(tmp_path):
    journal = filled(tmp_path, "a")
    with messages.raises("journal_unwritable", why="it was closed"):
        journal.put([record(request(index=1))])
    assert answers(tmp_path, 2) == ["a", None]


def test_the_first_answer_counts_and_no_later_failure_hides_it(tmp_path):
    filled(tmp_path, "first")
    filled(tmp_path, "second")
    put(tmp_path, failure())
    opened = Journal(tmp_path)
    assert opened.get(key("m", "", request())).answer_text == "first"
    assert opened.last(key("m", "", request())).answer_text == "first"


@pytest.mark.parametrize(
    ("end", "text", "finish_reason"),
    [("end_turn", "7", "stop"), ("max_tokens", "7", "length"), ("odd", "\\boxed{7}", "stop"),
     ("odd", "7", None), ("it's", "7", None),
     ("SAFETY", "\\boxed{7}", None)],
)  # fmt: skip
def test_a_paid_response_whose_end_was_not_known_then_is_read_again(
    tmp_path, end, text, finish_reason
):
    wrong = {"finish_reason": "error", "failure": "unknown_end", "completion_tokens": 9}
    put(tmp_path, record(request(), text, error=f"the server stopped for {end!r}", **wrong))
    journal, wanted = Journal(tmp_path), key("m", "", request())
    response = journal.get(wanted)
    assert (response and response.finish_reason) == finish_reason
    assert journal.state(wanted) == ("answered" if finish_reason else "failed")
    last = journal.last(wanted)
    assert (last.answer_text, last.completion_tokens, last.from_journal) == (text, 9, True)
    assert (last.failure, last.unknown_finish_reason) == (
        None if finish_reason else "unknown_end",
        end if end in ("odd", "it's") else "",
    )


def test_what_is_in_flight_is_not_asked_twice(tmp_path):
    engine = scripted(wait_s=0.1)
    journaled = JournaledEngine(engine, Journal(tmp_path), "m")
    wanted = [request(index=index) for index in range(3)]
    with ThreadPoolExecutor(4) as pool:
        all_responses = list(pool.map(journaled.generate, [wanted] * 4))
    assert sorted(each.index for each in engine.requests) == [0, 1, 2]
    assert {tuple(r.answer_text for r in responses) for responses in all_responses} == {
        ("0", "1", "2")
    }
    assert [r.answer_text for r in journaled.generate(wanted)] == ["0", "1", "2"]
    assert len(engine.requests) == 3


def test_a_journal_tells_what_became_of_a_request_without_reading_it(tmp_path):
    ask(tmp_path, 3, fails_on=(1,))
    journal = Journal(tmp_path)
    states = [journal.state(key("m", "r1", request(index=index))) for index in range(4)]
    assert states == ["answered", "failed", "answered", None]
    assert journal.answered == 2


def test_all_responses_are_read_as_written_or_shuffled(tmp_path):
    filled(tmp_path, *map(str, range(30)))
    journal = Journal(tmp_path)
    in_order = [record.response.answer_text for record in journal.answers()]
    assert in_order == list(map(str, range(30)))
    shuffled = [record.response.answer_text for record in journal.answers(shuffled=True)]
    assert shuffled != sorted(shuffled, key=int) and len(set(shuffled)) == 30


def test_usage_counts_each_request_once_and_failures_apart(tmp_path):
    sizes = [(0, 10, 5), (0, 10, 5), (1, 10, 5), (3, -1, -1)]
    records = [
        record(request(index=index), prompt_tokens=prompt, completion_tokens=completion)
        for index, prompt, completion in sizes
    ]
    put(tmp_path, *records, failure(2))
    models, unread = usage(tmp_path)
    (used,) = models.values()
    assert unread == 0
    assert (used.responses, used.failed) == (3, 1)
    assert (used.prompt_tokens, used.completion_tokens) == (20, 10)
