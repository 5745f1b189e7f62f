"""The recipes that a user copies, and the same steps under distilabel's stock pipeline."""

import contextlib
import json
import os
import runpy
import subprocess
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import messages
import pyarrow.parquet as pq
import pytest
from command_line import MICRO, run_script
from fake_server import completion, serving
from import_files import lines
from pool_folders import pool_folder, pool_of
from problem_files import doubles

from heavydistill.config.models import Endpoint
from heavydistill.config.run import load_config
from heavydistill.models.registry import profile_at
from heavydistill.models.resolve import resolve
from heavydistill.run.generate import check, run
from heavydistill.run.recipe.pipeline import Pace, build_heavy_pipeline
from heavydistill.schema import Trace, from_row
from heavydistill.store.journal import Journal
from heavydistill.store.traces import read_traces

PIPELINES = Path(__file__).parents[2] / "pipelines"
RECIPE = PIPELINES / "heavy.py"
TOKENS = 18  # of every response of ``fake_server.completion``

STOCK = """
from distilabel.pipeline import Pipeline

from heavydistill.config.models import Sampling
from heavydistill.config.run import CacheChoice, Problems
from heavydistill.run.recipe.llm import HeavyLLM
from heavydistill.run.recipe.steps import BuildCaches, LabelTraces, LoadProblems, Verify
from heavydistill.run.recipe.tasks import Deliberate, SampleTrajectories
from heavydistill.models.registry import profile_at
from heavydistill.config.models import Endpoint

if __name__ == "__main__":
    llm = dict(teacher="micro", sampling=Sampling(max_tokens=192))
    with Pipeline("stock", cache_dir="cache") as pipeline:
        load = LoadProblems(source=Problems(size=3))
        think = SampleTrajectories(llm=HeavyLLM(**llm), num_generations=3, domain="brief")
        cache = BuildCaches(
            choice=CacheChoice(budget_tokens=1500),
            reader=profile_at("micro", Endpoint()).tokenizer,
            domain="brief",
        )
        deliberate = Deliberate(llm=HeavyLLM(**llm), num_generations=2)
        verify = Verify(name="verify_pool", column="pool")
        judge = Verify(name="verify_deliberations", column="deliberations")
        load >> think >> verify >> cache >> deliberate >> judge >> LabelTraces()
    rows = pipeline.run(use_cache=False)["default"]["train"]
    print("rows", len(rows), "deliberations", sum(len(row["deliberations"]) for row in rows))
    pipeline.save("pipeline.yaml")
    again = Pipeline.from_yaml("pipeline.yaml")
    print("steps", len(list(again.dag)))
"""


def ended(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    home = {"HOME": str(cwd / "home"), "HF_DATASETS_CACHE": str(cwd / "hf")}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=800, cwd=cwd, env={**os.environ, **home}
    )


def python(*arguments: str, cwd: Path) -> str:
    done = ended(sys.executable, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def saved(path: Path, **keys: Any) -> Path:
    path.write_text(json.dumps(keys), encoding="utf-8")
    return path


def test_the_recipe_leaves_a_run_or_gives_a_distiset_with_its_card(tmp_path):
    config = saved(tmp_path / "c.yaml", teacher="micro", problems={"size": 3}, out="runs/three")
    with contextlib.chdir(tmp_path):
        printed = run_script(RECIPE, "--config", config).stdout.splitlines()
        assert "deliberation" in printed[0].lower() and printed[-1] == "runs/three"
        summary = json.loads(Path("runs/three/summary.json").read_text())
        assert (summary["problems"], summary["k"], summary["d"]) == (3, 8, 4)
        assert Journal(Path("runs/journal")).answered == 3 * (8 + 4)
        checked = check(load_config(config, {"out": "runs/again"})).run
        distiset = runpy.run_path(str(RECIPE))["build"](checked).run()
        distiset.save_to_disk("saved")
    rows = distiset["default"]["train"]
    assert [from_row(Trace, row).status for row in rows] == ["ok"] * 3
    kept = {file.name: file for file in (tmp_path / "saved" / "distiset_configs").iterdir()}
    assert "README.md" in kept
    assert "SampleTrajectories" in kept["pipeline.yaml"].read_text(encoding="utf-8")


def test_a_student_thinks_and_a_teacher_deliberates_each_at_its_own_server(tmp_path):
    source = str(doubles(tmp_path, 2))
    thought = completion("\\boxed{2}", reasoning_content="so")
    read = completion("\\boxed{4}", reasoning_content="so")
    with serving(lambda body: thought) as student, serving(lambda body: read) as teacher:
        at = {"tokenizer": MICRO, "api_key_env": "NONE"}
        of_student = saved(
            tmp_path / "student.yaml",
            teacher="small",
            endpoint={"base_url": student.base_url, **at},
            think={"sampling": {"max_tokens": 77}},
        )
        of_teacher = saved(
            tmp_path / "teacher.yaml",
            teacher="large",
            endpoint={"base_url": teacher.base_url, **at},
            problems={"source": source},
            think={"k": 3},
            deliberate={"d": 2},
            out="runs/student",
        )
        with contextlib.chdir(tmp_path):
            recipe = PIPELINES / "student_thinks.py"
            run_script(recipe, "--student", of_student, "--teacher", of_teacher)
    asked = [(body["model"], body["max_tokens"]) for body in student.requests]
    assert asked == [("small", 77)] * 6
    assert {body["model"] for body in teacher.requests} == {"large"}
    assert len(teacher.requests) == 4
    traces = list(read_traces(tmp_path / "runs" / "student"))
    assert [trace.stratum for trace in traces] == ["all-right", "all-wrong"]
    assert [trace.outcome for trace in traces] == ["overturned", "emergent"]


def test_imported_answers_are_deliberated_on(tmp_path):
    with contextlib.chdir(tmp_path):
        printed = run_script(PIPELINES / "imported_answers.py").stdout
    assert "12 problems with 48 answers: runs/imported-answers" in printed
    summary = json.loads((tmp_path / "runs" / "imported" / "summary.json").read_text())
    assert summary["statuses"] == {"ok": 12}
    assert summary["heavy_mean_at_d"]["mean"] > summary["vote_at_k"]["mean"]


def test_the_recipe_takes_every_key_of_a_configuration():
    keys = {
        "teacher": "qwen3-8b",
        "deliberator": "served",
        "endpoint.base_url": ",".join(f"http://localhost:{port}/v1" for port in range(1, 10)),
        "endpoint.tokenizer": MICRO,
        "endpoint.requests_per_minute": 600,
        "problems.size": 7,
        "think.k": 6,
        "think.min_k": 3,
        "think.sampling.max_tokens": 500,
        "deliberate.d": 2,
        "deliberate.rounds": 2,
        "deliberate.sampling.temperature": 0.5,
        "cache.width": 4,
        "domain": "stem",
        "language": "zh",
        "prompts": {"thinker": {"sql": "{{problem}}"}, "deliberator": "{{cache}}"},
        "prompts.judge": "{{answer}}",
        "seed": 3,
        "journal": "kept",
        "budget": "40Mtok",
        "judge.model": "critic",
        "judge.votes": 5,
        "judge.reasons": ["needs_units"],
    }
    run = resolve(load_config(None, keys))
    ours = build_heavy_pipeline(run)
    recipe = runpy.run_path(str(RECIPE))["build"](run)
    assert recipe.dump() == ours.dump()
    assert recipe.window == ours.window
    for pipeline in (ours, recipe):
        pipeline.discard()


def test_the_recipe_stops_where_the_budget_ends_and_goes_on_with_a_higher_one(tmp_path):
    source = str(doubles(tmp_path, 12))
    with serving(lambda body: completion("\\boxed{2}")) as server:
        short = {"sampling": {"max_tokens": 100}}
        config = {
            "teacher": "served",
            "endpoint": {"base_url": server.base_url, "tokenizer": MICRO},
            "problems": {"source": source},
            "think": short,
            "deliberate": short,
            "out": "runs/cheap",
        }

        def run(budget: str) -> CompletedProcess[str]:
            (tmp_path / "c.yaml").write_text(json.dumps(config | {"budget": budget}))
            return run_script(RECIPE, "--config", tmp_path / "c.yaml")

        with contextlib.chdir(tmp_path):
            with messages.raises("budget_used_up"):
                run("3ktok")
            paid = len(server.requests)
            assert 0 < paid * TOKENS <= 3000
            run("9ktok")
            assert len(server.requests) == 12 * (8 + 4)


def test_every_address_has_work():
    endpoint = Endpoint(base_url=",".join(f"http://localhost:{n}/v1" for n in range(1, 21)))
    for samples in (1, 4, 8, 16):
        pace = Pace.of(profile_at("served", endpoint), samples, endpoint)
        assert pace.rows * samples >= 20 * endpoint.concurrency


def test_the_steps_run_under_a_stock_pipeline(tmp_path):
    (tmp_path / "stock.py").write_text(STOCK)
    printed = python("stock.py", cwd=tmp_path)
    assert "rows 3 deliberations 6" in printed
    assert "steps 7" in printed


@pytest.mark.slow
def test_a_saved_pipeline_runs_from_the_command_line_of_distilabel(tmp_path):
    count, k, d = 12, 3, 2

    def answer(body: dict[str, Any]) -> Any:
        text = body["messages"][0]["content"]
        if any(f"{refused} + {refused}?" in text for refused in (0, 11)):
            return 400, {"error": {"message": "no"}}
        return completion(f"\\boxed{{{body['seed'] % 3}}}", reasoning_content="so")

    rows = [{"id": f"p{n}", "text": f"{n} + {n}?", "reference": f"{n % 3}"} for n in range(count)]
    lines(tmp_path / "p.jsonl", *rows)
    with serving(answer) as server:
        keys = {
            "teacher": "served",
            "endpoint.base_url": server.base_url,
            "endpoint.tokenizer": MICRO,
            "problems.source": str(tmp_path / "p.jsonl"),
            "think.k": k,
            "deliberate.d": d,
            "journal": str(tmp_path / "journal"),
        }
        pipeline = build_heavy_pipeline(resolve(load_config(None, keys)))
        pipeline.save(tmp_path / "pipeline.yaml", format="yaml")
        pipeline.discard()
        program = str(Path(sys.executable).parent / "distilabel")
        done = ended(program, "pipeline", "run", "--config", "pipeline.yaml", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(server.requests) == count * k + (count - 2) * d
    files = sorted((tmp_path / "home").rglob("label_traces/*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    traces = {trace.problem.id: trace for trace in (from_row(Trace, row) for row in rows)}
    # Our own pipeline makes the same of the same responses.
    replayed = build_heavy_pipeline(resolve(load_config(None, keys)), replay=True)
    expected = [from_row(Trace, row) for row in replayed.run()["default"]["train"]]
    replayed.discard()
    assert len(rows) == count == len(expected)
    assert traces == {trace.problem.id: trace for trace in expected}
    assert [len(trace.pool) for trace in expected] == [k] * count


def test_a_teacher_made_of_rules_deliberates_on_pools(tmp_path):
    recipe = runpy.run_path(str(PIPELINES / "rule_teacher.py"))
    pools = pool_folder(tmp_path / "pools", [pool_of(7, ["7", "7", "9"]), pool_of(8, ["1", "1"])])
    server = ThreadingHTTPServer(("127.0.0.1", 0), recipe["Handler"])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    keys = {
        "pools": str(pools),
        "deliberator": recipe["MODEL"],
        "endpoint.base_url": f"http://127.0.0.1:{server.server_port}/v1",
        "endpoint.tokenizer": MICRO,
        "deliberate.d": 2,
        "out": str(tmp_path / "run"),
    }
    try:
        run(check(load_config(None, keys)))
    finally:
        server.shutdown()
        server.server_close()
    traces = list(read_traces(tmp_path / "run"))
    said = [[each.answer_text for each in trace.deliberations] for trace in traces]
    assert said == [[r"The answer is \boxed{7}."] * 2, [r"The answer is \boxed{1}."] * 2]
    lines_of_first = traces[0].deliberations[0].reasoning.splitlines()
    assert sorted(line[-2] for line in lines_of_first) == ["7", "7", "9"]
    assert [trace.deliberations[0].right for trace in traces] == [True, False]
    assert recipe["read"]("Solve 1 + 1.") == ("Solve 1 + 1.", [])
