"""Small files of each format that ``heavydistill import`` reads; all text is our own."""

import json
from pathlib import Path
from typing import Any

from heavydistill.config.sets import ImportConfig
from heavydistill.config.yaml import load

EGGS = "A box holds 6 eggs. How many eggs are in 7 boxes?"
STAIRS = "A stair has 12 steps. Ana climbs it 3 times. How many steps does she climb?"


def boxed(answer: object) -> str:
    return rf"So it is \boxed{{{answer}}}."


def heavyskill_row(query: str = EGGS, *answers: str, **more: Any) -> dict[str, Any]:
    trajectories = list(answers) or [
        f"<think>6 times 7 is 42.</think>\n{boxed(42)}",
        f"<think>6 and 7.</think>{boxed(13)}",
        "<think>6 and 7, that is",
    ]
    return {
        "query": query,
        "final_answer": boxed(42),
        "iterations": 1,
        "trajectories": trajectories,
        "summaries": [boxed(42), boxed(42)],
        **more,
    }


def pacore_row(text: str = EGGS, truth: Any = "42", *answers: Any) -> dict[str, Any]:
    return {
        "conversation": [{"role": "user", "content": text}],
        "responses": list(answers) or [boxed(42), boxed(13)],
        "ground_truth": truth,
    }


def nemo_row(text: str = EGGS, right: Any = 42, answer: Any = 42, **more: Any) -> dict[str, Any]:
    return {
        "problem": text,
        "expected_answer": str(right),
        "generation": boxed(answer),
        "predicted_answer": str(answer),
        "symbolic_correct": str(right) == str(answer),
        "num_generated_tokens": 20,
        "finish_reason": "stop",
        **more,
    }


def answers_row(text: str = EGGS, right: Any = "42", *answers: Any) -> dict[str, Any]:
    return {"question": text, "gold": right, "answers": list(answers) or [boxed(42), boxed(13)]}


GOLD = {"problems.columns.reference": "gold"}


def lines(path: Path, *rows: Any) -> Path:
    """Write a file of lines; a text is a line as it is."""
    texts = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def document(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
    return path


def parquet(path: Path, rows: list[dict[str, Any]], rows_per_group: int = 2) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=rows_per_group)
    return path


def config_of(format: str, *files: Path, **keys: Any) -> ImportConfig:
    """The configuration of an import that judges without workers; ``__`` in a key is a dot."""
    dotted = {key.replace("__", "."): value for key, value in keys.items()}
    usual = {"format": format, "out": "unused", "problems.verifier": "exact"}
    return load(ImportConfig, overrides={"files": list(map(str, files)), **usual, **dotted})
