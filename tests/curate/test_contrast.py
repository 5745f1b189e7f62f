"""Pairs, labelled responses and critiques: what stands on which side, and how much of it."""

import functools
import io
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import messages
import pytest
from generations import deliberation, problem
from rich.console import Console
from runs import build, rows, traces, write_run

from heavydistill.chat.guard import guard, sides_of
from heavydistill.chat.student import Student
from heavydistill.curate.build_state import GenerationNote
from heavydistill.curate.contrast import ContrastRows, Responses
from heavydistill.curate.set_writer import sft_row
from heavydistill.report.sets import print_manifest
from heavydistill.schema import Trace
from heavydistill.store.sets.folder import TRAINED, Manifest, read_manifest
from heavydistill.store.sets.set_rows import USED
from heavydistill.store.traces import TRACES_FOLDER, write_traces

ROLES = {"deliberator": "deliberations", "thinker": "trajectories"}
ALL = ["preferences", "unpaired", "critiques"]


@functools.cache
def student() -> Student:
    return Student("micro-student")


def with_false_claims(trace: Trace) -> Trace:
    """The first right deliberation says the opposite of the verdict on the first attempt."""
    ids = [item.generation for item in trace.caches[0].items]
    (first,) = (each for each in trace.pool if each.id == ids[0])
    claim = f"Attempt 1 is {'wrong' if first.is_correct else 'right'}."
    changed = next((each for each in trace.deliberations if each.is_correct), None)
    return replace(
        trace,
        deliberations=[
            replace(each, reasoning=f"{each.reasoning}. {claim}") if each is changed else each
            for each in trace.deliberations
        ],
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("runs") / "run", 0)
    write_traces(map(with_false_claims, traces(25, d=4)), folder / TRACES_FOLDER)
    return folder


@pytest.fixture(scope="module")
def sets(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sets") / "sets"
    build(out, run, validation=0.2, preset="natural", also=ALL)
    return out


def views(sets: Path, role: str) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in rows(sets, ROLES[role])}


def test_a_pair_prefers_a_row_for_sft_to_a_wrong_or_untrue_response_to_its_prompt(sets):
    found = Counter()
    for role in ROLES:
        view = views(sets, role)
        learnt = {row["generation"]: row for row in rows(sets, f"sft_{role}")}
        for row in rows(sets, f"preferences_{role}"):
            chosen, rejected = view.get(row["generation"]), view.get(row["rejected_generation"])
            if row["role"] != role:  # a plain problem of the deliberator
                continue
            assert row["prompt"] == learnt[row["generation"]]["prompt"]
            assert row["chosen"] == learnt[row["generation"]]["completion"]
            assert row["rejected"][0]["content"] == rejected["answer_text"]
            assert chosen["problem"] == rejected["problem"] == row["problem"]
            assert chosen.get("cache") == rejected.get("cache") == (row["cache"] or None)
            assert chosen["verdict"]["label"] == "correct"
            false_claims = rejected.get("false_claims", 0)
            assert (rejected["verdict"]["label"], false_claims > 0) == (
                ("correct", True) if row["kind"] == "false_claim" else ("incorrect", False)
            )
            found[role, row["kind"]] += 1
    assert found["thinker", "wrong"] and not found["thinker", "false_claim"]
    assert found["deliberator", "wrong"] and found["deliberator", "false_claim"]
    counted = read_manifest(sets).pairs
    assert found == {
        (role, kind): n for role in ROLES for kind in ("wrong", "false_claim")
        if (n := getattr(counted[role], kind))
    }  # fmt: skip


def test_no_response_is_in_two_pairs_and_what_has_no_partner_is_counted(sets):
    for role, counts in read_manifest(sets).pairs.items():
        pairs = [row for row in rows(sets, f"preferences_{role}") if row["role"] == role]
        ids = [row[key] for row in pairs for key in ("generation", "rejected_generation")]
        assert len(ids) == len(set(ids))
        right = [row for row in rows(sets, f"sft_{role}") if row["role"] == role]
        assert counts.alone == len(right) - len(pairs) and counts.unfit == 0
        ratios = [row["length_ratio"] for row in pairs]
        assert counts.length_ratio == pytest.approx(median(ratios), abs=1e-3)
        assert 0.7 < counts.length_ratio < 1.3


def test_both_sides_of_a_pair_are_learnt_whole_and_their_lengths_are_said(sets):
    chat = student().chat
    for role in ROLES:
        for row in rows(sets, f"preferences_{role}"):
            assert guard(chat, [row], row["prompt_tokens"] + row["completion_tokens"]) == []
            sides = [chat.tokens(side["prompt"], side["completion"]) for side in sides_of(row)]
            lengths = [len(tokens.completion) for tokens in sides]
            assert row["length_ratio"] == pytest.approx(lengths[0] / lengths[1])
            assert row["completion_tokens"] == max(lengths)
            assert row["prompt_tokens"] == len(sides[0].prompt) == len(sides[1].prompt)
    assert read_manifest(sets).guarded.keys() == {
        name for name in read_manifest(sets).rows if name != "rl"
    }


def test_a_damaged_side_of_a_pair_does_not_pass_the_guard(sets):
    row = rows(sets, "preferences_thinker")[0]
    chat, most = student().chat, 2048
    row["rejected"][0]["content"] += "</think>"
    assert {fault.generation for fault in guard(chat, [row], most)} == {row["rejected_generation"]}


def test_further_sets_keep_the_split_and_the_share_of_plain_problems(sets):
    split_of = {row["id"]: row["split"] for row in rows(sets, "problems")}
    manifest = read_manifest(sets)
    for name in manifest.rows.keys() - {*TRAINED}:
        for split in ("train", "validation"):
            found = rows(sets, name, split)
            assert len(found) == manifest.rows[name][split] > 0
            assert {split_of[row["problem"]] for row in found} == {split}
            roles = Counter(row["role"] for row in found)
            if name.endswith("_deliberator"):
                wanted = min(round(roles["deliberator"] / 4), roles["thinker"] + 1)
                assert 0 < roles["thinker"] <= wanted


def test_unpaired_rows_are_right_or_wrong_and_no_more_of_a_prompt_than_for_sft(sets):
    for role, most in (("thinker", 2), ("deliberator", 4)):
        view, found = views(sets, role), rows(sets, f"unpaired_{role}")
        kinds = Counter((row["kind"], row["label"]) for row in found)
        assert kinds.keys() >= {("right", True), ("wrong", False)}
        assert kinds.keys() <= {("right", True), ("wrong", False), ("false_claim", False)}
        for row in found:
            if row["role"] == role:
                is_right = view[row["generation"]]["verdict"]["label"] == "correct"
                assert is_right == (row["kind"] != "wrong")
        learnt = {row["generation"] for row in rows(sets, f"sft_{role}") if row["role"] == role}
        own = [row for row in found if row["role"] == role]
        assert {row["generation"] for row in own if row["label"]} == learnt
        wrong = Counter((row["problem"], row["cache"]) for row in own if not row["label"])
        assert max(wrong.values()) <= most


def test_a_critique_says_what_the_verdict_says(sets):
    view, found = views(sets, "thinker"), rows(sets, "critiques")
    assert {row["label"] for row in found} == {True, False}
    for row in found:
        attempt = view[row["generation"]]
        assert (row["role"], row["model"], row["reasoning"]) == ("critic", "", "")
        assert f"Attempt\n{attempt['answer_text']}\n" in row["prompt"][0]["content"]
        assert row["label"] == (attempt["verdict"]["label"] == "correct")
        assert row["answer_text"] == ("CORRECT" if row["label"] else "INCORRECT")


def test_sets_that_nobody_asked_for_are_not_there(run, tmp_path):
    manifest = build(tmp_path / "sets", run)
    assert [*manifest.rows] == [*TRAINED] and manifest.pairs == {}
    assert "also" not in manifest.build
    some = build(tmp_path / "some", run, also=["critiques"])
    assert [*some.rows] == [*TRAINED, "critiques"] and some.build["also"] == ["critiques"]


def test_false_claims_that_are_kept_for_sft_are_rejected_all_the_same(run, tmp_path):
    manifest = build(
        tmp_path / "sets", run, also=ALL, preset="natural", filters__false_claims="keep"
    )
    assert manifest.pairs["deliberator"].false_claim > 0
    untrue = {r["id"] for r in rows(tmp_path / "sets", "deliberations") if r["false_claims"]}
    pairs = rows(tmp_path / "sets", "preferences_deliberator")
    assert untrue & {row["generation"] for row in rows(tmp_path / "sets", "sft_deliberator")}
    assert not untrue & {row["generation"] for row in pairs}


def printed(manifest: Manifest) -> str:
    text = io.StringIO()
    print_manifest(manifest, Console(file=text, width=200))
    return text.getvalue()


def test_sets_without_a_wrong_response_say_so_and_what_to_do(run, tmp_path):
    only = (replace(each, deliberations=each.deliberations[:1]) for each in traces(20, d=1))
    write_traces(only, tmp_path / "once" / TRACES_FOLDER)
    manifest = build(tmp_path / "sets", tmp_path / "once", also=["preferences"])
    said = printed(manifest)
    assert "preferences_deliberator has no pairs" in said and "a higher --d" in said
    assert "preferences_thinker has no pairs" not in said
    assert "Pairs of the thinker, by what is rejected" in said
    said = printed(read_manifest(tmp_path / "sets"))
    assert "preferences_deliberator has no pairs" in said


def test_a_run_whose_attempts_have_no_verdicts_is_refused(tmp_path):
    open_ended = (
        replace(each, pool=[replace(one, verdict=None) for one in each.pool]) for each in traces(3)
    )
    write_traces(open_ended, tmp_path / "open" / TRACES_FOLDER)
    with messages.raises("attempts_without_verdicts", key="also", run="open"):
        build(tmp_path / "sets", tmp_path / "open", also=["unpaired"])


# --- One prompt.


def written(
    also: Any, right: list[str], wrong: list[str], fails: str = "", language: str = ""
) -> tuple[list[Any], Any]:
    """The rows of responses with these texts, by set; a wrong one that ``fails`` does not fit."""
    found: list[Any] = []
    contrast = ContrastRows(also, lambda name, row: found.append((name, row)))
    given = []
    for number, text in enumerate([*right, *wrong]):
        is_right = number < len(right)
        one = deliberation(text, id=f"d{number}", label="correct" if is_right else "incorrect")
        label = USED if is_right else "not_correct"
        given.append((one, GenerationNote(one.id, label, 1, 1, text, "m", is_right)))

    def make(prompt: str, one: Any) -> Any:
        row = sft_row(student(), 2000, problem(), prompt, one, run="run", cache="c", stratum="tie")
        return "too_long_for_student" if one.answer_text == fails else row

    made = {one.id: make("?", one) for one, known in given if known.label == USED}
    responses = Responses("deliberator", "?", problem(), given, made, 4, make)
    contrast.add(responses, language)
    return found, contrast.pairs.get("deliberator")


def pairs_of(right: list[str], wrong: list[str], fails: str = "") -> tuple[list[Any], Any]:
    found, counts = written(["preferences"], right, wrong, fails)
    assert {name for name, _ in found} <= {"preferences_deliberator"}
    return [(row.chosen[0].content, row.rejected[0].content) for _, row in found], counts


def test_responses_of_the_most_similar_lengths_are_paired():
    pairs, counts = pairs_of(["a" * 10, "b" * 100], ["c" * 99, "d" * 11, "e" * 50])
    assert pairs == [("b" * 100, "c" * 99), ("a" * 10, "d" * 11)]
    assert (counts.wrong, counts.alone) == (2, 0)
    pairs, counts = pairs_of(["a" * 10, "b" * 100], ["c" * 40, "c" * 40])
    assert pairs == [("b" * 100, "c" * 40)] and counts.alone == 1
    assert counts.length_ratio is not None and math.log(counts.length_ratio) > 0


def test_the_next_one_is_taken_if_a_rejected_response_does_not_fit():
    pairs, counts = pairs_of(["a" * 10], ["c" * 11, "d" * 20], fails="c" * 11)
    assert pairs == [("a" * 10, "d" * 20)] and counts.unfit == 1
    pairs, counts = pairs_of(["a" * 10], ["c" * 11], fails="c" * 11)
    assert (pairs, counts.unfit, counts.alone, counts.length_ratio) == ([], 1, 1, None)


def test_a_critique_names_the_first_wrong_step_of_a_wrong_attempt():
    right, wrong = "2+3=6, no: 2+3=5 \\boxed{5}", "2+2=4 4+3=8 8+1=10 \\boxed{10}"
    found, _ = written(["critiques"], [right], [wrong, "\\boxed{7}"], language="en")
    assert [(name, row.answer_text) for name, row in found] == [
        ("critiques", "CORRECT"),
        ("critiques", "First wrong step: 4 + 3 = 8\n\nINCORRECT"),
        ("critiques", "INCORRECT"),
    ]
    assert written(["critiques"], [right], [wrong])[0] == []
    (_, chinese), *_ = written(["critiques"], [right], [wrong], language="zh")[0]
    assert chinese.prompt[0].content.startswith("请检查")


def test_a_prompt_without_a_right_response_has_no_rows():
    for also in ALL:
        assert written([also], [], ["a", "b"], language="en")[0] == []
