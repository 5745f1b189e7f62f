"""What a service answers is worth what ``evaluate`` measured: right answers, and tokens."""

import json
from pathlib import Path
from typing import Any

from command_line import MICRO
from fault_server import faulty
from serving import body_of, post, serving

import heavydistill
from heavydistill.heavy.voting import vote_value
from heavydistill.metrics.summary import summarize
from heavydistill.schema import Generation, Trace
from heavydistill.store.traces import read_traces

K, D, SEED = 5, 2, 3
KEYS = {"think.k": K, "deliberate.d": D, "seed": SEED, "domain": "stem"}


def evaluated(folder: Path, models: str) -> list[Trace]:
    source = folder / "problems.jsonl"
    known = {"reference": "1", "verifier": "exact"}
    rows = [{"id": f"p{n}", "text": f"What is {n} - {n - 1}?", **known} for n in range(1, 13)]
    source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    at = {"thinker": "served", "deliberator": "served", "endpoint.base_url": models}
    at |= {"endpoint.tokenizer": MICRO, "endpoint.context": 4096, "problems.source": str(source)}
    heavydistill.evaluate(KEYS | at | {"out": str(folder / "evaluation")})
    return list(read_traces(folder / "evaluation" / "after"))


def counts(*samples: Generation) -> tuple[int, int]:
    """(prompt, completion) tokens."""
    return sum(s.prompt_tokens for s in samples), sum(s.completion_tokens for s in samples)


def test_each_model_is_as_often_right_for_as_many_tokens_as_an_evaluation_says(tmp_path):
    with faulty() as models:
        traces = evaluated(tmp_path, models.base_url)
        with serving(models.base_url, **KEYS, serve__verifier="exact") as address:
            asks = _Asks(address)
            for trace in traces:
                texts, tokens = asks.answers(trace, "heavy", d=D)
                assert texts == [each.answer_text for each in trace.deliberations]
                assert tokens == counts(*trace.pool, *trace.deliberations)
                (voted,), tokens = asks.answers(trace, "vote")
                assert tokens == counts(*trace.pool)
                right = {each.answer_text: each.is_correct for each in trace.pool}[voted]
                value = vote_value(trace.pool)
                assert right == value or 0 < value < 1  # a tie, of which one is taken
                single, tokens = asks.answers(trace, "single")
                assert (single, tokens) == ([trace.pool[0].answer_text], counts(trace.pool[0]))
    summary = summarize(traces)
    values = [vote_value(trace.pool) for trace in traces]
    assert summary.vote_at_k.mean == sum(values) / len(values)
    assert {d.is_correct for trace in traces for d in trace.deliberations} == {True, False}


class _Asks:
    def __init__(self, address: str) -> None:
        self.address = address

    def answers(self, trace: Trace, model: str, **more: Any) -> tuple[list[str], tuple[int, int]]:
        """(texts of the choices, tokens) of the same problem at the service."""
        heavy = {"problem_id": trace.problem.id, "seed": SEED, **more}
        status, reply, _ = post(self.address, body_of(trace.problem.text, model, heavy=heavy))
        assert status == 200, reply
        texts = [choice["message"]["content"] for choice in reply["choices"]]
        return texts, (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"])
