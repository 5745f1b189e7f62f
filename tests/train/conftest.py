"""Sets for the micro student, built once, and a cache of ``datasets`` that is not the user's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import build, write_run
from trainings import command

pytest.importorskip("trl", reason="TRL is not installed")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where datasets keeps what it reads, in this process and in those that it starts."""
    import datasets

    folder = tmp_path_factory.mktemp("datasets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_DATASETS_CACHE", str(folder))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
        patch.setattr(datasets.config, "HF_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of both roles, some of them for validation."""
    folder = tmp_path_factory.mktemp("built")
    run = write_run(folder / "runs" / "sums", 30, k=4, words=6)
    build(folder / "sets", run, validation=0.2)
    return folder / "sets"


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Caches of the micro student's own attempts, on which it is right sometimes."""
    folder = tmp_path_factory.mktemp("real")
    command(
        *["generate", "--teacher", "micro-student", "--k", 3, "--d", 3],
        *["--set", "problems.size=40", "--set", "problems.seed=1000000"],
        *["--out", folder / "runs" / "own"],
    )
    built = ["--student", "micro-student", "--set", "validation=0.2", "--out", folder / "sets"]
    command("build", folder / "runs" / "own", *built)
    return folder / "sets"
