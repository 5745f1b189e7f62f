"""Folders with judged pools, as an import leaves them: traces, and nothing else of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from judging import judged
from samples import trajectory

from heavydistill.schema import Problem, Trace, content_id
from heavydistill.store.traces import TRACES_FOLDER, write_traces


def pool_of(number: int, answers: Sequence[str], model: str = "somebody", **problem: Any) -> Trace:
    """Problem ``pNUMBER``, whose answer is its number, with judged answers in boxes.

    An empty answer stands for a request that failed.
    """
    fields = {"text": f"{number} mod 100?", "reference": f"{number}", "verifier": "exact"}
    asked = Problem(**{"id": f"p{number}", **fields, **problem})
    pool = []
    for index, answer in enumerate(answers):
        text = f"\\boxed{{{answer}}}" if answer else ""
        pool.append(
            trajectory(
                id=content_id("t", asked.id, index),
                index=index,
                model=model,
                answer_text=text,
                finish_reason="stop" if answer else "error",
                error=None if answer else "it failed",
                failure=None if answer else "server",
                verdict=judged(asked, text)
                if problem.get("verifier", "exact") == "exact"
                else None,
                prompt_tokens=50,
                completion_tokens=70,
            )
        )
    return Trace(problem=asked, pool=pool, thinker_prompt_version="thinker.of-another")


def pool_folder(folder: Path, traces: Sequence[Trace]) -> Path:
    """The folder."""
    write_traces(traces, folder / TRACES_FOLDER, rows_per_group=3)
    return folder
