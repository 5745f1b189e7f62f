"""``heavydistill publish`` with the folder of a run: its traces as a dataset of the Hub."""

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import messages
import pytest
import runs
from generations import altered
from hub_server import ORG
from huggingface_hub import DatasetCard
from model_folders import contents

from heavydistill.report.page.writer import write_report
from heavydistill.schema import Trace
from heavydistill.store.traces import TRACES_FOLDER, read_traces, write_traces

REPO = f"{ORG}/heavy-traces"
KNOWN = "--allow-unknown-terms"
FOLDER = "/home/ann/models/big"
KEY = "sk-Aa1Bb2Cc3Dd4"
HOSTILE = (
    "It is 5.\n```\n~~~\n# Title\n## Notes\n<!-- --><script>alert(1)</script>\n"
    "---\nlicense: mit\n---\n\u202e\x1b[31m ![x](http://a.test/x.png) {{ 7 * 7 }} | a | b |\r\n"
) + "long " * 5_000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return runs.write_run(tmp_path / "runs" / "first", 12, k=4, d=2)


def changed(run: Path, change: Callable[[Trace], Trace]) -> Path:
    write_traces([change(trace) for trace in list(read_traces(run))], run / TRACES_FOLDER)
    return run


def test_what_arrives_is_what_the_dry_run_wrote_and_is_a_run(hub, publish, run, elsewhere):
    changed(run, lambda trace: altered(trace, "pool", model=FOLDER, served_model=FOLDER))
    before = contents(run)
    code, said = publish(run, "--to", REPO, KNOWN, "--dry-run")
    assert code == 0 and hub.received == [] and hub.repos == {}, said
    assert messages.is_in(said, "not_sent") and "config.yaml" in said
    copy = run.with_name("first.dry-run")
    shown = contents(copy)
    del shown[".heavydistill-dry-run"]
    rows = "traces/train-00000-of-00001.parquet"
    assert shown.keys() == {"README.md", "summary.json", "configuration.json", rows}
    assert "journal" not in json.loads(shown["configuration.json"])
    code, said = publish(run, "--to", REPO, KNOWN)
    assert code == 0 and hub.repos[REPO].kind == "dataset", said
    assert hub.files(REPO) == shown and contents(run) == before
    hub.received.clear()
    assert (
        messages.is_in(publish(run, "--to", REPO, KNOWN)[1], "nothing_differs")
        and hub.received == []
    )
    sent, own = list(read_traces(copy)), list(read_traces(run))
    assert {t.model for trace in sent for t in trace.pool} == {"big"}
    assert {t.served_model for trace in sent for t in trace.pool} == {"big"}
    assert [trace.problem for trace in sent] == [trace.problem for trace in own]
    assert [trace.deliberations for trace in sent] == [trace.deliberations for trace in own]
    # A copy can be reported and built from, as the card says.
    assert write_report([copy], copy.with_suffix(".html")).file.is_file()
    assert runs.build(run.with_name("sets"), copy).runs[0].traces == 12
    load = f"from datasets import load_dataset as d; print(d('{REPO}', split='train').num_rows)"
    assert elsewhere(sys.executable, "-c", load).split()[-1] == "12"


def test_the_card_names_who_wrote_the_traces_and_has_no_folder(hub, publish, run):
    changed(run, lambda trace: altered(trace, "pool", model=FOLDER))
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    half = {"mean": 0.5, "low": 0.4, "high": 0.6}
    figures = {"k": 4, "d": 2, "vote_at_k": half, "heavy_minus_vote": half, "rejects": 1}
    text = json.dumps(summary | figures | {"missing": 2})
    (run / "summary.json").write_text(text, encoding="utf-8")
    code, said = publish(run, "--to", REPO, KNOWN)
    assert code == 0, said
    card = hub.card(REPO)
    assert "# Attempts by big, deliberations by teacher\n" in card and "/home/" not in card
    assert "12 problems, 48 attempts and 24 deliberations." in card
    assert "1 problem on which a step failed is not included" in card
    assert "The run was stopped: 2 problems of it have no row." in card
    assert "**Deliberation beats the vote: 50.0% right against 50.0%** in `first`" in card
    assert "| `big` | thinker | unknown | unknown |" in card
    assert f'load_dataset("{REPO}", split="train")' in card
    assert "`pool[0].answer_text`:\n\n    One has to " in card
    data = DatasetCard(card).data
    assert data.license == "other" and data.size_categories == "n<1K"


@pytest.mark.parametrize("flag", ["unknown", "restricted"])
def test_the_terms_of_all_who_wrote_the_rows_are_asked_for(hub, publish, run, flag):
    model = {"unknown": "someone/else", "restricted": "openai/gpt-5"}[flag]
    changed(run, lambda trace: altered(trace, "pool", model="micro"))
    changed(run, lambda trace: altered(trace, "deliberations", model=model))
    code, said = publish(run, "--to", REPO)
    assert code == 2 and model in said and f"--allow-{flag}-terms" in said
    assert hub.requests == []
    assert publish(run, "--to", REPO, f"--allow-{flag}-terms")[0] == 0
    stated = {
        "unknown": f"the terms of {model} on training with their outputs are not known, and the "
        "publisher states that they allow it.",
        "restricted": f"the terms of {model} restrict training with their outputs, and the "
        "publisher states to have permission.",
    }
    assert stated[flag] in hub.card(REPO) and "may not allow training" not in hub.card(REPO)


def test_a_key_in_a_trace_is_found(hub, publish, run, monkeypatch):
    monkeypatch.setenv("ZHIPU_API_KEY", KEY)

    def leaking(trace: Trace) -> Trace:
        is_it = trace.problem.id == "sum:7"
        return altered(trace, "pool", reasoning=f"The key is {KEY}") if is_it else trace

    code, said = publish(changed(run, leaking), "--to", REPO, KNOWN)
    assert code == 2 and KEY not in said and hub.requests == []
    assert messages.is_in(
        said,
        "key_value_found",
        variable="ZHIPU_API_KEY",
        place="traces/train-00000-of-00001.parquet, row 8, column pool",
    )


def test_a_link_out_of_the_folder_and_a_folder_of_two_kinds_are_refused(refused, run, tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (run / "summary.json").unlink()
    (run / "summary.json").symlink_to(secret)
    assert messages.is_in(refused(run, KNOWN), "link_in_folder")
    (run / "summary.json").unlink()
    assert messages.is_in(refused(run, KNOWN), "nothing_to_publish")


def test_a_run_that_is_being_continued_is_refused(refused, run, monkeypatch):
    from heavydistill.store.atomic import Workplace

    monkeypatch.setattr(Workplace, "is_claimed", property(lambda self: True))
    assert messages.is_in(refused(run, KNOWN), "run_being_written")


@pytest.fixture
def hostile(run: Path) -> Path:
    def evil(trace: Trace) -> Trace:
        asked = dataclasses.replace(trace.problem, text=HOSTILE, reference=HOSTILE)
        said = altered(trace, "pool", answer_text=HOSTILE, reasoning=HOSTILE)
        return dataclasses.replace(said, problem=asked)

    return changed(run, evil)


def test_the_example_is_bounded_and_no_text_leaves_its_block(hub, publish, hostile):
    for _ in range(2):
        assert publish(hostile, "--to", REPO, KNOWN)[0] == 0
    card = hub.card(REPO)
    lines = card.split("\n## Example\n")[1].split("\n## Models")[0].split("\n")
    names = re.compile(r"`[\w.\[\]]+`:|From the first row; long texts are cut\.|")
    assert [line for line in lines if not (line.startswith("    ") or names.fullmatch(line))] == []
    assert "    # Title" in lines and "\\u202e\\x1b" in card and "\x1b" not in card
    assert "{{ 7 * 7 }}" in card and "more characters)" in card and len(card) < 20_000
    assert card.count("\n## Notes\n") == 1 and DatasetCard(card).data.license == "other"
