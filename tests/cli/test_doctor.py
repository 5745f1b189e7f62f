"""``heavydistill doctor`` as a user runs it, and that the runs that follow obey what it wrote."""

from pathlib import Path

import messages
import pytest
from command_line import MICRO, run_command
from fault_server import faulty
from import_files import lines

from heavydistill.store.traces import read_traces

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


@pytest.fixture
def run(call):
    def visit(*arguments: str) -> tuple[int, str]:
        code, printed, errors = call(*arguments)
        assert KEY not in printed + errors
        return code, printed + errors

    return visit


@pytest.fixture
def thinking(tmp_path):
    """A profile of a model that thinks."""
    file = tmp_path / "mine.yaml"
    text = (
        f"name: mine\nhub: served\ntokenizer: {MICRO}\ncontext: 65536\nthinking: {{parser: p1}}\n"
    )
    file.write_text(text, encoding="utf-8")
    return str(file)


def of(url: str) -> list[str]:
    flags = ["--teacher=served", f"--endpoint={url}", f"--tokenizer={MICRO}"]
    return [*flags, "--set=endpoint.retries=0"]


def unfolded(printed: str) -> str:
    return " ".join(printed.split())


def test_a_good_endpoint_ends_with_0_and_the_file(run, cache):
    with faulty(key=KEY, written=44) as served:
        prices = ["--price-in=1000", "--price-out=1000"]
        code, printed = run("doctor", *of(served.base_url), *prices)
        lines(Path("my.jsonl"), {"text": "What is 1 + 1?"})
        refused, said = run("doctor", *of(served.base_url), "--problems=my.jsonl")
    assert refused == 2 and "no column for the reference" in unfolded(said)
    assert code == 0 and printed.isascii()
    (file,) = (cache / "heavydistill" / "capabilities").iterdir()
    assert f"Runs obey {file}" in unfolded(printed)
    assert "9 requests, " in printed  # eight small ones, and one as long as the planned cache
    assert "0 failure(s)" in printed and "a run can start." in printed
    assert KEY not in file.read_text(encoding="utf-8")
    assert "n: 4" in file.read_text(encoding="utf-8")
    assert file.read_text(encoding="utf-8").isascii()


def test_a_run_after_it_obeys_the_file(run, tmp_path):
    habits = {"refused": frozenset({"seed", "top_p"}), "max_output": 2048}
    habits |= {"length_name": "max_completion_tokens", "refuses_n": "always"}
    rows = [{"id": f"p{n}", "text": f"What is {n} + {34 - n}?", "reference": "34"} for n in (1, 2)]
    problems = lines(tmp_path / "problems.jsonl", *rows)
    generate = ["generate", f"--problems={problems}", "--k=2", "--d=1", f"--out={tmp_path}/runs/a"]
    with faulty(**habits) as served:
        flags = [*of(served.base_url), "--set=endpoint.context=65536"]
        code, printed = run("doctor", *flags)
        assert code == 0 and "refuses seed, top_p" in unfolded(printed)
        asked = len(served.asked)
        code, printed = run(*generate, *flags, "--dry-run")
        assert code == 0 and len(served.asked) == asked
        told = unfolded(printed)
        assert "Settings found by doctor: 20" in told and ".yaml" in told
        assert told.count("max_tokens: 2048") == 2
        done = run_command(*generate, *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    run_bodies = served.asked[asked:]
    assert len(run_bodies) == 2 * (2 + 1)
    for body in run_bodies:
        assert body["max_completion_tokens"] == 2048
        assert not {"seed", "top_p", "max_tokens"} & body.keys()
    assert [trace.status for trace in read_traces(tmp_path / "runs/a")] == ["ok", "ok"]


def test_a_longer_response_than_it_takes_is_refused_before_the_run(run, tmp_path):
    with faulty(max_output=2048) as served:
        flags = [*of(served.base_url), "--set=endpoint.context=65536"]
        assert run("doctor", *flags)[0] == 0
        asked = len(served.asked)
        code, said = run("generate", *flags, "--set=think.sampling.max_tokens=4096")
        assert code == 2 and "think.sampling.max_tokens 4096 exceeds the 2048" in said
        assert len(served.asked) == asked


def test_hidden_thinking_ends_with_1_and_stops_the_run_that_follows(run, thinking):
    with faulty(reasoning="none") as served:
        flags = [f"--teacher={thinking}", f"--endpoint={served.base_url}"]
        code, printed = run("doctor", *flags)
        assert code == 1
        assert "Fix: Start vLLM with --reasoning-parser p1" in unfolded(printed)
        assert "fix the failures before a run" in printed
        code, said = run("generate", *flags)
        assert code == 2 and "mine thinks" in said
        code, _ = run("generate", *flags, "--dry-run", "--set=endpoint.reasoning=optional")
        assert code == 0
    # A later visit looks anew.
    with faulty() as served:
        assert run("doctor", f"--teacher={thinking}", f"--endpoint={served.base_url}")[0] == 0


def test_two_models_at_two_addresses_are_asked_one_by_one(run, cache, thinking):
    with faulty() as one, faulty(honours_n=1) as other:
        flags = [
            f"--endpoint={one.base_url},{other.base_url}",
            "--thinker=served",
            f"--deliberator={thinking}",
        ]
        code, printed = run("doctor", *flags)
    assert code == 0
    assert printed.count("Runs obey") == 4
    # Both names are one served model, so the later visits replace the files of the earlier.
    assert len(list((cache / "heavydistill" / "capabilities").iterdir())) == 2


def test_an_address_without_a_server_and_a_wrong_key_end_with_2(run, cache):
    code, said = run("doctor", *of("http://127.0.0.1:9/v1"))
    assert code == 2 and messages.is_in(said, "nothing_answers", url="http://127.0.0.1:9/v1")
    with faulty(key="sk-other") as served:
        code, said = run("doctor", *of(served.base_url))
    assert code == 2 and messages.is_in(said, "key_refused", variable="OPENAI_API_KEY")
    assert not (cache / "heavydistill").exists()


@pytest.mark.parametrize(
    ("tokenize", "said"), [(True, "it answers /tokenize"), (False, "does not answer /tokenize")]
)
def test_without_a_tokenizer_it_finds_out_whether_the_server_counts(run, tokenize, said):
    with faulty(tokenizes=tokenize, listed={"max_model_len": 32768}) as served:
        code, printed = run("doctor", "--teacher=served", f"--endpoint={served.base_url}")
    assert code == 0
    assert said in unfolded(printed) and "Runs obey" in printed
    assert ("1 warning(s)" in printed) is not tokenize


def test_a_tokenizer_of_a_profile_that_cannot_be_had_is_a_warning(run, tmp_path):
    file = tmp_path / "far.yaml"
    file.write_text("name: far\nhub: served\ntokenizer: ./nowhere\ncontext: 65536\n", "utf-8")
    with faulty(tokenizes=True) as served:
        code, printed = run("doctor", f"--teacher={file}", f"--endpoint={served.base_url}")
    assert code == 0
    assert "cannot be loaded; the server counts tokens" in unfolded(printed)


def test_a_served_teacher_is_not_started(run, thinking):
    code, printed = run("doctor", f"--teacher={thinking}", "--set=endpoint.start_vllm=true")
    assert code == 1  # no GPU and no vLLM here, or no set-up in that profile
    assert "cannot be served here" in unfolded(printed)
    assert "not checked: --start-vllm starts it with the run" in unfolded(printed)


def test_the_micro_teacher_loads_and_answers(run):
    code, printed = run("doctor")
    assert code == 0
    assert "characters of thinking, finish reason stop" in unfolded(printed)
    assert "Runs obey" not in printed


def test_problems_that_cannot_be_used_are_told_before_all_else(run, tmp_path, monkeypatch):
    monkeypatch.setattr("heavydistill.doctor.machine.look", lambda *_: pytest.fail("too late"))
    code, said = run("doctor", f"--problems={tmp_path}/nope.jsonl")
    assert code == 2 and "nope.jsonl: No such file or directory" in unfolded(said)
