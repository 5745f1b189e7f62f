"""Evaluates models, a baseline model if given, and controls, on the same problems.

The folder of an evaluation:

    before/            run of the baseline model, if there is one
    after/             run of the evaluated models
    frozen/            the evaluated deliberator on the pools of ``before``, if both roles differ
    evaluation.json    see ``metrics.comparison``
    NAME/              run of each control
    controls.json      see ``metrics.controls``; only with controls
    width-N/           run with other caches of the attempts of ``after``; see ``widths``
    widths.json        see ``metrics.experiments.widths``; only with several widths

Both runs use the same prompts, sampling and cache settings: keys missing from the configuration
come from the profile of the baseline model. A checkpoint has no profile, and the defaults for
unknown models would give it another prompt than its base.

Controls change only the coordination. ``chain`` lets the thinker write one long chain with as many
tokens as the attempts of a cache and the deliberations of one answer together, and ``skill`` lets
the deliberator do the whole protocol in one response, with as many tokens. All others read the
pools of the run ``after``, with its sampling and token limits, and change the task of the
deliberator or the attempts in its caches:

    alone-thinker      the thinker's prompt, without attempts
    alone-deliberator  the deliberator's prompt, without attempts
    choose             the best attempt of the cache
    garbled, foreign, transplant, empty, answers, steps, planted-N
                       a cache with other attempts, see ``experiments.controls``
    wording-LEVEL      the same attempts with other instructions: ``short``, ``none``, ``foreign``
    order-N            the same attempts, rotated by N places

Not covered: the metrics (``metrics.controls``); votes with the same number of tokens, which need no
further run.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from heavydistill.config.run import RunConfig
from heavydistill.config.versioned import write_versioned
from heavydistill.errors import ConfigError, ImpossibleControlError
from heavydistill.experiments.comparison import AFTER, side_of
from heavydistill.experiments.folder import (
    Experiment,
    ExperimentFolder,
    RunOne,
    experiment,
    reading_pools,
)
from heavydistill.experiments.widths import CacheSizes, measure_widths
from heavydistill.heavy.cache import frame_tokens
from heavydistill.heavy.prompts import Level, asked_of_thinker, at_level
from heavydistill.metrics.comparison import COMPARISON, Comparison, compare_sides, refuse_other_ways
from heavydistill.metrics.controls import (
    ALONE,
    CHAIN,
    CHOOSE,
    CONTROLS,
    FOREIGN,
    GARBLED,
    NAMES,
    OUTPUTS,
    PLANTED,
    SKILL,
    WORDING,
    WORDINGS,
    ControlReport,
    alone_name,
    compare_with_controls,
    kind_of,
    order_name,
    planted_names,
    wording_name,
)
from heavydistill.metrics.experiments.widths import CacheKind, WidthReport
from heavydistill.models.contact import ServerProbe
from heavydistill.models.identity import refuse_same_model
from heavydistill.models.request import THINK, conversation, texts_of
from heavydistill.models.resolve import ResolvedModel, ResolvedRun, resolve
from heavydistill.models.tokenizer import ESTIMATED, TEMPLATE_TOKENS, reader_of
from heavydistill.problems import OnChecked
from heavydistill.run import generate
from heavydistill.run.pools import refuse_control, run_behind
from heavydistill.run.result import all_traces
from heavydistill.skill.prompt import for_reader

BEFORE, FROZEN = "before", "frozen"
_ALL = "all"
_RAN_BY = ("distilabel", "torch", "transformers")
_OTHER_LEVELS: tuple[Level, ...] = ("short", "none", "foreign")
_CHAINS = 2  # chains for each problem, the fewest of ``config.run.Think.k``


@dataclass(frozen=True, slots=True)
class ControlRun:
    """A control run, which is executed after the evaluated run."""

    name: str  # name of the folder
    config: RunConfig  # configuration; without folders if the run reads pools
    description: str  # one line for display
    plan: generate.Plan | None = None  # None if the control reads the pools of the evaluated run
    run: ResolvedRun | None = None  # if it may write more tokens than the evaluated run
    not_asked: str = ""  # why no request is sent; empty if the control is executed

    def requests(self, problems: int) -> int:
        """Return the maximum number of requests for ``problems`` problems, ignoring the journal."""
        if self.not_asked:
            return 0
        attempts = self.config.think.k if self.plan else 0
        return problems * (attempts + self.config.rounds * self.config.deliberate.d)


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """An evaluation whose runs have all been checked; input of ``evaluate``."""

    place: ExperimentFolder
    runs: dict[str, generate.Plan]
    """Plans of the runs ``BEFORE`` (if a baseline model is given) and ``AFTER``."""
    frozen: ControlRun | None = None
    """The deliberator of ``AFTER`` on the pools of ``BEFORE``; None if these are its own."""
    controls: list[ControlRun] = field(default_factory=list)
    has_all_controls: bool = False
    """Whether controls that are not possible on the attempts are not asked, instead of an error."""
    depths: tuple[int, ...] = ()
    """Numbers of deliberations that vote, to compare caches; empty if none are compared."""
    caches: dict[CacheKind, ControlRun] = field(default_factory=dict)  # other caches to compare


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The result of an evaluation: the comparison of the runs, the controls, and the caches."""

    comparison: Comparison
    controlled: ControlReport | None  # None without controls
    widths: WidthReport | None  # None if no caches are compared


def check(
    config: RunConfig,
    before: str | None = None,
    controls: str | Collection[str] = (),
    orders: int = 1,
    on_checked: OnChecked | None = None,
    contact: ServerProbe | None = None,
    sizes: CacheSizes | None = None,
) -> EvaluationPlan:
    """Check all runs of an evaluation with ``generate.check``.

    Args:
        config: Configuration as given by the user.
        before: Baseline model for both roles; None for no comparison.
        controls: A selection from ``metrics.controls.NAMES``, or ``all``; a text has commas.
        orders: Number of different orders of the attempts in the caches of the run after.
        on_checked: As in ``generate.check``, for each run in turn.
        contact: As in ``generate.check``.
        sizes: Caches to compare; None for none.

    Raises:
        UserError: The user has to fix something; nothing was written.
        TeacherError: The server answers with the model ``before`` for another one.
    """
    config = sizes.applied(config) if sizes else config
    names, configs = control_names(controls, config), {AFTER: config}
    if before is None:
        config.refuse_unnamed("--before BASE")
    else:
        configs = dict(zip((BEFORE, AFTER), paired(config, before, contact), strict=True))
    place = ExperimentFolder.of(config, Path(configs[AFTER].roles[1]).name)
    runs = {which: place.check(each, which, on_checked, contact) for which, each in configs.items()}
    if BEFORE in runs:
        base, after = runs[BEFORE].run.deliberator, runs[AFTER].run
        for model in (*after.thinkers, after.deliberator):
            refuse_same_model(base, model)
    asked = controls_of(runs[AFTER], names, orders)
    plan = EvaluationPlan(place, runs, _frozen(runs), asked, _ALL in _listed(controls))
    return _with_caches(plan, sizes) if sizes else plan


def _with_caches(plan: EvaluationPlan, sizes: CacheSizes) -> EvaluationPlan:
    """Return the plan with a run for each cache that the run after does not have."""
    config, runs = plan.runs[AFTER].config, {}
    for name, cache in sizes.caches(config).items():
        does = f"{config.roles[1]} deliberates {_times(config.deliberate.d)} on {cache.width} "
        does += f"attempts ({cache.selection})"
        other = config.cache.model_copy(update=dataclasses.asdict(cache))
        runs[cache] = ControlRun(name, reading_pools(config, cache=other), does)
    return dataclasses.replace(plan, depths=sizes.depths_of(config), caches=runs)


def _frozen(runs: Mapping[str, generate.Plan]) -> ControlRun | None:
    """The run that tells a better deliberator from better attempts; None if it was made already."""
    after = runs[AFTER].config
    if BEFORE not in runs or after.pools or not after.rounds:
        return None
    pairs = zip(runs[BEFORE].config.roles, after.roles, strict=True)
    if any(old == new for old, new in pairs):
        return None
    does = f"{after.roles[1]} deliberates {_times(after.deliberate.d)} on the attempts of {BEFORE}"
    return ControlRun(FROZEN, reading_pools(after), does)


def paired(
    config: RunConfig, before: str, contact: ServerProbe | None = None
) -> tuple[RunConfig, RunConfig]:
    """Return the configurations of the runs before and after, which differ only in their models.

    Keys that are not set are filled in for the baseline model ``before`` and apply to both runs.
    The baseline model also fills a role for which no model is named.

    Raises:
        UserError: ``resolve`` fails, the models are the same, or their profiles send different
            fields.
    """
    models = {"teacher": before, "thinker": None, "deliberator": None}
    before_run = resolve(config.model_copy(update=models), contact)
    first = before_run.config
    models |= {"thinker": config.thinker, "deliberator": config.deliberator}
    if "teacher" in config.model_fields_set:
        models["teacher"] = config.teacher
    alike = ("domain", "think", "cache", "deliberate", "judge")
    models |= {key: getattr(first, key) for key in alike}
    second = config.model_copy(update=models)
    if first.roles == second.roles:
        raise ConfigError(
            f"--before: {before} would be compared with itself",
            "Name the trained model with --thinker, --deliberator or both.",
        )
    after_run = resolve(second, contact)
    # Switches for a model's thinking are in ``extra_body``, which only a profile can set.
    base = before_run.deliberator.profile
    for model in (*after_run.thinkers, after_run.deliberator):
        if model.profile.extra_body != base.extra_body:
            raise ConfigError(
                f"--before: the profile of {base.name} adds {dict(base.extra_body)} to requests, "
                f"but the profile of {model.name} adds {dict(model.profile.extra_body)}",
                f"Write a profile for {model.name} (a YAML file) with {base.name}'s extra_body.",
            )
    return first, after_run.config


def evaluate(plan: EvaluationPlan, run_one: RunOne) -> EvaluationResult:
    """Execute the runs of a plan from ``check``, compare them, and write the folder.

    Raises:
        TeacherError: A server lacks a model; no other request was sent.
        ConfigError: A control that is named is not possible on the attempts of the run; no request
            of a control was sent, and no folder was written.
        RunError, KeyboardInterrupt: A run failed or was interrupted; no folder was written.
    """
    after = plan.runs[AFTER]
    runs = [each.run for each in plan.runs.values()]
    runs += [control.run for control in plan.controls if control.run]
    with experiment(plan.place, runs, after.contact, run_one) as made:
        comparison = _compared(plan, made)
        write_versioned(comparison, made.folder / COMPARISON)
        controlled = _controlled(plan, made) if plan.controls else None
        for each in plan.caches.values():
            made.run(each.name, made.check_on_pools(each.name, each.config, AFTER))
        names = {cache: each.name for cache, each in plan.caches.items()}
        widths = measure_widths(made.folder, AFTER, names, plan.depths) if plan.depths else None
        return EvaluationResult(comparison, controlled, widths)


def _controlled(plan: EvaluationPlan, made: Experiment) -> ControlReport:
    """Execute the controls, and compare the run with them."""
    checked, missing = _checked(plan, made)
    for name, each in checked.items():
        made.run(name, each)
    traces = {name: all_traces(made.folder / name) for name in checked}
    evaluated, rounds = all_traces(made.folder / AFTER), plan.runs[AFTER].config.rounds
    controlled = compare_with_controls(evaluated, rounds, traces, missing)
    write_versioned(controlled, made.folder / CONTROLS)
    return controlled


def _compared(plan: EvaluationPlan, made: Experiment) -> Comparison:
    """Execute the runs without the controls, and compare them."""
    folders = {which: made.run(which, each).folder for which, each in plan.runs.items()}
    if plan.frozen:
        on_before = made.check_on_pools(FROZEN, plan.frozen.config, BEFORE)
        folders[FROZEN] = made.run(FROZEN, on_before).folder
    sides = {which: side_of(folder, which) for which, folder in folders.items()}
    if BEFORE in sides:
        refuse_other_ways(sides[BEFORE], sides[AFTER])
    versions = {name: importlib.metadata.version(name) for name in _RAN_BY}
    return compare_sides(sides[AFTER], sides.get(BEFORE), versions, sides.get(FROZEN))


def _checked(
    plan: EvaluationPlan, made: Experiment
) -> tuple[dict[str, generate.Plan], dict[str, str]]:
    """Return the plans of the controls by run, and why the others are not asked by control."""
    checked, missing = {}, {}
    for each in plan.controls:
        try:
            if each.not_asked:
                missing[each.name] = each.not_asked
            else:
                at_work = each.plan or made.check_on_pools(each.name, each.config, AFTER)
                checked[each.name] = at_work
        except ImpossibleControlError as error:
            if not plan.has_all_controls:
                raise
            missing[kind_of(each.name)] = error.what
    return checked, missing


def _listed(given: str | Iterable[str]) -> list[str]:
    listed = given.split(",") if isinstance(given, str) else given
    return list(dict.fromkeys(map(str.strip, listed)))


def control_names(given: str | Iterable[str], config: RunConfig) -> list[str]:
    """Return the names of controls; ``all`` stands for all that are possible with ``config``, but
    for ``WORDING``, which is about the prompt.

    Raises:
        ConfigError: A control is unknown.
    """
    names = _listed(given)
    if _ALL in names:
        left_out = {WORDING} - {*names} | ({CHAIN} if config.pools else set())
        behind = run_behind(config)
        if not (behind and behind.think.tools.python):
            left_out.add(OUTPUTS)
        return [name for name in NAMES if name not in left_out]
    if unknown := sorted({*names} - {*NAMES}):
        raise ConfigError(
            f"--controls: unknown control {unknown[0]!r}",
            f"Give all, or some of {', '.join(NAMES)}, separated by commas.",
        )
    return names


def controls_of(evaluated: generate.Plan, names: Collection[str], orders: int) -> list[ControlRun]:
    """Return the controls of a checked run; ``orders`` includes the order of this run.

    Raises:
        ConfigError: The run reads other pools or has no deliberations, there are fewer orders, or
            several orders and several rounds; a control is not possible on any of these problems;
            or ``models.resolve.resolve`` fails.
        BudgetError: The prompt of ``choose`` does not fit.
    """
    config = evaluated.config
    _require_possible(evaluated, names, orders)
    made: list[ControlRun] = []
    for name in (name for name in NAMES if name in names):
        if name == CHAIN:
            made += [_chain(evaluated)]
        elif name == ALONE:
            made += [_alone(config, wording) for wording in WORDINGS]
        elif name == CHOOSE:
            made += [_choose(evaluated)]
        elif name == SKILL:
            made += [_skill(evaluated)]
        elif name == WORDING:
            made += [_other_wording(evaluated, level) for level in _OTHER_LEVELS]
        else:
            runs = planted_names(_width(config)) if name == PLANTED else [name]
            made += [_other_attempts(config, run, NAMES[name]) for run in runs]
    return made + _other_orders(config, orders)


def _require_possible(evaluated: generate.Plan, names: Collection[str], orders: int) -> None:
    """Raise ConfigError if a control, or several orders, are not possible on a run."""
    config = evaluated.config
    if (names or orders > 1) and not config.rounds:
        raise ConfigError(
            "--controls and --orders need deliberations, but --d is 0",
            "Set --d to 1 or more.",
        )
    if config.pools and CHAIN in names:
        raise ConfigError(
            f"--controls {CHAIN} needs the problems, which a run with --pools does not read",
            f"Leave out --pools, or give --controls with some of "
            f"{', '.join(name for name in NAMES if name != CHAIN)}.",
        )
    if WORDING in names and config.deliberate.task != "deliberate":
        raise ConfigError(
            f"--controls {WORDING} is about instructions to deliberate, but deliberate.task is "
            f"{config.deliberate.task}",
            "Leave out deliberate.task, or this control.",
        )
    kinds = {problem.verifier for problem in evaluated.problems}
    if GARBLED in names and kinds == {"instructions"}:  # which have no final answers
        refuse_control("garbled", "these problems")
    if FOREIGN in names and len(evaluated.problems) < 2:
        refuse_control("foreign", "these problems")


def _width(config: RunConfig) -> int:
    return config.cache.width or config.think.k


def _other_attempts(config: RunConfig, name: str, meaning: str) -> ControlRun:
    does = f"{config.roles[1]} deliberates {_times(config.deliberate.d)}: {meaning}"
    cache = config.cache.model_copy(update={"attempts": name})
    return ControlRun(name, reading_pools(config, cache=cache), does)


def _alone(config: RunConfig, wording: str) -> ControlRun:
    task = "think" if wording == "thinker" else "deliberate"
    cache = config.cache.model_copy(update={"attempts": "none"})
    deliberate = config.deliberate.model_copy(update={"task": task, "rounds": 1})
    does = f"{config.roles[1]} answers alone, with the {wording}'s prompt, {_times(deliberate.d)}"
    alone = reading_pools(config, cache=cache, deliberate=deliberate)
    return ControlRun(alone_name(wording), alone, does)


def _chain(evaluated: generate.Plan) -> ControlRun:
    config, thinker = evaluated.config, evaluated.run.in_stage(THINK)
    reader = reader_of(thinker.profile.tokenizer)
    asked = (
        conversation(asked_of_thinker(problem, config), problem.history)
        for problem in evaluated.problems
    )
    longest = max(sum(map(reader.count, texts_of(messages))) for messages in asked)
    most, tokens = _most_tokens(evaluated, thinker, longest)
    does = f"writes one chain of {tokens}, {_CHAINS} times"
    sampling = config.think.sampling.model_copy(update={"max_tokens": most})
    folder = evaluated.folder.with_name(CHAIN)
    changes: dict[str, object] = {
        "thinker": config.roles[0],
        "think": config.think.model_copy(update={"k": _CHAINS, "min_k": 1, "sampling": sampling}),
        # There is no cache, and a width of more than K attempts would be refused.
        "cache": config.cache.model_copy(update={"width": None}),
        "deliberate": config.deliberate.model_copy(update={"d": 0, "rounds": 1}),
        "out": str(folder),
    }
    run = resolve(config.model_copy(update=changes))
    plan = dataclasses.replace(evaluated, run=run, folder=folder)
    return ControlRun(CHAIN, run.config, f"{config.roles[0]} {does}", plan, run)


def _skill(evaluated: generate.Plan) -> ControlRun:
    config, reads = evaluated.config, evaluated.run.deliberator
    cache = config.cache.model_copy(update={"attempts": "none", "width": None})
    deliberate = config.deliberate.model_copy(update={"task": "skill", "rounds": 1})
    skill = reading_pools(config, cache=cache, deliberate=deliberate)
    reader = reader_of(reads.profile.tokenizer)
    sizes = (frame_tokens(each, 0, for_reader(each, skill), reader) for each in evaluated.problems)
    most, tokens = _most_tokens(evaluated, reads, longest := max(sizes))
    if most < 1:
        counted = f" ({ESTIMATED})" if reader.name == ESTIMATED else ""
        why = f"the skill with the longest problem has {longest:,} tokens{counted}, "
        why += f"and the context of {config.roles[1]} {reads.profile.context:,}"
        return ControlRun(SKILL, skill, f"Not asked: {why}", not_asked=why)
    sampling = deliberate.sampling.model_copy(update={"max_tokens": most})
    changes = {
        "cache": cache.model_copy(update={"budget_tokens": longest}),
        "deliberate": deliberate.model_copy(update={"sampling": sampling}),
    }
    skill = reading_pools(config, **changes)
    run = resolve(skill.model_copy(update={"pools": AFTER}))
    does = f"follows the skill in one response of {tokens}, {_times(deliberate.d)}"
    return ControlRun(SKILL, skill, f"{config.roles[1]} {does}", run=run)


def _most_tokens(evaluated: generate.Plan, model: ResolvedModel, prompt: int) -> tuple[int, str]:
    """Return how many tokens a model may write in place of a heavy answer, and this in words.

    They are those of the attempts of a cache and of the deliberations, as far as a ``prompt`` of so
    many tokens and the server leave room. The limit of attempts in pools is the deliberator's.
    """
    config, deliberator = evaluated.config, evaluated.run.deliberator
    random = config.cache.selection == "random"  # otherwise a cache needs all K attempts
    attempts = (config.cache.width if random else None) or config.think.k
    thinkers = evaluated.run.thinkers or (deliberator,)
    full = attempts * max(thinker.sampling.max_tokens for thinker in thinkers)
    deliberations = (config.rounds - 1) * config.deliberate.d + 1
    full += deliberations * deliberator.sampling.max_tokens
    room = model.profile.context - config.system_tokens - prompt - TEMPLATE_TOKENS
    seen = config.endpoint.capabilities
    most, why = min(  # maximum tokens, and what limits them
        (full, ""),
        (room, "more do not fit its context"),
        ((seen and seen.max_output) or full, "its server allows no more in one response"),
    )
    short = f" of the {full:,} that the heavy answer may have ({why})" if why else ""
    return most, f"at most {most:,} tokens{short}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _choose(evaluated: generate.Plan) -> ControlRun:
    config = evaluated.config
    deliberate = config.deliberate.model_copy(update={"task": "choose", "rounds": 1})
    chooses = evaluated.run.with_config(deliberate=deliberate)
    generate.check_room(chooses, evaluated.problems, asks=evaluated.contact is not None)
    does = f"{config.roles[1]} names the best of the same attempts, {_times(deliberate.d)}"
    if {problem.domain or config.domain for problem in evaluated.problems} != {"general"}:
        does += ", with the prompt for all domains"
    return ControlRun(CHOOSE, reading_pools(config, deliberate=deliberate), does)


def _other_wording(evaluated: generate.Plan, level: Level) -> ControlRun:
    config, name = evaluated.config, wording_name(level)
    domains = {problem.domain or config.domain or "general" for problem in evaluated.problems}
    try:
        worded = [at_level(level, each, config.language, config.prompts) for each in domains]
    except ConfigError as error:
        does = f"Not asked: {error.what}"
        return ControlRun(name, reading_pools(config), does, not_asked=error.what)
    prompts = config.prompts.model_copy(update={"deliberator": worded[0].text})
    run = evaluated.run.with_config(prompts=prompts)
    generate.check_room(run, evaluated.problems, asks=evaluated.contact is not None)
    does = f"{config.roles[1]} deliberates {_times(config.deliberate.d)}, wording {level}"
    return ControlRun(name, reading_pools(config, prompts=prompts), does)


def _other_orders(config: RunConfig, orders: int) -> list[ControlRun]:
    width = _width(config)
    if orders > 1 and config.rounds > 1:
        raise ConfigError(
            f"--orders {orders} needs a single round, but there are {config.rounds}",
            "Set --rounds to 1, or leave out --orders.",
        )
    if orders > width:
        raise ConfigError(
            f"--orders {orders}: a cache of {width} attempts has only {width} rotations",
            f"Set --orders to {width} or less.",
        )
    controls = []
    for places in range(1, orders):
        cache = config.cache.model_copy(update={"order": config.cache.order + places})
        does = f"{config.roles[1]} deliberates on the same attempts, rotated by {places}"
        controls += [ControlRun(order_name(places), reading_pools(config, cache=cache), does)]
    return controls
