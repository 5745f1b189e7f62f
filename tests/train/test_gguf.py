"""What a GGUF file says of a model; that llama.cpp answers alike is seen in tests/engines."""

import json
import shutil
from pathlib import Path

import gguf
import pytest
from adapters import write_adapter
from command_line import run_command
from students import MICRO

from heavydistill.errors import ConfigError
from heavydistill.train.gguf import export_gguf


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MICRO, tmp_path / "student"))


def changed(model: Path, file: str, /, **keys: object) -> None:
    tree = json.loads((model / file).read_text())
    (model / file).write_text(json.dumps(tree | keys))


def test_a_file_holds_weights_tokenizer_template_and_ends(tmp_path, model):
    changed(model, "generation_config.json", eos_token_id=[670, 668])
    words = ["export", model, "--to=gguf", f"--out={tmp_path / 'out'}", "--quant=q8_0"]
    done = run_command(*words)
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.replace("\\\n", " ").split())
    assert f"ollama create student -f {tmp_path}/out/Modelfile" in printed
    modelfile = (tmp_path / "out" / "Modelfile").read_text()
    assert modelfile == (
        'FROM ./student.gguf\nPARAMETER num_ctx 2048\nPARAMETER stop "<|im_end|>"\n'
        'TEMPLATE """{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n'
        '{{ end }}<|im_start|>assistant\n"""\n'
    )
    reader = gguf.GGUFReader(tmp_path / "out" / "student.gguf")
    facts = {name: field.contents() for name, field in reader.fields.items()}
    assert facts["general.architecture"] == "llama" and facts["llama.context_length"] == 2048
    ends = facts["tokenizer.ggml.eos_token_id"], facts["tokenizer.ggml.eot_token_id"]
    assert ends == (670, 668)
    assert facts["tokenizer.ggml.add_bos_token"] is False
    template = (model / "chat_template.jinja").read_text()
    assert facts["tokenizer.chat_template"] == template
    tokens, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    assert len(tokens) == len(kinds) == 704
    assert (tokens[670], kinds[670]) == ("<|im_end|>", gguf.TokenType.CONTROL)
    assert (tokens[671], kinds[671]) == ("<think>", gguf.TokenType.USER_DEFINED)
    assert kinds[703] == gguf.TokenType.UNUSED
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert types["blk.0.attn_q.weight"] == types["token_embd.weight"] == "Q8_0"
    assert types["output_norm.weight"] == "F32" and "output.weight" not in types


@pytest.mark.parametrize(
    ("file", "keys", "message"),
    [
        ("config.json", {"architectures": ["GPT2LMHeadModel"]}, "is a GPT2LMHeadModel"),
        (
            "config.json",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
            "rotary embeddings scaled by 'linear'",
        ),
        ("config.json", {"hidden_act": "gelu"}, "the activation gelu"),
        ("config.json", {"num_hidden_layers": 5}, "lacks weights of some of its 5 layers"),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}, "splits a text in a way"),
        ("tokenizer.json", {"normalizer": {"type": "Lowercase"}}, "splits a text in a way"),
        ("tokenizer.json", {"model": {"type": "BPE"}}, "cannot be read"),
        ("generation_config.json", {"eos_token_id": [1, 2, 3]}, "has 4 tokens that end a turn"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, model, file, keys, message):
    changed(model, file, **keys)
    with pytest.raises(ConfigError) as refused:
        export_gguf(model, tmp_path / "out")
    assert message in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_an_adapter_is_merged_first(tmp_path):
    adapter = write_adapter(tmp_path / "adapter")
    with pytest.raises(ConfigError) as refused:
        export_gguf(adapter, tmp_path / "out")
    assert f"heavydistill merge --adapter {adapter}" in refused.value.fix


def test_an_unknown_quantization_names_those_that_are(tmp_path, model):
    done = run_command("export", model, "--to=gguf", f"--out={tmp_path}/out", "--quant=q3")
    assert done.returncode == 2 and "bf16, f16, f32, q8_0, q5_1, q4_0" in done.stderr


@pytest.mark.parametrize("file", ["generation_config.json", "chat_template.jinja"])
def test_a_file_that_is_not_needed_may_be_missing(tmp_path, model, file):
    (model / file).unlink()
    written = export_gguf(model, tmp_path / "out")
    assert written.path.is_file()
    assert written.has_modelfile is (file == "generation_config.json")


def test_a_default_system_prompt_is_ollamas_too(tmp_path, model):
    template = (model / "chat_template.jinja").read_text()
    first = (
        "{%- if messages[0].role != 'system' -%}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    )
    (model / "chat_template.jinja").write_text(first + template)
    export_gguf(model, tmp_path / "out")
    assert 'SYSTEM """Be kind."""\n' in (tmp_path / "out" / "Modelfile").read_text()
    (model / "chat_template.jinja").write_text("[INST]" + template)
    done = run_command("export", model, "--to=gguf", f"--out={tmp_path / 'other'}")
    assert done.returncode == 0 and "No Modelfile" in done.stdout
    assert not (tmp_path / "other" / "Modelfile").exists()


def test_a_leftover_shard_is_no_weight(tmp_path, model):
    shutil.copy(model / "model.safetensors", model / "model-00001-of-00002.safetensors")
    assert export_gguf(model, tmp_path / "out").path.is_file()


@pytest.mark.parametrize("flags", [["--to=trl", "--quant=q8_0"], ["--to=gguf", "--plugin=x.py"]])
def test_a_flag_of_the_other_kind_of_export_is_refused(tmp_path, model, flags):
    done = run_command("export", model, *flags, f"--out={tmp_path / 'out'}")
    assert done.returncode == 2 and "Leave it out" in done.stderr
