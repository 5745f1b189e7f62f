"""The words with which a response claims, denies, doubts and corrects an option, as patterns.

English and Chinese, for text that ``reading.plain_text`` has made plain: blanks are single,
so that every pattern repeats at most a fixed number of times from any place.

``LETTER`` is a capital that stands alone, its brackets with it.
"""

from __future__ import annotations

import re

# ASCII alone: Chinese characters next to a letter are no part of its word.
FLAGS = re.IGNORECASE | re.ASCII

LETTER = r"(?<![A-Za-z0-9_\\'])[({\[<【「]{0,3}(?-i:([A-Z]))(?![A-Za-z0-9_])[)}\]>】」]{0,3}"


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), FLAGS)


# --- What a letter or an option's text follows: "the answer is", "Answer:", "I choose", 答案是.
QUALITIES_BEFORE = re.compile(
    r"(?:\b(?:single|only|most|very|final|correct|right|best|appropriate|likely|true|chosen|"
    r"selected|actual) ){1,4}\Z",
    FLAGS,
)
OWN = re.compile(r"\b(?:my|our) \Z", FLAGS)
_NOUN = (
    r"(?P<noun>(?:final)?answer|ans|option|choice|letter)\b(?:(?<=ans)\.)?"
    r"(?: ?(?:option|choice|letter)\b)?(?: (?:to|for|of) (?:this|the) (?:question|problem|task))?"
    r"(?: (?:among|from|out of) (?:all )?(?:the |these )?(?:given |provided |available )?"
    r"(?:options|choices)(?: given| provided)?)?"
)
_IS = (
    r" ?(?:is|would(?: therefore| thus| then)? be|should be|must be|has to be|will be|remains|"
    r"turns out to be|seems to be|appears to be)"
)
_SURELY = (
    r"(?: (?:therefore|thus|hence|then|indeed|clearly|definitely|certainly|obviously|simply|still|"
    r"now|again|probably|likely|most likely|in fact|either|both|i think|i believe)){0,2}"
)
ANCHOR = _any(
    rf"\b{_NOUN}(?:(?P<link>{_IS}{_SURELY}(?: ?:)?\n?)"
    r"|(?P<colon> ?(?:[:=→⇒]|->|=>|[-–—](?= ))[ \n]?)|(?P<line>\n))",
    r"\bfinal ?answer(?P<heading> )(?=[({\[]{0,2}[A-Z]\b)",
    r"\b(?:I|we)(?:'d|'ll| would| will| therefore| thus| shall)?"
    r"(?P<choose> (?:choose|select|pick|chose|answer|go with|opt for|vote for))\b ?:?",
    r"\blet(?:'s| us) (?P<go>choose|select|pick|answer|go with)\b ?:?",
    r"(?P<zh>(?:答案|(?:正确|最终|最佳)的?选项|选项)(?:应该|应当|应|就|只能)?"
    r"(?:(?:是|为|选择?):?|】?:|】)[ \n]?)",
    r"(?P<short>(?:\A|(?<=[\n.;,，；]))选择?(?:答案|选项)?[: ]?(?=[(]?(?-i:[A-Z])))",
    r"(?P<pick>(?:故|因此|所以|综上,?|认为|应该|应当|应|本题|我)(?:该题|本题|答案)?(?:应该|应)?选择?"
    r"(?:答案|选项)?[: ]?)",
)
# An answer is given, though none of the options.
GIVES_NONE = _any(r" ?(?:none|neither|both|all)\b")

# An option's value or text before its letter: "18, i.e. option C", "Jupiter (option B)".
THAT_IS = _any(
    r" ?(?P<said>[^\n;!?]{1,200}?)(?:,? (?:i\.e\.|that is|which is|namely),? |,? ?\(|, )"
    rf"(?:the )?(?:option|choice|answer) {LETTER}"
)
NOT_THIS_ONE = _any(
    r"\b(?:but|other|not|neither|nor|except|unlike|wrong|incorrect|false|rather"
    r"|instead|or)\b",
    r"n't\b|[不非或]|除",
)
# What may follow a letter that is chosen: "we choose C large enough" is no answer.
CHOSEN_BEFORE = _any(
    r" ?(?:$|[\n.,;:!，；：、)]|[-–—(/&]|(?:because|since|over|rather|instead|not|and|or|but|"
    r"as (?:the|my|our) (?:[a-z]+ ){0,2}(?:answer|option|choice)(?! to (?:e|r)))\b)"
)

# --- What a letter stands before: "C is the correct answer".
IS_THE_ANSWER = _any(
    rf"{LETTER},? ?(?:is|would be|must be|should be)"
    r"(?: (?:clearly|therefore|thus|hence|indeed|definitely|then|probably|likely|still))?"
    r" (?:the|our|my) (?:(?:only|single|most|very) )?"
    r"(?:(?:correct|right|best|final|appropriate|accurate|likely) ){0,2}"
    r"(?:answer|option|choice|one)\b"
)
# "C is the option to rule out" and "C is the answer most people give" claim nothing.
RIGHT_BEFORE = _any(
    r" ?(?:$|[\n.,;:!?)，；]|[-–—(](?! ?(?:if|when)))"
    r"| (?:because|since|as|here|and|or|not|among|based on|given)\b"
    r"| (?:to|for) (?:this|the) (?:question|problem)\b"
    r"| (?:that|which) (?:best |correctly |accurately |fully |actually |always )?(?:fits?|satisf|"
    r"match|works|meets?|is (?:correct|right|true|consistent)|describes?|explains?|answers|makes|"
    r"represents?|reflects?|states?|holds)"
)
JOINED_BEFORE = _any(rf"{LETTER} ?(?:,|/|&|,? ?(?:or|and|nor)) ?(?:option |choice )?\Z")

# --- What concludes a response without such words, or says which option is right.
BEGINS_WITH_LETTER = _any(
    r"[ •>→-]{0,4}(?P<named>(?:(?:option|choice|answer|letter|选项|答案|选择?)[ :]{0,2})?"
    r"[({\[<【「]{0,3}(?-i:(?P<letter>[A-Z]))(?![A-Za-z0-9_]))"
)
LABELLED_LINE = re.compile(
    r"(?:\A|\n)[ •>-]{0,4}(?:(?i:option|choice) )?[({\[]?([A-Z])(?=[).:\]}、\n]|\Z)"
)
_IT_IS = (
    r"(?:(?:it|that|this)(?:'s| is| must be| has to be| should be| would be)|we (?:have|get)|"
    r"(?:this |that |which |it )?(?:matches|corresponds to)(?= (?:option|choice|answer|letter)))"
)
CONCLUSION = _any(
    r"(?P<so>(?:\b(?:so|thus|therefore|hence|consequently|in conclusion|conclusion|overall)\b"
    rf"|(?:\A|(?<=\n))(?:[∴⇒→]|->|=>))[,:]?(?: then,?)?(?: {_IT_IS})?"
    r"|(?:因此|所以|故|综上(?:所述)?)[,，]?(?:就?是)?)",
    rf"(?:\A|(?<=[\n.!?;:,] )|(?<=\n)|(?<=, )){_IT_IS}",
)
IS_RIGHT = _any(
    rf"{LETTER} (?:is|must be) (?:therefore |thus )?(?:the )?(?:only )?(?:correct|right)"
    r"(?: (?:one|option|choice|answer))?(?=[.!;\n]|\Z|,? (?:because|since|as|while)\b)",
    rf"{LETTER} ?(?:选项|项)?是?正确的?(?=[.!,，；;\n]|\Z)",
)
ASKS_FOR_WRONG = _any(
    r"\b(?:not|except|incorrect\w*|false|wrong|least|never|untrue|inaccurate|invalid|cannot)\b",
    r"n't\b",
    "[不错非误没]",
)
OPTION_LINE = re.compile(r"\n *\(?A[).:、]")

# --- What makes of a claim none.
CLAUSE_ENDS = re.compile(r"[.!?;\n；！？]")
CONCLUDES = _any(r"\b(?:so|therefore|thus|hence|consequently)\b", "所以|因此|故")
SUPPOSES = _any(
    r"\b(?:if|unless|suppos\w*|assum\w*|imagine|whether|otherwise|were|had|for example|e\.g)\b",
    r"\b(?:example|format):",
    "假设|如果|假如|若|是否",
)
SAID_OTHERWISE = _any(
    r"\b(?:might|may|could|tempt\w*|mistaken\w*|mistake|wrongly|incorrectly|naive\w*|doubt|"
    r"deny|denies|claim\w*|says|said|thinks|thought|trap|someone|people|students?|not|never|cannot|"
    r"hardly|unlikely|neither|nor|why|false|wrong|initial(?:ly)?|originally|at first)\b",
    r"(?<!\bi )(?<!\bwe )\bwould\b",
    r"\b(?:many|some|others|most|you|they|he|she|one) (?:\w{1,20} )?"
    r"(?:say|think|believe|claim|argue)",
    r"n't\b",
    "[不别勿]|并非|没有|有人|误以为|为什么|为何",
)
OTHER_ANSWER = re.compile(
    r"(?:\b(?:wrong|incorrect|false|tempting|common|previous|other|initial|first|obvious|another|"
    r"second|next|bad|invalid|naive|his|her|their|alternative|possible|expected|worst|eliminated|"
    r"least|example|sample|distractor|decoy|trap|non|runner-up)"
    r"|'s|错误的?)[\s-]*\Z",
    FLAGS,
)
NOT_THIS_BOX = re.compile(
    r"(?:\bnot|n't|\bnever|\bneither|\bnor|\bexcludes?|\beliminates?|\brules? out|\brather than|"
    r"\binstead of|\bexcept|\bwrong|\bincorrect|不是|并非|不选|排除)"
    r"(?: (?:be|option|choice|the|answer|is|equal to|correct)){0,3}[ :'({\[]{0,4}\Z",
    FLAGS,
)
DENIED_AFTER = _any(
    r"[ )}\]]{0,4}(?:"
    r"(?:is|was|are|would be|can|could|does|seems|must be)(?: [a-z]+)? ?"
    r"(?:not|n't|wrong|incorrect|false|impossible|invalid|ruled out|eliminated)\b"
    r"|(?:isn't|wasn't|can't|cannot|couldn't)\b|是?错|不对|不正确|不是|有误"
    r"|[,(] ?(?:which (?:is|was) )?(?:wrong|incorrect|false|not (?:correct|right))\b|[≠❌✗✘])"
)
CONDITION_AFTER = _any(
    r",? (?:only )?(?:if|unless|provided|assuming|when|whenever|"
    r"sometimes|in (?:some|most|that) cases?)\b"
    r"|,? for (?!(?:this|the|these|that|two|three|several|many|a|all)\b)|,? or (?:maybe )?not\b"
)

# --- What takes a claim back.
CORRECTION = _any(
    r"\b(?:wait|actually|hold on|scratch that|correction|oops|hmm|sorry|on second thoughts?|"
    r"on reflection|upon (?:re-?check|review|reflection|closer)\w*|my mistake|"
    r"let me (?:re-?\w+|correct|double[- ]check|check again|fix)|i (?:was|am) (?:wrong|mistaken)|"
    r"i(?: have|'ve)? made an? (?:\w{1,20} )?(?:mistake|error)|i meant?|just kidding|not really|"
    r"never mind|strike that|err?|"
    r"(?P<of_anything>that(?:'s| is| was) (?:wrong|incorrect|not right)))\b",
    r"\bno(?=[,.!:]| ?[-–—])",
    r"等等(?=[,.，!！…我不])",
    r"不对?(?=[,，.!！])",
    "等一下|更正|纠正|我错了|搞错了|重新(?:检查|考虑|计算|审视)|其实|实际上|抱歉",
)
OPENS_CLAUSE = re.compile(
    r"(?:\A|[\n.!?;:,(}\])>\-–—！？；，…]) ?(?:(?:but|oh|and|so|ah|well|hmm|no),? ){0,2}\Z", FLAGS
)

# --- What disputes a claim: its letter is not the answer, or another is so too.
DENIALS = _any(
    rf"{LETTER} (?:is|was)(?: not|n't) (?:the |a )?(?:correct |right )?(?:answer|option|choice)\b",
    rf"{LETTER} is (?:the )?(?:wrong|incorrect) (?:answer|option|choice)\b",
    r"\b(?:answer|option|choice) (?:is not|isn't|cannot be|can't be|is never) (?:option )?"
    + LETTER,
    rf"不(?:是|能选|选){LETTER}",
)
RIVALS = _any(
    rf"\b(?:could|might|may|can) (?:also|just as well|equally) be (?:option )?{LETTER}",
    rf"{LETTER} (?:is|are|would be|could be|might be|may be) (?:also|equally|just as) (?:a |the )?"
    r"(?:correct|right|acceptable|possible|valid|plausible|good|answer)",
    r"(?:(?<=\n)|(?<=[.] )|(?<=, ))(?:or|alternatively|possibly|maybe|perhaps|also),? "
    rf"(?:it is )?(?:option )?{LETTER}(?=[ .,!\n]|\Z)(?! [a-z])",
    rf"{LETTER} (?:could|might|may)(?: also)? be (?:the )?(?:correct|right|valid|answer)",
    r"\b(?:it is|it's|it must be|it should be) (?:option |actually |really )?"
    rf"{LETTER}(?=[.,!\n]|\Z)",
    rf"(?<=\n){LETTER}(?=\n|\Z)",
    rf"\bboth {LETTER} and {LETTER} (?:are|could be|would be|seem) "
    r"(?:correct|right|acceptable|possible)",
)

# --- How letters in one sentence belong together.
JOINS = re.compile(
    r"(?:[ ,;/&+，；、]|or|and|both|also|either|maybe|possibly|perhaps|probably|else|even|plus|"
    r"as well as|along with|together with|followed by|then|"
    r"options?|choices?|answers?|或者?|和|与|以?及|还是|选项)+",
    FLAGS,
)
OR = _any(r"\bor\b|/|或|还是")
EXCLUDES = _any(
    r"\b(?:not|rather than|instead of|unlike|except|neither|over)\b", r"n't\b", "不是|而非"
)
GIVES_REASONS = _any(
    r"\b(?:because|since|as|while|where|whereas|which|that|so|given|by|for|due|if|eliminat\w*|"
    r"rul\w*)\b",
    "因为|由于|所以",
)
WAVERS = _any(
    r"\b(?:or|wait|actually|maybe|perhaps|possibly|alternatively|sorry|no(?=[,.])|could|might|"
    r"may)\b",
    r"\bbut(?: also| maybe)? ?[({\[]*\Z",
    "或|也",
)
# What follows a letter that opens a clause of its own: "B is", "B and C are".
NEW_CLAUSE = _any(
    r"(?:,? (?:and |or )?(?-i:[A-Z])\b,?){0,5} ?"
    r"(?!(?:or|and|because|since|as|which|together)\b|both\b(?! (?:also |are )?(?:fail|wrong|false"
    r"|incorrect|too|not)\b))(?-i:[a-z])",
    r"(?:[,，、和与及] ?(?-i:[A-Z])){0,5} ?(?:两?选?项)?(?:均|都|皆|也)?[为是]?"
    r"(?:错|不|有误|正确|对)",
)
SAYS_WRONG = _any(
    r"\b(?:not|wrong|incorrect|false|fails?|cannot|invalid|out|impossible|eliminated|neither|nor|"
    r"mistakes?|distractors?|misconceptions?|irrelevant|unrelated|"
    r"too (?!also|right|correct)[a-z]+)\b",
    r"n't\b",
    "[错不]|有误",
)
SAYS_RIGHT = _any(
    r"\b(?:also|too(?=[.,!\n]|\Z)|correct|right|possible|valid|acceptable|as well)\b", "正确|也"
)
FUNCTION_WORD = (
    r"(?:because|since|as|and|or|but|nor|which|that|is|are|was|has|with|due|given|from|not|rather|"
    r"instead|where|while|whereas|if|unless|per|by|for|in|on|at|so|cannot|does|only)\b"
)

# --- An option that means others by their place: "all of the above", "both A and B".
SPEAKS_OF_OTHERS = _any(
    r"\b(?:all|none|both|neither|either|any|some|one|two|three|each|most)(?: or more)?"
    r"(?: of)?(?: the)? (?:above|preceding|foregoing|these|those|following|listed|options?|"
    r"choices?|answers?|others?|two|three)\b"
    r"|\b(?:all|none|both|neither) (?:of them|(?:are|is) (?:correct|true|right|wrong|false))"
    r"|\A(?:all|none|both|neither)\.?\Z"
    r"|\b(?:options?|choices?|answers?|alternatives?) \(?[A-Z1-9]\b"
    r"|\b(?:first|last|other) (?:two |three )?(?:options?|choices?|answers?)\b"
    r"|(?-i:\b[A-Z]\)?,? (?:and|or|&|nor) \(?[A-Z]\b)|\([a-z]\),? (?:and|or|&) \([a-z]\)"
    r"|\A(?-i:\(?[A-Z]\)?) (?:only|alone)\b|\b(?:only|both|either|neither) (?-i:\(?[A-Z]\)?)\Z"
    r"|以上|上述|都对|都不对|都是|都不是|[A-Z] ?[和与或及、] ?[A-Z]",
)
