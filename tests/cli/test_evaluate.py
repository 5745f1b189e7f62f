"""``heavydistill evaluate``, ``cross`` and ``compare`` as a user runs them."""

import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import MICRO, run_command, served, started
from fake_server import Answer, completion, serving
from marked import eventually
from problem_files import doubles
from runs import write_run

from heavydistill.config.run import load_config
from heavydistill.metrics.comparison import COMPARISON, Comparison, read_comparison
from heavydistill.metrics.controls import CONTROLS, read_controlled
from heavydistill.metrics.summary import summarize
from heavydistill.store.traces import read_traces


def arguments(model: Path, *more: str) -> list[str]:
    named = [f"--thinker={model}", f"--deliberator={model}", "--before=micro-student"]
    return ["evaluate", *named, *SIZES, f"--out={model / 'evaluation'}", *more]


def ended(*words: str, code: int = 0) -> tuple[str, str]:
    """(output, errors) of a command."""
    done = run_command(*words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


SIZES = ("--limit=6", "--k=4", "--d=2")


@pytest.fixture
def model(tmp_path):
    """A checkpoint as training leaves one: a folder without a profile."""
    return Path(shutil.copytree(MICRO, tmp_path / "trained"))


@pytest.mark.slow
def test_a_trained_model_is_shown_beside_its_base(model):
    printed, _ = ended(*arguments(model), "--full")
    folder = model / "evaluation"
    told = read_comparison(folder / COMPARISON)
    assert (told.problems, told.after.summary.k, told.after.summary.d) == (6, 4, 2)
    assert told.before and told.before.thinker and told.after.thinker
    assert (told.before.thinker.name, told.after.thinker.name) == ("micro-student", "trained")
    for which in ("before", "after"):
        traces = list(read_traces(folder / which))
        summary = summarize(traces)
        assert getattr(told.mean_at_k, which) == summary.mean_at_k
        assert getattr(told.heavy_mean_at_d, which) == summary.heavy_mean_at_d
        assert getattr(told, which).summary.curve == summary.curve
        # Both were asked in the wording that the base knows, and no longer than it can.
        assert all("brief" in trace.thinker_prompt_version for trace in traces)
        assert max(t.completion_tokens for trace in traces for t in trace.pool) <= 192
    assert "M@4" in printed and "the thinker's own pass@1" in printed
    assert "Thinker" in printed and "micro-student" in printed
    # Its two runs are runs as any others.
    ended("compare", str(folder / "before"), str(folder / "after"))
    assert str(folder) in printed.replace("\n", "")
    assert {path.name for path in model.iterdir() if path.name.startswith(".")} == set()


def test_a_dry_run_shows_both_runs_and_writes_nothing(model):
    there = sorted(model.parent.rglob("*"))
    printed = " ".join(ended(*arguments(model, "--dry-run"))[0].split())
    assert "plan: before" in printed and "K=4 trajectories by micro-student" in printed
    assert "plan: after" in printed and "run:" not in printed
    assert sorted(model.parent.rglob("*")) == there


def test_the_bundled_teacher_takes_no_role_without_a_word(model):
    given = ["evaluate", f"--thinker={model}", "--limit=6"]
    _, said = ended(*given, code=2)
    assert "No model is given as deliberator" in said and "--before BASE" in said
    assert said.endswith(f"The command: heavydistill {' '.join(given)} --deliberator MODEL\n")
    assert list(model.parent.iterdir()) == [model]


def test_what_can_be_mended_is_an_error_of_the_user(model):
    same = ended("evaluate", "--before=micro-student", code=2)[1]
    assert "compared with itself" in same
    (model / "evaluation").mkdir()
    (model / "evaluation" / "mine.txt").touch()
    assert messages.is_in(ended(*arguments(model), code=2)[1], "out_not_empty")
    assert not (model / "journal").exists()


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_broken_off_goes_on_from_the_journal(model, by):
    finished = model / ".evaluation.unfinished" / "new" / "before" / "summary.json"
    process = started(*arguments(model))
    assert eventually(lambda: finished.exists() or process.poll() is not None, 600)
    assert finished.exists()
    if by == signal.SIGTERM:
        time.sleep(1)  # in the midst of the second run
        process.terminate()
    else:
        os.killpg(process.pid, by)
    printed, _ = process.communicate(timeout=300)
    assert not (model / "evaluation").exists()
    if by == signal.SIGTERM:
        assert process.returncode == 130 and messages.is_in(printed, "same_command_goes_on")
        assert not finished.parents[2].exists()
    again, _ = ended(*arguments(model))
    before = again.partition("run: before")[2].partition("run: after")[0]
    assert "24 of 24 in thinking; 12 of 12 in deliberating" in " ".join(before.split())
    assert sorted(os.listdir(model / "evaluation")) == ["after", "before", COMPARISON, "frozen"]
    assert not finished.parents[2].exists()


def test_requests_that_failed_count_as_wrong_and_are_said(tmp_path):
    """The first problem is refused of the second model; the models are those of a server."""

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["model"] == "adapter" and "What is 1 + 1?" in body["messages"][0]["content"]:
            return 400, {"error": {"message": "refused"}}
        return completion(r"\boxed{4}", reasoning_content="two and two")

    problems, out = doubles(tmp_path, 2), tmp_path / "x"
    with serving(answer) as server:
        flags = served(server.base_url, "--teacher=adapter", "--before=base", f"--out={out}")
        flags += [f"--problems={problems}", "--k=2", "--d=1", "--set=endpoint.retries=0"]
        printed = " ".join(ended("evaluate", *flags, code=1)[0].split())
    told: Comparison = read_comparison(out / COMPARISON)
    assert told.problems == 2 and told.mean_at_k.after.mean == 0.5
    assert told.after.summary.trajectories.failed == 2
    assert told.before and told.before.summary.trajectories.failed == 0
    assert told.config["problems"]["source"] == "problems.jsonl"
    assert server.base_url not in (out / COMPARISON).read_text()
    assert "Run after: 2 request(s) and 0 row(s) failed, and count as wrong" in printed


@pytest.fixture
def runs(tmp_path):
    """Two runs on the same problems, asked alike."""
    first = write_run(tmp_path / "a", 40, k=4)
    second = write_run(tmp_path / "b", 40, k=4, thinker="other", words=20)
    return str(first), str(second)


def test_what_cannot_be_compared_ends_with_2_and_writes_nothing(runs, tmp_path, call):
    fewer, file = str(write_run(tmp_path / "c", 39, k=4)), tmp_path / "x.json"
    code, out, err = call("compare", runs[0], fewer, f"--json={file}")
    assert (code, out) == (2, "") and "arguments there: sum:39" in " ".join(err.split())
    assert not file.exists()
    code, _, err = call("compare", runs[0], str(tmp_path))
    assert code == 2 and messages.is_in(err, "no_finished_run")


@pytest.mark.parametrize("flag", ["--markdown", "--json"])
def test_a_file_that_cannot_be_is_refused_before_anything_is_read(tmp_path, call, flag):
    for file in (tmp_path, tmp_path / "nowhere" / "x"):
        code, _, err = call("compare", "a", "b", f"{flag}={file}")
        assert code == 2 and f"{flag}: {file} cannot be written as a file" in err


def answer(body: dict[str, Any]) -> Answer:
    """Models that think of an attempt by chance, and read caches each in its own way.

    As a chooser a model names the attempt that is right, if there is one; as a deliberator the one
    called ``first`` takes over what stands first, and any other one finds out what is right.
    """
    prompt = body["messages"][0]["content"]
    right = int(prompt.partition("What is ")[2].partition(" ")[0]) * 2
    attempts = prompt.split("==== Attempt ")[1:]
    if "Which attempt is the best" in prompt:
        named = [each for each in attempts if f"{{{right}}}" in each]
        return completion(rf"\boxed{{{named[0].split()[0]}}}" if named else "none of them")
    if attempts:
        first = attempts[0].partition("boxed{")[2].partition("}")[0]
        return completion(rf"\boxed{{{first if body['model'] == 'first' else right}}}")
    return completion(rf"\boxed{{{right + body['seed'] % 2}}}")


@pytest.fixture
def problems(tmp_path):
    return doubles(tmp_path, 12)


def measured(verb: str, url: str, problems: Path, *more: str, code: int = 0) -> tuple[str, str]:
    """(output with single spaces, errors)"""
    asked = [f"--endpoint={url}", f"--tokenizer={MICRO}", f"--problems={problems}", "--seed=3"]
    sizes = ["--k=3", "--d=2", "--set=cache.budget_tokens=900", "--set=endpoint.context=2048"]
    lengths = ["--set=think.sampling.max_tokens=64", "--set=deliberate.sampling.max_tokens=64"]
    printed, errors = ended(verb, *asked, *sizes, *lengths, *more, code=code)
    return " ".join(printed.split()), errors


def test_an_evaluation_is_held_against_its_controls(problems, tmp_path, call):
    out = tmp_path / "x"
    asked = ["--teacher=first", "--controls=all", "--orders=3", f"--out={out}"]
    with serving(answer) as server:
        printed, _ = measured("evaluate", server.base_url, problems, *asked)
    told = read_controlled(out / CONTROLS)
    names = ["alone", "chain", "choose", "garbled", "foreign", "empty", "answers", "steps"]
    assert [control.name for control in told.controls] == names
    alone, chain, choose, *others = (control.answering for control in told.controls)
    assert all(each.samples == 24 for each in (alone, chain, choose, *others))
    (other,) = told.unreported
    assert {told.controls[0].wording, other.wording} == {"thinker", "deliberator"}
    assert other.answering.accuracy.mean <= alone.accuracy.mean
    assert "the context of first 2,048" in told.not_asked["skill"] and told.attempt
    assert told.attempt.answering.tokens == 7 and "skill not asked" in printed
    assert told.heavy.tokens == 3 * 7 + 7 and alone.tokens == chain.tokens == 7

    # The tables are those of the evaluated run, and not of a control.
    figures = re.search(r"M@3 .* HP@2 [\d.]+%", printed)
    assert figures and figures[0] in " ".join(call("show", str(out))[1].split())

    # Whoever can name the right attempt is right whenever there is one.
    pools = {trace.problem.id: trace.pool for trace in read_traces(out / "after")}
    found = [any(one.is_correct for one in pool) for pool in pools.values()]
    assert 0 < sum(found) < len(found)
    assert choose.accuracy.mean == pytest.approx(sum(found) / len(found))
    assert choose.without_answer == 2 * (len(found) - sum(found))
    for trace in read_traces(out / "choose"):
        assert trace.pool == pools[trace.problem.id]
        assert all("boxed" in one.reasoning for one in trace.deliberations if one.is_correct)

    # Whoever takes over what stands first does something else in every other order.
    assert told.orders and told.orders.within and told.orders.within.mean == 0
    caches = [list(read_traces(out / name)) for name in ("after", "order-1", "order-2")]
    for orders in zip(*caches, strict=True):
        shown = [[item.generation for item in trace.caches[0].items] for trace in orders]
        assert shown[1] == [*shown[0][1:], shown[0][0]] and shown[2] == [*shown[1][1:], shown[1][0]]
    assert told.orders.flips and told.orders.flips.mean > 0
    assert load_config(out / "order-1" / "config.yaml").pools == str(out / "after")
    assert "3 orders of the same attempts" in printed and "Heavy adds" in printed
    assert "first answers alone, with the thinker's prompt, 2 times" in printed

    # Whoever takes over what stands first is wrong if nothing that stands is right.
    assert told.worth and told.worth.is_shown and told.worth.problems == 12
    assert [each.accuracy.mean for each in others] == [0, 0, 0, told.heavy.accuracy.mean, 0]
    # Of all controls, those that are not possible here are left out and said.
    assert "no pool without failed attempts" in told.not_asked["planted"] and not told.planted
    assert "Not asked (planted): The control planted-" in printed
    for name in ("garbled", "foreign"):
        for own, other in zip(read_traces(out / "after"), read_traces(out / name), strict=True):
            places = [one.id for one in own.pool]
            shown = [places.index(item.generation) for item in own.caches[0].items]
            ids = [item.generation for item in other.caches[0].items]
            assert ids == [other.pool[place].id for place in shown]
            assert all(one.verdict and not one.is_correct for one in other.pool)
    assert told.falls and told.falls.after.mean == 0 and told.rises is None
    assert "No right attempt could be put in: sample more attempts than a cache shows" in printed
    assert 0 < len(list(read_traces(out / "transplant"))) == told.falls.problems < 12


def test_a_control_that_is_not_possible_ends_with_2_before_it_is_asked(problems, tmp_path):
    """Here no attempt has a final answer."""
    asked = ["--teacher=mute", "--limit=3", "--controls=alone,garbled", f"--out={tmp_path / 'x'}"]
    with serving(lambda body: completion("I do not know.")) as server:
        _, errors = measured("evaluate", server.base_url, problems, *asked, code=2)
        assert len(server.requests) == 3 * (3 + 2)
        told = " ".join(errors.split())
        garbled = {"control": "garbled", "run": "after", "cost": "no request is sent twice"}
        assert messages.is_in(told, "control_not_possible", **garbled)
        assert not (tmp_path / "x").exists()
        asked[2] = "--controls=alone"
        printed, _ = measured("evaluate", server.base_url, problems, *asked, code=1)
        assert messages.is_in(printed, "no_answer_read") and "I do not know." in printed
        # With the thinker's prompt and sampling the answers are attempts that it has.
        assert len(server.requests) == 3 * (3 + 2) + 3 * 2


def test_a_run_may_be_of_trajectories_alone(problems, tmp_path):
    first = tmp_path / "first"
    with serving(answer) as server:
        asked = "--teacher=other", "--d=0", f"--out={first}"
        printed, _ = measured("generate", server.base_url, problems, *asked)
        assert "no deliberations" in printed and "HM@" not in printed
        assert len(server.requests) == 36
    traces = list(read_traces(first))
    assert all(not trace.caches and not trace.deliberations for trace in traces)
    assert all(trace.stratum and len(trace.pool) == 3 for trace in traces)


def test_a_crossing_is_announced_with_the_names_of_its_models(problems, tmp_path):
    """Square brackets are those of a name, which is not read as markup."""
    asked = ["--thinkers=x[v1],x[v2]", "--deliberators=r[v2]", f"--out={tmp_path / 'x'}"]
    printed, _ = measured("cross", "http://localhost:9/v1", problems, *asked, "--dry-run")
    assert "plan: x[v1] " in printed and "plan: x[v2] " in printed
