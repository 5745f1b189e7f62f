"""The runs that an evaluation is held against: only the coordination differs.

``alone`` asks the deliberator without any attempt, sampled and capped as it deliberates: if that is
as good, the cache was ignored. ``chain`` lets the thinker write one long chain, which may have the
tokens that the attempts of a cache and the deliberations of one answer may have. ``choose`` has the
deliberator name the best attempt of the same cache: Best-of-K with a judge. ``order-N`` gives it
the same attempts, moved round by N places. Same model, sampling and verifiers everywhere.

Not covered: what their figures say (``metrics.controls``); votes that spend the same tokens, which
need no further run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from heavydistill.config import Deliberate, RunConfig, Think
from heavydistill.engine.tokenizer import TEMPLATE_TOKENS, ReaderTokenizer
from heavydistill.errors import ConfigError
from heavydistill.heavy import prompts
from heavydistill.metrics.controls import ALONE, CHAIN, CHOOSE, NAMES, order_name
from heavydistill.pipeline import run
from heavydistill.pipeline.following import reading_pools
from heavydistill.pipeline.room import check_room
from heavydistill.teachers.complete import sampling_of
from heavydistill.teachers.registry import find

_FEWEST = 2  # samples of a problem, see ``config.Think.k``


@dataclass(frozen=True, slots=True)
class Control:
    """A run that is to be made after the evaluated one.

    Attributes:
        name: Of its folder.
        config: What it asks; without its place.
        reads_pools: Whether it takes those of the evaluated run.
        told: What it does, for people.
    """

    name: str
    config: RunConfig
    reads_pools: bool
    told: str

    def requests(self, problems: int) -> int:
        """Most that it asks about so many problems: the journal may have answers already."""
        attempts = 0 if self.reads_pools else self.config.think.k
        return problems * (attempts + self.config.deliberate.d)


def controls_of(evaluated: run.Plan, names: Collection[str], orders: int) -> list[Control]:
    """The controls of a checked run.

    Args:
        evaluated: The run that they are held against.
        names: Which; of ``metrics.controls.NAMES``.
        orders: In how many orders its caches are read, its own among them; 0 or 1 for that alone.

    Raises:
        ConfigError: There is no such control, the run takes its pools from another or does not
            deliberate, there are not so many orders, or more than one and several rounds.
        BudgetError: A chooser's prompt does not fit.
    """
    config = evaluated.config
    if unknown := sorted(set(names) - set(NAMES)):
        raise ConfigError(
            f"--controls: there is no control {unknown[0]!r}",
            f"Choose of {', '.join(NAMES)}, or give all.",
        )
    if (names or orders > 1) and not config.rounds:
        raise ConfigError(
            "--controls and --orders are held against deliberations, and --d is 0",
            "Set --d to 1 or more.",
        )
    _refuse_without_thinker(config, names)
    made = []
    if ALONE in names:
        made.append(_alone(config))
    if CHAIN in names:
        made.append(_chain(evaluated))
    if CHOOSE in names:
        made.append(_choose(evaluated))
    return made + _other_orders(config, orders)


def _refuse_without_thinker(config: RunConfig, names: Collection[str]) -> None:
    asks_anew = [name for name in (ALONE, CHAIN) if name in names]
    if config.pools and asks_anew:
        raise ConfigError(
            f"--controls {asks_anew[0]} asks about the problems anew, and a run with --pools reads "
            "none",
            f"Leave out --pools, or ask for {CHOOSE} and --orders alone.",
        )


def _alone(config: RunConfig) -> Control:
    k = max(_FEWEST, config.deliberate.d)
    who = config.roles[1]
    think = Think(k=k, min_k=1, sampling=config.deliberate.sampling)
    changed = {"thinker": who, "think": think, "deliberate": _no_deliberations(config)}
    told = f"{who} answers alone, without attempts, {k} times"
    return Control(ALONE, config.model_copy(update=changed), False, told)


def _chain(evaluated: run.Plan) -> Control:
    config = evaluated.config
    who = config.roles[0]
    random = config.cache.selection == "random"  # else all are sampled for it
    attempts = (config.cache.width if random else None) or config.think.k
    wanted = attempts * sampling_of(config.think).max_tokens
    deliberations = (config.rounds - 1) * config.deliberate.d + 1
    wanted += deliberations * sampling_of(config.deliberate).max_tokens
    most = min(wanted, _room_of_thinker(evaluated))
    sampling = config.think.sampling.model_copy(update={"max_tokens": most})
    think = Think(k=_FEWEST, min_k=1, sampling=sampling)
    changed = {"think": think, "deliberate": _no_deliberations(config)}
    short = f" of the {wanted:,} that the heavy answer may have; more do not fit its context"
    told = f"{who} writes one chain of at most {most:,} tokens{short if most < wanted else ''}"
    return Control(CHAIN, config.model_copy(update=changed), False, f"{told}, {_FEWEST} times")


def _room_of_thinker(evaluated: run.Plan) -> int:
    """Tokens of its context that the longest problem leaves."""
    config = evaluated.config
    profile = find(config.roles[0], config.endpoint)
    reader = ReaderTokenizer(profile.tokenizer or find(config.roles[1], config.endpoint).tokenizer)

    def tokens(text: str, domain: str) -> int:
        wording = prompts.load("thinker", domain, config.language)
        return reader.count(prompts.thinker_prompt(text, wording))

    longest = max(
        tokens(problem.text, problem.domain or config.domain or "general")
        for problem in evaluated.problems
    )
    return profile.context - longest - TEMPLATE_TOKENS


def _choose(evaluated: run.Plan) -> Control:
    config = evaluated.config
    deliberate = config.deliberate.model_copy(update={"task": "choose", "rounds": 1})
    check_room(config.model_copy(update={"deliberate": deliberate}), evaluated.problems)
    told = f"{config.roles[1]} names the best of the same attempts, {deliberate.d} times"
    if {problem.domain or config.domain for problem in evaluated.problems} != {"general"}:
        told += ", in the wording that serves all domains"
    return Control(CHOOSE, reading_pools(config, deliberate=deliberate), True, told)


def _other_orders(config: RunConfig, orders: int) -> list[Control]:
    width = config.cache.width or config.think.k
    if orders > 1 and config.rounds > 1:
        raise ConfigError(
            f"--orders {orders} is about the attempts of one round, and there are {config.rounds}",
            "Set --rounds to 1, or leave out --orders.",
        )
    if orders > width:
        raise ConfigError(
            f"--orders {orders}: a cache of {width} attempts has {width} orders that move them "
            "round",
            f"Set --orders to {width} or less.",
        )
    return [_other_order(config, places) for places in range(1, orders)]


def _other_order(config: RunConfig, places: int) -> Control:
    order = config.cache.order + places
    cache = config.cache.model_copy(update={"order": order})
    told = f"{config.roles[1]} deliberates on the same attempts, moved round by {places}"
    changed = reading_pools(config, cache=cache)
    return Control(order_name(places), changed, True, told)


def _no_deliberations(config: RunConfig) -> Deliberate:
    return config.deliberate.model_copy(update={"d": 0, "rounds": 1})


def names_of(told: Sequence[str]) -> list[str]:
    """The controls of ``--controls alone,chain`` or ``--controls all``."""
    return list(NAMES) if list(told) == ["all"] else list(dict.fromkeys(told))
