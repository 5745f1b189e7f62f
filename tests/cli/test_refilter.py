"""``heavydistill refilter`` as a user runs it, over real HTTP and with the bundled micro model."""

import os
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import messages
import pytest
from asked_caches import MICRO, pairs, write_caches
from command_line import run_command
from fake_server import FakeServer, completion, serving
from messages import message

from heavydistill.models.ledger import Ledger
from heavydistill.schema import from_row
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    Writer,
    read_manifest,
    read_rows,
    splits_of,
    write_manifest,
)
from heavydistill.store.sets.set_rows import CacheRow, ProblemRow, RlRow

LABELS = ["", "always_right", "unmeasured", "never_right", "too_long", ""] * 4
ASKED = [n for n, label in enumerate(LABELS) if label != "too_long"]
D = 4


class Pupil:
    """A server's answers: of problem n, n modulo 5 of four deliberations are right."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.asked: Counter[str] = Counter()
        self._numbers = {cache.prompt: n for n, (_, cache) in enumerate(pairs(len(LABELS)))}
        self._references = [problem.reference for problem, _ in pairs(len(LABELS))]
        self._lock = threading.Lock()

    def place(self, body: dict[str, Any]) -> tuple[int, int]:
        """Number of the prompt, and how often it was asked before."""
        prompt = body["messages"][0]["content"]
        with self._lock:
            count = self.asked[prompt]
            self.asked[prompt] += 1
        return self._numbers[prompt], count

    def answer(self, body: dict[str, Any]) -> Any:
        number, count = self.place(body)
        time.sleep(self.seconds)
        right = count % D < number % 5
        return completion(f"\\boxed{{{self._references[number] if right else 9999}}}")


def expected(number: int) -> tuple[float, str]:
    share = min(number % 5, D) / D
    return share, {0: "never_right", 1: "always_right"}.get(share, "")


def arguments(server: FakeServer, sets: Path, out: Path, **flags: object) -> list[str]:
    chosen = {"d": D, **flags}
    return [
        *("refilter", str(sets), "--checkpoint=served", f"--out={out}"),
        *(f"--endpoint={server.base_url}", "--set=endpoint.retries=0"),
        *("--set=endpoint.concurrency=4", "--set=verify.workers=1"),
        *(f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()),
    ]


def run(*command: str, code: int = 0) -> str:
    """What the command prints, run in this process, where transformers is loaded already."""
    done = run_command(*command)
    printed = done.stdout + done.stderr
    assert done.returncode == code, printed
    return printed


def rows(folder: Path, kind: Any, name: str, split: str = "train") -> list[Any]:
    return [from_row(kind, row) for row in read_rows(folder, name, split)]


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    return write_caches(tmp_path_factory.mktemp("built") / "sets", LABELS)


def test_prompts_that_the_checkpoint_gets_right_sometimes_are_the_new_set(sets, tmp_path):
    out = tmp_path / "new"
    with serving(Pupil().answer) as server:
        printed = run(*arguments(server, sets, out))
        assert len(server.requests) == len(ASKED) * D
    assert "minority-right" in printed and str(out) in printed
    caches, before = rows(out, CacheRow, "caches"), rows(sets, CacheRow, "caches")
    assert [cache.id for cache in caches] == [cache.id for cache in before]
    for number, cache in enumerate(caches):
        if number in ASKED:
            assert (cache.success, cache.rl_label) == expected(number) and cache.judged == D
        else:
            assert cache == before[number]
    problems = {row.id: row for row in rows(out, ProblemRow, "problems")}
    assert list(problems.values()) == rows(sets, ProblemRow, "problems")
    kept = {cache.id: cache for cache in caches if cache.rl_label == ""}
    prompts = {split: rows(out, RlRow, "rl", split) for split in splits_of(out, "rl")}
    assert prompts.keys() == {"train", "validation"}
    for split, those in prompts.items():
        for row in those:
            cache, problem = kept.pop(row.cache), problems[row.problem]
            assert problem.split == split and row.reference == problem.reference
            assert row.prompt[0].content == cache.prompt and row.success == cache.success
            assert (row.width, row.right, row.stratum) == (2, 1, cache.stratum)
            assert row.attempts == cache.attempts and len(row.attempts) == 2
            assert row.measured_on == "served" and row.prompt_tokens > cache.prompt_tokens
    assert not kept
    old, new = read_manifest(sets), read_manifest(out)
    assert "selected for the checkpoint `served`" in (out / "README.md").read_text(encoding="utf-8")
    labels = Counter(cache.rl_label for cache in caches)
    done = new.refiltered
    assert done and (done.checkpoint, done.d, done.caches) == ("served", D, len(ASKED))
    assert (done.kept, done.always_right, done.never_right, done.unmeasured) == (
        labels[""],
        labels["always_right"],
        labels["never_right"],
        0,
    )
    assert (done.deliberations, done.failed, done.cut_off) == (len(ASKED) * D, 0, 0)
    assert sum(new.rows["rl"].values()) == labels[""] == sum(s.rl for s in new.strata.values())
    assert new.rows.keys() == {"rl"} and new.tokens.keys() == {"rl"}
    assert (new.runs, new.student, new.problems) == (old.runs, old.student, old.problems)
    # It can be refiltered again, by a later checkpoint.
    with serving(Pupil().answer) as server:
        run(*arguments(server, out, tmp_path / "newer", seed=1))
    assert rows(tmp_path / "newer", RlRow, "rl") == rows(out, RlRow, "rl")


def test_what_is_undecided_is_not_measured(sets, tmp_path):
    def mumbling(body: dict[str, Any]) -> Any:
        number, count = pupil.place(body)
        is_decided = count < number % D
        return completion("\\boxed{5}" if is_decided else "so", "stop" if is_decided else "length")

    def half(body: dict[str, Any]) -> Any:
        return pupil.answer(body) if body["messages"][0]["content"] in few else mumbling(body)

    pupil, few = Pupil(), {cache.prompt for _, cache in pairs(len(LABELS))[1:4]}
    with serving(half) as server:
        run(*arguments(server, sets, tmp_path / "new"))
    for cache in rows(tmp_path / "new", CacheRow, "caches"):
        if cache.rl_label != "too_long":
            assert cache.judged < D or cache.prompt in few
            assert (cache.rl_label == "unmeasured") == (cache.judged < 2)
    done = read_manifest(tmp_path / "new").refiltered
    assert done and done.cut_off > 0 and done.unmeasured > 0


def test_a_dry_run_tells_what_it_takes_and_asks_nobody(sets, tmp_path):
    with serving(Pupil().answer) as server:
        command = arguments(server, sets, tmp_path / "new", price_in=1, price_out=2)
        printed = run(*command, "--dry-run")
        assert not server.requests and not list(tmp_path.iterdir())
        total = len(ASKED) * D
        assert f"{total} of {total} deliberations on {len(ASKED)} caches" in printed
        assert "USD" in printed
        run(*command)
        left = run(*command, f"--out={tmp_path / 'other'}", "--dry-run")
        assert f"0 of {total} deliberations" in left and f"{total} are in the journal" in left


@pytest.mark.parametrize(
    ("always", "message", "mends"),
    [(True, "20 are always right", "harder"), (False, "20 are never right", "sft_deliberator")],
)
def test_no_prompt_that_is_left_is_an_error_that_says_why(sets, tmp_path, always, message, mends):
    references = {cache.prompt: problem.reference for problem, cache in pairs(len(LABELS))}

    def answer(body: dict[str, Any]) -> Any:
        right = references[body["messages"][0]["content"]]
        return completion(f"\\boxed{{{right if always else 9999}}}")

    with serving(answer) as server:
        told = run(*arguments(server, sets, tmp_path / "new"), code=2)
    assert "No prompt is left for served" in told and message in told and mends in told
    assert os.listdir(tmp_path) == ["journal"]


def test_the_budget_holds_over_resumptions(sets, tmp_path):
    with serving(Pupil().answer) as server:
        command = arguments(server, sets, tmp_path / "new")
        few = "--set=sampling.max_tokens=40"
        told = run(*command, few, "--budget=2ktok", code=1)
        paid = len(server.requests)
        assert messages.is_in(told, "budget_used_up") and 0 < paid * 18 <= 2000
        assert not (tmp_path / "new").exists()
        run(*command, few, "--budget=1Mtok")
        assert len(server.requests) == len(ASKED) * D
    (account,) = (tmp_path / "journal").glob("*.ledger")
    assert Ledger(account).balance.spent_tokens == 18 * len(ASKED) * D


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--set=endpoint.start_vllm=true", "--set=endpoint.base_url=null"], "Start it yourself"),
        (["--set=d=1"], message("below_least", key="--d", least=2)),
        (["--set=think.k=3"], "unknown key think"),
        (["--set=sampling.max_tokens=2000"], "e.g. --set sampling.max_tokens="),
        (["--out={sets}"], "not empty"),
        (["--checkpoint=micri"], "Did you mean micro"),
        (["--budget=1usd"], "run in this process"),
        (["--student=nobody"], message("no_model", model="nobody")),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_asked(sets, tmp_path, flags, message):
    flags = [flag.format(sets=sets) for flag in flags]
    command = ["refilter", str(sets), "--checkpoint=micro", f"--out={tmp_path / 'new'}"]
    told = run(*command, *flags, code=2)
    assert message in told and "Traceback" not in told
    assert not list(tmp_path.iterdir())


def test_sets_of_an_unknown_verifier_and_a_folder_without_sets_are_refused(tmp_path):
    told = run("refilter", str(tmp_path), "--checkpoint=micro", "--out=new", code=2)
    assert messages.is_in(told, "holds_no_sets")
    sets = write_caches(tmp_path / "sets", LABELS[:2])
    path = sets / "problems" / "train-00000-of-00001.parquet"
    changed = [{**row, "verifier": "parity"} for row in read_rows(sets, "problems")]
    path.unlink()
    writer = Writer(path, ProblemRow)
    for row in changed:
        writer.write(from_row(ProblemRow, row))
    writer.close()
    told = run("refilter", str(sets), "--checkpoint=micro", "--out=new", code=2)
    assert "verifier 'parity'" in told and "verify.own" in told


def test_a_checkpoint_that_would_be_asked_in_another_template_is_told(sets, tmp_path):
    changed = "<s>" + (Path(MICRO) / CHAT_TEMPLATE).read_text()
    mended = shutil.copytree(sets, tmp_path / "mended")
    (mended / CHAT_TEMPLATE).write_text(changed)
    shutil.copytree(MICRO, tmp_path / "checkpoint-7")
    local = ["refilter", str(mended), f"--checkpoint={tmp_path}/checkpoint-7", "--dry-run"]
    told = " ".join(run(*local, f"--out={tmp_path}/new").split())
    assert "another chat template" in told
    assert f"Copy {mended / CHAT_TEMPLATE} into its folder" in told
    (tmp_path / "checkpoint-7" / CHAT_TEMPLATE).write_text(changed)
    assert "template" not in run(*local, f"--out={tmp_path}/new")
    local[1] = str(sets)
    assert "Use one of that student" in run(*local, f"--out={tmp_path}/new")
    with serving(Pupil().answer) as server:
        told = run(*arguments(server, mended, tmp_path / "new"), "--dry-run")
        assert f"chat template of the sets, {mended / CHAT_TEMPLATE}" in " ".join(told.split())
        assert "template" not in run(*arguments(server, sets, tmp_path / "new"), "--dry-run")


def test_a_student_that_is_elsewhere_is_asked_for(sets, tmp_path):
    moved = shutil.copytree(sets, tmp_path / "moved")
    manifest = read_manifest(moved)
    student = manifest.student.model_copy(update={"name": "gone"})
    write_manifest(manifest.model_copy(update={"student": student}), moved)
    asked = ["refilter", str(moved), f"--checkpoint={MICRO}", "--dry-run"]
    asked += [f"--out={tmp_path}/new"]
    assert "Give its folder or Hub id with --student" in run(*asked, code=2)
    run(*asked, f"--student={MICRO}")


def test_a_checkpoint_of_the_micro_model_refilters_for_real(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # seeds depend on the name of the checkpoint
    write_caches(Path("sets"), [""] * 12)
    shutil.copytree(MICRO, "out/checkpoint-7")
    command = ["refilter", "sets", "--checkpoint=out/checkpoint-7", "--d=4"]
    assert "RL prompts: " in run(*command, "--out=new")
    prompts = [
        row
        for split in splits_of(Path("new"), "rl")
        for row in rows(Path("new"), RlRow, "rl", split)
    ]
    assert prompts and all(0 < row.success < 1 for row in prompts)
    assert {row.measured_on for row in prompts} == {"checkpoint-7"}
    done = read_manifest(Path("new")).refiltered
    assert done and done.checkpoint == "checkpoint-7" and done.revision
