"""From the configuration of a build to its folder; see ``builder`` for the two passes.

The folder appears under its name when all of it is there and the guard has found nothing.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from heavydistill.chat.guard import guard
from heavydistill.config.sets import BuildConfig
from heavydistill.curate.builder import Build, OnProgress, choose, look
from heavydistill.curate.manifest import manifest_of
from heavydistill.curate.redeliberation.asking import Asking, Volume
from heavydistill.curate.redeliberation.sets import Redeliberation, meet_servers
from heavydistill.curate.writing import SetWriter
from heavydistill.errors import ConfigError
from heavydistill.models.contact import Contact
from heavydistill.store.atomic import new_folder, refuse_taken
from heavydistill.store.sets.folder import CHAT_TEMPLATE, count_rows, file_of, rows_of, splits_of
from heavydistill.store.sets.manifest import Manifest, write_manifest

_GUARDED_ROWS = 256

OnVolume = Callable[[Asking, Volume], None]


def make(
    config: BuildConfig,
    on_progress: OnProgress,
    on_volume: OnVolume = lambda asking, volume: None,
    on_written: Callable[[Path], object] = lambda folder: None,
    dry_run: bool = False,
) -> Manifest:
    """Build the sets.

    Args:
        config: Of the build.
        on_progress: As of ``builder.look``.
        on_volume: Called before anybody is asked, with who is and how much.
        on_written: Called with the folder, whatever its name is, when the manifest is in it.
        dry_run: Do all of it but for asking anybody, and keep nothing.

    Raises:
        EmptyError: Nothing is left; the manifest that it holds says what took what.
        UserError: Anything else that the user can mend; nothing was written.
        KeyboardInterrupt, StoppedError: While deliberations were asked for: what was answered is
            in the journal, and the same command goes on from there.
    """
    contact = None if dry_run else Contact()
    if contact and config.redeliberate:
        meet_servers(config, contact)
    with _folder(Path(config.out), dry_run) as folder:
        build = look(config, on_progress)
        with contextlib.ExitStack() as held:
            asked, answers = [], None
            if config.redeliberate:
                redeliberation = Redeliberation(build, contact)
                for asking, volume in redeliberation.volumes.values():
                    on_volume(asking, volume)
                if not dry_run:
                    asked = redeliberation.ask(on_progress)
                    answers = held.enter_context(redeliberation.again())
            choose(build)
            writer = SetWriter(build, folder, answers)
            _write_rows(build, writer, on_progress)
        template = build.student.chat_template
        if template is not None:
            (folder / CHAT_TEMPLATE).write_text(template, encoding="utf-8")
        manifest = manifest_of(build, writer, _guarded(build, folder), asked)
        if not any(sum(splits.values()) for splits in manifest.rows.values()):
            raise EmptyError(manifest)
        write_manifest(manifest, folder)
        on_written(folder)
        return manifest


class EmptyError(ConfigError):
    """Nothing is left of the runs.

    Attributes:
        manifest: What took what.
    """

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(
            "Nothing is left to learn from: the tables say what took what",
            "Choose another --preset, give more runs, or ask for deliberations with "
            "--redeliberate.",
        )
        self.manifest = manifest


@contextlib.contextmanager
def _folder(out: Path, dry_run: bool) -> Iterator[Path]:
    """A folder that gets the name ``out`` when this ends well, and is gone when it does not."""
    if dry_run:
        refuse_taken(out)
        with TemporaryDirectory(prefix="heavydistill-") as temporary:
            yield Path(temporary)
        return
    with new_folder(out) as folder:
        yield folder


def _write_rows(build: Build, writer: SetWriter, on_progress: OnProgress) -> None:
    done, total = 0, len(build.all_notes)
    for source in build.sources:
        for trace, note in build.traces_of(source):
            writer.write(source, trace, note)
            done += 1
            on_progress("Writing rows", done, total)
    writer.finish()


def _guarded(build: Build, folder: Path) -> dict[str, int]:
    """Let the guard look at rows from all over each set; how many it saw.

    Raises:
        ConfigError: A row would not be learnt as it stands.
    """
    seen = {}
    for name in ("sft_deliberator", "sft_thinker"):
        rows = [row for split in splits_of(folder, name) for row in _some(folder, name, split)]
        report = guard(build.student.chat, rows, build.prompter.max_tokens)
        report.demand_whole(name)
        seen[name] = report.rows
    return seen


def _some(folder: Path, name: str, split: str) -> list[dict[str, Any]]:
    """Up to ``_GUARDED_ROWS`` rows of a split, evenly spaced."""
    file = file_of(folder, name, split)
    step = -(-count_rows(file) // _GUARDED_ROWS)
    return list(itertools.islice(rows_of(file), 0, None, step))
