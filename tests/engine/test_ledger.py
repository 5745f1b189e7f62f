"""The account of a run: caps that hold, over processes, kills and resumptions."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.config import Sampling
from heavydistill.engine.completion import failed
from heavydistill.engine.ledger import Cost, Ledger, Tariff
from heavydistill.engine.request import Request, Response, user_turn
from heavydistill.errors import ConfigError, StoppedError

SAMPLING = Sampling(max_tokens=100)
REQUEST = Request(user_turn("What is 3+4?"), SAMPLING, 1)


def response(prompt: int = -1, completion: int = -1, text: str = "7") -> Response:
    return Response(
        answer_text=text, finish_reason="stop", prompt_tokens=prompt, completion_tokens=completion
    )


@given(
    cap=st.integers(0, 1000),
    calls=st.lists(st.tuples(st.integers(1, 200), st.floats(0, 1)), max_size=60),
    seed=st.integers(0, 99),
)
def test_what_is_spent_never_exceeds_the_cap(tmp_path_factory, cap, calls, seed):
    draw = random.Random(seed)
    ledger = Ledger(tmp_path_factory.mktemp("l") / "run.ledger", most_tokens=cap)
    in_flight: list[tuple[int, float]] = []

    def end_one() -> None:
        most, share = in_flight.pop(draw.randrange(len(in_flight)))
        ledger.settle(Cost(most), Cost(most * share), True)

    for most, share in calls:
        try:
            while not ledger.reserve(Cost(most)):
                assert in_flight, "it waits for nobody"
                end_one()
        except StoppedError:
            assert not in_flight and ledger.balance.spent_tokens + most > cap
            continue
        in_flight.append((most, share))
        if draw.random() < 0.5:
            end_one()
        balance = ledger.balance
        assert balance.spent_tokens + balance.reserved_tokens <= cap + 1e-6
    ledger.close()


def _spend(file: Path, calls: int) -> None:
    ledger = Ledger(file, most_usd=100.0)
    for _ in range(calls):
        assert ledger.reserve(Cost(10, 0.1))
        ledger.settle(Cost(10, 0.1), Cost(3, 0.03), True)


def test_several_processes_keep_one_account(tmp_path):
    file = tmp_path / "run.ledger"
    workers = [multiprocessing.Process(target=_spend, args=(file, 200)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    balance = Ledger(file).balance
    assert (balance.ended, balance.in_flight, balance.estimated) == (600, 0, 0)
    assert balance.spent_tokens == pytest.approx(1800)
    assert balance.spent_usd == pytest.approx(18.0)
    assert balance.reserved_tokens == pytest.approx(0)


def _spend_until_killed(file: Path) -> None:
    with Ledger(file).running():
        ledger = Ledger(file)
        for number in range(10):
            ledger.reserve(Cost(100))
            if number < 4:
                ledger.settle(Cost(100), Cost(20), True)
        time.sleep(60)


def test_what_was_in_flight_at_a_kill_is_booked_at_the_mean(tmp_path):
    file = tmp_path / "run.ledger"
    worker = multiprocessing.Process(target=_spend_until_killed, args=(file,))
    worker.start()
    ledger = Ledger(file)
    while ledger.balance.in_flight < 6:
        time.sleep(0.02)
    with pytest.raises(ConfigError, match="in progress"), ledger.running():
        pass
    os.kill(worker.pid or 0, signal.SIGKILL)
    worker.join()
    with ledger.running():
        balance = ledger.balance
    assert (balance.spent_tokens, balance.in_flight) == (pytest.approx(10 * 20), 0)
    assert (balance.ended, balance.estimated) == (10, 6)
    with ledger.running():  # once is enough
        assert ledger.balance == balance


def test_a_cap_in_money_says_how_much_is_left(tmp_path):
    ledger = Ledger(tmp_path / "run.ledger", most_usd=1.0)
    assert ledger.reserve(Cost(1, 0.9))
    assert not ledger.reserve(Cost(1, 0.2))
    ledger.settle(Cost(1, 0.9), Cost(1, 0.85), True)
    with pytest.raises(StoppedError, match=r"0\.85 of 1 USD are spent") as caught:
        ledger.reserve(Cost(1, 0.2))
    assert "higher --budget" in caught.value.fix


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        Ledger(tmp_path / "file" / "run.ledger")


@given(text=st.text(max_size=200), tokens=st.integers(1, 300))
def test_no_call_costs_more_than_the_most_it_can(text, tokens):
    request = Request(user_turn(text), Sampling(max_tokens=tokens), 1)
    tariff = Tariff(1e-6, 2e-6)
    most = tariff.most([request])
    # Whatever the server says or does not say, as long as a token is at least a byte.
    ends = [
        response(len(text.encode()), tokens, text),
        response(-1, -1, text),
        *(failed(kind, "", 0.0) for kind in ("cut_off", "timeout", "rejected", "malformed")),
    ]
    for end in ends:
        cost, _ = tariff.of([request], [end])
        assert cost.tokens <= most.tokens and cost.usd <= most.usd


def test_what_a_call_cost():
    tariff = Tariff(1.0, 10.0)
    assert tariff.of([REQUEST], [response(5, 7)]) == (Cost(12, 75.0), True)
    assert tariff.of([REQUEST], [failed("overloaded", "", 0.0)]) == (Cost(), True)
    uncounted, counted = tariff.of([REQUEST], [response(text="seven")])
    assert not counted and uncounted.tokens == len("What is 3+4?") + 64 + len("seven")
    broken, counted = tariff.of([REQUEST], [failed("cut_off", "", 0.0)])
    assert not counted and broken == tariff.most([REQUEST])


def test_samples_of_one_call_pay_for_the_prompt_once():
    shared = [response(5, 7), response(0, 8)]
    assert Tariff(1.0, 10.0).of([REQUEST] * 2, shared) == (Cost(20, 155.0), True)
