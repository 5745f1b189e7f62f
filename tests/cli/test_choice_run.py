"""Questions with options on the way of a run: loaded, shuffled, asked, judged, counted."""

import json
import re
from pathlib import Path
from typing import Any

from command_line import run_command
from fake_server import completion, serving

from heavydistill.store.traces import read_traces

ROOT = Path(__file__).parents[2]
MICRO = ROOT / "heavydistill" / "micro" / "teacher"
RIGHT = ("12:15", "59", "3/28", "rythm", "No blip is a blap.", "all of the above", "Friday", "6")


def test_a_run_judges_letters_in_the_order_that_was_shown(tmp_path: Path) -> None:
    """The server finds the right text among the options that it is shown, and hedges once."""

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        shown = re.findall(r"^([A-E])\) (.*)$", body["messages"][0]["content"], re.MULTILINE)
        letter = next(letter for letter, text in shown if text in RIGHT)
        if "Friday" in dict(shown).values():
            return completion("Answer: A or B")
        return completion(f"<think>hm</think>The answer is **({letter})**.")

    out = tmp_path / "run"
    with serving(answer) as server:
        done = run_command(
            *("generate", "--teacher=served", f"--endpoint={server.base_url}"),
            *(f"--tokenizer={MICRO}", f"--problems={ROOT / 'data' / 'choice.sample.jsonl'}"),
            *(f"--out={out}", "--k=2", "--d=1"),
        )
    assert done.returncode == 0, done.stderr
    assert (
        "Options in the order of the dataset, which they or the text speak of: 1 of 8"
        in done.stdout
    )
    traces = {trace.problem.id: trace for trace in read_traces(out)}
    assert len(traces) == 8
    for name, trace in traces.items():
        verdicts = [generation.verdict for generation in (*trace.pool, *trace.deliberations)]
        reasons = {verdict.reason for verdict in verdicts if verdict}
        assert reasons == ({"hedged"} if name == "choice-7" else {"equal"}), name
    orders = [json.loads(trace.problem.verifier_args)["order"] for trace in traces.values()]
    assert any(order != sorted(order) for order in orders)
    assert json.loads((out / "summary.json").read_text())["option_orders_kept"] == 1
