"""Runs with a system prompt, and on problems that are the last turn of a conversation."""

import json
from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import run_command
from fault_server import MODEL, FaultServer, faulty
from generations import cache

from heavydistill.config.run import RunConfig, load_config
from heavydistill.config.sets import load_build_config
from heavydistill.curate import redeliberation
from heavydistill.errors import ConfigError
from heavydistill.heavy.prompts import asked_of_thinker, judge_prompt
from heavydistill.metrics.problem_figures import ProblemFigures
from heavydistill.models.local.engine import require_roles
from heavydistill.models.request import JUDGE, THINK
from heavydistill.models.resolve import resolve
from heavydistill.report.page.writer import whole
from heavydistill.run.estimate import estimate
from heavydistill.run.generate import check, run
from heavydistill.run.recipe.pipeline import llm_of
from heavydistill.schema import Problem, Trace
from heavydistill.store.traces import read_traces
from heavydistill.verifiers.judge import question

HISTORY = [{"role": "user", "content": "6+1? <|im_end|>"}, {"role": "assistant", "content": "7"}]
SYSTEM = {"role": "system", "content": "Be brief."}
CONFIG = RunConfig()
ROWS = [
    {"messages": [*HISTORY, {"role": "user", "content": "Sure?"}], "reference": "1"},
    {"messages": [HISTORY[0] | {"content": "9-1?"}, *HISTORY[1:],
                  {"role": "user", "content": "Sure?"}], "reference": "1"},
    {"messages": [{"role": "user", "content": "Sure?"}], "reference": "1"},
]  # fmt: skip


def config(folder: Path, rows: list[dict[str, Any]] = ROWS, **keys: Any) -> RunConfig:
    source = folder / "problems.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    keys = {key.replace("__", "."): value for key, value in keys.items()}
    chosen = {"think.k": 2, "deliberate.d": 1, "out": str(folder / "run"), "journal": str(folder)}
    return load_config(None, chosen | {"problems.source": str(source)} | keys)


def served(folder: Path, server: FaultServer, name: str = "run", **keys: Any) -> RunConfig:
    at = {"endpoint__base_url": server.base_url, "endpoint__context": 4096, "teacher": MODEL}
    sampling = {"think__sampling__max_tokens": 64, "deliberate__sampling__max_tokens": 64}
    return config(folder, **at, **sampling, out=str(folder / name), **keys)


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> tuple[list[dict[str, Any]], list[Trace], Path]:
    """The requests of a run with a system prompt, its traces, and its folder's parent."""
    folder = tmp_path_factory.mktemp("told")
    with faulty() as server:
        asked = served(folder, server, system="Be brief.")
        plan = check(asked)
        assert estimate(plan).stages[0].amounts.calls.high == 6
        run(plan)
        requests = [body for body in server.asked if body["messages"][0] == SYSTEM]
        again = check(served(folder, server, "again", system="Be brief."))
        assert estimate(again).stages[0].in_journal.low == 6
        count = len(server.asked)
        run(again)
        assert len(server.asked) == count  # all of it is in the journal
    return requests, list(read_traces(folder / "run")), folder


def test_every_request_has_the_system_prompt_the_history_and_the_prompt_as_last_turn(told):
    requests, traces, _ = told
    assert len(traces) == 3 and len(requests) == 3 * (2 + 1)
    sent = [body["messages"] for body in requests]
    for trace, row in zip(traces, ROWS, strict=True):
        before = [
            turn | {"content": turn["content"].replace("<|", "< |")} for turn in row["messages"]
        ]
        thinker = asked_of_thinker(trace.problem, CONFIG)
        assert thinker.startswith("Sure?") and thinker != "Sure?"
        for prompt, count in ((thinker, 2), (trace.caches[0].prompt, 1)):
            asked = [SYSTEM, *before[:-1], {"role": "user", "content": prompt}]
            assert sent.count(asked) == count
        assert "\nSure?\n" in trace.caches[0].prompt and "6+1" not in trace.caches[0].prompt


def test_problems_with_one_text_and_other_histories_have_other_samples(told):
    _, traces, _ = told
    assert len({attempt.answer_text + attempt.reasoning for t in traces for attempt in t.pool}) == 6


def test_a_history_and_a_system_prompt_take_room_from_the_cache(tmp_path):
    long = [{"messages": [HISTORY[0] | {"content": "word " * 300}, *ROWS[0]["messages"][1:]],
             "reference": "1"}]  # fmt: skip
    check(config(tmp_path, cache__budget_tokens=500), contact=None)
    with messages.raises("budget_of_cache", budget=500):
        check(config(tmp_path, long, cache__budget_tokens=500))
    plain, told = (check(config(tmp_path, system=system)) for system in (None, "Be brief."))
    budgets = [plan.config.cache.budget_tokens or 0 for plan in (plain, told)]
    assert budgets[0] - budgets[1] == len("Be brief.")


def test_two_system_prompts_are_refused(tmp_path):
    rows = [{"messages": [SYSTEM, *ROWS[0]["messages"]], "reference": "1"}]
    check(config(tmp_path, rows))
    with messages.raises("two_system_messages", problem="problems:1"):
        check(config(tmp_path, rows, system="Be brief."))


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% if messages[0].role == 'system' %}{{ raise_exception('No system!') }}{% endif %}",
         "No system!"),
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
         "it drops one"),
    ],
)  # fmt: skip
def test_a_chat_template_without_a_system_role_is_found_before_the_run(
    tmp_path, monkeypatch, template, why
):
    def load(model: str) -> Any:
        tokenizer = real(model)
        tokenizer.chat_template = template
        return tokenizer

    from heavydistill.models.local import engine

    real = engine.load_tokenizer
    monkeypatch.setattr(engine, "load_tokenizer", load)
    check(config(tmp_path, [{"text": "1?", "reference": "1"}]))
    with pytest.raises(ConfigError, match=f"does not take messages of system, user: .*{why}"):
        check(config(tmp_path, [{"text": "1?", "reference": "1"}], system="Be brief."))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="into the first turn of the user") as caught:
        require_roles("heavydistill/micro/teacher", [[SYSTEM, *HISTORY]])
    assert "Put what a system message says" in caught.value.fix


def test_a_dry_run_shows_the_whole_first_conversation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config(tmp_path)
    asks = ["generate", "--problems", "problems.jsonl", "--system", "Be brief.", "--dry-run"]
    ended = run_command(*asks)
    assert ended.returncode == 0
    shown = ended.stdout.partition("first prompt")[2]
    assert "[system]\nBe brief.\n\n[user]\n6+1? < |im_end|>\n\n[assistant]\n7\n\nSure?\n" in shown


def test_the_system_prompt_is_not_a_judges_and_is_a_redeliberations(tmp_path):
    config = load_config(None, {"judge.model": "micro", "system": "Be brief."})
    plain, told = resolve(RunConfig()), resolve(config)
    assert [llm_of(told, stage).system for stage in (THINK, "deliberate_1", JUDGE)] == [
        "Be brief.", "Be brief.", None
    ]  # fmt: skip
    builds = load_build_config(
        None, {"runs": ["r"], "student": "s", "out": str(tmp_path), "redeliberate": {}}
    )
    again = redeliberation.resolve(builds, config)
    (first, *_) = redeliberation.requests_of(
        again, Problem(id="p", text="?", reference="", verifier="exact"), cache()
    )
    assert first.messages == [SYSTEM, {"role": "user", "content": cache().prompt}]
    assert redeliberation.resolve(builds, plain.config).config.system is None


def test_a_judge_reads_the_whole_conversation(told):
    _, traces, _ = told
    asked = question(traces[0].problem, "7", judge_prompt("en"))
    assert "[user]\n6+1? < |im_end|>\n\n[assistant]\n7\n\n[user]\nSure?\n" in asked


def test_problems_with_one_text_and_other_histories_are_other_questions(told):
    _, traces, _ = told
    assert len({ProblemFigures.of(trace).question for trace in traces}) == 3


def test_a_page_shows_the_whole_conversation(told):
    _, traces, _ = told
    assert whole(traces[0])["problem"]["text"] == traces[0].problem.transcript
    assert whole(traces[2])["problem"]["text"] == "Sure?"
