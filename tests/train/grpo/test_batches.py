"""The arithmetic of a GRPO training: what is refused can be mended with what the message says."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trl.trainer.utils import RepeatSampler

from heavydistill.errors import ConfigError
from heavydistill.train.grpo.batches import (
    GenerationBatch,
    check_batch,
    check_episodes,
    check_prompts,
    check_validation,
)

SMALL = st.integers(1, 12)
BATCHES = st.builds(
    GenerationBatch,
    per_device=SMALL,
    processes=st.integers(1, 8),
    accumulation=SMALL,
    per_generation=SMALL,
    group=st.integers(2, 40),
    iterations=st.integers(1, 3),
)


def refused(function, *arguments: object) -> str:
    with pytest.raises(ConfigError) as raised:
        function(*arguments)
    return str(raised.value)


def changed(batch: GenerationBatch, message: str) -> GenerationBatch:
    """With all the flags that a message gives."""
    flags = dict(re.findall(r"--(\w+) (\d+)", message))
    names = {
        "num_generations": "group",
        "per_device_train_batch_size": "per_device",
        "steps_per_generation": "per_generation",
    }
    values = {name: getattr(batch, name) for name in batch.__dataclass_fields__}
    return GenerationBatch(**{**values, **{names[key]: int(value) for key, value in flags.items()}})


@given(BATCHES)
def test_a_generation_has_whole_groups_or_the_message_says_which_two_ways_there_are(
    batch: GenerationBatch,
) -> None:
    if batch.rows % batch.group == 0:
        check_batch(batch)
        return
    message = refused(check_batch, batch)
    for way in message.rpartition("Give ")[2].split(", or "):
        mended = changed(batch, way)
        assert mended.rows % mended.group == 0
        assert mended.per_generation >= batch.per_generation


def test_a_generation_of_one_response_has_room_for_no_group() -> None:
    message = refused(check_batch, GenerationBatch(1, 1, 1, 1, 8, 1))
    assert message.endswith("Give --steps_per_generation 8.")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            GenerationBatch(4, 1, 1, 4, 3, 1),
            "Give --num_generations 4, or --steps_per_generation 6.",
        ),
        (
            GenerationBatch(4, 1, 1, 4, 1, 1),
            "num_generations: 1 responses to a prompt cannot be compared",
        ),
        (GenerationBatch(0, 1, 1, 4, 4, 1), "per_device_train_batch_size: 0 is not more than 0"),
        (GenerationBatch(4, 1, 1, 0, 4, 1), "steps_per_generation: 0 is not more than 0"),
    ],
)
def test_a_batch_that_cannot_be_is_named(batch: GenerationBatch, message: str) -> None:
    assert message in refused(check_batch, batch)


@given(BATCHES, st.integers(2, 16))
def test_episodes_are_whole_or_the_message_says_how_they_become_so(
    batch: GenerationBatch, attempts: int
) -> None:
    size = attempts + 1
    if batch.group % size == 0 and batch.group >= 2 * size and batch.per_device % size == 0:
        check_episodes(batch, attempts)
        return
    mended = changed(batch, refused(check_episodes, batch, attempts))
    check_episodes(mended, attempts)
    check_batch(mended)
    assert mended.rows >= batch.rows


def test_a_k_that_does_not_divide_the_batch_is_told_the_right_values() -> None:
    message = refused(check_episodes, GenerationBatch(8, 1, 1, 4, 8, 1), 4)
    assert "whole episodes of K + 1 = 5 responses (think.k is 4)" in message
    assert message.endswith(
        "Give --num_generations 10 --per_device_train_batch_size 10 --steps_per_generation 4: "
        "2 episodes a problem."
    )


@given(BATCHES, st.integers(1, 200))
def test_there_is_a_step_to_take_or_the_message_says_how_few_steps_a_generation_may_have(
    batch: GenerationBatch, prompts: int
) -> None:
    if batch.rows % batch.group:
        return
    if prompts >= batch.prompts:
        check_prompts(batch, prompts)
        assert batch.steps(prompts) > 0
        return
    assert batch.steps(prompts) == 0
    message = refused(check_prompts, batch, prompts)
    mended = changed(batch, message)
    least = math.lcm(batch.group, batch.per_device * batch.processes)
    assert (mended != batch) == (prompts * batch.group >= least)
    if mended != batch:
        check_batch(mended)
        check_prompts(mended, prompts)
    else:
        assert f"{least} responses are the least" in message


@given(BATCHES, st.integers(1, 500))
def test_steps_are_counted_as_the_trainer_counts_them(batch: GenerationBatch, prompts: int) -> None:
    if batch.rows % batch.group or prompts < batch.prompts:
        return
    sampler = RepeatSampler(
        range(prompts),
        mini_repeat_count=batch.group,
        batch_size=batch.prompts,
        repeat_count=batch.iterations * batch.per_generation,
    )
    of_loader = len(sampler) // batch.rows
    assert batch.steps(prompts) == max(1, math.ceil(of_loader / batch.accumulation))


@given(st.integers(1, 16), st.integers(1, 8), st.integers(1, 16))
def test_an_evaluation_has_whole_groups_or_the_message_says_how(
    per_device: int, processes: int, group: int
) -> None:
    if per_device * processes % group == 0:
        check_validation(per_device, processes, group)
        return
    message = refused(check_validation, per_device, processes, group)
    found = re.search(r"--per_device_eval_batch_size (\d+)", message)
    assert found
    check_validation(int(found[1]), processes, group)
