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
from heavydistill.run.experiment import reading_pools

_FEWEST = 2  # samples of a problem, see ``config.run.Think.k``


@dataclass(frozen=True, slots=True)
class ControlRun:
    """A run that is to be made after the evaluated one."""

    name: str
    """Name of its folder."""
    config: RunConfig
    """What it asks; without its place, if it reads pools."""
    description: str
    """What it does, for people."""
    plan: generate.Plan | None = None
    """None if it reads the pools of the evaluated run, without which it cannot be checked."""

    @property
    def reads_pools(self) -> bool:
        """Whether it takes those of the evaluated run."""
        return self.plan is None

    def requests(self, problems: int) -> int:
        """Maximum number of requests for so many problems; the journal may have some already."""
        attempts = 0 if self.reads_pools else self.config.think.k
        return problems * (attempts + self.config.deliberate.d)


def controls_of(evaluated: generate.Plan, names: Collection[str], orders: int) -> list[ControlRun]:
    """The controls of a checked run.

    Args:
        evaluated: Run that they are compared with.
        names: Names of ``metrics.controls.NAMES``.
        orders: Number of orders in which its caches are read, its own among them.

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
    asks_anew = [name for name in (ALONE, CHAIN) if name in names]
    if config.pools and asks_anew:
        raise ConfigError(
            f"--controls {asks_anew[0]} asks about the problems anew, and a run with --pools reads "
            "none",
            f"Leave out --pools, or ask for {CHOOSE} and --orders alone.",
        )
    makers = {ALONE: _alone, CHAIN: _chain, CHOOSE: _choose}
    made = [make(evaluated) for name, make in makers.items() if name in names]
    return made + _other_orders(config, orders)


def _alone(evaluated: generate.Plan) -> ControlRun:
    config = evaluated.config
    does = "answers alone, without attempts"
    k = max(_FEWEST, config.deliberate.d)
    return _asking(evaluated, ALONE, config.roles[1], does, k, config.deliberate.sampling)


def _chain(evaluated: generate.Plan) -> ControlRun:
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
) -> ControlRun:
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
    return ControlRun(name, run.config, f"{who} {does}, {k} times", plan)


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


def _choose(evaluated: generate.Plan) -> ControlRun:
    config = evaluated.config
    deliberate = config.deliberate.model_copy(update={"task": "choose", "rounds": 1})
    chooses = evaluated.run.with_config(deliberate=deliberate)
    check_room(chooses, evaluated.problems, asks=evaluated.contact is not None)
    does = f"{config.roles[1]} names the best of the same attempts, {deliberate.d} times"
    if {problem.domain or config.domain for problem in evaluated.problems} != {"general"}:
        does += ", in the wording that serves all domains"
    return ControlRun(CHOOSE, reading_pools(config, deliberate=deliberate), does)


def _other_orders(config: RunConfig, orders: int) -> list[ControlRun]:
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
    controls = []
    for places in range(1, orders):
        cache = config.cache.model_copy(update={"order": config.cache.order + places})
        does = f"{config.roles[1]} deliberates on the same attempts, moved round by {places}"
        controls += [ControlRun(order_name(places), reading_pools(config, cache=cache), does)]
    return controls


def names_of(given: Sequence[str]) -> list[str]:
    """The controls of ``--controls alone,chain`` or ``--controls all``.

    Raises:
        ConfigError: There is no such control.
    """
    if list(given) == ["all"]:
        return list(NAMES)
    if unknown := sorted(set(given) - set(NAMES)):
        raise ConfigError(
            f"--controls: there is no control {unknown[0]!r}",
            f"Choose of {', '.join(NAMES)}, or give all.",
        )
    return list(dict.fromkeys(given))
