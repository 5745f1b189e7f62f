"""The wheel holds what an installed heavydistill needs beside its modules."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
PROGRAM = """
from heavydistill.config.models import Endpoint
from heavydistill.curate.filters.contamination import read, shipped as hashes
from heavydistill.models.registry import profile_at, shipped as profiles
from heavydistill.problems.benchmarks import benchmark, shipped as benchmarks
from heavydistill.report.page.html import shipped
from heavydistill.report.page.writer import script
from heavydistill.train.arguments import shipped as trainings

print(*profiles())
print(profile_at("micro", Endpoint()).model)
print(*(benchmark(name).name for name in benchmarks()))
print(*(read(file).name for file in hashes()))
print(*(len(shipped("katex", name)) for name in ("katex.min.js", "LICENSE")))
print(*(name for kind in ("sft", "grpo", "accelerate") for name in trainings(kind)))
print(len(script()), len(shipped("web", "page.css")), len(shipped("web", "page.html")))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel unpacked, which is what installing does."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(folder / built.stdout.split()[-1]) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


def stems(folder: str, pattern: str) -> list[str]:
    """The names of files of the checkout, without endings."""
    found = sorted(file.stem for file in (ROOT / folder).glob(pattern))
    assert found
    return found


def test_what_modules_read_is_found_in_an_installed_wheel(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(  # it sees the wheel and not the checkout
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(installed)!r}); {PROGRAM}"],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONNOUSERSITE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    profiles, model, benchmarks, hashes, katex, trainings, ours = done.stdout.splitlines()
    assert profiles.split() == stems("configs/teachers", "*.yaml")
    assert Path(model) == installed / "heavydistill" / "micro" / "teacher"
    assert (Path(model) / "model.safetensors").is_file()
    assert benchmarks.split() == stems("configs/benchmarks", "*.yaml")
    assert hashes.split() == stems("data/benchmarks", "*.parquet")
    kinds = ("configs/sft", "configs/grpo", "configs/accelerate")
    files = [
        (path, ROOT / kind) for kind in kinds for path in sorted((ROOT / kind).rglob("*.yaml"))
    ]
    assert trainings.split() == [str(p.relative_to(at).with_suffix("")) for p, at in files]
    folder = ROOT / "heavydistill" / "report" / "page" / "katex"
    sizes = [len((folder / name).read_text("utf-8")) for name in ("katex.min.js", "LICENSE")]
    assert list(map(int, katex.split())) == sizes and all(map(int, ours.split()))


def test_the_licences_of_what_is_shipped_are_told(installed: Path) -> None:
    (metadata,) = installed.glob("heavydistill-*.dist-info/METADATA")
    told = metadata.read_text(encoding="utf-8")
    assert "License-Expression: Apache-2.0 AND MIT" in told
    assert "License-File: heavydistill/report/page/katex/LICENSE" in told


def test_words_prompts_and_templates_are_in_the_wheel(installed: Path) -> None:
    places = ("heavy", "curate/exports/templates", "report/page/web", "hub/templates")

    def beside_modules(root: Path) -> set[str]:
        files = (file for place in places for file in (root / "heavydistill" / place).rglob("*.*"))
        return {str(f.relative_to(root)) for f in files if f.suffix not in (".py", ".pyc")}

    assert beside_modules(installed) == beside_modules(ROOT)
    for name in ("heavy/mentions.yaml", "hub/templates/model_card.md", "report/page/web/page.css"):
        assert f"heavydistill/{name}" in beside_modules(ROOT)
