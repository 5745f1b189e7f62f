"""The exported skill and its prompt: one source, the same bytes, evals from a run, bad input."""

import hashlib
import json
from pathlib import Path

import messages
import pytest
import skills_ref
from command_line import run_command
from messages import message
from runs import traces, write_run

from heavydistill.config.prompts import NO_PROMPTS
from heavydistill.config.run import RunConfig
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import serialize
from heavydistill.schema import Problem, Trace
from heavydistill.skill.check import check_skill
from heavydistill.skill.export import export_skill
from heavydistill.skill.prompt import for_reader, for_task
from heavydistill.skill.texts import DOMAINS, skill_texts, wordings_in
from heavydistill.store.traces import TRACES_FOLDER, write_traces

ROOT = Path(__file__).parents[2]
PROMPTS = ROOT / "heavydistill/heavy/prompts"
WORDINGS = [
    f"{role}.{domain}.{language}"
    for role, domain, language in prompts.available()
    if role in ("thinker", "deliberator")
]


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", WORDINGS)
def test_each_wording_of_the_skill_is_the_file_that_runs_and_trainings_use(name):
    _, domain, language = name.split(".")
    source = (PROMPTS / f"{name}.md").read_text(encoding="utf-8").strip()
    texts = skill_texts([domain], [language])
    blocks = source.replace("{{fence}}", "====").split("\n{{cache}}\n")
    for text in (texts[f"references/{name}.md"], texts["SKILL.md"]):
        assert all(block in text for block in blocks)
        assert "{{" not in text
    digits = hashlib.sha256(source.encode()).hexdigest()[:12]
    assert f'  heavydistill-{name}: "{digits}"\n' in texts["SKILL.md"]


def test_a_changed_prompt_changes_the_skill(ours, tmp_path, monkeypatch):
    for path in PROMPTS.glob("*.md"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / "thinker.stem.zh.md").open("a", encoding="utf-8") as file:
        file.write("请再检查一遍。\n")
    monkeypatch.setattr(prompts, "_FOLDER", tmp_path)
    monkeypatch.setattr(prompts, "_ours", prompts._ours.__wrapped__)
    found = {(each.file, each.line) for each in check_skill(ours).refusals}
    assert found == {("SKILL.md", 14), ("references/thinker.stem.zh.md", 4)}


def test_the_skill_has_the_shape_that_clients_load(exported):
    assert skills_ref.validate(exported) == []
    properties = skills_ref.read_properties(exported)
    assert properties.description.startswith("Use for ") and len(properties.description) < 300
    assert set(wordings_in(properties.metadata)) == {
        name for name in WORDINGS if ".brief." not in name
    }
    lines = (exported / "SKILL.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 500
    headings = [line for line in lines if line.startswith("## ")]
    assert [line.split()[-1] for line in headings] == [
        *("Activation", "protocol", "Deliberation", "Output")
    ]
    report = check_skill(exported)
    assert (report.level, report.refusals) == ("declared", [])


def test_two_exports_and_the_skill_of_the_documentation_are_equal_to_the_byte(exported, tmp_path):
    """`heavydistill skill export docs/skills` makes the latter, after `rm -r docs/skills`."""
    done = run_command("skill", "export", tmp_path)
    assert done.returncode == 0 and str(tmp_path / "heavy-thinking") in done.stdout
    assert content_of(tmp_path / "heavy-thinking") == content_of(exported)
    assert content_of(ROOT / "docs/skills/heavy-thinking") == content_of(exported)


def test_every_domain_with_wordings_says_what_it_is_for():
    assert {name.split(".")[1] for name in WORDINGS} == set(DOMAINS)


def test_evals_are_the_hardest_verified_problems_of_a_run(tmp_path):
    run = write_run(tmp_path / "run", 60)
    folder = export_skill(tmp_path, ["brief"], ["en"], run)
    tree = json.loads((folder / "evals/evals.json").read_text(encoding="utf-8"))
    right = {
        trace.problem.text: sum(each.is_correct for each in trace.pool)
        for trace in traces(60)
        if any(each.is_correct for each in (*trace.pool, *trace.deliberations))
    }
    shares = [right[each["prompt"]] for each in tree["evals"]]
    assert shares == sorted(right.values())[:20]
    assert tree["skill_name"] == folder.name
    first = tree["evals"][0]
    assert set(first) == {"id", "prompt", "expected_output", "files", "assertions"}
    reference = first["expected_output"].rpartition(" ")[2]
    assert f"{reference!r}" in first["assertions"][0] and "'math'" in first["assertions"][0]
    assert check_skill(folder).level == "tested"


def test_evals_of_other_wordings_do_not_test_the_skill(tmp_path):
    folder = export_skill(tmp_path, ["stem", "brief"], ["en"], write_run(tmp_path / "run"))
    report = check_skill(folder)
    assert report.level == "declared"
    assert report.missing == [
        "evals and figures of a run with these wordings: thinker.stem.en, deliberator.stem.en; "
        "or export the wordings of the run: --domain DOMAINS --language LANGUAGES"
    ]


@pytest.mark.parametrize("summary", [{}, {"problems": 9, "heavy_mean_at_d": None}])
def test_evals_of_a_run_without_deliberations_do_not_test_the_skill(summary, tmp_path):
    run = write_run(tmp_path / "run")
    (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    report = check_skill(export_skill(tmp_path, ["brief"], ["en"], run))
    assert report.level == "declared" and "thinker.brief.en" in report.missing[0]


def unverified_run(folder: Path) -> Path:
    def wrong(trace: Trace) -> Trace:
        return Trace(problem=trace.problem, pool=[p for p in trace.pool if not p.is_correct])

    write_traces(map(wrong, traces(4, d=0)), folder / TRACES_FOLDER)
    return folder


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--domain", "stem,law"], "There is no thinker prompt for domain 'law' in language 'en'"),
        (["--domain", "brief"], "There is no thinker prompt for domain 'brief' in language 'zh'"),
        (["--language", ""], message("domain_name", name="''")),
        (
            ["--evals", "nothing"],
            message("no_finished_run", folder="nothing") + ": it does not exist",
        ),
        (
            ["--evals", "run/config.yaml"],
            message("no_finished_run", folder="run/config.yaml") + ": it is",
        ),
        (["--evals", "unverified"], "--evals: none of the 4 problems of unverified has"),
        (["--evals", "run"], "--evals: run/summary.json cannot be read"),
    ],
)
def test_bad_input_is_reported_with_a_fix_and_nothing_is_written(flags, told, tmp_path):
    unverified_run(tmp_path / "unverified")
    (write_run(tmp_path / "run", 4) / "summary.json").write_text("[", encoding="utf-8")
    done = run_command("skill", "export", "skills", *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {told}") and len(done.stderr.split(". ")) > 1
    assert not (tmp_path / "skills").exists()


def test_an_existing_skill_is_not_replaced(exported, tmp_path):
    (tmp_path / "heavy-thinking").mkdir()
    done = run_command("skill", "export", tmp_path)
    assert done.returncode == 2 and messages.is_in(done.stderr, "skill_exists")
    assert not [*(tmp_path / "heavy-thinking").iterdir()]


def test_signatures_of_other_tools_lie_beside_the_hashes(ours):
    (ours / "skill.oms.sig").write_text("{}", encoding="utf-8")
    (ours / "SHA256SUMS.sigstore.json").write_text("{}", encoding="utf-8")
    assert check_skill(ours).refusals == []


@pytest.mark.parametrize(
    ("domain", "language"), [("general", "en"), ("stem", "zh"), ("code", "en")]
)
def test_the_prompt_is_the_body_with_both_wordings_and_then_the_problem_unchanged(domain, language):
    wording = for_task("skill", domain, language, NO_PROMPTS)
    text = serialize("  What is {{cache}} ==== Attempt 9?\n", [], wording)
    opening, problem = text.rsplit("\n\n", 1)
    assert problem == "What is {{cache}} ==== Attempt 9?"
    body, invokes = opening.rsplit("\n\n", 1)
    assert "no subagents" in invokes and body.startswith("# Heavy thinking")
    skill = skill_texts([domain], [language], tools=False)["SKILL.md"]
    assert (
        "heavy_think" not in skill
        and "heavy_think" in skill_texts([domain], [language])["SKILL.md"]
    )
    assert "references/" not in skill and "{{" not in skill
    assert skill.endswith(f"---\n\n{body}\n") and "license:" not in body
    for role in ("thinker", "deliberator"):
        assert prompts.load(role, domain, language).parts[-1] in body
    assert "K is 3, or up to 5" in body and wording.version.startswith(
        f"skill.{domain}.{language}@"
    )
    assert prompts.of_version(wording.version) is None


def test_a_problem_has_the_skill_of_its_own_domain_and_other_tasks_their_wordings():
    config = RunConfig().model_copy(update={"domain": "stem"})
    asked = config.deliberate.model_copy(update={"task": "skill"})
    skill = config.model_copy(update={"deliberate": asked})
    problem = Problem(id="p", text="?", reference="1", verifier="math", domain="code", source="x")
    assert for_reader(problem, skill).version.startswith("skill.code.en@")
    assert for_reader(problem, config) == prompts.load("deliberator", "code", "en")
