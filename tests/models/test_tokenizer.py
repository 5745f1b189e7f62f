import contextlib
import gzip
import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from counting_server import Counter, counting, tokens_of
from generations import problem, trajectory
from heavy_samples import BPE
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import Handler, listening
from samples import cache_of

from heavydistill.config.models import Endpoint
from heavydistill.errors import TeacherError
from heavydistill.heavy.prompts import for_cache
from heavydistill.models import tokenizer
from heavydistill.models.tokenizer import (
    ESTIMATED,
    SERVER,
    ByteEstimate,
    ReaderTokenizer,
    ServerTokenizer,
    reader_of,
)
from heavydistill.store.journal import Journal

# Characters of one to four bytes, so that a token can be a part of a character.
texts = st.text("theansr w42é那答🙂\n", max_size=60)


def test_tokens_are_counted_and_special_ones_alone_are_control_tokens():
    assert sorted(BPE.control_tokens) == ["<|im_end|>", "<|im_start|>", "<|pad|>"]
    assert [BPE.count(text) for text in ("", "<|im_end|>", "<think>", "🙂")] == [0, 1, 1, 4]
    assert BPE.count("the answer") < len("the answer")


@settings(max_examples=150, deadline=None)
@given(text=texts, tokens=st.integers(0, 70))
def test_a_cut_keeps_an_end_and_uses_up_the_count(text, tokens):
    head, tail = BPE.head(text, tokens), BPE.tail(text, tokens)
    assert text.startswith(head) and text.endswith(tail)
    for part in (head, tail):
        assert BPE.count(part) <= tokens
        # Only a character of up to four tokens that does not fit may leave some of it unused.
        assert part == text or BPE.count(part) > tokens - 4
        assert part == text or BPE.count(text) > tokens


@pytest.mark.parametrize("content", [None, "", "{}", "no json"])
def test_a_folder_without_a_readable_tokenizer_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(TeacherError) as caught:
        ReaderTokenizer(str(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert "tokenizer.json" in caught.value.fix


ROOT = Path(__file__).parents[2]
MICRO = ROOT / "heavydistill" / "micro"
GSM8K = ROOT / ".." / "shared" / "data" / "gsm8k_train_1000.jsonl"
CHINESE = [
    "设函数 f(x)=x^2+2x,求 f(3) 的值。解:代入得 f(3)=9+6=15,所以答案是 15。",
    "小明有5个苹果,他又买了3个,然后给了小红2个。请问小明现在有多少个苹果?",
    "已知等差数列的首项为一,公差为三,求前十项之和;综上所述,答案为一百四十五。犇骉龘",
]
EXACT = "m's server"


def at(counter: Counter) -> Endpoint:
    return Endpoint(base_url=counter.url)


@pytest.mark.parametrize("form", ["content", "prompt"])
def test_the_server_counts_in_the_form_that_it_takes(form):
    with counting(Counter(form)) as server:
        reader = ServerTokenizer("m", at(server))
        assert [reader.count(text) for text in ("one two", "", "1+1", "one two")] == [3, 0, 3, 3]
        assert reader.name == EXACT
        assert server.asked.count("one two") == 1  # the last one was remembered


@given(st.text("ab 1.é答\n", max_size=80), st.integers(0, 40))
def test_cuts_by_the_server_keep_to_their_tokens(counted, text, tokens):
    head, tail = counted.head(text, tokens), counted.tail(text, tokens)
    assert text.startswith(head) and text.endswith(tail)
    for part in (head, tail):
        assert len(tokens_of(part)) <= tokens
        assert part == text or len(tokens_of(text)) > tokens


@pytest.fixture(scope="module")
def counted() -> Iterator[ServerTokenizer]:
    with counting(Counter()) as server:
        yield ServerTokenizer("m", at(server))


def test_a_cut_is_close_to_its_tokens_after_few_counts():
    text = "".join(f"Step {n}: add {n * 7919} to it, then take away {n * n}.\n" for n in range(400))
    with counting(Counter()) as server:
        reader = ServerTokenizer("m", at(server))
        for tokens in (200, 1000, 4000):
            for part in (reader.head(text, tokens), reader.tail(text, tokens)):
                assert 0.95 * tokens <= len(tokens_of(part)) <= tokens
        assert len(server.asked) <= 3 * 2 * 7


def a_cache(reader: Any, budget: int) -> Any:
    solution = "".join(f"Line {n} says {n * 31}. " for n in range(300))
    pool = [trajectory(f"{solution} The answer is {n}.", id=f"t{n}") for n in range(8)]
    wording = for_cache("deliberate", "general", "en")
    return cache_of(problem(), pool, budget_tokens=budget, prompt=wording, reader=reader)


def test_a_cache_asks_for_a_bounded_number_of_counts():
    with counting(Counter()) as server:
        reader = ServerTokenizer("m", at(server))
        cut = a_cache(reader, 6000)
        assert cut.reader == EXACT
        assert cut.prompt_tokens == len(tokens_of(cut.prompt)) <= 6000
        assert any(item.tokens_after < item.tokens_before for item in cut.items)
        assert len(server.asked) <= 8 * 40
        server.asked.clear()
        whole = a_cache(ServerTokenizer("m", at(server)), 80_000)
        assert all(item.tokens_after == item.tokens_before for item in whole.items)
        assert len(server.asked) <= 8 * 2 + 2


def test_a_server_without_tokenize_is_said_once_and_estimates(caplog):
    with counting(Counter()) as server:
        reader = ServerTokenizer("m", Endpoint(base_url=f"{server.url}/other"))
        assert reader.count("naïve") == 6 and reader.count("two") == 3
        assert reader.name == ESTIMATED
    (warning,) = caplog.records
    assert "does not count tokens" in warning.message and "--tokenizer" in warning.message


def test_a_server_that_stops_counting_is_said_and_marks_what_was_estimated(caplog):
    with counting(Counter(refuses_after=1)) as server:
        reader = ServerTokenizer("m", at(server))
        exact, estimated = reader.renewed(), reader.renewed()
        assert exact.count("one two") == 3
        assert not caplog.records
        assert estimated.count("three four") == 10
        assert exact.name == EXACT and estimated.name == ESTIMATED
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert "does not count" in warning.message and "estimated" in warning.message


def test_a_server_that_counts_again_is_asked_again_for_all_texts(caplog):
    with counting(Counter(refuses_after=0)) as server:
        reader = ServerTokenizer("m", at(server))
        estimated = reader.renewed()
        assert [estimated.count(text) for text in ("one two", "three four")] == [7, 10]
        server.refuses_after = None
        assert estimated.count("one") == 3  # it is left alone for a while
        reader._asked_from = time.monotonic()
        exact = reader.renewed()
        known = "five", "one", "one two", "three four"
        assert [exact.count(text) for text in known] == [1, 1, 3, 4]
        assert exact.name == EXACT and estimated.name == ESTIMATED
    assert len(caplog.records) == 1


def test_what_a_server_says_that_stops_counting_shows_no_key_and_no_escapes(monkeypatch, caplog):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    refusal = {"message": "\u202esk-secret \x1b[31mgone"}
    with counting(Counter(refuses_after=1, refusal=refusal)) as counter:
        endpoint = Endpoint(base_url=counter.url, api_key_env="SOME_KEY")
        reader = ServerTokenizer("m", endpoint)
        reader.count("one two")
        reader.count("three")
        reader.close()
    assert "*** " in caplog.text and "gone" in caplog.text
    assert "sk-" not in caplog.text and caplog.messages[-1].isprintable()


@pytest.mark.parametrize("kind", ["endless", "compressed", "dripping", "busy once"])
def test_a_count_is_read_with_bounds_and_asked_for_again_if_the_server_is_busy(
    kind, monkeypatch, caplog
):
    monkeypatch.setattr(tokenizer, "_TIMEOUT_S", 1.0)
    monkeypatch.setattr(tokenizer, "_WAITS_S", (0.0, 0.0))
    is_over, asked, sent = threading.Event(), [], [0]

    class _Handler(Handler):
        def do_POST(self) -> None:
            asked.append(self.body())
            if kind == "busy once":
                reply = (503, {}) if len(asked) == 1 else (200, {"tokens": [1, 2, 3]})
                return self.send_json(*reply)
            if kind == "compressed":
                bomb = gzip.compress(b'{"tokens": [' + b" " * 10**8)
                return self.send(200, bomb, "application/json", {"Content-Encoding": "gzip"})
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(b'{"tokens": [1')
                while not is_over.wait(0.05 if kind == "dripping" else 0):
                    sent[0] += self.wfile.write(b", 1" * (1 if kind == "dripping" else 10_000))

    with listening(_Handler) as url:
        reader = ServerTokenizer("m", Endpoint(base_url=url))
        assert reader.count("one two") == (3 if kind == "busy once" else 7)
        is_over.set()
    assert len(asked) <= 2 and sent[0] < 2**25
    assert bool(caplog.records) == (kind != "busy once")


def test_counts_are_journaled_and_a_replay_asks_nobody(tmp_path):
    with counting(Counter(refuses_after=1)) as server:
        reader = ServerTokenizer("m", at(server), tmp_path)
        first = [reader.count(text) for text in ("one two", "three four")]
        reader.close()
        asked = len(server.asked)
        server.refuses_after = None
        # A run that goes on cuts as before, even where the server counts again.
        again = ServerTokenizer("m", at(server), tmp_path)
        assert [again.count(text) for text in ("one two", "three four")] == first == [3, 10]
        assert len(server.asked) == asked
        replayed = ServerTokenizer("m", Endpoint(), tmp_path, replay=True)
        assert [replayed.count(text) for text in ("one two", "three four")] == first
        assert replayed.name == ESTIMATED
    assert Journal(tmp_path).answered == 1


def test_plans_count_without_asking():
    estimated = a_cache(reader_of(SERVER), 20_000)
    assert estimated.reader == ESTIMATED
    assert estimated.prompt_tokens == len(estimated.prompt.encode()) <= 20_000
    assert reader_of(str(MICRO / "student")).name == str(MICRO / "student")


@pytest.mark.parametrize("model", ["teacher", "student"])
def test_an_estimate_is_never_less_than_the_bundled_tokenizers_count(model):
    tokenizer, estimate = ReaderTokenizer(str(MICRO / model)), ByteEstimate()
    texts = [*CHINESE, "x = 1234567890.5\n" * 3, "naïve café 🙂", r"\frac{\sqrt{2}}{n!} \to \infty"]
    for text in texts:
        assert estimate.count(text) >= tokenizer.count(text)
        for tokens in (1, 7, 20):
            assert tokenizer.count(estimate.head(text, tokens)) <= tokens
            assert tokenizer.count(estimate.tail(text, tokens)) <= tokens
    if GSM8K.is_file():  # real problems
        rows = [json.loads(line) for line in GSM8K.read_text(encoding="utf-8").splitlines()]
        real = [text for row in rows for text in (row["question"], row["answer"])]
        assert len(real) == 2000
        assert all(estimate.count(text) >= tokenizer.count(text) for text in real)
