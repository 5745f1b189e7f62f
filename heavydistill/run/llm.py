"""An engine under distilabel, as its ``LLM``: failure, reasoning and finish reason are data.

distilabel's own classes lose the reasoning, let K become 1 and drop a batch for one error. This
one asks the engine for each sample by itself, derives each sample's seed from what it is, and
returns every field of every response as an extra, so that it also serves distilabel's stock
tasks (they see the extras as columns ``llm_TASK_KEY``).
"""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any

from distilabel.models.llms.base import LLM
from pydantic import PrivateAttr

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.errors import ConfigError
from heavydistill.models.journaled import JournaledEngine, journals
from heavydistill.models.ledger import Ledger
from heavydistill.models.profiles import Profile
from heavydistill.models.registry import open_engine, profile_at
from heavydistill.models.request import Engine, Keep, Request, Response, fields_of, forget, samples
from heavydistill.store.journal import Journal

# Fields of a generation for which distilabel has no place.
EXTRAS = (
    "seed",
    "reasoning",
    "finish_reason",
    "error",
    "failure",
    "latency_s",
    "request_id",
    "cached_tokens",
)
Conversation = list[dict[str, str]]
Sample = tuple[Request, Response]
_PLAIN = ("prompt_tokens", "completion_tokens", "answer_text")


class HeavyLLM(LLM):
    """A model by the name of its profile, which is looked up unless ``resolved`` gave it.

    Caps, holder and the account itself are those of ``models.ledger.Ledger``.
    """

    teacher: str  # Profile name, checkpoint folder, Hub id, or served name
    sampling: Sampling
    seed: int = 0  # Seed of the run; see ``models.request.sample_seed``
    stage: str = ""  # Stage for the record; see ``models.request.Request``
    endpoint: Endpoint = Endpoint()
    journal: str | None = None  # Folder where responses are kept; None keeps none
    ledger: str | None = None  # File of the run's account; None keeps none
    most_tokens: int | None = None
    most_usd: float | None = None
    holder: str = ""
    replay: bool = False  # Send no request, take all from the journal

    _engine: Engine | None = PrivateAttr(default=None)
    _keep: Keep = PrivateAttr(default_factory=lambda: forget)
    _found: Profile | None = PrivateAttr(default=None)

    @classmethod
    def resolved(cls, profile: Profile, **fields: Any) -> HeavyLLM:
        """The LLM of a model whose profile at its endpoint is known."""
        llm = cls(**fields)
        llm._found = profile
        return llm

    @property
    def model_name(self) -> str:
        """What seeds and records call it: the same however the file of its profile was named."""
        return self._profile.name

    @property
    def in_process(self) -> bool:
        """Whether the model runs where it is asked, and not behind an endpoint."""
        return self._profile.kind == "local"

    @property
    def _profile(self) -> Profile:
        if self._found is None:  # it is read from a file
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
        caps = self.most_tokens, self.most_usd
        ledger = self.ledger and Ledger(Path(self.ledger), *caps, self.holder)
        self._engine = open_engine(profile, self.endpoint, ledger or None)
        if self.journal:
            folder = Path(self.journal)
            journal = journals.borrow(folder.absolute(), lambda: Journal(folder))
            self._engine = JournaledEngine(self._engine, journal, profile.model, self.replay)

    def unload(self) -> None:
        if self._engine:
            self._engine.close()
        self._engine = None

    def report_to(self, keep: Keep) -> None:
        """Let it see each response that is asked for from now on, but none of the journal's."""
        self._keep = keep

    def drain(self) -> None:
        """Ask nothing more; see ``models.request.Engine``."""
        if self._engine:
            self._engine.drain()

    def sample(self, conversations: list[Conversation], count: int) -> list[list[Sample]]:
        """``count`` samples of each conversation, as the engine gives them."""
        if not self._engine:
            raise RuntimeError("HeavyLLM.sample before load()")
        about: dict[str, Any] = {
            "run_seed": self.seed,
            "model": self.model_name,
            "stage": self.stage,
        }
        requests = [samples(each, count, self.sampling, **about) for each in conversations]
        responses = iter(self._engine.generate(list(chain.from_iterable(requests)), self._keep))
        return [[(request, next(responses)) for request in each] for each in requests]

    def generate(
        self, inputs: list[Conversation], num_generations: int = 1
    ) -> list[dict[str, Any]]:
        """``num_generations`` samples of each conversation, in distilabel's ``GenerateOutput``."""
        return [self._output(each) for each in self.sample(inputs, num_generations)]

    def _output(self, given: list[Sample]) -> dict[str, Any]:
        fields = [fields_of(self.model_name, *sample) for sample in given]
        columns = {name: [each[name] for each in fields] for name in (*_PLAIN, *EXTRAS)}
        read, written, texts = (columns.pop(name) for name in _PLAIN)
        return {
            "generations": texts,
            "statistics": {"input_tokens": read, "output_tokens": written},
            **columns,
            "from_journal": [response.from_journal for _, response in given],
        }


def _share_processor() -> None:
    """Leave half of the processor to the other stage, unless OMP_NUM_THREADS says what to take.

    Two stages that ask are at work at once, and threads that wait for a core cost more than none.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(max(1, torch.get_num_threads() // 2))
