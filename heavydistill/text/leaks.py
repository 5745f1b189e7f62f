"""Finds responses that reveal the reference answer, although the model was not shown it.

There are two signs, in the thinking or in the answer:

- The response mentions the reference, in English or Chinese: "according to the answer key", "this
  matches the ground truth", 根据参考答案. Not counted: guesses and denials ("the expected answer is
  probably"), words that the problem itself uses, and "the correct answer is 5".
- The response repeats the worked solution in the reference of ``math``, ``exact`` and
  ``instructions``: 13 consecutive words (26 characters of a script without spaces), and the numbers
  between them, that occur neither in the problem nor in an attempt in its prompt. Numbers alone do
  not count.

Not covered: an answer that the model has memorized and does not comment on; text after
``MOST_READ`` mentions of a reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from heavydistill.schema import Problem
from heavydistill.text.extraction import WITH_MARKER, final_answer
from heavydistill.text.mentions import plain
from heavydistill.text.words import WITHOUT_BLANKS, Run, words_of

LONG, LONG_WITHOUT_BLANKS = 13, 26
MOST_READ = 5000

_BEFORE, _AFTER = 100, 80  # Number of characters examined around a mention of a reference
_WITHOUT_BLANKS = re.compile(f"[{WITHOUT_BLANKS}]")
_PART_ENDS = re.compile(r"[.!?;:,\n。！？；：、]")

_KEY = re.compile(
    r"\b(?:(?:(?:answer|solution)[ -]key|(?:official|reference|gold(?:en)?|model)[ -]"
    r"(?:answer|solution)|ground[ -]?truth(?: answer| solution)?|marking scheme"
    r"|(?P<expected>expected (?:final )?answer))\b"
    r"(?!'?s\b(?! )| ?[#\d(]| (?:format|form|type|range|length|style|would|might|could)\b)"
    r"|(?P<answer>answer)\b)"
    r"|(?P<chinese>(?:参考|标准|官方)(?:答案|解答)|标答|真实答案|答案键)(?!的?(?:格式|形式|类型|范围|要求))"
    r"|(?P<right>正确答案)(?!的?(?:格式|形式|只|必|应|可能))"
)
# Guesses and negations: the response does not know the reference.
_OPEN = re.compile(
    r"\b(?:no|not|never|cannot|without|if|unless|whether|lack\w*|absen\w*|unknown|unavailable"
    r"|hypothetical|suppos\w*|assum\w*|might|may|could|would|should|probably|likely|perhaps|maybe"
    r"|presumably|guess\w*|wonder\w*|seems?|think|believe|suspect|possibly|claim\w*)\b|n't\b"
    r"|没|无|不知|不能|未|如果|假如|假设|若|可能|也许|大概|应该|估计|或许|是否|不一定|猜|不是|声称"
)
_KNOWS_BEFORE = re.compile(
    r"\b(?:according to|per|from|based on|given|using|match(?:es|ed|ing)?|agree(?:s|d|ing)? with"
    r"|agreement with|consistent with|equals?|same as|(?:compar|check|verif)\w*"
    r"(?: \w{1,12}){0,3} (?:with|to|against)|look(?:ing|ed)? (?:at|up)|know(?:s|n|ing)?(?: that)?"
    r"|see|saw|told|have|recall|remember|contradicts?|differs? from|conflicts? with"
    r"|aligns? with|corresponds? to|confirm\w* by) (?:the |this |our |a )?(?:\w{1,12} )?\Z"
)
_SAYS_AFTER = re.compile(
    r" ?(?:(?:is|was|says?|said|states?|gives?|gave|shows?|reads?|indicates?|confirms?|lists?"
    r"|being|equals)\b|[:=])"
)
_MATCHES_BEFORE = re.compile(
    r"\b(?:match(?:es|ed|ing)?|agree(?:s|d|ing)? with|consistent with|equals?|same as|according to"
    r"|given) the \Z"
)
_IS_AFTER = re.compile(r"(?: is| was| to be|:|,| =) ?(?:[\\$\d(\[{-]|[b-h]\b)")
_CONCLUDES = re.compile(r"\b(?:so|thus|hence|therefore|then)\b|\bto match\b")
_KNOWS_IN_CHINESE = re.compile(
    r"(?:根据|按照?|依据|依照|对照|参照|与|和|跟|同|从|由|已知|看到|查看|给出的|提供的|给定的?|结合|符合|"
    r"知道|得知|匹配)(?:题目|上述|所给|给出|提供)?的?\Z"
)
_SAYS_IN_CHINESE = re.compile(
    r" ?(?:也?[是为]|给出|显示|表明|说|中|指出|写|一致|相符|相同|吻合|告诉|[:：=])"
)
# Phrases around the word "answer" that say how the writer learned the answer.
_TOLD_BEFORE = re.compile(
    r"\b(?:i|we)(?: was| am| were| are| have been| had been|'m|'re|'ve been) "
    r"(?:told|given|provided with|shown) (?:that )?the (?:(?:correct|right|true|actual) )?\Z"
    r"|\bthe (?:prompt|hint|system (?:prompt|message)|user) (?:gives?|gave|says?|tells? (?:us|me)"
    r"|told (?:us|me)|provide[sd]?|states?|reveals?) (?:that )?the (?:correct|right|true) \Z"
)
_KNOWING_BEFORE = re.compile(r"\b(?:knowing|given) (?:that )?the (?:correct|right|true) \Z")
# "Given the answer choices" and "given that the answer is an integer" reveal no answer.
_ENDS = re.compile(r"(?:[.;!,\n]|\Z| (?:and|already|beforehand|in advance)\b)")
_IS_TOLD = re.compile(
    r" (?:is|was) (?:already )?(?:known|given|provided|told) (?:to be|to us|to me|in the prompt)\b"
)
_TOLD_IN_CHINESE = re.compile(
    r"(?:已知|给定|(?:题目|提示)(?:已经?|中)?(?:给出|告诉|说明)了?)(?:我们|的|了)?\Z"
)


def leaks_reference(problem: Problem, texts: Sequence[str], shown: Sequence[str] = ()) -> bool:
    """Return whether texts show knowledge of the problem's reference; runs in linear time.

    ``shown`` are the texts of the attempts in the response's prompt.
    """
    return any(_says_so(text, problem) for text in texts) or _repeats(problem, texts, shown)


def _says_so(text: str, problem: Problem) -> bool:
    text = plain(text).lower()
    asked = problem.transcript.lower()
    in_problem = {match[0] for match in _KEY.finditer(asked)} - {"answer", "正确答案"}
    return any(
        match[0] not in in_problem and _is_known(match, text, problem.verifier)
        for match in islice(_KEY.finditer(text), MOST_READ)
    )


def _is_known(match: re.Match[str], text: str, verifier: str) -> bool:
    """Return whether the words around a mention of a reference imply knowledge of its content."""
    before = _PART_ENDS.split(text[max(0, match.start() - _BEFORE) : match.start()])[-1]
    after = text[match.end() : match.end() + _AFTER]
    if match["answer"]:
        is_said = _IS_AFTER.match(after)
        is_told = _TOLD_BEFORE.search(before) and (is_said or _ENDS.match(after))
        is_known = _KNOWING_BEFORE.search(before) and is_said
        return bool(is_told or is_known or _IS_TOLD.match(after))
    if match["right"]:
        return bool(_TOLD_IN_CHINESE.search(before))
    if _OPEN.search(before) or _OPEN.search(_PART_ENDS.split(after.lstrip(" :：="))[0]):
        return False
    if match["chinese"]:
        return bool(_KNOWS_IN_CHINESE.search(before) or _SAYS_IN_CHINESE.match(after))
    if match["expected"]:
        # In programming problems, "the expected answer" usually belongs to a test.
        is_said = _MATCHES_BEFORE.search(before) or _IS_AFTER.match(after)
        return verifier != "code" and bool(is_said) and not _CONCLUDES.search(before)
    return bool(_KNOWS_BEFORE.search(before) or _SAYS_AFTER.match(after))


def _repeats(problem: Problem, texts: Sequence[str], shown: Sequence[str]) -> bool:
    worked = words_of(_worked(problem))
    alone = sum(_WITHOUT_BLANKS.match(word) is not None for word in worked)
    length = LONG_WITHOUT_BLANKS if 2 * alone > len(worked) else LONG
    known = set(_passages(worked, length))
    for text in texts if known else ():
        repeated = known.intersection(_passages(words_of(text), length))
        for source in (problem.transcript, *shown) if repeated else ():
            repeated.difference_update(_passages(words_of(source), length))
        if repeated:
            return True
    return False


def _passages(words: Sequence[str], length: int) -> Iterator[Run]:
    """Yield all sequences of ``length`` non-number words, with the numbers between them."""
    places = [place for place, word in enumerate(words) if not word[0].isdigit()]
    for first, last in zip(places, places[length - 1 :], strict=False):
        yield tuple(words[first : last + 1])


def _worked(problem: Problem) -> str:
    """Return the worked solution in the reference, without the answer; empty if there is none."""
    if problem.verifier == "instructions":
        return problem.reference
    if problem.verifier not in WITH_MARKER:
        return ""
    answer = final_answer(problem.reference, json.loads(problem.verifier_args).get("marker"))
    return problem.reference.rpartition(answer)[0] if answer else ""
