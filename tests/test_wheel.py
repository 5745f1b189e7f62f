"""The wheel holds what an installed heavydistill needs beside its modules."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
KINDS = ("generate", "evaluate", "build", "sft", "grpo", "distill", "accelerate")
PROGRAM = """
import sys
from heavydistill.config.models import Endpoint
from heavydistill.config.shipped import shipped
from heavydistill.curate.filters.contamination import read
from heavydistill.models.registry import profile_at
from heavydistill.problems.benchmarks import benchmark
from heavydistill.report.page.html import shipped as of_page
from heavydistill.report.page.writer import script

print(*shipped("configs/teachers"))
print(profile_at("micro", Endpoint()).model)
print(*(benchmark(name).name for name in shipped("configs/benchmarks")))
print(*(read(file).name for file in shipped("data/benchmarks", ".parquet").values()))
print(*(len(of_page("katex", name)) for name in ("katex.min.js", "LICENSE")))
print(*(name for kind in sys.argv[1:] for name in shipped(f"configs/{kind}")))
print(len(script()), len(of_page("web", "page.css")), len(of_page("web", "page.html")))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site-packages of an environment of its own with the wheel and without the checkout."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    venv.create(folder / "environment", symlinks=True)
    (site,) = (folder / "environment").glob("lib/*/site-packages")
    with zipfile.ZipFile(folder / built.stdout.split()[-1]) as wheel:
        wheel.extractall(site)  # which is what installing does
    # Other packages are those of the tests. Paths of their own that they name are not followed.
    places = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "others.pth").write_text("\n".join(places), encoding="utf-8")
    return site


def run_installed(site: Path, folder: Path, *words: str) -> str:
    """What the installed interpreter prints in a folder."""
    done = subprocess.run(
        [str(site.parents[2] / "bin" / "python"), *words],
        cwd=folder,
        env={"PATH": "", "PYTHONNOUSERSITE": "1", "HF_HUB_OFFLINE": "1", "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}"
    return done.stdout


def stems(folder: str, pattern: str) -> list[str]:
    """The names of files of the checkout, without endings."""
    found = sorted(file.stem for file in (ROOT / folder).glob(pattern))
    assert found
    return found


def test_what_modules_read_is_found_in_an_installed_wheel(installed, tmp_path):
    said = run_installed(installed, tmp_path, "-c", PROGRAM, *KINDS)
    profiles, model, benchmarks, hashes, katex, trainings, ours = said.splitlines()
    assert profiles.split() == stems("configs/teachers", "*.yaml")
    assert Path(model) == installed / "heavydistill" / "micro" / "teacher"
    assert (Path(model) / "model.safetensors").is_file()
    assert benchmarks.split() == stems("configs/benchmarks", "*.yaml")
    assert hashes.split() == stems("data/benchmarks", "*.parquet")
    kinds = [ROOT / "configs" / kind for kind in KINDS]
    names = [{p.relative_to(at).with_suffix("") for p in at.rglob("*.yaml")} for at in kinds]
    assert trainings.split() == [str(name) for each in names for name in sorted(each)]
    folder = ROOT / "heavydistill" / "report" / "page" / "katex"
    sizes = [len((folder / name).read_text("utf-8")) for name in ("katex.min.js", "LICENSE")]
    assert list(map(int, katex.split())) == sizes and all(map(int, ours.split()))


def test_the_licences_of_what_is_shipped_are_told(installed):
    (metadata,) = installed.glob("heavydistill-*.dist-info/METADATA")
    told = metadata.read_text(encoding="utf-8")
    assert "License-Expression: Apache-2.0 AND MIT" in told
    assert "License-File: heavydistill/report/page/katex/LICENSE" in told


def test_words_prompts_and_templates_are_in_the_wheel(installed):
    places = ("heavy", "text", "verifiers", "skill")
    places += ("curate/exports/templates", "report/page/web", "hub/templates")

    def beside_modules(root: Path) -> set[str]:
        files = (file for place in places for file in (root / "heavydistill" / place).rglob("*.*"))
        return {str(f.relative_to(root)) for f in files if f.suffix not in (".py", ".pyc")}

    assert beside_modules(installed) == beside_modules(ROOT)
    for name in ("text/mentions.yaml", "hub/templates/model_card.md", "report/page/web/page.css"):
        assert f"heavydistill/{name}" in beside_modules(ROOT)


@pytest.mark.slow
def test_an_installed_wheel_goes_from_generate_to_evaluate(installed, tmp_path):
    def run(command: str) -> str:
        return run_installed(installed, tmp_path, "-m", "heavydistill", *command.split())

    run("generate --limit 12 --k 4 --d 2 --out runs/micro")
    run("build runs/micro --student micro-student --set preset=natural --out sets/micro")
    said = run("sft --config micro --role deliberator --dataset_name sets/micro --max_steps 2")
    assert "The model is in out/deliberator" in said
    following = said.partition("Next: heavydistill ")[2].replace("\\\n", "")
    run(f"{following} --limit 4 --set think.k=2 --set deliberate.d=1")
    run("report out/deliberator-evaluation")
    assert (tmp_path / "out/deliberator-evaluation/evaluation.json").is_file()
    modules = "import heavydistill, torch; print(heavydistill.__file__)"
    assert run_installed(installed, tmp_path, "-c", modules).startswith(str(installed))
