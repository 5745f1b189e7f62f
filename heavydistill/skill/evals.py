"""Evaluations of the skill from a run: problems whose answers a verifier has checked.

``evals/evals.json`` has the form of the specification's page on evaluating skills.
``evals/run.json`` says which wordings that run used, and what the workflow of heavydistill measured
there. It is no measurement of the skill in a client.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from heavydistill.errors import ConfigError, ProblemsError
from heavydistill.schema import Problem, Trace
from heavydistill.skill.frontmatter import Refusal
from heavydistill.skill.instructions import HIDDEN
from heavydistill.skill.texts import NAME
from heavydistill.store.traces import read_traces

EVALS, RUN = "evals/evals.json", "evals/run.json"
_MOST = 20
_LONGEST_REFERENCE = 100  # characters; longer references are worked solutions
_FIGURES = (
    *("heavydistill", "problems", "k", "d", "rounds"),
    *("mean_at_k", "vote_at_k", "heavy_mean_at_d", "heavy_minus_vote"),
)


def evals_of(run: Path) -> dict[str, str]:
    """Return the two files, by path, from the run's verified problems: at most 20, hardest first.

    A problem is verified if it has one turn, and a response was judged correct by a verifier that
    compares with a reference. Hardest: the fewest of its attempts were correct.

    Raises:
        ConfigError: The folder holds no finished run, or no problem of it is verified.
    """
    problems, wordings = 0, set[str]()
    hardest = list[tuple[float, str, Problem]]()
    for trace in read_traces(run):
        problems += 1
        wordings |= {trace.thinker_prompt_version, *(c.prompt_version for c in trace.caches)}
        if _is_verified(trace):
            share = sum(each.is_correct for each in trace.pool) / max(1, len(trace.pool))
            hardest.append((share, trace.problem.id, trace.problem))
            hardest = sorted(hardest, key=lambda each: each[:2])[:_MOST]
    if not hardest:
        raise ConfigError(
            f"--evals: none of the {problems:,} problems of {run} has a short reference answer and "
            "a response that a verifier found correct",
            f"Give another run; `heavydistill show {run}` prints how many responses are right.",
        )
    cases = [_case(number, problem) for number, (_, _, problem) in enumerate(hardest, 1)]
    measured = {"wordings": sorted(wordings - {""}), **_figures(run)}
    return {EVALS: _json({"skill_name": NAME, "evals": cases}), RUN: _json(measured)}


def _json(tree: Mapping[str, object]) -> str:
    return f"{json.dumps(tree, ensure_ascii=False, indent=2)}\n"


def _is_verified(trace: Trace) -> bool:
    from heavydistill.verifiers import registry  # with sympy, which a check does not need

    problem = trace.problem
    try:
        compares = registry.get(problem.verifier).needs_reference
    except ProblemsError:  # a user's own verifier, whose name says nothing to others
        return False
    texts = problem.text + problem.reference + problem.verifier_args
    is_short = 0 < len(problem.reference.strip()) <= _LONGEST_REFERENCE
    is_alone = not problem.history_json  # an eval has one prompt
    is_solved = any(each.is_correct for each in (*trace.pool, *trace.deliberations))
    return compares and is_short and is_alone and is_solved and not HIDDEN.regex.search(texts)


def _case(number: int, problem: Problem) -> dict[str, object]:
    arguments = "" if problem.verifier_args == "{}" else f" with arguments {problem.verifier_args}"
    return {
        "id": number,
        "prompt": problem.text,
        "expected_output": f"The final answer is {problem.reference}",
        "files": [],
        "assertions": [
            f"The verifier {problem.verifier!r} of heavydistill{arguments} finds the final answer "
            f"correct by the reference {problem.reference!r}"
        ],
    }


def _figures(run: Path) -> dict[str, object]:
    try:
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        return {name: summary[name] for name in _FIGURES if name in summary}
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"--evals: {run}/summary.json cannot be read: {error}",
            f"Make it again: heavydistill replay {run} --out NEW",
        ) from error


def measured_wordings(text: str) -> list[str]:
    """Return the wordings in the text of ``evals/run.json``; none without its figures."""
    try:
        tree = json.loads(text)
        accuracies = [tree[name]["mean"] for name in ("mean_at_k", "heavy_mean_at_d")]
        is_measured = tree["problems"] > 0 and all(0 <= each <= 1 for each in accuracies)
        return [name for name in tree["wordings"] if is_measured]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def faults_of_evals(text: str, name: str, files: Collection[str]) -> Iterator[Refusal]:
    """Yield why the text of ``evals/evals.json`` is not in the form of the specification's page.

    ``files`` are the paths of all files of the skill, of which an eval may use some.
    """
    fix = "Export it again with --evals RUN."
    try:
        tree = json.loads(text)
        cases = tree["evals"]
        if tree["skill_name"] != name:
            yield Refusal(EVALS, 1, f"skill_name is not {name!r}", fix)
        ids = [case["id"] for case in cases]
        if not ids or len(set(ids)) < len(ids):
            yield Refusal(EVALS, 1, "there are no evals, or two have the same id", fix)
        for case in cases:
            texts = [case["prompt"], case["expected_output"], *case["assertions"]]
            if len(texts) < 3 or not all(isinstance(each, str) and each.strip() for each in texts):
                what = f"eval {case['id']!r} lacks a prompt, an expected output or an assertion"
                yield Refusal(EVALS, 1, what, fix)
            if apart := [each for each in case.get("files", []) if each not in files]:
                what = f"eval {case['id']!r} needs a file that is not in the skill: {apart[0]!a}"
                yield Refusal(EVALS, 1, what, fix)
    except json.JSONDecodeError as error:
        yield Refusal(EVALS, error.lineno, f"it is not valid JSON: {error.msg}", fix)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        what = "it does not have the specification's form: skill_name, and a list evals of objects "
        what += "with id, prompt, expected_output and assertions"
        yield Refusal(EVALS, 1, what, fix)
