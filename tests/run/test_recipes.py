"""The recipe that a user copies, and the same steps under distilabel's stock pipeline."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from command_line import MICRO
from distilabel.distiset import Distiset
from fake_server import completion, serving
from import_files import lines

from heavydistill.config.models import Endpoint
from heavydistill.config.run import load_config
from heavydistill.models.registry import profile_at
from heavydistill.models.resolve import resolve
from heavydistill.run.recipe import Pace, build_heavy_pipeline
from heavydistill.schema import Trace, from_row
from heavydistill.store.journal import Journal

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "pipelines" / "heavy.py"
TOKENS = 18  # of every response of ``fake_server.completion``

STOCK = """
from distilabel.pipeline import Pipeline

from heavydistill.config.models import Sampling
from heavydistill.config.run import CacheChoice, Problems
from heavydistill.run.llm import HeavyLLM
from heavydistill.run.steps import BuildCaches, LabelTraces, LoadProblems, Verify
from heavydistill.run.tasks import Deliberate, SampleTrajectories
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
        command, capture_output=True, text=True, timeout=240, cwd=cwd, env={**os.environ, **home}
    )


def python(*arguments: str, cwd: Path) -> str:
    done = ended(sys.executable, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_recipe_saves_a_distiset_with_its_card_and_pipeline(tmp_path):
    printed = python(str(RECIPE), cwd=tmp_path)
    assert "Distiset" in printed and "num_rows: 12" in printed
    (saved,) = (tmp_path / "runs").glob("micro-*")
    assert len(Distiset.load_from_disk(saved)["default"]["train"]) == 12
    assert Journal(tmp_path / "runs" / "journal").answered == 12 * (8 + 4)
    kept = {file.name: file for file in (saved / "distiset_configs").iterdir()}
    assert "README.md" in kept
    assert "SampleTrajectories" in kept["pipeline.yaml"].read_text(encoding="utf-8")


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
    rows = ({"id": f"p{n}", "text": f"{n} + {n}?", "reference": f"{2 * n}"} for n in range(12))
    lines(tmp_path / "p.jsonl", *rows)
    with serving(lambda body: completion("\\boxed{2}")) as server:
        short = {"sampling": {"max_tokens": 100}}
        config = {
            "teacher": "served",
            "endpoint": {"base_url": server.base_url, "tokenizer": MICRO},
            "problems": {"source": "p.jsonl"},
            "think": short,
            "deliberate": short,
        }

        def run(budget: str) -> subprocess.CompletedProcess[str]:
            (tmp_path / "c.yaml").write_text(json.dumps(config | {"budget": budget}))
            return ended(sys.executable, str(RECIPE), "--config", "c.yaml", cwd=tmp_path)

        assert "The budget does not hold another request" in run("3ktok").stderr
        paid = len(server.requests)
        assert 0 < paid * TOKENS <= 3000
        done = run("9ktok")
        assert done.returncode == 0, done.stderr
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
        pipeline = build_heavy_pipeline(load_config(None, keys))
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
    replayed = build_heavy_pipeline(load_config(None, keys), replay=True)
    expected = [from_row(Trace, row) for row in replayed.run()["default"]["train"]]
    replayed.discard()
    assert len(rows) == count == len(expected)
    assert traces == {trace.problem.id: trace for trace in expected}
    assert [len(trace.pool) for trace in expected] == [k] * count
