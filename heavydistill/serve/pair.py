"""The models that are served, and all that is the same for every request.

Wordings, tokenizer and sampling are those of a run with the same configuration, so that a served
model reads the prompts that it was trained on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from heavydistill.config.run import CacheChoice, Deliberating, Think
from heavydistill.config.serve import ServeConfig
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import attempts_that_fit
from heavydistill.heavy.prompts import Prompt
from heavydistill.heavy.pruning import Reader
from heavydistill.models.contact import ServerProbe
from heavydistill.models.http.engine import OpenAIEngine
from heavydistill.models.local.engine import LocalEngine
from heavydistill.models.local.queue import LocalQueue
from heavydistill.models.request import LiveEngine, Message
from heavydistill.models.resolve import ResolvedModel, ResolvedRun, resolve
from heavydistill.models.tokenizer import SERVER, ReaderTokenizer, ServerTokenizer
from heavydistill.run.generate import with_tokenizer
from heavydistill.run.learnt_prompts import unlearnt_prompts
from heavydistill.schema import Generation, Problem, Verdict
from heavydistill.serve.stopping import PLAIN, StoppingRule
from heavydistill.text.extraction import boxed
from heavydistill.verifiers import registry
from heavydistill.verifiers.normal import normal_form
from heavydistill.verifiers.pool import VerdictPool

# References for the verifiers that read answers without one; their verdicts are not used.
_REFERENCES = {"math": "0", "exact": "0", "judged": "0", "choice": "A"}
_log = logging.getLogger(__name__)
_MOST_CHARACTERS = 1000  # of an answer in normal form; longer ones are compared as they are


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model in one role, with the engine that answers for it."""

    model: ResolvedModel
    engine: LiveEngine

    def refusal(self, messages: list[Message]) -> str:
        """Why a model in this process cannot read such a conversation; empty if it can."""
        if not isinstance(self.engine, LocalQueue):
            return ""  # its server says so
        name, why = self.model.profile.name, self.engine.refusal(messages)
        return why and f"The chat template of {name} does not take these messages: {why}"


@dataclass(frozen=True, slots=True)
class Pair:
    """Thinker and deliberator, ready to answer."""

    config: ServeConfig  # with all values that depend on the models
    thinker: ServedModel
    deliberator: ServedModel
    thinker_prompt: Prompt
    deliberator_prompt: Prompt
    reader: ReaderTokenizer | ServerTokenizer
    verdicts: VerdictPool
    stopping: StoppingRule | None  # of requests with k ``auto``

    @property
    def reader_of_request(self) -> Reader:
        """The deliberator's tokenizer for one request."""
        return self.reader.renewed() if isinstance(self.reader, ServerTokenizer) else self.reader

    def problem(self, id: str, text: str, history_json: str = "") -> Problem:
        """The problem of a request, whose right answer nobody knows."""
        verifier = self.config.serve.verifier or ""
        args = json.dumps(self.config.serve.verifier_args)
        return Problem(
            id=id,
            text=text,
            reference=_REFERENCES.get(verifier, ""),
            verifier=verifier,
            verifier_args=args,
            history_json=history_json,
        )

    async def reading(self, problem: Problem, generation: Generation) -> Verdict:
        """Read the final answer of a response, by which attempts are grouped.

        With ``serve.verifier``, it is the answer that an evaluation reads. Without, it is the
        last box or else the whole text, in normal form.
        """
        verifier, extracted = PLAIN, None
        if problem.verifier:
            read = self.verdicts.submit_generation(problem, generation)
            verdict = (await asyncio.wrap_future(read)).verdict
            verifier, extracted = verdict.verifier, verdict.extracted
        elif generation.unusable_because is None:
            extracted = _plain(generation.answer_text)
        return Verdict(
            label="undecided", reason="no_reference", extracted=extracted, verifier=verifier
        )

    def close(self) -> None:
        """Close engines and workers."""
        self.thinker.engine.close()
        if self.deliberator.engine is not self.thinker.engine:
            self.deliberator.engine.close()
        self.verdicts.close()


def _plain(text: str) -> str | None:
    answer = " ".join((boxed(text) or text).split())
    return normal_form(answer).text or None if len(answer) <= _MOST_CHARACTERS else answer


def resolved(config: ServeConfig, contact: ServerProbe | None) -> ResolvedRun:
    """Find out which models are served, and where; loads none of them.

    A trained model that has learnt other prompts is warned of.

    Raises:
        TeacherError, ConfigError: As ``resolve``; or the verifier reads no answer without a
            reference.
    """
    config.load_plugins()
    _check_verifier(config)
    thinker_name, deliberator_name = config.roles
    apart = config.serve.deliberator_endpoint
    if apart is None:
        run = resolve(config, contact)
        thinkers = run.thinkers
    else:  # each role as that of a run of its own, in which both roles have its model
        both: dict[str, object] = {"teacher": thinker_name, "thinker": None, "deliberator": None}
        alone = both | {"cache": CacheChoice(), "deliberate": Deliberating()}
        of_thinker = resolve(config.model_copy(update=alone), contact)
        thinkers, domain = of_thinker.thinkers, of_thinker.config.domain
        both["teacher"] = deliberator_name
        alone = both | {"endpoint": apart, "think": Think(), "domain": domain}
        with _naming("serve.deliberator_endpoint"):
            run = resolve(config.model_copy(update=alone), contact)
    run = with_tokenizer(run)
    decided = {name: getattr(run.config, name) for name in ("domain", "cache")}
    run = replace(run, config=config.model_copy(update=decided), thinkers=thinkers)
    for unlearnt in unlearnt_prompts(run, [Problem(id="", text="?", reference="", verifier="")]):
        learnt, asked = " and ".join(unlearnt.learnt), " and ".join(unlearnt.asked)
        _log.warning(
            "%s was trained on %s, and is asked with %s. Its answers can be far worse: %s",
            *(unlearnt.model, learnt, asked, unlearnt.fix),
        )
    return run


@contextlib.contextmanager
def _naming(key: str) -> Iterator[None]:
    """Name the keys of another endpoint than ``endpoint`` in the fix of a TeacherError."""
    try:
        yield
    except TeacherError as error:
        fix = error.fix.replace("--set endpoint.", f"--set {key}.")
        fix = fix.replace("--endpoint", f"--set {key}.base_url")
        raise TeacherError(f"{key}: {error.what}", fix) from error


def _check_verifier(config: ServeConfig) -> None:
    """Raise ConfigError if ``serve.verifier`` cannot read answers of requests."""
    name = config.serve.verifier
    if not name:
        return
    if name not in _REFERENCES:
        raise ConfigError(
            f"serve.verifier: {name} cannot read the answer of a request without a reference",
            f"Give one of {', '.join(_REFERENCES)}, or none: equal texts then count as one answer.",
        )
    args = json.dumps(config.serve.verifier_args)
    problem = Problem(
        id="", text="?", reference=_REFERENCES[name], verifier=name, verifier_args=args
    )
    try:
        fault = registry.get(name).check_reference(problem)
    except ValueError as error:
        fault = str(error)
    if fault:
        raise ConfigError(
            f"serve.verifier_args does not suit the verifier {name}: {fault}",
            "Correct it, e.g. --set serve.verifier_args.options=4 for the verifier choice.",
        )


def open_pair(run: ResolvedRun, stopping: StoppingRule | None) -> Pair:
    """Load the models that ``resolved`` found.

    Raises:
        TeacherError: One of them cannot be loaded.
        ConfigError: A cache has no room for K attempts at any question.
    """
    config, thinker, deliberator = run.config, run.thinker, run.deliberator
    assert isinstance(config, ServeConfig) and thinker
    wording = config.domain or "general", config.language, config.prompts
    deliberator_prompt = prompts.load("deliberator", *wording)
    reader: ReaderTokenizer | ServerTokenizer
    if deliberator.profile.tokenizer == SERVER:
        reader = ServerTokenizer(deliberator.profile.model, deliberator.endpoint)
    else:
        reader = ReaderTokenizer(deliberator.profile.tokenizer)
    _check_room(run, deliberator_prompt, reader)
    thinks = _engine(thinker)
    is_same = (thinker.profile.model, thinker.endpoint) == (
        deliberator.profile.model,
        deliberator.endpoint,
    )
    return Pair(
        config=config,
        thinker=ServedModel(thinker, thinks),
        deliberator=ServedModel(deliberator, thinks if is_same else _engine(deliberator)),
        thinker_prompt=prompts.load("thinker", *wording),
        deliberator_prompt=deliberator_prompt,
        reader=reader,
        verdicts=VerdictPool(config.verify),
        stopping=stopping,
    )


def _check_room(run: ResolvedRun, prompt: Prompt, reader: Reader) -> None:
    """Raise ConfigError if a cache has no room for K attempts at the shortest question."""
    config = run.config
    k, budget = (
        min(config.think.k, config.cache.width or config.think.k),
        config.cache.budget_tokens,
    )
    question = Problem(id="", text="?", reference="", verifier="")
    fits, needed = attempts_that_fit(question, k, budget or 0, prompt, reader)
    if fits == k:
        return
    room = run.deliberator.max_prompt_tokens - config.system_tokens
    larger = f"set cache.budget_tokens to {needed} or more"
    more = larger if needed <= room else "serve a deliberator with more context"
    raise ConfigError(
        f"The deliberator's cache of {budget:,} tokens does not hold {k} attempts, which need "
        f"{needed:,} with the shortest question",
        f"Give --k {fits} or less, or {more}." if fits > 1 else f"{more[0].upper()}{more[1:]}.",
    )


def _engine(model: ResolvedModel) -> LiveEngine:
    profile = model.profile
    if model.is_local:
        return LocalQueue(LocalEngine(profile.model, profile.think_tags))
    return OpenAIEngine(profile, model.endpoint)
