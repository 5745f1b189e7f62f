"""What is found before a run begins, and before anything heavy is loaded."""

import dataclasses
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import messages
import pytest
from counting_server import Counter, counting
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.config.run import load_config
from heavydistill.errors import BudgetError, JournalError, TeacherError
from heavydistill.heavy.cache import frame_tokens
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.models.tokenizer import SERVER
from heavydistill.run.generate import check, check_room, with_tokenizer
from heavydistill.schema import Problem


def resolved(**keys: Any) -> ResolvedRun:
    return resolve(load_config(None, {key.replace("__", "."): v for key, v in keys.items()}))


def problem(name: str, words: int) -> Problem:
    return Problem(id=name, text="word " * words, reference="1", verifier="exact", source="p.jsonl")


def test_the_problem_that_leaves_the_least_room_is_named():
    problems = [problem("a", 9), problem("b", 300), problem("c", 250)]
    with messages.raises("budget_of_cache", problem="b", attempts=8):
        check_room(resolved(cache__budget_tokens=500), problems)


def test_deliberations_of_the_round_before_need_room_too():
    problems, budget = [problem("a", 9)], 170
    check_room(resolved(cache__budget_tokens=budget, deliberate__rounds=1), problems)
    with messages.raises("budget_of_cache_round", deliberations=4):
        check_room(resolved(cache__budget_tokens=budget, deliberate__rounds=2), problems)


def served(url: str, **keys: Any) -> ResolvedRun:
    server = {"endpoint__base_url": url, "endpoint__capabilities": {}, "endpoint__context": 4096}
    return resolved(teacher="m", **server, **keys)


def test_what_an_estimate_finds_too_large_is_counted_by_the_server():
    problems = [problem("a", 9), problem("b", 300)]
    with counting(Counter()) as server:
        check_room(served(server.url, cache__budget_tokens=1900), problems)
        assert len(server.asked) == 1  # of the largest problem, by the estimate
        with messages.raises("budget_of_cache"):
            check_room(served(server.url, cache__budget_tokens=300), problems)
    config = served(f"{server.url}/gone", cache__budget_tokens=1900)
    check_room(config, problems, asks=False)  # an estimate alone refuses nothing
    with messages.raises("budget_of_cache_estimated"):
        check_room(config, problems)


def test_a_tokenizer_of_a_profile_that_cannot_be_loaded_gives_way_to_the_server(tmp_path, caplog):
    file = tmp_path / "far.yaml"
    file.write_text("name: far\nhub: m\ntokenizer: ./nowhere\ncontext: 65536\n", "utf-8")
    run = resolved(teacher=str(file), endpoint__base_url="http://h/v1")
    assert run.config.endpoint.tokenizer is None
    changed = with_tokenizer(run)
    assert changed.config.endpoint.tokenizer == SERVER
    assert changed.deliberator.profile.tokenizer == SERVER
    (warning,) = caplog.records
    assert "nowhere" in warning.message and "--tokenizer" in warning.message
    with pytest.raises(TeacherError):  # what the user names must be there
        with_tokenizer(served("http://h/v1", endpoint__tokenizer="./nowhere"))
    local = resolved()
    assert with_tokenizer(local) is local


@given(
    words=st.integers(1, 250),
    k=st.integers(2, 300),
    budget=st.integers(60, 1536),
    rounds=st.integers(1, 2),
)
@settings(deadline=None, max_examples=60)
def test_what_is_recommended_passes(words, k, budget, rounds):
    problems = [problem("a", words)]
    chosen = {"think__k": k, "deliberate__rounds": rounds, "cache__budget_tokens": budget}
    try:
        check_room(resolved(**chosen), problems)
    except BudgetError as error:
        if width := re.search(r"cache\.width=(\d+)", error.fix):
            assert 2 <= int(width[1]) < k
            check_room(resolved(**chosen, cache__width=int(width[1])), problems)
        if enough := re.search(r"cache\.budget_tokens to (\d+)", error.fix):
            check_room(resolved(**chosen | {"cache__budget_tokens": int(enough[1])}), problems)


def test_a_shorter_problem_with_a_longer_fence_may_leave_less_room():
    fenced = dataclasses.replace(problem("fenced", 20), text="word " * 20 + "=" * 40)
    problems = [problem("a", 9), problem("long", 90), fenced]
    with messages.raises("budget_of_cache", problem="long", attempts=8):
        check_room(resolved(cache__budget_tokens=150, think__k=8), problems)
    with messages.raises("budget_of_cache", problem="fenced", attempts=200):
        check_room(resolved(cache__budget_tokens=150, think__k=200), problems)


def test_many_attempts_are_counted_once_and_not_for_every_problem(monkeypatch):
    counted: list[int] = []

    def count(problem: Problem, attempts: int, *rest: Any) -> int:
        counted.append(attempts)
        return frame_tokens(problem, attempts, *rest)

    monkeypatch.setattr("heavydistill.run.generate.frame_tokens", count)
    problems = [problem(str(number), number) for number in range(1, 51)]
    check_room(resolved(think__k=100, cache__budget_tokens=1500), problems)
    assert counted.count(100) == 1 and len(counted) == 51


OTHER_FORMAT = b"heavydistill journal 999\n"


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("fault", ["file", "format", "folder"])
def test_a_journal_that_cannot_be_used_is_found_by_the_check(tmp_path, fault, asks):
    journal = tmp_path / "journal"
    if fault == "file":
        journal.write_text("")
    else:
        journal.mkdir()
        segment = journal / "1.segment"
        segment.mkdir() if fault == "folder" else segment.write_bytes(OTHER_FORMAT)
    config = load_config(None, {"problems.limit": 1, "out": str(tmp_path / "run")})
    with pytest.raises(JournalError) as caught:
        check(config, asks)
    assert str(journal) in caught.value.what


def test_so_is_one_that_cannot_be_written_but_whoever_reads_alone_may_use_it(tmp_path, monkeypatch):
    """root may write everywhere, so the system is asked by another."""

    make = tempfile.TemporaryFile

    def refusing(dir: Path, **keys: Any) -> Any:
        if dir == tmp_path / "journal":
            raise PermissionError(13, os.strerror(13))
        return make(dir=dir, **keys)

    (tmp_path / "journal").mkdir()
    monkeypatch.setattr(tempfile, "TemporaryFile", refusing)
    config = load_config(None, {"problems.limit": 1, "out": str(tmp_path / "run")})
    with messages.raises("journal_unusable", why="Permission denied"):
        check(config)
    assert check(config, asks=False).journal == tmp_path / "journal"


def test_a_folder_that_cannot_be_written_is_found_before_its_journal():
    config = load_config(None, {"problems.limit": 1, "out": "/proc/nowhere/run"})
    with messages.raises("out_unwritable", out="/proc/nowhere/run"):
        check(config)
