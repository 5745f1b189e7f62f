"""Real responses of two models with the verdicts that another program recorded for them."""

from __future__ import annotations

import json

from judging import judged
from recorded_rows import rows

from heavydistill.schema import Problem
from heavydistill.verifiers.instructions.verifier import Instructions

MODELS = ("claude-3-haiku", "gpt-4o-mini")
# Of 1,668 recorded verdicts, by prompt: those that are wrong, as a reader sees at once.
RECORDED_IS_WRONG = {
    # A list of English names in capitals, taken for no English.
    ("claude-3-haiku", 3456, "change_case:english_capital"): (False, True),
    # LIFE'S COMPACT HIGH-QUALITY are three words in capitals; 's was counted as a fourth.
    ("gpt-4o-mini", 1653, "change_case:capital_word_frequency"): (False, True),
    # Sentences that end in a curly quotation mark were not told apart.
    ("gpt-4o-mini", 3429, "length_constraints:number_sentences"): (False, True),
    # "ocean crest properties", "etchings." and "inscriptions", taken for no English.
    ("claude-3-haiku", 1843, "change_case:english_lowercase"): (False, None),
    ("claude-3-haiku", 202, "change_case:english_lowercase"): (False, None),
    ("gpt-4o-mini", 202, "change_case:english_lowercase"): (False, None),
}
# Names of many countries in capitals: no language for sure.
UNSURE = {("gpt-4o-mini", 3456, "change_case:english_capital"): (True, None)}


def problem(row: dict, mode: str) -> Problem:
    args = {key: row[key] for key in ("instruction_id_list", "kwargs")} | {"mode": mode}
    return Problem(
        id=str(row["key"]),
        text=row["prompt"],
        reference="",
        verifier="instructions",
        verifier_args=json.dumps(args),
    )


def test_all_real_prompts_are_fit():
    prompts = rows("ifeval_prompts.jsonl")
    assert len(prompts) == 541
    assert not [row for row in prompts if Instructions().check_reference(problem(row, "strict"))]


def test_verdicts_agree_with_the_recorded_ones_but_for_the_known():
    prompts = {row["prompt"]: row for row in rows("ifeval_prompts.jsonl")}
    total, differences = 0, {}
    for model in MODELS:
        for response in rows(f"ifeval_{model}_strict.jsonl"):
            row = prompts[response["prompt"]]
            verdict = judged(problem(row, "strict"), response["response"])
            outcomes = json.loads(verdict.evidence).items()
            for (id, ours), recorded in zip(
                outcomes, response["follow_instruction_list"], strict=True
            ):
                total += 1
                if ours is not recorded:
                    differences[model, row["key"], id] = recorded, ours
    assert total == 1668
    assert len(differences) < 0.005 * total
    assert differences == RECORDED_IS_WRONG | UNSURE
