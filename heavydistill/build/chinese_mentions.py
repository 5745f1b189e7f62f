"""Where a text in Chinese speaks of attempts that others made; as ``mentions`` reads English.

    strong   尝试, 思考者, 求解者, 程序员
    weak     解答, 回答, 方案, 解法, 候选: not as a heading (解答一：), and the last three only with
             what an author does (方案2忽略了边界)

尝试 is a verb as well: "尝试一下", "依次尝试1、2、3" and "第一次尝试" speak of one's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from heavydistill.build.mentions import MOST_READ, Mention, Noun, plain

_BEFORE, _AFTER, _NEAR = 40, 80, 200  # characters around a place that are read
_DIGITS = "一二三四五六七八九"
_NUMBER = rf"(?:\d{{1,2}}(?!\d|[%.]\d?)|[{_DIGITS}]?十[{_DIGITS}]?|[{_DIGITS}])"
_AND = r"[个個位份]?[ ]?(?:、|，|,|和|与|以?及|或|到|至|-|~)[ ]?(?:第|#)?"
_STRONG = "尝试|嘗試|思考者|求解者|程序员"
_NOUN = re.compile(rf"(?P<strong>{_STRONG})|(?P<weak>(?P<plain>解答|回答)|方案|解法|候选)(?!者|人)")
_LISTED = re.compile(rf"[ ]?(?:#|\(|编号)?[ ]?({_NUMBER}\)?(?:{_AND}{_NUMBER}){{0,30}}\)?)")
_ORDERED = re.compile(
    rf"(?:第[ ]?(?P<listed>{_NUMBER}(?:{_AND}{_NUMBER}){{0,30}})[ ]?(?P<unit>[个個位份次种种]?)"
    rf"|前(?P<count>{_NUMBER}|[两兩])[个個位份])[ ]?\Z"
)
_RANGE = re.compile(rf"({_NUMBER})[ ]?[到至~-][ ]?第?({_NUMBER})")
# What is counted rather than named: 尝试一下, 尝试两种方法, 尝试3个值.
_COUNTED = re.compile(
    r"[ ]?(?:[下种些个個次遍番直般样步条组定起位份倍元年月日天人米件共致]|[=+×<>])"
)
_VERB = re.compile(
    r"(?:我|我们|依次|逐一|逐个|分别|可以|先|再|来|继续|去|要|能|应该?|接着|然后|不妨|还|也|并|想|需要|"
    r"进行|第一次|多次)\Z"
)
_HEADING = re.compile(r"(?:\A|\n)[ \t#>\d.-]{0,10}\Z")
_TITLE_ENDS = re.compile(r"[ ]?(?:[：:\n]|\Z)")
_DOES = (
    r"(?:的(?:结果|答案|推导|错误|做法|思路|论证|计算|结论)|忽略|忘|漏|误|认为|得[出到]|声称|采用|假设|算错|"
    r"遗漏|同意|一致|相同|不同|出错|错|有误|不对|不正确|正确|对了|使用|用了|给出|没有考虑|未考虑|犯)"
)
_AUTHOR = re.compile(rf"[ ]?[：:,，]?(?:都|均|也|则|却|全部?|皆|是|的?答案)?{_DOES}")
_SEVERAL = re.compile(
    rf"(?:所有|全部|每一?个|各个?|多数|大部分|其[他它余]|这些|那些|几个|(?:\d{{1,2}}|[{_DIGITS}十两])个"
    r"|没有(?:一个|任何)|前面|上述)的?(?:\d{1,2}个|[一二三四五六七八九十两]个)?\Z"
)
_HOLD = re.compile(rf"[ ]?(?:者|们)?(?:都|均|全|皆|也)?(?:是)?(?:{_DOES}|一样|矛盾|分歧|对)")
_ALL_OF_THEM = re.compile(r"(?:它们|他们|这些|全)(?:全?都|均|全部?)(?:是)?(?:错|不正确|不对|有误)")
_ATTEMPTS = re.compile(_STRONG)


def chinese_mentions(text: str, problem: str) -> Iterator[Mention]:
    """All mentions in a text of any length; arguments as of ``mentions.mentions``."""
    text = plain(text)
    told = {match[0] for match in _NOUN.finditer(problem)}
    for match in islice(_NOUN.finditer(text), MOST_READ):
        if match[0] not in told:
            mention = _mention(match, text)
            if mention:
                yield mention
    for match in _ALL_OF_THEM.finditer(text):
        if _ATTEMPTS.search(text, max(0, match.start() - _NEAR), match.start()):
            yield Mention("several", "strong")


def _mention(match: re.Match[str], text: str) -> Mention | None:
    before = text[max(0, match.start() - _BEFORE) : match.start()]
    after = text[match.end() : match.end() + _AFTER]
    noun: Noun = "strong" if match["strong"] else "weak"
    is_plain = noun == "strong" or match["plain"] is not None
    ordered = _ORDERED.search(before)
    if ordered:
        if ordered["unit"] in ("次", "种"):
            return None
        if is_plain or _AUTHOR.match(after):
            return Mention("cited", noun, _numbers(ordered["listed"], ordered["count"]))
        return None
    listed = _LISTED.match(after)
    if listed and not _COUNTED.match(after, listed.end()) and not _VERB.search(before):
        is_said = _AUTHOR.match(after, listed.end())
        is_title = _HEADING.search(before) and _TITLE_ENDS.match(after, listed.end())
        if is_said or noun == "strong" or (is_plain and not is_title):
            return Mention("cited", noun, _numbers(listed[1], None))
        return Mention("own", noun, _numbers(listed[1], None)) if is_title else None
    if is_plain and _SEVERAL.search(before) and _HOLD.match(after):
        return Mention("several", noun)
    return None


def _numbers(listed: str | None, count: str | None) -> tuple[int, ...]:
    """The numbers of a list, or of the first so many."""
    if listed is None:
        return tuple(range(1, 1 + _number(count or "")))
    numbers = {_number(number) for number in re.findall(_NUMBER, listed)}
    for low, high in _RANGE.findall(listed):
        numbers.update(range(_number(low), _number(high) + 1))
    return tuple(sorted(numbers))


def _number(text: str) -> int:
    """The value of digits, or of a Chinese number below one hundred."""
    if text.isdigit():
        return int(text)
    if text in "两兩":
        return 2
    tens, ten, ones = text.rpartition("十")
    value = _DIGITS.index(ones) + 1 if ones else 0
    if ten:
        value += 10 * (_DIGITS.index(tens) + 1 if tens else 1)
    return value
