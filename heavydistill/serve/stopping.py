"""The measured rule by which requests with ``heavy.k: "auto"`` get fewer attempts.

``evaluate --adaptive`` measures it and writes the file (see ``metrics.experiments.stopping``),
which a service reads with ``serve.stopping``. ``Episode`` executes what was measured: the first
``stop_at`` attempts are asked for, and the others of the K once these have ended without one
answer. With ``serve.gate``, short questions stop at one attempt, if it has an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heavydistill.config.serve import ServeConfig
from heavydistill.errors import ConfigError
from heavydistill.heavy import prompts
from heavydistill.heavy.judge_votes import rule_of
from heavydistill.metrics.experiments.stopping import (
    MAX_LOSS,
    StoppingReport,
    characters_of,
    read_stopping,
    sampling_of,
)
from heavydistill.models.resolve import ResolvedRun
from heavydistill.schema import Problem
from heavydistill.verifiers import registry

_log = logging.getLogger(__name__)
PLAIN = "text"
"""Name of the verifier in verdicts if ``serve.verifier`` is not set."""


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """Where requests stop."""

    agreeing: int  # number of first attempts that are enough if they agree; 0 for none
    short: int  # maximum characters of a question for which one attempt is enough; 0 for none

    def stop_at(self, problem: Problem) -> int:
        """``Rules.stop_at`` of a request."""
        return 1 if characters_of(problem) <= self.short else self.agreeing

    def because(self, stopped_at: int) -> str:
        """Why an episode ended with so many attempts."""
        if stopped_at == 1:
            return f"the question has at most {self.short:,} characters"
        return f"the first {stopped_at} attempts agree"


def stopping_rule(run: ResolvedRun) -> StoppingRule | None:
    """The rule of ``serve.stopping``; None if it is not set.

    Raises:
        ConfigError: The file cannot be read, confirms no rule, or was measured on something other
            than what is served.
    """
    config = run.config
    assert isinstance(config, ServeConfig)
    if not config.serve.stopping:
        return None
    path = Path(config.serve.stopping)
    report = read_stopping(path)
    short = (report.gate_at or 0) if config.serve.gate else 0
    if config.serve.gate and not short:
        raise ConfigError(
            f"{path} confirms no gate: no length of question is shown at which one attempt loses "
            f"at most {100 * MAX_LOSS:g} points",
            "Leave serve.gate out, or measure more problems (`heavydistill evaluate --adaptive`).",
        )
    if not (report.stop_at or short):
        raise ConfigError(f"{path} confirms no rule to stop: {_doubt(report)}", _more(report))
    if differing := list(_differing(report, run, config)):
        raise ConfigError(
            f"{path} was measured on something other than what is served: {'; '.join(differing)}",
            "Serve what was measured, e.g. with --config RUN/config.yaml and --verifier NAME, or "
            "measure a run of what is served with `heavydistill evaluate --adaptive RUN`.",
        )
    return StoppingRule(report.stop_at or 0, short)


def _doubt(report: StoppingReport) -> str:
    """Why no rule is confirmed."""
    most = f"at most {100 * MAX_LOSS:g} points"
    if not (rule := report.chosen):
        return f"none loses {most} by its bound, on the {report.choosing:,} problems that choose"
    if rule.confirmed.at_most <= MAX_LOSS:
        return f"the vote of {report.k} is better than deliberation, and takes fewer tokens"
    return (
        f"stopping where {rule.k} agree may lose {100 * rule.confirmed.at_most:.1f} points on the "
        f"{report.confirming:,} problems that confirm, and {most} are allowed"
    )


def _more(report: StoppingReport) -> str:
    if report.needs:
        return f"Measure about {2 * report.needs:,} problems, or leave serve.stopping out."
    return "Leave serve.stopping out. Clients then ask for k attempts, or for the model vote."


def _differing(report: StoppingReport, run: ResolvedRun, config: ServeConfig) -> Iterator[str]:
    """Yield what was measured and is not served."""
    thinker, verifier = run.thinker, config.serve.verifier
    assert thinker
    wording = config.domain or "general", config.language, config.prompts
    known = registry.get(verifier) if verifier else None
    served = {
        "thinker": {thinker.profile.name},
        "deliberator": {run.deliberator.profile.name},
        "prompts": {prompts.load(role, *wording).version for role in ("thinker", "deliberator")},
        "verifiers": {f"{known.name}@{known.version}" if known else PLAIN},
        "rounds": {str(config.deliberate.rounds)},
    }
    for role, model in (("thinker", thinker), ("deliberator", run.deliberator)):
        name, values = sampling_of(role, model.sampling)
        if name in report.measured:
            served[name] = values
        else:
            _log.warning("serve.stopping does not say how its %s sampled", role)
    measured = {name: set(report.measured.get(name, ())) for name in served}
    measured["verifiers"] = set(map(rule_of, measured["verifiers"]))
    for name, own in served.items():
        if measured[name] != own:
            was, now = measured[name] - own, own - measured[name]
            yield f"{name} {_listed(was or measured[name])}, served {_listed(now or own)}"
    if report.k != config.think.k:
        yield f"K {report.k}, served {config.think.k}"


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names)) or "none"
