r"""How many verdicts a second, and how many right answers are left undecided.

    python benchmarks/verdicts.py --gsm8k DIR
    python benchmarks/verdicts.py --gsm8k DIR --storm
    python benchmarks/verdicts.py --solutions FILE...
    python benchmarks/verdicts.py --responses FILE...
    python benchmarks/verdicts.py --agreement DIR

DIR holds ``gsm8k_solutions_k4.jsonl``: real solutions of GSM8K that end in ``A: 18``, with what is
right (github.com/openai/grade-school-math). Without it sums of our own are judged. Where
Math-Verify is installed, it judges the same texts in the same run; it is no dependency, so give it
an environment of its own:

    python -m venv compared && compared/bin/pip install -e . math-verify==0.9.0
    compared/bin/python benchmarks/verdicts.py --gsm8k DIR

In turn:

- bare: Math-Verify in this process, one text after the other;
- bare, processes: the same spread over as many processes as there are workers;
- ours: ``VerdictPool`` with the verifier ``math``, or ``exact`` where that is not there;
- bare, in our workers: Math-Verify as a verifier of one's own, so that each text goes to a worker.

Each has been called once before its time begins, and each text comes once. ``right`` counts the
verdicts that agree with the data; one that is undecided agrees with nothing and is counted apart.
With ``--storm`` 2,000 of these texts are judged with 20 of the
worst among them, first by our verifier, then by Math-Verify in our workers, which has nothing but
the pool to protect it; the time is from the start of the pool to the last verdict.

With ``--solutions`` speed is not measured but how many right answers stay undecided, and whether
wrong references are accepted. Each row of a FILE (JSON lines) has ``question``, ``solution``,
``answer`` and perhaps ``type``, and the solution is right. It is judged against its answer, then
against the answer changed: its sign, one more, one less, a fraction inverted, one component of a
tuple, another unit. ``--show N`` prints up to N texts of each cause. Rows whose reference the
verifier refuses are counted and not judged.

With ``--responses`` labelled responses of models are judged. Each row of a FILE (JSON lines) has
``id``, ``model``, ``benchmark``, ``question``, ``response``, ``reference`` and ``is_correct``, a
label that another checker set and that may be wrong. Printed are, by model and benchmark, the
verdicts on responses labelled right and on those labelled wrong, as shares with Wilson's 95 %
interval; the reasons of the undecided; how many of the first 700 boxed responses labelled right are
accepted; all verdicts that contradict a label; and the processor time per verdict in one process.
Where Math-Verify is installed, it judges the same responses, with its own time limits.

With ``--agreement`` the answers in DIR whose truth is known are judged, by kind of text: how many
are undecided, and how many verdicts differ from the truth. GSM8K (``gsm8k_solutions_k4.jsonl``) and
IFEval (``ifeval_prompts.jsonl``, ``ifeval_MODEL_strict.jsonl``) have it recorded. HumanEval
(``humaneval_20.jsonl``, ``humaneval_20_samples_k20.jsonl``) has not: each completion runs in one
program with the task's own ``check``, which trusts it, and that needs the sandbox.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import compress, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from heavydistill.config.run import Sandboxing, Verifying
from heavydistill.metrics.intervals import wilson
from heavydistill.sandbox import Limits, open_sandbox
from heavydistill.schema import Problem, Verdict
from heavydistill.verifiers import registry
from heavydistill.verifiers.pool import VerdictPool
from heavydistill.verifiers.screening import Candidate, decide, screen
from heavydistill.verifiers.workers import default_size

BARE = Path(__file__).with_name("bare_math_verify.py")
HAS_MATH_VERIFY = find_spec("math_verify") is not None
GOOD, SUMS = 2000, 2640
FIRST_BOXED = 700

WORST = [
    "9^{9^{9^{9^{9}}}}",
    "2^{2^{2^{2^{2^{2^{2}}}}}}",
    "10^{10^{10}}",
    "((1000000!)!)!",
    "1000000!",
    "((9!)!)!",
    r"\binom{1000000}{500000}",
    r"\binom{10^9}{5\cdot 10^8}",
    r"\sum_{k=1}^{10^{12}} \frac{1}{k^3}",
    r"\prod_{k=1}^{10^7} (1+\frac{1}{k^2})",
    r"\int_0^1 x^x \sin(x^{x^x}) dx",
    r"\frac{d^{300}}{dx^{300}} \tan(x)",
    r"\lim_{x\to 0} \left(\frac{\sin(\sin(\sin(x)))}{x}\right)^{1/x^2}",
    "{" * 500 + "1" + "}" * 500,
    r"\frac{1}{" * 200 + "2" + "}" * 200,
    "(" * 2000 + "1" + ")" * 2000,
    "1" * 1_000_000,
    "1 " * 500_000,
    "+".join(f"x^{{{n}}}" for n in range(3000)),
    r"\sqrt{" * 300 + "2" + "}" * 300,
]


@dataclass(frozen=True, slots=True)
class Pair:
    """A response, and whether it is right."""

    problem: Problem
    response: str
    right: bool


def pairs_of(folder: Path | None, verifier: str) -> list[Pair]:
    """The real solutions, or sums where there is no folder."""
    if folder is None:
        sums = ((n, n + n % 3, n + n % 2) for n in range(SUMS))
        return [
            Pair(
                _problem(f"{n} and {n % 3}?", str(right), verifier, {}),
                f"{n} and {n % 3} make \\boxed{{{given}}}",
                given == right,
            )
            for n, right, given in sums
        ]
    marker = {"marker": "A:"}
    return [
        Pair(
            _problem(row["question"], row["ground_truth"], verifier, marker),
            solution["solution"],
            solution["is_correct"],
        )
        for row in rows_of(folder / "gsm8k_solutions_k4.jsonl")
        for solution in row.values()
        if isinstance(solution, dict)
    ]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _problem(text: str, reference: str, verifier: str, args: dict[str, Any]) -> Problem:
    return Problem(
        id="p", text=text, reference=reference, verifier=verifier, verifier_args=json.dumps(args)
    )


def bare(pairs: list[Pair]) -> list[bool]:
    from bare_math_verify import is_right

    return [is_right(pair.problem.reference, pair.response) for pair in pairs]


def bare_in_processes(pairs: list[Pair], processes: ProcessPoolExecutor) -> list[bool]:
    from bare_math_verify import is_right

    references = [pair.problem.reference for pair in pairs]
    responses = [pair.response for pair in pairs]
    return list(processes.map(is_right, references, responses, chunksize=32))


def in_pool(pairs: list[Pair], pool: VerdictPool) -> list[bool | None]:
    judged = pool.judge_all((pair.problem, pair.response) for pair in pairs)
    return [said(each.verdict) for each in judged]


def said(verdict: Verdict) -> bool | None:
    """Whether a verdict says right or wrong; None where it is undecided."""
    return None if verdict.label == "undecided" else verdict.is_correct


def timed(
    name: str, pairs: list[Pair], judge: Callable[[list[Pair]], Sequence[bool | None]]
) -> float:
    """Judge all pairs; print and return verdicts a second."""
    started = time.perf_counter()
    verdicts = judge(pairs)
    rate = len(pairs) / (time.perf_counter() - started)
    agree = sum(each is pair.right for each, pair in zip(verdicts, pairs, strict=True))
    undecided = sum(each is None for each in verdicts)
    print(
        f"{name:<24} {rate:9,.0f} /s   right {agree:,} of {len(pairs):,}, undecided {undecided:,}",
        flush=True,
    )
    return rate


def speed(pairs: list[Pair], verify: Verifying) -> None:
    if not HAS_MATH_VERIFY:
        ours(pairs, verify)
        print("Math-Verify is not installed here; --help says how to compare with it")
        return
    others = of_verifier(pairs, "bare_math_verify")
    bare(pairs[:1])
    rates = [timed("bare", pairs, bare)]
    context = get_context("spawn")
    with ProcessPoolExecutor(verify.workers, mp_context=context) as processes:
        bare_in_processes(pairs[:64], processes)
        rates += [timed("bare, processes", pairs, lambda p: bare_in_processes(p, processes))]
    rates += [ours(pairs, verify), ours(others, verify, "bare, in our workers")]
    single, spread, mine, carried = rates
    print(
        f"ours / bare {mine / single:.2f}, ours / bare in processes {mine / spread:.2f}, "
        f"bare in our workers / bare in processes {carried / spread:.2f}"
    )


def ours(pairs: list[Pair], verify: Verifying, name: str = "ours") -> float:
    """Verdicts a second of a warm ``VerdictPool``."""
    with VerdictPool(verify) as pool:
        in_pool([Pair(p.problem, p.response + " ", p.right) for p in pairs[:64]], pool)
        return timed(name, pairs, lambda p: in_pool(p, pool))


def of_verifier(pairs: list[Pair], verifier: str) -> list[Pair]:
    return [
        Pair(
            _problem(pair.problem.text, pair.problem.reference, verifier, {}),
            pair.response,
            pair.right,
        )
        for pair in pairs
    ]


def storm(pairs: list[Pair], verify: Verifying) -> None:
    good = pairs[:GOOD]
    every = len(good) // len(WORST)
    mixed: list[tuple[Pair, bool]] = []
    for number, pair in enumerate(good):
        if number % every == every // 2 and number // every < len(WORST):
            worst = f"So it is \\boxed{{{WORST[number // every]}}}"
            other = "x^2 + 7" if number % 2 else pair.problem.reference
            args = json.loads(pair.problem.verifier_args)
            posed = _problem(pair.problem.text, other, pair.problem.verifier, args)
            mixed.append((Pair(posed, worst, False), False))
        mixed.append((pair, True))
    watch = Memory()
    started = time.perf_counter()
    with VerdictPool(verify) as pool:
        judged = pool.judge_all((pair.problem, pair.response) for pair, _ in mixed)
    seconds = time.perf_counter() - started
    right = sum(
        said(each.verdict) is pair.right
        for each, (pair, is_good) in zip(judged, mixed, strict=True)
        if is_good
    )
    worst = Counter(
        f"{each.verdict.label} {each.verdict.reason}"
        for each, (_, is_good) in zip(judged, mixed, strict=True)
        if not is_good
    )
    print(
        f"{seconds:.1f} s, right {right:,} of {len(good):,}, "
        f"most memory of a worker {watch.stop():.0f} MiB"
    )
    print("the worst: " + ", ".join(f"{count} {what}" for what, count in worst.most_common()))


class Memory:
    """Watches the processes that this one has started."""

    def __init__(self) -> None:
        self._most = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """The most resident memory of any of them, in MiB."""
        self._ended.set()
        self._thread.join()
        return self._most

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            for pid in Path("/proc/self/task").glob("*/children"):
                for child in pid.read_text().split():
                    self._most = max(self._most, _peak_mib(child))


def _peak_mib(pid: str) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = (line.split() for line in status.splitlines())
    return next((int(line[1]) / 1024 for line in lines if line[0] == "VmHWM:"), 0.0)


@dataclass(frozen=True, slots=True)
class Solution:
    """A row of ``--solutions``."""

    question: str
    solution: str
    answer: str
    type: str


_INTEGER = re.compile(r"-?[0-9]+")
_FRACTION = re.compile(r"\\[dt]?frac\{?([0-9]+)\}?\{?([0-9]+)\}?")
_COMPONENT = re.compile(r"(?<=[(,])\s*-?[0-9]+(?=\s*[,)])")
_UNIT = re.compile(r"\\(?:text|mathrm|mbox)\{[^{}]+\}(?:\^\{?[23]\}?)?\s*$")
_UNIT_BEHIND = re.compile(
    r"\\boxed\{([^{}]+)\}(?:\s|\\[,;:! ])*(?:\$\s*)?"
    r"(?:\\(?:text|mathrm|mbox)\{)?\s*(?:cm|meters?|feet|inches|seconds?|hours?|miles?|dollars?)\b"
)


def changed(row: Solution) -> Iterator[tuple[str, str]]:
    """Wrong references for a solution, each with the name of the change."""
    answer = row.answer.strip()
    if _INTEGER.fullmatch(answer):
        yield "one more", str(int(answer) + 1)
        yield "one less", str(int(answer) - 1)
    if answer != "0" and (_INTEGER.fullmatch(answer) or _FRACTION.fullmatch(answer.lstrip("-"))):
        yield "sign", answer[1:] if answer.startswith("-") else f"-{answer}"
    fraction = _FRACTION.search(answer)
    if fraction and fraction[1] != fraction[2]:
        inverted = rf"\frac{{{fraction[2]}}}{{{fraction[1]}}}"
        yield "inverted", answer[: fraction.start()] + inverted + answer[fraction.end() :]
    components = list(_COMPONENT.finditer(answer))
    if len(components) > 1:
        for component in components:
            other = answer[: component.start()] + str(int(component[0]) + 1)
            yield "component", other + answer[component.end() :]
    behind = _UNIT_BEHIND.search(row.solution)
    if _UNIT.search(answer) or (behind and behind[1].strip() == answer):
        yield "unit", _UNIT.sub("", answer) + r"\text{ kg}"


def completeness(rows: list[Solution], verify: Verifying, show: int) -> None:
    """Print what is undecided of right solutions, by cause, and accepted wrong references."""
    pairs = [(_problem(row.question, row.answer, "math", {}), row.solution) for row in rows]
    with VerdictPool(verify) as pool:
        faults = pool.check_references([problem for problem, _ in pairs])
        fit = [row for row, fault in zip(rows, faults, strict=True) if fault is None]
        judged = pool.judge_all(
            pair for pair, fault in zip(pairs, faults, strict=True) if fault is None
        )
        seen: dict[str, list[Solution]] = defaultdict(list)
        for row, each in zip(fit, judged, strict=True):
            seen[f"{each.verdict.label} {each.verdict.reason}"].append(row)
        wrong = [(row, kind, other) for row in fit for kind, other in changed(row)]
        accepted = [
            (row, kind, other)
            for (row, kind, other), each in zip(
                wrong,
                pool.judge_all(
                    (_problem(row.question, other, "math", {}), row.solution)
                    for row, _, other in wrong
                ),
                strict=True,
            )
            if each.verdict.is_correct
        ]
    undecided = sum(len(found) for what, found in seen.items() if what.startswith("undecided"))
    print(
        f"{len(rows):,} solutions, {len(rows) - len(fit)} references refused, "
        f"{undecided} undecided ({undecided / max(1, len(fit)):.2%})"
    )
    for what, found in sorted(seen.items(), key=lambda item: -len(item[1])):
        print(f"  {len(found):6,} {what}")
        if not what.startswith("correct"):
            for row in found[:show]:
                print(f"         {row.answer!r}: ...{_around_box(row.solution)!r}")
    types = Counter(row.type for row in fit)
    open_of = Counter(
        row.type for what, found in seen.items() if what.startswith("undecided") for row in found
    )
    if set(types) != {""}:
        each = ", ".join(f"{name} {open_of[name]} of {types[name]}" for name in sorted(types))
        print(f"undecided by type: {each}")
    kinds = Counter(kind for _, kind, _ in wrong)
    told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    print(f"{len(accepted)} of {len(wrong):,} wrong references accepted ({told})")
    for row, kind, other in accepted[:show]:
        print(f"         {kind}, {other!r}: ...{_around_box(row.solution)!r}")


@dataclass(frozen=True, slots=True)
class Response:
    """A row of ``--responses``, with what is said of it."""

    row: dict[str, Any]
    verdict: Verdict | None
    """None if the reference is refused."""
    bare: bool
    """Whether Math-Verify accepts it; False where that is not installed."""

    @property
    def said(self) -> str:
        return self.verdict.label if self.verdict else "refused"

    @property
    def reason(self) -> str:
        return self.verdict.reason if self.verdict else ""

    def __str__(self) -> str:
        around = _around_box(self.row["response"])
        return f"{self.row['id']} {self.reason}, {self.row['reference']!r}: ...{around!r}"


def labelled(rows: list[dict[str, Any]], verify: Verifying, show: int) -> None:
    """Print how verdicts on labelled responses agree with the labels, and what they cost."""
    problems = [_problem(row["question"], row["reference"], "math", {}) for row in rows]
    texts = [row["response"] for row in rows]
    with VerdictPool(verify) as pool:
        faults = pool.check_references(problems)
        asked = [not fault for fault in faults]
        judged = iter(pool.judge_all(compress(zip(problems, texts, strict=True), asked)))
    own_ms, _ = _processor_ms(_decided, list(compress(zip(problems, texts, strict=True), asked)))
    others_ms, accepted = 0.0, [False] * len(rows)
    if HAS_MATH_VERIFY:
        from bare_math_verify import is_right

        # Bare LaTeX is no formula to it.
        references = [rf"\boxed{{{row['reference']}}}" for row in rows]
        others_ms, accepted = _processor_ms(is_right, list(zip(references, texts, repeat(5))))
    said = [
        Response(row, next(judged).verdict if is_asked else None, is_accepted)
        for row, is_asked, is_accepted in zip(rows, asked, accepted, strict=True)
    ]
    by_label = {
        name: [each for each in said if each.row["is_correct"] is is_right]
        for name, is_right in (("right", True), ("wrong", False))
    }
    groups = sorted({(row["model"], row["benchmark"]) for row in rows})
    for group in [*groups, ()]:
        print(", ".join(group) or "all")
        for name, responses in by_label.items():
            of = dict(zip(("model", "benchmark"), group, strict=False))
            shown = [each for each in responses if of.items() <= each.row.items()]
            if shown:
                print(f"  labelled {name}: {_shares(shown)}")
    for name, responses in by_label.items():
        reasons = Counter(each.reason for each in responses if each.said == "undecided")
        told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        print(f"undecided, labelled {name}: {told or 'none'}")
    first = [each for each in by_label["right"] if r"\boxed" in each.row["response"]][:FIRST_BOXED]
    beside = f", by Math-Verify {sum(each.bare for each in first)}" if HAS_MATH_VERIFY else ""
    count = Counter(each.said for each in first)["correct"]
    print(f"first {len(first)} boxed, labelled right: accepted {count}{beside}")
    for name, against in (("wrong", "correct"), ("right", "incorrect")):
        for each in by_label[name]:
            if each.said == against:
                print(f"{against}, labelled {name}: {each}")
    for name, responses in by_label.items():
        for each in [each for each in responses if each.said in ("undecided", "refused")][:show]:
            print(f"{each.said}, labelled {name}: {each}")
    print(f"processor time per verdict: {own_ms:.2f} ms", end="")
    print(f", Math-Verify {others_ms:.2f} ms" if HAS_MATH_VERIFY else "")


def _shares(of_label: list[Response]) -> str:
    counts = Counter(each.said for each in of_label)
    parts = [f"n {len(of_label)}"]
    for what in ("correct", "incorrect", "undecided", "refused"):
        if counts[what] or what != "refused":
            share = wilson(counts[what], len(of_label))
            parts.append(
                f"{what} {counts[what]} ({share.mean:.1%}, {share.low:.1%} to {share.high:.1%})"
            )
    if HAS_MATH_VERIFY:
        parts.append(f"Math-Verify accepts {sum(each.bare for each in of_label)}")
    return ", ".join(parts)


def _decided(problem: Problem, text: str) -> Verdict:
    screened = screen(problem, text)
    return decide(screened) if isinstance(screened, Candidate) else screened


def _processor_ms(
    judge: Callable[..., Any], calls: list[tuple[Any, ...]]
) -> tuple[float, list[Any]]:
    """(mean processor time of a call in ms, results); one more call before it does the imports."""
    judge(*calls[0])
    started = time.process_time()
    results = [judge(*call) for call in calls]
    return 1000 * (time.process_time() - started) / len(calls), results


def ifeval(folder: Path) -> list[Pair]:
    """The responses of IFEval; right are those recorded as following every instruction strictly."""
    prompts = {row["prompt"]: row for row in rows_of(folder / "ifeval_prompts.jsonl")}
    pairs = []
    for path in sorted(folder.glob("ifeval_*_strict.jsonl")):
        for row in rows_of(path):
            prompt = prompts[row["prompt"]]
            args = {key: prompt[key] for key in ("instruction_id_list", "kwargs")}
            posed = _problem(row["prompt"], "", "instructions", args | {"mode": "strict"})
            pairs.append(Pair(posed, row["response"], row["follow_all_instructions"]))
    return pairs


def humaneval(folder: Path) -> list[Pair]:
    """The completions of HumanEval; right are those that the task's own ``check`` accepts."""
    tasks = {row["task_id"]: row for row in rows_of(folder / "humaneval_20.jsonl")}
    sandbox = open_sandbox(Sandboxing())
    limits = Limits(cpu_s=4, wall_s=120, memory_mb=256, output_bytes=1 << 20)
    pairs = []
    for row in rows_of(folder / "humaneval_20_samples_k20.jsonl"):
        task = tasks[row["task_id"]]
        args = {key: task[key] for key in ("prompt", "test", "entry_point")}
        posed = _problem(task["prompt"], "", "code", args)
        for completion in row["samples"]:
            parts = [task["prompt"] + completion, task["test"], f"check({task['entry_point']})"]
            program = "\n".join([*parts, "print('every assertion held')"])
            ran = sandbox.run({"main.py": program}, limits)
            if ran.ended == "unavailable":
                raise SystemExit(f"HumanEval needs the sandbox: {ran.stderr}")
            held = ran.stdout.endswith(b"every assertion held\n")
            pairs.append(Pair(posed, completion, ran.ended == "exit" and held))
    return pairs


def agreement(name: str, pairs: list[Pair], verify: Verifying) -> None:
    """Print how many answers are undecided, by cause, and how many verdicts are false."""
    with VerdictPool(verify) as pool:
        judged = pool.judge_all((pair.problem, pair.response) for pair in pairs)
    seen = Counter(
        (pair.right, said(each.verdict)) for pair, each in zip(pairs, judged, strict=True)
    )
    causes = Counter(each.verdict.reason for each in judged if said(each.verdict) is None)
    print(
        f"{name}: {len(pairs):,} answers, {sum(pair.right for pair in pairs):,} right; "
        f"{causes.total()} undecided ({causes.total() / max(1, len(pairs)):.2%}), "
        f"{seen[True, None]} of them right; "
        f"{seen[False, True]} false accepts, {seen[True, False]} false rejects",
        flush=True,
    )
    for cause, count in causes.most_common():
        print(f"  {count:6,} {cause}")


def _around_box(text: str) -> str:
    at = text.rfind("boxed")
    return text[max(0, at - 90) : at + 110]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gsm8k", type=Path, help="folder of gsm8k_solutions_k4.jsonl")
    parser.add_argument("--storm", action="store_true", help="the worst inputs among good ones")
    parser.add_argument("--solutions", type=Path, nargs="+", help="files of right solutions")
    parser.add_argument("--responses", type=Path, nargs="+", help="files of labelled responses")
    parser.add_argument("--agreement", type=Path, help="folder of answers whose truth is known")
    parser.add_argument("--show", type=int, default=0, help="texts printed of each cause")
    parser.add_argument("--workers", type=int, default=default_size())
    parser.add_argument("--timeout-s", type=float, default=Verifying().timeout_s)
    chosen = parser.parse_args()
    own = [str(BARE)] if HAS_MATH_VERIFY else []
    verify = Verifying(workers=chosen.workers, timeout_s=chosen.timeout_s, own=own)
    registry.load_own(verify.own)
    if chosen.solutions:
        for path in chosen.solutions:
            rows = [
                Solution(row["question"], row["solution"], row["answer"], row.get("type", ""))
                for row in rows_of(path)
            ]
            print(f"{path.name}: ", end="", flush=True)
            completeness(rows, verify, chosen.show)
        return
    if chosen.responses:
        for path in chosen.responses:
            print(path.name)
            labelled(rows_of(path), verify, chosen.show)
        return
    if chosen.agreement:
        agreement("GSM8K, math", pairs_of(chosen.agreement, "math"), verify)
        agreement("IFEval, instructions", ifeval(chosen.agreement), verify)
        agreement("HumanEval, code", humaneval(chosen.agreement), verify)
        return
    verifier = "math" if "math" in registry.names() else "exact"
    pairs = pairs_of(chosen.gsm8k, verifier)
    print(
        f"{len(pairs):,} texts, verifier {verifier}, {chosen.workers} workers, "
        f"Python {platform.python_version()}, {platform.machine()}"
    )
    if chosen.storm:
        storms = [(verifier, pairs)]
        if HAS_MATH_VERIFY:
            storms.append(("bare", of_verifier(pairs, "bare_math_verify")))
        for name, of_storm in storms:
            print(f"storm, {name}: ", end="", flush=True)
            storm(of_storm, verify)
    else:
        speed(pairs, verify)


if __name__ == "__main__":
    main()
