"""Problems of the verifier ``instructions`` for tests."""

import json
from typing import Any

from heavydistill.schema import Problem

IFEVAL: dict[str, dict[str, Any]] = {
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
"""The 25 instructions of IFEval, each with arguments."""

IFBENCH: dict[str, dict[str, Any]] = {
    "count:word_count_range": {"min_words": 3, "max_words": 5},
    "count:unique_word_count": {"N": 3}, "count:conjunctions": {"small_n": 2},
    "count:person_names": {"N": 2}, "count:numbers": {"N": 2}, "count:punctuation": {},
    "count:words_japanese": {"N": 3}, "count:pronouns": {"N": 3},
    "count:keywords_multiple": {
        "keyword1": "oak", "keyword2": "elm", "keyword3": "fir", "keyword4": "yew",
        "keyword5": "ash",
    },
    "ratio:stop_words": {"percentage": 50}, "ratio:sentence_type": {}, "ratio:sentence_balance": {},
    "ratio:overlap": {"reference_text": "abcdef", "percentage": 50}, "ratio:sentence_words": {},
    "words:alphabet": {}, "words:vowel": {}, "words:consonants": {}, "words:palindrome": {},
    "words:prime_lengths": {}, "words:repeats": {"small_n": 2}, "words:last_first": {},
    "words:paragraph_last_first": {}, "words:no_consecutive": {},
    "words:keywords_specific_position": {"keyword": "boat", "n": 2, "m": 3},
    "words:words_position": {"keyword": "boat"}, "sentence:alliteration_increment": {},
    "sentence:keyword": {"word": "boat", "N": 2}, "sentence:increment": {"small_n": 2},
    "format:parentheses": {}, "format:quotes": {}, "format:options": {"options": "yes/no/maybe"},
    "format:newline": {}, "format:emoji": {}, "format:line_indent": {}, "format:quote_unquote": {},
    "format:list": {"sep": "SEPARATOR"}, "format:thesis": {}, "format:sub-bullets": {},
    "format:no_bullets_bullets": {}, "format:title_case": {}, "format:output_template": {},
    "format:no_whitespace": {}, "custom:multiples": {}, "custom:mcq_count_length": {},
    "custom:reverse_newline": {}, "custom:word_reverse": {}, "custom:character_reverse": {},
    "custom:sentence_alphabet": {}, "custom:european_capitals_sort": {}, "custom:csv_city": {},
    "custom:csv_special_character": {}, "custom:csv_quotes": {}, "custom:date_format_list": {},
    "repeat:repeat_change": {"prompt_to_repeat": "Name a river."}, "repeat:repeat_simple": {},
    "repeat:repeat_span": {"prompt_to_repeat": "Name a river.", "n_start": 5, "n_end": 11},
}  # fmt: skip
"""The instructions of IFBench, each with arguments."""
ALL = IFEVAL | IFBENCH


def instructed(*ids: str, mode: str = "strict", **changed: Any) -> Problem:
    """A problem with these instructions of ``ALL``; ``changed`` arguments are for each of them."""
    args = {
        "instruction_id_list": list(ids), "kwargs": [ALL[id] | changed for id in ids],
        "mode": mode,
    }  # fmt: skip
    return Problem(
        id="p", text="?", reference="", verifier="instructions", verifier_args=json.dumps(args)
    )
