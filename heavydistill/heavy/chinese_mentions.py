"""Where a text in Chinese speaks of attempts that others made; as ``mentions`` reads English.

    strong   尝试, 思考者, 求解者, 解题者, 程序员
    weak     解答, 回答, 方案, 解法, 轨迹, 候选: not as a heading (解答一：), and the last
             four only with what an author does (方案2忽略了边界)

尝试 is a verb as well: "尝试一下", "依次尝试1、2、3" and "第一次尝试" speak of one's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from heavydistill.heavy.mentions import MOST_READ, Kind, Mention, Noun, plain

_BEFORE, _AFTER, _NEAR = 40, 80, 200  # characters around a place that are read
_DIGITS = "一二三四五六七八九"
_NUMBER = rf"(?:\d{{1,2}}(?!\d|[%.]\d?)|[{_DIGITS}]?十[{_DIGITS}]?|[{_DIGITS}])"
_STRONG = "尝试|嘗試|思考者|求解者|解题者|程序员"
_WEAK = "方案|解法|轨迹|候选(?:答案|解)?"
_AND = (
    r"[个個位份]?[ ]?(?:、|，|,|和|与|以?及|或|到|至|-|~)"
    rf"[ ]?(?:第|#|{_STRONG}|解答|回答|{_WEAK})?"
)
_NOUN = re.compile(rf"(?P<strong>{_STRONG})|(?P<weak>(?P<plain>解答|回答)|{_WEAK})(?!者|人)")
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
    r"进行|第一次|多次|如果|假如|若|试着|直接)\Z"
)
_OWN = re.compile(r"我们?的?\Z")
_TRIED = re.compile(r"[ ]?[，,:：]?[ ]?[也都]?(?:不行|可行|可以|不符|不满足|不成立|发现|看看|代入)")
_HEADING = re.compile(r"(?:\A|\n)[ \t#>\d.-]{0,10}\Z")
_TITLE_ENDS = re.compile(r"[ ]?(?:[：:\n]|\Z)")
_DOES = (
    r"(?:的(?:结果|答案|推导|错误|做法|思路|论证|计算|结论)|忽略|忘|漏|误|认为|得[出到]|声称|采用|假设|算错|"
    r"遗漏|同意|一致|相同|不同|出错|错|有误|不对|不正确|正确|对了|使用|用了|给出|没有考虑|未考虑|考虑|犯)"
)
_AUTHOR = re.compile(rf"[ ]?[：:,，]?(?:都|均|也|则|却|全部?|皆|是|的?答案)?{_DOES}")
_SEVERAL = re.compile(
    rf"(?:所有|全部|每一?个|各个?|多数|大部分|其[他它余]|这些|那些|几个|(?:\d{{1,2}}|[{_DIGITS}十两])个"
    r"|没有(?:一个|任何)|前面|上述)的?(?:\d{1,2}个|[一二三四五六七八九十两]个)?\Z"
)
_HOLD = re.compile(
    rf"[ ]?(?:者|们)?(?:都|均|全|皆|也)?(?:是)?(?:{_DOES}|一样|矛盾|分歧|对|答案"
    r"|(?:之间|中|里)[,，]?(?:有|存在|只有|大))"
)
_EXAMINED = re.compile(
    r"(?:综合|对比|比较|分析|检查|审查|审视|回顾|查看|结合|考察)了?(?:一下)?(?:给出的|提供的)?这?\Z"
)
_THE_OTHERS = re.compile(r"其[他它余][^。，,]{0,4}[都均全]")
_ALL_OF_THEM = re.compile(r"(?:它们|他们|这些|全)(?:全?都|均|全部?)(?:是)?(?:错|不正确|不对|有误)")
_ATTEMPTS = re.compile(_STRONG)


def chinese_mentions(text: str, problem: str) -> Iterator[Mention]:
    """All mentions in a text of any length; arguments as of ``mentions.mentions``."""
    text = plain(text)
    told = {match[0] for match in _NOUN.finditer(problem)}
    for match in islice(_NOUN.finditer(text), MOST_READ):
        if match[0] not in told:
            yield from _mention(match, text)
    for match in _ALL_OF_THEM.finditer(text):
        if _ATTEMPTS.search(text, max(0, match.start() - _NEAR), match.start()):
            yield Mention("several", "strong")


def _mention(match: re.Match[str], text: str) -> Iterator[Mention]:
    before = text[max(0, match.start() - _BEFORE) : match.start()]
    after = text[match.end() : match.end() + _AFTER]
    noun: Noun = "strong" if match["strong"] else "weak"
    numbered = _by_number(match, before, after)
    if numbered is None:
        several = _SEVERAL.search(before) if match["strong"] or match["plain"] else None
        is_examined = several and noun == "strong" and _EXAMINED.search(before[: several.start()])
        if is_examined or (several and _HOLD.match(after)):
            yield Mention("several", noun)
        return
    kind, numbers = numbered
    if kind:
        yield Mention(kind, noun, numbers)
    if kind == "cited" and _THE_OTHERS.search(after):
        yield Mention("several", noun)


def _by_number(
    match: re.Match[str], before: str, after: str
) -> tuple[Kind | None, tuple[int, ...]] | None:
    """Whose attempts, if any are meant, and which; None where no number stands beside the noun."""
    is_plain = match["strong"] is not None or match["plain"] is not None
    ordered = _ORDERED.search(before)
    if ordered:
        is_own = ordered["unit"] in ("次", "种") or _OWN.search(before[: ordered.start()])
        is_meant = not is_own and (is_plain or _AUTHOR.match(after))
        return "cited" if is_meant else None, _numbers(ordered["listed"], ordered["count"])
    listed = _LISTED.match(after)
    if not listed or _COUNTED.match(after, listed.end()) or _VERB.search(before):
        return None
    numbers = _numbers(listed[1], None)
    if _TRIED.match(after, listed.end()):
        return None, numbers
    is_title = _HEADING.search(before) and _TITLE_ENDS.match(after, listed.end())
    if _AUTHOR.match(after, listed.end()) or match["strong"] or (is_plain and not is_title):
        return "cited", numbers
    return "own" if is_title else None, numbers


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
