"""No key leaves: not in a card, not in a row, not in what is printed."""

import dataclasses
import json
import shutil
from pathlib import Path

import messages
import pyarrow.parquet as pq
import pytest
from hub_server import TOKEN
from set_folders import manifest, write_sets

from heavydistill.errors import PublishError
from heavydistill.hub.secrets import known_secrets, refuse_secrets
from heavydistill.schema import from_row
from heavydistill.store.sets import folder as folders
from heavydistill.store.sets.folder import RunUsed, read_manifest, write_manifest
from heavydistill.store.sets.set_rows import ThoughtfulMessage, ThoughtfulSftRow

REPO = "org/sets"
KEY = "sk-Aa1Bb2Cc3Dd4"
NAMED = {"endpoint": {"api_key_env": "MY_ACCESS"}, "judge": {"endpoint": {"api_key_env": None}}}


def rewritten(folder: Path, text: str, rows: int = 150) -> Path:
    """The folder with many rows in ``sft_deliberator``, the last of which thinks that text."""
    path = folders.file_of(folder, "sft_deliberator", "train")
    (row,) = pq.read_table(path).to_pylist()
    plain = from_row(ThoughtfulSftRow, row)
    shutil.rmtree(path.parent)
    writer = folders.Writer(path, ThoughtfulSftRow)
    for number in range(rows):
        turn = ThoughtfulMessage(
            role="assistant",
            content="6",
            reasoning_content=text if number == rows - 1 else f"thought {number}",
        )
        writer.write(dataclasses.replace(plain, completion=[turn]))
    writer.close()
    write_manifest(read_manifest(folder), folder)
    return folder


def test_a_key_in_a_row_is_found_with_its_place(hub, publish, tmp_path, monkeypatch):
    monkeypatch.setenv("ZHIPU_API_KEY", KEY)
    folder = rewritten(write_sets(tmp_path / "sets"), f"I use the key {KEY}.")
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and KEY not in said
    assert (
        "The value of ZHIPU_API_KEY is in sft_deliberator/train-00000-of-00001.parquet, "
        "row 150, column completion; nothing was sent" in said
    )
    assert hub.requests == []
    monkeypatch.delenv("ZHIPU_API_KEY")
    assert publish(folder, "--to", REPO)[0] == 0


def test_the_token_itself_is_looked_for(refused, tmp_path):
    folder = rewritten(write_sets(tmp_path / "sets"), f"export HF_TOKEN={TOKEN}")
    assert messages.is_in(refused(folder, "--dry-run"), "key_value_found", variable="HF_TOKEN")
    assert not folder.with_name("sets.dry-run").exists()


def test_a_key_in_the_manifest_or_the_users_notes_is_found(refused, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    folder = write_sets(tmp_path / "sets")
    (folder / "README.md").write_text(f"\n## Notes\n\nAsk with {KEY}\n", encoding="utf-8")
    said = refused(folder)
    assert "is in README.md, line" in said and KEY not in said
    run = RunUsed(name="run", traces=2, config={"note": KEY}, summary={})
    said = refused(write_sets(tmp_path / "other", runs=[run]))
    assert KEY not in said
    lines = (tmp_path / "other" / "manifest.json").read_text(encoding="utf-8").splitlines()
    (line,) = [number for number, text in enumerate(lines, 1) if KEY in text]
    assert messages.is_in(
        said, "key_value_found", variable="OPENAI_API_KEY", place=f"manifest.json, line {line}"
    )


def test_variables_that_sound_like_keys_or_are_named_in_a_run_are_looked_for(monkeypatch):
    values = {
        "SOME_API_KEY": "value-of-1",
        "github_token": "value-of-2",
        "AWS_SECRET_ACCESS_KEY": "value-of-3",
        "DB_PASSWORD": " value-of-4\n",
        "MY_ACCESS": "value-of-5",
        "SHORT_API_KEY": "EMPTY",
        "SHELL_NAME": "value-of-6",
        "OPENAI_API_KEY_2": "value-of-7",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_FromTheLogin")
    run = RunUsed(name="run", traces=2, config=NAMED, summary={})
    found = known_secrets(manifest(runs=[run]).model_dump())
    others = {"SHORT_API_KEY", "SHELL_NAME"}
    told = {name: found[name] for name in values.keys() & found.keys()}
    assert told == {name: value.strip() for name, value in values.items() if name not in others}
    assert "hf_FromTheLogin" in found.values()


def test_half_a_key_in_each_of_two_rows_is_no_key(tmp_path):
    """They lie side by side in memory, where the key is looked for first."""
    folder = write_sets(tmp_path / "sets")
    path = folders.file_of(folder, "problems", "train")
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[0]["text"], rows[1]["text"] = KEY[:7], KEY[7:]
    pq.write_table(table.from_pylist(rows, table.schema), path)
    refuse_secrets({"rows.parquet": path}, {"A_KEY": KEY}, "build again")
    rows[1]["text"] = f"it is {KEY}"
    pq.write_table(table.from_pylist(rows, table.schema), path)
    with messages.raises(
        "key_value_found", variable="A_KEY", place="rows.parquet, row 2, column text"
    ):
        refuse_secrets({"rows.parquet": path}, {"A_KEY": KEY}, "build again")


def test_a_key_that_begins_a_line_is_found_in_json():
    content = json.dumps({"note": f"my key:\n{KEY}"}).encode()
    with messages.raises("key_value_found", variable="A_KEY", place="notes.json, line 1"):
        refuse_secrets({"notes.json": content}, {"A_KEY": KEY}, "build again")


# Put together here, so that no scanner takes this file for a leak.
SHAPED = {
    "OpenAI": "sk-" + "proj-" + "aB3" * 20,
    "DeepSeek": "sk-" + "0123456789abcdef" * 2,
    "Anthropic": "sk-" + "ant-api03-" + "aB3_" * 23 + "xAA",
    "OpenRouter": "sk-" + "or-v1-" + "0123456789abcdef" * 4,
    "Hugging Face": "hf" + "_" + "aBcDe" * 6 + "fGhI",
    "GitHub": "ghp" + "_" + "aB3d" * 9,
    "GitLab": "glpat" + "-" + "aB3d_" * 4,
    "AWS": "AKIA" + "ABCD2345" * 2,
    "Google": "AIza" + "aB3-_" * 7,
    "Slack": "xoxb" + "-1234567890-" + "aB3d" * 4,
    "Stripe": "sk" + "_live_" + "aB3d" * 5,
    "PyPI": "pypi" + "-AgEIcHlwaS5vcmc" + "aB3d" * 15,
    "npm": "npm" + "_" + "aB3d" * 9,
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----\n" + "aB3+" * 16,
}
UNSHAPED = [
    *(
        "the task-" + "0123456789abcdef" * 2,
        "sk-learn and sk-your-key-goes-here",
        "sk-...",
        "hf_...",
    ),
    *("AKIA" + "IOSFODNN7EXAMPLE", "x_{sk} - y", "-----BEGIN PRIVATE KEY-----", "ghp_short"),
]


@pytest.mark.parametrize("owner", SHAPED)
def test_a_key_of_others_is_found_by_its_shape_and_may_be_allowed(tmp_path, owner):
    folder = rewritten(write_sets(tmp_path / "sets"), f"so use {SHAPED[owner]} here")
    files = {"rows.parquet": folders.file_of(folder, "sft_deliberator", "train")}
    with pytest.raises(PublishError, match=owner) as found:
        refuse_secrets(files, {}, "build again")
    assert "row 150, column completion" in found.value.what
    assert "--allow-key-shapes" in found.value.fix and SHAPED[owner] not in str(found.value)
    with messages.raises("key_shape_found", place="card, line 2"):
        refuse_secrets({"card": f"# Card\n{SHAPED[owner]}".encode()}, {}, "build again")
    refuse_secrets(files, {}, "build again", allow_shapes=True)
    with messages.raises("key_value_found", variable="A_KEY"):
        refuse_secrets(files, {"A_KEY": SHAPED[owner]}, "build again", allow_shapes=True)


@pytest.mark.parametrize("text", UNSHAPED)
def test_texts_that_only_begin_like_a_key_are_published(text):
    refuse_secrets({"card": text.encode()}, {}, "build again")
