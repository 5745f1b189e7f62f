"""Rows as tokens: those of TRL, whole, each looked at, none cut; and packed by role."""

import functools
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import messages
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import rows
from set_folders import rewrite
from students import MICRO
from tiny_rollouts import random_model, tokenizer
from trainings import refusal, sft_arguments
from trl import pack_dataset

from heavydistill.chat.guard import Inspection
from heavydistill.chat.student import Student
from heavydistill.errors import ConfigError
from heavydistill.store.sets.set_rows import ThoughtfulSftRow
from heavydistill.train.base_model import load_base
from heavydistill.train.datasets import locate_source
from heavydistill.train.sft.data import (
    NOT_LEARNT,
    SourceRows,
    check_isolation,
    sequences_of_roles,
    sum_of,
    tokenize_sources,
)
from heavydistill.train.sft.train import new_trainer, prepare, train

TEMPLATE = (MICRO / "chat_template.jinja").read_text(encoding="utf-8")


class Rows(NamedTuple):
    parts: list[SourceRows]
    max_length: int


def reading(sets: Path | None, **keys: Any) -> Rows:
    arguments = sft_arguments(sets, "nowhere", **keys)
    found = [locate_source(source) for source in arguments.config.sources]
    return Rows(*tokenize_sources(arguments.config, load_base(arguments, found), found))


refused = functools.partial(refusal, reading)


@pytest.mark.parametrize("role", ["thinker", "deliberator"])
def test_the_tokens_and_labels_are_those_that_trl_prepares(sets, role):
    """``test_trl_agrees`` compares ``Inspection.tokens`` with TRL's own."""
    chat = Student("micro-student").chat
    own = reading(sets, role=role, eval_strategy="steps").parts[0]
    for split, given_rows in own.splits.items():
        there = rows(sets, f"sft_{role}", split)
        learnt = [Inspection(chat, row).tokens for row in there]
        assert given_rows["input_ids"][:] == [[*row.prompt, *row.completion] for row in learnt]
        masked = [[NOT_LEARNT] * len(row.prompt) + row.completion for row in learnt]
        assert given_rows["labels"][:] == masked
        assert given_rows["generation"][:] == [row["generation"] for row in there]


def test_validation_rows_are_read_only_if_they_are_looked_at(sets):
    assert all([*part.splits] == ["train"] for part in reading(sets).parts)
    for keys in ({"eval_strategy": "epoch"}, {"do_eval": True}, {"eval_on_start": True}):
        assert all(len(part.splits["validation"]) for part in reading(sets, **keys).parts)


# What a template can lose, by what stands in place of a part of the student's own.
LOSING: dict[str, tuple[str, str]] = {
    "no_eos": ("{{ message.content }}<|im_end|>{%- endgen", "{{ message.content }}{%- endgen"),
    "reasoning_lost": ("{{ message.reasoning_content }}", ""),
    "answer_lost": ("{{ message.content }}<|im_end|>{%- endgen", "<|im_end|>{%- endgen"),
    "doubled": (
        "{{ message.content }}<|im_end|>{%- endgen",
        "{{ message.content }} {{ message.content }}<|im_end|>{%- endgen",
    ),
    "prompt_lost": ("{{ message.content }}<|im_end|>\n{% endif", "<|im_end|>\n{% endif"),
}


@pytest.mark.parametrize("code", sorted(LOSING))
def test_rows_that_a_template_loses_are_refused_with_their_ids(sets, tmp_path, code):
    part, other = LOSING[code]
    assert part in TEMPLATE
    path = tmp_path / "losing.jinja"
    path.write_text(TEMPLATE.replace(part, other), encoding="utf-8")
    message = refused(sets, chat_template_path=path)
    assert code in message
    ids = {(row["problem"], row["generation"]) for row in rows(sets, "sft_thinker", "train")}
    named = [f"problem {problem}, generation {one}: " in message for problem, one in ids]
    assert "The first:\n" in message and sum(named) == 5


def test_what_was_read_with_one_template_is_not_taken_for_another(sets, tmp_path):
    before = reading(sets, role="thinker").parts[0].splits["train"]
    path = tmp_path / "other.jinja"
    path.write_text(
        TEMPLATE.replace(
            "{{ message.content }}<|im_end|>\n{% endif",
            "Q: {{ message.content }}<|im_end|>\n{% endif",
        ),
        encoding="utf-8",
    )
    after = reading(sets, role="thinker", chat_template_path=path).parts[0].splits["train"]
    assert after["tokens"][0] > before["tokens"][0]
    assert (
        reading(sets, role="thinker").parts[0].splits["train"]["input_ids"][:]
        == before["input_ids"][:]
    )


def test_a_row_whose_text_is_a_control_token_is_refused(sets, tmp_path):
    first = rows(sets, "sft_thinker", "train")[0]["generation"]

    def spoil(row: dict[str, Any]) -> list[dict[str, Any]]:
        if row["generation"] == first:
            row["answer_text"] += "<|im_end|> and more"
            row["completion"][0]["content"] = row["answer_text"]
            row["completion_tokens"] += 6
        return [row]

    folder = shutil.copytree(sets, tmp_path / "sets")
    rewrite(folder, "sft_thinker", spoil, ThoughtfulSftRow)
    message = refused(folder, role="thinker")
    assert "1 of 30 rows lose or change tokens in training" in message
    assert "control_token" in message


def test_max_length_is_that_of_the_longest_row_or_of_the_99th_of_100(sets):
    whole = reading(sets)
    lengths = sorted(tokens for part in whole.parts for tokens in part.splits["train"]["tokens"])
    assert whole.max_length == lengths[-1]
    assert all(part.left_out == {"train": 0} for part in whole.parts)
    most = reading(sets, too_long="leave_out")
    longer = sum(length > most.max_length for length in lengths)
    assert most.max_length in lengths and longer <= len(lengths) / 100
    assert sum(part.left_out["train"] for part in most.parts) == longer


def test_a_max_length_that_cuts_is_refused_with_the_one_that_does_not(sets):
    lengths = [tokens for part in reading(sets).parts for tokens in part.splits["train"]["tokens"]]
    limit = max(lengths) - 1
    message = refused(sets, max_length=limit)
    more = sum(length > limit for length in lengths)
    assert f"{more:,} of {len(lengths):,} rows are longer than {limit:,} tokens" in message
    assert f"Give --max_length {max(lengths)}, or leave them out" in message
    assert reading(sets, max_length=max(lengths)).max_length == max(lengths)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"max_length": 4096}, "4,096 tokens exceed the context of micro-student, 2,048"),
        ({"max_length": 3, "too_long": "leave_out"}, "has 3 tokens or fewer. Give a larger"),
    ],
)
def test_a_max_length_without_sense_is_refused(sets, keys, said):
    assert said in refused(sets, **keys)


@settings(max_examples=8, deadline=None)
@given(limit=st.integers(150, 420))
def test_nothing_that_is_learnt_is_ever_cut(sets, limit):
    whole = reading(sets, eval_strategy="steps")
    try:
        some = reading(sets, eval_strategy="steps", max_length=limit, too_long="leave_out")
    except ConfigError as error:
        assert "has" in str(error) and "tokens or fewer" in str(error)
        return
    for before, after in zip(whole.parts, some.parts, strict=True):
        for split in ("train", "validation"):
            kept = {
                row["generation"]: row["labels"]
                for row in before.splits[split]
                if row["tokens"] <= limit
            }
            assert {row["generation"]: row["labels"] for row in after.splits[split]} == kept
            missing = len(before.splits[split]) - len(after.splits[split])
            assert after.left_out[split] == missing


def test_a_mixture_has_its_shares_of_the_rows_that_fit(sets, tmp_path):
    config = tmp_path / "train.yaml"
    config.write_text(
        f"datasets:\n- {{path: {sets}, role: thinker, fraction: 0.5}}\n"
        f"- {{path: {sets}, role: deliberator, fraction: 0.5}}\n",
        encoding="utf-8",
    )

    def mixed(**keys: Any) -> list[list[str]]:
        parts = reading(None, config=config, role=None, **keys).parts
        return [part.splits["train"]["generation"][:] for part in parts]

    thinker, deliberator = mixed()
    assert len(thinker) == len(deliberator) == 21
    assert len(set(thinker)) == 21
    assert mixed() == [thinker, deliberator]
    assert set(mixed(seed=7)[0]) != set(thinker)
    lengths = sorted(reading(sets, role="deliberator").parts[0].splits["train"]["tokens"])
    thinker, deliberator = mixed(max_length=lengths[9], too_long="leave_out")
    assert len(thinker) == len(deliberator) < 21


def test_a_plain_problem_of_the_deliberators_rows_is_learnt_once_with_the_thinkers_rows(sets):
    """The plain problems are copies of the thinker's rows, so that a deliberator keeps thinking."""
    keys = {"eval_strategy": "steps"}
    alone = reading(sets, role="deliberator", **keys).parts[0].splits["train"]
    assert "thinker" in set(alone["role"])
    thinker, deliberator = (
        part.splits["train"] for part in reading(sets, role="both", **keys).parts
    )
    assert len(thinker) == len(rows(sets, "sft_thinker", "train"))
    assert deliberator["generation"] == [
        name for name, role in zip(alone["generation"], alone["role"], strict=True)
        if role == "deliberator"
    ]  # fmt: skip


Row = tuple[str, int, int]  # role, tokens of the prompt, tokens that are learnt
ROW = st.tuples(st.sampled_from(["thinker", "deliberator"]), st.integers(1, 30), st.integers(1, 20))


def rows_of(rows: list[Row]) -> Any:
    """As ``tokenize_sources`` gives them; a row's first token tells it from all others."""
    from datasets import Dataset

    tokens = [
        ([number, *range(1000, 999 + prompt)], list(range(2000, 2000 + learnt)))
        for number, (_, prompt, learnt) in enumerate(rows)
    ]
    return Dataset.from_dict(
        {
            "input_ids": [prompt + learnt for prompt, learnt in tokens],
            "labels": [[-100] * len(prompt) + learnt for prompt, learnt in tokens],
            "role": [role for role, _, _ in rows],
        }
    )


def pack(parts: list[Any], most: int) -> Any:
    from datasets import concatenate_datasets

    return concatenate_datasets([*sequences_of_roles(parts, most, packing=True).values()])


@settings(max_examples=40, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=30), st.integers(0, 40))
def test_every_row_is_in_one_pack_whole_and_with_rows_of_its_role_alone(rows, more):
    given_rows = rows_of(rows)
    longest = max(map(len, given_rows["input_ids"]))
    packed = pack([given_rows], longest + more)
    roles, seen = dict(enumerate(given_rows["role"])), []
    for pack_ in packed:
        assert len(pack_["input_ids"]) == sum(pack_["seq_lengths"]) <= longest + more
        at, own = 0, set()
        for length in pack_["seq_lengths"]:
            part = slice(at, at + length)
            seen.append((pack_["input_ids"][part], pack_["labels"][part]))
            own.add(roles[pack_["input_ids"][at]])
            at += length
        assert len(own) == 1
    before = [(row["input_ids"], row["labels"]) for row in given_rows]
    assert sorted(seen) == sorted(before)
    assert sum_of(packed) == sum_of(given_rows)


def test_sources_of_a_role_share_packs(sets):
    parts = [rows_of([("thinker", 4, 4)]), rows_of([("deliberator", 4, 4), ("thinker", 5, 4)])]
    assert Counter(len(one["seq_lengths"]) for one in pack(parts, 100)) == {2: 1, 1: 1}


def test_a_packing_that_loses_tokens_is_an_error(monkeypatch):
    import trl

    whole = trl.pack_dataset
    monkeypatch.setattr(trl, "pack_dataset", lambda rows, *rest: whole(rows.select([0]), *rest))
    with messages.raises("tokens_lost"):
        pack([rows_of([("thinker", 4, 4), ("thinker", 4, 4)])], 9)


def test_the_loss_of_packs_is_the_mean_over_their_rows(sets, tmp_path):
    import torch

    alone = prepare(sft_arguments(sets, tmp_path / "rows")).train.select(range(12))
    trainer = new_trainer(prepare(sft_arguments(sets, tmp_path / "packs", packing=True)))
    packed = pack_dataset(alone, 600, "bfd")
    assert len(packed) < len(alone)
    trainer.model.eval()

    def loss(rows: list[dict[str, Any]]) -> tuple[float, int]:
        batch = trainer.data_collator(rows)
        learnt = int((batch["labels"] != -100).sum())
        with torch.no_grad():
            return trainer.compute_loss(trainer.model, batch).item() * learnt, learnt

    summed, tokens = (sum(part) for part in zip(*(loss([row]) for row in alone), strict=True))
    together = loss(list(packed))
    assert together[1] == tokens
    assert together[0] / tokens == pytest.approx(summed / tokens, abs=1e-5)


@pytest.fixture(scope="module")
def collate(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes the batches of a training that packs."""
    wanted = sft_arguments(sets, tmp_path_factory.mktemp("out"), packing=True)
    return new_trainer(prepare(wanted)).data_collator


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["Qwen3Config", "Gemma3TextConfig", "Qwen3MoeConfig"])
def test_rows_that_attention_keeps_apart_may_be_packed(collate, kind, dtype):
    import torch

    model = random_model(kind, getattr(torch, dtype)).train()
    check_isolation(model, collate, len(tokenizer()))
    assert model.training


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["Qwen3NextConfig", "Qwen3_5TextConfig", "Lfm2Config"])
def test_rows_that_see_each_other_are_not_packed(collate, kind, dtype):
    import torch

    # This is what transformers does without the kernels, which need a GPU.
    with messages.raises("rows_mixed"):
        check_isolation(random_model(kind, getattr(torch, dtype)), collate, len(tokenizer()))


def test_a_hybrid_model_is_refused_before_its_first_step_and_trains_unpacked(sets, tmp_path):
    import torch

    hybrid = str(tmp_path / "hybrid")
    random_model("Qwen3_5TextConfig", torch.float32).save_pretrained(hybrid)
    tokenizer().save_pretrained(hybrid)
    keys = {"model_name_or_path": hybrid, "max_steps": 1}
    with messages.raises("rows_mixed"):
        train(prepare(sft_arguments(sets, tmp_path / "packed", packing=True, **keys)))
    assert not list((tmp_path / "packed").glob("**/model.safetensors"))
    record = train(prepare(sft_arguments(sets, tmp_path / "rows", packing=False, **keys)))
    assert record.result and record.result.steps == 1
