"""Prompts of the users from the command line to the sets, the skill and the trainings."""

from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import run_command, served
from fake_server import FakeServer, completion, serving
from import_files import lines
from runs import build, rows
from students import MICRO

from heavydistill.config.run import load_config
from heavydistill.heavy.prompts import of_version
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.store.sets.folder import read_manifest
from heavydistill.store.traces import read_traces
from heavydistill.train.held_out import held_out
from heavydistill.train.rollouts.resolve import wording_of

PROBLEMS = 12
K, D = 4, 2
THINK = "{{fence}} Sum\n{{problem}}\nAdd."
COMPARE = "Compare the sums.\n{{cache}}\nWhich is right?"


def summed(body: dict[str, Any]) -> Any:
    """Attempts are right or wrong by the seed; deliberations are right."""
    text = body["messages"][0]["content"]
    asked = text.partition("What is ")[2].partition("?")[0]
    right = sum(map(int, asked.split(" + ")))
    if "Attempt 1" in text:
        thought = f"Attempt 1 and attempt 2 part in the last step. I add {asked} again: {right}."
        return completion(f"It is \\boxed{{{right}}}", reasoning_content=thought)
    said = f"I add {asked} and look at the digits once more. \\boxed{{{right + body['seed'] % 3}}}"
    return completion(said, reasoning_content=f"{asked}, so")


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    asked = (
        {"id": f"p{n}", "text": f"What is {n} + {n + 1}?", "reference": f"{2 * n + 1}"}
        for n in range(PROBLEMS)
    )
    lines(folder / "sums.jsonl", *asked)


def generate(server: FakeServer, folder: Path, out: str, *flags: str) -> Any:
    given = ["--problems=sums.jsonl", f"--k={K}", f"--d={D}", f"--out={out}", "--set=domain=stem"]
    usual = ["--set=endpoint.retries=0", "--set=endpoint.context=131072", *flags]
    return run_command("generate", *served(server.base_url, *given, *usual), cwd=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run ``mine`` with prompts of the user's, and ``other`` with another deliberator's."""
    folder = tmp_path_factory.mktemp("own")
    write(folder, think=THINK, compare=COMPARE)
    flags = ["--prompt=thinker.stem=think.md", "--prompt=deliberator=compare.md"]
    with serving(summed) as server:
        assert generate(server, folder, "mine", *flags).returncode == 0
        sent = [body["messages"][0]["content"] for body in server.requests]
        server.requests.clear()
        write(folder, compare="Vote.\n{{cache}}", think=THINK)
        refused = generate(server, folder, "mine", *flags)
        assert refused.returncode == 2 and not server.requests
        assert messages.is_in(refused.stderr, "holds_other_run", keys="prompts.deliberator")
        assert generate(server, folder, "other", *flags).returncode == 0
        again = [body["messages"][0]["content"] for body in server.requests]
    return folder, sent, again


def test_models_read_the_users_prompts_and_the_record_has_their_versions(folder):
    folder, sent, _ = folder
    kinds = {text.partition("\n")[0] for text in sent}
    assert kinds == {"==== Sum", "Compare the sums."} and len(sent) == PROBLEMS * (K + D)
    own = load_config(folder / "mine" / "config.yaml").prompts
    for trace in read_traces(folder / "mine"):
        (cache,) = trace.caches
        assert cache.prompt.endswith("==== End of attempts\nWhich is right?")
        for version, role in (
            (trace.thinker_prompt_version, "thinker"),
            (cache.prompt_version, "deliberator"),
        ):
            prompt = of_version(version, own)
            assert version.startswith(f"{role}.own.en@") and prompt and prompt.kind == role


def test_another_prompt_of_the_deliberator_takes_every_trajectory_from_the_journal(folder):
    folder, _, again = folder
    assert len(again) == PROBLEMS * D and {text[:6] for text in again} == {"Vote.\n"}
    mine, other = (list(read_traces(folder / name)) for name in ("mine", "other"))
    assert [trace.pool for trace in mine] == [trace.pool for trace in other]
    assert all(trace.caches[0].prompt.endswith("End of attempts") for trace in other)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--prompt=deliberator=no.md"], "prompts.deliberator: no.md: No such file"),
        (["--prompt=deliberator=forgets.md"], "forgets.md: {{attempts}} occurs 0 times"),
        (["--prompt=deliberator=unknown.md"], "unknown.md: {{trys}} is no field"),
        (["--prompt=deliberator"], "--prompt 'deliberator' is not KEY=VALUE. Write --prompt"),
        (["--prompt=writer=think.md"], "unknown key prompts.writer"),
        (["--set=domain=sql"], "There is no thinker prompt for domain 'sql' in language 'en'"),
        (
            ["--set=domain=sql", "--prompt=thinker.sql=think.md"],
            "There is no deliberator prompt for domain 'sql' in language 'en'",
        ),
        (["--problems=sql.jsonl"], "There is no thinker prompt for domain 'sql' in language"),
    ],
)  # fmt: skip
def test_a_prompt_that_cannot_be_used_is_told_before_a_request(tmp_path, flags, told):
    write(tmp_path, think=THINK, forgets="Solve {{problem}}.", unknown="{{cache}} {{trys}}")
    lines(tmp_path / "sql.jsonl", {"id": "a", "text": "?", "reference": "1", "domain": "sql"})
    with serving(summed) as server:
        refused = generate(server, tmp_path, "run", *flags)
        assert refused.returncode == 2 and not server.requests and not (tmp_path / "run").exists()
    assert told in " ".join(refused.stderr.split())


@pytest.fixture(scope="module")
def sets(folder):
    folder, _, _ = folder
    build(folder / "sets", folder / "mine", preset="natural", validation=0.3, sets__widths=[2])
    return folder / "sets"


def test_sets_have_the_prompts_of_their_run_and_their_texts(sets):
    assert rows(sets, "sft_thinker") and rows(sets, "sft_deliberator")
    for row in rows(sets, "sft_thinker"):
        assert row["prompt"][0]["content"].startswith("==== Sum\nWhat is ")
    for row in rows(sets, "caches"):
        assert row["prompt"].startswith("Compare the sums.\n")  # drawn ones, too
    assert any(row["drawn"] for row in rows(sets, "caches"))
    manifest = read_manifest(sets)
    (run,) = manifest.runs
    assert run.config["prompts"]["thinker"] == {"stem": THINK} and "prompts" not in manifest.build
    assert len(manifest.prompts) == 2 and all(".own." in name for name in manifest.prompts)


def test_a_build_may_have_prompts_of_its_own_for_what_it_makes(folder, sets):
    folder, _, _ = folder
    keys = {"prompts__thinker": "{{problem}}", "prompts__deliberator": "Other.\n{{cache}}"}
    most = read_manifest(sets).tokens["sft_deliberator"]["p50"] - 20
    short = folder / "short"
    made = build(
        short, folder / "mine", preset="natural", sets__widths=[2], max_tokens=most, **keys
    )
    for row in rows(short, "sft_thinker"):
        assert row["prompt"][0]["content"].startswith("What is ")
    assert read_manifest(short).build["prompts"]["thinker"] == "{{problem}}"
    # A set of the run keeps the run's own, also when it is cut again.
    caches = rows(short, "caches")
    assert made.recut and any(row["drawn"] for row in caches)
    for row in caches:
        assert row["prompt"].startswith("Other.\n" if row["drawn"] else "Compare the sums.\n")


def test_a_training_asks_in_the_prompts_of_its_sets(sets):
    wording = wording_of(read_manifest(sets))
    assert wording and wording.prompts.text("thinker", "stem") == THINK
    found = held_out(sets, 100, None, reader=ReaderTokenizer(str(MICRO)))
    assert found.roles["garbled"]
    for row in found.roles["garbled"]:
        assert row["prompt"][0]["content"].startswith("Compare the sums.\n==== Problem\n")


def test_a_skill_has_the_prompts_and_is_compared_with_them(folder):
    folder, _, _ = folder
    write(folder, compare=COMPARE)
    own = ["--prompt=thinker=think.md", "--prompt=deliberator=compare.md"]
    made = run_command(
        "skill", "export", "skills", "--domain=sql", "--language=en", *own, cwd=folder
    )
    assert made.returncode == 0, made.stderr
    skill = folder / "skills" / "heavy-thinking"
    assert "Compare the sums." in (skill / "SKILL.md").read_text()
    assert (skill / "references" / "thinker.sql.en.md").read_text().startswith("==== Sum\n")
    assert run_command("skill", "check", skill, *own, cwd=folder).returncode == 0
    refused = run_command("skill", "check", skill, cwd=folder)
    assert refused.returncode == 2 and "--prompt ROLE=FILE" in " ".join(
        refused.stderr.split() + refused.stdout.split()
    )
    for name in ("../up", ""):
        bad = run_command("skill", "export", "others", f"--domain={name}", *own, cwd=folder)
        assert bad.returncode == 2 and messages.is_in(bad.stderr, "domain_name")
    assert not (folder / "others").exists()
