"""Episodes are made as a run makes its traces, and count what they leave out."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import tiny_rollouts
from samples import cache_of
from tiny_rollouts import END, STUDENT, tokenizer

from heavydistill.chat.student import stops_of
from heavydistill.chat.template import Chat
from heavydistill.config.run import Problems, RunConfig
from heavydistill.errors import ConfigError
from heavydistill.heavy import prompts
from heavydistill.models.thinking import COMMON_TAGS
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.problems.procedural import micro_problems
from heavydistill.schema import Problem, Trajectory
from heavydistill.train.grpo.episodes import (
    Episodes,
    PolicyCompletion,
    Rollout,
    figures,
)
from heavydistill.train.rollouts.problem_rows import problem_of, problem_row
from heavydistill.verifiers.pool import VerdictPool

K = 4
RIGHT, WRONG, NOTHING = "right", "wrong", "nothing"


@pytest.fixture(scope="module")
def verdicts() -> Iterator[VerdictPool]:
    with VerdictPool() as pool:
        yield pool


def run(**changes: Any) -> RunConfig:
    usual: dict[str, Any] = {
        "domain": "brief",
        "think": {"k": K, "sampling": {"max_tokens": 30}},
        "deliberate": {"sampling": {"max_tokens": 50}},
    }
    return RunConfig(**{**usual, **changes})


def episodes(context: int = 2048, d: int = 1, **changes: Any) -> Episodes:
    chat = Chat(tokenizer(), stops_of(STUDENT))
    return Episodes(run(**changes), chat, ReaderTokenizer(STUDENT), context, d, 64)


def rows(number: int = 2) -> list[dict[str, Any]]:
    """Micro problems, of a verifier that needs no worker."""
    wording = prompts.load("thinker", "brief", "en")
    return [
        problem_row(
            replace(one, verifier="exact", verifier_args="{}"),
            prompts.thinker_prompt(one.text, wording),
        )
        for one in micro_problems(Problems(size=number, seed=5))
    ]


class Policy:
    """Writes what it is told to, first of all thinkers and then of the deliberators."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.asked: list[tuple[int, int]] = []
        self.prompts: list[str] = []

    def __call__(self, given: list[list[int]], most: int) -> list[PolicyCompletion]:
        self.asked.append((len(given), most))
        self.prompts += [tokenizer().decode(ids) for ids in given]
        return [self._completion(self.texts.pop(0)) for _ in given]

    def _completion(self, text: str) -> PolicyCompletion:
        whole = not text.endswith("...")
        ids = tokenizer()(text, add_special_tokens=False)["input_ids"] + [END] * whole
        return PolicyCompletion(ids, whole)


def attempts(row: dict[str, Any], *kinds: str) -> list[str]:
    """Texts of thinkers."""
    texts = {
        RIGHT: f"<think>\nsum\n</think>\nThe answer is \\boxed{{{row['reference']}}}.",
        WRONG: "<think>\nsum\n</think>\nThe answer is \\boxed{-1}.",
        NOTHING: "<think>\nsum\n</think>\n",
        "...": "<think>\nsum and ...",
    }
    return [texts[kind] for kind in kinds]


def test_an_episode_of_a_conversation_shows_its_turns_to_both_roles(verdicts):
    (row,) = rows(1)
    before = [{"role": "user", "content": "6+1?"}, {"role": "assistant", "content": "It is 7."}]
    row["prompt"] = [*before, *row["prompt"]]
    policy = Policy(*attempts(row, RIGHT, WRONG, WRONG, RIGHT), "one")
    (played,) = episodes().rollout([row], [11], policy, verdicts)
    assert [one.prompt[:-1] for one in played.rows] == [before] * (K + 1)
    assert all("6+1?" in prompt and "It is 7." in prompt for prompt in policy.prompts)
    assert played.rows[0].prompt == row["prompt"]


def test_an_episode_is_what_a_run_would_have_made(verdicts):
    two = rows()
    first = attempts(two[0], RIGHT, WRONG, WRONG, RIGHT)
    policy = Policy(*first, *attempts(two[1], WRONG, RIGHT, NOTHING, "..."), "one", "two")
    played = episodes().rollout(two, [11, 12], policy, verdicts)
    assert policy.asked == [(2 * K, 30), (2, 50)]
    opener = (
        f"<|im_start|>user\n{two[0]['prompt'][0]['content']}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert policy.prompts[:K] == [opener] * K
    for row, seed, episode, prompt in zip(two, (11, 12), played, policy.prompts[-2:], strict=True):
        problem = problem_of(row)
        pool, room = judged(problem, episode, verdicts), 2048 - 50 - 64
        cache = cache_of(problem, pool, seed=seed, budget_tokens=room)
        assert episode.cache == cache
        assert cache.prompt in prompt and prompt.endswith("<|im_start|>assistant\n")
        assert episode.rows[-1].prompt == [{"role": "user", "content": cache.prompt}]
        assert len(episode.rows) == K + 1
        assert episode.failed is None
    assert [one.is_correct for one in played[0].pool] == [True, False, False, True]
    assert [one.extracted for one in played[0].pool][1] == "-1"
    assert played[0].pool[0].reasoning == "sum"
    assert figures(played) == pytest.approx(
        {
            "attempts/right": 3 / 8,
            "attempts/shown": 6 / 8,
            "attempts/shortened": 0,
            "attempts/truncated": 1 / 8,
            "attempts/empty": 1 / 8,
            "attempts/not_selected": 0,
            "attempts/unused": 0,
            "episodes/too_few_usable": 0,
            "episodes/too_long": 0,
            "thinker/mean_length": sum(len(row.completion.ids) for row in thinkers(played)) / 8,
            "thinker/truncated": 1 / 8,
            "deliberator/mean_length": sum(len(one.rows[-1].completion.ids) for one in played) / 2,
            "deliberator/truncated": 0,
        }
    )


def test_an_episode_has_as_many_deliberations_on_its_cache_as_asked(verdicts):
    two = rows()
    texts = [text for row in two for text in attempts(row, RIGHT, WRONG, WRONG, RIGHT)]
    policy = Policy(*texts, "one", "two and ...", "three", "four")
    playing = episodes(d=2)
    played = playing.rollout(two, [11, 12], policy, verdicts)
    assert policy.asked == [(2 * K, 30), (4, 50)]
    assert [len(one.rows) for one in played] == [K + 2] * 2 == [playing.size] * 2
    for episode in played:
        asked = [row.prompt[0]["content"] for row in episode.rows[K:]]
        assert asked == [episode.cache.prompt] * 2
    written = [row.completion.ids for one in played for row in one.rows[K:]]
    assert [tokenizer().decode(ids, skip_special_tokens=True) for ids in written] == [
        *("one", "two and ...", "three", "four")
    ]
    assert figures(played)["deliberator/truncated"] == 1 / 4
    assert figures(played)["thinker/truncated"] == 0


def thinkers(played: list[Rollout]) -> list[Any]:
    return [row for one in played for row in one.rows[:-1]]


def judged(problem: Problem, episode: Rollout, verdicts: VerdictPool) -> list[Trajectory]:
    """The pool, of whose attempts the texts are what the thinkers wrote."""
    for attempt, row in zip(episode.pool, episode.rows[:-1], strict=True):
        text = tokenizer().decode(row.completion.ids, skip_special_tokens=True)
        assert attempt.answer_text in text and attempt.reasoning in text
        assert attempt.verdict == verdicts.submit_generation(problem, attempt).result().verdict
    return episode.pool


def test_width_and_pruning_are_those_of_the_run(verdicts):
    row = rows(1)
    policy = Policy(*attempts(row[0], RIGHT, WRONG, WRONG, RIGHT), "end")
    playing = episodes(cache={"width": 3, "pruning": "think_clipped"})
    played = playing.rollout(row, [1], policy, verdicts)
    assert {item.mode for item in played[0].cache.items} == {"think_clipped"}
    assert figures(played)["attempts/not_selected"] == 1 / 4
    assert figures(played)["attempts/shown"] == 3 / 4


@pytest.mark.parametrize(
    ("kinds", "budget", "why"),
    [
        ((NOTHING, "...", "...", NOTHING), None, "too_few_usable"),
        ((NOTHING, "...", "...", RIGHT), None, "too_few_usable"),
        ((RIGHT, WRONG, WRONG, RIGHT), 230, "too_long"),
    ],
)
def test_an_episode_without_a_cache_has_failed(verdicts, kinds, budget, why):
    row = rows(1)
    texts = attempts(row[0], *kinds)
    if why == "too_long":
        texts = [text.replace("{", "{" + "1" * 40) for text in texts]
    policy = Policy(*texts, "I answer alone")
    played = episodes(cache={"budget_tokens": budget}).rollout(row, [1], policy, verdicts)
    assert played[0].failed == why
    assert policy.asked[-1] == (1, 50)  # asked as often as those of other processes
    assert [one.is_learnt for one in played[0].rows] == [False] * (K + 1)
    assert played[0].cache.items == []
    found = figures(played)
    assert found[f"episodes/{why}"] == 1
    assert found["attempts/unused"] == sum(kind in (RIGHT, WRONG) for kind in kinds) / K
    assert found["attempts/empty"] == kinds.count(NOTHING) / K
    assert found["attempts/truncated"] == kinds.count("...") / K
    assert found["attempts/shown"] == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"deliberate": {"rounds": 2}}, "the run has 2 .* Set deliberate.rounds to 1"),
        ({"deliberate": {"d": 0}}, "the run has 0 .* deliberate.d to 1 or more"),
        (
            {"deliberate": {"task": "choose"}},
            "Mode joint needs one round of task deliberate, but .* of task choose",
        ),
        ({"cache": {"budget_tokens": 1935}}, "A cache of 1935 tokens .* leaves 1934 for the cache"),
        (
            {"deliberate": {"sampling": {"max_tokens": 2000}}},
            "A cache of 1 tokens and a deliberation of 2000 .* a smaller deliberate.sampling.max",
        ),
    ],
)
def test_what_cannot_be_an_episode_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        episodes(**changes)


@pytest.mark.parametrize("is_control", [False, True])
def test_thinking_is_told_from_the_answer_where_its_tags_are_control_tokens(verdicts, is_control):
    from transformers import AutoTokenizer

    reading = AutoTokenizer.from_pretrained(STUDENT)
    if is_control:
        reading.add_special_tokens({"additional_special_tokens": [*COMMON_TAGS]})
        assert {*COMMON_TAGS} <= {*reading.all_special_tokens}
    playing = Episodes(
        run(), Chat(reading, stops_of(STUDENT)), ReaderTokenizer(STUDENT), 2048, 1, 64
    )
    texts = [f"<think>long</think>It is \\boxed{{{n}}}." for n in range(K + 1)]
    (played,) = playing.rollout(rows(1), [1], Policy(*texts), verdicts)
    assert [attempt.reasoning for attempt in played.pool] == ["long"] * K
    assert played.pool[0].answer_text == "It is \\boxed{0}."


def test_roles_without_a_length_of_their_own_have_that_of_the_training():
    playing = episodes(think={"k": 2}, deliberate={})
    assert playing.k == 2
    assert playing.most_tokens == {"thinker": 64, "deliberator": 64}


def test_the_student_plays_with_its_weights_of_the_moment(tmp_path, verdicts):
    """Through the trainer, with prompts as TRL renders them and a length for each role."""
    import torch
    from datasets import Dataset

    from heavydistill.train.grpo.joint import JointTrainer

    two = rows()
    own = {
        "verdicts": verdicts,
        "episodes": episodes(
            think={"k": K, "sampling": {"max_tokens": 150}},
            deliberate={"sampling": {"max_tokens": 20}},
        ),
        "train_dataset": Dataset.from_list(two),
    }
    keys = {"num_generations": 2 * (K + 1), "per_device_train_batch_size": 2 * (K + 1)}
    keys |= {"steps_per_generation": 2, "gradient_accumulation_steps": 1, "seed": 3}
    made = tiny_rollouts.trainer(
        JointTrainer, tmp_path, [1.0, 0.0, 0.0, 1.0], own=own, log_completions=True, **keys
    )
    made.model.train()
    batch = made._generate_and_score_completions(next(iter(made.get_train_dataloader())))
    ids, mask = (made._apart(batch[f"prompt_{name}"]) for name in ("ids", "mask"))
    read = [row[kept.bool()].tolist() for row, kept in zip(ids, mask, strict=True)]
    asked = list(made._logs["prompt"])
    assert read == made._tokenize_prompts(asked)[0]
    of_thinkers = [prompt for number, prompt in enumerate(asked) if number % (K + 1) < K]
    assert of_thinkers == [row["prompt"] for row in two for _ in range(2 * K)]
    caches = asked[K :: K + 1]
    assert all("==== Attempt" in prompt[0]["content"] for prompt in caches)
    lengths = made._apart(batch["completion_mask"]).sum(dim=1).view(-1, K + 1)
    assert 20 < lengths[:, :K].max() <= 150 and lengths[:, K].max() == 20
    usual = made._apart(batch["completion_ids"])[made._apart(batch["completion_mask"]).bool()]
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.zero_()
    batch = made._generate_and_score_completions(next(iter(made.get_train_dataloader())))
    is_written = batch["completion_mask"].bool()
    assert len(batch["completion_ids"][is_written].unique()) > 300 > 3 * len(usual.unique())
    logps = batch["old_per_token_logps"][is_written]
    assert logps.tolist() == pytest.approx([-math.log(704)] * len(logps))
