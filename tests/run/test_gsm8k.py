"""Real pools through the steps: 660 GSM8K problems with four model solutions each."""

import json
from pathlib import Path
from typing import Any

import pytest
from samples import trajectory

from heavydistill.config.models import Endpoint
from heavydistill.config.run import CacheChoice
from heavydistill.heavy import voting
from heavydistill.metrics.summary import summarize
from heavydistill.models.registry import find
from heavydistill.run.steps import BuildCaches, LabelTraces, Verify
from heavydistill.schema import Problem, Trace, content_id, from_row, to_row

FILE = Path(__file__).parents[3] / "shared" / "data" / "gsm8k_solutions_k4.jsonl"
BUDGET = 1400


def row_of(number: int, line: dict[str, Any]) -> dict[str, Any]:
    problem = Problem(
        id=f"gsm8k:{number}",
        text=line["question"],
        reference=line["ground_truth"],
        verifier="exact",
        verifier_args='{"marker": "A:"}',
    )
    solutions = {k: v["solution"] for k, v in line.items() if isinstance(v, dict)}
    pool = [
        trajectory(
            id=content_id("t", problem.id, index, text), index=index, model=model, answer_text=text
        )
        for index, (model, text) in enumerate(solutions.items())
    ]
    return {"problem": to_row(problem), "pool": [to_row(t) for t in pool], "status": "ok"}


@pytest.fixture(scope="module")
def lines():
    if not FILE.is_file():
        pytest.skip("the GSM8K solutions are not here")
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def traces(lines):
    rows = [row_of(number, line) for number, line in enumerate(lines, 1)]
    verify = Verify(column="pool")
    verify.load()
    rows = next(verify.process(rows))
    verify.unload()
    # The micro tokenizer spends about a token on each character of English prose.
    caches = BuildCaches(
        choice=CacheChoice(budget_tokens=BUDGET, pruning="answer_clipped"),
        reader=find("micro", Endpoint()).tokenizer,
        domain="brief",
    )
    caches.load()
    rows = next(caches.process(rows))
    return [from_row(Trace, row) for row in next(LabelTraces().process(rows))]


def test_every_pool_becomes_a_cache_within_its_budget(traces):
    assert len(traces) == 660
    assert {trace.status for trace in traces} == {"ok"}
    for trace in traces:
        (cache,) = trace.caches
        assert cache.prompt_tokens <= BUDGET
        assert len(cache.items) + len(cache.left_out) == 4
        assert cache.prompt.count("\n==== Attempt ") == len(cache.items)
    cuts = sum(i.tokens_after < i.tokens_before for t in traces for i in t.caches[0].items)
    assert cuts > 100, "the budget was meant to be tight"


def test_every_final_answer_survives_the_cut(traces):
    for trace in traces:
        shown = {item.generation for item in trace.caches[0].items}
        for one in trace.pool:
            marked = one.answer_text.rpartition("A:")[2].strip()
            if one.id in shown and one.extracted and len(marked) < 20:
                assert marked in trace.caches[0].prompt


def test_vote_and_metrics_agree_with_the_recorded_labels(traces, lines):
    recorded = [[v["is_correct"] for v in line.values() if isinstance(v, dict)] for line in lines]
    summary = summarize(traces)
    assert summary.mean_at_k.mean == pytest.approx(sum(map(sum, recorded)) / 2640, abs=0.002)
    assert summary.pass_at_k.mean == pytest.approx(sum(map(any, recorded)) / 660, abs=0.002)
    assert summary.mean_at_k.mean < summary.vote_at_k.mean < summary.pass_at_k.mean
    for trace, labels in zip(traces, recorded, strict=True):
        if sum(labels) >= 3:
            assert voting.vote_value(trace.pool) == 1.0
