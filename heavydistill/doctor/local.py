"""Whether a checkpoint loads in this process, and answers."""

from __future__ import annotations

import time
from collections.abc import Iterator

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.doctor.finding import Finding
from heavydistill.models.profile import Profile
from heavydistill.models.registry import open_engine
from heavydistill.models.request import Request, forget, user_turn


def listen(profile: Profile, sampling: Sampling, prompt: str) -> Iterator[Finding]:
    """Load it and ask once.

    Raises:
        TeacherError: It cannot be loaded.
    """
    started = time.perf_counter()
    engine = open_engine(profile, Endpoint())
    loaded = f"{profile.model} loads in {time.perf_counter() - started:.1f} s"
    yield Finding("checkpoint", "ok", loaded)
    (response,) = engine.generate([Request(user_turn(prompt), sampling, seed=0)], forget)
    engine.close()
    if response.error:
        fix = "Correct the checkpoint or its profile."
        yield Finding("answer", "failure", response.error, fix)
        return
    text = (
        f"{response.completion_tokens} tokens in {response.latency_s:.1f} s, "
        f"{len(response.reasoning)} characters of thinking, finish reason {response.finish_reason}"
    )
    if response.answer_text:
        yield Finding("answer", "ok", text)
        return
    fix = "Some attempts end so. If most of a run's do, raise think.sampling.max_tokens."
    yield Finding("answer", "warning", f"{text}, no answer", fix)
