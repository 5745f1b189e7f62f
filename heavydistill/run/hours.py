"""How long requests take, from how long one takes.

That is as in the journal; where it does not tell, a response of a served model has any number of
tokens that its sampling allows, at ``endpoint.tokens_per_second``. Of a model in this process
nothing is assumed: machines differ too much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from heavydistill.config.models import Endpoint
from heavydistill.models.profiles import Profile
from heavydistill.run.past import Measured
from heavydistill.run.ranges import Range

_SECONDS_AN_HOUR, _MINUTES_AN_HOUR = 3600, 60


@dataclass(frozen=True, slots=True)
class Duration:
    """That of a response.

    Attributes:
        seconds: On average.
        longest_s: Of the slowest one.
    """

    seconds: Range
    longest_s: float


def duration_of(
    endpoint: Endpoint, model: Profile, max_tokens: int, measured: Measured | None
) -> Duration | None:
    """As measured, or as assumed; None if nothing is known."""
    if measured and measured.seconds:
        seconds = Range(max(0, measured.seconds.low), measured.seconds.high)
        return Duration(seconds, measured.longest_s)
    if model.kind == "local":
        return None
    speed = endpoint.tokens_per_second
    return Duration(Range(1 / speed, max_tokens / speed), max_tokens / speed)


def hours_of(
    endpoint: Endpoint, model: Profile, calls: Range, tokens: Range, duration: Duration | None
) -> Range:
    """Those of a stage alone; up to infinity where nothing is known.

    Args:
        endpoint: For its slots, and its limits a minute.
        model: Who is asked.
        calls: How often.
        tokens: Of all of them, prompts and responses.
        duration: Of a response.
    """
    if not calls.high:
        return Range(0, 0)
    if model.kind == "local":
        return _in_turn(calls, duration, 1)
    hours = _in_turn(calls, duration, endpoint.slots)
    if duration:
        # Few calls leave slots empty, and the slowest may come last.
        alone = duration.seconds.low / _SECONDS_AN_HOUR if calls.low else 0
        last = duration.longest_s / _SECONDS_AN_HOUR
        hours = Range(max(hours.low, alone), hours.high + last)
    for amount, limit in (
        (calls, endpoint.requests_per_minute),
        (tokens, endpoint.tokens_per_minute),
    ):
        if limit:
            least = amount.times(1, 1, limit * _MINUTES_AN_HOUR)
            hours = Range(max(hours.low, least.low), max(hours.high, least.high))
    return hours


def _in_turn(calls: Range, duration: Duration | None, slots: int) -> Range:
    """Hours of so many calls in slots that are always full."""
    if not duration:
        return Range(0, math.inf)
    return calls.times(duration.seconds.low, duration.seconds.high, slots * _SECONDS_AN_HOUR)
