"""A real llama.cpp serves a GGUF file: doctor, counts of tokens, a run and its replay.

Doctor asks for four samples at once, which llama.cpp refuses with fewer slots.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import MICRO
from real_llama import MODEL, serving, smollm

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.config.run import load_config
from heavydistill.doctor.endpoint import Examination, ExaminedModel
from heavydistill.models.capabilities import Context, Source
from heavydistill.models.http.engine import OpenAIEngine
from heavydistill.models.registry import profile_at
from heavydistill.models.request import Request, user_turn
from heavydistill.models.tokenizer import TEMPLATE_TOKENS, ServerTokenizer
from heavydistill.run.generate import check, run
from heavydistill.store.traces import read_traces
from heavydistill.train.gguf import export_gguf


@pytest.fixture(scope="module", params=["micro", pytest.param("smollm", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = smollm()
    if request.param == "micro":
        file = export_gguf(Path(MICRO), tmp_path_factory.mktemp("gguf") / "out").path
    with serving(file, slots=4) as url:
        yield url


def test_doctor_sees_that_the_tokens_of_one_sample_are_reported_for_all(url):
    endpoint = Endpoint(base_url=url)
    sampling = Sampling(max_tokens=64, top_k=0)
    who = ExaminedModel(
        profile=profile_at(MODEL, endpoint),
        samplings=[sampling],
        prompt="Add these numbers step by step: 15 + 43 + 75 - 72 + 61 + 48 - 71 + 55",
        context=Context(MODEL, 2048, Source.SET),
    )
    seen = Examination(who, endpoint, ServerTokenizer(MODEL, endpoint)).capabilities
    # The micro teacher is so certain of a short answer that it may write it twice.
    assert seen.n == 1
    assert "not all counted" in seen.n_because or "3 different" in seen.n_because
    assert seen.seed in ("honoured", "ignored")  # with several slots, arithmetic may differ


def test_its_counts_are_those_that_it_reports_for_prompts(url):
    endpoint = Endpoint(base_url=url)
    reader = ServerTokenizer(MODEL, endpoint)
    engine = OpenAIEngine(profile_at(MODEL, endpoint), endpoint)
    words = "Natalia sold 48 clips in April, half as many in May; 设 $x=1$, and so on. "
    texts = ["Hi.", words, words * 9]
    sampling = Sampling(max_tokens=1, top_k=0)
    try:
        responses = engine.generate([Request(user_turn(text), sampling, 1) for text in texts])
    finally:
        engine.close()
    beside = [
        response.prompt_tokens - reader.count(text)
        for text, response in zip(texts, responses, strict=True)
    ]
    assert len(set(beside)) == 1 and 0 <= beside[0] <= TEMPLATE_TOKENS


def test_a_run_without_a_tokenizer_and_its_replay(url, tmp_path):
    keys = {
        "teacher": MODEL,
        "endpoint.base_url": url,
        "endpoint.context": 2048,
        "problems.source": "gym:chain_sum",
        "problems.limit": 2,
        "think.k": 2,
        "think.min_k": 1,
        "think.sampling.max_tokens": 96,
        "deliberate.d": 1,
        "deliberate.sampling.max_tokens": 8,
    }
    plan = check(load_config(overrides=keys | {"out": str(tmp_path / "run")}))
    finished = run(plan)
    traces = list(read_traces(finished.folder))
    readers = {cache.reader for trace in traces for cache in trace.caches}
    assert readers <= {f"{MODEL}'s server"}
    gone = {"endpoint.base_url": "http://127.0.0.1:1/v1", "out": str(tmp_path / "again")}
    again = run(check(load_config(overrides=keys | gone), asks=False), replay=True)
    assert list(read_traces(again.folder)) == traces
