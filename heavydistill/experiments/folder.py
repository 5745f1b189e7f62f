"""The folder of an experiment, which has several runs, and how its runs are executed.

It gets its final name when all runs are complete. An interrupted experiment continues when the same
command is repeated, because the journal has all responses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heavydistill.config.run import Problems, RunConfig, Think
from heavydistill.models.contact import ServerProbe
from heavydistill.models.resolve import ResolvedRun
from heavydistill.problems import OnChecked
from heavydistill.run import generate
from heavydistill.store.atomic import new_folder, refuse_taken

RunOne = Callable[[str, generate.Plan], generate.RunResult]
"""Called with (name, plan); executes ``run.generate.run`` and prints the progress."""


@dataclass(frozen=True, slots=True)
class ExperimentFolder:
    """The folder of an experiment, and the journal shared by its runs."""

    folder: Path
    journal: Path

    @classmethod
    def of(cls, config: RunConfig, default: str) -> ExperimentFolder:
        """Return the folder set in a configuration; if none is set, a new one under ``runs/``.

        Raises:
            ConfigError: The folder exists.
        """
        folder = Path(config.out or f"runs/{default}-{time.strftime('%Y%m%d-%H%M%S')}")
        refuse_taken(folder)
        return cls(folder, Path(config.journal or folder.parent / "journal"))

    def within(self, config: RunConfig, name: str) -> RunConfig:
        """Return the configuration of the run called ``name``."""
        places = {"out": str(self.folder / name), "journal": str(self.journal)}
        return config.model_copy(update=places)

    def check(
        self,
        config: RunConfig,
        name: str,
        on_checked: OnChecked | None,
        contact: ServerProbe | None,
    ) -> generate.Plan:
        """Check one of the runs with ``generate.check``."""
        return generate.check(self.within(config, name), on_checked=on_checked, contact=contact)


def reading_pools(config: RunConfig, **changes: object) -> RunConfig:
    """Return the configuration without a thinker, for a run on existing pools, with ``changes``."""
    nobody: dict[str, object] = {
        "thinker": None,
        "thinkers": {},
        "think": Think(min_k=config.think.min_k),
        "problems": Problems(),
    }
    return config.model_copy(update={**nobody, "pools_sha256": None, **changes})


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment in progress; its runs are in ``folder`` until all are complete."""

    place: ExperimentFolder
    folder: Path
    run_one: RunOne

    def run(self, name: str, plan: generate.Plan) -> generate.Plan:
        """Execute a run in a subfolder of ``folder``; return its plan with the new paths."""
        log = self.place.folder.with_name(f"{self.place.folder.name}.{name}.vllm.log")
        placed = dataclasses.replace(plan, folder=self.folder / name, server_log=log)
        self.run_one(name, placed)
        return placed

    def check_on_pools(self, name: str, config: RunConfig, pools: str) -> generate.Plan:
        """Check a run that reads the pools of the run called ``pools``; return its plan.

        Raises:
            UserError: ``generate.check`` refuses the run.
        """
        written, named = self.folder / pools, str(self.place.folder / pools)
        at_work = self.place.within(config, name).model_copy(update={"pools": str(written)})
        plan = generate.check(at_work)
        run = plan.run.with_config(pools=named)
        return dataclasses.replace(plan, run=run, pools_at=written)


@contextlib.contextmanager
def experiment(
    place: ExperimentFolder,
    runs: Iterable[ResolvedRun],
    contact: ServerProbe | None,
    run_one: RunOne,
) -> Iterator[Experiment]:
    """Open the folder of an experiment for its runs; on exit, the folder gets its final name.

    Raises:
        TeacherError: A server of one of ``runs`` lacks a model; no other request was sent.
    """
    known = contact or ServerProbe()
    for run in runs:
        if run.asks_servers and not run.config.endpoint.start_vllm:
            generate.require_endpoints(run, known)
    with new_folder(place.folder) as folder:
        yield Experiment(place, folder, run_one)
