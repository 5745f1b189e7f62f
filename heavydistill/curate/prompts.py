"""What a student reads: candidate sets as prompts, in the wording of the run, cut to its context.

A run's own cache is taken as it is, if the student can read it: it fits, and holds nothing that
the student takes for a control token. Else its attempts are cut again in the same order, which a
deliberation on them outlives, because it names attempts by their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from heavydistill.chat.student import Student
from heavydistill.config.sets import BuildConfig
from heavydistill.curate.candidates import CandidateSet, generator
from heavydistill.curate.mixture import Preset
from heavydistill.curate.sources import SourceRun
from heavydistill.errors import BudgetError, ConfigError
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import build_cache, recut
from heavydistill.heavy.pruning import defuse
from heavydistill.models.tokenizer import TEMPLATE_TOKENS
from heavydistill.schema import Cache, Generation, Problem, Trajectory

_PAPER_BUDGET_TOKENS = 80_000


class Prompter:
    """Makes prompts for a student.

    Raises:
        ConfigError: ``max_tokens`` of the build is more than the student can read.
    """

    def __init__(self, config: BuildConfig, preset: Preset, student: Student) -> None:
        self.max_tokens = config.max_tokens or student.context  # Maximum number of tokens of a row
        if self.max_tokens > student.context:
            raise ConfigError(
                f"max_tokens {self.max_tokens} is more than the {student.context} tokens that "
                f"{student.name} can read",
                f"Set max_tokens to {student.context} or less.",
            )
        response = min(student.response_tokens, self.max_tokens // 2)
        room = self.max_tokens - response - TEMPLATE_TOKENS
        limits = [room, config.cache.budget_tokens or _PAPER_BUDGET_TOKENS]
        self.budget_tokens = min([*limits, preset.most_tokens or room])
        """Maximum number of tokens of a drawn set, and of a prompt whose answer is not known."""
        self._most_tokens = preset.most_tokens or self.max_tokens
        self._config, self._student = config, student

    def drawn(
        self, source: SourceRun, problem: Problem, of: CandidateSet, pool: Sequence[Trajectory]
    ) -> Cache | None:
        """The cache of a drawn set; None if the student's context does not hold it."""
        try:
            return build_cache(
                problem,
                [trajectory for trajectory in pool if trajectory.id in of.members],
                round=1,
                seed=generator(self._config.seed, *of.members).getrandbits(31),
                selection="random",
                width=None,
                pruning=self._config.cache.pruning,
                budget_tokens=self.budget_tokens,
                prompt=self.wording("deliberator", source, problem),
                reader=self._student.reader,
            )
        except BudgetError:
            return None

    def readable(
        self,
        source: SourceRun,
        problem: Problem,
        cache: Cache,
        shown: Sequence[Generation],
        most_tokens: int,
    ) -> Cache | None:
        """A cache as the student can read it.

        ``shown`` are its attempts, and ``most_tokens`` counts the prompt with the template around
        it; the mixture may take fewer.

        Returns:
            ``cache`` itself if nothing has to be changed; else another one; None if not even the
            final answers fit.
        """
        most_tokens = min(most_tokens, self._most_tokens)
        _, control_tokens = defuse(cache.prompt, self._student.reader.control_tokens)
        tokens = self._student.prompt_tokens(cache.prompt)
        if tokens <= most_tokens and not control_tokens:
            return cache
        around = tokens - self._student.reader.count(cache.prompt)
        try:
            return recut(
                problem,
                cache,
                shown,
                budget_tokens=most_tokens - around,
                prompt=_wording_of(cache.prompt_version)
                or self.wording("deliberator", source, problem),
                reader=self._student.reader,
            )
        except BudgetError:
            return None

    def wording(self, role: prompts.Role, source: SourceRun, problem: Problem) -> prompts.Prompt:
        """The wording of a role for a problem of a run."""
        return prompts.load(role, source.domain_of(problem, self._student.domain), source.language)


def _wording_of(version: str) -> prompts.Prompt | None:
    """The wording of a version; None if it is not that of this heavydistill."""
    role, domain, language = version.partition("@")[0].split(".")
    if (role, domain, language) not in prompts.available():
        return None
    wording = prompts.load(cast(prompts.Role, role), domain, language)
    return wording if wording.version == version else None
