"""What a build did, as its manifest."""

from __future__ import annotations

import math
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from heavydistill.curate.candidates import UNMEASURED
from heavydistill.curate.notes import Build, own_names
from heavydistill.curate.rows import SetWriter
from heavydistill.schema import Stratum
from heavydistill.store.redact import key_name_of, name_alone
from heavydistill.store.sets.folder import (
    TRAINED,
    VIEWS,
    Attention,
    Fraction,
    Manifest,
    RedeliberationSummary,
    RunUsed,
    Strata,
    StudentUsed,
)
from heavydistill.store.sets.rows import SPLITS

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}


def manifest_of(
    build: Build, written: SetWriter, guarded: dict[str, int], asked: list[RedeliberationSummary]
) -> Manifest:
    """The manifest of a build that was written."""
    sets = [note for trace in build.all_notes for note in trace.sets]
    used = [note for note in sets if not note.sft_label or not note.rl_label]
    names = own_names(build.student)
    own = sum(names.issuperset(note.thinkers) for note in used)
    rows = {name: {split: written.counts[name][split] for split in SPLITS} for name in TRAINED}
    by_label = {name: _by_label(written.counts[name]) for name in VIEWS}
    attention = build.taker.attention
    return Manifest(
        heavydistill=version("heavydistill"),
        build=_content(build),
        student=StudentUsed(
            name=name_alone(build.student.name),
            form=build.student.form,
            template_sha256=build.student.template_sha256,
            opens_thinking=build.student.chat.opens_thinking,
            mended=list(build.student.mended),
            max_tokens=build.prompter.max_tokens,
        ),
        runs=[
            RunUsed(
                name=source.name,
                traces=source.traces_there,
                config=source.content,
                summary=source.summary,
            )
            for source in build.sources
        ],
        rows=rows,
        problems=by_label["problems"],
        trajectories=by_label["trajectories"],
        deliberations=by_label["deliberations"],
        strata=strata_of(build),
        undeliberated=build.undeliberated - written.unfit,
        unfit=written.unfit,
        unmeasured=sum(
            note.rl_label == UNMEASURED and (note.wanted or note.cache is not None) for note in sets
        ),
        attention=Attention(
            deliberations=attention.deliberations,
            using=attention.using,
            blind=attention.blind,
            blind_using=attention.blind_using,
        ),
        student_written=Fraction(part=own, whole=len(used)),
        retention=Fraction(part=written.plain, whole=sum(rows["sft_deliberator"].values())),
        recut=written.recut,
        models={role: sorted(written.behind[role]) for role in ("thinker", "deliberator")},
        prompts=sorted(written.behind["prompts"]),
        verifiers=sorted(written.behind["verifiers"]),
        tokens={name: quantiles(written.lengths[name]) for name in TRAINED},
        benchmarks=build.screen.used,
        guarded=guarded,
        asked=asked,
    )


def strata_of(build: Build) -> dict[str, Strata]:
    """The sets of each stratum, from all there are to those that are used."""
    left_out = {key for key, note in build.problems.items() if note.label}
    sets = [note for trace in build.all_notes for note in trace.sets]
    strata: dict[str, Strata] = {}
    for stratum in get_args(Stratum):
        notes = [n for n in sets if n.stratum == stratum and n.of.problem not in left_out]
        strata[stratum] = Strata(
            sets=len({note.of for note in notes}),
            with_deliberation=build.mixture.before[stratum],
            not_admitted=build.mixture.not_admitted[stratum],
            over_bound=build.mixture.over_bound[stratum],
            sft=len({note.of for note in notes if not note.sft_label}),
            rl=len({note.of for note in notes if not note.rl_label}),
        )
    return strata


def _content(build: Build) -> dict[str, Any]:
    """The configuration of a build, without folders and addresses."""
    tree = build.config.model_dump(mode="json", exclude={"out", "runs", "verify"})
    tree["student"] = name_alone(build.student.name)
    tree["chat_template"] = tree["chat_template"] and Path(tree["chat_template"]).name
    tree["against"] = tree["against"] and [Path(file).name for file in tree["against"]]
    if asked := tree["redeliberate"]:
        del asked["journal"]
        asked["endpoint"] = key_name_of(asked["endpoint"])
    return tree


def _by_label(counts: Counter[str]) -> dict[str, int]:
    """What is used first, then the most frequent labels."""
    ordered = sorted(counts.items(), key=lambda pair: (pair[0] != "used", -pair[1], pair[0]))
    return dict(ordered)


def quantiles(lengths: list[int]) -> dict[str, int]:
    """Lengths of rows in tokens, by nearest rank; empty for no rows."""
    ordered = sorted(lengths)
    return (
        {name: ordered[math.ceil(share * len(ordered)) - 1] for name, share in _QUANTILES.items()}
        if ordered
        else {}
    )
