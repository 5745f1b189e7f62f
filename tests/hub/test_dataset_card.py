"""The card of a folder of sets: what the Hub reads of it, and what a person does."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import messages
import pytest
from huggingface_hub import DatasetCard
from set_folders import ASKED, write_sets

from heavydistill.hub.cards import verbatim
from heavydistill.hub.dataset_card import dataset_card, write_card
from heavydistill.hub.options import PublishOptions
from heavydistill.metrics.counts import GenerationCounts
from heavydistill.report.markdown import text
from heavydistill.store.sets import folder as folders
from heavydistill.store.sets.folder import RunUsed, StudentUsed, read_manifest

SAMPLING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_tokens": 32768}
CONFIG: dict[str, Any] = {
    "teacher": "glm-4.6",
    "seed": 11,
    "problems": {"source": "hub:org/problems"},
    "think": {"k": 16, "sampling": SAMPLING},
    "deliberate": {"d": 3, "sampling": SAMPLING | {"max_tokens": 8192}},
}
USED = {"requests": 320, "prompt": 5000, "completion": 123456, "cost_usd": 1.5}
USAGE = {"thinking": USED, "deliberating": USED | {"cost_usd": None}}
SUMMARY: dict[str, Any] = {"problems": 20, "usage": USAGE}
RUN = RunUsed(name="glm", traces=20, config=CONFIG, summary=SUMMARY)
CHANGES: dict[str, Any] = {
    "runs": [RUN],
    "models": {"thinker": ["glm-4.6"], "deliberator": ["glm-4.6"]},
    "build": {"preset": "agglm", "seed": 7, "redeliberate": {"d": 6, "seed": 5}},
    "asked": [ASKED.model_copy(update={"model": "glm-4.6"})],
}


def made(folder: Path, repo_id: str | None = None, **changes: Any) -> str:
    return dataset_card(
        read_manifest(write_sets(folder, **changes)), folder, PublishOptions(repo_id=repo_id or "")
    )


def rows_of(written: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    after = written.split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines()
    lines = list(itertools.dropwhile(lambda line: not line.startswith("|"), after))
    lines = list(itertools.takewhile(lambda line: line.startswith("|"), lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_hub_understands_its_metadata_which_is_the_same_anywhere(tmp_path):
    card = made(tmp_path / "sets", **CHANGES)
    assert made(tmp_path / "b" / "c", **CHANGES) == card and str(tmp_path) not in card
    assert "\n\n\n" not in card.partition("## Notes")[0]
    data = DatasetCard(card).data
    assert data.license == "other" and data.source_datasets == ["org/problems"]
    files = {file["path"] for config in data.configs for file in config["data_files"]}
    there = (tmp_path / "sets").rglob("*.parquet")
    assert files == {path.relative_to(tmp_path / "sets").as_posix() for path in there}


@pytest.mark.parametrize("without", ["sft_deliberator", "rl"])
def test_a_set_without_rows_is_no_config(tmp_path, without):
    folder = write_sets(tmp_path / "sets")
    for split in ("train", "validation"):
        folders.file_of(folder, without, split).unlink()
    written = dataset_card(read_manifest(folder), folder)
    data = DatasetCard(written).data
    assert without not in [config["config_name"] for config in data.configs]
    default = [config["config_name"] for config in data.configs if config.get("default")]
    assert default == ["sft_thinker" if without == "sft_deliberator" else "sft_deliberator"]
    assert ("reinforcement-learning" in data.task_categories) == (without != "rl")
    assert f'"{without}"' not in written


def test_what_became_of_the_answers_is_told_and_many_without_a_final_one_in_a_sentence(tmp_path):
    counts = GenerationCounts(100, 5, {}, 15, 0, 2, 0, {}, 40, {"no_answer": 40}, decided=43)
    stages = {"trajectories": dataclasses.asdict(counts), "by_verifier": {"math": {}}}
    deliberations = dataclasses.asdict(GenerationCounts(8, 0, {}, 0, 0, 1, 0, {}, decided=7))
    stages["trajectories"]["answered_by"] = {"DeepInfra glm-4.6": 60, "Novita glm-4.6": 20}
    counted = RUN.model_copy(
        update={"summary": SUMMARY | stages | {"deliberations": deliberations}}
    )
    written = made(tmp_path / "a", runs=[counted])
    assert "`glm`: The trajectories come from several hosts or configurations: " in written
    assert "DeepInfra glm-4.6 75.0%, Novita glm-4.6 25.0%." in written
    assert "| `glm` | trajectories | 100 | 5 | 15 | 40 | 2 | 0 |" in written
    assert "| `glm` | deliberations | 8 | 0 | 0 | 0 | 1 | 0 |" in written
    unanswered = {"share": "50.0%", "of": "trajectories", "why": r" (no \\boxed{})."}
    assert messages.is_in(written, "no_final_answer", **unanswered)
    assert not messages.is_in(made(tmp_path / "b", **CHANGES), "no_final_answer")


def test_the_result_of_a_run_is_told_and_what_was_asked_again_with_its_cost(tmp_path):
    figures = {"vote_at_k": (0.5, 0.2, 0.8), "heavy_mean_at_d": (0.6, 0.4, 0.7)}
    figures["heavy_minus_vote"] = (0.1, -0.3, 0.4)
    figures |= {"claim_coverage": (0.9, 0.8, 1.0), "self_contradiction_share": (0.25, 0.2, 0.3)}
    shown = {
        name: dict(zip(("mean", "low", "high"), ends, strict=True))
        for name, ends in figures.items()
    }
    run = RUN.model_copy(update={"summary": SUMMARY | shown | {"k": 8}})
    written = made(tmp_path / "sets", **CHANGES | {"runs": [run]})
    result = "**No difference shown: deliberation 60.0% right, vote 50.0%** in `glm`: +10.0 points"
    assert f"{result}, 95% interval -30.0 to +40.0, which includes 0, over 20 problems." in written
    (model,) = rows_of(written, "Models, licence and terms")
    assert model[:4] == ["`glm-4.6`", "deliberator and thinker", "MIT", "allowed"]
    assert "| `glm-4.6` again | 20 | 777 | 888 | 0.25 |" in written
    assert "At least 1.75 US dollars in total" in written
    assert rows_of(written, "Sampling") == [
        ["`glm` think", "16", "0.6", "0.95", "20", "32768", "11"],
        ["`glm` deliberate", "3", "0.6", "0.95", "20", "8192", "11"],
        ["`glm-4.6` again", "6", "0.8", "0.95", "20", "32768", "5"],
    ]
    assert "| `glm` | 90.0% (80.0 to 100.0) | - | - | - | 25.0% (20.0 to 30.0) |" in written
    assert "fewer than 30 problems" in written
    many = RUN.model_copy(update={"summary": SUMMARY | {"problems": 300}})
    assert "fewer than 30 problems" not in made(tmp_path / "many", runs=[many])


def test_an_imported_pool_is_told_to_be_unknown(tmp_path):
    imported = RunUsed(name="pool", traces=3, config={}, summary={})
    written = made(tmp_path / "sets", runs=[imported], benchmarks=[])
    assert rows_of(written, "Results of the runs") == [["`pool`", *["-"] * 9]]
    assert "The sampling parameters are not known." in written
    assert "The cost of the attempts and deliberations is not known." in written
    assert "not compared with any benchmark" in written
    assert "- problems from `the run pool`" in written


def test_a_set_that_was_deliberated_by_the_build_does_not_say_that_nothing_was(tmp_path):
    half = {"mean": 0.5, "low": 0.4, "high": 0.6}
    summary = {"problems": 20, "k": 4, "vote_at_k": half, "rescue": {"count": 0, "of": 0}}
    imported = RunUsed(name="flat", traces=20, config={}, summary=summary)
    models = {"thinker": ["q"], "deliberator": ["gpt-5"]}
    changes = {"runs": [imported], "models": models, "sources": ["gsm8k.jsonl"]}
    written = made(tmp_path / "a", **changes, asked=[ASKED])
    assert "# Deliberations by gpt-5 on attempts by q\n" in written
    later = "This is the result of the run, to which the build added deliberations by gpt-5."
    assert f"**The vote of 4 attempts: 50.0% right** in `flat`: {later}" in written
    assert not messages.is_in(written, "no_deliberation") and "0 of 0" not in written
    assert "- problems from `gsm8k.jsonl`\n" in written and "the run flat" not in written
    # Without requested deliberations it is true.
    assert messages.is_in(made(tmp_path / "b", **changes), "no_deliberation")


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        ({}, "the terms of q on training with their outputs are not known."),
        ({"allow_unknown": True}, "not known, and the publisher states that they allow it."),
        ({"licence": "cc-by-4.0"}, "The licence of these sets is `cc-by-4.0`: chosen by the"),
    ],
)
def test_the_licence_says_what_is_known_of_terms_and_what_the_publisher_stated(
    tmp_path, options, stated
):
    folder = write_sets(tmp_path / "sets", models={"thinker": ["q"], "deliberator": ["micro"]})
    written = dataset_card(read_manifest(folder), folder, PublishOptions(repo_id="", **options))
    assert stated in written and "may not allow training" not in written


def test_an_example_row_stands_in_the_card_and_stays_text(tmp_path):
    folder = write_sets(tmp_path / "sets")
    example = dataset_card(read_manifest(folder), folder).split("\n## Example\n")[1]
    example = example.split("\n## ")[0]
    assert "The first row of `sft_deliberator`; long texts are cut." in example
    assert "`prompt`:\n\n    Problem\n    What is 2 * 3?\n    ==== Attempt 1\n" in example
    assert "`answer_text`:\n\n    The product is \\boxed{6}.\n" in example
    block = verbatim("```\n# A\r\n\u2028<b>\x1b[1m\n## Notes\n" + "x" * 5_000).split("\n")
    assert all(line.startswith("    ") for line in block) and block[1] == "    # A\\r"
    assert sum(map(len, block)) < 1_500 and block[-1].startswith("    ... (3,8")


@pytest.mark.parametrize(("source", "is_told"), [("gsm_symbolic", True), ("chain_sum", False)])
def test_problems_from_templates_of_a_test_are_told_in_the_card(tmp_path, source, is_told):
    written = made(tmp_path / "sets", sources=[f"gym:{source}", "micro"])
    assert ("cannot be measured on GSM8K" in written) == is_told
    older = RUN.model_copy(
        update={"config": {"problems": {"source": f"gym:leg_counting,{source}"}}}
    )
    assert ("cannot be measured on GSM8K" in made(tmp_path / "old", runs=[older])) == is_told


def test_a_card_names_a_few_of_many_sources(tmp_path):
    written = made(tmp_path / "sets", sources=[f"{n:03}.jsonl" for n in range(500)])
    assert "`010.jsonl`, `011.jsonl` and 488 others" in written and "012.jsonl" not in written


def test_a_template_in_the_folder_and_what_was_mended_in_it_is_told(tmp_path):
    plain = made(tmp_path / "a")
    assert "its chat template, SHA-256" in plain and "Changes" not in plain
    mended = ["thinking is switched on in it", "the end of sequence follows an answer"]
    student = StudentUsed(
        name="s", form="inline", template_sha256="0" * 64, max_tokens=9, mended=mended
    )
    assert f"Changes to the template: {'; '.join(mended)}." in made(tmp_path / "c", student=student)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / folders.CHAT_TEMPLATE).write_text("{{ messages }}")
    assert "(a copy is `chat_template.jinja`)" in made(tmp_path / "b")


def test_languages_are_those_of_the_prompts(tmp_path):
    prompts = ["thinker.stem.zh@1", "deliberator.brief.en@2", "mine@3"]
    assert DatasetCard(made(tmp_path / "a", prompts=prompts)).data.language == ["en", "zh"]
    assert DatasetCard(made(tmp_path / "b", prompts=[])).data.language is None


def test_names_of_others_are_no_markup(tmp_path):
    run = RUN.model_copy(update={"name": "a|b`c\n# Title"})
    models = {"thinker": ["x|y <b>\n## More"], "deliberator": ["micro"]}
    written = made(tmp_path / "sets", runs=[run], models=models)
    assert len(rows_of(written, "Results of the runs")[0]) == 10
    assert not [line for line in written.splitlines() if line in ("# Title", "## More")]
    assert "<b>" not in written.split("\n# ")[1].splitlines()[0]
    DatasetCard(written)
    assert text("a*b_c|d <i>\n") == "a\\*b\\_c\\|d &lt;i&gt;"


def test_what_the_user_wrote_at_the_end_is_kept(tmp_path):
    folder = write_sets(tmp_path / "sets")
    path = folder / "README.md"
    path.write_text("# Card of another program\n\n## Citations\n", encoding="utf-8")
    write_card(folder)
    first = path.read_text(encoding="utf-8")
    assert "Citations" not in first
    mine = "\n### Citation\n\nCite *me*. <!-- soon -->\n"
    path.write_text(first.replace("# Deliberations", "# Mine") + mine, encoding="utf-8")
    for _ in range(2):
        write_card(folder)
        assert path.read_text(encoding="utf-8") == first + mine


def test_what_another_run_paid_and_nobody_reported_is_not_told_to_be_nothing(tmp_path):
    nothing = {"requests": 0, "prompt": 0, "completion": 0, "cost_usd": 0.0}
    usage = {"thinking": nothing, "deliberating": USED}
    config = CONFIG | {"pools_sha256": "0" * 64, "problems": {"source": "micro"}}
    run = RunUsed(name="borrowed", traces=2, config=config, summary={"usage": usage})
    unreported = USED | {"unknown_prompt": 320, "unknown_completion": 20, "cost_usd": None}
    other = RUN.model_copy(
        update={"summary": {"usage": {"thinking": unreported, "deliberating": nothing}}}
    )
    written = made(tmp_path / "sets", runs=[run, other])
    assert "| `glm` thinking | 320 | - | at least 123,456 | - |" in written
    assert "`glm` deliberating" not in written
    assert "| `borrowed` thinking | - | - | - | - |" in written
    assert "At least 1.50 US dollars in total" in written
    assert rows_of(written, "Sampling")[0][-1] == "-"
    assert "- problems from `hub:org/problems`, `the run borrowed`" in written


def test_a_card_that_is_no_text_is_refused(tmp_path):
    folder = write_sets(tmp_path / "sets")
    (folder / "README.md").write_bytes(b"\xff\n## Notes\nmine")
    with messages.raises("notes_unreadable"):
        dataset_card(read_manifest(folder), folder)
