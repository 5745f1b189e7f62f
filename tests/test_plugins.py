"""The registry of plug-ins: where they are from, and what is said of those that cannot be used."""

import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import messages
import pytest
from command_line import run_command

from heavydistill import plugins
from heavydistill.config.models import Endpoint
from heavydistill.config.run import RunConfig, load_config
from heavydistill.errors import ConfigError
from heavydistill.heavy.selection import select
from heavydistill.models.registry import profile_at
from heavydistill.plugins import plugin
from heavydistill.verifiers import registry

pytestmark = pytest.mark.usefixtures("known_here_alone")
USES = "from heavydistill.plugins import plugin\nfrom heavydistill.verifiers.exact import Exact\n"
LONGEST = (
    USES
    + """
@plugin("selection", "longest")
def longest(pool, width, rng):
    return sorted(pool, key=lambda attempt: -len(attempt.answer_text))[:width]
"""
)
NONE = "\ndef none(*args): return []\nplugin('selection', 'none')(none)\n"


@pytest.fixture
def written(tmp_path):
    def write(text: str, name: str = "mine.py") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a package on the path as pip does: its module, and metadata with an entry point."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_installed", [])

    def put(name: str, text: str, requires: str = "") -> None:
        sys.modules.pop(name, None)
        (tmp_path / f"{name}.py").write_text(text)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        needed = f"Requires-Dist: {requires}\n" * bool(requires)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needed}"
        )
        (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\nall = {name}\n")

    return put


def pool_of(*texts: str) -> Any:
    return [SimpleNamespace(unusable_because=None, answer_text=text) for text in texts]


def refused(*files: str, **keys: object) -> str:
    with pytest.raises(ConfigError) as raised:
        load_config(None, {"plugins": [*files], **keys}).load_plugins()
    return str(raised.value)


def test_a_selection_of_a_file_selects(written):
    config = load_config(
        None, {"plugins": [written(LONGEST)], "cache.selection": "longest", "cache.width": 2}
    )
    config.load_plugins()
    config.load_plugins()  # the same file again is no second plug-in
    chosen = select("longest", pool_of("1", "22222", "", "333"), 2, random.Random(0))
    assert [each.answer_text for each in chosen] == ["22222", "333"]
    assert plugins.loaded["selection", "longest"].place == config.plugins[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "plugins: FILE: No such file"),
        ("", "FILE contains no plug-in"),
        ("1 / 0", r"FILE: ZeroDivisionError: division by zero \(mine.py:1\)"),
        ("import nothing_like_it", "FILE: ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("def (", "FILE: SyntaxError"),
        ("raise SystemExit(3)", "FILE: SystemExit: 3"),
        (USES + "plugin('selecton', 'a')(print)", "no kind 'selecton'.*verifier, source"),
        (USES + "plugin('selection', 'a b')(print)", "'a b' is not a name"),
        (USES + "plugin('selection', 'a')(lambda pool: pool)", r"a is not \(pool, width, rng\)"),
        (USES + "plugin('selection', 'a')(max)", r"a is not \(pool, width, rng\)"),
        (USES + "plugin('pruning', 'a')('cut')", r"pruning a is not \(attempt, tokens, reader\)"),
        (USES + "plugin('teacher', 'a')('absent.yaml')", "a is not the path of a profile"),
        (USES + "plugin('exporter', 'a')(print)", "a is not a curate.exports.export.ExportTarget"),
        (USES + "plugin('verifier', 'a')(print)", "a is not a subclass of"),
        (USES + NONE.replace("'none'", "'random'"), "shipped"),
        (USES + NONE + NONE, "FILE: there is a selection 'none' already. Give yours another name"),
        (USES + "class Mine(Exact): name = 'mine'", "has the verifier mine.*verify.own"),
        (USES + "class Mine(Exact): name = 'math'", "there is a verifier 'math' already"),
        (USES + "class Mine(Exact):\n  name = 'm'\n  def __init__(self): 1 / 0", "m: ZeroDivision"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_message_with_its_place(written, tmp_path, text, told):
    file = str(tmp_path / "mine.py") if text is None else written(text)
    assert re.search(told.replace("FILE", re.escape(file)), refused(file))
    assert not any(each.place == file for each in plugins.loaded.values() if "has the" not in told)


def test_two_files_with_one_name_are_refused(written):
    one, other = written(LONGEST, "one.py"), written(LONGEST, "other.py")
    assert messages.is_in(
        refused(one, other),
        "plugin_name_taken",
        kind="selection",
        name="longest",
        place=f"in {one}",
    )


@pytest.mark.parametrize(
    ("key", "name", "told"),
    [
        (
            "cache.selection",
            "longset",
            "no selection 'longset'.*Did you mean longest?.*random, max",
        ),
        ("cache.pruning", "longest", "no pruning 'longest'.*answer_only, "),
    ],
)
def test_an_unknown_name_is_refused_with_the_names_that_there_are(written, key, name, told):
    assert re.search(f"{key}: there is {told}", refused(written(LONGEST), **{key: name}))


def test_what_this_process_alone_knows_is_refused():
    plugin("selection", "here")(lambda pool, width, rng: pool[:1])
    assert "there is no selection 'here'" in refused(**{"cache.selection": "here"})


def test_a_file_that_uses_its_own_plug_ins_without_a_guard_is_refused(written):
    file = written(LONGEST + "plugins = __import__('heavydistill.plugins').plugins\n")
    Path(file).write_text(Path(file).read_text() + f"plugins.load_files([{file!r}])\n")
    assert "if __name__ == '__main__'" in refused(file)


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("return []", "did not return a list of 1 to 2 different attempts"),
        ("return pool", "did not return"),
        ("return [pool[0], pool[0]]", "did not return"),
        ("return [object()]", "did not return"),
        ("return None", "did not return"),
        ("return [pool[9]]", r"selection bad failed: IndexError: .* \(mine.py:5\)"),
    ],
)
def test_a_selection_that_breaks_its_rules_is_named(written, does, told):
    file = written(f"{USES}\n@plugin('selection', 'bad')\ndef bad(pool, width, rng): {does}\n")
    plugins.load_files([file])
    with pytest.raises(ConfigError, match=f"{re.escape(file)}: the .*{told}"):
        select("bad", pool_of("1", "1", "2", "3"), 2, random.Random(0))


class MentionSummary:
    """A class of a file, which stands for the file."""


def test_a_function_or_class_stands_for_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RunConfig(plugins=[select, "mine.py"], verify={"own": [MentionSummary]})  # type: ignore[list-item, arg-type]
    assert config.plugins == [select.__code__.co_filename, str(tmp_path / "mine.py")]
    assert config.verify.own == [__file__]
    cell: dict[str, type] = {}
    exec(compile("class Cell: pass", "<cell>", "exec"), cell)
    with messages.raises("plugin_not_found_elsewhere"):
        RunConfig(plugins=[cell["Cell"]])  # type: ignore[list-item]


def test_plug_ins_of_installed_packages_are_found_when_a_name_is_unknown(install):
    install("acme", LONGEST + "class Loud(Exact): name = 'loud'\n", "heavydistill>=0.1")
    assert registry.get("loud").name == "loud" and "loud" in registry.names()
    load_config(None, {"cache.selection": "longest"}).load_plugins()
    assert plugins.loaded["selection", "longest"].place == "acme 1.0"


def test_a_verifier_that_a_package_imports_from_a_module_of_its_own_counts(install, tmp_path):
    install("acme3", "")
    (tmp_path / "acme3.py").rename(tmp_path / "unused.py")
    (tmp_path / "acme3").mkdir()
    (tmp_path / "acme3" / "__init__.py").write_text("from acme3.loud import Exact, Loud\n")
    (tmp_path / "acme3" / "loud.py").write_text(USES + "class Loud(Exact): name = 'louder'\n")
    assert registry.get("louder").name == "louder" and not plugins.broken


def test_a_package_that_was_imported_before_is_found_too(install):
    install("acme2", LONGEST)
    __import__("acme2")
    load_config(None, {"cache.selection": "longest"}).load_plugins()
    assert plugins.loaded["selection", "longest"].place == "acme2 1.0"


@pytest.mark.parametrize(
    ("name", "text", "requires", "why"),
    [
        ("torn", "1 / 0", "", "ZeroDivisionError"),
        ("odd", LONGEST, "no ! requirement", "InvalidRequirement"),
        ("newer", LONGEST, "heavydistill>=99", "it needs heavydistill>=99, and this is"),
        (
            "taker",
            LONGEST.replace('"longest"', '"random"'),
            "",
            "'random' already, which is shipped",
        ),
        ("second", LONGEST, "", "there is a selection 'longest' already, in first 1.0"),
    ],
)
def test_a_package_that_cannot_be_used_is_said_and_breaks_nothing_else(
    install, caplog, name, text, requires, why
):
    install("first", LONGEST)
    install(name, text, requires)
    load_config(None, {"cache.selection": "longest"}).load_plugins()
    assert why in plugins.broken[f"{name} 1.0"]
    assert (
        messages.is_in(caplog.text, "plugins_unusable", package=f"{name} 1.0")
        and why in caplog.text
    )
    assert why in refused(**{"cache.selection": "longer"})
    printed = run_command("plugins")
    assert printed.returncode == 1 and "first 1.0" in printed.stdout
    assert why in " ".join(printed.stdout.split())


def test_a_teacher_of_a_file_is_a_profile(written, tmp_path):
    (tmp_path / "small.yaml").write_text(
        "name: small\nhub: org/small\ntokenizer: org/small\ncontext: 4096\n"
    )
    file = written(USES + f"plugin('teacher', 'ours')({str(tmp_path / 'small.yaml')!r})\n")
    with messages.raises("no_model", model="ours"):
        profile_at("ours", Endpoint())
    plugins.load_files([file])
    assert profile_at("ours", Endpoint()).model == "org/small"
    assert "heavydistill teachers ours" in run_command("teachers").stdout
    assert "hub: org/small" in run_command("teachers", "ours").stdout
    with messages.raises("no_model_but", model="oursy", nearest="ours"):
        profile_at("oursy", Endpoint())


def test_a_prompt_of_a_package_stands_for_its_file(install, tmp_path):
    (tmp_path / "terse.md").write_text("{{cache}}\nBe brief.")
    text = f"plugin('prompt', 'terse')({str(tmp_path / 'terse.md')!r})\n"
    install("acme4", USES + text)
    given = load_config(None, {"prompts.deliberator": "terse"}).prompts.deliberator
    assert given and given.endswith("Be brief.") and "{{attempts}}" in given
    install("torn4", "1 / 0")
    plugins._installed.clear()
    with pytest.raises(
        ConfigError, match=r"prompts.deliberator: terser: No such.*torn4 1.0 cannot"
    ):
        load_config(None, {"prompts.deliberator": "terser"})


def test_the_list_names_shipped_ones_and_those_of_files(written):
    printed = run_command("plugins", written(LONGEST))
    assert printed.returncode == 0
    assert re.search(r"selection +longest ", printed.stdout)
    assert "max_answer_num" in printed.stdout and "Traceback" not in printed.stderr
    broken = run_command("plugins", written("1 / 0", "broken.py"))
    assert broken.returncode == 2 and "broken.py: ZeroDivisionError" in broken.stderr
