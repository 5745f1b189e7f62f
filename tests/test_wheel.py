"""The wheel holds what an installed heavydistill needs beside its modules."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
BENCHMARKS = "from heavydistill.curate.filters.contamination import read, shipped; "
BENCHMARKS += "print(*(read(file).name for file in shipped()))"
PUBLIC = "from heavydistill.problems.benchmarks import benchmark, shipped; "
PUBLIC += "print(*(benchmark(name).name for name in shipped()))"
PAGE = "from heavydistill.report.page.html import shipped; "
PAGE += "from heavydistill.report.page.writer import script; "
PAGE += "print(*(len(shipped('katex', name)) for name in ('katex.min.js', 'LICENSE'))); "
PAGE += "print(len(script()), len(shipped('web', 'page.css')), len(shipped('web', 'page.html')))"
LIST = "from heavydistill.models.registry import profile_at, shipped; "
LIST += "from heavydistill.config.models import Endpoint; "
LIST += "print(*shipped()); print(profile_at('micro', Endpoint()).model)"


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


def printed(installed: Path, folder: Path, code: str) -> list[str]:
    """The lines that a program prints which sees the wheel and not the checkout."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(installed)!r}); {code}"],
        cwd=folder,
        env={"PATH": "", "PYTHONNOUSERSITE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_profiles_are_found_in_an_installed_wheel(installed: Path, tmp_path: Path) -> None:
    found, model = printed(installed, tmp_path, LIST)
    assert found.split() == sorted(file.stem for file in (ROOT / "configs/teachers").glob("*.yaml"))
    assert Path(model) == installed / "heavydistill" / "micro" / "teacher"
    assert (Path(model) / "model.safetensors").is_file()


def test_the_public_benchmarks_are_found_in_an_installed_wheel(
    installed: Path, tmp_path: Path
) -> None:
    (names,) = printed(installed, tmp_path, PUBLIC)
    files = sorted((ROOT / "configs/benchmarks").glob("*.yaml"))
    assert files and names.split() == [file.stem for file in files]


def test_the_hashes_of_benchmarks_are_found_in_an_installed_wheel(
    installed: Path, tmp_path: Path
) -> None:
    (names,) = printed(installed, tmp_path, BENCHMARKS)
    files = sorted((ROOT / "data/benchmarks").glob("*.parquet"))
    assert files and names.split() == [file.stem for file in files]


def test_the_page_of_reports_is_whole_in_an_installed_wheel(
    installed: Path, tmp_path: Path
) -> None:
    katex, ours = (list(map(int, line.split())) for line in printed(installed, tmp_path, PAGE))
    folder = ROOT / "heavydistill" / "report" / "page" / "katex"
    sizes = [len((folder / name).read_text("utf-8")) for name in ("katex.min.js", "LICENSE")]
    assert katex == sizes and all(ours)
    for folder in ("report/page/web", "hub/templates"):
        shipped = {path.name for path in (ROOT / "heavydistill" / folder).iterdir()}
        assert shipped and shipped == {
            p.name for p in (installed / "heavydistill" / folder).iterdir()
        }
    (metadata,) = installed.glob("heavydistill-*.dist-info/METADATA")
    told = metadata.read_text(encoding="utf-8")
    assert "License-Expression: Apache-2.0 AND MIT" in told
    assert "License-File: heavydistill/report/page/katex/LICENSE" in told


def test_words_prompts_and_templates_are_in_the_wheel(installed: Path) -> None:
    def beside_modules(root: Path) -> set[str]:
        folders = (root / "heavydistill/heavy", root / "heavydistill/curate/exports/templates")
        files = (file for folder in folders for file in folder.rglob("*.*") if file.is_file())
        return {str(f.relative_to(root)) for f in files if f.suffix not in (".py", ".pyc")}

    assert beside_modules(installed) == beside_modules(ROOT)
    assert "heavydistill/heavy/mentions.yaml" in beside_modules(ROOT)
