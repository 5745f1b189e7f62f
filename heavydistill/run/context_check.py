"""What reads the caches of a run, and whether each can hold its attempts, before anything is asked.

Only the frame of a cache is known then: the wording, the problem and the headers of its attempts.
A cache that passes can still be too small for the final answers, which ``heavy.cache`` finds; what
the message recommends has room for ``_ANSWER_TOKENS`` of each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from heavydistill.config.run import RunConfig
from heavydistill.errors import BudgetError, TeacherError
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import fence_for, frame_tokens
from heavydistill.models.resolve import ResolvedRun
from heavydistill.models.tokenizer import ESTIMATED, SERVER, ServerTokenizer, reader_of
from heavydistill.schema import Problem

_ANSWER_TOKENS = 32
_NARROWEST = 2  # attempts; see ``config.run.CacheChoice.width``
_log = logging.getLogger(__name__)


def with_tokenizer(run: ResolvedRun) -> ResolvedRun:
    """The run with a tokenizer that is at hand.

    Where a profile of a served model names one that this machine cannot reach, the server counts
    in its place, and a warning says so; one that the user names must be there.

    Raises:
        TeacherError: The tokenizer cannot be loaded.
    """
    deliberator, endpoint = run.deliberator.profile, run.config.endpoint
    try:
        reader_of(deliberator.tokenizer)
    except TeacherError as error:
        if deliberator.kind != "endpoint" or endpoint.tokenizer:
            raise
        _log.warning(
            "%s Tokens are counted by the server of %s where it does that, else estimated; "
            "--tokenizer FOLDER names another.",
            error.what,
            deliberator.name,
        )
        return run.at(endpoint.model_copy(update={"tokenizer": SERVER}))
    return run


def check_room(run: ResolvedRun, problems: Sequence[Problem], asks: bool = True) -> None:
    """Check a run whose tokenizer is at hand against the problem that leaves the least room.

    ``asks`` says whether a server that counts tokens may be asked. If not, or if it is still to be
    started, nothing is refused for an estimate alone, which is never less than the count.

    Raises:
        TeacherError: The tokenizer of a model cannot be loaded.
        BudgetError: If all attempts are usable, its cache has no room for them; the message says
            for how many it has.
        ConfigError: There is no wording for a problem's domain.
    """
    config, deliberator = run.config, run.deliberator.profile
    reader = reader_of(deliberator.tokenizer)
    if run.judge:  # its control tokens are needed; see ``judging``
        reader_of(run.judge.profile.tokenizer)
    _load_wordings(config, problems)
    if not config.rounds:
        return
    # From the second round on, deliberations stand beside the selected trajectories.
    carried = config.deliberate.d if config.deliberate.rounds > 1 else 0
    attempts = (config.cache.width or config.think.k) + carried
    budget = config.cache.budget_tokens or 0

    def frame(problem: Problem, attempts: int) -> int:
        return frame_tokens(problem, attempts, _wording(config, problem), reader)

    # Headers of many attempts take long to count, and are the same wherever wording and fence are.
    longest: dict[tuple[str, str], tuple[int, Problem]] = {}
    for problem in problems:
        alike = _wording(config, problem).version, fence_for([problem.text])
        longest[alike] = max(
            longest.get(alike, (0, problem)), (frame(problem, 1), problem), key=lambda pair: pair[0]
        )
    needed, worst = max(
        ((frame(problem, attempts), problem) for _, problem in longest.values()),
        key=lambda pair: pair[0],
    )
    if needed > budget and reader.name == ESTIMATED:
        if not (asks and config.endpoint.urls):
            return
        reader = ServerTokenizer(deliberator.model, config.endpoint)
        needed = frame(worst, attempts)
    if needed > budget:

        def enough(count: int) -> int:
            return frame(worst, count) + count * _ANSWER_TOKENS

        fitting = _most(lambda count: enough(count) <= budget, attempts) - carried
        estimated = f" ({ESTIMATED})" if reader.name == ESTIMATED else ""
        beside = f" and {carried} deliberations of the round before" if carried else ""
        raise BudgetError(
            f"{worst.source}: problem {worst.id} and the frame of {attempts - carried} attempts"
            f"{beside} need {needed} tokens{estimated}, but cache.budget_tokens is {budget}",
            _fix(run, fitting, enough(attempts)),
        )


def _wording(config: RunConfig, problem: Problem) -> prompts.Prompt:
    """The deliberator's."""
    domain = problem.domain or config.domain or "general"
    return prompts.for_cache(config.deliberate.task, domain, config.language)


def _load_wordings(config: RunConfig, problems: Sequence[Problem]) -> None:
    """Those of the thinker."""
    for domain in {problem.domain or config.domain or "general" for problem in problems}:
        prompts.load("thinker", domain, config.language)


def _most(fits: Callable[[int], bool], too_many: int) -> int:
    """The largest number below ``too_many`` that fits; 0 if none does."""
    least = 0
    while too_many - least > 1:
        middle = (least + too_many) // 2
        least, too_many = (middle, too_many) if fits(middle) else (least, middle)
    return least


def _fix(run: ResolvedRun, fitting: int, enough: int) -> str:
    ways, some_fit = [], fitting >= _NARROWEST
    none = "" if some_fit else f"Not even {_NARROWEST} attempts of {_ANSWER_TOKENS} tokens fit. "
    if some_fit:
        short = f"at most {fitting} attempts of {_ANSWER_TOKENS} tokens"
        ways += [f"{short} fit: --set cache.width={fitting}"]
    if enough <= run.cache_room:
        ways += [f"set cache.budget_tokens to {enough} or more"]
    else:
        ways += ["lower deliberate.sampling.max_tokens", "use a deliberator with more context"]
    sentence = ", or ".join(ways)
    return f"{none}{sentence[0].upper()}{sentence[1:]}."
