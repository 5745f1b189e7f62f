"""The card of a model of GRPO: what was asked and rewarded, and whose words it read."""

from __future__ import annotations

from huggingface_hub import ModelCard
from model_folders import COMMIT, card_of, record, sets
from set_folders import manifest

from heavydistill.hub.terms import origin_of
from heavydistill.store.training_record import Alarm, BaseModelUsed, Ends, Result, RlUsed

ON_HUB = BaseModelUsed(name="Qwen/Qwen3-8B", revision=COMMIT, template_sha256="1" * 64)
ASKED = RlUsed(
    mode="deliberator",
    longest_prompt=500,
    response_tokens=96,
    left_out={"never_right": 7, "too_long": 2},
    problems_sha256="0" * 64,
)
REWARDED = Result(
    steps=8,
    epochs=1.0,
    train_loss=0.1,
    rollouts={"reward": Ends(first=0.25, last=0.5)},
    tokens=3000,
    seconds=1.5,
    peak_memory_gib=None,
)


def test_a_model_of_grpo_tells_what_was_asked_and_rewarded(tmp_path):
    text = card_of(tmp_path / "a", stage="grpo", rl=ASKED, result=REWARDED)
    data = ModelCard(text).data
    assert "grpo" in data.tags and "sft" not in data.tags
    assert "reinforcement learning, in which the verdict of a verifier on its answers" in text
    assert "caches of `sets` were asked, of up to 500 tokens" in text
    assert "left out: 7 `never_right`, 2 `too_long`" in text
    assert "| reward, first and last tenth | 0.25, 0.5 |" in text
    assert "Rows learnt" not in text and "Tokens of an epoch" not in text
    assert "Training loss" not in text
    assert "max_new_tokens=96)" in text


def test_a_model_that_was_rolled_back_says_so(tmp_path):
    alarm = Alarm(
        guard="entropy", step=6, value=0.2, bound=0.6, action="roll_back", rolled_back_to=4
    )
    back = REWARDED.model_copy(update={"alarms": [alarm]})
    text = card_of(tmp_path / "a", stage="grpo", rl=ASKED, result=back)
    assert "| Steps | 8 (1 epochs); the model is that of step 4 |" in text
    assert "| Guard `entropy`, step 6 | 0.2, bound 0.6: `roll_back` |" in text


def test_a_model_that_had_no_checkpoint_to_roll_back_to_says_so(tmp_path):
    alarm = Alarm(guard="entropy", step=6, value=0.2, bound=0.6, action="roll_back")
    last = REWARDED.model_copy(update={"alarms": [alarm]})
    text = card_of(tmp_path / "a", stage="grpo", rl=ASKED, result=last)
    told = "the model is that of the last one, for there was no checkpoint to roll back to"
    assert f"| Steps | 8 (1 epochs); {told} |" in text
    warned = REWARDED.model_copy(update={"alarms": [alarm.model_copy(update={"action": "warn"})]})
    assert "the model is that of" not in card_of(
        tmp_path / "b", stage="grpo", rl=ASKED, result=warned
    )


def test_of_grpo_only_those_are_authors_whose_words_were_read():
    models = {"thinker": ["glm-4.6"], "deliberator": ["gpt-5"]}
    used = [sets(manifest(models=models))]
    wrote = {one.name for one in origin_of(record(sets=used)).authors}
    assert wrote == {"glm-4.6", "gpt-5"}
    of_caches = record(sets=used, stage="grpo", rl=ASKED)
    assert {one.name for one in origin_of(of_caches).authors} == {"glm-4.6"}
    thinker = ASKED.model_copy(update={"mode": "thinker"})
    alone = record(sets=used, stage="grpo", rl=thinker, role="thinker")
    assert origin_of(alone).authors == []


def test_a_base_of_ours_that_wrote_the_attempts_needs_no_terms_of_its_own():
    own = {"name": "out", "revision": "0" * 16}
    glm = {"thinker": ["glm-4.6"], "deliberator": ["glm-4.6"]}
    before = record(base=ON_HUB, sets=[sets(manifest(models=glm))])
    base = BaseModelUsed(name="out", revision="0" * 16, template_sha256="1" * 64, training=before)
    for thinkers, is_sure in (
        ([own], True),
        ([{**own, "revision": "another"}], False),
        ([own, {**own, "name": "another"}], True),
        ([own, None], False),  # whose pools those of a run are is not told
    ):
        read = manifest(models={"thinker": ["out"]})
        runs = [
            read.runs[0].model_copy(update={"summary": {"thinker": thinker}})
            for thinker in thinkers
        ]
        asked = [sets(read.model_copy(update={"runs": runs}))]
        origin = origin_of(record(base=base, sets=asked, stage="grpo", rl=ASKED))
        assert ("out" not in {one.name for one in origin.authors}) == is_sure
        assert (origin.licence().name != "other") == is_sure


def test_a_base_of_ours_hands_on_its_licence_and_its_authors(tmp_path):
    gpt = {"thinker": ["gpt-5"], "deliberator": ["gpt-5"]}
    before = record(base=ON_HUB, sets=[sets(manifest(models=gpt))])
    folder = BaseModelUsed(name="out", revision="0" * 16, template_sha256="1" * 64, training=before)
    after = record(base=folder, sets=[sets(manifest(models={}))], stage="grpo", rl=ASKED)
    origin = origin_of(after)
    assert "gpt-5" in {one.name for one in origin.authors}
    assert origin.base.licence and origin.base.hub is None
    text = card_of(tmp_path / "a", base=folder, stage="grpo", rl=ASKED, result=REWARDED)
    assert "The base itself came of `Qwen/Qwen3-8B` by supervised fine-tuning as" in text
