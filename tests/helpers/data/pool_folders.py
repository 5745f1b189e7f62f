"""Folders with judged pools, as an import leaves them: traces, and nothing else of a run."""

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
    is_judged = asked.verifier == "exact"
    for index, answer in enumerate(answers):
        text = f"\\boxed{{{answer}}}" if answer else ""
        failed = {"finish_reason": "error", "error": "it failed", "failure": "server"}
        pool.append(
            trajectory(
                id=content_id("t", asked.id, index),
                index=index,
                model=model,
                answer_text=text,
                verdict=judged(asked, text) if is_judged else None,
                prompt_tokens=50,
                completion_tokens=70,
                **({} if answer else failed),
            )
        )
    return Trace(problem=asked, pool=pool, thinker_prompt_version="thinker.of-another")


def pool_folder(folder: Path, traces: Sequence[Trace]) -> Path:
    """The folder."""
    write_traces(traces, folder / TRACES_FOLDER, rows_per_group=3)
    return folder
