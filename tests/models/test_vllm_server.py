"""Which set-up of a profile this machine gets, and what is said where it gets none."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fake_vllm
import import_files
import messages
import pytest
from huggingface_hub import constants
from rich.console import Console

from heavydistill.cli.plan import print_plan
from heavydistill.config.run import RunConfig, load_config
from heavydistill.errors import ConfigError
from heavydistill.models.contact import ServerProbe
from heavydistill.models.identity import identified
from heavydistill.models.registry import profile_of
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.models.vllm import server
from heavydistill.run.generate import check, run

MICRO = Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher"


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """Gives this machine so many, and a vllm."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def give(count: int) -> None:
        for name, value in fake_vllm.install(tmp_path / "bin", count).items():
            monkeypatch.setenv(name, value)

    give(0)
    version(tmp_path, "echo 0.31.0")
    return give


def version(tmp_path: Path, does: str) -> None:
    """The Python beside ``vllm``, which prints its version, does this."""
    python = tmp_path / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)


def configured(teacher: str, **overrides: object) -> RunConfig:
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    served = {"teacher": teacher, "endpoint.start_vllm": True, "endpoint.tokenizer": str(MICRO)}
    return load_config(None, served | dotted)


def refused(config: RunConfig) -> ConfigError:
    """By the same check that ``--dry-run`` makes."""
    with pytest.raises(ConfigError) as caught:
        check(config)
    return caught.value


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 8),
        ("", 0),
        ("0,1", 2),
        ("3", 1),
        ("-1", 0),
        ("0, 1,9,2", 2),
        ("GPU-1abc,GPU-7abc", 2),
        ("GPU-nosuch", 0),
    ],
)
def test_gpus_are_those_that_cuda_would_see(gpus, monkeypatch, visible, count):
    gpus(8)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert server.gpus() == count


def test_a_driver_that_does_not_answer_is_quoted(gpus, tmp_path):
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho version mismatch; exit 18\n")
    with pytest.raises(ConfigError, match="code 18: version mismatch"):
        server.gpus()


@pytest.mark.parametrize(
    ("here", "keys", "expected"),
    [(1, {}, 256), (8, {}, 2048), (8, {"endpoint__concurrency": 32}, 32)],
)
def test_each_replica_has_its_requests_in_flight(gpus, tmp_path, here, keys, expected):
    gpus(here)
    plan = check(configured("qwen3-8b", out=str(tmp_path / "run"), **keys))
    endpoints = {model.endpoint.concurrency for model in plan.run.models}
    assert endpoints == {expected} == {plan.config.endpoint.concurrency}


def test_machine_and_weights_are_looked_at_once(gpus, tmp_path, monkeypatch):
    gpus(2)
    opened, read_text = [], Path.read_text

    def counting(path: Path, *args: Any, **kwargs: Any) -> str:
        opened.append(path.name)
        return read_text(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", counting)
    plan = check(configured(str(MICRO), out=str(tmp_path / "run")))
    print_plan(plan, Console())
    assert plan.run.server and plan.server and plan.run.server.gpus == 2
    assert opened.count("tokenizer.json") == 1
    assert fake_vllm.gpus_listed(tmp_path / "bin") == 1


@pytest.mark.parametrize(
    ("here", "used", "parallel"), [(1, 1, 1), (3, 2, 2), (7, 4, 4), (8, 8, 8), (10, 8, 8)]
)
def test_the_largest_setup_that_fits_is_taken(gpus, here, used, parallel):
    gpus(here)
    own = server.own_server(profile_of("qwen3-8b"))
    assert (own.gpus, own.setup.data_parallel) == (used, parallel)


def test_the_context_is_that_of_the_server(gpus):
    gpus(8)
    run = resolve(configured("glm-4.6"))
    assert run.config.endpoint.context == 65_536
    assert run.config.cache.budget_tokens == 65_536 - 32_768 - 64
    words = run.server_command()
    assert words[0].endswith("bin/vllm") and words[1:3] == ["serve", "zai-org/GLM-4.6-FP8"]
    assert words[words.index("--max-model-len") + 1] == "65536"
    words = resolve(configured("glm-4.6", endpoint__context=100_000)).server_command()
    assert words[words.index("--max-model-len") + 1] == "100000"


def test_a_checkpoint_is_served_once_on_each_gpu_in_its_own_context(gpus):
    gpus(2)
    run = resolve(configured(str(MICRO)))
    words = run.server_command()
    assert words[1:5] == ["serve", str(MICRO), "--served-model-name", str(MICRO)]
    assert words[words.index("--data-parallel-size") + 1] == "2"
    assert words[words.index("--max-model-len") + 1] == str(run.config.endpoint.context) == "2048"
    assert run.deliberator.profile.model == str(MICRO)
    assert run.deliberator.profile.tokenizer == str(MICRO)


def adapter(folder: Path, base: object = MICRO, template: str = "", **config: object) -> str:
    """The configuration of an adapter, without weights."""
    folder.mkdir()
    usual = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 12}
    (folder / "adapter_config.json").write_text(json.dumps(usual | config))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return str(folder)


def test_adapters_on_one_base_are_served_together(gpus, tmp_path):
    gpus(1)
    thinker = adapter(tmp_path / "lr=1e-4,x", template="{{ messages }}", revision="v2")
    deliberator = adapter(tmp_path / "deliberator", template="{{ messages }}", r=100, revision="v2")
    words = resolve(configured(thinker, deliberator=deliberator)).server_command()
    assert words[1:5] == ["serve", str(MICRO), "--served-model-name", str(MICRO)]
    at = words.index("--enable-lora")
    assert words[at : at + 12] == [
        *("--enable-lora", "--max-loras", "2", "--max-lora-rank", "128", "--lora-modules"),
        *(json.dumps({"name": name, "path": name}) for name in (thinker, deliberator)),
        *("--chat-template", f"{thinker}/chat_template.jinja", "--revision", "v2"),
    ]


def test_a_base_serves_beside_its_adapter_under_the_name_of_the_run(gpus, tmp_path, monkeypatch):
    gpus(1)
    monkeypatch.chdir(MICRO.parent)
    tuned = adapter(tmp_path / "deliberator")  # its base has the absolute path
    words = resolve(configured("./teacher", deliberator=tuned)).server_command()
    assert words[1:5] == ["serve", "./teacher", "--served-model-name", "./teacher"]
    assert json.loads(words[words.index("--lora-modules") + 1])["name"] == tuned
    assert "--chat-template" not in words


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"template": "one"}, {"template": "another"}, "The chat templates of"),
        ({"template": "one"}, {}, "The chat templates of"),
        ({}, {"base": "org/elsewhere"}, "serves one model"),
        ({"revision": "v1"}, {"revision": "v2"}, "different revisions of their base"),
        ({"rank_pattern": {"q_proj": 64}}, {}, "ranks or scales that differ"),
        ({"alpha_pattern": {"q_proj": 64}}, {}, "ranks or scales that differ"),
        ({"r": 600}, {}, "the rank 600, above 512"),
    ],
)
def test_adapters_that_one_server_cannot_serve_are_refused(gpus, tmp_path, first, second, said):
    gpus(1)
    names = [adapter(tmp_path / name, **keys) for name, keys in (("a", first), ("b", second))]
    assert said in refused(configured(names[0], deliberator=names[1])).what


def with_tokenizer(folder: str, change: Callable[[Any], object] = lambda tree: None) -> str:
    """Give an adapter the tokenizer of the micro teacher, changed, in a file of another form."""
    tree = json.loads((MICRO / "tokenizer.json").read_text())
    change(tree)
    (Path(folder) / "tokenizer.json").write_text(json.dumps(tree, indent=1))
    return folder


def one_word_more(tree: Any, content: str = "<word>", special: bool = False) -> None:
    token = {**tree["added_tokens"][-1], "content": content, "special": special}
    token["id"] = 1 + max(each["id"] for each in tree["added_tokens"])
    kept = [each for each in tree["added_tokens"] if each["content"] != content]
    tree["added_tokens"] = [*kept, token]


def pads(tree: Any) -> None:
    """As a training leaves it, which changes no token."""
    tree["truncation"] = {"direction": "Right", "max_length": 99, "stride": 0}
    tree["truncation"]["strategy"] = "LongestFirst"


def test_a_server_has_the_tokenizer_of_its_adapters(gpus, tmp_path):
    gpus(1)
    same = with_tokenizer(adapter(tmp_path / "same"), pads)
    other = with_tokenizer(adapter(tmp_path / "other", revision="v2"), one_word_more)
    assert "--tokenizer" not in resolve(configured(str(MICRO), deliberator=same)).server_command()
    words = resolve(configured(other)).server_command()
    at = words.index("--tokenizer")
    assert words[at : at + 4] == ["--tokenizer", other, "--tokenizer-revision", "main"]
    for first in (str(MICRO), with_tokenizer(adapter(tmp_path / "third", revision="v2"))):
        error = refused(configured(first, deliberator=other))
        assert f"The tokenizers of {first}" in error.what or f"and {first} differ" in error.what
    hides = with_tokenizer(adapter(tmp_path / "hides"), partial(one_word_more, special=True))
    assert "--tokenizer" in resolve(configured(hides)).server_command()
    with_tokenizer(hides, partial(one_word_more, special=True, content="<think>"))
    assert "control tokens (<think>)" in refused(configured(hides)).what


def test_a_template_of_a_base_that_is_asked_too_is_not_replaced(gpus, tmp_path):
    gpus(1)
    tuned = adapter(tmp_path / "tuned", template="another")
    assert "chat templates" in refused(configured(str(MICRO), deliberator=tuned)).what


def test_an_adapter_on_a_changed_base_is_another_model(gpus, tmp_path):
    gpus(1)
    base = Path(shutil.copytree(MICRO, tmp_path / "base"))
    tuned = adapter(tmp_path / "tuned", base=base)
    run = resolve(configured(tuned, journal=str(tmp_path / "journal")))

    assert number_of(run) == number_of(run) == ""
    (base / "generation_config.json").write_text("{}")
    assert number_of(run) == "2"


def number_of(run: ResolvedRun) -> str:
    """The number of the deliberator among the models of its name in the journal, which keeps it."""
    seen = identified(run, ServerProbe(), saves=True)
    return seen.config.endpoint.identities[run.deliberator.profile.model]


def test_an_adapter_of_the_hub_is_known_by_its_commit(gpus, tmp_path, monkeypatch):
    gpus(1)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    def publish(commit: str, **config: object) -> None:
        repository = tmp_path / "hub" / "models--org--tuned"
        for folder in ("refs", "snapshots"):
            (repository / folder).mkdir(parents=True, exist_ok=True)
        (repository / "refs" / "main").write_text(commit)
        adapter(repository / "snapshots" / commit, **config)

    publish("a" * 40)
    run = resolve(configured("org/tuned", journal=str(tmp_path / "journal")))
    assert number_of(run) == number_of(run) == ""
    known = json.loads((tmp_path / "journal" / "models.jsonl").read_text())
    assert known["evidence"]["root"] == "org/tuned"
    publish("b" * 40)
    assert number_of(run) == "2"


def test_a_server_that_a_run_has_started_is_probed_before_its_requests(gpus, tmp_path, monkeypatch):
    gpus(1)
    rows = [{"text": f"What is {n} + 1?", "reference": f"{n + 1}"} for n in range(2)]
    source = import_files.lines(tmp_path / "p.jsonl", *rows)
    keys = {"think__k": 2, "deliberate__d": 1, "endpoint__reasoning": "optional"}
    keys |= {"problems__source": str(source), "journal": str(tmp_path / "journal")}

    def asked(out: str, weights: str) -> int:
        """How many requests a run adds if its server has these weights."""
        monkeypatch.setenv("FAKE_VLLM_WEIGHTS", weights)
        before = len(fake_vllm.asked(tmp_path / "bin"))
        plan = check(configured("qwen3-8b", out=str(tmp_path / out), **keys))
        saved = load_config(run(plan).folder / "config.yaml").endpoint
        assert saved.start_vllm and saved.base_url is None
        return len(fake_vllm.asked(tmp_path / "bin")) - before

    # The files of Hub weights say nothing, and each server has another port.
    assert [asked("one", "a"), asked("again", "a"), asked("other", "b")] == [6, 0, 6]
    known = (tmp_path / "journal" / "models.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in known] == ["", "2"]


def test_thinking_between_control_tokens_needs_a_profile(gpus, tmp_path):
    gpus(1)
    model = Path(shutil.copytree(MICRO, tmp_path / "model"))
    tree = json.loads((model / "tokenizer.json").read_text())
    for token in tree["added_tokens"]:
        token["special"] = True
    (model / "tokenizer.json").write_text(json.dumps(tree))
    error = refused(configured(str(model)))
    assert "control tokens (<think> </think>)" in error.what and "thinking.parser" in error.fix


def test_a_vllm_for_cpus_serves_without_a_gpu(gpus, tmp_path):
    version(tmp_path, "echo 0.31.0+cpu")
    plan = check(configured(str(MICRO), out=str(tmp_path / "run")))
    assert plan.server and {"--no-enable-chunked-prefill", "--enforce-eager"} < set(plan.server)
    assert plan.config.endpoint.concurrency == 32
    version(tmp_path, "echo 0.31.0")
    assert "vLLM's own build for CPUs" in refused(configured(str(MICRO))).fix


def test_a_vllm_whose_version_is_unknown_is_not_taken_for_one_of_gpus(gpus, tmp_path):
    version(tmp_path, "echo PackageNotFoundError: vllm >&2; exit 1")
    with messages.raises("vllm_version", path=tmp_path / "bin" / "vllm") as caught:
        check(configured(str(MICRO)))
    assert "PackageNotFoundError: vllm" in caught.value.what
    (tmp_path / "bin" / "python").unlink()
    assert "No such file" in refused(configured(str(MICRO))).what
    gpus(1)  # with GPUs, either build is said by vLLM itself
    assert resolve(configured(str(MICRO))).server


def test_a_checkpoint_with_a_profile_can_be_served(gpus, tmp_path):
    gpus(1)
    file = tmp_path / "mine.yaml"
    setups = "{1: {max_model_len: 2048}, 2: null, 4: null, 8: null}"
    file.write_text(
        f"name: mine\nfolder: {MICRO}\ntokenizer: {MICRO}\ncontext: 2048\n"
        f"vllm: {{gpus: {setups}, why_null: it is small}}\n",
        encoding="utf-8",
    )
    words = resolve(configured(str(file))).server_command()
    assert words[1:5] == ["serve", str(MICRO), "--served-model-name", "mine"]


@pytest.mark.parametrize(
    ("teacher", "here", "said"),
    [
        ("qwen3-8b", 0, "needs a GPU, and there is none"),
        (
            "glm-4.6",
            4,
            "does not fit on the 4 GPU(s) of this machine, it needs 8: the FP8 weights alone",
        ),
        ("deepseek-v3.2", 8, "does not fit on the 8 GPU(s) of this machine, nor on 8: in FP8"),
        ("gpt-5", 8, "its weights are not public"),
        ("qwen3-8", 8, "'qwen3-8' has none. Did you mean qwen3-8b?"),
    ],
)
def test_what_cannot_be_served_here_is_refused_with_where_else(gpus, teacher, here, said):
    gpus(here)
    error = refused(configured(teacher))
    assert said in str(error) and "--endpoint" in error.fix


def test_a_model_that_runs_in_this_process_is_not_served(gpus):
    gpus(1)
    error = refused(configured("micro"))
    assert "runs in this process" in error.what and "Leave --start-vllm out" in error.fix


def test_two_models_are_not_served_by_one_server(gpus):
    gpus(8)
    error = refused(configured("qwen3-8b", deliberator="qwen3-32b"))
    assert "qwen3-8b thinks and qwen3-32b deliberates" in error.what
    assert "heavydistill teachers" in error.fix and "--endpoint" in error.fix


def test_vllm_that_is_not_installed_is_said_with_how_to_install_it(gpus, monkeypatch, tmp_path):
    gpus(1)
    (tmp_path / "bin" / "vllm").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin") + os.pathsep + "/usr/bin:/bin")
    monkeypatch.setattr("sys.executable", str(tmp_path / "venv" / "bin" / "python"))
    error = refused(configured("qwen3-8b"))
    assert "there is no command vllm" in error.what
    assert "pip install -c constraints.txt -e '.[vllm]'" in error.fix


def test_vllm_beside_this_python_is_found_without_a_search_path(gpus, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    assert server.vllm() == str(tmp_path / "bin" / "vllm")


def test_runs_of_an_experiment_share_a_server_while_its_command_is_theirs(gpus, tmp_path):
    gpus(1)
    source = import_files.lines(tmp_path / "p.jsonl", {"text": "What is 1 + 1?", "reference": "2"})
    keys = {"think__k": 2, "deliberate__d": 0, "endpoint__reasoning": "optional"}
    keys |= {"problems__source": str(source)}

    def server_of(out: str, kept: server.KeptServer, **more: object) -> int:
        """The process that answered a run."""
        names = {"out": str(tmp_path / out), "journal": str(tmp_path / f"journal-{out}")}
        run(check(configured("qwen3-8b", **keys, **names, **more)), kept=kept)
        return int(fake_vllm.asked(tmp_path / "bin")[-1]["pid"])

    with server.KeptServer() as kept:
        first = server_of("one", kept)
        assert server_of("again", kept, seed=7) == first
        other = server_of("longer", kept, endpoint__context=20_000)
        assert other != first and not (Path("/proc") / str(first)).exists()
        os.kill(other, signal.SIGKILL)
        assert server_of("after", kept, endpoint__context=20_000) not in (first, other)


def test_a_server_and_an_address_contradict_each_other():
    with pytest.raises(ConfigError, match=r"start_vllm and endpoint\.base_url are both set"):
        configured("qwen3-8b", endpoint__base_url="http://localhost:1/v1")
