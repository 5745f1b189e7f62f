"""What a model's own settings may not do to what is sampled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from students import MICRO
from tiny_grpo import rewarding, trainer
from trainings import grpo_arguments

from heavydistill.errors import ConfigError
from heavydistill.train.grpo.config import check_sampling
from heavydistill.train.grpo.train import prepare


def model_with(folder: Path, **settings: Any) -> Path:
    """The student with more in its ``generation_config.json``."""
    shutil.copytree(MICRO, folder)
    file = folder / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **settings}), "utf-8")
    return folder


def test_a_model_that_bends_its_own_distribution_is_refused_before_it_is_loaded(
    sets: Path, tmp_path: Path
) -> None:
    bent = model_with(tmp_path / "bent", no_repeat_ngram_size=3, typical_p=0.3)
    few = {"steps_per_generation": 2}
    with pytest.raises(ConfigError, match=r'"typical_p": 0[.]3, "no_repeat') as raised:
        prepare(grpo_arguments(sets, tmp_path / "out", model_name_or_path=bent, **few))
    assert "Take a copy of the model without them" in raised.value.fix


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05},
        {"typical_p": 1.0, "num_beams": 1, "guidance_scale": None, "max_length": 20},
        {"min_new_tokens": 0, "suppress_tokens": [], "bad_words_ids": []},
    ],
)
def test_what_a_training_sets_or_what_changes_nothing_is_no_fault(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    check_sampling(str(model_with(tmp_path / "usual", **settings)))


def test_the_settings_are_those_of_the_revision_that_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bent = model_with(tmp_path / "bent", forced_bos_token_id=0) / "generation_config.json"
    monkeypatch.setattr(
        "transformers.utils.cached_file",
        lambda name, file, revision=None, **options: str(bent) if revision == "new" else None,
    )
    check_sampling("org/model")
    with pytest.raises(ConfigError, match='"forced_bos_token_id": 0'):
        check_sampling("org/model", "new")


def test_a_model_without_settings_is_no_fault(tmp_path: Path) -> None:
    check_sampling(str(tmp_path))


def test_the_min_p_of_a_model_does_not_count(sets: Path, tmp_path: Path) -> None:
    asked = grpo_arguments(sets, tmp_path / "out", steps_per_generation=2)
    for name, min_p, least, most in (("own", None, 1, 1), ("ours", asked.config.min_p, 8, 32)):
        made = trainer(tmp_path / name, rewarding(), min_p=min_p)
        made.model.generation_config.min_p = 1.0  # only the likeliest token
        prompt = made._tokenizer("17 + 25 =")["input_ids"]
        written = made._generate_single_turn([prompt] * 32, None, {}, 1)[0]
        assert least <= len({tuple(one) for one in written}) <= most
