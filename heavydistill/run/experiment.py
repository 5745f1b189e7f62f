"""Several runs in one folder, which appears under its name when all of them are there.

A run may read the pools of one that is made before it: it reads them where they are written, and
its configuration names the place where they will be. An experiment that was broken off goes on
when the same command is given again: what was answered is in the journal, of finished runs too.

Not covered: what the runs are for; see ``evaluation``, ``controls`` and ``crossing``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heavydistill.config.run import Problems, RunConfig, Think
from heavydistill.config.versioned import write_versioned
from heavydistill.models.contact import Contact
from heavydistill.models.resolve import ResolvedRun
from heavydistill.problems import OnChecked
from heavydistill.run import generate
from heavydistill.run.result import all_traces
from heavydistill.schema import Trace
from heavydistill.store.atomic import new_folder, refuse_taken

RunOne = Callable[[str, generate.Plan], generate.Finished]
"""``run.generate.run`` of the plan under this name, with whatever shows its progress."""


@dataclass(frozen=True, slots=True)
class ExperimentFolder:
    """Where an experiment will be."""

    folder: Path
    journal: Path
    """Folder of the responses of all its runs."""

    def within(self, config: RunConfig, name: str) -> RunConfig:
        """The configuration of one of its runs."""
        places = {"out": str(self.folder / name), "journal": str(self.journal)}
        return config.model_copy(update=places)

    def check(
        self, config: RunConfig, name: str, on_checked: OnChecked | None, contact: Contact | None
    ) -> generate.Plan:
        """``generate.check`` of one of its runs."""
        return generate.check(self.within(config, name), on_checked=on_checked, contact=contact)


def place_of(config: RunConfig, default: str) -> ExperimentFolder:
    """The place that a configuration names, else one under ``runs/``.

    Raises:
        ConfigError: Something is there.
    """
    folder = Path(config.out or f"runs/{default}-{time.strftime('%Y%m%d-%H%M%S')}")
    refuse_taken(folder)
    return ExperimentFolder(folder, Path(config.journal or folder.parent / "journal"))


def reading_pools(config: RunConfig, **changes: Any) -> RunConfig:
    """A completed configuration without its thinker, to be given pools; ``changes`` are fields."""
    nobody = {"thinker": None, "think": Think(min_k=config.think.min_k), "problems": Problems()}
    return config.model_copy(update={**nobody, "pools_sha256": None, **changes})


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment that is being made."""

    place: ExperimentFolder
    folder: Path
    """Folder in which its runs are written until all are there."""
    run_one: RunOne

    def run(self, name: str, plan: generate.Plan) -> generate.Plan:
        """Make a run; gives its plan in this folder."""
        log = self.place.folder.with_name(f"{self.place.folder.name}.{name}.vllm.log")
        placed = dataclasses.replace(plan, folder=self.folder / name, server_log=log)
        self.run_one(name, placed)
        return placed

    def run_on_pools(self, name: str, config: RunConfig, pools: str) -> generate.Plan:
        """Make a run that reads the pools of the run of that name; ``config`` is without them.

        Raises:
            UserError: As of ``generate.check``.
        """
        written, named = self.folder / pools, str(self.place.folder / pools)
        at_work = self.place.within(config, name).model_copy(update={"pools": str(written)})
        plan = generate.check(at_work)
        run = plan.run.with_config(pools=named)
        return self.run(name, dataclasses.replace(plan, run=run, pools_at=written))

    def traces(self, name: str) -> Iterator[Trace]:
        """The traces of a run that was made."""
        return all_traces(self.folder / name)

    def write(self, record: Any, file: str) -> None:
        """Keep what came of it beside its runs."""
        write_versioned(record, self.folder / file)


@contextlib.contextmanager
def experiment(
    place: ExperimentFolder, asked: Iterable[ResolvedRun], contact: Contact | None, run_one: RunOne
) -> Iterator[Experiment]:
    """The experiment whose runs are made while this lasts.

    The servers of all ``asked`` must be there before the first run begins; ``contact`` has asked
    them, None asks them anew.

    Raises:
        TeacherError: A server does not have a model; nothing was asked.
    """
    known = contact or Contact()
    for run in asked:
        if run.asks_servers and not run.config.endpoint.start_vllm:
            generate.require_endpoints(run, known)
    with new_folder(place.folder) as folder:
        yield Experiment(place, folder, run_one)
