"""A distilabel ``LLM`` that returns failures, reasoning and finish reasons as data.

distilabel's own classes lose the reasoning, may return one sample instead of K, and drop a batch on
a single error. This class requests each sample from the engine, derives the seed of a sample from
its content, and returns all fields of a response as extras. distilabel's own tasks can use it too;
they store the extras in columns ``llm_TASK_KEY``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.errors import ConfigError
from heavydistill.models.batch.queue import BatchQueue
from heavydistill.models.http.probe import Evidence
from heavydistill.models.journaled import JournaledEngine, journaled
from heavydistill.models.ledger import Ledger
from heavydistill.models.profiles import Profile
from heavydistill.models.registry import open_engine, profile_at
from heavydistill.models.request import (
    Engine,
    Keep,
    Message,
    Request,
    Response,
    Sample,
    after_system,
    discard,
    fields_of,
    samples,
)
from heavydistill.run.recipe.distilabel import LLM

# Fields of a generation that distilabel does not have.
EXTRAS = (
    "seed",
    "reasoning",
    "finish_reason",
    "error",
    "failure",
    "latency_s",
    "request_id",
    "cached_tokens",
    "served_model",
    "host",
    "system_fingerprint",
    "unknown_finish_reason",
)
Conversation = list[Message]
_PLAIN = ("prompt_tokens", "completion_tokens", "answer_text")


class HeavyLLM(LLM):
    """A model, looked up by profile name unless created by ``resolved`` with a profile.

    ``ledger``, ``most_tokens``, ``most_usd`` and ``holder`` are as in ``models.ledger.Ledger``.
    """

    teacher: str  # profile name, checkpoint folder, Hub id, or served name
    sampling: Sampling
    system: str | None = None  # system prompt before each conversation
    seed: int = 0  # seed of the run; see ``models.request.sample_seed``
    stage: str = ""  # stage in the journal; see ``models.request.Request``
    endpoint: Endpoint = Endpoint()
    journal: str | None = None  # folder that stores responses; None stores none
    ledger: str | None = None  # file of the run's budget account; None for no account
    most_tokens: int | None = None
    most_usd: float | None = None
    holder: str = ""
    replay: bool = False  # whether responses come only from the journal

    _engine: Engine | None = PrivateAttr(default=None)
    _keep: Keep = PrivateAttr(default_factory=lambda: discard)
    _on_tokens: Callable[[int], None] = PrivateAttr(default_factory=lambda: _uncounted)
    _queue: BatchQueue | None = PrivateAttr(default=None)
    _found: Profile | None = PrivateAttr(default=None)
    _evidence: Evidence | None = PrivateAttr(default=None)

    @classmethod
    def resolved(
        cls, profile: Profile, evidence: Evidence | None = None, **fields: object
    ) -> HeavyLLM:
        """Return the LLM of a model whose profile is known; ``evidence`` as in its engine."""
        llm = cls(**fields)
        llm._found, llm._evidence = profile, evidence
        return llm

    @property
    def model_name(self) -> str:
        """Return the name for seeds and records; it does not depend on the path of the profile."""
        return self._profile.name

    @property
    def in_process(self) -> bool:
        """Return whether the model runs in this process, not behind an endpoint."""
        return self._profile.kind == "local"

    @property
    def _profile(self) -> Profile:
        if self._found is None:
            self._found = profile_at(self.teacher, self.endpoint)
        return self._found

    def load(self) -> None:
        super().load()
        if self.endpoint.start_vllm and not self.replay:
            raise ConfigError(
                "endpoint.start_vllm is set, but no server was started for this pipeline",
                "Start it with heavydistill.models.vllm.server.served, and use its endpoint.",
            )
        profile = self._profile
        if profile.kind == "local":
            _share_processor()
        self._engine = self._opened(profile)
        if self.journal:
            folder = Path(self.journal)
            self._engine = journaled(self._engine, folder, profile.model, self.replay)

    def _opened(self, profile: Profile) -> Engine:
        if self._queue and self.endpoint.is_batched:
            return self._queue.engine(profile, self.endpoint)
        asked = self.endpoint
        if self.replay:  # nothing is asked
            asked = asked.model_copy(update={"batch": False, "batch_files": None})
        caps = self.most_tokens, self.most_usd
        ledger = self.ledger and Ledger(Path(self.ledger), *caps, self.holder)
        return open_engine(profile, asked, ledger or None, self._evidence, self._on_tokens)

    def unload(self) -> None:
        if self._engine:
            self._engine.close()
        self._engine = None

    def report_to(self, keep: Keep, on_tokens: Callable[[int], None]) -> None:
        """Call ``keep`` with the responses that do not come from the journal, and ``on_tokens``
        with the numbers of tokens that a model in this process writes; call it before ``load``."""
        self._keep, self._on_tokens = keep, on_tokens

    def queue_in(self, queue: BatchQueue | None) -> None:
        """Collect the requests in a queue if the endpoint is one of batches; call it before
        ``load``."""
        self._queue = queue

    def drain(self) -> None:
        """Send no more requests; see ``models.request.Engine``."""
        if self._engine:
            self._engine.drain()

    def sample(self, conversations: list[Conversation], count: int) -> list[list[Sample]]:
        """Return ``count`` samples of each conversation, in the engine's format."""
        if not self._engine:
            raise RuntimeError("HeavyLLM.sample before load()")
        about: dict[str, Any] = {
            "run_seed": self.seed,
            "model": self.model_name,
            "stage": self.stage,
        }
        requests = [
            samples(after_system(self.system, each), count, self.sampling, **about)
            for each in conversations
        ]
        responses = iter(self._engine.generate(list(chain.from_iterable(requests)), self._keep))
        return [[(request, next(responses)) for request in each] for each in requests]

    def answer_all(self, requests: list[Request]) -> list[Response]:
        """Answer requests of a step of ours; report them with ``count``."""
        if not self._engine:
            raise RuntimeError("HeavyLLM.answer_all before load()")
        return self._engine.generate(requests, discard)

    def answer(self, request: Request) -> Response:
        """Answer one request; several threads may call it at once if the model is served."""
        return self.answer_all([request])[0]

    def recorded(self, request: Request, part: str, make: Callable[[], Response]) -> Response:
        """The journaled result of a part of a request's work, else that of ``make``; see
        ``models.journaled``."""
        if isinstance(self._engine, JournaledEngine):
            return self._engine.recorded(request, part, make)
        return make()

    def count(self, samples: list[Sample]) -> None:
        """Report new responses as ``sample`` does."""
        self._keep(samples)

    def generate(
        self, inputs: list[Conversation], num_generations: int = 1
    ) -> list[dict[str, object]]:
        """Return ``num_generations`` samples of each conversation, in distilabel's format."""
        return [self._output(each) for each in self.sample(inputs, num_generations)]

    def _output(self, given: list[Sample]) -> dict[str, object]:
        fields = [fields_of(self.model_name, *sample) for sample in given]
        columns = {name: [each[name] for each in fields] for name in (*_PLAIN, *EXTRAS)}
        read, written, texts = (columns.pop(name) for name in _PLAIN)
        return {
            "generations": texts,
            "statistics": {"input_tokens": read, "output_tokens": written},
            **columns,
            "from_journal": [response.from_journal for _, response in given],
        }


def _uncounted(tokens: int) -> None:
    """Ignore tokens; a function of a module, because distilabel pickles its steps."""


def _share_processor() -> None:
    """Limit torch to half of the cores, because two stages run at once; OMP_NUM_THREADS wins.

    Threads that wait for a core would slow both stages.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(max(1, torch.get_num_threads() // 2))
