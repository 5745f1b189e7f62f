"""What is asked in a GRPO training: caches that are there, or problems.

A deliberator is asked the prompts of the set ``rl``, with ``unmeasured: ask`` also caches of
``caches`` whose success nobody has measured; a thinker, and the thinkers of an episode, are
asked the problems of a folder of sets or of a run, in the wording of the run. A prompt that is
left out is counted by its reason:

    never_right    no response was right, so that a group would teach nothing
    always_right   all were, likewise
    over_accuracy  more than ``max_accuracy`` of its attempts are right
    too_long       it leaves no room for a response in the model's context
    unfit          its problem cannot be judged, and the run has ``problems.unfit: leave_out``

The responses are those that were judged, two or more: deliberations on the cache; attempts at the
problem, of the set ``trajectories``, where a thinker learns; and of an episode, whose reward is the
deliberation's, both, for where no attempt was right a deliberation still may be. A problem with
fewer is asked unfiltered, and so is each one of a run, which nobody has answered yet. A refilter
leaves the attempts out: of its sets an episode goes by the deliberations alone, and a thinker is
asked all problems.

The rows of the dataset have ``prompt``, one user turn; the problem's ``problem`` (its id),
``text``, ``reference``, ``verifier``, ``verifier_args``; of a cache also ``cache`` (its id),
``stratum``, ``right``, ``width`` and ``success`` (null: not measured), of a problem ``domain`` and,
where it is one of sets, ``success``.

Not covered: what is measured meanwhile (``held_out``).
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heavydistill.config.run import RunConfig, Verifying
from heavydistill.errors import ConfigError
from heavydistill.heavy import prompts as wordings
from heavydistill.problems.loading import load_fit
from heavydistill.schema import Problem
from heavydistill.store.sets.folder import read_rows
from heavydistill.store.sets.rows import USED
from heavydistill.train.base_model import Base
from heavydistill.train.datasets import Located, locate
from heavydistill.train.grpo.batches import check_prompts
from heavydistill.train.grpo.config import ASK, DELIBERATOR, JOINT, Asked
from heavydistill.train.grpo.context_check import with_room
from heavydistill.train.grpo.thinking import run_of
from heavydistill.verifiers import registry

if TYPE_CHECKING:
    from datasets import Dataset

NEVER, ALWAYS, OVER = "never_right", "always_right", "over_accuracy"
UNMEASURED = "unmeasured"
UNFIT = "unfit"
_OF_PROBLEM = ("problem", "text", "reference", "verifier", "verifier_args")
_OF_CACHE = ("prompt", *_OF_PROBLEM, "cache", "stratum", "right", "width", "success")
_ROUNDING = 1e-9
_FEWEST_JUDGED = 2  # as of a cache
_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompts:
    """All of them.

    Attributes:
        train: A row for each prompt; see the module.
        lengths: Tokens of the prompts of ``train``, with the template and what opens an answer.
        left_out: How many are not asked, by reason.
        unmeasured: Prompts of ``train`` from sets whose success nobody has measured.
        measured_on: On whose responses success was measured, sorted.
        run: How problems are asked; None where the prompts are caches.
        verify: How answers are judged.
    """

    train: Dataset
    lengths: list[int]
    left_out: dict[str, int]
    unmeasured: int
    measured_on: list[str]
    run: RunConfig | None
    verify: Verifying

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(self.lengths)

    @property
    def problems_sha256(self) -> str:
        """Of what is asked and what is right, in order."""
        digest = hashlib.sha256()
        columns = [self.train[name] for name in ("prompt", *_OF_PROBLEM)]
        for row in zip(*columns, strict=True):
            digest.update(json.dumps(row).encode())
        return digest.hexdigest()


def find_sets(asked: Asked) -> Located | None:
    """The folder of sets; None where a run is given.

    Raises:
        ConfigError: There is none.
    """
    if not asked.rl.dataset_name:
        return None
    names = {"rl"} if asked.mode == DELIBERATOR else {"problems", "trajectories"}
    if asked.mode == JOINT:
        names |= {"caches"}
    if asked.rl.unmeasured == ASK:
        names |= {"caches", "problems"}
    if asked.looks_at_held_out and asked.rl.held_out_from is None:
        names |= {"caches", "problems", "trajectories"}
    return locate(asked.rl.dataset_name, sorted(names))


def read_prompts(asked: Asked, base: Base, sets: Located | None) -> Prompts:
    """Read and choose the prompts.

    Raises:
        ConfigError: There are none to learn from, too few for a generation, or one that does not
            fit the model; or nobody here can judge an answer. The message says what to do.
    """
    left_out: Counter[str] = Counter()
    if asked.mode == DELIBERATOR and sets:
        run, verify = None, asked.verify
        train = _caches(sets)
        measured_on = sorted({row["measured_on"] for row in train})
        if asked.rl.unmeasured == ASK:
            train += _unmeasured(sets)
    else:
        run = run_of(asked, sets.manifest if sets else None)
        verify = run.verify if asked.rl.run else asked.verify
        problems = _of_sets(sets) if sets else _of_run(run, left_out)
        train = list(_thinker_rows(problems, run))
        measured_on = []
        if sets:
            success, measured_on = _successes(sets, asked.mode)
            train = [{**row, "success": success.get(row["problem"])} for row in train]
    check_verifiers(train, verify)
    if sets:
        found = train
        train = _teaching(found, asked, left_out)
        if not train and asked.mode == DELIBERATOR:
            raise _no_cache_left(asked, base, sets, found, left_out)
        if not train:
            raise _no_problem_left(sets, left_out)
    train, lengths = with_room(asked, base, run, train, left_out)
    check_prompts(asked.batch, len(train), _more_prompts(asked, base, sets, left_out))
    return Prompts(
        train=_dataset(train),
        lengths=lengths,
        left_out=dict(sorted(left_out.items())),
        unmeasured=sum("success" in row and row["success"] is None for row in train),
        measured_on=measured_on,
        run=run,
        verify=verify,
    )


def _caches(sets: Located) -> list[_Row]:
    return list(read_rows(sets.folder, "rl", "train"))


def _unmeasured(sets: Located) -> list[_Row]:
    """The caches that were deliberated too seldom to tell, each once."""
    of_train = {
        row["id"]: row for row in read_rows(sets.folder, "problems") if row["split"] == "train"
    }
    found = {
        row["id"]: row
        for row in read_rows(sets.folder, "caches")
        if row["rl_label"] == UNMEASURED and row["problem"] in of_train
    }
    return [_unmeasured_row(of_train[cache["problem"]], cache) for cache in found.values()]


def _unmeasured_row(problem: _Row, cache: _Row) -> _Row:
    return {
        "prompt": [{"role": "user", "content": cache["prompt"]}],
        "problem": problem["id"],
        **{name: problem[name] for name in _OF_PROBLEM[1:]},
        "cache": cache["id"],
        "stratum": cache["stratum"],
        "right": cache["right"],
        "width": len(cache["items"]),
        "success": None,
    }


def _of_run(run: RunConfig, left_out: Counter[str]) -> list[Problem]:
    loaded = load_fit(run.problems, run.verify)
    if loaded.unfit:
        left_out[UNFIT] += len(loaded.unfit)
    return loaded.problems


def _of_sets(sets: Located) -> list[Problem]:
    names = Problem.__dataclass_fields__
    found = [
        Problem(**{name: row[name] for name in names})
        for row in read_rows(sets.folder, "problems")
        if row["label"] == USED and row["split"] == "train"
    ]
    if not found:
        raise ConfigError(
            f"{sets.name} has no problem to learn from",
            "Build it from more problems; `heavydistill build` says in its table which it left out "
            "and why.",
        )
    return found


def _successes(sets: Located, mode: str) -> tuple[dict[str, float], list[str]]:
    """The share of each problem's judged responses that is right, and who wrote the attempts."""
    right: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    models = set()
    wanted = ["problem", "model", "verdict.label"]
    for row in read_rows(sets.folder, "trajectories", columns=wanted):
        models.add(row["model"])
        label = row["verdict"] and row["verdict"]["label"]
        right[row["problem"]] += label == "correct"
        judged[row["problem"]] += label in ("correct", "incorrect")
    if mode == JOINT:
        for row in read_rows(sets.folder, "caches", columns=["problem", "success", "judged"]):
            if row["judged"]:
                right[row["problem"]] += round(row["success"] * row["judged"])
                judged[row["problem"]] += row["judged"]
    known = {problem: n for problem, n in judged.items() if n >= _FEWEST_JUDGED}
    return {problem: right[problem] / n for problem, n in known.items()}, sorted(models)


def _thinker_rows(problems: Iterable[Problem], run: RunConfig) -> Iterator[_Row]:
    for problem in problems:
        domain = problem.domain or run.domain or "general"
        yield {
            "prompt": [{"role": "user", "content": thinker_prompt(problem, run)}],
            "problem": problem.id,
            "text": problem.text,
            "reference": problem.reference,
            "verifier": problem.verifier,
            "verifier_args": problem.verifier_args,
            "domain": domain,
        }


def thinker_prompt(problem: Problem, run: RunConfig) -> str:
    """What a thinker is asked about a problem."""
    domain = problem.domain or run.domain or "general"
    wording = wordings.load("thinker", domain, run.language)
    return wordings.thinker_prompt(problem.text, wording)


def check_verifiers(rows: Iterable[_Row], verify: Verifying) -> None:
    """See to it that rows with these problems can be judged here.

    Raises:
        ConfigError: A verifier is not known, or lacks what it needs.
    """
    registry.load_own(verify.own)
    kinds = {row["verifier"] for row in rows}
    if unknown := sorted(kinds - set(registry.names())):
        raise ConfigError(
            f"There are problems for the verifier {unknown[0]!r}, which is not known here",
            "Give its file with verify: {own: [FILE.py]} in the file.",
        )
    if lacking := registry.unavailable(kinds, verify):
        raise ConfigError(lacking[0], "Mend that, or take sets without such problems.")


def _teaching(rows: Iterable[_Row], asked: Asked, left_out: Counter[str]) -> list[_Row]:
    """The prompts that can teach something."""
    most = asked.rl.max_accuracy
    kept = []
    for row in rows:
        if not _may_teach(row):
            left_out[ALWAYS if row["success"] else NEVER] += 1
        elif most is not None and row["right"] > most * row["width"] + _ROUNDING:
            left_out[OVER] += 1
        else:
            kept.append(row)
    return kept


def _may_teach(row: _Row) -> bool:
    return row["success"] is None or 0 < row["success"] < 1


def _no_problem_left(sets: Located, left_out: Counter[str]) -> ConfigError:
    harder = "harder" if left_out[ALWAYS] >= left_out[NEVER] else "easier"
    return ConfigError(
        f"{sets.name} has no problem that was answered rightly sometimes and not always "
        f"({_listed(left_out)}), so there is nothing to learn",
        f"Build sets from {harder} problems or from the model's own run, or ask them unfiltered: "
        "give --run, the configuration of a run, in place of --dataset_name.",
    )


def _listed(left_out: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common(3))


def _no_cache_left(
    asked: Asked, base: Base, sets: Located, caches: Iterable[_Row], left_out: Counter[str]
) -> ConfigError:
    """What is said of a set without successes, or with nothing else."""
    again = _refilter(asked)
    if left_out[OVER]:
        lowest = min(row["right"] / row["width"] for row in caches if _may_teach(row))
        return ConfigError(
            f"max_accuracy: {left_out[OVER]:,} caches of {sets.name} have more than "
            f"{asked.rl.max_accuracy:g} of their attempts right, and none has as few",
            f"Give --max_accuracy {math.ceil(lowest * 1000) / 1000:g} or more.",
        )
    labels = left_out or Counter(
        row["rl_label"] for row in read_rows(sets.folder, "caches") if row["rl_label"]
    )
    if not labels and sets.manifest.unmeasured:  # caches are not always fetched from the Hub
        labels = Counter({UNMEASURED: sets.manifest.unmeasured})
    if labels[UNMEASURED] > labels[ALWAYS] + labels[NEVER]:
        fix = f"Measure them with {again}, or ask them as they are with --unmeasured ask."
    elif labels[ALWAYS] > labels[NEVER]:
        fix = "Build harder sets, for instance with --preset heavyskill or from harder problems."
        if others := _measured_on_others(sets, base):
            fix = f"That was measured on {others}: measure it on {base.name} with {again}. {fix}"
    else:
        fix = (
            "Train the model on the set sft_deliberator first (scripts/sft.py), and measure again "
            f"with {again}; or build from easier problems."
        )
    return ConfigError(
        f"{sets.name} has no cache that is answered rightly sometimes and not always"
        f"{f' ({_listed(labels)})' if labels else ''}, so there is nothing to learn",
        fix,
    )


def _refilter(asked: Asked) -> str:
    """The command that measures the caches on the model that is trained."""
    sets, model = str(asked.rl.dataset_name), str(asked.model.model_name_or_path)
    command = ["heavydistill", "refilter", sets, "--checkpoint", model]
    return f"`{shlex.join([*command, '--out', f'{sets}-refiltered'])}`"


def _measured_on_others(sets: Located, base: Base) -> str:
    """On whose deliberations the success of the caches was measured, but for the base itself."""
    refiltered = sets.manifest.refiltered
    models = {refiltered.checkpoint} if refiltered else {*sets.manifest.models["deliberator"]}
    return ", ".join(sorted(models - {base.name}))


def _more_prompts(asked: Asked, base: Base, sets: Located | None, left_out: Counter[str]) -> str:
    """How there may be more of them, in words."""
    lost = left_out[ALWAYS] + left_out[NEVER]
    others = sets and asked.mode == DELIBERATOR and _measured_on_others(sets, base)
    if not lost or not others:
        return "more prompts"
    return (
        f"more prompts: {lost:,} caches are left out that {others} always or never got right; "
        f"{_refilter(asked)} measures them on {base.name}"
    )


def _dataset(rows: list[_Row]) -> Dataset:
    from datasets import Dataset

    names = _OF_CACHE if "cache" in rows[0] else tuple(rows[0])
    return Dataset.from_list([{name: row[name] for name in names} for row in rows])
