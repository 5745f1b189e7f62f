"""Adapters merged: real ones, on the bundled student."""

import json
import shutil
from pathlib import Path
from typing import Any

import messages
import pytest
from adapters import KINDS, Q_PROJ, WHOLE_EMBEDDINGS, answers, write_adapter, write_training
from students import MICRO, PAD, TURN_ENDS
from trainings import weights

from heavydistill.errors import ConfigError
from heavydistill.store.training_record import read_record
from heavydistill.train import merge as merging
from heavydistill.train.merge import merge

pytest.importorskip("peft", reason="PEFT, which merges adapters, is not installed")
pytestmark = pytest.mark.filterwarnings(
    "ignore:Model has `tie_word_embeddings=True`", "ignore:Input and output embeddings are no"
)


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter whose training has ended; not to be changed."""
    return write_training(write_adapter(tmp_path_factory.mktemp("adapters") / "lora"))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", [*KINDS, "whole embeddings"])
def test_a_merged_adapter_is_the_same_model(kind, tmp_path):
    folder = write_adapter(tmp_path / "adapter", **KINDS.get(kind, WHOLE_EMBEDDINGS))
    found = merge(str(folder), tmp_path / "half")
    assert found.dtype == "bfloat16" and not found.record
    assert not (tmp_path / "half" / "training.json").exists()
    assert 0 < found.difference < 4 * found.rounding < found.effect
    exact = merge(str(folder), tmp_path / "merged", dtype="float32")
    assert exact.dtype == "float32" and exact.difference < 1e-3 and exact.effect > 1
    assert answers(tmp_path / "merged") == answers(folder)


@pytest.mark.parametrize(("kind", "scale"), [("lora", 16 / 8), ("rslora", 16 / 8**0.5)])
def test_the_weights_are_those_of_the_formula(kind, scale, tmp_path):
    import torch

    folder = write_adapter(tmp_path / "adapter", **KINDS[kind])
    merge(str(folder), tmp_path / "merged", dtype="float32")
    adapter = weights(folder)
    delta = adapter[f"{Q_PROJ}.lora_B.weight"].float() @ adapter[f"{Q_PROJ}.lora_A.weight"].float()
    name = "model.layers.0.self_attn.q_proj.weight"
    before, after = weights(MICRO), weights(tmp_path / "merged")
    torch.testing.assert_close(after[name], before[name].float() + scale * delta)
    same = "model.norm.weight"  # not adapted
    assert after[same].equal(before[same].float())


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_what_was_trained_in_4_bit_is_merged_into_the_whole_base(kind, tmp_path):
    pytest.importorskip("bitsandbytes")
    import torch
    from transformers import BitsAndBytesConfig

    four_bit = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
    )
    load = {"quantization_config": four_bit, "dtype": torch.float32}
    folder = write_adapter(tmp_path / "adapter", load=load, **KINDS[kind])
    write_training(folder, method="qlora")
    found = merge(str(folder), tmp_path / "merged")
    assert found.dtype == "bfloat16" and found.effect > 4 * found.rounding
    assert "quantization_config" not in json.loads((tmp_path / "merged/config.json").read_text())
    assert read_record(tmp_path / "merged").method == "qlora"
    same = "model.embed_tokens.weight"
    assert weights(tmp_path / "merged")[same].equal(weights(MICRO)[same])


def test_the_folder_has_all_that_an_engine_needs(lora, tmp_path):
    adapter = Path(shutil.copytree(lora, tmp_path / "adapter"))
    template = adapter / "chat_template.jinja"
    template.write_text(template.read_text() + "{# as trained #}")
    (adapter / "README.md").write_text("about the adapter alone")
    merge(str(adapter), tmp_path / "merged")
    found = files(tmp_path / "merged")
    assert sorted(found) == sorted([*files(MICRO), "training.json"])
    assert found["training.json"] == (adapter / "training.json").read_bytes()
    assert found["chat_template.jinja"] == template.read_bytes()
    assert found["tokenizer.json"] == (MICRO / "tokenizer.json").read_bytes()
    config, base = (json.loads(one) for one in (found["config.json"], files(MICRO)["config.json"]))
    assert config == base
    assert json.loads(found["generation_config.json"])["eos_token_id"] == TURN_ENDS
    modes = {path.stat().st_mode for path in (tmp_path / "merged").iterdir()}
    assert len(modes) == 1


def test_the_same_adapter_gives_the_same_bytes(lora, tmp_path):
    for out in ("one", "other"):
        merge(str(lora), tmp_path / out)
    assert files(tmp_path / "one") == files(tmp_path / "other")


def test_generation_stops_where_the_adapters_turns_end(tmp_path):
    base = Path(shutil.copytree(MICRO, tmp_path / "base"))
    settings = {"eos_token_id": PAD, "temperature": 0.6}  # sampling is not switched on
    (base / "generation_config.json").write_text(json.dumps(settings))
    merge(str(write_adapter(tmp_path / "adapter", base)), tmp_path / "merged")
    found = json.loads((tmp_path / "merged" / "generation_config.json").read_text())
    assert found["eos_token_id"] == [PAD, TURN_ENDS]
    assert found["temperature"] == 0.6


def test_an_adapter_that_rounding_drowns_is_noted(tmp_path):
    folder = write_adapter(tmp_path / "adapter", strength=1e-5)
    assert merge(str(folder), tmp_path / "half").is_drowned
    assert not merge(str(folder), tmp_path / "whole", dtype="float32").is_drowned


@pytest.mark.parametrize("factor", [0.0, 3.0, float("nan")])
def test_what_is_not_the_same_model_gets_no_name(factor, lora, tmp_path, monkeypatch):
    from transformers import LlamaForCausalLM

    save = LlamaForCausalLM.save_pretrained

    def save_otherwise(model: Any, folder: Path) -> None:
        model.model.layers[1].mlp.down_proj.weight.data *= factor
        save(model, folder)

    monkeypatch.setattr(LlamaForCausalLM, "save_pretrained", save_otherwise)
    with messages.raises("merged_differs"):
        merge(str(lora), tmp_path / "merged")
    assert not list(tmp_path.iterdir())


def test_what_is_broken_off_leaves_nothing(lora, tmp_path, monkeypatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(merging, "_look", stop)
    with pytest.raises(KeyboardInterrupt):
        merge(str(lora), tmp_path / "merged")
    assert not list(tmp_path.iterdir())


def test_what_is_no_adapter_is_refused(tmp_path):
    with messages.raises("no_adapter", folder=tmp_path / "nothing"):
        merge(str(tmp_path / "nothing"), tmp_path / "merged")


def test_a_training_that_has_not_ended_is_refused(lora, tmp_path):
    folder = Path(shutil.copytree(lora, tmp_path / "adapter"))
    write_training(folder, result=None)
    with pytest.raises(ConfigError, match="has not ended"):
        merge(str(folder), tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_base_that_has_changed_since_is_taken_only_if_named(tmp_path):
    base = Path(shutil.copytree(MICRO, tmp_path / "base"))
    folder = write_training(write_adapter(tmp_path / "adapter", base), base)
    config = base / "config.json"
    config.write_text(config.read_text().replace("1e-06", "2e-06"))
    with messages.raises("other_base", base=base):
        merge(str(folder), tmp_path / "merged")
    assert not merge(str(folder), tmp_path / "merged", base=str(base)).record
    assert not (tmp_path / "merged" / "training.json").exists(), "it tells of another base"
    shutil.rmtree(base)
    with messages.raises("not_loaded"):
        merge(str(folder), tmp_path / "again")
    found = merge(str(folder), tmp_path / "again", base=str(MICRO))
    assert found.base == str(MICRO) and found.record
    assert read_record(tmp_path / "again") == read_record(folder)


def test_a_folder_that_is_taken_is_refused(lora, tmp_path):
    (tmp_path / "mine").write_text("kept")
    with messages.raises("out_not_empty"):
        merge(str(lora), tmp_path)
    assert (tmp_path / "mine").read_text() == "kept"
