"""Sets whose instructions are withdrawn in a part of the rows."""

from collections import Counter
from pathlib import Path

import pytest
from command_line import run_command
from runs import build, rows, write_run

from heavydistill.config.prompts import OwnPrompts
from heavydistill.errors import ConfigError
from heavydistill.heavy.prompts import at_level, load
from heavydistill.hub.dataset_card import write_card
from heavydistill.store.sets.folder import read_manifest

OWN = OwnPrompts(deliberator="Compare all of them with care.\n{{cache}}\nWhich is right?")
SHARES = {"full": 0.4, "short": 0.3, "none": 0.3}
OPENINGS = {"full": "Compare all", "short": "Below are a problem", "none": "===="}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "run", 60)


@pytest.fixture(scope="module")
def sets(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("sets")
    keys = {"prompts": OWN.model_dump(), "preset": "natural", "validation": 0.2, "retention": 0.1}
    build(out / "worded", run, wordings=SHARES, also=["preferences"], **keys)
    build(out / "full", run, **keys)
    return out


def attempts(row):
    return row["prompt"].partition(" Problem\n")[2].rpartition(" End of attempts")[0]


def test_each_set_has_the_wording_that_its_rows_name_and_the_same_attempts(sets):
    caches = {row["id"]: row for row in rows(sets / "worded", "caches")}
    held = {row["id"] for row in rows(sets / "worded", "problems") if row["split"] == "validation"}
    assert {row["wording"] for row in caches.values() if row["problem"] in held} == {"full"}
    used = [row for row in caches.values() if not row["sft_label"] and row["problem"] not in held]
    counts = Counter(row["wording"] for row in used)
    assert all(abs(counts[name] / len(used) - share) < 0.15 for name, share in SHARES.items())
    versions = {name: at_level(name, "brief", "en", OWN).version for name in ("short", "none")}
    for row in used:
        opening = OPENINGS[row["wording"]] if row["wording"] != "full" or row["drawn"] else "Below"
        assert row["prompt"].startswith(opening) and not row["recut"]
        assert versions.get(row["wording"], row["prompt_version"]) == row["prompt_version"]
    names = ("sft_deliberator", "rl", "preferences_deliberator")
    for row in (each for name in names for each in rows(sets / "worded", name)):
        named = caches[row["cache"]]["wording"] if row["cache"] else None
        assert row["wording"] == named
        assert not named or row["prompt"][-1]["content"] == caches[row["cache"]]["prompt"]
    before = {attempts(row) for row in rows(sets / "full", "caches")}
    assert {attempts(row) for row in caches.values()} == before
    assert {row["wording"] for row in rows(sets / "full", "sft_deliberator")} == {"full", None}


def test_the_manifest_and_the_card_count_the_wordings(sets):
    folder = sets / "worded"
    manifest = read_manifest(folder)
    for name in ("sft_deliberator", "rl"):
        counts = Counter(row["wording"] for row in rows(folder, name) if row["wording"])
        assert {level: used.rows[name] for level, used in manifest.wordings.items()} == counts
    none = at_level("none", "brief", "en").version
    assert manifest.wordings["none"].prompts == [none] and none not in manifest.prompts
    write_card(folder)
    assert f"| none | `{none}` |" in (folder / "README.md").read_text(encoding="utf-8")
    assert read_manifest(sets / "full").wordings == {}


@pytest.mark.parametrize(
    ("wordings", "told"),
    [
        ("{full: 0.5, short: 0.5}", "full wording of the domain 'brief' is the short one"),
        ("{full: 0.5, none: 0.4}", "wordings are not shares of 1"),
        ("{none: 1.0}", "has no share for full"),
        ("{full: 0.5, foreign: 0.5}", "foreign"),
    ],
)
def test_a_wording_that_the_sets_cannot_have_is_refused(run, tmp_path, wordings, told):
    out = tmp_path / "x"
    flags = ["--student=micro-student", f"--set=wordings={wordings}", f"--out={out}"]
    done = run_command("build", run, *flags)
    assert done.returncode == 2 and not Path(out).exists()
    assert told in " ".join(done.stderr.split())


def test_programs_and_chinese_have_no_short_wording():
    for domain, language, why in (("code", "en", "domain 'code'"), ("stem", "zh", "'zh'")):
        with pytest.raises(ConfigError, match=why):
            at_level("short", domain, language)
        assert at_level("full", domain, language) == load("deliberator", domain, language)
