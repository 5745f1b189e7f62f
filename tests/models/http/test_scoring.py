"""Log-probabilities of given tokens from a server, over real HTTP, and what goes wrong with it."""

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from messages import message
from scoring_server import Body, ScoringServer, scoring

from heavydistill.config.models import Endpoint
from heavydistill.models.http.probe import TOKEN_IDS, Evidence
from heavydistill.models.http.scoring import PromptScorer, Scored, TokenScores
from heavydistill.models.profiles import Profile
from heavydistill.models.request import Response

WORDS = 260


def rows(ids: list[int], seed: int = 0) -> list[list[float]]:
    """Made-up log-probabilities of all words after each token but the last."""
    found = []
    for token in ids[:-1]:
        rng = random.Random(f"{seed} {token}")
        logits = [rng.uniform(-5, 5) for _ in range(WORDS)]
        total = math.log(sum(map(math.exp, logits)))
        found.append([each - total for each in logits])
    return found


def server_of(**settings: Any) -> ScoringServer:
    return ScoringServer(rows, words=WORDS, **settings)


@contextlib.contextmanager
def scorer_of(
    server: ScoringServer, evidence: Evidence | None = None, **endpoint: Any
) -> Iterator[PromptScorer]:
    profile = Profile(
        name="t", kind="endpoint", model=server.model, tokenizer="server", context=2048
    )
    keys = {"base_url": server.base_url, "retries": 2, **endpoint}
    scorer = PromptScorer(profile, Endpoint(**keys), evidence)
    with contextlib.closing(scorer):
        yield scorer


def scored(server: ScoringServer, sequence: Scored, top: int = 0, **endpoint: Any) -> Any:
    with scorer_of(server, **endpoint) as scorer:
        (found,) = scorer.scores([sequence], top)
    return found


def test_the_tokens_behind_the_start_have_their_log_probabilities():
    ids = [3, 200, 7, 7, 41]
    with scoring(server_of()) as server:
        found = scored(server, Scored(ids, 2))
    table = rows(ids)
    assert [token for token, _ in found.tokens] == ids[2:]
    assert [value for _, value in found.tokens] == pytest.approx(
        [table[at - 1][ids[at]] for at in (2, 3, 4)]
    )
    (body,) = server.asked
    assert body == {
        "model": "teacher",
        "prompt": ids,
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": 0,
    }


def test_the_likeliest_tokens_come_in_order_with_or_without_the_sampled_one():
    with scoring(server_of()) as server:
        found = scored(server, Scored([3, 200, 7]), top=4)
    for row, best in zip(rows([3, 200, 7]), found.top, strict=True):
        wanted = sorted(range(WORDS), key=lambda word: -row[word])[:4]
        assert [word for word, _ in best] == wanted
        assert [value for _, value in best] == pytest.approx([row[word] for word in wanted])


def test_of_a_text_the_reply_names_the_ids():
    with scoring(server_of()) as server:
        found = scored(server, Scored("aé"))
    assert [token for token, _ in found.tokens] == [*"aé".encode()][1:]
    assert server.asked[0]["add_special_tokens"] is False


def test_requests_in_flight_are_bounded_and_scores_keep_their_order():
    sequences = [Scored([9, number, 5]) for number in range(24)]
    with (
        scoring(server_of(plan=lambda *_: "slow")) as server,
        scorer_of(server, concurrency=3) as s,
    ):
        found = s.scores(sequences)
    assert server.most_in_flight == 3 and len(server.asked) == 24
    assert [each.tokens[0][0] for each in found] == list(range(24))


def test_after_a_failure_no_other_request_is_waited_for():
    def plan(body: Body, number: int) -> str:
        return "broken" if body["prompt"][1] == 5 else "slow"

    sequences = [Scored([9, number, 5]) for number in range(40)]
    with scoring(server_of(plan=plan)) as server, scorer_of(server, concurrency=3, retries=0) as s:
        found = s.scores(sequences)
    assert isinstance(found[5], Response) and len(server.asked) < 12
    assert isinstance(found[0], TokenScores)
    assert {id(each) for each in found[12:]} == {id(found[5])}


def once(fault: str) -> Callable[[Body, int], str | None]:
    return lambda body, number: fault if number == 0 else None


@pytest.mark.parametrize(
    "fault", ["busy", "broken", "cut", "nan", "-inf", "missing", "short", "other model"]
)
def test_a_fault_that_passes_costs_a_repetition(fault):
    with scoring(server_of(plan=once(fault))) as server:
        found = scored(server, Scored([3, 200, 7]))
    assert isinstance(found, TokenScores) and len(server.asked) == 2


@pytest.mark.parametrize(
    ("fault", "failure", "said"),
    [
        ("broken", "server", "HTTP 500: EngineDeadError"),
        ("cut", "cut_off", "payload"),
        ("nan", "malformed", "nan as a log-probability"),
        ("-inf", "malformed", "a token that has no probability"),
        ("missing", "malformed", "no prompt log-probabilities of all tokens"),
        ("short", "malformed", "no prompt log-probabilities of all tokens"),
        ("other model", "malformed", "one of the model 'first-of-the-list'"),
    ],
)
def test_a_fault_that_stays_is_a_failure_after_the_retries(fault, failure, said):
    with scoring(server_of(plan=lambda *_: fault)) as server:
        found = scored(server, Scored([3, 200, 7]))
    assert isinstance(found, Response) and found.failure == failure
    assert said in str(found.error) and len(server.asked) == 3


def test_without_retries_nothing_is_repeated():
    with scoring(server_of(plan=lambda *_: "busy")) as server:
        found = scored(server, Scored([3, 200, 7]), retries=0)
    assert found.failure == "overloaded" and len(server.asked) == 1


def test_a_busy_server_is_asked_until_its_patience_ends():
    with scoring(server_of(plan=lambda *_: "busy")) as server:
        found = scored(server, Scored([3, 200, 7]), timeout_s=30)
    assert found.failure == "overloaded" and len(server.asked) > 3


@pytest.mark.parametrize(
    ("sequence", "top", "said"),
    [
        (Scored([3, WORDS]), 0, f"Token id {WORDS} is out of vocabulary"),
        (Scored([3] * 3000), 0, "maximum context length is 2048"),
        (Scored([3, 4]), 21, "greater than max allowed: 20"),
    ],
)
def test_what_the_server_refuses_is_asked_once(sequence, top, said):
    with scoring(server_of()) as server:
        found = scored(server, sequence, top)
    assert said in str(found.error) and len(server.asked) == 1


def test_a_reply_without_the_field_is_a_failure_that_is_not_repeated():
    with scoring(server_of(offers=False)) as server:
        found = scored(server, Scored([3, 200]))
    assert "the reply has no prompt_logprobs" in str(found.error) and len(server.asked) == 1


def test_the_key_of_the_environment_is_sent_and_never_shown(monkeypatch):
    monkeypatch.setenv("TEACHER_KEY", "sk-secret")
    with scoring(server_of(key="sk-secret")) as server:
        keyed = scored(server, Scored([3, 200]), api_key_env="TEACHER_KEY")
        refused = scored(server, Scored([3, 200]))
    assert isinstance(keyed, TokenScores)
    assert "HTTP 401" in str(refused.error) and "sk-secret" not in str(refused.error)


def test_another_model_behind_the_name_after_a_failure_is_noticed():
    before = rows(TOKEN_IDS)
    known = [row[token] for row, token in zip(before, TOKEN_IDS[1:], strict=True)]
    evidence = Evidence(logprobs=tuple(known))
    server = server_of(plan=once("broken"))
    with scoring(server), scorer_of(server, evidence) as scorer:
        assert isinstance(scorer.scores([Scored([3, 200])])[0], TokenScores)  # the same weights
    server = server_of(plan=once("broken"))
    server.logprobs = lambda ids: rows(ids, seed=1)
    with scoring(server), scorer_of(server, evidence) as scorer:
        (found,) = scorer.scores([Scored([3, 200])])
    assert isinstance(found, Response)
    assert message("another_model", role="teacher") in str(found.error)
