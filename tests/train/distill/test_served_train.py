"""Distillation by the command, with a teacher behind a server: its checks, faults and the kill."""

import socket
from typing import Any

import messages
import pytest
from test_distill_train import arguments, forbid_weights
from tiny_distill import distill_flags, logprobs, served_teacher, survives_a_kill
from trainings import DISTILL, main

from heavydistill.store.training_record import read_record
from heavydistill.train.distill.train import prepare

QUICK = ", retries: 0, timeout_s: 30"


def of_server(server: Any, more: str = QUICK, **keys: Any) -> dict[str, Any]:
    """Keys of a distillation from this server's teacher."""
    endpoint = f"{{base_url: '{server.base_url}'{more}}}"
    return {"teacher_model_name_or_path": server.model, "teacher_endpoint": endpoint, **keys}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"beta": 0.5}, "beta is 0.5, but a server gives the teacher's probabilities of a few"),
        ({"temperature": 0.7}, "vLLM applies none to the tokens of a prompt"),
        ({"teacher_top_k": 5}, "with beta 1 the sampled tokens alone are scored"),
        ({"teacher_top_k": 0}, "teacher_top_k: 0 is not between 1 and 1000"),
        (
            {"teacher_endpoint": None, "teacher_model_name_or_path": "micro", "teacher_top_k": 5},
            "gives all probabilities",
        ),
        ({"teacher_model_revision": "main"}, "the teacher is loaded by its server"),
        ({"teacher_endpoint": "{concurrency: 4}"}, "teacher_endpoint has no base_url"),
        ({"teacher_endpoint": "{base_url: x, y: 1}"}, "teacher_endpoint: "),
        ({"teacher_endpoint": "{base_url: x, price_in: 1}"}, "has price_in, which no request"),
        ({"teacher_endpoint": "nowhere"}, "there is no provider 'nowhere'"),
        ({"teacher_model_name_or_path": None}, "No teacher is given"),
    ],
)
def test_what_a_served_teacher_cannot_do_is_refused_with_2(
    sets, tmp_path, monkeypatch, capsys, keys, said
):
    monkeypatch.chdir(tmp_path)
    with served_teacher() as server:
        forbid_weights(monkeypatch)
        assert main(distill_flags(sets, "out", **of_server(server) | keys), DISTILL) == 2
        assert server.asked == []
    assert said in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("habits", "keys", "name"),
    [
        ({"offers": False}, {}, "no_prompt_logprobs"),
        ({"context": 300}, {}, "served_context"),
        ({"words": 672}, {}, "served_last_id"),
        ({"split": lambda text: [*text.encode()]}, {}, "served_tokenizer"),
        ({"plan": lambda body, _: len(body["prompt"]) > 300 and "broken"}, {}, "served_length"),
        ({"key": "sk-x"}, {}, "served_key"),
    ],
)
def test_a_server_that_cannot_is_refused_before_weights_are_loaded(
    sets, tmp_path, monkeypatch, habits, keys, name
):
    with served_teacher(**habits) as server:
        forbid_weights(monkeypatch)
        with messages.raises(name):
            prepare(arguments(sets, tmp_path / "out", **of_server(server, **keys)))
    assert list(tmp_path.iterdir()) == []


def test_a_server_with_a_lower_limit_is_refused_with_both_numbers(sets, tmp_path, monkeypatch):
    with served_teacher(max_logprobs=4) as server:
        forbid_weights(monkeypatch)
        with messages.raises("fewer_prompt_logprobs", top=20, limit=4):
            prepare(arguments(sets, tmp_path / "out", **of_server(server, beta=0.0)))


def test_no_server_and_no_such_model_are_refused(sets, tmp_path, monkeypatch):
    with served_teacher() as server:
        forbid_weights(monkeypatch)
        keys = of_server(server) | {"teacher_model_name_or_path": "micro"}
        with messages.raises("served_other_model"):
            prepare(arguments(sets, tmp_path / "out", **keys))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        keys["teacher_endpoint"] = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        with messages.raises("served_unreachable"):
            prepare(arguments(sets, tmp_path / "out", **keys))


def test_a_dry_run_asks_nothing_and_names_model_and_address(sets, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with served_teacher() as server:
        keys = of_server(server, dry_run=True, beta=0.0)
        assert main(distill_flags(sets, "out", **keys), DISTILL) == 0
        assert server.asked == []
    said = " ".join(capsys.readouterr().out.split())
    assert f"teacher at {server.base_url}, not asked in a dry run" in said
    assert "forward KL of top 20" in said


def test_the_named_model_is_asked_with_the_key_and_nothing_of_it_is_recorded(
    sets, tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("TEACHER_KEY", "sk-secret")
    out, more = tmp_path / "out", ", api_key_env: TEACHER_KEY, concurrency: 2"
    with served_teacher(key="sk-secret") as server:
        keys = of_server(server, more, max_steps=2, mask_truncated_completions=False)
        assert main(distill_flags(sets, out, **keys, max_completion_length=24), DISTILL) == 0
        assert {each["model"] for each in server.asked} == {"teacher"}
        assert server.most_in_flight <= 2
    record = read_record(out)
    assert record.rl and record.rl.teacher and record.rl.teacher.name == "teacher"
    assert record.rl.objective == "reverse KL of sampled tokens"
    written = (out / "training.json").read_text("utf-8") + (out / "README.md").read_text("utf-8")
    assert "127.0.0.1" not in written and "sk-secret" not in written
    assert "teacher `teacher` (reverse KL of sampled tokens)" in " ".join(written.split())


def test_a_server_that_fails_ends_the_command_with_1_and_the_way_on(sets, tmp_path, capfd):
    out = tmp_path / "out"
    keys = {"max_steps": 4, "max_completion_length": 24, "mask_truncated_completions": False}
    with served_teacher() as server:
        asked = of_server(server, **keys, save_strategy="steps", save_steps=4)
        server.plan = lambda body, number: len(server.scored) > 12 and "nan"
        assert main(distill_flags(sets, out, **asked), DISTILL) == 1
        said = " ".join(capfd.readouterr().err.split())
        assert "did not score" in said and "nan as a log-probability" in said
        assert "--resume_from_checkpoint true" in said
        step = max(int(path.name[11:]) for path in out.glob("checkpoint-*"))
        assert 0 < step < 4 and not (out / "model.safetensors").exists()
        server.plan = lambda *_: None
        again = distill_flags(sets, out, **asked, resume_from_checkpoint="true")
        assert main(again, DISTILL) == 0
    assert read_record(out).result


@pytest.mark.slow
def test_a_served_distillation_that_is_killed_ends_with_the_same_weights(sets, tmp_path):
    steps = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "seed": 5, "beta": 0.0}
    steps |= {"max_completion_length": 48, "mask_truncated_completions": False}
    with served_teacher() as server:
        keys = of_server(server, **steps)
        survives_a_kill(lambda out: distill_flags(sets, out, **keys), tmp_path)


def test_it_needs_no_vllm_and_no_weights_of_a_teacher(sets, tmp_path, monkeypatch):
    """The stand-in computes what a teacher on this machine would."""
    monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    with served_teacher() as server:
        plan = prepare(arguments(sets, tmp_path / "out", **of_server(server)))
        assert str(plan.teacher) == f"The server of the teacher teacher at {server.base_url}"
    ids = next(each["prompt"] for each in server.scored)
    assert len(logprobs(ids)) == len(ids) - 1
