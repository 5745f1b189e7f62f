"""Problems and judged responses, for tests of what looks at them."""

import dataclasses
import json
from typing import Any

from samples import generation

from heavydistill.heavy.judge_votes import Ballot, Vote
from heavydistill.schema import (
    Cache,
    CacheItem,
    Deliberation,
    Label,
    Problem,
    ToolCall,
    Trace,
    Trajectory,
    Turn,
    Verdict,
    turns_as_json,
)


def problem(text: str = "What is 2 + 3?", verifier: str = "math", **fields: Any) -> Problem:
    """A problem; ``args`` is the object of its ``verifier_args``."""
    args = json.dumps(fields.pop("args", {}))
    usual = {"id": "p", "text": text, "reference": "5", "verifier": verifier}
    return Problem(**{**usual, "verifier_args": args, **fields})


def ballot(*votes: Vote, same_as: str = "") -> Ballot:
    """Of a judge that was asked because units were missing."""
    return Ballot(
        by="exact@1",
        rule_reason="needs_units",
        rule_evidence="",
        model="critic",
        prompt="judge.general.en@abc",
        asked="j_1",
        same_as=same_as,
        votes=list(votes),
    )


def deliberation(answer_text: str, reasoning: str = "", **fields: Any) -> Deliberation:
    """A right one, unless ``label`` or another field says otherwise."""
    return _right(Deliberation, "d", answer_text, reasoning, {"cache": "c", "round": 1} | fields)


def trajectory(answer_text: str, reasoning: str = "", **fields: Any) -> Trajectory:
    """A right one, unless ``label`` or another field says otherwise."""
    return _right(Trajectory, "t", answer_text, reasoning, fields)


def with_tool(result: str = "5", error: str | None = None) -> Trajectory:
    """One of several turns, with a call of a tool and its result."""
    call = ToolCall(id="c1", name="python", arguments='{"code": "2 + 3"}')
    turns = [
        Turn(role="assistant", thinking="Let me compute.", text="I ask Python.", calls=[call]),
        Turn(role="tool", text=result, result_of="c1", error=error),
        Turn(role="assistant", thinking="As expected.", text="It is 5."),
    ]
    return trajectory("", turns_json=turns_as_json(turns))


def unboxed(**fields: Any) -> Trajectory:
    """One that holds no final answer."""
    verdict = Verdict(label="incorrect", reason="no_answer", extracted=None, verifier="math@2")
    return trajectory("It is 5.", **{"verdict": verdict, **fields})


def cache(*items: CacheItem, **fields: Any) -> Cache:
    """That of the first round, drawn at random."""
    usual = {"id": "c", "round": 1, "seed": 0, "selection": "random", "prompt": "", "reader": "m"}
    usual |= {"prompt_version": "deliberator@1", "budget_tokens": 100, "prompt_tokens": 50}
    return Cache(**{**usual, "defused": 0, "items": list(items), "left_out": [], **fields})


def item(generation: str, before: int = 1, after: int = 1, **fields: Any) -> CacheItem:
    """An answer in a cache, and its tokens before and after pruning."""
    usual = {"mode": "answer_only", "sha256": "", "defused": 0, "generation": generation}
    return CacheItem(**{**usual, "tokens_before": before, "tokens_after": after, **fields})


def altered(trace: Trace, *stages: str, judged: Any = None, asked: Any = None, **to: Any) -> Trace:
    """A trace with other fields of its problem, and of the samples of stages and their verdicts."""
    changes: dict[str, Any] = {"problem": dataclasses.replace(trace.problem, **(asked or {}))}
    for stage in stages:
        samples = [dataclasses.replace(one, **to) for one in getattr(trace, stage)]
        if judged:
            told = [dataclasses.replace(one.verdict, **judged) for one in samples]
            pairs = zip(samples, told, strict=True)
            samples = [dataclasses.replace(one, verdict=verdict) for one, verdict in pairs]
        changes[stage] = samples
    return dataclasses.replace(trace, **changes)


def _right(kind: type, id: str, answer_text: str, reasoning: str, fields: dict[str, Any]) -> Any:
    label: Label | None = fields.pop("label", "correct")
    verdict = label and Verdict(label=label, reason="said", extracted="5", verifier="math@2")
    usual = {"id": id, "answer_text": answer_text, "reasoning": reasoning, "verdict": verdict}
    usual |= {"prompt_tokens": 1, "completion_tokens": 1, "latency_s": 0.1}
    return generation(kind, **usual | fields)
