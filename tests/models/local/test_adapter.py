"""Adapters asked in this process: real ones, on the bundled student."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from adapters import (
    KINDS,
    Q_PROJ,
    WHOLE_EMBEDDINGS,
    changed,
    other_base,
    write_adapter,
    write_training,
)
from students import MICRO, TURN_BEGINS, TURN_ENDS

from heavydistill.chat.student import Student
from heavydistill.config.models import Endpoint
from heavydistill.errors import TeacherError
from heavydistill.models.local.adapter import adapter_of
from heavydistill.models.local.engine import LocalEngine, local_revision
from heavydistill.models.registry import profile_at, revision_of

pytest.importorskip("peft", reason="PEFT, which loads adapters, is not installed")
pytestmark = pytest.mark.filterwarnings(
    "ignore:Model has `tie_word_embeddings=True`",
    "ignore:Input and output embeddings are no",
    "ignore:Setting `save_embedding_layers`",
)


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter whose training has ended; not to be changed."""
    return write_training(write_adapter(tmp_path_factory.mktemp("adapters") / "lora"))


def edit(folder: Path, file: str, **changes: object) -> None:
    """Change keys of a JSON file."""
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def based_on(folder: Path, base: object) -> None:
    edit(folder, "adapter_config.json", base_model_name_or_path=str(base))


@pytest.fixture
def copy(lora: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(lora, tmp_path / "adapter"))


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_gives_the_logits_of_base_and_adapter(kind, tmp_path):
    import torch
    from peft import PeftModelForCausalLM
    from transformers import AutoModelForCausalLM

    folder = write_adapter(tmp_path / kind, **KINDS[kind])
    base = AutoModelForCausalLM.from_pretrained(MICRO, dtype=torch.float32)
    ids = torch.arange(40, 80)[None]
    with torch.inference_mode():
        plain = base(ids).logits
        wanted = PeftModelForCausalLM.from_pretrained(base, folder).eval()(ids).logits
        found = LocalEngine(str(folder)).model(ids).logits
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=0)
    assert (wanted - plain).abs().max() > 1


def test_whole_embeddings_of_a_model_with_shared_ones_are_the_adapters(tmp_path):
    folder = write_adapter(tmp_path / "a", **WHOLE_EMBEDDINGS)
    model = LocalEngine(str(folder)).model
    embeddings, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    base = LocalEngine(str(MICRO)).model.get_input_embeddings().weight
    assert head.equal(base) and not embeddings.equal(base)


def test_what_an_adapter_needs_and_does_not_have_is_its_bases(copy):
    profile, base = profile_at(str(copy), Endpoint()), profile_at(str(MICRO), Endpoint())
    assert (profile.model, profile.tokenizer) == (str(copy), str(copy))
    assert (profile.context, profile.deliberator) == (base.context, base.deliberator)
    for file in copy.glob("*token*"):
        file.unlink()
    assert profile_at(str(copy), Endpoint()).tokenizer == str(MICRO)
    engine = LocalEngine(str(copy))
    assert engine.tokenizer.chat_template == (MICRO / "chat_template.jinja").read_text()
    assert engine.model.generation_config.eos_token_id == TURN_ENDS


def test_an_adapters_own_chat_template_is_in_use(copy):
    template = copy / "chat_template.jinja"
    template.write_text(template.read_text() + "{# its own #}")
    assert LocalEngine(str(copy)).tokenizer.chat_template.endswith("{# its own #}")
    assert Student(str(copy)).chat.template.endswith("{# its own #}")


def test_a_student_that_is_an_adapter_stops_where_its_base_does(copy, tmp_path):
    base = Path(shutil.copytree(MICRO, tmp_path / "base"))
    edit(base, "generation_config.json", eos_token_id=[TURN_ENDS, TURN_BEGINS])
    based_on(copy, base)
    student = Student(str(copy))
    assert student.chat.stops == {TURN_BEGINS, TURN_ENDS}
    assert student.context == Student(str(MICRO)).context


def test_the_revision_tells_adapters_and_their_bases_apart(copy, tmp_path):
    base = Path(shutil.copytree(MICRO, tmp_path / "base"))
    based_on(copy, base)
    first = local_revision(str(copy))
    assert first == local_revision(str(copy))
    assert revision_of(profile_at(str(copy), Endpoint()), Endpoint()) == first
    assert LocalEngine(str(copy)).revision == first
    edit(base, "config.json", rms_norm_eps=2e-6)
    second = local_revision(str(copy))
    edit(copy, "adapter_config.json", lora_alpha=17)
    third = local_revision(str(copy))
    assert len({first, second, third, local_revision(str(base))}) == 4


def test_an_adapter_of_the_hub_has_the_commits_of_both(lora, tmp_path, monkeypatch):
    from huggingface_hub import constants

    def store(repo: str, commit: str, source: Path) -> Path:
        folder = tmp_path / f"models--org--{repo}"
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs" / "main").write_text(commit)
        snapshot = folder / "snapshots" / commit
        return Path(shutil.copytree(source, snapshot))

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    store("base", "b" * 40, MICRO)
    based_on(store("adapter", "a" * 40, lora), "org/base")
    assert adapter_of("org/base") is None
    assert local_revision("org/base") == "b" * 40
    profile = profile_at("org/adapter", Endpoint())
    assert (profile.tokenizer, profile.context) == ("org/adapter", 2048)
    first = local_revision("org/adapter")
    store("base", "c" * 40, MICRO)
    second = local_revision("org/adapter")
    assert len({first, second, "a" * 40, "b" * 40, "c" * 40}) == 5
    pinned = tmp_path / "models--org--adapter" / "snapshots" / ("a" * 40)
    edit(pinned, "adapter_config.json", revision="b" * 40)
    assert local_revision("org/adapter") == first


def test_without_peft_it_is_said_how_to_install_it(lora, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(TeacherError, match=r"heavydistill\[train\]"):
        LocalEngine(str(lora))
    LocalEngine(str(MICRO))  # needs none
    Student(str(lora))


def test_weights_that_are_not_whole_are_refused(copy, lora, tmp_path):
    weights, name = copy / "adapter_model.safetensors", f"{Q_PROJ}.lora_A.weight"
    partial = changed(lora, tmp_path / "partial", lambda tensors: tensors.pop(name))
    broken = changed(lora, tmp_path / "broken", lambda tensors: tensors[name].fill_(float("nan")))
    for folder, message in (
        (partial, r"1 weights are in only one of both, e.g. .*q_proj\.lora_A"),
        (broken, "NaN"),
    ):
        with pytest.raises(TeacherError, match=message):
            LocalEngine(str(folder))
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(TeacherError, match="does not fit its base model"):
        LocalEngine(str(copy))
    weights.unlink()
    with pytest.raises(TeacherError, match=r"adapter_model\.safetensors is not there"):
        LocalEngine(str(copy))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 2}, "weights are in only one of both"),
        ({"hidden_size": 64, "head_dim": 16}, r"does not fit its base model.*size mismatch"),
    ],
)
def test_an_adapter_of_another_shape_is_refused(changes, message, copy, tmp_path):
    based_on(copy, other_base(tmp_path / "base", **changes))
    with pytest.raises(TeacherError, match=message):
        LocalEngine(str(copy))


def test_lora_on_shared_embeddings_is_refused(tmp_path):
    folder = write_adapter(tmp_path / "a", target_modules=["q_proj", "embed_tokens"])
    with pytest.raises(TeacherError, match="shares with its head"):
        LocalEngine(str(folder))


def test_a_base_that_is_not_there_is_named(copy, tmp_path):
    gone = str(tmp_path / "gone")
    based_on(copy, gone)
    for ask in (lambda: profile_at(str(copy), Endpoint()), lambda: local_revision(str(copy))):
        with pytest.raises(TeacherError, match="base_model_name_or_path") as caught:
            ask()
        assert repr(gone) in str(caught.value)
    with pytest.raises(TeacherError, match="cannot be loaded"):
        LocalEngine(str(copy))


def test_a_base_that_is_quantized_is_refused(copy, tmp_path):
    pytest.importorskip("bitsandbytes")
    base = Path(shutil.copytree(MICRO, tmp_path / "base"))
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    four_bit = BitsAndBytesConfig(load_in_4bit=True)
    AutoModelForCausalLM.from_pretrained(MICRO, quantization_config=four_bit).save_pretrained(base)
    based_on(copy, base)
    with pytest.raises(TeacherError, match="quantized"):
        LocalEngine(str(copy))


def test_an_adapter_on_an_adapter_is_refused(copy, lora):
    based_on(copy, lora)
    with pytest.raises(TeacherError, match="is an adapter itself"):
        LocalEngine(str(copy))


def test_a_folder_with_a_model_and_an_adapter_is_refused(copy):
    shutil.copy(MICRO / "config.json", copy)
    with pytest.raises(TeacherError, match="holds both a model and an adapter"):
        profile_at(str(copy), Endpoint())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ("{}", "peft_type"),
        ('{"peft_type": "PROMPT_TUNING", "base_model_name_or_path": "b"}', "PROMPT_TUNING"),
        ('{"peft_type": "LORA", "base_model_name_or_path": null}', "no base model"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(config, message, tmp_path):
    (tmp_path / "adapter_config.json").write_text(config)
    with pytest.raises(TeacherError, match=message):
        profile_at(str(tmp_path), Endpoint())
