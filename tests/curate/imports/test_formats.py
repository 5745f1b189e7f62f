"""Rows and their answers, as each format has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from import_files import (
    EGGS,
    GOLD,
    STAIRS,
    answers_row,
    boxed,
    config_of,
    document,
    heavyskill_row,
    lines,
    nemo_row,
    pacore_row,
    parquet,
)
from messages import message

from heavydistill.curate.imports.attempts import attempt_of, attempts_of
from heavydistill.curate.imports.import_pools import ImportedPool, ImportedPools
from heavydistill.errors import ProblemsError


@pytest.mark.parametrize(
    ("text", "reasoning", "answer", "finish"),
    [
        ("It is 4.", "", "It is 4.", "stop"),
        ("<think>2 and 2</think>\nIt is 4.", "2 and 2", "It is 4.", "stop"),
        ("2 and 2</think>It is 4.", "2 and 2", "It is 4.", "stop"),
        ("<think>2 and 2, so", "2 and 2, so", "", "length"),
        ("", "", "", "error"),
        (None, "", "", "error"),
        (" \n", "", "", "error"),
    ],
)
def test_thinking_is_told_apart_and_the_end_is_assumed(text, reasoning, answer, finish):
    attempt = attempt_of(text, "here")
    said = attempt.trajectory
    assert (said.reasoning, said.answer_text) == (reasoning, answer)
    assert said.finish_reason == finish and attempt.is_assumed
    assert (said.error is None) == (said.failure is None) == (finish != "error")
    assert (said.prompt_tokens, said.completion_tokens, said.latency_s) == (-1, -1, -1)


def test_an_object_says_more_than_its_text():
    attempt = attempt_of(
        {
            "content": "It is 4.",
            "reasoning_content": "2 and 2",
            "finish_reason": "length",
            "is_correct": False,
            "model": "m",
            "completion_tokens": 12,
            "num_input_tokens": 5,
            "latency_s": 1.5,
        },
        "here",
        {"model": "other", "label": True, "finish_reason": "stop", "cost": 0.5},
    )
    said = attempt.trajectory
    assert (said.reasoning, said.answer_text) == ("2 and 2", "It is 4.")
    assert said.finish_reason == "length" and not attempt.is_assumed
    assert (attempt.label, said.model) == (False, "m")
    assert (said.prompt_tokens, said.completion_tokens, said.latency_s) == (5, 12, 1.5)


@pytest.mark.parametrize(
    ("said", "finish", "failure"),
    [
        ("stop", "stop", None),
        ("EOS", "stop", None),
        ("max_tokens", "length", None),
        ("content_filter", "error", "unknown_end"),
    ],
)
def test_a_finish_reason_that_the_file_gives_is_kept(said, finish, failure):
    attempt = attempt_of("It is 4.", "here", {"finish_reason": said})
    said = attempt.trajectory
    assert (said.finish_reason, said.failure) == (finish, failure)
    assert not attempt.is_assumed and said.answer_text == "It is 4."


@pytest.mark.parametrize(
    ("label", "read"), [(True, True), (0, False), (1.0, True), ("yes", None), (0.5, None)]
)
def test_a_label_is_right_or_wrong_or_none(label, read):
    attempt = attempt_of("4", "here", {"label": label})
    assert attempt.label is read and attempt.is_label_unclear == (read is None)
    assert not attempt_of("4", "here").is_label_unclear


def test_half_a_character_makes_an_answer_a_failure():
    attempt = attempt_of("\ud800 4", "here")
    said = attempt.trajectory
    assert (said.answer_text, said.failure) == ("", "malformed")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: attempt_of({"text": "4", "answer": "5"}, "f:1"),
            "text and answer, and each could",
        ),
        (lambda: attempt_of({"words": "4"}, "f:1"), r"no known key .*Rename .* answer_text.*words"),
        (lambda: attempt_of({"text": 4}, "f:1"), "an answer is of type int"),
        (lambda: attempt_of(4, "f:1"), "an answer is of type int"),
        (lambda: attempts_of("4", "f:1"), "the answers are of type str, not a list"),
        (
            lambda: attempts_of(["4"], "f:1", {"label": []}),
            "1 answers, but 0 values for their label",
        ),
    ],
)
def test_what_is_no_answer_is_an_error_with_its_place(call, says):
    with pytest.raises(ProblemsError, match=rf"f:1: .*{says}"):
        call()


_VALUES = st.sampled_from(
    [None, "", "stop", "odd", -3, 0, 7, 1.5, float("inf"), float("nan"), True]
)


@given(st.lists(_VALUES, min_size=4, max_size=4))
def test_whatever_stands_beside_a_text_it_becomes_a_trajectory(values):
    keys = ("is_correct", "finish_reason", "latency_s", "completion_tokens")
    row = {"text": "4", **dict(zip(keys, values, strict=True))}
    one = attempt_of(row, "here").trajectory
    assert one == attempt_of(row, "here").trajectory
    assert (one.failure is None) == (one.finish_reason != "error") == (one.error is None)
    assert one.latency_s >= -1 and one.completion_tokens >= -1


def texts(pool: ImportedPool) -> list[str]:
    return [each.answer_text for each in pool.trajectories]


def labels(pool: ImportedPool) -> list[bool | None]:
    return [each.label for each in pool.attempts]


def test_heavyskill_results_with_their_targets_in_the_rows(tmp_path):
    path = document(tmp_path / "result.json", [heavyskill_row(target="42")])
    pools = ImportedPools(config_of("heavyskill", path, model="r1"))
    (pool,) = pools
    assert (pool.problem.text, pool.problem.reference) == (EGGS, "42")
    assert (pool.problem.id, pool.problem.source) == ("result:1", "result.json:1")
    assert texts(pool) == [boxed(42), boxed(13), ""]
    assert pool.trajectories[0].reasoning == "6 times 7 is 42."
    assert [each.finish_reason for each in pool.trajectories] == ["stop", "stop", "length"]
    assert {each.model for each in pool.trajectories} == {"r1"}
    assert pools.format.notes == {"summaries_left_out": 2}


def test_a_single_heavyskill_result_and_a_file_of_targets(tmp_path):
    result = document(tmp_path / "result.json", heavyskill_row())
    targets = document(
        tmp_path / "targets.json",
        [{"query": STAIRS, "target": "36"}, {"query": EGGS, "target": 42}],
    )
    pools = ImportedPools(config_of("heavyskill", result, targets))
    (pool,) = pools
    assert pool.problem.reference == "42" and len(pool.trajectories) == 3
    assert pools.without_answers == 2


def test_pacore_rows(tmp_path):
    rows = [pacore_row(), pacore_row(STAIRS, "36", f"Slowly.</think>{boxed(36)}", boxed(15))]
    first, second = ImportedPools(config_of("pacore", parquet(tmp_path / "stage1", rows)))
    assert (first.problem.text, first.problem.reference) == (EGGS, "42")
    assert texts(second) == [boxed(36), boxed(15)]
    assert second.trajectories[0].reasoning == "Slowly."


SYSTEM = [{"role": "system", "content": "Be brief."}]


@pytest.mark.parametrize(
    ("truth", "before", "text"),
    [(42, [], EGGS), ({"answer": "42"}, [], EGGS), ("42", SYSTEM, f"Be brief.\n\n{EGGS}")],
)
def test_what_pacore_says_of_a_problem_may_have_other_shapes(truth, before, text, tmp_path):
    row = pacore_row(EGGS, truth)
    row["conversation"][:0] = before
    (pool,) = ImportedPools(config_of("pacore", lines(tmp_path / "rows", row)))
    assert (pool.problem.text, pool.problem.reference) == (text, "42")


def test_nemo_files_are_joined_by_problem_in_the_order_of_their_seeds(tmp_path):
    files = [
        lines(tmp_path / "output-rs10.jsonl", nemo_row(EGGS, 42, 10)),
        lines(tmp_path / "output-rs2.jsonl", nemo_row(STAIRS, 36, 36), nemo_row(EGGS, 42, 2)),
        lines(tmp_path / "output-rs0.jsonl", nemo_row(EGGS, 42, 42), nemo_row(STAIRS, 36, 0)),
    ]
    pools = ImportedPools(config_of("nemo", *files))
    eggs, stairs = pools
    assert [file.name for file in pools.files] == [
        "output-rs0.jsonl",
        "output-rs2.jsonl",
        "output-rs10.jsonl",
    ]
    assert texts(eggs) == [boxed(42), boxed(2), boxed(10)]
    assert labels(eggs) == [True, False, False]
    assert texts(stairs) == [boxed(0), boxed(36)]
    assert [each.completion_tokens for each in stairs.trajectories] == [20, 20]
    assert eggs.problem.source == "output-rs0.jsonl:1"
    assert not any(each.is_assumed for each in eggs.attempts)


def test_nemo_thinking_is_found_where_it_was_taken_out(tmp_path):
    whole = f"6 times 7</think>{boxed(42)}"
    taken = {"generation": boxed(42), "_full_generation": whole}
    lost = {
        "generation": "",
        "_full_generation": "6 times",
        "_generation_finished_thinking": False,
        "finish_reason": "length",
        "num_input_tokens": 9,
        "reasoning": "of the dataset",
    }
    files = [
        lines(tmp_path / "output-rs0.jsonl", nemo_row(**taken)),
        lines(tmp_path / "output-rs1.jsonl", nemo_row(**lost)),
    ]
    (pool,) = ImportedPools(config_of("nemo", *files))
    assert [(t.reasoning, t.answer_text) for t in pool.trajectories] == [
        ("6 times 7", boxed(42)),
        ("6 times", ""),
    ]
    assert pool.trajectories[1].finish_reason == "length"
    assert pool.trajectories[1].prompt_tokens == 9


def test_a_list_of_answers_is_found_by_its_name_with_what_is_beside_it(tmp_path):
    row = {
        "problem": EGGS,
        "answer": "42",
        "generations": [boxed(42), {"content": boxed(13), "model": "b"}, None],
        "correctness": [True, False, None],
        "finish_reasons": ["stop", "stop", "length"],
    }
    (pool,) = ImportedPools(config_of("answers", lines(tmp_path / "a.jsonl", row)))
    assert texts(pool) == [boxed(42), boxed(13), ""]
    assert labels(pool) == [True, False, None]
    assert [each.model for each in pool.trajectories] == ["unknown", "b", "unknown"]
    assert [each.finish_reason for each in pool.trajectories] == ["stop", "stop", "length"]
    assert not any(each.is_assumed for each in pool.attempts)


def test_columns_of_objects_are_named_after(tmp_path):
    row = {
        "question": EGGS,
        "ground_truth": "42",
        "by_small": {"solution": boxed(13), "is_correct": False},
        "by_large": {"solution": boxed(42), "is_correct": True},
        "meta": {"level": 3},
    }
    keys = {"problems.columns.answers": "by_*"}
    pools = ImportedPools(config_of("answers", lines(tmp_path / "a.jsonl", row), **keys))
    (pool,) = pools
    assert [each.model for each in pool.trajectories] == ["by_small", "by_large"]
    assert labels(pool) == [False, True]
    assert pools.columns == {"text": "question", "reference": "ground_truth"}
    assert pools.format.answers == "by_*"


@pytest.mark.parametrize(
    ("names", "pattern", "models"),
    [
        (("answer_1", "answer_2"), "answer_*", {"unknown"}),
        (("reply 1", "reply 2"), "reply *", {"unknown"}),
        (("by_gpt-x", "by_r1"), "by_*", {"by_gpt-x", "by_r1"}),
    ],
)
def test_columns_of_texts(names, pattern, models, tmp_path):
    full = {"question": EGGS, "gold": "42", names[0]: boxed(42), names[1]: boxed(13)}
    keys = {"problems.columns.answers": pattern}
    path = lines(tmp_path / "a.jsonl", full, {**full, "question": STAIRS, "extra": None})
    first, second = ImportedPools(config_of("answers", path, **GOLD, **keys))
    assert texts(first) == texts(second) == [boxed(42), boxed(13)]
    assert {each.model for each in first.trajectories} == models


def test_null_in_a_column_of_its_own_is_no_answer(tmp_path):
    row = {"question": EGGS, "gold": 42, "answer_1": boxed(1), "answer_2": None, "answer_3": ""}
    keys = {**GOLD, "problems.columns.answers": "answer_*"}
    (pool,) = ImportedPools(config_of("answers", lines(tmp_path / "a.jsonl", row), **keys))
    assert texts(pool) == [boxed(1), ""]
    assert pool.trajectories[1].unusable_because == "error"


def test_one_answer_a_row_is_joined(tmp_path):
    rows = [
        {"id": n, "q": EGGS, "gold": "42", "reply": boxed(n), "is_correct": n == 42}
        for n in (42, 13, 7)
    ]
    keys = {"problems.columns.text": "q", "problems.columns.answers": "reply"}
    pools = ImportedPools(config_of("answers", lines(tmp_path / "a.jsonl", *rows), **GOLD, **keys))
    (pool,) = pools
    assert texts(pool) == [boxed(42), boxed(13), boxed(7)]
    assert labels(pool) == [True, False, False]
    assert (pool.problem.id, pools.joined) == ("42", 2)


def test_options_stay_in_the_order_of_the_file(tmp_path):
    rows = [
        {
            "question": f"{EGGS} ({n})",
            "choices": ["13", "42", "7"],
            "gold": "B",
            "answers": ["The answer is B.", "The answer is A."],
        }
        for n in range(6)
    ]
    for pool in ImportedPools(config_of("answers", lines(tmp_path / "a.jsonl", *rows), **GOLD)):
        assert pool.problem.verifier == "choice" and pool.problem.reference == "B"
        assert "B) 42" in pool.problem.text


TALK = [{"role": "user", "content": EGGS}, {"role": "assistant", "content": "?"}]
TWO_TARGETS = [{"query": EGGS, "target": "42"}, {"query": EGGS, "target": "43"}]


@pytest.mark.parametrize(
    ("given", "rows", "columns", "says"),
    [
        ("heavyskill", [heavyskill_row()], {}, "No row has a reference.*file of targets"),
        ("answers", [answers_row() | {"gold": None}], {}, "No row has a reference.*--columns refe"),
        ("heavyskill", [heavyskill_row(), *TWO_TARGETS], {}, r"rows:3: .*another target.*'42'"),
        (
            "pacore",
            [pacore_row() | {"conversation": TALK}],
            {},
            r"rows:1: .*roles are \['user', 'as",
        ),
        ("nemo", [nemo_row()], {}, "rows:1: .*has 1 answer.*together"),
        (
            "answers",
            [{"q": EGGS, "a": ["a", "b"]}],
            {},
            "rows:1 does not have the format answers.*--columns",
        ),
        (
            "answers",
            [answers_row() | {"responses": []}],
            {},
            message("two_columns_for", columns="answers and responses", field="answers"),
        ),
        ("answers", [answers_row()], {"labels": "x"}, r"columns\.labels: there is no such field"),
        ("answers", [answers_row()], {"txet": "x"}, r"columns\.txet: there is no such field"),
        # Rows of another format.
        ("pacore", [heavyskill_row()], {}, "has no column conversation, responses.*--from"),
        ("heavyskill", [nemo_row()], {}, "has no column query, trajectories.*--from"),
        ("answers", [pacore_row()], {}, "conversation"),
        ("answers", [nemo_row()], {}, "has no column answers.*--from"),
        ("nemo", [answers_row()], {}, "has no column problem, generation.*--from"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_do(given, rows, columns, says, tmp_path):
    keys = {f"problems.columns.{field}": column for field, column in columns.items()}
    with pytest.raises(ProblemsError, match=says):
        ImportedPools(config_of(given, lines(tmp_path / "rows", *rows), **keys))


@pytest.mark.parametrize("columns", [{}, {"problems.columns.reference": "gold_value"}])
def test_a_pattern_of_answers_does_not_take_the_columns_of_other_fields(tmp_path, columns):
    name = columns.get("problems.columns.reference", "ground_truth")
    rows = [{"question": EGGS, name: "42", "by_a": boxed(42), "by_b": boxed(41)}]
    file = lines(tmp_path / "a.jsonl", *rows)
    pools = ImportedPools(
        config_of("answers", file, **columns, **{"problems.columns.answers": "*_*"})
    )
    (pool,) = pools
    assert pool.problem.reference == "42"
    assert [each.model for each in pool.trajectories] == ["by_a", "by_b"]
