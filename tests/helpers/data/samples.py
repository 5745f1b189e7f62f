"""Rows of the schema for tests that care for a field or two of them."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import heavydistill
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import build_cache
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.schema import Cache, Problem, Trace, Trajectory

STUDENT = Path(heavydistill.__file__).parent / "micro" / "student"


def generation(kind: type = Trajectory, **changed: Any) -> Any:
    """A finished one of this kind that nobody judged."""
    usual = {"id": "t_1", "index": 0, "model": "m", "seed": 1, "reasoning": "", "answer_text": "7"}
    usual |= {"finish_reason": "stop", "error": None, "verdict": None, "request_id": ""}
    usual |= {"prompt_tokens": -1, "completion_tokens": -1, "latency_s": 0.0}
    return kind(**usual | changed)


def trajectory(**changed: Any) -> Trajectory:
    """A finished trajectory that nobody judged."""
    return generation(**changed)


def cache_of(problem: Problem, pool: list[Trajectory], **changed: Any) -> Cache:
    """A cache of the whole pool as the micro student reads it."""
    usual: dict[str, Any] = {"round": 1, "seed": 0, "selection": "random", "width": None}
    usual |= {"pruning": "answer_only", "budget_tokens": 1536}
    usual["prompt"] = prompts.load("deliberator", "brief", "en")
    usual["reader"] = changed.get("reader") or ReaderTokenizer(str(STUDENT))
    return build_cache(problem, pool, **usual | changed)


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a row, not of what stands in them."""
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}


def untimed(traces: Iterable[Trace]) -> list[Trace]:
    """The traces without what differs between two answers to one request: seconds, its id."""

    def still(generations: Any) -> Any:
        return [dataclasses.replace(each, latency_s=0.0, request_id="") for each in generations]

    return [
        dataclasses.replace(t, pool=still(t.pool), deliberations=still(t.deliberations))
        for t in traces
    ]
