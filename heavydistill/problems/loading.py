"""From ``problems.source`` of the configuration to a checked list of problems."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection
from pathlib import Path

from heavydistill.config.run import Problems, Verifying
from heavydistill.errors import ProblemsError
from heavydistill.problems.fitness import Loaded, OnChecked, fit_problems
from heavydistill.problems.procedural import gym_problems, micro_problems
from heavydistill.problems.tables import Table, read_hub, read_jsonl, read_parquet, within
from heavydistill.schema import Problem
from heavydistill.verifiers import registry

_SEPARATED = {".csv": "", ".tsv": r', sep="\t"'}  # to be told to pandas, which reads them


def load(config: Problems, verify: Verifying | None = None) -> list[Problem]:
    """As ``load_fit``: the problems alone."""
    return load_fit(config, verify).problems


def load_fit(
    config: Problems,
    verify: Verifying | None = None,
    known_unfit: Collection[int] | None = None,
    on_checked: OnChecked | None = None,
) -> Loaded:
    """The problems of a source, at most ``config.limit``, and which rows are none.

    A file or Hub dataset is checked to its end before it is cut to the limit.

    Args:
        config: ``source`` is one of

            - ``micro``: ``size`` problems in all, of the families that the bundled models know;
            - a ``.jsonl`` or ``.parquet`` file;
            - ``hub:ORG/NAME``, with ``split``;
            - ``gym:FAMILY,...``: ``size`` problems of each family of reasoning-gym, with
              ``seed`` and the settings in ``gym``.
        verify: How references are checked; null is the default.
        known_unfit: As of ``fitness.fit_problems``.
        on_checked: Called after each reference of a file or dataset.

    Raises:
        ConfigError: A file with a verifier of one's own cannot be used.
        ProblemsError: The source cannot be read, a row cannot be used, or a key has no effect
            on this source.
    """
    source = config.source
    is_gym = source.startswith("gym:")
    if config.gym and not is_gym:
        raise ProblemsError(
            f"problems.gym has no effect on the source {source}", "Take it out, or name gym:FAMILY."
        )
    if not is_gym and source != "micro":
        verify = verify or Verifying()
        registry.load_own(verify.own)
        table = _table(config)
        chosen = within(table, config.within)
        loaded = fit_problems(chosen, config, verify, known_unfit, on_checked)
        outside = len(table.rows) - len(chosen.rows)
        return Loaded(loaded.problems[: config.limit], loaded.unfit, outside)
    for key in ("columns", "shape", "within", "verifier", "verifier_args", "keep_option_order"):
        if getattr(config, key):
            raise ProblemsError(
                f"problems.{key} has no effect on the source {source}", "Take it out."
            )
    if is_gym:
        families = source.removeprefix("gym:").split(",")
        return Loaded(gym_problems([family.strip() for family in families], config))
    return Loaded(micro_problems(config))


def _table(config: Problems) -> Table:
    source = config.source
    if source.startswith("hub:"):
        return read_hub(source.removeprefix("hub:"), config.subset, config.split)
    suffix = Path(source).suffix
    if suffix == ".jsonl":
        return read_jsonl(Path(source))
    if suffix == ".parquet":
        return read_parquet(Path(source))
    if suffix in _SEPARATED:
        given, made = json.dumps(source), Path(source).with_suffix(".jsonl")
        code = f"import pandas as p; p.read_csv({given}{_SEPARATED[suffix]})"
        code += f'.to_json({json.dumps(str(made))}, orient="records", lines=True)'
        raise ProblemsError(
            f"{source}: {suffix[1:].upper()} is not read",
            f"Convert it with `python -c {shlex.quote(code)}`, and give {made}; --set "
            "problems.columns.text=COLUMN names the column of the texts, if it is not text.",
        )
    raise ProblemsError(
        f"{source!r} is no problem source",
        "Give micro, a .jsonl or .parquet file, hub:ORG/NAME or gym:FAMILY.",
    )
