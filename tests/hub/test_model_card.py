"""The card of a trained model."""

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from command_line import run_command
from huggingface_hub import ModelCard
from model_folders import COMMIT, GENERATED, ON_HUB, RESULT, card_of, record, sets, write_model
from set_folders import manifest
from students import MICRO
from summaries import comparison

from heavydistill.config.versioned import write_versioned
from heavydistill.hub.model_card import write_model_card
from heavydistill.hub.terms import origin_of
from heavydistill.metrics.comparison import Comparison
from heavydistill.metrics.summary import NAMES
from heavydistill.store.sets.folder import BenchmarkUsed
from heavydistill.store.training_record import Alarm, BaseModelUsed, Ends, RlUsed

MODELS = ("--teacher", "--thinker", "--deliberator")
GLM = {"thinker": ["glm-4.6"], "deliberator": ["glm-4.6"]}


def blocks(card: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", card, flags=re.DOTALL)


def commands(card: str, program: str) -> list[list[str]]:
    lines = [line for block in blocks(card, "bash") for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith(f"{program} ")]


def flag(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_the_hub_understands_its_metadata(tmp_path):
    there = sets(name="org/sets", revision=COMMIT)
    card = card_of(tmp_path / "a", lora={}, base=ON_HUB, sets=[there, sets()])
    assert str(tmp_path) not in card and str(MICRO) not in card
    data = ModelCard(card).data
    assert data.base_model == "Qwen/Qwen3-8B" and data.base_model_relation == "adapter"
    assert data.library_name == "peft" and data.pipeline_tag == "text-generation"
    assert data.license == "apache-2.0" and data.language == ["en"]
    assert data.datasets == ["org/sets"]
    assert {"heavydistill", "deliberator", "sft", "lora"} <= set(data.tags)
    assert "thinker" not in data.tags
    data = ModelCard(card_of(tmp_path / "b", base=ON_HUB, role="both")).data
    assert data.base_model_relation == "finetune" and data.library_name == "transformers"
    assert {"thinker", "deliberator"} <= set(data.tags) and "full" not in data.tags
    profile = ON_HUB.model_copy(update={"name": "qwen3-8b"})
    assert ModelCard(card_of(tmp_path / "d", base=profile)).data.base_model == "Qwen/Qwen3-8B"
    data = ModelCard(card_of(tmp_path / "c")).data
    assert data.base_model is None and data.datasets is None
    assert "base_model_relation" not in data.to_dict()


@pytest.mark.parametrize(
    ("changes", "licence", "because"),
    [
        ({}, "apache-2.0", "that of the base model"),
        ({"sets": [sets(manifest(models=GLM))]}, "apache-2.0", "that of the base model"),
        ({"sets": [sets(manifest(models=GLM | {"thinker": ["gpt-5"]}))]}, "other", "gpt-5"),
        ({"base": ON_HUB.model_copy(update={"name": "someone/small"})}, "other", "unknown"),
    ],
)
def test_the_licence_is_the_base_models_where_all_who_wrote_allow_it(changes, licence, because):
    told = origin_of(record(**changes)).licence()
    assert told.name == licence and because in told.because


@pytest.mark.parametrize(
    ("method", "lora", "what"),
    [
        ("full", None, "with all weights trained by heavydistill"),
        ("rslora", {"use_rslora": True}, "a rank-stabilized LoRA adapter for `micro-student`"),
        ("dora", {"use_dora": True}, "a DoRA adapter for `micro-student`"),
        ("qlora", {}, "a LoRA adapter (QLoRA: the base model had 4 bits) for"),
        ("lora", None, "`micro-student` (not on the Hub), with a LoRA adapter merged into it"),
    ],
)
def test_it_says_what_the_weights_are(tmp_path, method, lora, what):
    assert what in card_of(tmp_path / "model", method=method, lora=lora)


def test_data_has_its_provenance(tmp_path):
    told = manifest(
        runs=[GENERATED],
        deliberations={"used": 31, "ignores_attempts": 17},
        trajectories={"used": 5, "not_correct": 2},
        benchmarks=[BenchmarkUsed(name="gsm8k", texts_sha256="ab" * 32, hits={"13_words": 4})],
    )
    there = sets(told, name="org/sets", revision=COMMIT, fraction=0.75)
    thinker = there.model_copy(update={"role": "thinker", "fraction": 0.25})
    card = card_of(tmp_path / "a", sets=[there, thinker], role="both")
    assert card.count("\n### org/sets\n") == 1
    place = "[org/sets](https://huggingface.co/datasets/org/sets) `0123456789ab`"
    assert f"| {place} | deliberator | 75.0% | 1,200 | 60 | 4 |" in card
    assert f"| {place} | thinker | 25.0% | 1,200 | 60 | 4 |" in card
    for part in (
        "- deliberations: 31 of 48 (64.6%) passed the filters; left out: 17 `ignores_attempts`",
        "- trajectories: 5 of 7 (71.4%) passed the filters; left out: 2 `not_correct`",
        "compared with `gsm8k` (4 found)",
        "| `micro` | deliberator and thinker | Apache-2.0 | allowed |",
    ):
        assert part in card, part
    alone = card_of(tmp_path / "b", sets=[thinker], role="thinker")
    assert "| tie |" not in alone and "31 of 48" not in alone and "| `micro` | thinker |" in alone
    none = manifest(runs=[GENERATED.model_copy(update={"config": {}})])
    assert "`run` (24 problems)" in card_of(tmp_path / "c", sets=[sets(none)])


def test_what_not_every_training_has_is_told(tmp_path):
    losses = {"thinker": 0.7, "deliberator": 0.61}
    changes = {"steps": 1500, "epochs": 2.5, "seconds": 3600.7, "peak_memory_gib": 23.456}
    result = RESULT.model_copy(update=changes | {"eval_loss": losses})
    arguments = {"note": "a|b`c", "report_to": ["wandb"]}
    card = card_of(tmp_path / "a", method="qlora", lora={}, arguments=arguments, result=result)
    for row in (
        "| Method | QLoRA |",
        "| Steps | 1,500 (2.5 epochs) |",
        "| Validation loss, thinker | 0.7000 |",
        "| Validation loss, deliberator | 0.6100 |",
        "| Time since the last start | 3,601 s |",
        "| Maximum memory of a GPU | 23.5 GiB |",
        "| `note` | `a/b'c` |",
        '| `report_to` | `["wandb"]` |',
    ):
        assert row in card, row


@pytest.mark.parametrize(
    ("prompts", "given"),
    [
        (["deliberator.general.en@1", "thinker.general.en@2"], []),
        (["deliberator.stem.zh@1", "thinker.stem.zh@2"], ["domain=stem", "language=zh"]),
        (["deliberator.stem.en@1", "deliberator.code.en@2", "mine@3"], []),
    ],
)
def test_the_wording_is_given_only_where_it_is_one_and_not_the_usual(tmp_path, prompts, given):
    card = card_of(tmp_path / "model", sets=[sets(manifest(prompts=prompts))])
    command, *_ = commands(card, "heavydistill")
    assert [value for value in command if "=" in value] == given


@pytest.mark.parametrize(
    ("lora", "rank"),
    [({}, "8"), ({"r": 32, "use_rslora": True}, "32"), ({"rank_pattern": {"q_proj": 40}}, "64")],
)
def test_vllm_serves_base_model_and_adapter(tmp_path, lora, rank):
    card = card_of(tmp_path / "model", lora=lora, base=ON_HUB)
    (serve,) = commands(card, "vllm")
    assert serve[2] == "Qwen/Qwen3-8B" and flag(serve, "--revision") == COMMIT
    assert flag(serve, "--max-lora-rank") == rank and "--enable-lora" in serve
    assert flag(serve, "--lora-modules") == "deliberator=path/to/this/folder"
    assert flag(serve, "--tokenizer") == "path/to/this/folder"
    assert flag(serve, "--reasoning-parser") == "qwen3"
    ask = commands(card, "heavydistill")[1]
    assert flag(ask, "--thinker") == "Qwen/Qwen3-8B" and flag(ask, "--deliberator") == "deliberator"


@pytest.mark.parametrize("lora", [{"use_dora": True}, {"modules_to_save": ["lm_head"]}, {"r": 600}])
def test_an_adapter_that_vllm_does_not_take_is_merged_first(tmp_path, lora):
    card = card_of(tmp_path / "model", lora=lora)
    (serve,) = commands(card, "vllm")
    assert serve == ["vllm", "serve", "merged"]
    assert "model.merge_and_unload()" in blocks(card, "python")[1]


@pytest.mark.parametrize("role", ["thinker", "deliberator", "both"])
def test_its_command_runs(tmp_path, role):
    folder = tmp_path / "model"
    card = card_of(folder, role=role)
    assert commands(card, "vllm") == [["vllm", "serve", "path/to/this/folder"]]
    command, *served = commands(card, "heavydistill")
    asked = {name: flag(command, name) for name in command if name in MODELS}
    base, trained = "micro-student", "path/to/this/folder"
    if role == "both":
        assert asked == {"--teacher": trained} and flag(served[0], "--teacher") == trained
    elif role == "thinker":
        assert asked == {"--thinker": trained, "--deliberator": base} and not served
    else:  # one server has one model, so attempts are those of another run
        assert asked == {"--thinker": base, "--deliberator": trained}
        assert flag(served[0], "--pools") == "runs/attempts" and "--thinker" not in served[0]
    (tmp_path / "problems.jsonl").write_text('{"text": "What is 2 + 3?", "reference": "5"}\n')
    arguments = [part.replace(trained, str(folder)) for part in command[1:]]
    done = run_command(*arguments, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "domain: brief" in done.stdout


@pytest.mark.parametrize("role", ["thinker", "deliberator", "both"])
def test_a_deliberator_is_asked_with_as_many_attempts_as_it_learnt_from(tmp_path, role):
    configs = {"small": {"think": {"k": 8}}, "wide": {"think": {"k": 24}}, "untold": {}}
    runs = {
        name: GENERATED.model_copy(update={"config": config}) for name, config in configs.items()
    }
    told = sets(manifest(runs=list(runs.values())))
    card = card_of(tmp_path / "told", role=role, sets=[told])
    is_asked = role != "thinker"
    assert ("--k 24 " in card) == ("runs of up to 24 attempts per problem" in card) == is_asked
    untold = sets(manifest(runs=[runs["untold"]]))
    card = card_of(tmp_path / "untold", role=role, sets=[untold])
    assert "--k " not in card and "of up to" not in card


def test_names_of_others_are_no_markup_and_no_commands(tmp_path):
    base = BaseModelUsed(
        name="a|b`c\n# Title; rm -rf x", revision="0" * 16, template_sha256="1" * 64
    )
    told = sets(name="<b>\n## More")
    card = card_of(tmp_path / "model", lora={}, base=base, sets=[told])
    assert not [line for line in card.splitlines() if line.startswith(("# Title", "## More"))]
    assert not [text for text in blocks(card, "bash") if "rm -rf" in text]
    assert "<b>" not in card.replace("`<b> ## More`", "")
    ModelCard(card)


@pytest.mark.parametrize(
    ("role", "alone", "named"),
    [
        ("deliberator", False, ["HM@4", "HP@4"]),
        ("thinker", False, ["M@8", "V@8", "P@8"]),
        ("both", False, []),
        ("thinker", True, ["M@8", "V@8", "P@8", "HM@4", "HP@4"]),
    ],
)
def test_the_hub_lists_as_its_results_only_what_the_model_did_itself(tmp_path, role, alone, named):
    told = comparison()
    if not alone:  # the thinker is another model
        after = dataclasses.replace(told.after, thinker=told.before.thinker)
        told = dataclasses.replace(told, after=after)
    card = evaluated(tmp_path / "model", told, role=role)
    results = ModelCard(card).data.eval_results or []
    assert [result.metric_name.split()[0] for result in results] == named


def evaluated(folder: Path, told: Comparison, **changes: Any) -> str:
    """The card of a model, made for it, with an evaluation."""
    (write_model(folder, **changes) / "evaluation").mkdir()
    write_versioned(told, folder / "evaluation" / "evaluation.json")
    write_model_card(folder)
    return (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("left_out", "is_told"), [(3, True), (0, False), (None, False)])
def test_the_card_tells_its_result_and_what_the_evaluation_left_out(tmp_path, left_out, is_told):
    assert "The model was not evaluated." in card_of(tmp_path / "none")
    told = comparison()
    after = dataclasses.replace(told.after, left_out=left_out)
    card = evaluated(tmp_path / "model", dataclasses.replace(told, after=after))
    result = (
        "**Deliberation against the model's own vote is better: 53.6% right against 54.0% before"
    )
    result += ", 75.0% right against 54.0% after.** +28.0 points"
    assert f"{result}, 95% interval +25.0 to +30.0, over 1,000 problems." in card
    assert ("3 rows of the source cannot be judged and were left out." in card) == is_told


def test_an_evaluation_without_a_before_has_no_difference(tmp_path):
    changes = {name: getattr(comparison(), name) for name in NAMES}
    alone = {
        name: dataclasses.replace(c, before=None, difference=None) for name, c in changes.items()
    }
    card = evaluated(tmp_path / "model", comparison(before=None, **alone))
    assert "| Metric, 95% intervals | After |" in card and "Before:" not in card
    assert "| HM@4, a deliberation is right | 75.0% (70.0 to 80.0) |" in card


ASKED = RlUsed(
    mode="deliberator",
    longest_prompt=500,
    response_tokens=96,
    left_out={"never_right": 7, "too_long": 2},
    problems_sha256="0" * 64,
)
REWARDED = RESULT.model_copy(
    update={"steps": 8, "epochs": 1.0, "rollouts": {"reward": Ends(first=0.25, last=0.5)}}
)


def test_a_model_of_grpo_tells_what_was_asked_and_rewarded(tmp_path):
    text = card_of(tmp_path / "a", stage="grpo", rl=ASKED, result=REWARDED)
    assert "left out: 7 `never_right`, 2 `too_long`" in text and "max_new_tokens=96)" in text
    assert "Rows learnt" not in text and "Tokens of an epoch" not in text
    assert "The judge" not in text
    judge = ASKED.model_copy(update={"judge": "critic@0a1b2c"})
    text = card_of(tmp_path / "b", stage="grpo", rl=judge, result=REWARDED)
    said = "The judge `critic@0a1b2c` decided what the verifier left undecided."
    assert said in " ".join(text.split())
    assert "Training loss" not in text


@pytest.mark.parametrize(
    ("action", "to", "told"),
    [
        ("roll_back", 4, "; the model is that of step 4"),
        (
            *("roll_back", None),
            "; the model is that of the last step, since there was no checkpoint to roll back to",
        ),
        ("warn", None, ""),
    ],
)
def test_a_model_whose_guard_fired_says_which_step_it_is_of(tmp_path, action, to, told):
    alarm = Alarm(guard="entropy", step=6, value=0.2, bound=0.6, action=action, rolled_back_to=to)
    result = REWARDED.model_copy(update={"alarms": [alarm]})
    text = card_of(tmp_path / "a", stage="grpo", rl=ASKED, result=result)
    assert f"| Steps | 8 (1 epochs){told} |" in text
    assert f"| Guard `entropy`, step 6 | 0.2, bound 0.6: `{action}` |" in text


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
    judge = thinker.model_copy(update={"judge": "gpt-oss-120b@0a1b2c"})
    judged = origin_of(record(sets=used, stage="grpo", rl=judge, role="thinker")).authors
    assert [(one.name, one.roles) for one in judged] == [("gpt-oss-120b", ("judge",))]


def test_a_base_of_ours_that_wrote_the_attempts_needs_no_terms_of_its_own():
    own = {"name": "out", "revision": "0" * 16}
    before = record(base=ON_HUB, sets=[sets(manifest(models=GLM))])
    base = BaseModelUsed(name="out", revision="0" * 16, template_sha256="1" * 64, training=before)
    for thinkers, is_sure in (
        ([own], True),
        ([{**own, "revision": "another"}], False),
        ([own, {**own, "name": "another"}], True),
        ([own, None], False),  # whose pools those of a run are is not told
    ):
        runs = [GENERATED.model_copy(update={"summary": {"thinker": each}}) for each in thinkers]
        asked = [sets(manifest(models={"thinker": ["out"]}, runs=runs))]
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
    assert "Its base model was trained from `Qwen/Qwen3-8B` by supervised fine-tuning as" in text


def test_a_distilled_model_names_its_teacher_whose_terms_count(tmp_path):
    teacher = BaseModelUsed(name="gpt-5", revision="0" * 40, template_sha256="0" * 64)
    asked = ASKED.model_copy(update={"teacher": teacher, "objective": "reverse KL"})
    asked = asked.model_copy(update={"judge": "gpt-oss-120b@0a1b2c"})
    result = REWARDED.model_copy(
        update={"rollouts": {"completions/clipped_ratio": Ends(first=1.0, last=1.0)}}
    )
    text = " ".join(card_of(tmp_path / "a", stage="distill", rl=asked, result=result).split())
    assert "At every token of its own deliberations on given attempts it learnt the" in text
    assert "distribution of the teacher `gpt-5` (reverse KL)." in text
    assert "what the teacher would have written at each of their tokens" in text
    assert "nothing: no response ended" in text and "verdicts on these" not in text
    authors = origin_of(record(sets=[], stage="distill", rl=asked)).authors
    assert [(one.name, one.roles) for one in authors] == [("gpt-5", ("teacher",))]
    tuned = teacher.model_copy(update={"name": "tuned", "training": record()})
    asked = asked.model_copy(update={"teacher": tuned})
    authors = origin_of(record(sets=[], stage="distill", rl=asked)).authors
    of_teacher = {one.name for one in origin_of(record()).authors}
    assert of_teacher and {one.name for one in authors} == {"tuned", *of_teacher}
