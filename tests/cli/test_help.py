"""Help in two lengths, what it imports, and what is said of verbs and flags that do not exist."""

import json
import re
import subprocess
import sys

import pytest
import typer

from heavydistill.cli.verbs import _PLACES, app

SHOWS_ALL = """
import contextlib, io, json, sys
from heavydistill.cli.app import main

HEAVY = {"torch", "transformers", "trl", "distilabel", "datasets", "numpy", "pandas", "pyarrow"}
for words in json.loads(sys.argv[1]):
    sys.argv, said = ["heavydistill", *words], io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            main()
    except SystemExit as end:
        assert not end.code, end.code
    assert not HEAVY & sys.modules.keys(), (words, HEAVY & sys.modules.keys())
    if words == ["--help"]:  # a fresh process of its own would take no more
        assert not {"pydantic", "rich", "yaml"} & sys.modules.keys(), sys.modules.keys()
    print(json.dumps([words, said.getvalue()]))
"""
ALWAYS = {"--set", "--full", "--help", "--help-all"}


@pytest.fixture(scope="module")
def helps() -> dict[tuple[str, ...], str]:
    """Words of the command line to what they print, with the imports asserted."""
    groups = {"journal": ["stats", "check"], "skill": ["export", "check"]}
    verbs = [[group, verb] for group, inner in groups.items() for verb in inner]
    verbs += [[verb] for verb in _PLACES]
    words = [["--help"], *([*verb, flag] for verb in verbs for flag in ("--help", "--help-all"))]
    for group in groups:  # which has --help alone
        words.remove([group, "--help-all"])
    done = subprocess.run(
        [sys.executable, "-c", SHOWS_ALL, json.dumps(words)],
        capture_output=True,
        text=True,
        env={"COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    return {tuple(given): said for given, said in map(json.loads, done.stdout.splitlines())}


def test_help_fits_80_columns_and_is_complete(helps):
    assert all(len(line) <= 80 for said in helps.values() for line in said.splitlines())
    assert all(f"  {verb} " in helps["--help",] for verb in _PLACES)
    for words, said in helps.items():
        rows = re.findall(r"^  (\S.*?)(?:  +(.*)|)$", said, re.MULTILINE)
        assert not [row for row in rows if row[0].startswith("-") and row[1] == "."], words


def test_help_lists_few_flags_and_help_all_every_flag(helps):
    group = typer.main.get_command(app)
    for verb in _PLACES.keys() - {"journal", "skill"}:
        command = group.get_command(None, verb)
        flags = {name for each in command.params for name in each.opts}
        if hasattr(command.callback, "reads_words"):
            flags |= {
                row[0].split()[0] for rows in command.callback.more_help().values() for row in rows
            }
        flags = {flag for flag in flags if flag.startswith("--")} | {"--help", "--help-all"}
        shown = set(re.findall(r"^  (--[\w-]+)", helps[verb, "--help"], re.MULTILINE))
        assert len(shown - ALWAYS) <= 10, verb
        assert set(re.findall(r"^  (--[\w-]+)", helps[verb, "--help-all"], re.MULTILINE)) == flags
    assert "min_k" in helps["generate", "--help-all"]  # a key without a flag


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("genrate", "There is no verb genrate. Did you mean generate? `heavydistill --help`"),
        (
            "journal chek",
            "There is no verb chek. Did you mean check? `heavydistill journal --help`",
        ),
        ("generate --tacher=m", "There is no flag --tacher. Did you mean --teacher? `heavydistill"),
        ("--vrsion", "There is no flag --vrsion. Did you mean --version? `heavydistill --help`"),
        ("build --presett x", "There is no flag --presett. Did you mean --preset? `heavydistill"),
    ],
)
def test_a_mistyped_verb_or_flag_is_named_with_the_nearest(words, told, call):
    code, printed, said = call(*words.split())
    assert (code, printed) == (2, "")
    assert said.startswith(f"Error: {told}")
