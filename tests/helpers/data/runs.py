"""Folders of runs with invented traces, for tests of what is built from them.

The problems are sums, the attempts are right or wrong as a seed decides, and deliberations name the
attempts, so that every stratum and every filter has something to do.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from samples import STUDENT, cache_of, generation

from heavydistill.config.run import RunConfig, dump_config
from heavydistill.config.sets import load_build_config
from heavydistill.curate.build import build_sets
from heavydistill.heavy import voting
from heavydistill.heavy.prompts import load
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.schema import Deliberation, Problem, Trace, Trajectory, Verdict, content_id
from heavydistill.store.sets.folder import Manifest, read_rows, splits_of
from heavydistill.store.traces import TRACES_FOLDER, write_traces

_WORDS = ["first", "then", "next", "so", "now", "add", "carry", "check", "again", "because"]
_WORDS += ["total", "value", "step", "digit"]


def write_run(folder: Path, problems: int = 24, **options: Any) -> Path:
    """A finished run of a model named ``teacher``; options as of ``traces``."""
    write_traces(traces(problems, **options), folder / TRACES_FOLDER)
    config = RunConfig(domain="brief")
    (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    half = {"mean": 0.5, "low": 0.4, "high": 0.6}
    summary = json.dumps({"problems": problems, "mean_at_k": half, "heavy_mean_at_d": half})
    (folder / "summary.json").write_text(summary, encoding="utf-8")
    return folder


def build(out: Path, *runs: Path, **keys: Any) -> Manifest:
    """Build for the micro student; keys with two underscores are dotted."""
    overrides = {key.replace("__", "."): value for key, value in keys.items()}
    named = {"runs": [str(run) for run in runs], "out": str(out), "against": []}
    named["student"] = "micro-student"
    return build_sets(load_build_config(None, {**named, **overrides}))


def rows(folder: Path, name: str, *splits: str) -> list[dict[str, Any]]:
    """The rows of a set, of all splits or of these."""
    wanted = splits or splits_of(folder, name)
    return [row for split in wanted for row in read_rows(folder, name, split)]


def traces(
    problems: int,
    *,
    k: int = 8,  # attempts each
    d: int = 2,  # deliberations on a cache of all of them; 0 makes no cache
    thinker: str = "teacher",
    seed: int = 0,
    words: int = 12,  # in the thinking of an attempt
    deliberation_model: str = "teacher",
) -> Iterator[Trace]:
    """Traces of so many problems."""
    reader = ReaderTokenizer(str(STUDENT))
    thinking = load("thinker", "brief", "en").version
    for number in range(problems):
        rng = random.Random(f"{seed}/{number}")
        one, other = 100 + number, rng.randint(100, 999)
        answer = str(one + other)
        thing = rng.choice(["apples", "stones", "books", "coins"])
        text = f"Ann has {one} {thing} and gets {other} more. How many {thing} has she then?"
        problem = Problem(id=f"sum:{number}", text=text, reference=answer, verifier="math")
        share = number % 5 / 4  # every stratum, again and again
        pool: list[Trajectory] = []
        for index in range(k):
            given = answer if rng.random() < share else str(one + other + rng.choice([1, 10]))
            said = " ".join(rng.choices(_WORDS, k=words))
            texts = f"{one}+{other}: {said}", f"One has to {said}. It is \\boxed{{{given}}}."
            pool.append(_said(Trajectory, f"t{number}", index, thinker, texts, given, answer))
        caches = [cache_of(problem, pool, reader=reader)] if d else []
        deliberations: list[Deliberation] = []
        for index in range(d):
            given = answer if rng.random() < 0.8 else str(one + other + 1)
            said = f"Attempt 1 and attempt 2 differ. {' '.join(rng.choices(_WORDS, k=words))}"
            spoken = index, deliberation_model, (said, f"The sum is \\boxed{{{given}}}."), given
            shown = {"cache": caches[0].id, "round": 1}
            deliberations.append(_said(Deliberation, f"d{number}", *spoken, answer, **shown))
        yield Trace(
            problem=problem,
            pool=pool,
            caches=caches,
            deliberations=deliberations,
            stratum=voting.stratum(pool),
            outcome=voting.outcome(pool, deliberations),
            thinker_prompt_version=thinking,
        )


def _said(
    kind: type, name: str, index: int, model: str, texts: Any, given: str, answer: str, **more: Any
) -> Any:
    label, reason = ("correct", "equal") if given == answer else ("incorrect", "different")
    return generation(
        kind,
        id=content_id(name[0], name, index, model, *texts),
        index=index,
        model=model,
        seed=index,
        reasoning=texts[0],
        answer_text=texts[1],
        verdict=Verdict(label=label, reason=reason, extracted=given, verifier="math@2"),
        prompt_tokens=30,
        completion_tokens=40,
        latency_s=0.1,
        **more,
    )
