"""Problems of the verifier ``instructions`` for tests."""

import json
from typing import Any

from heavydistill.schema import Problem

ALL: dict[str, dict[str, Any]] = {
    "keywords:existence": {"keywords": ["river", "boat"]},
    "keywords:frequency": {"keyword": "tree", "frequency": 2, "relation": "at least"},
    "keywords:forbidden_words": {"forbidden_words": ["can", "ride"]},
    "keywords:letter_frequency": {"letter": "z", "let_frequency": 3, "let_relation": "less than"},
    "language:response_language": {"language": "de"},
    "length_constraints:number_sentences": {"num_sentences": 3, "relation": "at least"},
    "length_constraints:number_paragraphs": {"num_paragraphs": 2},
    "length_constraints:number_words": {"num_words": 4, "relation": "less than"},
    "length_constraints:nth_paragraph_first_word": {
        "num_paragraphs": 3,
        "nth_paragraph": 2,
        "first_word": "weekend",
    },
    "detectable_content:number_placeholders": {"num_placeholders": 2},
    "detectable_content:postscript": {"postscript_marker": "P.S."},
    "detectable_format:number_bullet_lists": {"num_bullets": 2},
    "detectable_format:constrained_response": {},
    "detectable_format:number_highlighted_sections": {"num_highlights": 2},
    "detectable_format:multiple_sections": {"section_spliter": "Section", "num_sections": 2},
    "detectable_format:json_format": {}, "detectable_format:title": {},
    "combination:two_responses": {},
    "combination:repeat_prompt": {"prompt_to_repeat": "Name a river."},
    "startend:end_checker": {"end_phrase": "That is all."}, "startend:quotation": {},
    "change_case:capital_word_frequency": {"capital_frequency": 2, "capital_relation": "less than"},
    "change_case:english_capital": {}, "change_case:english_lowercase": {},
    "punctuation:no_comma": {},
}  # fmt: skip
"""The 25 instructions, each with arguments."""


def instructed(*ids: str, mode: str = "strict", **changed: Any) -> Problem:
    """A problem with these instructions of ``ALL``; ``changed`` arguments are for each of them."""
    args = {
        "instruction_id_list": list(ids), "kwargs": [ALL[id] | changed for id in ids],
        "mode": mode,
    }  # fmt: skip
    return Problem(
        id="p", text="?", reference="", verifier="instructions", verifier_args=json.dumps(args)
    )
