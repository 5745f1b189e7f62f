"""``heavydistill generate`` and ``show`` as a user runs them."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import marked
import messages
import pytest
from command_line import COMMAND, proposed, run_command, served, started
from fake_server import FakeServer, completion, serving
from import_files import lines
from marked import MARK, eventually
from messages import message
from pool_folders import pool_folder, pool_of
from problem_files import doubles

from heavydistill.metrics.summary import summarize
from heavydistill.run.status import running
from heavydistill.schema import Trace
from heavydistill.store.journal import Journal
from heavydistill.store.sets.folder import read_manifest, read_rows
from heavydistill.store.traces import TRACES_FOLDER, read_traces, write_traces
from heavydistill.text.checked_claims import attempts_by_cache, checked_claims

GRACE_S = 300.0
TRACES = "traces/train-00000-of-00001.parquet"


def ran(*arguments: str) -> str:
    done = run_command(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def of_server(url: str, problems: Path, out: Path, *more: str) -> list[str]:
    files = [f"--problems={problems}", f"--out={out}"]
    return ["generate", *served(url, *files, "--k=3", "--d=2", "--set=endpoint.retries=0"), *more]


def is_deliberation(request: dict[str, Any]) -> bool:
    return "==== Attempt" in request["messages"][0]["content"]


@pytest.fixture(scope="module")
def micro_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "micro"
    return out, ran("generate", "--limit=6", "--k=4", "--d=2", "--rounds=2", f"--out={out}")


def test_the_micro_teacher_thinks_and_deliberates(micro_run):
    out, printed = micro_run
    traces = list(read_traces(out))
    assert len(traces) == 6
    for trace in traces:
        assert len(trace.pool) == len(trace.deliberations) == 4
        assert [cache.round for cache in trace.caches] == [1, 2]
        assert trace.stratum and trace.outcome
        assert trace.pool[0].verdict.verifier.startswith("procedural@")
        claims = [len(deliberation.claims) for deliberation in trace.deliberations]
        widths = [len(cache.items) for cache in trace.caches for _ in range(2)]
        assert all(made <= width for made, width in zip(claims, widths, strict=True))
        assert any(claims[:2]), "the first round reads what the thinker wrote"
    assert "M@4" in printed and "HM@2" in printed and str(out) in printed
    saved = json.loads((out / "summary.json").read_text())
    assert saved["mean_at_k"]["mean"] == summarize(traces).mean_at_k.mean
    assert saved["statuses"] == {"ok": 6}
    problem = traces[1].problem
    shown = ran("show", str(out), "--problem", problem.id)
    assert problem.id in shown and problem.reference in shown
    assert run_command("show", str(out), "--problem", "none").returncode == 2


def test_claims_are_measured_shown_and_kept_out_of_sets_if_false(micro_run, tmp_path):
    out, printed = micro_run
    traces, saved = list(read_traces(out)), json.loads((out / "summary.json").read_text())
    assert saved["claim_coverage"]["mean"] == summarize(traces).claim_coverage.mean > 0.5
    assert "Claims: on " in printed
    trace = traces[1]
    said, shown = trace.deliberations[0], attempts_by_cache(trace)
    for each in checked_claims(said, shown[said.cache]):
        word = {True: "true", False: "false", None: "unknown"}[each.is_true]
        marked = f"#{each.claim.attempt} {each.claim.says} ({word})"
        assert marked in " ".join(ran("show", str(out), "--problem", trace.problem.id).split())

    # The teacher's claims are nearly all true: those of each first deliberation are reversed.
    lying = Path(shutil.copytree(out, tmp_path / "lying"))
    write_traces(map(contradicted, traces), lying / TRACES_FOLDER)
    flags = ["--preset=natural", f"--out={tmp_path / 's'}"]
    done = subprocess.run([COMMAND, "build", lying, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(read_rows(tmp_path / "s", "deliberations"))
    false = {row["id"] for row in rows if row["false_claims"]}
    assert false and false.isdisjoint(row["id"] for row in rows if not row["label"])
    left_out = [row for row in rows if row["label"] == "false_claims"]
    assert all(row["verdict"]["label"] == "correct" and row["id"] in false for row in left_out)
    strata = read_manifest(tmp_path / "s").strata
    assert sum(each.false_claims for each in strata.values()) == len(left_out) > 0


def contradicted(trace: Trace) -> Trace:
    """The trace, whose first deliberation says the opposite of each attempt."""
    first, *rest = trace.deliberations
    opposite = {"right": "wrong", "wrong": "right"}
    claims = [replace(claim, says=opposite[claim.says]) for claim in first.claims or ()]
    return replace(trace, deliberations=[replace(first, claims=claims), *rest])


def test_the_saved_configuration_repeats_the_run(micro_run, tmp_path):
    out, _ = micro_run
    ran("generate", f"--config={out}/config.yaml", f"--out={tmp_path / 'again'}")
    first, again = (
        [[g.answer_text for g in (*t.pool, *t.deliberations)] for t in read_traces(run)]
        for run in (out, tmp_path / "again")
    )
    assert first == again


def test_failures_of_an_endpoint_are_records(tmp_path):
    """p1 is fine, p2 is refused always, p3 is cut off once, p4 returns its thinking apart."""

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        number = int(body["messages"][0]["content"].partition("What is ")[2][0])
        if number == 2:
            return 400, {"error": {"message": "refused"}}
        if number == 3 and body["seed"] == cut.setdefault("seed", body["seed"]):
            return completion("half of", "length")
        if number == 4:
            return completion("\\boxed{8}", reasoning_content="four and four")
        return completion(f"<think>hm</think>\\boxed{{{2 * number}}}")

    cut: dict[str, int] = {}
    out = tmp_path / "run"
    with serving(answer) as server:
        done = run_command(*of_server(server.base_url, doubles(tmp_path, 4), out))
    traces = {trace.problem.id: trace for trace in read_traces(out)}
    assert done.returncode == 1, "one problem had no usable trajectory"
    assert "fewer than 2 usable" in done.stdout
    assert traces["p2"].status == "too_few_usable"
    assert all("refused" in (t.error or "") for t in traces["p2"].pool)
    assert sum(t.finish_reason == "length" for t in traces["p3"].pool) == 1
    assert traces["p3"].status == "ok" and len(traces["p3"].deliberations) == 2
    assert {t.reasoning for t in traces["p4"].pool} == {"four and four"}
    assert all(t.is_correct for t in traces["p4"].pool)
    # K means K: three requests with three seeds for each problem's thinking.
    thinking = [r for r in server.requests if not is_deliberation(r)]
    assert len(thinking) == 12
    assert len({(r["messages"][0]["content"], r["seed"]) for r in thinking}) == 12


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--problems=absent.jsonl"], "absent.jsonl"),
        (["--k=1"], message("below_least", key="--k", least=2)),
        (["--set=think.kk=4"], "Did you mean think.k?"),
        (["--teacher=micor"], "Did you mean micro"),
        (["--set=cache.budget_tokens=20"], "cache.budget_tokens"),
        (["--set=cache.budget_tokens=100000"], "cache.budget_tokens"),
        (["--problems=long.jsonl"], "problem a"),
    ],
)
def test_bad_input_is_told_before_anything_is_done(flags, said, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines(Path("long.jsonl"), {"id": "a", "text": "x " * 4000, "reference": "1"})
    code, _, message = call("generate", "--out=run", *flags)
    assert code == 2
    assert said in message and "Traceback" not in message
    assert not Path("run").exists()


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = run_command("generate", f"--out={tmp_path}")
    assert done.returncode == 2 and messages.is_in(done.stderr, "out_of_no_run", out=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


class Running:
    """A run against a server that never answers; its processes carry a mark."""

    def __init__(self, url: str, folder: Path, problems: int = 4) -> None:
        self.mark = uuid.uuid4().hex
        self.out = folder / "run"
        command = of_server(url, doubles(folder, problems), self.out)
        self.process = started(*command, env={**os.environ, MARK: self.mark})

    def interrupt_again(self) -> str:
        """Ctrl-C while the run waits for the requests in flight; what it printed before."""
        printed = ""
        while "Waiting for" not in printed and (line := self.process.stdout.readline()):
            printed += line
        self.process.send_signal(signal.SIGINT)
        return printed

    def alive(self) -> list[int]:
        return marked.alive(self.mark)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_run(signum, tmp_path):
    with serving(lambda body: time.sleep(300) or completion("late")) as server:  # type: ignore[func-returns-value]
        run = Running(server.base_url, tmp_path)
        assert eventually(lambda: len(server.requests) > 0, 300), "the run has begun to ask"
        assert run.alive()
        run.process.send_signal(signum)
        before = run.interrupt_again() if signum is signal.SIGINT else ""
        printed = before + run.process.communicate(timeout=GRACE_S)[0]
        assert eventually(lambda: not run.alive(), GRACE_S), run.alive()
    assert not run.out.exists()
    if signum is not signal.SIGKILL:
        assert run.process.returncode == 130
        assert f"Interrupted: {run.out} was not written" in " ".join(printed.split())
        assert "Traceback" not in printed


def test_a_lost_terminal_waits_for_the_requests_in_flight(tmp_path):
    is_asked, is_lost = threading.Event(), threading.Event()

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        is_asked.set()
        is_lost.wait(60)
        time.sleep(1)
        return completion("\\boxed{2}")

    with serving(answer) as server:
        run = Running(server.base_url, tmp_path)
        assert is_asked.wait(300)
        run.process.send_signal(signal.SIGHUP)
        is_lost.set()
        printed = run.process.communicate(timeout=GRACE_S)[0]
        assert run.process.returncode == 130 and "Traceback" not in printed
        assert "Waiting for the requests in flight" in printed
        assert eventually(lambda: not run.alive(), GRACE_S), run.alive()
        (journal,) = tmp_path.glob("**/journal*")
        assert Journal(journal).answered == len(server.requests)


def test_what_was_finished_before_an_interrupt_is_kept(tmp_path):
    """Of 20 problems, 16 are answered and the others hang."""

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        text = body["messages"][0]["content"]
        if any(f"What is {n} + {n}?" in text for n in range(17, 21)):
            time.sleep(300)
        return completion("\\boxed{2}")

    with serving(answer) as server:
        run = Running(server.base_url, tmp_path, problems=20)
        assert eventually(lambda: (now := running(run.out)) and now[1].finished == 16, 300)
        assert sum(map(is_deliberation, server.requests)) == 32
        run.process.send_signal(signal.SIGINT)
        printed = run.interrupt_again() + run.process.communicate(timeout=GRACE_S)[0]
    assert run.process.returncode == 130
    assert f"what was finished is in {run.out}" in " ".join(printed.split())
    assert len(list(read_traces(run.out))) == 16
    assert json.loads((run.out / "summary.json").read_text())["missing"] == 4


OWN = Path(__file__).parents[1] / "verifiers" / "own_verifiers.py"


@pytest.mark.slow
def test_a_verifier_of_one_s_own_judges_in_workers_and_unfit_rows_are_left_out(tmp_path):
    rows = [
        {"text": f"What is {n}?", "reference": reference}
        for n, reference in enumerate(["2", "odd", "hang", "2", ""])
    ]
    problems, out = lines(tmp_path / "p.jsonl", *rows), tmp_path / "run"
    (tmp_path / "mine.py").write_text(OWN.read_text(encoding="utf-8"), encoding="utf-8")
    settings = ["problems.verifier=obedient", "verify.timeout_s=1", "verify.workers=2"]
    answers = iter(["2", "hang", "crash"] * 100)
    with serving(lambda body: completion(next(answers), reasoning_content="so")) as server:
        flags = of_server(server.base_url, problems, out)
        flags += [f"--set={each}" for each in (*settings, f"verify.own=[{tmp_path}/mine.py]")]
        refused = run_command(*flags)
        assert refused.returncode == 2 and "3 of 5 rows cannot be used" in refused.stderr
        assert not server.requests
        printed = " ".join(ran(*flags, "--set=problems.unfit=leave_out", "--full").split())
    assert "Left out: 3 row(s)" in printed and "p.jsonl:2: it is odd" in printed
    traces = list(read_traces(out))
    assert [trace.problem.id for trace in traces] == ["p:1", "p:4"]
    generations = [g for trace in traces for g in (*trace.pool, *trace.deliberations) if g.verdict]
    assert {(g.answer_text, g.verdict.label, g.verdict.reason) for g in generations} == {
        ("2", "correct", "told"),
        ("hang", "undecided", "timeout"),
        ("crash", "undecided", "worker_died"),
    }
    summary = json.loads((out / "summary.json").read_text())
    assert summary["left_out"] == 3
    assert set(summary["trajectories"]["undecided_because"]) == {"timeout", "worker_died"}
    assert "Undecided trajectories: " in printed
    again = ("replay", str(out), "--out", str(tmp_path / "again"))
    assert "add --run-verifiers" in run_command(*again).stderr
    ran(*again, "--run-verifiers")
    assert list(read_traces(tmp_path / "again")) == traces


def test_a_verifier_that_cannot_judge_here_is_said_before_anything_is_asked(tmp_path):
    mine, broken = tmp_path / "mine.py", tmp_path / "broken.py"
    mine.write_text(
        "from heavydistill.verifiers.exact import Exact\n"
        "class Absent(Exact):\n"
        "    name = 'absent'\n"
        "    def unavailable(self, config):\n"
        "        return 'it needs a sandbox; apt-get install one'\n"
    )
    broken.write_text("1/0")
    dry = ["generate", "--dry-run", f"--problems={doubles(tmp_path, 4)}", f"--out={tmp_path}/run"]
    dry += ["--set=problems.verifier=absent"]
    printed = ran(*dry, f"--set=verify.own=[{mine}]")
    assert "Warning: The verifier absent cannot judge here: it needs a sandbox" in printed
    refused = run_command(*dry, f"--set=verify.own=[{broken}]")
    assert refused.returncode == 2 and "ZeroDivisionError" in refused.stderr
    assert "Traceback" not in refused.stderr


SAMPLE = Path(__file__).parents[2] / "data" / "choice.sample.jsonl"
RIGHT = ("12:15", "59", "3/28", "rythm", "No blip is a blap.", "all of the above", "Friday", "6")


def test_a_run_judges_letters_in_the_order_that_was_shown(tmp_path):
    """The server finds the right text among the options that it is shown, and hedges once."""

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        shown = re.findall(r"^([A-E])\) (.*)$", body["messages"][0]["content"], re.MULTILINE)
        letter = next(letter for letter, text in shown if text in RIGHT)
        if "Friday" in dict(shown).values():
            return completion("Answer: A or B")
        return completion(f"<think>hm</think>The answer is **({letter})**.")

    out = tmp_path / "run"
    with serving(answer) as server:
        ran(*of_server(server.base_url, SAMPLE, out), "--k=2", "--d=1")
    traces = {trace.problem.id: trace for trace in read_traces(out)}
    assert len(traces) == 8
    for name, trace in traces.items():
        reasons = {g.verdict.reason for g in (*trace.pool, *trace.deliberations) if g.verdict}
        assert reasons == ({"hedged"} if name == "choice-7" else {"equal"}), name
    orders = [json.loads(trace.problem.verifier_args)["order"] for trace in traces.values()]
    assert any(order != sorted(order) for order in orders)
    assert json.loads((out / "summary.json").read_text())["option_orders_kept"] == 1


@pytest.mark.parametrize("is_right", [True, False])
def test_sets_are_offered_only_of_a_run_with_something_right(tmp_path, is_right):
    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        number = int(body["messages"][0]["content"].partition("What is ")[2][0])
        return completion(f"\\boxed{{{2 * number if is_right else -1}}}")

    with serving(answer) as server:
        said = ran(*of_server(server.base_url, doubles(tmp_path, 2), tmp_path / "run"), "--k=2")
    assert ("Then: heavydistill build" in said) == is_right


def test_a_run_without_boxes_names_the_marker_and_the_short_prompts(tmp_path):
    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        number = int(body["messages"][0]["content"].partition("What is ")[2][0])
        return completion(f"I add them.\nAnswer: {2 * number}")

    file = doubles(tmp_path, 4)
    with serving(answer) as server:
        done = run_command(*of_server(server.base_url, file, tmp_path / "raw"), "--k=2", "--d=1")
        said, asked = done.stdout, len(server.requests)
        assert done.returncode == 1 and "Then: " not in said
        assert messages.is_in(said, "no_answer_read")
        assert "For example, to problem " in said and "I add them.\nAnswer: 2\n" in said
        text = " ".join(said.split())
        assert messages.is_in(text, "no_final_answer", share="100.0%", of="trajectories")
        assert messages.is_in(text, "no_final_answer", share="100.0%", of="deliberations")
        assert "--set domain=brief" in text
        assert "12 of the 12 unanswered answers that were read end in 'Answer:'" in text
        marked = ran(*proposed(said, "To judge by this marker, without new requests"))
        assert len(server.requests) == asked, "all of it was in the journal"
    assert "no final answer" not in marked and "To judge by" not in marked
    raw, judged = (
        json.loads((tmp_path / out / "summary.json").read_text()) for out in ("raw", "raw-marker")
    )
    assert judged["mean_at_k"]["mean"] == 1.0 and judged["trajectories"]["unanswered"] == 0
    assert raw["mean_at_k"]["mean"] == 0.0 and raw["trajectories"]["unanswered"] == 8
    assert raw["deliberations"]["unanswered_because"] == {"no_answer": 4}


@pytest.fixture(scope="module")
def student_run(tmp_path_factory):
    """The student thinks, the teacher deliberates."""
    out = tmp_path_factory.mktemp("runs") / "student"
    models = ["--thinker=micro-student", "--deliberator=micro"]
    ran("generate", *models, "--limit=3", "--k=8", "--d=2", f"--out={out}")
    return out


def test_a_teacher_deliberates_on_what_the_student_wrote(student_run):
    traces = list(read_traces(student_run))
    assert len(traces) == 3
    assert {t.model for trace in traces for t in trace.pool} == {"micro-student"}
    assert {d.model for trace in traces for d in trace.deliberations} == {"micro"}
    for trace in traces:
        (cache,) = trace.caches
        assert {item.generation for item in cache.items} == {t.id for t in trace.pool}
        assert len(trace.deliberations) == 2 and all(d.verdict for d in trace.deliberations)


def test_early_stopping_is_measured_on_a_finished_run_without_a_request(student_run, tmp_path):
    out, journal = tmp_path / "stopping", student_run.parent / "journal"
    before = {file: file.stat().st_size for file in journal.iterdir()}
    told = ran("evaluate", f"--adaptive={student_run}", f"--out={out}")
    report = json.loads((out / "adaptive.json").read_text())
    assert (report["format"], report["k"]) == ("heavydistill-adaptive/2", 8)
    assert report["choosing"] + report["confirming"] == 3
    assert report["measured"]["thinker"] == ["micro-student"]
    summary = summarize(read_traces(student_run))
    rights = {(each["rule"], each["k"]): each["right"]["mean"] for each in report["rules"]}
    assert rights["vote", 1] == pytest.approx(summary.mean_at_k.mean)
    assert rights["vote", 8] == pytest.approx(summary.vote_at_k.mean)
    assert rights["heavy", 8] == pytest.approx(summary.heavy_mean_at_d.mean)
    tokens = {(p.way, p.k, p.d): p.tokens["completion"].mean for p in summary.curve.points}
    spent = report["rules"][-1]["per_right"]["completion"]
    assert spent == pytest.approx(tokens["deliberation", 8, 1] / rights["heavy", 8])
    assert "stop if 2 agree" in told and "deliberation on 8" in told
    assert report["stop_at"] is None, "three problems show nothing"
    assert {file: file.stat().st_size for file in journal.iterdir()} == before


def test_early_stopping_takes_no_flag_of_a_run(student_run, tmp_path):
    flags = [f"--adaptive={student_run}", f"--out={tmp_path}/x"]
    for more in ("--k=4", "--before=micro", "--dry-run", "--orders=2", "--set=seed=3"):
        done = run_command("evaluate", *flags, more)
        assert done.returncode == 2 and messages.is_in(done.stderr, "adaptive_alone")
    assert [*tmp_path.iterdir()] == []


def test_the_same_pools_and_deliberator_give_the_same_run_and_ask_nobody(student_run, tmp_path):
    flags = [f"--pools={student_run}", f"--journal={student_run.parent / 'journal'}", "--d=2"]
    told = ran("generate", *flags, "--deliberator=micro", f"--out={tmp_path}/run")
    assert "K=8 trajectories by micro-student" in told
    assert "From the journal, not requested again: 6 of 6 in deliberating" in told
    assert (tmp_path / "run" / TRACES).read_bytes() == (student_run / TRACES).read_bytes()
    usage = json.loads((tmp_path / "run" / "summary.json").read_text())["usage"]
    assert usage["thinking"]["requests"] == usage["thinking"]["completion"] == 0
    assert usage["deliberating"]["requests"] == 6


def on_pools(server: FakeServer, pools: Path, out: Path, *more: str) -> list[str]:
    flags = served(server.base_url, f"--pools={pools}", f"--out={out}", "--d=2")
    return ["generate", *flags, "--set=endpoint.retries=0", *more]


@pytest.fixture
def pools(tmp_path):
    """Of 6 problems, the last has one usable trajectory; verdicts of the first are an old one's
    and those of the second are missing."""
    traces = [pool_of(n, [f"{n}", "0", f"{n}"]) for n in range(1, 6)] + [pool_of(6, ["6", "", ""])]
    for index in (0, 1):
        pool = [
            replace(
                t,
                verdict=None
                if index
                else replace(t.verdict, label="undecided", verifier="exact@0"),
            )
            for t in traces[index].pool
        ]
        traces[index] = replace(traces[index], pool=pool)
    return pool_folder(tmp_path / "pools", traces)


def test_pools_of_an_import_are_deliberated_and_nobody_is_asked_to_think(pools, tmp_path):
    (pools / "import.json").write_text("{}")
    out, again = tmp_path / "run", tmp_path / "again"
    with serving(lambda body: completion("\\boxed{3}", reasoning_content="so")) as server:
        command = on_pools(server, pools, out, "--price-in=1", "--price-out=1")
        done = run_command(*command)
        assert done.returncode == 1, "one problem has too few usable trajectories"
        assert "fewer than 2 usable" in done.stdout
        assert len(server.requests) == 5 * 2 and all(map(is_deliberation, server.requests))
        replayed = run_command("replay", str(out), f"--out={again}")
        assert replayed.returncode == 1
        # Nothing is lacking that could be asked again.
        repeated = run_command(*command)
        assert repeated.returncode == 2 and messages.is_in(repeated.stderr, "holds_finished_run")
        assert len(server.requests) == 10
    for name in (TRACES, "summary.json"):
        assert (out / name).read_bytes() == (again / name).read_bytes()
    for told in (done.stdout, replayed.stdout):
        assert "Judged again: 3 trajectories" in told and "Judged now: 3 trajectories" in told
    theirs, ours = list(read_traces(pools)), list(read_traces(out))
    assert [trace.problem for trace in ours] == [trace.problem for trace in theirs]
    texts = [[t.answer_text for trace in run for t in trace.pool] for run in (ours, theirs)]
    assert texts[0] == texts[1]
    assert {trace.thinker_prompt_version for trace in ours} == {"thinker.of-another"}
    labels = [[t.verdict.label for t in trace.pool if t.verdict] for trace in ours]
    assert labels[:5] == [["correct", "incorrect", "correct"]] * 5
    assert [trace.status for trace in ours] == ["ok"] * 5 + ["too_few_usable"]
    assert [trace.outcome for trace in ours[:3]] == ["overturned", "overturned", "kept"]
    usage = json.loads((out / "summary.json").read_text())["usage"]
    assert (usage["thinking"]["requests"], usage["thinking"]["cost_usd"]) == (0, 0.0)
    assert usage["deliberating"]["cost_usd"] == pytest.approx(10 * 18 / 1e6)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--pools={folder}/none"], "not the folder of a finished run"),
        (["--pools={pools}", "--thinker=micro"], "thinker has no effect with pools"),
        (
            ["--pools={pools}", "--problems=gym:gcd"],
            "problems (except problems.limit) has no effect",
        ),
        (["--pools={pools}", "--k=8"], "cache.width"),
        (["--pools={pools}", "--out={pools}"], "is not empty"),
    ],
)
def test_what_contradicts_pools_is_told_before_anything_is_done(flags, said, pools, tmp_path, call):
    before = (pools / TRACES).read_bytes()
    given = [flag.format(folder=tmp_path, pools=pools) for flag in flags]
    code, _, message = call("generate", "--deliberator=micro", f"--out={tmp_path}/run", *given)
    assert code == 2
    assert said in message and "Traceback" not in message
    assert not (tmp_path / "run").exists()
    assert (pools / TRACES).read_bytes() == before
