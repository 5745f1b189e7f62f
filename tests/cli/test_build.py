"""``heavydistill build``, ``export`` and ``import`` as a user runs them."""

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import COMMAND, proposed, run_command, started
from fake_server import completion, serving
from generations import altered
from import_files import EGGS, boxed, document, heavyskill_row, lines, nemo_row
from messages import message
from runs import STUDENT, write_run
from set_folders import write_sets

from heavydistill.cli.sets import _config_for
from heavydistill.config.run import RunConfig, dump_config
from heavydistill.models import hub_files
from heavydistill.store.sets.folder import read_manifest, read_rows
from heavydistill.store.traces import read_traces, write_traces
from heavydistill.train import script


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "sums", 30)


def test_a_run_becomes_sets_with_a_table_and_a_card(command, run, tmp_path):
    import datasets

    out = tmp_path / "sets"
    flags = ("--seed", 3, "--set", "validation=0.2", "--full")
    code, printed = command("build", run, "--out", out, *flags)
    assert code == 0
    assert "balanced mixture of sums (30 traces)" in printed
    assert f"heavydistill show {out} --tokens" in printed.replace("\\ ", "")
    train = f"heavydistill sft --config micro --role deliberator --dataset_name {out}"
    assert printed.replace("\\ ", "").endswith(f"Next: {train}")
    manifest = read_manifest(out)
    assert manifest.build["seed"] == 3
    assert manifest.guarded["sft_deliberator"] == sum(manifest.rows["sft_deliberator"].values())
    for name, splits in manifest.rows.items():
        there = datasets.load_dataset(str(out), name, cache_dir=str(tmp_path / "cache"))
        counted = {split: len(rows) for split, rows in there.items()}
        assert counted == {split: count for split, count in splits.items() if count}


def files_in(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_another_process_writes_the_same_bytes(command, run, sets, tmp_path):
    for name, verb in {
        "built": ["build", str(run)],
        "verl": ["export", str(sets), "--to=verl"],
    }.items():
        one, two = tmp_path / "one" / name, tmp_path / "two" / name
        assert command(*verb, f"--out={one}")[0] == 0
        process = started(*verb, f"--out={two}", env={**os.environ, "PYTHONHASHSEED": "1"})
        assert process.wait(800) == 0
        assert files_in(one) == files_in(two) and "README.md" in files_in(one)
    assert {"rl.yaml", "README.md"} < files_in(two).keys()


@pytest.mark.parametrize(
    ("student", "weights", "has_gpu", "config"),
    [
        ("micro-student", 0, False, "--config micro"),
        ("Qwen/Qwen3-4B", 0, True, "--config 4b-lora"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 0, True, "--config 135m"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 0, False, "--config 135m-cpu"),
        ("smol", 134_515_008, False, "--config 135m-cpu --model_name_or_path smol"),
        ("smol", 134_515_008, True, "--config 135m --model_name_or_path smol"),
        ("mine", 1_700_000_000, True, "--config 1.7b --model_name_or_path mine"),
        ("mine", 0, True, "--config 4b-lora --model_name_or_path mine"),
        ("mine", 0, False, "--model_name_or_path mine --use_cpu true --bf16 false"),
    ],
)
def test_a_training_is_proposed_that_fits_the_student_and_the_machine(
    student, weights, has_gpu, config, monkeypatch
):
    monkeypatch.setattr(hub_files, "parameters_in", lambda folder: weights)
    monkeypatch.setattr(script, "may_have_gpu", lambda: has_gpu)
    assert _config_for(student) == config.split()


def test_a_yaml_file_is_read_and_flags_win(command, run, tmp_path):
    file = tmp_path / "build.yaml"
    file.write_text("preset: agglm\nretention: 0\nvalidation: 0\n", encoding="utf-8")
    code, _ = command(
        "build", run, "--config", file, "--preset", "heavyskill", "--out", tmp_path / "s"
    )
    assert code == 0
    manifest = read_manifest(tmp_path / "s")
    assert manifest.build["preset"] == "heavyskill"
    assert manifest.retention.part == 0


@pytest.mark.parametrize(
    ("arguments", "message", "expected"),
    [
        (["--preset", "balansed"], "preset", 2),
        (["--set", "retenton=0.1"], "retention", 2),
        (["--student", "nobody"], message("no_model", model="nobody"), 2),
        (["--against", "missing.jsonl"], "missing.jsonl", 2),
        (["--set", "sets.widths=[16]"], "the pools of the runs have at most 8 trajectories", 2),
        (["--set", "max_tokens=4096"], "Set max_tokens to 2048 or less", 2),
        (["--set", "max_tokens=64"], "too_long_for_student", 2),
        (["--set", "max_tokens=64"], "No training row is left", 2),
        (["--dry-run"], "Nothing was written, and no request was sent.", 0),
    ],
)
def test_what_writes_nothing_says_why(command, run, tmp_path, arguments, message, expected):
    code, printed = command("build", run, "--out", tmp_path / "sets", *arguments)
    assert code == expected and message in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chosen", [{"label": "undecided"}, None])
def test_claims_cannot_be_checked_against_attempts_without_verdicts(command, tmp_path, chosen):
    run = write_run(tmp_path / "open", 6)
    plain = {"judged": chosen} if chosen else {"verdict": None}
    write_traces([altered(each, "pool", **plain) for each in read_traces(run)], run / "traces")
    asked = ("build", run, "--out", tmp_path / "sets")
    code, printed = command(*asked, "--set", "filters.false_claims=leave_out")
    said = " ".join(printed.split())
    assert (
        code == 2 and "filters.false_claims: the run open has no attempt with the verdict" in said
    )
    assert "heavydistill replay RUN --out FOLDER" in said and not (tmp_path / "sets").exists()
    code, printed = command(*asked)
    assert "filters.false_claims" not in printed, "only where it was asked for"


@pytest.fixture(scope="module")
def leaking(run, tmp_path_factory):
    """A run in which every third deliberation is without thinking and compares in its answer."""

    def said(number: int, one: Any) -> Any:
        leak = {"reasoning": "", "answer_text": f"{one.reasoning} {one.answer_text}"}
        return replace(one, **leak) if number % 3 == 0 else one

    folder = Path(shutil.copytree(run, tmp_path_factory.mktemp("runs") / "leaking"))
    count = itertools.count()
    traces = [
        replace(each, deliberations=[said(next(count), one) for one in each.deliberations])
        for each in read_traces(run)
    ]
    write_traces(traces, folder / "traces")
    return folder


@pytest.mark.parametrize("treatment", ["leave_out", "keep"])
def test_an_answer_that_speaks_of_attempts_is_learnt_from_only_if_asked_for(
    leaking, tmp_path, treatment
):
    out, words = tmp_path / "sets", ["--preset=natural", "--full"]
    words += [f"--set=filters.leaks_attempts={treatment}"] * (treatment == "keep")
    done = subprocess.run([COMMAND, "build", leaking, f"--out={out}", *words], capture_output=True)
    printed = " ".join(done.stdout.decode().split())
    assert done.returncode == 0, printed
    rows, manifest = list(read_rows(out, "deliberations")), read_manifest(out)
    leaks = {row["id"]: row["label"] for row in rows if row["leaks_attempts"]}
    right = sum(row["leaks_attempts"] and row["verdict"]["label"] == "correct" for row in rows)
    assert right == manifest.attention.leaks_attempts == manifest.attention.leaks_without_thinking
    assert f"speaks of attempts in {right}" in printed
    learnt = [
        row
        for split in ("train", "validation")
        for row in read_rows(out, "sft_deliberator", split)
        if row["generation"] in leaks
    ]
    said = f"{right} right deliberations without thinking speak of the attempts"
    if treatment == "keep":
        assert len(learnt) > right / 2 and said not in printed
        assert "leaks_attempts" not in manifest.deliberations
    else:
        assert right > 5 and not learnt and said in printed
        assert f"{right} leaks_attempts" in printed
        assert manifest.deliberations["leaks_attempts"] == right
        assert "speaks of the attempts" in (out / "README.md").read_text(encoding="utf-8")


def test_the_command_that_it_prints_last_shows_a_row_of_a_student_in_a_folder(
    run, tmp_path, monkeypatch, call
):
    shutil.copytree(STUDENT, tmp_path / "my models" / "mine")
    monkeypatch.chdir(tmp_path)
    built = ["build", run, "--student", "my models/mine", "--out", "new sets"]
    code, printed, _ = call(*built, "--set", "max_tokens=2048")
    assert code == 0
    code, shown, _ = call(*proposed(printed, "A row as the student sees it"))
    assert code == 0 and messages.is_in(shown, "guard_whole")
    train = proposed(printed)
    assert train[train.index("--model_name_or_path") + 1] == "my models/mine"
    assert train[-4:] == ["--role", "deliberator", "--dataset_name", "new sets"]
    code, printed, _ = call("build", run, "--out", "no validation", "--set", "validation=0")
    assert code == 0 and "No rows for validation" in printed
    assert proposed(printed)[-4:] == ["--eval_strategy", "no", "--load_best_model_at_end", "false"]
    assert "my models" not in (tmp_path / "new sets" / "manifest.json").read_text(encoding="utf-8")
    code, shown, said = call("show", "new sets", "--tokens")
    assert (code, shown) == (2, "")
    assert "The student of the sets, mine, cannot be used" in said and "--student" in said


@pytest.mark.parametrize("of", ["glm-4.6", "an import", "pools"])
def test_the_toy_student_is_for_runs_of_the_toy_teacher_alone(command, run, tmp_path, of):
    other = Path(shutil.copytree(run, tmp_path / "runs" / "other"))
    pools = {"pools": "runs/x", "pools_sha256": "0"} if of == "pools" else {"teacher": of}
    (other / "config.yaml").write_text(dump_config(RunConfig(**pools, domain="brief")))
    if of == "an import":
        (other / "config.yaml").unlink()
    out = tmp_path / "my sets"
    code, printed = command("build", run, other, "--preset", "natural", "--out", out)
    assert code == 2 and "the run other used models that are not bundled" in printed
    repeated = ["heavydistill", "build", str(run), str(other), "--preset", "natural"]
    assert printed.endswith(f"{shlex.join([*repeated, '--out', str(out)])} --student MODEL")
    assert not out.exists()
    assert command(*repeated[1:], "--out", out, "--student", "micro-student")[0] == 0
    assert read_manifest(out).student.name == "micro-student"


def test_without_runs_it_says_so_and_without_out_it_names_the_folder(
    command, run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, printed = command("build", "--out", "sets")
    assert code == 2 and "No run is given" in printed
    code, printed = command("build", run, "--dry-run")
    assert code == 0 and printed.endswith(f"Next: heavydistill build {run}")
    assert command("build", run)[0] == 0
    assert read_manifest(tmp_path / "sets" / "sums").runs[0].name == "sums"


def test_a_student_without_a_chat_template_is_refused(command, run, tmp_path):
    student = tmp_path / "student"
    student.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(STUDENT / name, student)
    code, printed = command("build", run, "--student", student, "--out", tmp_path / "sets")
    assert code == 2
    assert messages.is_in(printed, "no_chat_template")
    assert not (tmp_path / "sets").exists()


@pytest.mark.slow
def test_sets_without_a_deliberation_are_asked_about_once(command, tmp_path):
    run, sets = write_run(tmp_path / "runs" / "pools", 6, d=0), tmp_path / "sets"
    asks = ["build", run, "--teacher", "micro", "--set", "redeliberate.d=2"]
    code, printed = command(*asks, "--out", tmp_path / "dry", "--dry-run")
    assert code == 0
    assert re.search(r"Requests to micro: (\d+) of \1 deliberations on \d+ caches", printed)
    assert command(*asks, "--out", sets)[0] == 0
    (asked,) = read_manifest(sets).asked
    assert asked.model == "micro" and asked.sampling["temperature"] == 1.0
    readme = (sets / "README.md").read_text(encoding="utf-8")
    assert "| `micro` again | 2 | 1.0 | 0.95 | 10 |" in readme
    there = list(read_rows(sets, "deliberations"))
    assert len(there) == asked.deliberations == 2 * asked.sets > 0
    assert {row["cache"] for row in there} <= {row["id"] for row in read_rows(sets, "caches")}
    code, printed = command(*asks, "--out", tmp_path / "again")
    assert code == 0
    assert f"0 of {asked.deliberations:,} deliberations" in printed
    first, second = (
        json.loads((tmp_path / name / "manifest.json").read_text(encoding="utf-8"))["files"]
        for name in ("sets", "again")
    )
    assert first == second


def export(*words: object) -> subprocess.CompletedProcess[str]:
    return run_command("export", *words)


@pytest.fixture
def sets(tmp_path):
    return write_sets(tmp_path / "sets")


@pytest.mark.parametrize(
    "folder, to, out, said",
    [
        ("sets", "nemo", "out", "Names: trl"),
        ("sets", "trl", "sets", "Give another --out"),
        ("", "trl", "out", "manifest.json"),
    ],
)
def test_what_the_user_can_mend_is_said_with_the_fix(sets, tmp_path, folder, to, out, said):
    before = sorted(tmp_path.rglob("*"))
    done = export(tmp_path / folder, "--to", to, "--out", tmp_path / out)
    assert done.returncode == 2
    assert said in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def bring(call, monkeypatch):
    """Imports to a good end, and gives what is printed."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: object) -> str:
        code, printed, errors = call("import", *words)
        assert (code, errors) == (0, "")
        return str(printed)

    return run


def test_nemo_files_become_a_run_that_can_be_shown(bring, call, tmp_path):
    for seed in range(3):
        rows = [nemo_row(f"{EGGS} ({n})", 42, 42 + seed % 2) for n in range(4 - seed)]
        lines(tmp_path / f"output-rs{seed}.jsonl", *rows)
    out = tmp_path / "run"
    command = [*sorted(tmp_path.glob("*.jsonl")), "--from=nemo", f"--out={out}"]
    code, _, errors = call("import", *command)
    assert code == 2 and not out.exists()
    assert "output-rs0.jsonl:4: the problem has 1 answer" in errors
    printed = bring(*command, "--model=r1", "--set=problems.unfit=leave_out")
    assert "Left out, too_few: 1 row(s)\n  output-rs0.jsonl:4: the problem has 1 answer" in printed
    assert "Labels of the files that agree with our verdicts: 8 of 8 (100.0%)" in printed
    assert {each.model for trace in read_traces(out) for each in trace.pool} == {"r1"}
    code, printed, _ = call("show", out, "--problem=output-rs0:2")
    assert code == 0 and "model: r1" in printed


def test_labels_that_contradict_our_verdicts_are_a_table(bring, tmp_path):
    rows = [nemo_row(answer=answer, symbolic_correct=answer < 43) for answer in (42, 41, 43)]
    files = [lines(tmp_path / f"output-rs{n}.jsonl", row) for n, row in enumerate(rows)]
    out = tmp_path / "run"
    printed = bring(*files, "--from=nemo", "--license=CC BY-NC 4.0", f"--out={out}")
    assert "agree with our verdicts: 2 of 3" in printed
    table = [line.split() for line in printed.splitlines() if "labelled" in line]
    assert table == [["labelled", "right", "1", "1", "0"], ["labelled", "wrong", "0", "1", "0"]]
    assert "Answers by licence, for the cards: 3 cc-by-nc-4.0." in printed


def test_what_a_format_leaves_open_is_counted_and_said(bring, tmp_path):
    result = document(tmp_path / "result.json", heavyskill_row())
    targets = document(tmp_path / "targets.json", [{"query": EGGS, "target": "42"}])
    printed = bring(result, targets, "--from=heavyskill", f"--out={tmp_path / 'h'}")
    assert "2 summaries are left out" in printed and "3 answers have no finish reason" in printed
    assert "Labels of" not in printed
    assert f"--pools {tmp_path / 'h'}" in " ".join(printed.replace("\\\n", " ").split())


def test_worked_solutions_are_counted_and_lead_to_a_build(bring, call, tmp_path):
    rows = [
        {"problem": f"{EGGS} ({n})", "solution": rf"\boxed{{{n}}}", "answer": 1} for n in (1, 2)
    ]
    file, out = lines(tmp_path / "worked.jsonl", *rows), tmp_path / "run"
    printed = bring(file, "--from=solutions", f"--out={out}")
    assert "Solutions that the verifier accepts: 1 of 2 (50.0%)\n  worked.jsonl:2: incor" in printed
    ending = " ".join(printed.replace("\\\n", " ").split())
    assert ending.endswith(f"Next: heavydistill build {out} --student MODEL --out sets/run")
    code, _, _ = call("import", file, "--from=solutions", "--limit=1", f"--out={tmp_path / 'one'}")
    assert code == 0
    lines(file, rows[1])
    code, _, _ = call("import", file, "--from=solutions", f"--out={tmp_path / 'none'}")
    assert code == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--from=pacore"], "Give the right --from"),
        (
            ["--from=nvidia"],
            "--from: must be 'answers', 'solutions', 'batch', 'inspect', 'nemo', 'heavyskill'",
        ),
        (["--from=nemo", "--columns=text"], "Write --columns NAME=VALUE,..."),
        (["--from=nemo", "--columns=txet=a"], "Did you mean text?"),
        (["--from=nemo", "--verifier-args=[1]"], "--verifier-args '[1]' is not a mapping"),
        (["--from=nemo", "--verifier-args={"], "is not a mapping"),
        (["--from=nemo", "--verifier=exakt"], message("no_verifier", verifier="exakt")),
        (["--from=nemo", "--set=verify.wrokers=2"], "Did you mean verify.workers?"),
        (["--from=nemo", "--set=problems.unfit=drop"], "problems.unfit"),
        (["--from=nemo", "--limit=0"], "--limit: must be"),
    ],
)
def test_bad_input_says_what_to_do_and_writes_nothing(arguments, says, call, tmp_path):
    files = [lines(tmp_path / f"output-rs{seed}.jsonl", nemo_row()) for seed in range(2)]
    code, printed, errors = call("import", *files, f"--out={tmp_path / 'run'}", *arguments)
    assert code == 2 and errors.startswith("Error: ") and says in errors
    assert printed == ""
    assert sorted(tmp_path.iterdir()) == files


PLAIN = ("--from=answers", "--columns=text=q,reference=gold")


def test_a_marker_that_answers_share_is_proposed_and_the_proposal_works(bring, call, tmp_path):
    rows = [
        {"q": f"{EGGS} ({n})", "gold": str(n), "answers": [f"So.\nA: {n}", f"Or.\nA: {n + 1}"]}
        for n in range(10)
    ]
    command = [lines(tmp_path / "plain.jsonl", *rows), *PLAIN]
    code, printed, _ = call("import", *command, f"--out={tmp_path / 'raw'}", "--full")
    assert code == 1 and messages.is_in(printed, "no_answer_read") and "\nSo.\nA: 0\n" in printed
    (told,) = [line.split() for line in printed.splitlines() if line.startswith("trajectories")]
    assert told == ["trajectories", "20", "0", "0", "20", "0", "0"]
    assert messages.is_in(printed, "no_final_answer", share="100.0%", of="trajectories")
    text = " ".join(printed.split())
    assert "Of 20 that were judged with this marker, 20 give an answer and 10 are right." in text
    words = proposed(printed, "To judge by this marker")
    assert words[-2:] == ["--verifier-args", '{marker: "A:"}']
    printed = bring(*words[1:])
    assert "final answer" not in printed and "To judge by" not in printed
    marked = read_traces(tmp_path / "raw-marker")
    counts = [sum(t.is_correct for t in trace.pool) for trace in marked]
    assert counts == [1] * 10


def test_the_command_for_sets_that_an_import_prints_works_with_a_server_without_a_profile(
    bring, command, tmp_path
):
    rows = [
        {
            "q": f"{EGGS} ({n})",
            "gold": str(n),
            "answers": [f"In way {way} I get {boxed(n + max(0, way - 3))}." for way in range(8)],
        }
        for n in range(6)
    ]
    file = lines(tmp_path / "rows.jsonl", *rows)
    printed = bring(file, *PLAIN, f"--out={tmp_path / 'run'}")
    words = proposed(printed, "Training sets")
    assert words[:3] == ["build", str(tmp_path / "run"), "--redeliberate"]
    given = {"MODEL": "m", words[-1]: str(tmp_path / "sets"), "Qwen/Qwen3-4B": "micro-student"}
    words = [given.get(word, word) for word in words]

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        number = int(body["messages"][0]["content"].partition(f"{EGGS} (")[2].partition(")")[0])
        thinking = "Attempt 2 is wrong, and I agree with the others."
        return completion(boxed(number), reasoning_content=thinking)

    with serving(answer) as server:
        code, printed = command(*words, f"--endpoint={server.base_url}")
        assert (code, bool(server.requests)) == (0, True), printed
    assert "Prompts are counted with the tokenizer of the student" in printed
    assert read_manifest(tmp_path / "sets").rows["sft_deliberator"]["train"]


@pytest.mark.parametrize(
    ("form", "unanswered"),
    [(r"It is \boxed{{{}}}.", False), ("I am not sure.\nNote: look it up {}", True)],
)
def test_answers_in_boxes_or_without_a_marker_get_no_proposal(call, tmp_path, form, unanswered):
    answers = [form.format(answer) for answer in ("again", "elsewhere")]
    rows = [{"q": f"{EGGS} ({n})", "gold": "4", "answers": answers} for n in range(4)]
    file = lines(tmp_path / "rows.jsonl", *rows)
    code, printed, _ = call("import", file, *PLAIN, f"--out={tmp_path / 'run'}")
    assert code == unanswered
    assert "To judge by" not in printed
    assert (messages.is_in(printed, "no_final_answer")) == unanswered


VERIFIER = """
from heavydistill.verifiers.base import Decision, Verifier

class Parity(Verifier):
    name, version = "parity", "1"

    def extract(self, problem, text):
        return text

    def decide(self, problem, candidate):
        {decides}
"""


@pytest.mark.parametrize(
    ("decides", "returncode", "says"),
    [
        (
            "raise RuntimeError('boom in /home/me/x.py')",
            1,
            "parity@1 raised RuntimeError: boom in x.py at parity.py:11 on all 4 answers. Correct "
            "it, then repeat the command with another --out: no request is sent again.",
        ),
        ("return Decision('undecided', 'too_complex')", 1, "(4 too_complex)"),
        (
            "return Decision('correct' if '7' in candidate else 1 / 0, 'seen')",
            0,
            "parity@1 raised ZeroDivisionError: division by zero at parity.py:11 on 2 of 4 answers",
        ),
    ],
)
def test_a_verifier_that_fails_is_named_with_its_error(tmp_path, decides, returncode, says):
    (tmp_path / "parity.py").write_text(VERIFIER.format(decides=decides), encoding="utf-8")
    rows = ({"text": f"Name {n}.", "reference": "2", "answers": ["7", "8"]} for n in "12")
    file = lines(tmp_path / "a.jsonl", *rows)
    words = ["import", file, "--from=answers", "--model=m", f"--out={tmp_path / 'run'}"]
    own = f"--set=verify.own=[{tmp_path / 'parity.py'}]"
    done = run_command(*words, "--verifier=parity", own, "--set=verify.workers=1")
    printed = " ".join(done.stdout.split())
    assert done.returncode == returncode and says in printed, done
    unjudged = "No answer could be judged, so nothing was measured Undecided: 4 of 4 trajectories"
    assert (unjudged in printed) == bool(returncode)


def test_problems_that_are_all_in_a_benchmark_are_told_before_anything_is_asked(tmp_path):
    texts = [
        "Name three rivers of Europe, in all lower case and in exactly four sentences.",
        "Which rivers flow through Vienna, Ulm and Bonn, and which of them is the longest one?",
    ]
    exam = lines(tmp_path / "exam.jsonl", *({"text": text} for text in texts))
    answers = [r"\boxed{2}", r"\boxed{3}"]
    rows = ({"text": text, "reference": "2", "answers": answers} for text in texts)
    file = lines(tmp_path / "a.jsonl", *rows)
    words = ["import", file, "--from=answers", "--model=m", f"--out={tmp_path / 'run'}"]
    assert run_command(*words, "--verifier=exact").returncode == 0
    words = ["build", tmp_path / "run", "--redeliberate", "--teacher=micro", f"--against={exam}"]
    done = run_command(*words, "--student=micro-student", f"--out={tmp_path / 'sets'}")
    assert (done.returncode, " ".join(done.stderr.split())) == (
        2,
        "Error: All 2 problems occur in exam. Give other problems, or --against FILE to compare "
        "with your own file instead.",
    )
    assert "Requests to" not in done.stdout and not (tmp_path / "sets").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["generate", "--api-key", "sk-123"], "The key is read from OPENAI_API_KEY (endpoint.api_"),
        (["generate", "--endpoint=openai", "--teacher=m"], "or https://api.openai.com/v1, or one"),
        (["build", "sets"], message("no_finished_run", folder="sets") + ": it holds sets."),
        (["generate", "--problems=sets"], "It holds sets, which are trained on. Give micro, a"),
        (["generate", "--problems=broken.jsonl"], message("line_no_json", place="broken.jsonl:2")),
    ],
)
def test_what_a_newcomer_gives_by_mistake_is_told_with_what_to_give(tmp_path, words, says):
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "manifest.json").write_text("{}", encoding="utf-8")
    row = '{"text": "a", "reference": "1"}'
    (tmp_path / "broken.jsonl").write_text(f'{row}\n{{"text": "a" "b"}}\n', encoding="utf-8")
    done = run_command(*words, cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert done.returncode == 2 and says in said, done
    assert "sk-123" not in said and "manifest.json" not in said and "line 1" not in said
