"""What is found out before anything large is imported, and what a run says without asking."""

import fnmatch
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import messages
import pytest
from fake_server import completion, serving
from loopback import Handler, listening
from messages import message
from summaries import summary

from heavydistill.cli.runs import remarks
from heavydistill.config.run import RunConfig, dump_config, load_config
from heavydistill.errors import ConfigError
from heavydistill.models.capabilities import Source
from heavydistill.models.contact import ServerProbe
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.run import generate
from heavydistill.run.generate import check
from heavydistill.sandbox.memory import free_memory
from heavydistill.train import script
from heavydistill.train.grpo.options import GrpoOptions
from heavydistill.train.script import may_have_gpu

MICRO = Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher"
SETS = Path(__file__).parents[1] / "fixed_points" / "sets"
RUN = SETS.parent / "runs" / "served"
# Runs each command line in turn, and prints its exit code, what it said and what was imported.
IN_TURN = """
import contextlib, io, json, sys
from heavydistill.cli.app import main

for argv in json.loads(sys.argv[1]):
    sys.argv, said = ["heavydistill", *argv], io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main()
        code = 0
    except SystemExit as end:
        code = end.code
    heavy = {"torch", "transformers", "distilabel", "datasets", "openai", "pandas"}
    print(json.dumps([code, said.getvalue(), sorted(heavy & sys.modules.keys())]))
"""


def in_turn(commands: list[list[str]], folder: Path) -> list[tuple[int, str, list[str]]]:
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, json.dumps(commands)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_a_refused_key_is_said_before_anything_large_is_imported(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    paths = []

    class _Guarded(Handler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_json(401, {"error": "no"})

    with listening(_Guarded) as url:
        at = [f"--endpoint={url}", f"--tokenizer={MICRO}"]
        commands = [
            ["generate", "--teacher=m", *at],
            ["generate", "--teacher=m", "--problems=hub:org/none", *at],
            ["evaluate", "--before=m", "--deliberator=n", *at],
            ["cross", "--thinkers=m,n", "--deliberators=m", *at],
            ["doctor", "--teacher=m", *at],
            ["refilter", str(SETS), "--checkpoint=m", "--out=new", *at],
            [
                *("build", str(RUN), "--student=micro-student", "--out=new"),
                *("--redeliberate", "--teacher=m", *at[:1]),
                f"--set=redeliberate.endpoint.tokenizer={MICRO}",
            ],
        ]
        results = in_turn(commands, tmp_path)
    assert len(results) == len(commands)
    for command, (code, said, imported) in zip(commands, results, strict=True):
        assert (code, imported) == (2, []), (command, said, imported)
        assert messages.is_in(said, "key_refused", variable="OPENAI_API_KEY")
    assert paths == ["/v1/models"] * len(commands)
    assert not list(tmp_path.iterdir())


def test_a_dry_run_sends_nothing_and_says_what_the_run_will_ask(tmp_path, monkeypatch, call):
    class _Untouched(Handler):
        def do_GET(self) -> None:
            raise AssertionError("asked")

        do_POST = do_GET

    monkeypatch.chdir(tmp_path)
    with listening(_Untouched) as url:
        flags = ["--teacher=m", f"--endpoint={url}", f"--tokenizer={MICRO}", "--limit=2"]
        code, printed, _ = call("generate", *flags, "--dry-run")
    assert code == 0
    said = " ".join(printed.split())
    assert "Context of m: 2,048 tokens, from the config.json beside its tokenizer" in said
    assert "the run asks the server when it starts" in said


def test_a_context_that_nobody_says_is_assumed_and_said_to_be(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    flags = ["--teacher=m", "--endpoint=http://127.0.0.1:9/v1", "--limit=2"]
    said = " ".join(call("generate", *flags, "--dry-run")[1].split())
    assert "Context of m: unknown, 8,192 tokens are assumed; set the server's context with " in said
    assert "--set endpoint.context=N" in said


def served(url: str, folder: Path, **keys: object) -> RunConfig:
    flags = {"teacher": "m", "endpoint.base_url": url, "endpoint.tokenizer": str(MICRO)}
    places = {"out": str(folder / "run"), "problems.limit": 2}
    return load_config(None, flags | places | keys)


def test_a_run_is_planned_with_the_context_that_the_server_says(tmp_path):
    models = 200, {"data": [{"id": "m", "meta": {"n_ctx": 3072}}]}
    with serving(lambda body: completion("1"), models) as server:
        given = served(server.base_url, tmp_path)
        plan = check(given, contact=ServerProbe())
        again = check(given, contact=ServerProbe())
        assert not server.requests
    (context,) = plan.run.contexts
    assert (context.tokens, context.source) == (3072, Source.SERVER)
    assert plan.config.think.sampling.max_tokens == plan.config.deliberate.sampling.max_tokens
    assert plan.config.deliberate.sampling.max_tokens == 3072 // 2
    # The same command is the same run, and so is its saved configuration, with nobody asked.
    file = tmp_path / "config.yaml"
    file.write_text(dump_config(plan.config), encoding="utf-8")
    repeated = check(load_config(file))
    assert repeated.config.endpoint.context == 3072
    assert plan.config.identity == again.config.identity == repeated.config.identity


@pytest.mark.parametrize(
    ("says", "holds"), [(None, 3072), (4096, 3072), (3072, 3072), (2048, 2048)]
)
def test_a_run_goes_on_with_the_context_that_it_had(tmp_path, monkeypatch, says, holds):
    """A dry run asks nobody, and the server may have been started anew with more."""
    models = 200, {"data": [{"id": "m", "meta": {"n_ctx": says}}]}
    (tmp_path / "run").mkdir()
    with serving(lambda body: completion("1"), models) as server:
        given = served(server.base_url, tmp_path)
        before = given.model_copy(
            update={"endpoint": given.endpoint.model_copy(update={"context": 3072})}
        )
        file = tmp_path / "run" / "config.yaml"
        file.write_text(dump_config(resolve(before).config), encoding="utf-8")
        monkeypatch.setattr(generate, "_changed", lambda *_: {})  # there is no other file of a run
        found = check(given, contact=ServerProbe() if says else None).run
    (context,) = found.contexts
    assert (context.tokens, context.source) == (
        holds,
        Source.SAVED if holds == 3072 else Source.SERVER,
    )
    assert (found.config.identity == resolve(before).config.identity) == (holds == 3072)


def test_a_run_from_anywhere_to_a_provider_without_a_key_says_so_in_its_plan(
    tmp_path, monkeypatch, call
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    flags = ["--teacher=a/model", "--endpoint=openrouter", f"--tokenizer={MICRO}", "--limit=2"]
    told = "openrouter needs a key, and the environment variable OPENROUTER_API_KEY is not set"
    for dry_run, code in ((["--dry-run"], 0), ([], 2)):
        ended, *printed = call("generate", *flags, *dry_run)
        assert ended == code
        assert told in " ".join("".join(printed).split())


URL = "http://localhost:1/v1"


def config(teacher: str = "some-model", **keys: Any) -> ResolvedRun:
    dotted = {key.replace("__", "."): value for key, value in keys.items()}
    given = {"teacher": teacher, "endpoint.base_url": URL, "endpoint.capabilities": {}, **dotted}
    return resolve(load_config(overrides=given))


def test_a_teacher_without_a_profile_that_never_thinks_is_reported_with_the_fix():
    (line,) = remarks(summary(thoughts=0), config())
    assert "No response of some-model contained thinking" in line
    assert "answers without reasoning" in line
    assert "--reasoning-parser" in line and "heavydistill doctor" in line


def test_a_checkpoint_without_a_profile_gets_advice_of_its_own():
    local = load_config(overrides={"teacher": "heavydistill/micro/teacher"})
    (line,) = remarks(summary(thoughts=0), resolve(local))
    assert "contained thinking" in line and "profile" in line and "vLLM" not in line


def test_pools_of_one_text_are_reported():
    (line,) = remarks(summary(thoughts=9, same_texts=30), config())
    assert (
        "In 30 of" in line and "the same text" in line and "a proxy that caches responses" in line
    )


@pytest.mark.parametrize(
    ("told", "run"),
    [
        ({"thoughts": 1}, {}),
        ({"thoughts": 0}, {"teacher": "deepseek-v3.2", "endpoint__tokenizer": "x"}),
        ({"thoughts": 9, "same_texts": 30}, {"think__sampling": {"temperature": 0.0}}),
    ],
)
def test_there_is_no_remark_where_all_is_as_it_should_be(told, run):
    assert remarks(summary(**told), config(**run)) == []


@pytest.mark.parametrize(
    ("there", "visible", "found"),
    [([], None, False), (["nvidia0"], None, True), (["nvidia0"], "", False), (["kfd"], "0", True)],
)
def test_the_driver_says_whether_there_may_be_a_gpu(monkeypatch, there, visible, found):
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(sys, "platform", "linux")

    def matching(folder: Path, pattern: str) -> list[Path]:
        return [folder / name for name in there if fnmatch.fnmatch(name, pattern)]

    monkeypatch.setattr(Path, "glob", matching)
    assert may_have_gpu() == found


def test_a_training_on_a_cpu_that_does_not_fit_the_memory_is_refused(monkeypatch):
    values = {"model_name_or_path": "micro-student", "use_cpu": True, "bf16": False}
    monkeypatch.setattr(script, "free_memory", lambda: 5_000_000)
    with pytest.raises(ConfigError) as refused:
        script.check_files(GrpoOptions, values)
    assert "needs more than 0.0 GB for weights, gradients and AdamW's" in str(refused.value)
    script.check_files(GrpoOptions, {**values, "use_peft": True})
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"in 2 processes, and 0\.0 GB of memory are free"):
        script.check_files(GrpoOptions, {**values, "use_peft": True})
    monkeypatch.setattr(script, "free_memory", lambda: None)
    script.check_files(GrpoOptions, values)


def test_the_free_memory_is_known_on_linux():
    assert sys.platform != "linux" or 10**6 < (free_memory() or 0) < 10**15


def test_a_mistake_is_named_with_where_and_the_fix_before_anything_large_is_imported(tmp_path):
    """Importing torch, TRL and distilabel takes many seconds."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test.jsonl").write_text('{"text": "1?", "question": "2?", "answer": "2"}')
    (tmp_path / "data" / "old.jsonl.gz").write_bytes(b"")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "served").symlink_to(RUN)
    (tmp_path / "out" / "both").mkdir(parents=True)
    (tmp_path / "out" / "both" / "config.json").write_text("{}", encoding="utf-8")
    shutil.copytree(MICRO, tmp_path / "base")
    (tmp_path / "base" / "chat_template.jinja").unlink()
    sft, sets = "sft --config=micro --role=both", f"--dataset_name={SETS}"
    build = f"build {RUN} --out=sets --student="
    mistakes = {
        "evaluate --config none": "none: No such file, and no shipped file has that name. Give the "
        "path of a YAML file, or one of micro, micro8, vllm.",
        "evaluate --config configs/evaluate/micro.yaml": "Did you mean micro?",
        "build --config balancd": "Did you mean balanced?",
        "generate --set problems.columns=question": "takes names and values, not a text. Write "
        "{NAME: VALUE}. Column of the source for each field of a problem, e.g. `{text: task}`.",
        "generate --columns question": "--columns 'question' is not a mapping. Write --columns "
        "NAME=VALUE,... or YAML.",
        "generate --problems data/test.jsonl": message(
            "two_columns_for", columns="text and question", field="text"
        ),
        "generate --problems data/old.jsonl.gz": "old.jsonl.gz is compressed. Unpack it",
        "generate --problems data": "data is a folder, not a file with problems. Did you mean "
        "data/test.jsonl?",
        "generate --problems runs/served": "To deliberate on the attempts of this run, give "
        "--pools runs/served.",
        "generate --problems data/test": "Did you mean data/test.jsonl?",
        "generate --problems openai/gsm8k": "Did you mean hub:openai/gsm8k?",
        "generate --problems none.jsonl": "none.jsonl: No such file or directory. Give a file",
        "generate --teacher gpt-4o": message("no_model", model="gpt-4o")
        + ". A model on a server also needs --endpoint ADDRESS.",
        "generate --teacher m --start-vllm --endpoint http://h/v1": "--start-vllm and --endpoint "
        "are both set. Leave one of them out.",
        "generate --k 100000": "--k is 100,000. Set at most 1,024.",
        "generate --set think.k=eight": "must be a whole number (got 'eight'). Number of "
        "trajectories per problem, at most 1,024.",
        "generate --seed -1": message("below_least", key="--seed", least=0),
        "import data/test.jsonl --from vllm --out new": "(got 'vllm'). Format of the files: "
        "answers",
        "show runs": "runs is a folder of runs. Give one of them, e.g. runs/served.",
        "build --temperature 1": "Write --set redeliberate.sampling.temperature=VALUE.",
        "generate --teacher=./base": message("no_chat_template", tokenizer="of './base'"),
        "generate --teacher=./nowhere/model": "The model folder ./nowhere/model does not exist",
        "generate --problems=sums.csv": "sums.csv: CSV files are not supported",
        "generate --journal=base/config.json": "The journal base/config.json cannot be used",
        "build nowhere --student=micro-student": message("no_finished_run", folder="nowhere"),
        f"{build}./no/such": "The model folder ./no/such does not exist",
        f"{build}such": message("no_model", model="such"),
        f"{build}./base": message("no_chat_template", tokenizer="./base"),
        f"{sft} --dataset_name=sets/none": "There is no folder sets/none, and no such dataset",
        f"{sft} --dataset_name={RUN}": "holds no sets: manifest.json cannot be read. It is a run: "
        f"`heavydistill build {RUN}`",
        f"{sft} {sets}": "output_dir: out/both already has a training. Give "
        "--resume_from_checkpoint true",
        f"sft --config=micro --role=thinker {sets} --model_name_or_path=out/bth": "The model "
        "'out/bth' cannot be loaded: there is no such folder",
        f"grpo --config=micro/deliberator {sets} --model_name_or_path=out/bth": "Did you mean "
        "out/both? Give a folder with a transformers checkpoint",
        f"sft --config=4b-lora --role=both {sets}": "and this machine has none. --config micro is "
        "for CPUs",
        f"grpo --config=1gpu/deliberator {sets} --model_name_or_path=micro-student": "--config "
        "micro/deliberator is for CPUs",
        f"sft --config=micro --role=thinker {sets} --evaluate=none.yaml": "none.yaml: No such file",
        f"sft --config=micro --role=thinker {sets} --lr=1e-4": "Did you mean --learning_rate?",
        "sft --config=micro --batch-size=4": "Did you mean --per_device_train_batch_size?",
    }
    there = sorted(tmp_path.rglob("*"))
    results = in_turn([words.split() for words in mistakes], tmp_path)
    for (words, told), (code, said, imported) in zip(mistakes.items(), results, strict=True):
        assert told in " ".join(said.split()), (words, said)
        assert (code, imported) == (2, []), (words, imported)
        assert "--student" not in words or "--endpoint" not in said, "it must be in this process"
    assert sorted(tmp_path.rglob("*")) == there


def test_a_shipped_configuration_is_named_in_every_verb(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    for words in (
        ["generate", "--config", "micro"],
        ["evaluate", "--config", "micro", "--before", "micro-student", "--deliberator", "micro"],
    ):
        code, _, said = call(*words, "--dry-run", "--limit=2", "--out=out")
        assert (code, said) == (0, ""), said
    code, _, said = call("build", RUN, "--config", "balanced", "--dry-run", "--student", "x")
    assert code == 2 and messages.is_in(said, "no_model", model="x")
