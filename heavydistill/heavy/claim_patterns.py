# ruff: noqa: E501 (regular expressions are easier to read unbroken)
"""The vocabulary of ``claims``, in English and Chinese, and the patterns made of it.

In the patterns «i» is a name of attempts, and ‹k› an answer that an attempt gave. All repetitions
are bounded, so that the time is linear in the length of a sentence.
"""

from __future__ import annotations

import re

from heavydistill.heavy.mentions import CHINESE_NUMBERS

WORDS = {
    # Nouns that name an attempt. Weak ones also mean work of the writer, or roots of an equation,
    # so they count only in a text that numbers no strong one.
    "strong": r"attempt|thinker|solver|programmer|尝试|嘗試|思考者|求解者|解题者|程序员",
    "weak": r"solution|response|candidate|trajectory|解答|回答|方案|解法|候选答案",
    "one": "one two three four five six seven eight nine ten",
    "first": "first second third fourth fifth sixth seventh eighth ninth tenth",
    # What an attempt gives as a whole; a word on anything else of it (a step, a formula) is no claim.
    "whole": r"final|overall|stated|own|numerical|answers?|results?|values?|conclusions?|choices?|options?"
    r"|solutions?|programs?|code|implementations?|functions?|totals?|responses?|replies|reply|output|attempts?",
    "adverb": r"all|both|each|also|then|therefore|thus|hence|indeed|clearly|simply|just|still|again|actually"
    r"|definitely|certainly|obviously|plainly|really|of course|in fact|completely|entirely|totally|fully"
    r"|equally|already|too|however|after all|likewise|similarly|perfectly|absolutely|even|instead|now",
    "right": r"right|correct|valid|accurate|fine|sound|flawless|faultless|impeccable|spot[- ]on|error-free|true|perfect"
    r"|on the mark|in order|acceptable|okay|ok|all right|free of (?:errors|mistakes)",
    "wrong": r"wrong|incorrect|mistaken|invalid|erroneous|inaccurate|flawed|bogus|false|faulty|in error|unsound|buggy"
    r"|broken|unacceptable|untenable|impossible|defective|nonsense|off(?: by (?:a factor of )?[\w./-]{1,9}| the mark)?"
    r"|(?:(?:one|two|\d{1,9}|far|much) )?too (?:large|small|high|low|big|few|many)(?: by [\w./-]{1,9})?|(?:one|two|\d{1,9}) short",
    # Verbs of an attempt that is right, or wrong.
    "does": r"checks? out|holds?(?: up| water)|stands?(?: up)?(?=[,.; ]*$)|g[eo]ts? (?:it|this(?: one)?|that|the (?:problem|question"
    r"|answer)) (?:exactly )?(?:right|correct)|ha(?:s|ve|d) it right|works?(?: correctly| fine| on all| for all)?(?=[,.;]|$| and\b| too\b)"
    r"|(?:solve|answer)(?:s|d|ed)? (?:it |this |the (?:problem|question|task) )?correctly|pass(?:es|ed)?(?: (?:all|every)\b[^,.;]{0,30}| both| it)?"
    r"|(?:satisf(?:y|ies)|meets?|fulfill?s?|obeys?|respects?|handles?|complies with) (?:everything|(?:all|every|each|both)\b[^,.;]{0,30})",
    "fails": r"(?:fails?|failed)\b(?! (?:to|at|in|here|there|halfway|only|when)\b)|(?:g[eo]ts?|ha[sd]|have) (?:it|this(?: one)?|that|the (?:problem|question|answer)) wrong"
    r"|(?:violates?|breaks?|exceeds?) (?:the|an?|one|two|both|three|several)\b[^,.;]{0,30}"
    r"(?:constraint|requirement|rule|condition|limit|instruction)s?|crash(?:es)?|times? out|falls? short|miss(?:es)? the mark"
    r"|(?:is|are|can be|must be) (?:ruled out|rejected|discarded|dismissed|excluded|disqualified|refuted)",
    "reaches": r"g[eo]ts?(?: to)?|g[ai]ves?|giving|getting|reach(?:es|ed|ing)?|arriv(?:es?|ed|ing) at|obtain(?:s|ed|ing)?"
    r"|yield(?:s|ed|ing)?|produc(?:es?|ed|ing)|(?:leads?|led|leading) to|finds?|found|ha[sd]|have|concludes?|returns?"
    r"|(?:result|end)(?:s|ed|ing)? (?:up )?(?:in|with|at|on)|select(?:s|ed)?|ch(?:oo|o)s(?:es?|ing)|picks?|comes? (?:out )?(?:to|at)"
    r"|lands? (?:on|at)|settles? on|states?|reports?",
    # What may follow the word: an end, or a reason; not a limit ("right about", "right for pairs").
    "goes_on": r" ?(?:$|[,;:.!()\"“—–→-])| (?:and|because|since|as (?!far|long)|so (?!far)|while|whereas|although|though|too"
    r"|also|again|after all|all along|of course|indeed|obviously|clearly|instead|altogether|as it stands|as such|for sure"
    r"|in any case|in my (?:view|book|opinion)|to me|however|without|overall|either|with|by|given|due|despite|but(?! only)|even|now|on both"
    r"|for (?:the same|(?:this|that) (?:question|problem|reason|one|input))|as well|anyway|either way|yet|in the end"
    r"|in fact|then|nonetheless|nevertheless|regardless|all the same)\b",
    "hedge": r"would|pretend|provided|supposedly|allegedly|arguably|let's say|inclined|hope|expect(?:ed)?|until|when|thought|initially|at first|seem\w*|looks?|appear\w*|probab\w+|likely|unlikely|possib\w+|may|might|could|should|maybe|perhaps"
    r"|presumably|apparently|suspect\w*|guess|not sure|unsure|unclear|doubt\w*|wonder\w*|tempt\w*|about to"
    r"|(?:almost|nearly|part(?:ly|ially)|half|mostly|largely|essentially|technically) (?:«\d+|\w+)|suggest\w*"
    r"|let me|let us|let's|i'll|need to|have to|want to|to (?:check|verify|see|confirm|determine|decide)"
    r"|make sure|check that|verify that|or «\d+|either «\d+|close to|(?:more|less) (?:or less|right|wrong|correct|accurate)|as if|not «\d+|not (?:all|every|both|necessarily|only|just|always|yet|quite|fully"
    r"|entirely|completely|exactly|that)|(?<!i )(?:say|claim|argue|believe|assert|insist|state)s?(?: of \w+)?"
    r" (?:that|it|«\d+)|according to|in the sense|not clear|no reason|(?:do not|don't|didn't|did not|can't|cannot)"
    r" (?:think|believe|say|see|claim|conclude|agree|know|tell)",
    "condition": r"if|were «\d+|say «\d+|whether|suppose|supposing|assume|assuming|unless|were to|imagine|had «\d+|for (?:the case )?[a-z] ?[=<>].*",
    "part": r"steps?|formula|method|approach|equation|arithmetic|derivation|reasoning|logic|argument"
    r"|let me|my|mine|our|sign|unit|setup|case|lines?|first part|identity|premise|expression",
}
ZH = {
    "lead": "我(?:觉得|认为|想)|所以|因此|因而|于是|故|而且?|但是?|可是|不过|并且|那么|总之|可见|说明|其中|也就是说|最终|最后|这样|显然"
    "|其实|可以断定|我认为|事实上|结论是?|综上|判断|判定|评价|另外|至于|然而|则|即|实际上|看来",
    "subject": "它们?|他们?|该尝试|这个?尝试|这些尝试|这个?|该|其",
    "whole": "的?最终|的?(?:答案|结果|结论|选择|程序|代码|回答|解答|答卷|作品)(?:本身)?|的|选‹\\d+›|为|给出的?"
    "|得[出到]的?|‹\\d+›|[（(][^（()）]{0,20}[)）]|[ :：]",
    "adverb": "都|均|也|全部?|皆|是|显然|同样|就|才|仍然?|还|确实|肯定|一定|必然|完全|当然|明显|并|自然|又|却|反而|因此|所以",
    "right": "正确(?:无误)?|(?:算|做|答|蒙|猜|选|写)?对|没有?错误?|没有?(?:任何)?问题|无误|无错|合格|成立|准确|站得住脚?|没毛病|无懈可击|达标|是?正解|符合(?:要求|题意)|满足(?:要求|条件)|(?:能够?|可以)?通过"
    "|(?:全部|都)?(?:满足|符合)(?:了?(?:所有|全部)的?(?:要求|条件|约束))|全部满足|(?:得[出到]|给出|算出|选)了?正确的?(?:结果|答案)?",
    "wrong": "错误?|有误|有错|不对|不正确|不成立|不合格|不准确|(?:算|做|答|选|写|弄)错|(?:不能?|没有?能?)通过"
    "|违反了?[^，。]{0,12}(?:要求|条件|约束|限制|规定)|不(?:符合|满足)[^，。]{0,8}(?:要求|条件|约束|题意)|无效|站不住脚?|不达标|不合(?:要求|题意)|出错|偏[大小]|超时|违规"
    "|(?:得[出到]|给出|算出)了?错误的?(?:结果|答案)|不可?能?是(?:正确)?(?:的)?(?:答案|最小值|最大值)",
    "tail": "[的了]?(?:回答|答案|结果|选择|结论)?(?:的|了)?(?:‹\\d+›)?",
    "hedge": "(?<!不)可能|似乎|大概|应该|多半|也许|或许|看起来|看上去|好像|恐怕|估计|是否|是不是|有没有|不确定|未必|不一定"
    "|难说|检查|验证|看看|需要|基本|大致|部分|几乎|乍一看|[吗呢？?]|以为|自称|声称|认为",
    "condition": "如果|假如|要是|假设|倘若|若(?!干)|万一|除非|只要|本来|的话",
    "part": "第.{1,2}[步项行]|公式|推导|思路|过程|列式|中间|式子|这一步|单位|符号|前提|我",
}
MARKS = {"✓": True, "✔": True, "✅": True, "✗": False, "✘": False, "❌": False, "✕": False}


ADV = rf"(?:[ ,]{{0,2}}(?:{WORDS['adverb']})\b){{0,5}}"
ADJ = rf"(?:(?P<right>{WORDS['right']})|(?P<wrong>{WORDS['wrong']}))"
WHOLE = rf"(?:{WORDS['whole']})"
IS = (
    r"(?:is|are|was|were|'s|'re|must be|has to be|have to be|must have been|turns? out(?: to be)?|(?:comes?|came) out|ends? up|remains?"
    r"|(?P<cannot>cannot be|can't be|can not be|(?:is|are|was|were)n't))"
)
VERB = (
    rf"(?:{IS}{ADV} ?(?P<not>not|never|by no means|far from|anything but|in no way|nowhere near)?{ADV} ?(?:"
    rf"(?:(?P<only>the only )|the ones? (?:that|which) (?:is|are|was|were) |the |an? )?{ADJ}(?: (?:{WHOLE}|ones?|number|figure|count|option|letter|sum|probability|digit)){{0,2}}(?={WORDS['goes_on']})"
    r"|the answer\b(?P<answer>))"
    rf"|{ADV} ?(?P<fails>(?:{WORDS['fails']})|do(?:es)?(?: not|n't) (?:pass|satisfy|meet|check out|hold|comply|work|solve it|"
    rf"get (?:it|this|that) right|(?:give|get|reach|return|produce|yield|arrive at|have|lead to|find) the (?:right|correct))\b)|{ADV} ?(?P<does>{WORDS['does']})(?={WORDS['goes_on']})"
    rf"|{ADV} ?(?:{WORDS['reaches']}) (?:the |an? )?(?P<found>(?:right|correct)|(?P<bad>wrong|incorrect))"
    rf" (?:{WHOLE}|number|figure|count|letter|sum|total|probability|area|one)(?: {WHOLE})?(?! (?:of (?!‹)|for (?!the wrong)|in|to|at|that|from)\b)|{ADV} ?correctly (?:{WORDS['reaches']}|identif(?:y|ies)|answers?)"
    r"(?P<own> [^.;«]{0,40}‹\d+›))"
)
MID = rf"(?:(?:,| \() ?(?:using|with|via|by|like|unlike|which|who|as|having|working|in) [^,;.()«]{{1,60}}[,)])?(?:'s?|[ ,(]{{1,2}}(?:{WHOLE}|of|the|as such|as a whole|itself|{WORDS['adverb']})\b|[ (]{{1,2}}‹\d+›\)?|\)| ?\(«\d+»\)){{0,6}}(?: (?:that|who|which)(?= (?:is|are|was|were|g[eo]t|ha[sd]|have)\b))?"
SUBJECT = rf"(?P<subject>it|this|that|they|these|those|both|which|(?:its|their|this|the|that|these) {WHOLE}(?: as such)?)\b"
NAMED = re.compile(rf"(?P<who>«\d+»|‹\d+›){MID},? ?{VERB}", re.I)
TERSE = re.compile(
    rf"(?P<who>«\d+»)(?: ?\([^()]{{0,40}}\))?{ADV} (?P<not>not )?{ADV} ?{ADJ}(?= ?(?:$|[,.;:(—–]| because| since| too| as well))",
    re.I,
)
MARKED = re.compile(
    rf"«(?P<a>\d+)»(?: ?[:(=→—–-]{{0,2}} ?‹\d+›)?\)? ?[:(=→—–-]{{0,2}} ?(?P<mark>[{''.join(MARKS)}])"
    rf"|^\W{{0,12}}?(?P<first>[{''.join(MARKS)}])\W{{0,4}}«(?P<b>\d+)»"
)
ORIGIN = re.compile(
    r"\b(?:errors?|mistakes?|wrong|forg[eo]t\w*|miss(?:es|ed)?|overlook\w*|dropp?(?:s|ed)|ignor\w+|neglect\w*|omit\w*"
    r"|double[- ]count\w*|mis(?:read|count|calculat|appl|us|interpret|t)\w*|slips?|confus\w+|reversed|swapp?ed|los(?:t|es))\b"
    r"[^.;«]{0,80}(?:\bhence|\bthus|\btherefore|,? giving|\bwhich (?:gives?|gave|leads? to|yields?|is (?:why|how))|\bleading to"
    r"|\bresulting in|→|\b(?:that|this) is (?:why|how)|\bthat's (?:why|how)|\band so|, so)\b[^.;«‹]{0,25}(?P<own>‹\d+›)",
    re.I,
)
SAME_ERROR = re.compile(
    r"\bsame (?:\w+ )?(?:error|mistake|slip|fault|flaw|misreading)s? (?:as|that) (?:in |of )?«(\d+)»"
    r"|\b(?:repeats?|shares?) (?:the )?(?:\w+ )?(?:error|mistake|slip|fault) (?:of|in|with) «(\d+)»"
    r"|[和与同]«(\d+)»(?:犯了?|有)?(?:同样|相同|一样)的?(?:错误?|问题)",
    re.I,
)
PLAIN = re.compile(
    rf"(?:^\W{{0,12}}|[,;:(—–→] ?|(?<=› )| - |\b(?:and|but|so|yet|hence|thus|therefore|that) )[ ,]?(?:for (?:this|the) \w+,? )?{ADV} ?"
    rf"(?:{SUBJECT}{MID},? ?)?{VERB}",
    re.I,
)
BARE = re.compile(
    rf"(?:^\W{{0,12}}|[,;:(—–→=] ?| - |\band |\bso |(?<=›) )(?:so|and|but)?{ADV} ?(?P<not>not )?{ADV} ?"
    rf"(?:the |an? )?{ADJ}(?: {WHOLE})?{ADV}(?: on both counts)?(?:,? (?:because|since|as|—|–)[^«]*)?[ .!)]*$",
    re.I,
)
OBJECT = re.compile(
    rf"\b(?:call|consider|judge|deem|mark|makes?|renders?|find)(?:ed|d)? (?P<who>«\d+»|‹\d+›|it|them)(?: as)?{ADV} ?"
    rf"(?P<not>not )?{ADJ}(?={WORDS['goes_on']})",
    re.I,
)
RULED_OUT = re.compile(
    rf"\b(?:rul(?:es?|ed|ing) out|refut(?:es?|ed)) (?P<who>«\d+»)(?={WORDS['goes_on']})", re.I
)
NOTHING = re.compile(
    r"\b(?:nothing (?:is )?wrong|no (?:errors?|mistakes?|flaws?)) (?:with|in|about) (?P<who>«\d+»|it)(?!')",
    re.I,
)
LISTED = re.compile(
    rf"^\W{{0,12}}(?:so,? |hence,? |thus,? )?(?:the )?(?:only )?{ADJ}(?: {WHOLE}| ones?)?(?: is| are|:|s:){{0,2}} ?(?P<who>«\d+»)"
    r"[ .]*$",
    re.I,
)
SAME = re.compile(
    r"(?:\b(?:(?:so|as|nor|neither) (?:is|are|does|do)|and with (?:it|them)|the same (?:goes|holds|is true|applies) (?:for|to|of)|same for|likewise) (?P<who>«\d+»)|(?P<else>«\d+»(?: ones)? (?:is|are)(?: not|n't))(?=[,.;]|$))",
    re.I,
)
ROW = re.compile(
    rf"^\W*(?P<who>«\d+»)(?: ?\([^()]{{0,60}}\))?(?:\W{{0,3}}: ?(?:(?:answer |result )?\S{{1,40}} )?|\W{{1,6}})"
    rf"(?P<not>not )?{ADV} ?{ADJ}(?={WORDS['goes_on']})",
    re.I,
)
MARK = re.compile(rf"[{''.join(MARKS)}]")
LABEL = re.compile(r"^[\W\d]{0,12}(?:in )?(?P<who>«\d+»)(?: ?\([^()]{0,60}\))?", re.I)
ZH_CLAIM = re.compile(
    rf"(?:{ZH['lead']}|[ 、])*(?P<who>«\d+»|‹\d+›)?(?:{ZH['subject']})?(?:{ZH['whole']}|{ZH['adverb']}){{0,8}}"
    rf"(?P<not>不是|并非|不算)?(?:(?P<right>{ZH['right']})|(?P<wrong>{ZH['wrong']})){ZH['tail']}(?:[（(][^（()）]*[）)]?)?[ 。！!]*"
)
ZH_LISTED = re.compile(
    rf"(?:{ZH['lead']})*(?:(?P<right>正确|对)|(?P<wrong>错误?|不正确|不对))的(?:答案|尝试)?(?:只?有|是|为|包括)?(?P<who>«\d+»)[ 。！!]*"
)
ZH_ORIGIN = re.compile(
    r"(?:漏|忘|少|多|误|错|忽略|重复|弄反|反了|当成|当作|算成|看成|写成|混淆)[^。；«]{0,60}(?:于是|所以|因此|导致|从而|结果|才)"
    r"[^。；«‹]{0,12}(?P<own>‹\d+›)"
)
RETRACTED = re.compile(
    r"\b(?:scratch|strike) that\b|\bnever mind\b|\btake (?:that|this|it) back\b|\bi (?:retract|withdraw)\b|\bi was wrong (?:about|on|to)\b|收回|说错了|撤回|(?:……|\.\.\.|等等，)不对[，,]",
    re.I,
)
HAN = re.compile(r"[\u3400-\u9fff]")
HEDGE, CONDITION, PART = (
    re.compile(rf"\b(?:{WORDS[w]})(?!\w)", re.I) for w in ("hedge", "condition", "part")
)
ZH_HEDGE, ZH_CONDITION, ZH_PART = (re.compile(ZH[w]) for w in ("hedge", "condition", "part"))
JUDGES = re.compile(
    rf"{WORDS['right']}|{WORDS['wrong']}|{WORDS['does']}|{WORDS['fails']}|correctly|hence|thus|therefore|same|rule|answer|so\\b|giv|lead|which|→|satisf|meet|n't|not"
    rf"|[{''.join(MARKS)}]",
    re.I,
)
OTHER_SUBJECT = re.compile(
    rf"\W*(?:(?:the|an?) (?!{WHOLE}|nice|good|correct|right)|there|in|i|we|you|for)\b", re.I
)
BUT = re.compile(r",? ?(?:but|until|except|up to|though)\b", re.I)
ONLY = re.compile(r",? ?(?:but|though|although|even if) (?:only|just|not)\b", re.I)
DOUBT = re.compile(
    r"^\W*(?:(?:hmm|oh|but|ah|uh|ok|okay|well)\W+){0,3}(?:no\b(?! \w+ (?:is|are))|wait\b|hold on|correction|my mistake|i (?:mis\w+|made|forgot|was)\b"
    r"|actually|on second thought|not so fast|that(?:'s| is) not (?:right|true)|sorry|(?:it's |it is )?the other way (?:a)?round)"
    r"|^(?:等等|不对|且慢|等一下|慢着|不，)",
    re.I,
)
SOFT = re.compile(r"fine|sound|true|off\b.*|false|accurate", re.I)
CLAUSE = re.compile(r"[;:—→]|\b(?:but|so|because|since|therefore|hence|thus|while|whereas)\b", re.I)
FENCE = re.compile(r"^```.*?(?:^```|\Z)", re.M | re.S)
QUOTED = re.compile(r"\"[^\"\n]{5,300}\"|“[^”\n]{1,300}”|「[^」\n]{1,300}」")
END = re.compile(r"[.!?]+[\"')\]]*(?=\s)|[。！？；;]+|\n|$")
TITLE = re.compile(
    r"#|\W{0,6}(?:final|conclusion|summary|solution|answer|overall|decision|最终|总结|解答|综上|结论\W*$)",
    re.I,
)
PLURAL = re.compile(rf"\b(?:{WORDS['strong']})s\b", re.I)
CORE = re.compile(r"\b(?:(right|correct|valid)|wrong|incorrect|invalid|mistaken)\b", re.I)
STOP = re.compile(r"[.。!?？！；;，,:：)]$")
LAST_MARK = re.compile(rf"(?:^|[:.,›–—] ?|\) ?)([{''.join(MARKS)}])\W*$")
ZH_CLAUSE = re.compile(r"[，,：:；;。！!—→]+")
WITH = re.compile(
    rf"(?:\b(?:the|those|all|these) )*(?:(?P<count>{WORDS['one'].replace(' ', '|')}|\d) )?(?:(?:attempt|thinker|solver|"
    rf"programmer|solution|response)s?|ones|those) (?:with|(?:that|who|which) (?:{WORDS['reaches']}|say|said|go with)"
    rf"|{WORDS['reaches']}|saying)(?: (?:the|an?|answers?|result|of))* ?‹(?P<k>\d+)›",
    re.I,
)
NEITHER = re.compile(r"\bneither «(\d+)»(?: nor «(\d+)»)?", re.I)
PAIR = re.compile(r"«(\d+)»(?: ?\([^()]{0,30}\))?(?:,? and | & |、|和|与|,? as well as )«(\d+)»")
COMPARED = re.compile(r"\b(?:as|than|like|unlike|from|with|to) (?:in )?$", re.I)
OF = re.compile(
    r"\b(?:of|in|from|by|to|with|like|unlike|than|as|at|for|on|between|or) (?:the )?$", re.I
)
WHOLE_OF = re.compile(
    rf"(?:\b{WHOLE}(?: ‹\d+›)?|‹\d+›) (?:(?:given|found|obtained|reached) )?(?:of|in|from|by) (?:the )?$",
    re.I,
)
VALUE_BEGINS = re.compile(
    r"(?:^|[,;:.—(→] ?|\b(?:so|hence|thus|therefore|and|but|that|answers?|result|value|of|option|choice|now"
    r"|clearly|its|their)[, ]{1,2})$",
    re.I,
)
AFTER_LETTER = r"(?![ ](?!is\b|are\b|was\b|and\b|as\b|too\b|cannot\b|must\b)[a-z])"
NUMBER_TITLE = re.compile(r"attempt|thinker|solution|#|^no\.?$|尝试|编号|序号|思考者|程序", re.I)
VERDICT_TITLE = re.compile(r"correct|right|valid|正确|对错", re.I)
STEP_TITLE = re.compile(r"step|method|approach|setup|formula|reason|方法|步骤|思路|过程|推导", re.I)
SIGNS = str.maketrans("«»‹›", '""<>')  # They stand for names and answers in a read sentence
FRACTION = re.compile(r"\\[dt]?frac\{(\w+)\}\{(\w+)\}")


ZH_NUMBER = r"(?:\d{1,2}(?!\d|%|\.\d)|[一二两三四五六七八九十]{1,2}(?![下次种般些样直]))"
COUNT = rf"(?P<count>\d|{WORDS['one'].replace(' ', '|')})"
VALUES = {word: i for key in ("one", "first") for i, word in enumerate(WORDS[key].split(), 1)}
VALUES |= CHINESE_NUMBERS | {"两": 2}


def name_patterns(noun: str) -> list[tuple[str, re.Pattern[str]]]:
    """How attempts are named, by what the name means; the first that matches counts."""
    number = r"#?\(?\d{1,2}\)?(?![\d%]|[./]\d|,\d{{3}})"
    item = rf"{number}(?: \([^()]{{1,20}}\)(?= ?,| and))?"
    names = rf"(?:{noun})s? (?:numbers? |no\. ?)?"
    several = rf"(?:{noun})s (?:numbers? )?{item}(?: ?(?:,? and|,|&|/|-|through|to) ?(?:(?:{noun}) )?{item}){{0,30}}"
    listed = rf"(?:{several}|{names}{number}(?:(?:,? and | ?& ?|-|, )(?:{noun}) {number}|(?: and | nor | ?& ?|-){number}){{0,30}})"
    plain_list = rf"{number}(?: ?(?:,? and|,|&|/|-) ?{number}){{0,30}}"
    after_word = "|".join(f"(?<={word} )" for word in ("correct", "wrong", "right", "valid"))
    hashes = r"#\d{1,2}(?:(?:, | and |, and )#\d{1,2}){0,30}"
    ordinal = rf"(?:{WORDS['first'].replace(' ', '|')}|\d{{1,2}}(?:st|nd|rd|th))"
    tail = rf"(?: of)?(?: the| these| those)?(?: {COUNT.replace('count', 'count2')})?(?: (?:{noun})s?| of them| ones)"
    zh_list = (
        rf"(?:(?:{noun})[ ]?第?[#(]?{ZH_NUMBER}\)?|第{ZH_NUMBER}[个位号份](?=(?:{noun})|[，,、的也是都均则却：:和与]|$))"
        rf"(?:[ ]?(?:、|和|与|及|以及|到|至|-)[ ]?(?:{noun})?第?{ZH_NUMBER}[个位]?){{0,30}}"
    )
    table = {
        "own": rf"\b(?:my|our|own|a|another|this)(?: very)? (?:{ordinal} )?(?:{noun})\b|(?<!based )\bon the {ordinal} (?:{noun})\b|我的?(?:第.次)?尝试|第.次尝试",
        "except": rf"(?:all|every|each|everything)(?: of)?(?: the)?(?: other)?(?: (?:{noun})s?)?"
        rf" (?:but|except(?: for)?|other than|apart from) (?P<listed>{listed}|{hashes})|除了?(?P<listed2>{zh_list})"
        r"(?:以外|之外|外)?[，,]?(?:其他|其余)?的?(?:尝试)?",
        "only": rf"\bonly (?P<listed>{listed}|{hashes})|只有(?P<listed2>{zh_list})",
        "listed": rf"\b(?:the )?(?P<listed>{listed})|(?:{after_word})(?:{noun})s?(?::| are:?) (?P<listed3>{plain_list})|(?P<listed2>{hashes}|{zh_list}(?:{noun})?)",
        "ordinal": rf"\b(?:the )?(?P<listed>{ordinal}(?:,? (?:and )?(?:the )?{ordinal}){{0,9}}) (?:{noun})s?\b",
        "bare": rf"(?:^|(?<=[,;:] )|(?<=and )|(?<=but )|(?<=while ))the (?P<listed>{ordinal}(?:,? (?:and )?(?:the )?{ordinal}){{0,9}})(?: ones?)?(?= (?:is|are|was|gives?|g[eo]ts?|has|also|both|\w{{3,12}}s)\b)",
        "first": rf"\bthe (?:first|(?P<last>last)) {COUNT}(?: (?:{noun})s)?(?= (?:are|were|g[eo]t|all|both|give)\b)"
        rf"|(?:前|(?P<last2>最?后))(?P<count2>{ZH_NUMBER})[个位](?:{noun})?",
        "none": rf"\b(?:none|neither|not (?:a single )?one|no)\b{tail}|\bnot (?:a single|one) (?:{noun})\b|\bno (?:{noun})\b|\bneither (?:{noun}|(?=is\b|of))"
        rf"|没有(?:任何)?(?:一个)?(?:{noun})|没有一[个位]|无一",
        "rest": rf"\b(?:all )?the (?:others\b|rest(?: of the (?:{noun})s)?(?= (?:are|were|all|get|got|have)\b)|(?:other|remaining) "
        rf"(?:{COUNT}\b(?: (?:{noun})s?| ones)?|(?:{noun})s|ones|(?P<single>(?:{noun}|one)\b|(?=is\b))))"
        rf"|(?:其[他余]|剩下|别的)的?(?:(?P<count2>{ZH_NUMBER})[个位])?的?(?:{noun})?",
        "these": rf"\b(?:these|those) {COUNT.replace('count', 'count3')}(?= (?:are|were|g[eo]t|all|both)\b)|\b(?:these|those)(?: {COUNT})? (?:{noun})s|[这那](?:(?P<count2>{ZH_NUMBER})[个位]|些)(?:{noun})",
        "all": rf"\b(?:all|both|each|every one)\b{tail}|\bevery (?:single )?(?:{noun})\b|\ball {COUNT}\b"
        rf"(?= (?:are|were|g[eo]t)\b)|\bboth(?= (?:are|were|get|got)\b)|\bthey(?= (?:are |were )?(?:all|both)\b)"
        rf"|(?:所有|全部|每个|各个)的?(?:{noun})|(?P<zh_count>{ZH_NUMBER})[个位](?:{noun})?(?=[都全均皆也的])|[两二]者",
    }
    return [(kind, re.compile(pattern, re.I)) for kind, pattern in table.items()]


STRONG, ANY = (
    name_patterns(WORDS["strong"]),
    name_patterns(f"{WORDS['strong']}|{WORDS['weak']}"),
)
NUMBERED = re.compile(
    rf"\b(?:{WORDS['strong']})s? ?[#(]?(?:\d|{ZH_NUMBER})|(?:{WORDS['strong']}){ZH_NUMBER}",
    re.I,
)


def numbers(text: str) -> frozenset[int]:
    """The numbers in a list of names, with ranges."""
    ordinal = "|".join(WORDS["first"].split())
    found: list[int] = []
    text = re.sub(r" \([^()]*\)", "", text)
    for part in re.finditer(
        rf"(?P<to>(?:-|to|through|到|至)\D{{0,12}})?(?P<n>\d+|{ordinal}|[一二两三四五六七八九十]+)",
        text,
        re.I,
    ):
        value = int(part["n"]) if part["n"].isdecimal() else VALUES.get(part["n"].lower(), 0)
        found += range(found[-1] + 1, value + 1) if part["to"] and found else [value]
    return frozenset(found)


def value(word: str) -> int:
    """The number that a word is; 0 if it is none."""
    return int(word) if word.isdecimal() else VALUES.get(word.lower(), 0)
