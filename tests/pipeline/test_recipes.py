"""The recipe that a user copies, and the same steps under distilabel's stock pipeline."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

STOCK = """
from distilabel.pipeline import Pipeline

from heavydistill.config import CacheChoice, Problems, Sampling
from heavydistill.pipeline.llm import HeavyLLM
from heavydistill.pipeline.steps import BuildCaches, LabelTraces, LoadProblems, Verify
from heavydistill.pipeline.tasks import Deliberate, SampleTrajectories
from heavydistill.teachers.registry import find
from heavydistill.config import Endpoint

if __name__ == "__main__":
    llm = dict(teacher="micro", sampling=Sampling(max_tokens=192))
    with Pipeline("stock", cache_dir="cache") as pipeline:
        load = LoadProblems(source=Problems(size=3))
        think = SampleTrajectories(llm=HeavyLLM(**llm), num_generations=3, domain="brief")
        cache = BuildCaches(
            choice=CacheChoice(budget_tokens=1500),
            reader=find("micro", Endpoint()).tokenizer,
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


TYPED = """
from distilabel.distiset import Distiset

from heavydistill.config import load_config
from heavydistill.pipeline.build import build_heavy_pipeline

if __name__ == "__main__":
    config = load_config(None, {"problems.size": 3, "think.k": 2, "deliberate.d": 1})
    build_heavy_pipeline(config).run().save_to_disk("saved")
    print("rows", len(Distiset.load_from_disk("saved")["default"]["train"]))
"""


def python(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=cwd,
        env={**os.environ, "HF_DATASETS_CACHE": str(cwd / "hf")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_recipe_gives_a_distiset(tmp_path: Path) -> None:
    printed = python(str(ROOT / "pipelines" / "heavy.py"), cwd=tmp_path)
    assert "Distiset" in printed and "num_rows: 12" in printed


def test_a_distiset_can_be_saved_with_its_card_and_pipeline(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    assert "rows 3" in python("typed.py", cwd=tmp_path)
    saved = {file.name: file for file in (tmp_path / "saved" / "distiset_configs").iterdir()}
    assert "README.md" in saved
    assert "SampleTrajectories" in saved["pipeline.yaml"].read_text(encoding="utf-8")


def test_the_steps_run_under_a_stock_pipeline(tmp_path: Path) -> None:
    (tmp_path / "stock.py").write_text(STOCK)
    printed = python("stock.py", cwd=tmp_path)
    assert "rows 3 deliberations 6" in printed
    assert "steps 7" in printed
