"""The steps, the tasks and the LLM by themselves, without a pipeline."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import command_line
import messages
import pytest
from counting_server import Counter, counting, tokens_of
from distilabel.steps import Step
from fake_server import FakeServer, completion, serving
from plug_ins import forgotten
from scripted_engine import ScriptedEngine

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.config.run import CacheChoice, Problems, Verifying, load_config
from heavydistill.heavy import prompts
from heavydistill.models.registry import profile_at
from heavydistill.models.request import THINK, Request, Response, sample_seed, user_turn
from heavydistill.models.tokenizer import ESTIMATED, SERVER
from heavydistill.run.estimate import estimate
from heavydistill.run.generate import Plan, check
from heavydistill.run.recipe.llm import HeavyLLM
from heavydistill.run.recipe.steps import COLUMNS, BuildCaches, LabelTraces, LoadProblems, Verify
from heavydistill.run.recipe.tasks import Deliberate, SampleTrajectories
from heavydistill.schema import OK, TOO_FEW_USABLE, Problem, Trace, arrow_schema, from_row, to_row
from heavydistill.verifiers.workers import WorkerPool

MICRO = profile_at("micro", Endpoint())


def said(answer: str, **fields: Any) -> Response:
    texts = {"reasoning": f"thought about {answer}", "answer_text": f"It is \\boxed{{{answer}}}"}
    used = {"prompt_tokens": 7, "completion_tokens": 5}
    return Response(**texts, finish_reason="stop", **used, **fields)


def llm(answer: Callable[[Request, int], Response]) -> tuple[HeavyLLM, ScriptedEngine]:
    model = HeavyLLM(teacher="micro", sampling=Sampling(max_tokens=64))
    model._engine = engine = ScriptedEngine(answer)
    return model, engine


def problem_row(id: str = "p1", text: str = "What is 1 + 1?") -> dict[str, Any]:
    return {"problem": to_row(Problem(id=id, text=text, reference="2", verifier="exact"))}


def run(step: Step, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(step, Verify):
        step.load()
    return list(next(step.process(rows)))


def sampled(
    answers: list[Response], rows: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    model, _ = llm(lambda request, before: answers[before])
    task = SampleTrajectories(llm=model, num_generations=len(answers), domain="brief")
    return run(Verify(column="pool"), run(task, rows or [problem_row()]))


def cached(rows: list[dict[str, Any]], **choice: Any) -> list[dict[str, Any]]:
    step = BuildCaches(
        choice=CacheChoice(budget_tokens=1500, **choice), reader=MICRO.tokenizer, domain="brief"
    )
    step.load()
    return run(step, rows)


def test_a_cache_counted_by_the_server_is_built_again_by_a_replay(tmp_path):
    long = replace(said("2"), answer_text="so it goes on " * 900 + r"to \boxed{2}")
    rows = sampled([long, said("3"), said("2")])

    def built(**more: Any) -> dict[str, Any]:
        choice = CacheChoice(budget_tokens=2500)
        keys = {"reader": SERVER, "model": "m", "journal": str(tmp_path), **more}
        step = BuildCaches(choice=choice, domain="brief", **keys)
        step.load()
        (row,) = run(step, copy.deepcopy(rows))
        step.unload()
        return dict(row["caches"][0])

    with counting(Counter()) as server:
        cache = built(endpoint=Endpoint(base_url=server.url))
        assert cache["reader"] == "m's server"
        assert cache["prompt_tokens"] == len(tokens_of(cache["prompt"])) <= 2500
        asked = len(server.asked)
        assert built(endpoint=Endpoint(base_url=server.url)) == cache
        assert len(server.asked) == asked  # all of it was in the journal
    assert built(replay=True) == cache
    estimated = built(replay=True, journal=None)
    assert estimated["reader"] == ESTIMATED
    assert estimated["prompt_tokens"] == len(estimated["prompt"].encode()) <= 2500


def test_the_thinker_never_sees_the_reference():
    row = problem_row()
    row["problem"]["reference"] = "REFERENCE"
    model, engine = llm(lambda request, before: said("2"))
    run(SampleTrajectories(llm=model, num_generations=1), [row])
    assert "REFERENCE" not in json.dumps([request.messages for request in engine.requests])


def test_cache_leaves_out_and_counts_what_is_not_usable():
    failed = Response(finish_reason="error", error="x")
    cut = Response(reasoning="so far", finish_reason="length")
    (row,) = cached(sampled([said("2"), failed, cut, said("3")]))
    cache = row["caches"][0]
    assert len(cache["items"]) == 2
    assert sorted(item["reason"] for item in cache["left_out"]) == ["error", "truncated"]
    assert "\\boxed{2}" in cache["prompt"] and "\\boxed{3}" in cache["prompt"]


def test_too_few_usable_trajectories_end_the_way_of_a_row():
    failed = Response(finish_reason="error", error="x")
    (row,) = cached(sampled([said("2"), failed, failed]))
    assert row["status"] == TOO_FEW_USABLE and row["caches"] == []
    model, engine = llm(lambda request, before: said("2"))
    (row,) = run(Deliberate(llm=model, num_generations=2), [row | {"from_journal": 3}])
    assert engine.requests == [] and row["deliberations"] == []
    assert "from_journal" not in row, "the thinker's are not counted for the deliberator"
    (row,) = run(LabelTraces(), [row])
    assert row["stratum"] == "majority-right" and row["outcome"] is None


def test_a_row_that_fails_is_a_reject_and_its_neighbours_go_on():
    unworded = problem_row("unworded", "One and one?")
    unworded["problem"]["domain"] = "no such domain"
    rows = [problem_row("a"), unworded, problem_row("b", "1 + 1 = ?")]
    rows = cached(sampled([said("2"), said("2")], rows))
    statuses = {row["problem"]["id"]: row["status"] for row in rows}
    assert statuses["a"] == statuses["b"] == OK
    assert statuses["unworded"].startswith(
        "failed: sample_trajectories_0: ConfigError: There is no"
    )
    finished = run(LabelTraces(), rows)
    assert [list(row) for row in finished] == [COLUMNS] * 3


def test_an_engine_that_breaks_makes_rejects_and_not_blanks():
    model, _ = llm(lambda request, before: 1 / 0)
    rows = run(SampleTrajectories(llm=model, num_generations=2), [problem_row(), problem_row("q")])
    failed = "failed: sample_trajectories_0: ZeroDivisionError: division by zero"
    assert [row["status"] for row in rows] == [failed] * 2


def test_a_second_round_reads_the_deliberations_of_the_first():
    """Defect 1 of the reference implementation: its rounds read the trajectories alone."""
    rows = cached(sampled([said("3"), said("4")]))
    model, engine = llm(
        lambda request, before: Response(
            answer_text=f"Deliberated number {before}: \\boxed{{2}}", finish_reason="stop"
        )
    )
    rows = run(Deliberate(llm=model, num_generations=2), rows)
    rows = run(Deliberate(llm=model, num_generations=2), cached(rows))
    second = rows[0]["caches"][1]["prompt"]
    assert "Deliberated number 0" in second and "Deliberated number 1" in second
    assert "\\boxed{3}" in second and "\\boxed{4}" in second
    assert engine.requests[-1].messages[0]["content"] == second
    assert [d["round"] for d in rows[0]["deliberations"]] == [1, 1, 2, 2]


def deliberated(rows: list[dict[str, Any]], d: int = 1) -> list[dict[str, Any]]:
    """The rows with deliberations that say 2, judged."""
    model, _ = llm(lambda request, before: said("2"))
    rows = run(Deliberate(llm=model, num_generations=d), rows)
    return run(Verify(column="deliberations"), rows)


def test_one_verifier_judges_both_stages_and_rows_fit_the_declared_arrow_schema():
    """Defect 8 of the reference implementation: two graders, one for each stage."""
    import pyarrow as pa

    rows = deliberated(cached(sampled([said("2"), said("3")])), d=2)
    judges = {g["verdict"]["verifier"] for g in (*rows[0]["pool"], *rows[0]["deliberations"])}
    assert len(judges) == 1
    table = pa.Table.from_pylist(run(LabelTraces(), rows), schema=arrow_schema(Trace))
    trace = from_row(Trace, table.to_pylist()[0])
    assert trace.stratum == "tie" and trace.outcome == "rescued"


def test_stock_tasks_of_distilabel_see_every_field_of_a_response():
    from distilabel.steps.tasks import TextGeneration

    model, engine = llm(lambda request, before: said("2"))
    task = TextGeneration(name="stock", llm=model, add_raw_input=False, add_raw_output=False)
    task.load()
    task.llm._engine = engine  # load() has opened the real one
    (row,) = run(task, [{"instruction": "What is 1 + 1?"}])
    assert row["generation"] == "It is \\boxed{2}"
    assert row["llm_stock_reasoning"] == "thought about 2"
    assert row["llm_stock_finish_reason"] == "stop"


OWN = Path(__file__).parents[1] / "verifiers" / "own_verifiers.py"


@pytest.fixture
def own_verifiers():
    with forgotten():
        yield Verifying(own=[str(OWN)], workers=2, timeout_s=1.0, memory_mb=1024)


def test_a_response_that_hangs_its_verifier_costs_itself_alone(own_verifiers, monkeypatch):
    submit, unfinished = WorkerPool.submit, []

    def noted(crew: WorkerPool, *task: Any) -> None:
        submit(crew, *task)
        unfinished.append(crew._unfinished)

    monkeypatch.setattr(WorkerPool, "submit", noted)
    rows = [problem_row(f"p{n}", f"{n}?") for n in range(6)]
    for row in rows:
        row["problem"]["verifier"] = "obedient"
    answers = ["2", "hang", "3"]
    model, _ = llm(
        lambda request, before: Response(answer_text=answers[before], finish_reason="stop")
    )
    rows = run(SampleTrajectories(llm=model, num_generations=3, domain="brief"), rows)
    step = Verify(column="pool", verify=own_verifiers)
    rows = run(step, rows)
    step.unload()
    assert [row["problem"]["id"] for row in rows] == [f"p{n}" for n in range(6)]
    for row in rows:
        assert row["status"] == OK
        told = [(t["verdict"]["label"], t["verdict"]["reason"]) for t in row["pool"]]
        assert told == [("correct", "told"), ("undecided", "timeout"), ("incorrect", "told")]
    assert max(unfinished) > 3, "all rows of a batch are judged side by side"


def test_a_saved_step_keeps_how_it_verifies(own_verifiers):
    step = Verify(name="verify_pool", column="pool", verify=own_verifiers)
    again = Verify.from_dict(json.loads(json.dumps(step.dump())))
    assert again.verify == own_verifiers
    source = LoadProblems(name="load", source=Problems(size=3), verify=own_verifiers)
    saved = LoadProblems.from_dict(json.loads(json.dumps(source.dump())))
    assert (saved.verify, saved.source) == (own_verifiers, source.source)


@pytest.mark.parametrize("column", ["pool", "deliberations"])
def test_verify_does_not_judge_twice(column):
    (row,) = deliberated(cached(sampled([said("2"), said("3")])))
    before = [g["verdict"] for g in row[column]]
    row["problem"]["reference"] = "3"
    (row,) = run(Verify(column=column), [row])
    assert [g["verdict"] for g in row[column]] == before


def test_a_model_whose_server_nobody_started_is_refused():
    llm = HeavyLLM(teacher="qwen3-8b", sampling=Sampling(), endpoint=Endpoint(start_vllm=True))
    with messages.raises("no_server_for_pipeline"):
        llm.load()


PROFILE = f"name: ours\nhub: org/ours\ntokenizer: {command_line.MICRO}\ncontext: 4096\n"
PROMPT = user_turn("What is 1 + 1?")


def asked(
    server: FakeServer,
    teacher: str,
    folder: Path,
    prompt: list[dict[str, str]] = PROMPT,
    sampling: Sampling = Sampling(max_tokens=64),
) -> list[dict[str, Any]]:
    """Three samples of one prompt, with a journal in the folder."""
    llm = HeavyLLM(
        teacher=teacher,
        sampling=sampling,
        endpoint=Endpoint(base_url=server.base_url, reasoning="optional"),
        journal=str(folder / "journal"),
    )
    llm.load()
    try:
        return llm.generate([prompt], num_generations=3)
    finally:
        llm.unload()


@pytest.mark.parametrize(
    "way", ["mine.yaml", "./mine.yaml", "sub/../mine.yaml", "{here}/mine.yaml"]
)
def test_nothing_is_paid_twice_however_the_file_of_a_profile_is_named(tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "mine.yaml").write_text(PROFILE)
    with serving(lambda body: completion(f"seed {body['seed']}")) as server:
        first = asked(server, "mine.yaml", tmp_path)
        again = asked(server, way.format(here=tmp_path), tmp_path)
        assert len(server.requests) == 3
    assert again[0]["generations"] == first[0]["generations"]
    assert again[0]["seed"] == first[0]["seed"]


def test_a_plan_knows_what_was_asked_under_another_name_of_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(PROFILE)
    (tmp_path / "problems.jsonl").write_text('{"id": "p", "text": "1 + 1?", "reference": "2"}\n')
    with serving(lambda body: completion("\\boxed{2}")) as server:

        def plan(teacher: str) -> Plan:
            keys = {
                "teacher": teacher,
                "endpoint.base_url": server.base_url,
                "problems.source": "problems.jsonl",
                "journal": "journal",
            }
            return check(load_config(None, keys))

        first = plan("mine.yaml")
        wording = prompts.load("thinker", first.config.domain or "general", "en")
        prompt = user_turn(prompts.thinker_prompt(first.problems[0].text, wording))
        asked(server, "mine.yaml", tmp_path, prompt, first.run.in_stage(THINK).sampling)
    for teacher in ("mine.yaml", "./mine.yaml", str(tmp_path / "mine.yaml")):
        assert estimate(plan(teacher)).stages[0].in_journal.low == 3


@pytest.mark.parametrize("teacher", ["qwen3-8b", "glm-4.6", "served"])
def test_a_name_as_it_is_typed_gives_the_seeds_that_it_gave_before(tmp_path, teacher):
    # Journals of earlier versions have these seeds.
    with serving(lambda body: completion("2")) as server:
        asked(server, teacher, tmp_path)
        seeds = {body["seed"] for body in server.requests}
    assert seeds == {sample_seed(0, teacher, PROMPT, index) for index in range(3)}
