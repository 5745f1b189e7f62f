"""Servers that cut long prompts and answer the rest: what is told from a sound reply, and how."""

import logging
from typing import Any

import pytest
from asking import ask as ask_all
from asking import asking, request
from cutting_server import MODEL, CuttingServer, cutting, tokenizer_in

from heavydistill.errors import TeacherError
from heavydistill.models.ledger import Ledger
from heavydistill.models.request import Response

TOO_LONG = 400, {"error": {"message": "the request exceeds the available context size"}}


def long(number: int, count: int = 4000) -> str:
    return f"Problem {number}. " + "so it goes, " * (count // 4)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tokenizer_in(tmp_path_factory.mktemp("model") / "tokenizer"))


def ask(server: CuttingServer, *prompts: str, **settings: Any) -> list[Response]:
    """The response to each prompt, one after the other."""
    with asking(server.base_url, **settings) as engine:
        return [engine.generate([request(n, prompt=p)])[0] for n, p in enumerate(prompts)]


def test_a_sample_of_a_cut_prompt_fails_and_one_plain_prompt_confirms_it(tokenizer):
    with cutting() as server:
        first, short, again, other = ask(
            server, long(1), "3+4?", long(1), long(2), tokenizer=tokenizer
        )
    assert [first.failure, short.failure] == ["prompt_cut", None]
    assert [again.failure, other.failure] == ["prompt_cut", "prompt_cut"]
    assert "2,050 tokens" in (first.error or "")
    assert first.prompt_tokens == 2050 and first.completion_tokens == 5  # they are billed
    assert len(server.plain) == 1 and len(server.asked) == 5


def test_three_cut_prompts_stop_the_run_with_the_fix(tokenizer):
    wanted = [request(2 * n + i, prompt=long(n)) for n in range(3) for i in (0, 1)]
    with cutting() as server, pytest.raises(TeacherError) as stopped:
        ask_all(server, wanted, tokenizer=tokenizer)
    said = str(stopped.value)
    for part in ("2,050", "OLLAMA_CONTEXT_LENGTH", "num_ctx", "LM Studio", "endpoint.context"):
        assert part in said
    assert len(server.plain) == 1


@pytest.mark.parametrize(
    "habit",
    [
        {"context": None},  # reads everything
        {"context": None, "cached": 1900},  # counts only what its cache does not hold, and says so
        {"context": None, "counts": False},
        {"context": 4100},  # the template fits too
    ],
)
def test_a_server_that_reads_prompts_whole_is_not_doubted(tokenizer, habit):
    with cutting(**habit) as server:
        responses = ask(server, *map(long, range(4)), tokenizer=tokenizer)
    assert [response.failure for response in responses] == [None] * 4
    assert not server.plain


def test_the_first_sample_of_a_prompt_decides_where_later_ones_leave_out_what_is_cached(tokenizer):
    with cutting(context=None) as server, asking(server.base_url, tokenizer=tokenizer) as engine:
        (first,) = engine.generate([request(prompt=long(1))])
        server.context = 30  # all that it still reads of this prompt
        (second,) = engine.generate([request(1, prompt=long(1))])
    assert (first.prompt_tokens > 3000, second.prompt_tokens) == (True, 30)
    assert first.failure is second.failure is None and not server.plain


@pytest.mark.parametrize("habit", [{"context": None}, {"of_plain": TOO_LONG}])
def test_a_tokenizer_that_counts_more_than_the_server_is_named_and_nothing_is_lost(
    tmp_path, caplog, habit
):
    other = str(tokenizer_in(tmp_path / "other", of_characters=True))
    with cutting(**habit) as server, caplog.at_level(logging.WARNING):
        prompts = [long(n, 1000) for n in range(5)]
        responses = ask(server, *prompts, tokenizer=other)
    assert [response.failure for response in responses] == [None] * 5
    assert len(server.plain) == 1
    assert caplog.text.count("Check that --tokenizer") == 1


def test_without_a_tokenizer_a_prompt_has_at_least_as_many_tokens_as_words():
    with cutting() as server:
        clear, hidden = ask(server, long(1), "x1,y2;" * 500)
    assert clear.failure == "prompt_cut"
    # Fewer words than the server read tokens: a limit that the docs name.
    assert hidden.failure is None and hidden.prompt_tokens == 1500 + 500 + 9


def test_a_plain_prompt_that_fails_leaves_the_sample_lost_and_the_question_open(tokenizer):
    with cutting(of_plain=(500, {"error": {"message": "no slot"}})) as server:
        first, again = ask(server, long(1), long(1), tokenizer=tokenizer, retries=0)
    assert [first.failure, again.failure] == ["prompt_cut", "prompt_cut"]
    assert len(server.plain) == 2


def test_the_plain_prompt_is_on_the_account(tokenizer, tmp_path):
    ledger = Ledger(tmp_path / "account", most_tokens=1_000_000)
    settings = {"tokenizer": tokenizer, "ledger": ledger}
    with ledger.running(), cutting() as server, asking(server.base_url, **settings) as engine:
        engine.generate([request(prompt=long(1))])
        assert ledger.balance.spent_tokens == 2 * (2050 + 5)


def test_a_response_is_kept_if_the_budget_ends_before_a_plain_prompt_can_be_sent(
    tokenizer, tmp_path
):
    ledger = Ledger(tmp_path / "account", most_tokens=12_600)
    settings = {"tokenizer": tokenizer, "ledger": ledger}
    with ledger.running(), cutting() as server, asking(server.base_url, **settings) as engine:
        (paid,) = engine.generate([request(prompt=long(1))])
    assert paid.failure is None and not server.plain


def test_the_list_of_models_states_no_context():
    from heavydistill.config.models import Endpoint
    from heavydistill.models.contact import ServerProbe

    with cutting() as server:
        assert ServerProbe().context(MODEL, Endpoint(base_url=server.base_url)) is None
