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

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from heavydistill.config.models import SamplingChoice
from heavydistill.config.run import RunConfig
from heavydistill.errors import ConfigError
from heavydistill.heavy import prompts
from heavydistill.metrics.controls import ALONE, CHAIN, CHOOSE, NAMES, order_name
from heavydistill.models.request import THINK
from heavydistill.models.resolve import ResolvedModel, resolve
from heavydistill.models.tokenizer import TEMPLATE_TOKENS, reader_of
from heavydistill.run import generate
from heavydistill.run.context_check import check_room
from heavydistill.run.following import reading_pools

_FEWEST = 2  # samples of a problem, see ``config.Think.k``


@dataclass(frozen=True, slots=True)
class Control:
    """A run that is to be made after the evaluated one.

    Attributes:
        name: Of its folder.
        config: What it asks; of one that reads pools, without its place.
        told: What it does, for people.
        plan: Checked, of one that asks about the problems anew. None if it takes the pools of the
            evaluated run, without which it cannot be checked.
    """

    name: str
    config: RunConfig
    told: str
    plan: generate.Plan | None = None

    @property
    def reads_pools(self) -> bool:
        """Whether it takes those of the evaluated run."""
        return self.plan is None

    def requests(self, problems: int) -> int:
        """Most that it asks about so many problems: the journal may have answers already."""
        attempts = 0 if self.reads_pools else self.config.think.k
        return problems * (attempts + self.config.deliberate.d)


def controls_of(evaluated: generate.Plan, names: Collection[str], orders: int) -> list[Control]:
    """The controls of a checked run.

    Args:
        evaluated: The run that they are held against.
        names: Which; of ``metrics.controls.NAMES``.
        orders: In how many orders its caches are read, its own among them; 0 or 1 for that alone.

    Raises:
        ConfigError: The run takes its pools from another or does not deliberate, there are not so
            many orders, or more than one and several rounds. Or one that asks anew cannot be
            asked, as of ``models.resolve.resolve``.
        BudgetError: A chooser's prompt does not fit.
    """
    config = evaluated.config
    if (names or orders > 1) and not config.rounds:
        raise ConfigError(
            "--controls and --orders are held against deliberations, and --d is 0",
            "Set --d to 1 or more.",
        )
    _refuse_without_thinker(config, names)
    made = []
    if ALONE in names:
        made.append(_alone(evaluated))
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


def _alone(evaluated: generate.Plan) -> Control:
    config = evaluated.config
    does = "answers alone, without attempts"
    k = max(_FEWEST, config.deliberate.d)
    return _asking(evaluated, ALONE, config.roles[1], does, k, config.deliberate.sampling)


def _chain(evaluated: generate.Plan) -> Control:
    config, thinker = evaluated.config, evaluated.run.in_stage(THINK)
    random = config.cache.selection == "random"  # else all are sampled for it
    attempts = (config.cache.width if random else None) or config.think.k
    wanted = attempts * thinker.sampling.max_tokens
    deliberations = (config.rounds - 1) * config.deliberate.d + 1
    wanted += deliberations * evaluated.run.deliberator.sampling.max_tokens
    seen = config.endpoint.capabilities
    most, why = min(  # with a reason why the heavy answer may have more, unless it may not
        (wanted, ""),
        (_room_of(evaluated, thinker), "more do not fit its context"),
        ((seen and seen.max_output) or wanted, "its server takes no more in one response"),
    )
    short = f" of the {wanted:,} that the heavy answer may have; {why}" if why else ""
    does = f"writes one chain of at most {most:,} tokens{short}"
    sampling = config.think.sampling.model_copy(update={"max_tokens": most})
    return _asking(evaluated, CHAIN, config.roles[0], does, _FEWEST, sampling)


def _asking(
    evaluated: generate.Plan, name: str, who: str, does: str, k: int, sampling: SamplingChoice
) -> Control:
    """A control that asks about the problems of the evaluated run anew, and deliberates nothing."""
    config = evaluated.config
    folder = evaluated.folder.with_name(name)
    changed = {
        "thinker": who,
        "think": config.think.model_copy(update={"k": k, "min_k": 1, "sampling": sampling}),
        # No cache is made, and a configuration with one of more than K attempts cannot be read.
        "cache": config.cache.model_copy(update={"width": None}),
        "deliberate": config.deliberate.model_copy(update={"d": 0, "rounds": 1}),
        "out": str(folder),
    }
    run = resolve(config.model_copy(update=changed))
    plan = dataclasses.replace(evaluated, run=run, folder=folder)
    return Control(name, run.config, f"{who} {does}, {k} times", plan)


def _room_of(evaluated: generate.Plan, thinker: ResolvedModel) -> int:
    """Tokens of its context that the longest problem leaves."""
    config, profile = evaluated.config, thinker.profile
    reader = reader_of(profile.tokenizer)

    def tokens(text: str, domain: str) -> int:
        wording = prompts.load("thinker", domain, config.language)
        return reader.count(prompts.thinker_prompt(text, wording))

    longest = max(
        tokens(problem.text, problem.domain or config.domain or "general")
        for problem in evaluated.problems
    )
    return profile.context - longest - TEMPLATE_TOKENS


def _choose(evaluated: generate.Plan) -> Control:
    config = evaluated.config
    deliberate = config.deliberate.model_copy(update={"task": "choose", "rounds": 1})
    chooses = evaluated.run.with_config(deliberate=deliberate)
    check_room(chooses, evaluated.problems, asks=evaluated.contact is not None)
    told = f"{config.roles[1]} names the best of the same attempts, {deliberate.d} times"
    if {problem.domain or config.domain for problem in evaluated.problems} != {"general"}:
        told += ", in the wording that serves all domains"
    return Control(CHOOSE, reading_pools(config, deliberate=deliberate), told)


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
    return Control(order_name(places), changed, told)


def names_of(told: Sequence[str]) -> list[str]:
    """The controls of ``--controls alone,chain`` or ``--controls all``.

    Raises:
        ConfigError: There is no such control.
    """
    if list(told) == ["all"]:
        return list(NAMES)
    if unknown := sorted(set(told) - set(NAMES)):
        raise ConfigError(
            f"--controls: there is no control {unknown[0]!r}",
            f"Choose of {', '.join(NAMES)}, or give all.",
        )
    return list(dict.fromkeys(told))
