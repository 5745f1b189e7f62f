"""A small folder of sets, written as a build writes it, for tests of what reads one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from generations import cache as cache_of
from generations import deliberation, item, trajectory
from samples import fields_of

from heavydistill.schema import Cache, Verdict, from_row
from heavydistill.store.sets import folder as folders
from heavydistill.store.sets.folder import (
    Attention,
    BenchmarkUsed,
    Fraction,
    Manifest,
    RedeliberationSummary,
    RunUsed,
    Strata,
    StudentUsed,
    read_manifest,
    write_manifest,
)
from heavydistill.store.sets.set_rows import (
    CacheRow,
    DeliberationRow,
    Message,
    ProblemRow,
    RlRow,
    ShownAttempt,
    ThoughtfulMessage,
    ThoughtfulSftRow,
    TrajectoryRow,
)

RIGHT = Verdict(label="correct", reason="equal", extracted="6", verifier="math@2")
WRONG = Verdict(label="incorrect", reason="different", extracted="5", verifier="math@2")
SHOWN = [ShownAttempt(answer="6", right=True), ShownAttempt(answer="5", right=False)]
ASKED = RedeliberationSummary(
    model="gpt-5",
    sets=5,
    deliberations=20,
    failed=1,
    prompt_tokens=777,
    completion_tokens=888,
    cost_usd=0.25,
    sampling={"temperature": 0.8, "top_p": 0.95, "top_k": 20, "max_tokens": 32768},
)
"""What was asked again of a model."""
PROMPT = "Problem\nWhat is 2 * 3?\n==== Attempt 1\nIt is 6.\n==== Attempt 2\nIt is 5."


def write_sets(folder: Path, without: tuple[str, str] | None = None, **changes: Any) -> Path:
    """Two problems with two attempts each; the second one is kept for validation.

    ``without`` is a set and a split of it that has no rows; ``changes`` are of the manifest.
    """
    rows: dict[tuple[str, str], list[Any]] = {}
    for number, split in enumerate(("train", "validation")):
        for name, row in _rows(number, split):
            is_view = name in folders.VIEWS
            rows.setdefault((name, "train" if is_view else split), []).append(row)
    rows.pop(without or ("", ""), None)
    for (name, split), those in rows.items():
        writer = folders.Writer(folders.file_of(folder, name, split), type(those[0]))
        for row in those:
            writer.write(row)
        writer.close()
    write_manifest(manifest(**changes), folder)
    return folder


def manifest(**changes: Any) -> Manifest:
    """That of the folder."""
    stratum = Strata(sets=2, with_deliberation=2, not_admitted=0, over_bound=0, sft=2, rl=2)
    usual = Manifest(
        heavydistill="0.1.0",
        build={"preset": "balanced", "seed": 0},
        student=StudentUsed(
            name="micro-student", form="field", template_sha256="0" * 64, max_tokens=2048
        ),
        runs=[RunUsed(name="run", traces=2, config={"teacher": "micro"}, summary={})],
        rows={name: {"train": 1, "validation": 1} for name in folders.TRAINED},
        problems={"used": 2},
        trajectories={"used": 2, "not_correct": 2},
        deliberations={"used": 2},
        strata={"tie": stratum},
        undeliberated=0,
        attention=Attention(deliberations=2, using=2, blind=4, blind_using=0),
        student_written=Fraction(part=0, whole=2),
        retention=Fraction(part=0, whole=2),
        recut=0,
        models={"thinker": ["micro"], "deliberator": ["micro"]},
        prompts=["deliberator.brief.en@8f91f83e6952"],
        verifiers=["math@2"],
        tokens={name: {"p50": 40, "p90": 50, "p95": 50, "p99": 50, "max": 50} for name in ("rl",)},
        benchmarks=[BenchmarkUsed(name="gsm8k", texts_sha256="0" * 64, hits={})],
    )
    return usual.model_copy(update=changes)


def cache_row(read: Cache, **changes: Any) -> CacheRow:
    """The row of a cache of run ``run``, right in one of its attempts, of which half succeed."""
    usual: dict[str, Any] = {"run": "run", "drawn": False, "recut": False, "stratum": "tie"}
    usual |= {"right": 1, "thinkers": ["micro"], "success": 0.5, "judged": 2}
    usual["attempts"] = SHOWN
    return CacheRow(**fields_of(read), **{**usual, "sft_label": "", "rl_label": "", **changes})


def _rows(number: int, split: Any) -> list[tuple[str, Any]]:
    problem, cache = f"p_{number}", f"c_{number}"
    text = f"What is 2 * 3? ({number})"
    generated: dict[str, Any] = {"model": "micro", "latency_s": 0.5}
    generated |= {"prompt_tokens": 20, "completion_tokens": 10}
    right, wrong = (
        trajectory(
            f"It is \\boxed{{{verdict.extracted}}}.",
            f"2*3={verdict.extracted}",
            id=f"t_{number}{name}",
            index=index,
            verdict=verdict,
            **generated,
        )
        for index, (name, verdict) in enumerate((("r", RIGHT), ("w", WRONG)))
    )
    deliberated = deliberation(
        "The product is \\boxed{6}.",
        "Attempt 1 is right, attempt 2 is wrong: 2*3=6.",
        id=f"d_{number}",
        cache=cache,
        verdict=RIGHT,
        **generated,
    )
    read = cache_of(
        *(item(one.id, 5, 5) for one in (right, wrong)),
        id=cache,
        prompt=PROMPT,
        prompt_version="deliberator.brief.en@8f91f83e6952",
        reader="micro-student",
        budget_tokens=1024,
        prompt_tokens=40,
    )
    asked = [Message(role="user", content=PROMPT)]
    shared = {"problem": problem, "run": "run"}
    posed = {"text": text, "reference": "6", "verifier": "math"}
    sizes = {"prompt_tokens": 40, "completion_tokens": 20}

    def learnt(role: Any, prompt: list[Message], one: Any, **cache: Any) -> ThoughtfulSftRow:
        turn = ThoughtfulMessage(
            role="assistant", content=one.answer_text, reasoning_content=one.reasoning
        )
        said = {"completion": [turn], "reasoning": one.reasoning, "answer_text": one.answer_text}
        fields = {"role": role, "prompt": prompt, "generation": one.id, "model": "micro"}
        return ThoughtfulSftRow(**said, **fields, **cache, **shared, **sizes)

    problem_row = ProblemRow(id=problem, **posed, split=split, label="", detail="", runs=["run"])
    counted = {"label": "", "uses_attempts": True, "copied": 0.0, "false_claims": 0, "tokens": 20}
    counted["leaks_attempts"] = False
    rl = RlRow(
        prompt=asked,
        **posed,
        verifier_args="{}",
        cache=cache,
        stratum="tie",
        right=1,
        width=2,
        success=0.5,
        judged=2,
        attempts=SHOWN,
        measured_on="micro",
        prompt_tokens=40,
        **shared,
    )
    plain = [Message(role="user", content=text)]
    wrong_row = TrajectoryRow(**fields_of(wrong), **shared, label="not_correct", tokens=10)
    return [
        ("problems", problem_row),
        ("trajectories", TrajectoryRow(**fields_of(right), **shared, label="", tokens=10)),
        ("trajectories", wrong_row),
        ("caches", cache_row(read, problem=problem)),
        ("deliberations", DeliberationRow(**fields_of(deliberated), **shared, **counted)),
        ("sft_deliberator", learnt("deliberator", asked, deliberated, cache=cache, stratum="tie")),
        ("sft_thinker", learnt("thinker", plain, right, cache="", stratum=None)),
        ("rl", rl),
    ]


KINDS: dict[str, type] = {
    "rl": RlRow,
    "caches": CacheRow,
    "problems": ProblemRow,
    "trajectories": TrajectoryRow,
}


def rewrite(
    folder: Path,
    name: str,
    change: Callable[[dict[str, Any]], list[dict[str, Any]]],
    kind: type | None = None,
) -> None:
    """Put other rows in place of those of a set's train split, as if it was built so."""
    kind = kind or KINDS[name]
    rows = [new for row in folders.read_rows(folder, name) for new in change(row)]
    path = folders.file_of(folder, name, "train")
    path.unlink()
    if rows:
        writer = folders.Writer(path, kind)
        for row in rows:
            writer.write(from_row(kind, row))
        writer.close()
    write_manifest(read_manifest(folder), folder)
