"""A journal and a server whose model changes behind its name, from the command line."""

import json
import re
from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import MICRO, records_of, run_command, served
from problem_files import doubles
from weights_server import Weights, WeightsServer, serving_weights

from heavydistill.metrics.comparison import COMPARISON, read_comparison
from heavydistill.models.identity import FILE
from heavydistill.store.traces import read_traces

ROOT = Path(__file__).parents[2]


def right(body: dict[str, Any]) -> str:
    """Doubles the number of the problem."""
    found = re.search(r"What is (\d+) \+ \d+\?", body["messages"][0]["content"])
    return f"\\boxed{{{2 * int(found[1]) if found else 0}}}"


def wrong(body: dict[str, Any]) -> str:
    return "\\boxed{7}"


@pytest.fixture
def generate(caplog):
    """Called with a server and a folder: what is printed and logged by a run of two problems."""

    def run(server: WeightsServer, out: Path, *more: str, code: int = 0) -> str:
        caplog.clear()
        flags = [f"--problems={doubles(out.parent, 2)}", "--k=2", "--d=1", f"--out={out}"]
        done = run_command("generate", *served(server.base_url), *flags, *more)
        assert done.returncode == code, done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr + caplog.text).split())

    return run


def answers(run: Path) -> set[str]:
    return {each.answer_text for trace in read_traces(run) for each in trace.pool}


def test_step_4_of_the_readme_measures_the_adapter_that_is_served_now(tmp_path, caplog):
    """Two adapters under one name, one after the other; folder, name and fingerprint are equal."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", "")
    step = re.search(r"^heavydistill (evaluate --config vllm --before .*)$", readme, re.M)
    assert step
    words = step[1].split()
    words[words.index("test.jsonl")] = str(doubles(tmp_path, 4))
    words[words.index("out/evaluation")] = str(tmp_path / "first")
    adapter = {"name": "deliberator", "root": "out/deliberator", "parent": "Qwen/Qwen3-4B"}
    base = Weights("Qwen/Qwen3-4B", wrong, root="Qwen/Qwen3-4B")
    found = {}
    for out, model in {
        "first": Weights(**adapter, answer=right, seed="adapter 1"),
        "second": Weights(**adapter, answer=wrong, seed="adapter 2"),
    }.items():
        words[-1] = str(tmp_path / out)
        with serving_weights(WeightsServer([base, model])) as server:
            more = [f"--endpoint={server.base_url}", f"--tokenizer={MICRO}", "--k=2", "--d=1"]
            done = run_command(*words, *more)
        assert done.returncode == 0, done.stdout + done.stderr
        found[out] = read_comparison(tmp_path / out / COMPARISON).heavy_mean_at_d.after.mean
        by_model = [body["model"] for body in server.asked]
        assert by_model.count("deliberator") == 4
        assert by_model.count("Qwen/Qwen3-4B") == (12 if out == "first" else 0)
    assert found == {"first": 1.0, "second": 0.0}
    told = caplog.text
    assert messages.is_in(told, "another_model", role="deliberator") and "nats a token" in told


def test_a_run_that_goes_on_at_another_port_asks_nothing_again(generate, tmp_path):
    server = WeightsServer([Weights("served", right)], noise=0.02)
    with serving_weights(server):
        generate(server, tmp_path / "one")
    asked = len(server.asked)
    for out in ("two", "three"):
        with serving_weights(server):  # any other port
            generate(server, tmp_path / out)
    assert len(server.asked) == asked
    assert len((tmp_path / "journal" / FILE).read_text().splitlines()) == 1


@pytest.mark.parametrize("gives", ["logprobs", "greedy"])
def test_each_model_of_a_name_keeps_its_answers_and_replays(generate, tmp_path, gives):
    model = Weights("served", right, seed="old")
    server = WeightsServer([model], gives)
    with serving_weights(server):
        generate(server, tmp_path / "old")
        model.seed, model.answer = "new", wrong
        assert messages.is_in(generate(server, tmp_path / "new"), "another_model", role="served")
        asked = len(server.asked)
        model.seed, model.answer = "old", right
        said = generate(server, tmp_path / "old again")
    assert len(server.asked) == asked and "another model" not in said
    for name, text in (("old", "\\boxed{2}"), ("new", "\\boxed{7}"), ("old again", "\\boxed{2}")):
        replayed = tmp_path / f"{name} replayed"
        done = run_command("replay", tmp_path / name, f"--out={replayed}")
        assert done.returncode == 0, done.stderr
        assert answers(replayed) == answers(tmp_path / name) and text in answers(replayed)


def test_a_priced_server_with_another_model_stops_the_run_until_fresh(generate, tmp_path):
    price = ("--price-in=1", "--price-out=1")
    model = Weights("served", right, seed="old")
    with serving_weights(WeightsServer([model])) as server:
        generate(server, tmp_path / "old", *price)
        asked = len(server.asked)
        model.seed, model.answer = "new", wrong
        said = generate(server, tmp_path / "new", *price, code=2)
        assert (
            messages.is_in(said, "another_model", role="served", fix="add --fresh")
            and "add --fresh" in said
        )
        assert len(server.asked) == asked
        generate(server, tmp_path / "new", *price, "--fresh")
        assert len(server.asked) == 2 * asked
        # The new model is known now.
        generate(server, tmp_path / "again", *price)
    assert len(server.asked) == 2 * asked
    assert "fresh: true" not in (tmp_path / "new" / "config.yaml").read_text()


def test_answers_of_an_older_journal_are_used_and_it_is_said(generate, tmp_path):
    with serving_weights(WeightsServer([Weights("served", right)])) as server:
        generate(server, tmp_path / "old")
        (tmp_path / "journal" / FILE).unlink()
        asked = len(server.asked)
        said = generate(server, tmp_path / "new")
        assert len(server.asked) == asked
        assert "from before models were recorded" in said
        assert "from before" not in generate(server, tmp_path / "third")


@pytest.mark.parametrize("gives", ["sampled", "nothing"])
def test_without_a_probe_the_address_tells_models_apart(generate, tmp_path, gives):
    server = WeightsServer([Weights("served", right, root="")], gives)
    with serving_weights(server):
        generate(server, tmp_path / "one")
        asked = len(server.asked)
        generate(server, tmp_path / "two")
        assert len(server.asked) == asked
        # Several addresses of one endpoint are not told apart by them.
        other = WeightsServer(server.models, gives)
        with serving_weights(other):
            urls = f"{server.base_url},{other.base_url}"
            generate(server, tmp_path / "three", f"--endpoint={urls}")
            assert len(server.asked) == asked and not other.asked
            said = generate(other, tmp_path / "four")
    assert "nothing but the address" in said and len(other.asked) == asked


def test_addresses_with_different_models_of_one_name_are_refused(generate, tmp_path):
    first, second = (WeightsServer([Weights("served", right, seed=seed)]) for seed in "ab")
    with serving_weights(first), serving_weights(second):
        both = f"--endpoint={first.base_url},{second.base_url}"
        said = generate(first, tmp_path / "run", both, code=2)
    assert "serve different models as served" in said
    assert not first.asked and not second.asked


def test_a_folder_that_changed_is_another_model_although_the_server_answers_as_before(
    generate, tmp_path
):
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_bytes(b"old")
    with serving_weights(WeightsServer([Weights("served", right, root=str(folder))])) as server:
        generate(server, tmp_path / "old")
        asked = len(server.asked)
        (folder / "adapter_model.safetensors").write_bytes(b"new")
        said = generate(server, tmp_path / "new")
    assert "the files in its folder have changed" in said and "restart the server first" in said
    assert len(server.asked) == 2 * asked


@pytest.mark.slow
def test_shards_use_the_answers_of_the_model_that_the_run_found(generate, tmp_path):
    model = Weights("served", right, seed="old")
    with serving_weights(WeightsServer([model])) as server:
        generate(server, tmp_path / "old")
        model.seed, model.answer = "new", wrong
        generate(server, tmp_path / "new")
        asked = len(server.asked)
        generate(server, tmp_path / "in shards", "--processes=2")
    assert len(server.asked) == asked and answers(tmp_path / "in shards") == {"\\boxed{7}"}


def test_an_unfinished_run_is_not_mixed_with_the_answers_of_another_model(generate, tmp_path):
    """One problem fails with the first model; the rows of the other are replaced, not kept."""

    def half(body: dict[str, Any]) -> str | None:
        return None if "What is 1 + 1?" in body["messages"][0]["content"] else right(body)

    model = Weights("served", half, seed="old")
    with serving_weights(WeightsServer([model])) as server:
        run = tmp_path / "run"
        generate(server, run, code=1)
        model.seed, model.answer = "new", wrong
        said = generate(server, run)
        assert "endpoint.identities.served 1, now 2; it is replaced" in said
        assert answers(run) == {"\\boxed{7}"}
        # A finished run is not replaced by that of another model.
        model.seed = "third"
        said = generate(server, run, code=2)
    assert messages.is_in(said, "holds_other_run", keys="endpoint.identities.served")


@pytest.mark.parametrize("gives", ["logprobs", "greedy"])
def test_an_adapter_that_the_server_did_not_apply_is_an_error_before_anything_is_asked(
    tmp_path, gives
):
    base = Weights("base", wrong)
    adapter = Weights("adapter", wrong, root="out/adapter", parent="base", seed="base")
    flags = [f"--problems={doubles(tmp_path, 2)}", "--k=2", "--d=1", f"--out={tmp_path / 'ev'}"]
    with serving_weights(WeightsServer([base, adapter], gives)) as server:
        flags += [f"--endpoint={server.base_url}", f"--tokenizer={MICRO}"]
        words = ["evaluate", "--before=base", "--deliberator=adapter", *flags]
        done = run_command(*words)
        assert done.returncode == 2 and not server.asked
        said = " ".join(done.stderr.split())
        assert "answers adapter with the base model base" in said
        assert ("by one short answer alone" in said) == (gives == "greedy")
        adapter.root = base.root  # a second name of one checkpoint is no fault of the server
        assert run_command(*words).returncode == 0


def test_a_damaged_file_of_models_is_named(generate, tmp_path):
    with serving_weights(WeightsServer([Weights("served", right)])) as server:
        generate(server, tmp_path / "one")
        file = tmp_path / "journal" / FILE
        whole = file.read_text()
        file.write_text(whole + '{"model": "ser')  # torn by a kill
        generate(server, tmp_path / "two")
        file.write_text("{}\n")
        assert f"{FILE} is damaged" in generate(server, tmp_path / "three", code=2)
    assert json.loads(whole)["id"] == "" and records_of(tmp_path / "journal")
