import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from generations import cache, deliberation, item, trajectory

from heavydistill.schema import Label, Outcome, Problem, Stratum, Trace, Verdict

RIGHT = "7"
Samples = Sequence[str | None]


@pytest.fixture(scope="session")
def make_trace() -> Callable[..., Trace]:
    """Builds a trace from extracted answers: "7" is right, None is unparsed, "?" undecided."""
    return _make_trace


@pytest.fixture(scope="session")
def with_cache() -> Callable[..., Trace]:
    """Gives a round of a trace its cache: ids of attempts, in the order in which they stand."""
    return _with_cache


def _with_cache(
    trace: Trace, shown: Sequence[str], round: int = 1, selection: str = "random"
) -> Trace:
    read = cache(*map(item, shown), id=f"c{round}", round=round, selection=selection)
    return dataclasses.replace(trace, caches=[*trace.caches, read])


def _make_trace(
    pool: Samples,
    *rounds: Samples,
    stratum: Stratum | None = None,
    outcome: Outcome | None = None,
    status: str = "ok",
) -> Trace:
    return Trace(
        problem=Problem(id="p", text="3 + 4", reference=RIGHT, verifier="exact"),
        pool=[_said(trajectory, "t", index, answer) for index, answer in enumerate(pool)],
        deliberations=[
            dataclasses.replace(
                _said(deliberation, f"d{round}", index, answer), cache=f"c{round}", round=round
            )
            for round, answers in enumerate(rounds, 1)
            for index, answer in enumerate(answers)
        ],
        stratum=stratum,
        outcome=outcome,
        status=status,
    )


def _said(make: Callable[..., Any], prefix: str, index: int, answer: str | None) -> Any:
    labels: dict[str, Label] = {RIGHT: "correct", "?": "undecided"}
    label = labels.get(answer or "", "incorrect")
    verdict = Verdict(label=label, reason="test", extracted=answer, verifier="exact@1")
    tokens = {"prompt_tokens": 10, "completion_tokens": 5}
    place = {"id": f"{prefix}_{index}", "index": index, "seed": index}
    return make(answer or "no idea", verdict=verdict, **place, **tokens)
