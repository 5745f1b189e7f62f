"""The account of a run: caps that hold, over processes, kills and resumptions."""

import contextlib
import dataclasses
import multiprocessing
import os
import random
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import messages
import pytest
from asking import ask
from fake_server import completion, serving
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.config.models import Sampling
from heavydistill.errors import ConfigError, StoppedError
from heavydistill.models.http.completion import failed
from heavydistill.models.ledger import Balance, Cost, Ledger, balance_of, cost_of, most_cost
from heavydistill.models.profiles import Price
from heavydistill.models.request import Request, Response, user_turn

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
        ledger.settle(Cost(most), Cost(most * share))

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
        ledger.settle(Cost(10, 0.1), Cost(3, 0.03))


def test_several_processes_keep_one_account(tmp_path):
    file = tmp_path / "run.ledger"
    workers = [multiprocessing.Process(target=_spend, args=(file, 200)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    balance = Ledger(file).balance
    assert (balance.ended, balance.in_flight) == (600, 0)
    assert balance.spent_tokens == pytest.approx(1800)
    assert balance.spent_usd == pytest.approx(18.0)
    assert balance.reserved_tokens == pytest.approx(0)


def _spend_until_killed(file: Path, ends: list[Cost], in_flight: int) -> None:
    with Ledger(file).running():
        ledger = Ledger(file)
        for end in ends:
            ledger.reserve(Cost(100))
            ledger.settle(Cost(100), end)
        for _ in range(in_flight):
            ledger.reserve(Cost(100))
        time.sleep(600)


def killed(file: Path, ends: list[Cost], in_flight: int) -> Ledger:
    """The account of a run that was killed after these ends, with so many requests in flight."""
    ledger = Ledger(file)
    starts = ledger.balance.starts
    worker = multiprocessing.Process(target=_spend_until_killed, args=(file, ends, in_flight))
    worker.start()
    while (now := ledger.balance).starts == starts or now.in_flight < in_flight:
        time.sleep(0.02)
    with messages.raises("account_in_use"), ledger.running():
        pass
    os.kill(worker.pid or 0, signal.SIGKILL)
    worker.join()
    return ledger


@pytest.mark.parametrize(
    "ends",
    [[], [Cost(20)] * 4, [Cost(90)] + [Cost(0)] * 30],
    ids=["nothing had ended", "cheap ends", "free failures"],
)
def test_what_was_in_flight_at_a_kill_is_booked_at_the_most_it_can_have_been(tmp_path, ends):
    ledger = killed(tmp_path / "run.ledger", ends, 6)
    with ledger.running():
        balance = ledger.balance
    paid = sum(end.tokens for end in ends)
    assert (balance.spent_tokens, balance.in_flight) == (pytest.approx(paid + 6 * 100), 0)
    assert balance.reserved_tokens == 0
    assert balance.ended == len(ends) + 6
    with ledger.running():  # once is enough
        assert ledger.balance.spent_tokens == balance.spent_tokens


def test_a_cap_holds_over_kills(tmp_path):
    file = tmp_path / "run.ledger"
    for kill in range(2):
        killed(file, [], 4).close()
        assert Ledger(file).balance.spent_tokens == kill * 400
    ledger = Ledger(file, most_tokens=850)
    with ledger.running(), messages.raises("budget_used_up", spent=800, budget=850):
        ledger.reserve(Cost(100))


def test_a_process_that_outlives_its_killed_run_spends_nothing_of_the_next_one(tmp_path):
    file = tmp_path / "run.ledger"
    orphan = Ledger(file, most_tokens=250)
    orphan.reserve(Cost(100))
    next_one = Ledger(file, most_tokens=250)
    with next_one.running():  # it books the orphan's request
        assert next_one.reserve(Cost(100))
        orphan.settle(Cost(100), Cost(30))
        with messages.raises("account_of_another"):
            orphan.reserve(Cost(10))
        balance = next_one.balance
        assert (balance.spent_tokens, balance.reserved_tokens) == (100, 100)
        assert balance.in_flight == 1


@contextlib.contextmanager
def room_for(most: int) -> Iterator[None]:
    """No file can be written beyond so many bytes, as on a disk that is full there."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_without_room_for_the_account_is_said_at_once(tmp_path):
    file = tmp_path / "run.ledger"
    with room_for(100), messages.raises("account_unusable", file=file):
        Ledger(file)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        Ledger(tmp_path / "file" / "run.ledger")
    ledger = Ledger(file)  # nothing is left of the attempt
    assert ledger.reserve(Cost(10)) and ledger.balance.in_flight == 1


@pytest.mark.parametrize("room", [0, 100])
def test_an_account_that_cannot_be_written_ends_the_run_and_loses_no_response(tmp_path, room):
    ledger = Ledger(tmp_path / "run.ledger", most_tokens=1000)
    assert ledger.reserve(Cost(100)) and ledger.reserve(Cost(60))
    before = ledger.balance
    with room_for(room):
        with messages.raises("account_unwritable"):
            ledger.reserve(Cost(100))
        ledger.settle(Cost(100), Cost(20))  # the response is there, and must be kept
        assert ledger.balance == before
    with messages.raises("account_unwritable"):
        ledger.reserve(Cost(1))
    later = Ledger(tmp_path / "run.ledger", most_tokens=1000)
    with later.running():  # what could not be booked was reserved
        assert later.balance.spent_tokens == 160


def test_a_damaged_account_is_named_with_what_to_do(tmp_path):
    file = tmp_path / "run.ledger"
    Ledger(file).reserve(Cost(1))
    file.write_bytes(file.read_bytes()[:20])
    for use in (Ledger, balance_of):
        with messages.raises("account_damaged", file=file):
            use(file)


def test_a_cap_in_money_says_how_much_is_left(tmp_path):
    ledger = Ledger(tmp_path / "run.ledger", most_usd=1.0)
    assert ledger.reserve(Cost(1, 0.9))
    assert not ledger.reserve(Cost(1, 0.2))
    ledger.settle(Cost(1, 0.9), Cost(1, 0.85))
    with messages.raises("budget_used_up_usd", spent=0.85, budget=1):
        ledger.reserve(Cost(1, 0.2))


@given(text=st.text(max_size=200), tokens=st.integers(1, 300))
def test_no_call_costs_more_than_the_most_it_can(text, tokens):
    request = Request(user_turn(text), Sampling(max_tokens=tokens), 1)
    price = Price(usd_per_mtok_in=1, usd_per_mtok_out=2, as_of="today")
    most = most_cost([request], price)
    # Whatever the server says or does not say, as long as a token is at least a byte.
    ends = [
        response(len(text.encode()), tokens, text),
        response(-1, -1, text),
        *(failed(kind, "", 0.0) for kind in ("cut_off", "timeout", "rejected", "malformed")),
    ]
    for end in ends:
        cost = cost_of([request], [end], price)
        assert cost.tokens <= most.tokens and cost.usd <= most.usd


def test_what_a_call_cost():
    price = Price(usd_per_mtok_in=1e6, usd_per_mtok_out=1e7, as_of="today")
    assert cost_of([REQUEST], [response(5, 7)], price) == Cost(12, 75.0)
    assert cost_of([REQUEST], [failed("overloaded", "", 0.0)], price) == Cost()
    # Samples of one call pay for the prompt once.
    assert cost_of([REQUEST] * 2, [response(5, 7), response(0, 8)], price) == Cost(20, 155.0)
    # Tokens from the provider's cache cost less where their price is known, and no more than all.
    cheaper = price.model_copy(update={"usd_per_mtok_cached": 1e5})
    for cached, usd in ((-1, 75.0), (0, 75.0), (4, 71.4), (9, 70.5)):
        read = dataclasses.replace(response(5, 7), cached_tokens=cached)
        assert cost_of([REQUEST], [read], cheaper) == Cost(12, pytest.approx(usd))
        assert cost_of([REQUEST], [read], price) == Cost(12, 75.0)
    uncounted = cost_of([REQUEST], [response(text="seven")], price)
    assert uncounted.tokens == len("What is 3+4?") + 64 + len("seven")
    broken = cost_of([REQUEST], [failed("cut_off", "", 0.0)], price)
    assert broken == most_cost([REQUEST], price)


def test_the_line_of_an_account_holds_the_largest_counts_and_prices():
    most = Cost(1e6 * 2.0**31, 0.1 * 1e6 * 2.0**31)
    numbers = (most.tokens / 3, most.usd / 3, most.tokens / 7, most.usd / 7, *(10**12,) * 3)
    assert len(Balance(*numbers).line()) == len(Balance().line()) == 512


@pytest.mark.parametrize("count", [10**400, True, float("nan")], ids=["huge", "bool", "nan"])
def test_a_count_that_is_none_leaves_a_sound_account(tmp_path, count):
    status, body = completion("7")
    body["usage"] = {"prompt_tokens": count, "completion_tokens": count}
    ledger = Ledger(tmp_path / "run.ledger", most_usd=1.0)
    with serving(lambda _: (status, body)) as server:
        (answered,) = ask(server.base_url, [REQUEST], ledger=ledger, price_in=1, price_out=1)
    assert answered.completion_tokens == -1
    balance = balance_of(tmp_path / "run.ledger")
    assert (balance.in_flight, balance.ended) == (0, 1)
    assert 0 < balance.spent_tokens < 1000


def test_a_shard_that_is_begun_again_books_what_the_one_before_had_in_flight(tmp_path):
    file = tmp_path / "a.ledger"
    with contextlib.closing(Ledger(file)) as account, account.running():
        lost, other = (Ledger(file, most_tokens=100, holder=name) for name in ("0000-a", "0001-b"))
        assert lost.reserve(Cost(40)) and lost.reserve(Cost(30)) and other.reserve(Cost(20))
        lost.settle(Cost(40), Cost(10))
        assert not other.reserve(Cost(50)), "it waits for what is in flight"
        other.settle(Cost(20), Cost(20))
        again = Ledger(file, most_tokens=100, holder="0000-c")
        assert account.balance == Balance(spent_tokens=10 + 30 + 20, ended=3, starts=1)
        # Another model of the same shard takes nothing over.
        assert again.reserve(Cost(5))
        Ledger(file, most_tokens=100, holder="0000-c").close()
        assert account.balance.in_flight == 1
        # The one that was lost may still be there, cut off from the others.
        lost.settle(Cost(30), Cost(30))
        with messages.raises("account_of_another"):
            lost.reserve(Cost(1))
        again.settle(Cost(5), Cost(5))
        with messages.raises("budget_used_up"):
            other.reserve(Cost(50))
        assert account.balance.spent_tokens == 65 and balance_of(file) == account.balance
        for each in (lost, other, again):
            each.close()


@pytest.mark.parametrize(
    "usage",
    [
        {"completion_tokens": 481, "total_tokens": 492, "reasoning_tokens": 469},
        {"completion_tokens": 12, "total_tokens": 492, "reasoning_tokens": 469},
        {"completion_tokens": 12, "total_tokens": 23, "reasoning_tokens": 469},
        {"completion_tokens": 12, "total_tokens": 492},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"completion_tokens": 12},
        {},
    ],
)
@pytest.mark.parametrize("place", ["body", "choice"])
def test_a_budget_holds_however_a_server_counts_the_thinking(tmp_path, usage, place):
    is_hidden = usage.get("total_tokens") or usage.get("reasoning_tokens")
    thought = "" if is_hidden else "so it is " * 213  # where no count tells of it, it is seen
    reply = dict(completion("It is 7.", reasoning_content=thought)[1])
    usage = {"prompt_tokens": 11, **usage} if usage else {}
    if thinking := usage.pop("reasoning_tokens", None):
        usage["completion_tokens_details"] = {"reasoning_tokens": thinking}
    (reply if place == "body" else reply["choices"][0])["usage"] = usage
    if place == "choice":
        del reply["usage"]
    billed = (11 * 2 + 481 * 12) / 10**6
    with serving(lambda body: (200, reply)) as server:
        prices = {"price_in": 2, "price_out": 12, "concurrency": 4}
        ledger = Ledger(tmp_path / "run.ledger", most_usd=0.1)
        asked = [Request(user_turn("3+4?"), Sampling(max_tokens=2000), n, n) for n in range(99)]
        with messages.raises("budget_used_up_usd"):
            ask(server.base_url, asked, ledger=ledger, **prices)
        assert len(server.requests) >= 3 and len(server.requests) * billed <= 0.1
